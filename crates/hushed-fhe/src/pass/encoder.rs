//! An encoder over a batch of texts, one vector per column.
//!
//! A layer takes and returns refreshed columns. The program tells which norm follows a block; its κ and centring are
//! folded into the block's last linear layer.
//!
//! | step | result |
//! |---|---|
//! | attention, feed-forward | κ·(y − mean of y) by columns |
//! | sum | the same with the residual in it |
//! | norm | x̂/bound by columns, refreshed to the level at which the next block begins; not after the last layer |
//! | pooling or head | the declared outputs, packed |
//!
//! If the placement spills vectors, a block drops the columns once it has read them, and keeps on disk the primes that
//! the residual sum needs.
//!
//! Each norm sets padding rows to 0. If a layer's first row is replaced by a constant (`frozen_row`), both of its norms
//! mask the row, and the second adds the constant. Before a classifier's head the last norm keeps only first rows.

use std::ops::Range;
use std::sync::Arc;

use hushed_model::{Attention, Block, FeedForward, Norm, Program, Step, StepId, Values, here, same};

use super::forward::{ForwardPass, Look, Viewer};
use super::shape::{Half, absent, halves, no_layer, shape, supported};
use crate::choices::{Choices, ChoicesError, LayerChoice, NormChoice};
use crate::error::FheError;
use crate::ledger::{self, MAP, NORM, POOLING};
use crate::ops::acts::{Acts, StoredActs};
use crate::ops::after::After;
use crate::ops::attention::{AttentionLayer, attention, attention_stored};
use crate::ops::feed_forward::{FeedForwardLayer, feed_forward, feed_forward_stored};
use crate::ops::folded::Polynomials;
use crate::ops::head::head;
use crate::ops::levels::above_by;
use crate::ops::mask::{RowMasks, RowsKnown};
use crate::ops::merged::merged;
use crate::ops::norm::{ConstantRow, NormSettings, norm, residual};
use crate::ops::pool::{Pooled, pool};
use crate::plan::placement::Placement;
use crate::slots::Slots;

/// Runs a program over vectors of slots.
pub struct Pass<'a, S: Slots> {
    on: &'a S,
    program: &'a Program,
    /// The steps of each layer, and for each step the half of its layer.
    layers: Vec<Range<usize>>,
    halves: Vec<Option<Half>>,
    choices: &'a Choices,
    placement: Placement,
    rows: RowsKnown<S::Value>,
    masks: RowMasks<S::Value>,
    /// Public bound on the client's columns.
    input_bound: f64,
    polynomials: Arc<Polynomials>,
    viewer: Option<Viewer<'a, S::Value>>,
}

/// A value between steps.
enum Value<S: Slots> {
    Columns(Acts<S::Value>),
    /// Spilled columns, for the residual sum.
    Stored(StoredActs<S>),
    /// κ·(y − mean of y), the input of a norm.
    Centred(Vec<S::Value>),
}

impl<S: Slots> Value<S> {
    fn columns(&self, at: StepId) -> Result<&Acts<S::Value>, FheError> {
        match self {
            Value::Columns(x) => Ok(x),
            Value::Stored(_) | Value::Centred(_) => Err(shape(at)),
        }
    }

    fn into_columns(self, at: StepId) -> Result<Acts<S::Value>, FheError> {
        match self {
            Value::Columns(x) => Ok(x),
            Value::Stored(_) | Value::Centred(_) => Err(shape(at)),
        }
    }
}

impl<'a, S: Slots> Pass<'a, S> {
    /// A pass over texts with these rows. An encrypted mask is refreshed if it has fewer primes than the first
    /// attention and the statistics of norms read. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape. A placement with too few levels for the choices is not
    /// refused here, but by the first step that lacks them ([`FheError::Levels`]); a counting run
    /// ([`crate::plan::dry_run`]) finds it before anything is computed.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        rows: RowsKnown<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let (layers, halves) = (program.layers(), halves(program));
        for layer in &layers {
            supported(program, layer.clone())?;
        }
        // Norms read the mask beside statistics, and a constant row one level lower: it must limit neither.
        let limbs = placement.attention.max(placement.statistics + 1);
        let rows = rows.lifted(on, limbs.min(on.top()))?;
        Ok(Pass {
            masks: RowMasks::new(on, &rows)?,
            on,
            program,
            layers,
            halves,
            choices,
            placement,
            rows,
            input_bound,
            polynomials: on.polynomials(),
            viewer: None,
        })
    }
}

impl<'a, S: Slots> ForwardPass<'a, S> for Pass<'a, S> {
    fn view(&mut self, viewer: Viewer<'a, S::Value>) {
        self.viewer = Some(viewer);
    }

    fn layers(&self) -> usize {
        self.layers.len()
    }

    fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let width = self.program.width();
        same(StepId::outside("input"), "columns", columns.len(), width)?;
        let mut x = Acts::from_client(columns, self.input_bound);
        let limbs = self.placement.attention;
        if x.columns.first().is_some_and(|v| self.on.limbs(v) < limbs) {
            let id = StepId::outside("input.refresh");
            self.on.at(id);
            x.columns = self.on.refresh(id, x.columns, limbs)?;
        }
        Ok(x)
    }

    fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let Some(i) = next.checked_sub(1) else {
            return self.start(columns);
        };
        let last = self.range(i)?.end - 1;
        match self.program.steps().get(last) {
            Some(step) if let Block::Norm(n) = &step.block => {
                let (_, choice) = self.norm_of(step, last)?;
                Acts::from_norm(step.id, columns, n, choice)
            }
            _ => Err(no_layer(self.layers.len(), i)),
        }
    }

    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let range = self.range(i)?;
        let (program, x) = (self.program, x.cut(self.on, self.placement.attention)?);
        let before = Some(Value::Columns(x));
        let last = program.run(range, before, |number, step, values| {
            self.step(number, step, values).map_err(|error| error.at_step(step.id))
        })?;
        match last {
            Value::Columns(x) => Ok(x),
            Value::Stored(_) | Value::Centred(_) => Err(no_layer(self.layers.len(), i)),
        }
    }

    fn finish(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, layout) = (self.on, self.rows.layout());
        let last = self.program.steps().last();
        let Some((id, block)) = last.map(|step| (step.id, &step.block)) else {
            return Err(shape(StepId::outside("answer")));
        };
        let answer = match block {
            Block::Pool(p) => pool(on, id, x, *p, layout, &self.masks.tokens),
            Block::Head(c) => {
                let choice = self.choices.classifier.as_ref();
                let choice = choice.ok_or_else(|| absent(id))?;
                head(on, id, x, c, choice, layout, &self.masks.first)
            }
            _ => Err(shape(id)),
        };
        answer.map_err(|error| error.at_step(id))
    }
}

impl<'a, S: Slots> Pass<'a, S> {
    fn range(&self, i: usize) -> Result<Range<usize>, FheError> {
        let range = self.layers.get(i).cloned();
        range.ok_or_else(|| no_layer(self.layers.len(), i))
    }

    /// Primes at which the feed-forward of a layer begins. The last norm is not refreshed, and the pooling after it (or
    /// the first map of a classifier's head) takes a level.
    fn feed_forward_limbs(&self, layer: &LayerChoice, last: bool) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        let merged = layer.activation.columns.is_empty();
        let block = match merged {
            true => MAP,
            false if !last => return Ok(limbs),
            false => ledger::feed_forward(layer.activation.degree, false),
        };
        let needed = block + NORM + if last { POOLING } else { 0 };
        let least = above_by(self.on, self.on.floor(), needed)?;
        Ok(if merged { least } else { limbs.max(least) })
    }

    fn step(&mut self, number: usize, step: &Step, values: &mut Values<Value<S>>) -> Result<Value<S>, FheError> {
        let (_, norm) = self.norm_of(step, number)?;
        let columns = match &step.block {
            Block::Attention(a) => self.attention(step, a, norm, values)?,
            Block::FeedForward(f) => self.feed_forward(step, f, norm, values)?,
            Block::Linear(w) => {
                let x = values.get(step, 0)?.columns(step.id)?;
                self.on.at(step.id);
                merged(self.on, step.id, x, w, norm)?
            }
            Block::Add => self.add(step, norm, values)?,
            Block::Norm(n) => {
                let Value::Centred(centred) = values.take(step, 0)? else {
                    return Err(shape(step.id));
                };
                let x = self.normalise(number, step, centred, n)?;
                self.show(step.id, Look::Columns(&x))?;
                return Ok(Value::Columns(x));
            }
            Block::Embed(_)
            | Block::Patches(_)
            | Block::Pool(_)
            | Block::Head(_)
            | Block::Vocabulary(_)
            | Block::Classes(_) => {
                return Err(shape(step.id));
            }
        };
        let look = Look::Centred { columns: &columns, scale: norm.scale };
        self.show(step.id, look)?;
        Ok(Value::Centred(columns))
    }

    fn attention(
        &mut self,
        step: &Step,
        a: &Attention,
        norm: &NormChoice,
        values: &mut Values<Value<S>>,
    ) -> Result<Vec<S::Value>, FheError> {
        let layer = AttentionLayer {
            at: step.id,
            block: a,
            choice: &self.choice(step.id)?.attention,
            norm,
            rows: &self.rows,
            placement: &self.placement,
        };
        if !self.placement.spill_attention {
            return attention(self.on, values.get(step, 0)?.columns(step.id)?, &layer);
        }
        let x = values.take(step, 0)?.into_columns(step.id)?;
        let (columns, left) = attention_stored(self.on, x, &layer)?;
        values.put_back(step, 0, Value::Stored(left))?;
        Ok(columns)
    }

    fn feed_forward(
        &mut self,
        step: &Step,
        f: &FeedForward,
        norm: &NormChoice,
        values: &mut Values<Value<S>>,
    ) -> Result<Vec<S::Value>, FheError> {
        let layer = FeedForwardLayer {
            at: step.id,
            block: f,
            choice: &self.choice(step.id)?.activation,
            sub_norm: None,
            after: After::Norm(norm),
            hidden_block: self.placement.hidden_block,
            paired: false,
            polynomials: &self.polynomials,
        };
        if !self.placement.spill_feed_forward {
            return feed_forward(self.on, values.get(step, 0)?.columns(step.id)?, &layer);
        }
        let x = values.take(step, 0)?.into_columns(step.id)?;
        let (columns, left) = feed_forward_stored(self.on, x, &layer)?;
        values.put_back(step, 0, Value::Stored(left))?;
        Ok(columns)
    }

    fn add(
        &mut self,
        step: &Step,
        norm: &NormChoice,
        values: &mut Values<Value<S>>,
    ) -> Result<Vec<S::Value>, FheError> {
        let (on, x) = (self.on, values.take(step, 0)?);
        let Value::Centred(block) = values.get(step, 1)? else {
            return Err(shape(step.id));
        };
        on.at(step.id);
        let x = match x {
            Value::Columns(x) => x,
            Value::Stored(left) => left.load(on)?,
            Value::Centred(_) => return Err(shape(step.id)),
        };
        residual(on, step.id, &x, block, norm.scale)
    }

    /// Normalises, and refreshes the results to the level of the next block.
    fn normalise(
        &mut self,
        number: usize,
        step: &Step,
        centred: Vec<S::Value>,
        n: &Norm,
    ) -> Result<Acts<S::Value>, FheError> {
        let (on, layer) = (self.on, self.choice(step.id)?);
        let (half, choice) = self.norm_of(step, number)?;
        let in_last = step.id.layer().is_some_and(|i| i + 1 == self.layers.len());
        let last = half == Half::FeedForward && in_last;
        let (refresh, frozen_row) = match half {
            Half::Attention => (Some(self.feed_forward_limbs(layer, in_last)?), None),
            Half::FeedForward => {
                let next = (!last).then_some(self.placement.attention);
                (next, layer.frozen_row.as_deref())
            }
        };
        let constant = frozen_row.map(|row| frozen(step.id, row, n, choice.bound)).transpose()?;
        let settings = NormSettings {
            rows: match layer.frozen_row {
                // A classifier reads first rows only: the others must be 0 when columns are packed.
                _ if last && self.choices.classifier.is_some() => &self.masks.first,
                Some(_) => &self.masks.later,
                None => &self.masks.tokens,
            },
            statistics: Some(self.placement.statistics),
            constant: constant.as_deref().map(|numbers| ConstantRow { numbers, rows: &self.masks.first }),
        };
        on.at(step.id);
        let mut x = norm(on, step.id, centred, n, choice, &settings)?;
        if let Some(limbs) = refresh {
            let id = step.id.part("refresh");
            on.at(id);
            x.columns = on.refresh(id, x.columns, limbs)?;
        }
        Ok(x)
    }

    /// The last norm, applied to centred columns.
    #[cfg(test)]
    pub(crate) fn last_norm(&mut self, centred: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let number = self.range(self.layers.len() - 1)?.end - 1;
        let step = &self.program.steps()[number];
        let Block::Norm(n) = &step.block else {
            return Err(shape(step.id));
        };
        self.normalise(number, step, centred, n)
    }

    fn show(&mut self, id: StepId, look: Look<'_, S::Value>) -> Result<(), FheError> {
        match &mut self.viewer {
            Some(viewer) => viewer(id, look),
            None => Ok(()),
        }
    }

    fn choice(&self, id: StepId) -> Result<&'a LayerChoice, FheError> {
        let layer = id.layer().and_then(|i| self.choices.layers.get(i));
        layer.ok_or_else(|| absent(id))
    }

    /// The half a step belongs to, and the norm of that half.
    fn norm_of(&self, step: &Step, number: usize) -> Result<(Half, &'a NormChoice), FheError> {
        let layer = self.choice(step.id)?;
        match self.halves.get(number).copied().flatten() {
            Some(half @ Half::Attention) => Ok((half, &layer.attention_norm)),
            Some(half @ Half::FeedForward) => Ok((half, &layer.feed_forward_norm)),
            None => Err(shape(step.id)),
        }
    }
}

/// (row − offset)/(gain·bound): the constant row in the units of a norm's columns.
pub(crate) fn frozen(at: StepId, row: &[f64], n: &Norm, bound: f64) -> Result<Vec<f64>, FheError> {
    same(at, "columns of the constant row", row.len(), n.width)?;
    let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
    let numbers = row.iter().zip(gain.iter()).zip(offset.iter());
    let inside = |((x, &g), &o): ((&f64, &f32), &f32)| {
        // A column with gain 0 equals its offset, whatever the vector holds.
        let v = (x - f64::from(o)) / (f64::from(g) * bound);
        if v.is_finite() { v } else { 0.0 }
    };
    let row: Vec<f64> = numbers.map(inside).collect();
    match row.iter().find(|v| v.abs() > 1.0) {
        Some(v) => Err(ChoicesError::Unusable {
            what: format!("at {at}, the frozen row reaches {v:.3} times its norm's bound"),
        }
        .into()),
        None => Ok(row),
    }
}

#[cfg(test)]
#[path = "encoder_tests.rs"]
mod tests;
