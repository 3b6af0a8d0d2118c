//! A program over [`Slots`], layer by layer, so that a run can stop and resume between layers.
//!
//! A layer takes and returns refreshed columns. The program tells which norm follows a block; its κ and centring are
//! folded into the block's last linear layer. The client computes everything before the first layer.
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

mod beside;
mod blocks;
mod decoder;
mod packed;
mod packed_decoder;
mod shape;

use std::ops::Range;
use std::sync::Arc;

use hushed_model::{
    Attention, Block, FeedForward, ModelError, Norm, Program, Step, StepId, Values, here, same,
};

use super::choices::{Choices, ChoicesError, LayerChoice, NormChoice};
use super::error::FheError;
use super::slots::Slots;
use crate::ops::activation;
use crate::ops::acts::{Acts, StoredActs};
use crate::ops::after::After;
use crate::ops::attention::{AttentionLayer, attention, attention_stored};
use crate::ops::feed_forward::{FeedForwardLayer, feed_forward, feed_forward_stored};
use crate::ops::folded::Polynomials;
use crate::ops::head::head;
use crate::ops::levels::above;
use crate::ops::mask::{RowMasks, RowsKnown};
use crate::ops::merged::merged;
use crate::ops::norm::{ConstantRow, NormPlan, norm, residual};
use crate::ops::packed::rows::PackedRows;
use crate::ops::pool::{Pooled, pool};
use crate::packing::{Interleave, Layout, Spread};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;

pub use decoder::DecoderPass;
pub use packed::PackedPass;
pub use packed_decoder::PackedDecoderPass;
pub(crate) use packed_decoder::halves as packed_halves;
use shape::{Half, halves, shape, supported};
pub use shape::{can_run, head_is_public};

/// Levels of a feed-forward without its activation: two maps and the norm.
const FEED_FORWARD: usize = 3;
/// Levels of a feed-forward that is a single linear layer: the map and the norm.
const MERGED: usize = 2;
/// Levels of pooling.
const POOLING: usize = 1;

/// The result of a step, passed to a [`Viewer`].
#[derive(Clone, Copy)]
pub enum Look<'a, V> {
    /// The refreshed result of a norm; in a decoder, that of a sum.
    Columns(&'a Acts<V>),
    /// The result of a step before a norm: κ·(y − mean of y).
    Centred {
        /// The columns.
        columns: &'a [V],
        /// κ.
        scale: f64,
    },
}

/// Called with the results of attention, feed-forward, sums and norms; an error it returns ends the run.
pub type Viewer<'a, V> = Box<dyn FnMut(StepId, Look<'_, V>) -> Result<(), FheError> + 'a>;

/// The texts of a run, in the layout of its plan.
pub enum Texts<V> {
    /// A batch, one vector per column.
    Columns(RowsKnown<V>),
    /// A batch of texts that end in row m − 1, one vector per column, answered with these rows; for softmax attention,
    /// with the mask of real rows.
    Last(Interleave, AnswerRows, Option<V>),
    /// Packed rows.
    Packed(PackedRows<V>),
    /// Packed rows of texts that end in the last row, answered with these rows.
    PackedLast(Layout, AnswerRows),
}

/// A pass in any layout.
pub enum AnyPass<'a, S: Slots> {
    /// A batch.
    Columns(Box<Pass<'a, S>>),
    /// Packed rows.
    Packed(Box<PackedPass<'a, S>>),
    /// A batch through a decoder.
    Decoder(Box<DecoderPass<'a, S>>),
    /// Packed rows through a decoder.
    PackedDecoder(Box<PackedDecoderPass<'a, S>>),
}

impl<'a, S: Slots> AnyPass<'a, S> {
    /// A pass over these texts.
    ///
    /// # Errors
    /// As [`Pass::new`], [`PackedPass::new`], [`DecoderPass::new`] and [`PackedDecoderPass::new`].
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        texts: Texts<S::Value>,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        if placement.pairs && !matches!(texts, Texts::Last(..)) {
            return Err(FheError::Unsupported {
                what: "columns in pairs".to_owned(),
                remedy: "they are for batches of decoders",
            });
        }
        Ok(match texts {
            Texts::Last(layout, answer, real) => {
                let pass = DecoderPass::new(on, program, choices, placement, layout, input_bound)?;
                AnyPass::Decoder(Box::new(pass.answering(answer).masked_by(real)?))
            }
            Texts::Columns(rows) => {
                let pass = Pass::new(on, program, choices, placement, rows, input_bound)?;
                AnyPass::Columns(Box::new(pass))
            }
            Texts::Packed(rows) => {
                let pass = PackedPass::new(on, program, choices, placement, rows, input_bound)?;
                AnyPass::Packed(Box::new(pass))
            }
            Texts::PackedLast(layout, answer) => {
                let read = (layout, answer);
                let pass =
                    PackedDecoderPass::new(on, program, choices, placement, read, input_bound)?;
                AnyPass::PackedDecoder(Box::new(pass))
            }
        })
    }

    /// Sets a viewer of its results; packed rows show none.
    #[must_use]
    pub fn viewed_by(self, viewer: Viewer<'a, S::Value>) -> Self {
        match self {
            AnyPass::Columns(pass) => AnyPass::Columns(Box::new(pass.viewed_by(viewer))),
            AnyPass::Decoder(pass) => AnyPass::Decoder(Box::new(pass.viewed_by(viewer))),
            packed @ (AnyPass::Packed(_) | AnyPass::PackedDecoder(_)) => packed,
        }
    }

    /// Number of layers of the program.
    pub fn layers(&self) -> usize {
        match self {
            AnyPass::Columns(pass) => pass.layers(),
            AnyPass::Packed(pass) => pass.layers(),
            AnyPass::Decoder(pass) => pass.layers(),
            AnyPass::PackedDecoder(pass) => pass.layers(),
        }
    }

    /// See [`Pass::start`].
    ///
    /// # Errors
    /// As there.
    pub fn start(&self, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match self {
            AnyPass::Columns(pass) => pass.start(vectors),
            AnyPass::Packed(pass) => pass.start(vectors),
            AnyPass::Decoder(pass) => pass.start(vectors),
            AnyPass::PackedDecoder(pass) => pass.start(vectors),
        }
    }

    /// See [`Pass::resume`].
    ///
    /// # Errors
    /// As there.
    pub fn resume(&self, next: usize, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match self {
            AnyPass::Columns(pass) => pass.resume(next, vectors),
            AnyPass::Packed(pass) => pass.resume(next, vectors),
            AnyPass::Decoder(pass) => pass.resume(next, vectors),
            AnyPass::PackedDecoder(pass) => pass.resume(next, vectors),
        }
    }

    /// See [`Pass::layer`].
    ///
    /// # Errors
    /// As there.
    pub fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match self {
            AnyPass::Columns(pass) => pass.layer(i, x),
            AnyPass::Packed(pass) => pass.layer(i, x),
            AnyPass::Decoder(pass) => pass.layer(i, x),
            AnyPass::PackedDecoder(pass) => pass.layer(i, x),
        }
    }

    /// The vectors of the answer: see [`Pass::finish`].
    ///
    /// # Errors
    /// As there.
    pub fn finish(&mut self, x: &Acts<S::Value>) -> Result<Vec<S::Value>, FheError> {
        match self {
            AnyPass::Packed(pass) => pass.finish(x),
            AnyPass::PackedDecoder(pass) => pass.finish(x),
            columns => Ok(columns.pooled(x)?.vectors),
        }
    }

    /// The answer of a batch: see [`Pass::finish`].
    ///
    /// # Errors
    /// As there; [`FheError::Unsupported`] for packed rows.
    pub fn pooled(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        match self {
            AnyPass::Columns(pass) => pass.finish(x),
            AnyPass::Decoder(pass) => pass.finish(x),
            AnyPass::Packed(_) | AnyPass::PackedDecoder(_) => Err(shape(StepId::outside("answer"))),
        }
    }

    /// Where the columns lie in packed rows; `None` for a batch.
    pub fn packed_columns(&self) -> Option<&Spread> {
        match self {
            AnyPass::Packed(pass) => Some(pass.columns()),
            AnyPass::PackedDecoder(pass) => Some(pass.columns()),
            AnyPass::Columns(_) | AnyPass::Decoder(_) => None,
        }
    }

    /// Where the numbers of an answer lie in packed rows; `None` for a batch.
    pub fn packed_answers(&self) -> Option<&Spread> {
        match self {
            AnyPass::Packed(pass) => Some(pass.answers()),
            _ => self.packed_columns(),
        }
    }

    /// Runs from the client's vectors to the answer.
    ///
    /// # Errors
    /// Those of the layers.
    pub fn run(&mut self, vectors: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        match self {
            AnyPass::Columns(pass) => Ok(pass.run(vectors)?.vectors),
            AnyPass::Packed(pass) => pass.run(vectors),
            AnyPass::PackedDecoder(pass) => pass.run(vectors),
            AnyPass::Decoder(pass) => Ok(pass.run(vectors)?.vectors),
        }
    }
}

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
    /// ([`super::plan::dry_run`]) finds it before anything is computed.
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

    /// Sets a viewer of its results.
    #[must_use]
    pub fn viewed_by(self, viewer: Viewer<'a, S::Value>) -> Self {
        Pass {
            viewer: Some(viewer),
            ..self
        }
    }

    /// Number of layers of the program.
    pub fn layers(&self) -> usize {
        self.layers.len()
    }

    /// The client's columns as the first layer reads them: refreshed if they have fewer primes.
    ///
    /// # Errors
    /// Errors of the refresh; fails if the number of columns is not the program's width.
    pub fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
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

    /// The columns that layer `next` reads, from a checkpoint before it; gains and offsets come from the model. After
    /// the last layer `next` is the number of layers.
    ///
    /// # Errors
    /// Fails if the model or the choices lack the layer, or the number of columns is wrong.
    pub fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
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

    /// Layer `i` of the model, from columns to columns.
    ///
    /// # Errors
    /// Those of its steps.
    pub fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let range = self.range(i)?;
        let (program, x) = (self.program, x.cut(self.on, self.placement.attention)?);
        let before = Some(Value::Columns(x));
        let last = program.run(range, before, |number, step, values| {
            self.step(number, step, values)
                .map_err(|error| error.lacking_at(step.id))
        })?;
        match last {
            Value::Columns(x) => Ok(x),
            Value::Stored(_) | Value::Centred(_) => Err(no_layer(self.layers.len(), i)),
        }
    }

    /// Runs from the client's columns to the packed result.
    ///
    /// # Errors
    /// Those of the layers.
    pub fn run(&mut self, columns: Vec<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let mut x = self.start(columns)?;
        for i in 0..self.layers.len() {
            x = self.layer(i, x)?;
        }
        self.finish(&x)
    }

    /// Pooling or head: the packed result, from the columns of the last layer.
    ///
    /// # Errors
    /// Those of [`pool`] and [`head`].
    pub fn finish(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
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
        answer.map_err(|error| error.lacking_at(id))
    }

    fn range(&self, i: usize) -> Result<Range<usize>, FheError> {
        let range = self.layers.get(i).cloned();
        range.ok_or_else(|| no_layer(self.layers.len(), i))
    }

    /// Primes at which the feed-forward of a layer begins. The last norm is not refreshed, and the pooling after it (or
    /// the first map of a classifier's head) takes a level.
    fn feed_forward_limbs(&self, layer: &LayerChoice, last: bool) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        let inside = match layer.activation.columns.is_empty() {
            true => MERGED,
            false if !last => return Ok(limbs),
            false => FEED_FORWARD + activation::levels(layer.activation.degree),
        };
        let needed = inside + if last { POOLING } else { 0 };
        let least = (0..needed).try_fold(self.on.floor(), |limbs, _| above(self.on, limbs));
        match inside {
            MERGED => least,
            _ => Ok(limbs.max(least?)),
        }
    }

    fn step(
        &mut self,
        number: usize,
        step: &Step,
        values: &mut Values<Value<S>>,
    ) -> Result<Value<S>, FheError> {
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
        let look = Look::Centred {
            columns: &columns,
            scale: norm.scale,
        };
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
        let constant = frozen_row
            .map(|row| frozen(step.id, row, n, choice.bound))
            .transpose()?;
        let plan = NormPlan {
            rows: match layer.frozen_row {
                // A classifier reads first rows only: the others must be 0 when columns are packed.
                _ if last && self.choices.classifier.is_some() => &self.masks.first,
                Some(_) => &self.masks.later,
                None => &self.masks.tokens,
            },
            statistics: Some(self.placement.statistics),
            constant: constant.as_deref().map(|numbers| ConstantRow {
                numbers,
                rows: &self.masks.first,
            }),
        };
        on.at(step.id);
        let mut x = norm(on, step.id, centred, n, choice, &plan)?;
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

fn no_layer(layers: usize, asked: usize) -> FheError {
    ModelError::NoSuchLayer { asked, layers }.into()
}

/// (row − offset)/(gain·bound): the constant row in the units of a norm's columns.
fn frozen(at: StepId, row: &[f64], n: &Norm, bound: f64) -> Result<Vec<f64>, FheError> {
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

fn absent(at: StepId) -> FheError {
    let what = format!("the calibration has nothing for {at}: it was made for another model");
    ChoicesError::Unusable { what }.into()
}

#[cfg(test)]
#[path = "pass_tests.rs"]
mod tests;
