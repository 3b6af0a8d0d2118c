//! A decoder in packed rows, layer by layer, for one prompt or a few: like a batch of [`super::Pass`], with the steps
//! of [`crate::ops::packed`].

use std::sync::Arc;

use hushed_model::{Attention, Norm, Program, StepId, same};

use super::blocks::Parts;
use super::encoder::unfit;
use super::forward::ForwardPass;
use crate::choices::{Choices, DecoderChoice, NormChoice, ScoresChoice};
use crate::error::FheError;
use crate::ledger::{self, NORM, POOLING};
use crate::ops::acts::Acts;
use crate::ops::folded::Polynomials;
use crate::ops::levels::above_by;
use crate::ops::packed::causal::PackedCausal;
use crate::ops::packed::feed_forward::PackedFeedForward;
use crate::ops::packed::norm::PackedNorm;
use crate::ops::packed::pool::states;
use crate::ops::packed::rows::PackedRows;
use crate::ops::packed::{causal, heads_of, lifted, sum};
use crate::ops::pool::Pooled;
use crate::packing::{Layout, Spread};
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;

/// Runs a decoder over right-aligned texts in packed rows.
pub struct PackedDecoderPass<'a, S: Slots> {
    on: &'a S,
    parts: Parts<'a>,
    choices: &'a DecoderChoice,
    placement: Placement,
    rows: PackedRows<()>,
    columns: Spread,
    input_bound: f64,
    polynomials: Arc<Polynomials>,
    answer: AnswerRows,
}

impl<'a, S: Slots> PackedDecoderPass<'a, S> {
    /// A pass over texts in this layout, answered with these rows. The client divided its columns by `input_bound`, and
    /// by 2.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape, for softmax attention, norms inside blocks, heads that
    /// do not fit the layout, and logits; [`crate::ChoicesError`] for choices of another model.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        (layout, answer): (Layout, AnswerRows),
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let parts = Parts::of(program)?;
        let absent = || FheError::absent(StepId::outside("decoder"));
        let choices = choices.decoder.as_ref().ok_or_else(absent)?;
        if choices.layers.len() != parts.layers.len() {
            return Err(absent());
        }
        if answer == AnswerRows::Logits {
            return Err(FheError::Unsupported {
                what: "a decoder whose head is not its table of token vectors, in packed rows".to_owned(),
                remedy: "omit --texts to plan a batch",
            });
        }
        let rows = PackedRows::new(layout, Vec::new())?;
        let mut columns = layout.spread(program.width(), 1)?;
        for layer in &parts.layers {
            let (id, attention) = layer.attention;
            causal::sigmoid_bias(id, attention)?;
            columns = spread(id, attention, layout)?;
            for (id, norm) in [(id, &attention.sub_norm), (layer.feed_forward.0, &layer.feed_forward.1.sub_norm)] {
                if norm.is_some() {
                    return Err(FheError::Unsupported {
                        what: format!("{id}: a norm inside a block, in packed rows"),
                        remedy: "omit --texts to plan a batch",
                    });
                }
            }
        }
        Ok(PackedDecoderPass {
            on,
            parts,
            choices,
            placement,
            rows,
            columns,
            input_bound,
            polynomials: on.polynomials(),
            answer,
        })
    }
}

impl<'a, S: Slots> ForwardPass<'a, S> for PackedDecoderPass<'a, S> {
    fn layers(&self) -> usize {
        self.parts.layers.len()
    }

    fn start(&self, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let on = self.on;
        let halves = vectors.into_iter().map(|v| on.read_as(v, 2.0));
        let x = self.stream(halves.collect::<Result<_, FheError>>()?, self.input_bound)?;
        lifted(on, StepId::outside("input"), x, self.attention_limbs(0)?)
    }

    fn resume(&self, next: usize, vectors: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        match next.checked_sub(1) {
            None => self.start(vectors),
            Some(i) => self.stream(vectors, self.choices.layer(i)?.feed_forward_bound),
        }
    }

    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (on, choice) = (self.on, self.choices.layer(i)?);
        let layer = self.parts.layer(i)?;

        let (at, block) = layer.attention;
        let ScoresChoice::Sigmoid(scores) = &choice.scores else {
            return Err(FheError::absent(at));
        };
        let norm = self.norm(layer.attention_norm, &choice.attention_norm);
        let n = norm.of_stream(on, &x, self.placement.attention);
        let run = PackedCausal {
            at,
            block,
            choice: scores,
            bound: choice.attention_bound,
            rows: &self.rows,
            columns: self.columns,
        };
        let y = run.run(on, &n.map_err(|error| error.at_step(norm.at))?);
        let y = y.map_err(|error| error.at_step(at))?;
        let x = self.added(layer.attention_sum, &x, y, choice.attention_bound)?;

        let norm = self.norm(layer.feed_forward_norm, &choice.feed_forward_norm);
        let limbs = self.feed_forward_limbs(i)?;
        let x = lifted(on, layer.attention_sum, x, norm.refreshed_to(on, limbs))?;
        let (at, block) = layer.feed_forward;
        let n = norm.of_stream(on, &x, limbs);
        let run = PackedFeedForward {
            at,
            block,
            choice: &choice.activation,
            bound: choice.feed_forward_bound,
            rows: &self.rows,
            columns: self.columns,
            polynomials: &self.polynomials,
        };
        let y = run.run(on, &n.map_err(|error| error.at_step(norm.at))?);
        let y = y.map_err(|error| error.at_step(at))?;
        let x = self.added(layer.feed_forward_sum, &x, y, choice.feed_forward_bound)?;
        match i + 1 == self.layers() {
            true => Ok(x),
            false => lifted(on, layer.feed_forward_sum, x, self.attention_limbs(i + 1)?),
        }
    }

    fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let norm = self.norm(self.parts.norm, &self.choices.norm);
        let x = norm.of_low_stream(self.on, &x);
        let x = x.map_err(|error| error.at_step(norm.at))?;
        let at = self.parts.last;
        let answer = states(self.on, at, &x, &self.rows, &self.columns, self.answer);
        let vectors = answer.map_err(|error| error.at_step(at))?;
        Ok(Pooled::packed(vectors, &self.columns))
    }

    fn packed_columns(&self) -> Option<&Spread> {
        Some(&self.columns)
    }
}

impl<'a, S: Slots> PackedDecoderPass<'a, S> {
    fn norm(&self, (at, norm): (StepId, &'a Norm), choice: &'a NormChoice) -> PackedNorm<'_> {
        PackedNorm { at, norm, choice, rows: &self.rows, columns: self.columns, statistics: self.placement.statistics }
    }

    /// Vectors of the residual stream divided by `bound`.
    fn stream(&self, columns: Vec<S::Value>, bound: f64) -> Result<Acts<S::Value>, FheError> {
        let (id, vectors) = (StepId::outside("input"), self.columns.vectors());
        same(id, "vectors", columns.len(), vectors)?;
        Ok(Acts::over(columns, self.columns.width(), bound))
    }

    /// A block's result added to the columns it read, divided by `bound`.
    fn added(&self, at: StepId, x: &Acts<S::Value>, y: Vec<S::Value>, bound: f64) -> Result<Acts<S::Value>, FheError> {
        self.on.at(at);
        let x = sum(self.on, at, &self.rows, x, y, bound);
        x.map_err(|error| error.at_step(at))
    }

    /// Primes that layer `i` begins with.
    fn attention_limbs(&self, i: usize) -> Result<usize, FheError> {
        let choice = &self.choices.layer(i)?.attention_norm;
        let layer = self.parts.layer(i)?;
        let norm = self.norm(layer.attention_norm, choice);
        Ok(norm.refreshed_to(self.on, self.placement.attention))
    }

    /// Primes that the feed-forward of layer `i` begins with: after the last layer, the answer follows.
    fn feed_forward_limbs(&self, i: usize) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        if i + 1 < self.layers() {
            return Ok(limbs);
        }
        let block = ledger::feed_forward(self.choices.layer(i)?.activation.degree, true);
        let answer = NORM + POOLING;
        let needed = NORM + block + answer;
        Ok(limbs.max(above_by(self.on, self.on.floor(), needed)?))
    }
}

/// Where the columns lie, with whole heads per vector.
fn spread(at: StepId, block: &Attention, layout: Layout) -> Result<Spread, FheError> {
    let heads = heads_of(block, layout);
    let width = block.heads.query_columns();
    let spread = heads.and_then(|heads| layout.spread(width, heads.pairs()));
    let spread = spread.ok().filter(Spread::is_even);
    spread.ok_or_else(|| unfit(at, block, layout))
}
