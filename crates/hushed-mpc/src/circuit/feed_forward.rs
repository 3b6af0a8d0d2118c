//! Feed-forward blocks: two wide layers with an activation between them, and a gate or norm where a model has one;
//! blocks merged into a single linear layer; and the head of a classifier, a feed-forward block on one row.

use hushed_model::{Classifier, FeedForward, Linear, Pool, Step};
use hushed_twopc::func::Format;

use super::{Acts, Held, Pass};
use crate::RunError;
use crate::circuit::function::Function;
use crate::circuit::pool::pool;
use crate::circuit::product::Product;
use crate::formats::{ACTIVATION, INNER, LINEAR};
use crate::shares::{Local, Shares};

impl<S: Shares> Pass<'_, S> {
    pub(super) fn feed_forward(
        &mut self,
        step: &Step,
        values: &mut Held<S>,
        f: &FeedForward,
    ) -> Result<Acts<S::Share>, RunError> {
        let (x, residual) = Self::operand(step, values)?;
        let product = Product::up(x.norm.as_ref(), f, residual);
        let wide = self.wide(step, "up", &x, &product)?;
        let (rows, hidden) = (x.rows.total(), f.up.outputs);
        let part = |columns| wide.columns(rows, columns);
        if residual {
            Self::leave(step, values, &x, (&wide, &product))?;
        }
        // The gate comes first, if there is one.
        let (function, up) = (Function::of(f), part(0..hidden));
        let id = step.id.part("activation");
        let mut y = self.on.step(id, |on| on.apply(&function, &up))?;
        let to = match f.sub_norm {
            Some(_) => INNER,
            None => ACTIVATION,
        };
        if f.gate.is_some() {
            let (up, gates) = (part(hidden..2 * hidden), function.gates());
            let id = step.id.part("product");
            y = self.on.step(id, |on| gated(on, [&y, &up], gates, to))?;
        } else if to != ACTIVATION {
            y = y.shift_left(to.frac - ACTIVATION.frac);
        }
        if f.sub_norm.is_some() {
            // A norm's declared formats refer to the model's own numbers.
            y = y.times(function.back() as i64);
        }
        let y = Acts::new(y, to, x.rows, hidden);
        let y = self.sub_norm(step, y, function.back() * function.scale())?;
        let down = self.wide(step, "down", &y, &Product::down(f))?;
        Ok(Acts::new(down, LINEAR, y.rows, f.down.outputs))
    }

    /// A feed-forward block that is one linear layer.
    pub(super) fn merged(&mut self, step: &Step, values: &mut Held<S>, w: &Linear) -> Result<Acts<S::Share>, RunError> {
        let (x, residual) = Self::operand(step, values)?;
        let product = Product::merged(x.norm.as_ref(), w, residual);
        let wide = self.wide(step, "map", &x, &product)?;
        if residual {
            Self::leave(step, values, &x, (&wide, &product))?;
        }
        let y = wide.columns(x.rows.total(), 0..w.outputs);
        Ok(Acts::new(y, LINEAR, x.rows, w.outputs))
    }

    /// A classifier's logits, one per class, from the first row of each text: a feed-forward block on one row.
    pub(super) fn head(
        &mut self,
        step: &Step,
        values: &mut Held<S>,
        c: &Classifier,
    ) -> Result<Acts<S::Share>, RunError> {
        let x = values.take(step, 0)?;
        let f = FeedForward {
            up: c.dense.clone(),
            gate: None,
            activation: c.activation,
            tolerance: None,
            sub_norm: None,
            down: c.classes.clone(),
        };
        let first =
            self.on.step(step.id.part("first"), |on| pool(on, &x.share, &x.rows, x.width, Pool::First, false))?;
        let mut first = Acts::new(first, x.format, x.rows.pooled(), x.width);
        first.norm = x.norm;
        let product = Product::up(first.norm.as_ref(), &f, false);
        let up = self.wide(step, "dense", &first, &product)?;
        let id = step.id.part("activation");
        let y = self.on.step(id, |on| on.apply(&Function::of(&f), &up))?;
        let y = Acts::new(y, ACTIVATION, first.rows, f.up.outputs);
        let classes = self.wide(step, "classes", &y, &Product::down(&f))?;
        Ok(Acts::new(classes, LINEAR, y.rows, f.down.outputs))
    }
}

/// An activation's result in [`ACTIVATION`] times another layer's in [`LINEAR`], by way of these formats, in `to`.
fn gated<S: Shares>(
    on: &mut S,
    [y, up]: [&S::Share; 2],
    [gate, gated]: [Format; 2],
    to: Format,
) -> Result<S::Share, RunError> {
    let y = on.narrow(y, ACTIVATION.frac - gate.frac, gate.ring);
    let up = on.rescale(up, LINEAR.frac - gated.frac, gated.ring)?;
    let product = on.multiply(&y, &up)?;
    on.rescale(&product, gate.frac + gated.frac - to.frac, to.ring)
}
