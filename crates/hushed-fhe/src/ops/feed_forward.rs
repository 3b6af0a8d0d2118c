//! The feed-forward block on columns: hidden columns are computed, used and dropped block by block, so they are never
//! all in memory.
//!
//! | step | levels |
//! |---|---|
//! | up: gain and offset of the norm before, and the map of each column's interval to [−1, 1], are folded in | 1 |
//! | the activation, a polynomial per column ([`crate::ops::activation`]) | ⌈log2(degree + 1)⌉ |
//! | with a gate: its product with the result of `up`, relinearised column by column | 1 |
//! | with a gate, if down is declared ternary: products are at the scale it takes | 0 |
//! | down: κ and centring of the norm after are folded in; products of all blocks are summed, then rescaled once | 1 |
//!
//! [`feed_forward_spilled`] holds first the columns and then the sums of the second map, never both: hidden columns are
//! spilled in between.
//!
//! There are no rotations. MOAI holds all hidden columns (3072 ciphertexts); a block of 64 takes at most 0.8 GiB at N =
//! 2^16.

use std::borrow::Cow;
use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_ckks::poly::Arithmetic;
use hushed_model::{FeedForward, StepId, same};

use rayon::prelude::*;

use crate::choices::ActivationChoice;
use crate::error::FheError;
use crate::ops::activation::{activation, argument_scale, levels, unit_map};
use crate::ops::acts::Acts;
use crate::ops::after::{After, Form, Last};
use crate::ops::decoder::sub_norm::SubNorm;
use crate::ops::folded::Polynomials;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::ops::norm::product;
use crate::ops::paired::Inputs;
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// A feed-forward block of a run: the model's layer, its calibration, and how it is split into blocks.
pub struct FeedForwardLayer<'a> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a FeedForward,
    /// The degree of the activation and the interval of each hidden column.
    pub choice: &'a ActivationChoice,
    /// A decoder's norm before the second map, if it has one.
    pub sub_norm: Option<SubNorm<'a>>,
    /// The reader of its result.
    pub after: After<'a>,
    /// Hidden columns per block.
    pub hidden_block: usize,
    /// Whether each vector that it reads holds two columns.
    pub paired: bool,
    /// Fits shared by all layers.
    pub polynomials: &'a Polynomials,
}

/// The form that [`After`] takes of y = down(f(up(x))), or of down(f(gate(x)) ∘ up(x)),
/// [`FeedForwardLayer::hidden_block`] hidden columns at a time; for a norm, κ·(y − mean of y) by columns.
///
/// # Errors
/// Shapes that differ, layers without numbers, too few levels, and what the arithmetic refuses.
pub fn feed_forward<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &FeedForwardLayer<'_>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, x, layer)?;
    let mut read = (None, None);
    for block in run.blocks() {
        let y = run.hidden_columns(x, block.clone())?;
        run.down(&y, block, &mut read)?;
    }
    run.finish(read)
}

/// As [`feed_forward`], bit for bit, with less memory: hidden columns are spilled, so the columns they are made of are
/// dropped before the sums of the second map are held.
///
/// # Errors
/// As [`feed_forward`] and [`Slots::store`].
pub fn feed_forward_spilled<S: Slots>(
    on: &S,
    x: Acts<S::Value>,
    layer: &FeedForwardLayer<'_>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, &x, layer)?;
    let mut waiting = Vec::new();
    for block in run.blocks() {
        let y = run.hidden_columns(&x, block.clone())?;
        waiting.push((block, on.store(y)?));
    }
    drop(x);
    let mut read = (None, None);
    for (block, y) in waiting {
        on.at(run.down_at);
        let y = on.load(y)?;
        run.down(&y, block, &mut read)?;
    }
    run.finish(read)
}

/// How the layers of a block that are declared ternary are computed, by part; `None` for the others.
#[must_use]
pub fn forms(f: &FeedForward, after: After<'_>) -> [(&'static str, Option<Form>); 3] {
    [("gate", f.gate.as_ref().and_then(Form::first)), ("up", Form::first(&f.up)), ("down", down_form(f, after))]
}

/// Only the products of a gate come at a scale that can be chosen.
fn down_form(f: &FeedForward, after: After<'_>) -> Option<Form> {
    after.form(&f.down, f.sub_norm.as_ref(), f.gate.is_some())
}

/// One layer's maps and scales.
struct Run<'a, S: Slots> {
    on: &'a S,
    layer: &'a FeedForwardLayer<'a>,
    up_at: StepId,
    activation_at: StepId,
    down_at: StepId,
    /// For the activation's arguments: the gate, if there is one.
    up: Arc<LinearMap>,
    /// For what a gate multiplies.
    factor: Option<Arc<LinearMap>>,
    limbs: Limbs,
    down: Last,
    /// The scale of the activation's arguments.
    argument: Scale,
}

/// Primes on the way from the columns to the result.
struct Limbs {
    /// Of the activation's results.
    activated: usize,
    /// Of the last map's operands.
    products: usize,
    result: usize,
}

impl Limbs {
    fn of<S: Slots>(on: &S, columns: usize, layer: &FeedForwardLayer<'_>) -> Result<Limbs, FheError> {
        let FeedForwardLayer { block, choice, .. } = *layer;
        let activated = below(on, columns, 1 + levels(choice.degree))?;
        let products = below(on, activated, usize::from(block.gate.is_some()))?;
        let norm = layer.sub_norm.as_ref();
        let down = below(on, products, Form::levels(down_form(block, layer.after)))?;
        Ok(Limbs { activated, products, result: norm.map_or(Ok(down), |norm| norm.limbs(on, down))? })
    }
}

/// The primes of the result for columns with `columns` primes.
///
/// # Errors
/// Too few levels.
pub fn result_limbs<S: Slots>(on: &S, columns: usize, layer: &FeedForwardLayer<'_>) -> Result<usize, FheError> {
    Ok(Limbs::of(on, columns, layer)?.result)
}

impl<'a, S: Slots> Run<'a, S> {
    fn new(on: &'a S, x: &Acts<S::Value>, layer: &'a FeedForwardLayer<'a>) -> Result<Self, FheError> {
        let FeedForwardLayer { at, block, choice, .. } = *layer;
        if block.sub_norm.is_some() != layer.sub_norm.is_some() {
            return Err(FheError::Unsupported {
                what: format!("{at}: a norm inside a block"),
                remedy: "sub-norms are supported in decoders only",
            });
        }
        let hidden = block.up.outputs;
        same(at, "intervals", choice.columns.len(), hidden)?;
        same(at, "hidden columns", block.down.inputs, hidden)?;
        let (up_at, down_at) = (at.part("up"), at.part("down"));
        let start = x.columns.iter().map(|c| on.limbs(c)).min().unwrap_or(0);
        let limbs = Limbs::of(on, start, layer)?;
        let (after, w) = match &layer.sub_norm {
            Some(norm) => norm.last(layer.after, &block.down)?,
            None => (layer.after, Cow::Borrowed(&block.down)),
        };
        let form = down_form(block, layer.after);
        let down = after.last(on, down_at, &w, limbs.products, form)?;
        let (argument_at, argument_of, factor) = match &block.gate {
            Some(gate) => {
                let factor = on.map(up_at, || x.folded(on, up_at, &block.up))?;
                (at.part("gate"), gate, Some(factor))
            }
            None => (up_at, &block.up, None),
        };
        if let Some(factor) = &factor {
            same(at, "columns of the gate", argument_of.outputs, factor.rows)?;
        }
        Ok(Run {
            on,
            layer,
            up: on.map(argument_at, || unit_map(x.folded(on, up_at, argument_of)?, &choice.columns))?,
            factor,
            limbs,
            down,
            up_at,
            activation_at: at.part("activation"),
            down_at,
            argument: argument_scale(on, below(on, start, 1)?)?,
        })
    }

    /// The ranges of hidden columns, one per block.
    fn blocks(&self) -> impl Iterator<Item = Range<usize>> + use<'a, S> {
        let (hidden, block) = (self.layer.block.up.outputs, self.layer.hidden_block.max(1));
        (0..hidden).step_by(block).map(move |from| from..hidden.min(from + block))
    }

    /// Computes a block of hidden columns.
    fn hidden_columns(&self, x: &Acts<S::Value>, block: Range<usize>) -> Result<Vec<S::Value>, FheError> {
        let (on, choice) = (self.on, self.layer.choice);
        on.at(self.up_at);
        let x = Inputs::of(&x.columns, self.layer.paired);
        let t = x.linear(on, &self.up.rows(block.clone()), (None, self.argument))?;
        on.at(self.activation_at);
        let (f, first) = (self.layer.block.activation, block.start);
        let intervals = choice.columns.get(block.clone()).unwrap_or_default();
        let polynomials = self.layer.polynomials;
        let y = activation(on, f, first, t, intervals, choice.degree, polynomials)?;
        match &self.factor {
            Some(factor) => self.gated(y, factor.rows(block), x),
            None => Ok(y),
        }
    }

    /// y ∘ (`factor` of x): the products of a gate, one level below y.
    fn gated(&self, y: Vec<S::Value>, factor: LinearMap, x: Inputs<'_, S::Value>) -> Result<Vec<S::Value>, FheError> {
        let on = self.on;
        on.at(self.up_at);
        // Computed at the level of the activation's results, where a product of the map costs least.
        let from = above(on, self.limbs.activated)?;
        // The products are at the scale the last map takes.
        let target = scale_of(self.down.operands() * divisor(on, self.limbs.activated)?)?;
        let factors = x.linear(on, &factor, (Some(from), target))?;
        on.at(self.layer.at.part("product"));
        let both = y.into_par_iter().zip(factors);
        both.map(|(y, factor)| product(on, &y, &factor)).collect()
    }

    /// Adds the products of a block of hidden columns to the sums of the second map, and their squares to those of the
    /// norm before it.
    fn down(&self, y: &[S::Value], block: Range<usize>, (partial, squares): &mut Read<S>) -> Result<(), FheError> {
        self.on.at(self.down_at);
        if let Some(norm) = &self.layer.sub_norm {
            *squares = Some(norm.add(self.on, squares.take(), y)?);
        }
        let first = block.start == 0;
        let mut map = self.down.map().columns(block);
        if first {
            map.bias.clone_from(&self.down.map().bias);
        }
        *partial = Some(self.down.add(self.on, &map, y, partial.take())?);
        Ok(())
    }

    fn finish(&self, (partial, squares): Read<S>) -> Result<Vec<S::Value>, FheError> {
        let y = self.down.finish(self.on, partial)?;
        match &self.layer.sub_norm {
            Some(norm) => norm.finish(self.on, squares, y),
            None => Ok(y),
        }
    }
}

/// Sums of the second map over some hidden columns, and sums of their squares.
type Read<S> = (Option<<S as Slots>::Partial>, Option<<S as Arithmetic>::Sum>);

#[cfg(test)]
#[path = "feed_forward_tests.rs"]
mod tests;
