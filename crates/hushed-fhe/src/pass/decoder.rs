//! A decoder over [`Slots`], layer by layer: see [`crate::ops::decoder`].
//!
//! Columns between halves of a layer are the refreshed residual stream. After the last layer they are not refreshed:
//! the last norm and the packing of last rows use the remaining levels.
//!
//! If the placement says so, a vector holds two columns between halves and up to the maps that read them
//! ([`crate::ops::paired`]); residual sums, which have few primes, are computed on single columns.
//!
//! If the placement spills vectors, the primes of the residual stream that a half's sum reads go to disk before its
//! norm, and the norm's result takes the place of the columns.

use std::sync::Arc;

use hushed_model::{Norm, Program, StepId, same};

use super::beside::Beside;
use super::blocks::Parts;
use super::forward::{ForwardPass, Look, Viewer};
use crate::choices::{Choices, DecoderChoice, DecoderLayerChoice, NormChoice};
use crate::error::FheError;
use crate::ledger::{self, NORM};
use crate::ops::acts::{Acts, StoredActs};
use crate::ops::after::After;
use crate::ops::decoder;
use crate::ops::decoder::attention::{attention, attention_spilled};
use crate::ops::decoder::last::{last, logits};
use crate::ops::decoder::layer::CausalLayer;
use crate::ops::decoder::rms::{STATISTIC, normed_limbs, rms_norm, sum};
use crate::ops::decoder::rows::rows;
use crate::ops::decoder::sub_norm::SubNorm;
use crate::ops::feed_forward::{self, FeedForwardLayer, feed_forward, feed_forward_spilled};
use crate::ops::folded::Polynomials;
use crate::ops::levels::{above, above_by, dropped};
use crate::ops::mask::lifted;
use crate::ops::paired::{joined, split};
use crate::ops::pool::{Factor, Pooled};
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;

/// Columns refreshed before they are paired: a multiple of what a bootstrap takes at once.
const REFRESHED: usize = 64;

/// Runs a decoder over right-aligned texts.
pub struct DecoderPass<'a, S: Slots> {
    on: &'a S,
    parts: Parts<'a>,
    choices: &'a DecoderChoice,
    placement: Placement,
    layout: Interleave,
    input_bound: f64,
    width: usize,
    polynomials: Arc<Polynomials>,
    answer: AnswerRows,
    /// The mask of real rows, which a softmax needs.
    real: Option<S::Value>,
    viewer: Option<Viewer<'a, S::Value>>,
}

impl<'a, S: Slots> DecoderPass<'a, S> {
    /// A pass over texts in this packing. The client divided its columns by `input_bound`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a program of another shape, [`crate::ChoicesError`] for choices of another model.
    pub fn new(
        on: &'a S,
        program: &'a Program,
        choices: &'a Choices,
        placement: Placement,
        layout: Interleave,
        input_bound: f64,
    ) -> Result<Self, FheError> {
        let parts = Parts::of(program)?;
        if placement.pairs && !program.width().is_multiple_of(2) {
            return Err(FheError::Unsupported {
                what: format!("{} columns in pairs", program.width()),
                remedy: "an even number of columns can be put in pairs",
            });
        }
        let absent = || FheError::absent(StepId::outside("decoder"));
        let choices = choices.decoder.as_ref().ok_or_else(absent)?;
        if choices.layers.len() != parts.layers.len() {
            return Err(absent());
        }
        Ok(DecoderPass {
            on,
            parts,
            choices,
            placement,
            layout,
            input_bound,
            width: program.width(),
            polynomials: on.polynomials(),
            answer: AnswerRows::Last,
            real: None,
            viewer: None,
        })
    }

    /// Sets the mask of real rows, 1 on tokens and 0 elsewhere, which softmax attention needs. It is refreshed if it
    /// has fewer primes than a layer begins with.
    ///
    /// # Errors
    /// Those of a refresh.
    pub fn masked_by(self, real: Option<S::Value>) -> Result<Self, FheError> {
        let (on, limbs) = (self.on, self.placement.attention);
        let real = real.map(|real| lifted(on, real, limbs)).transpose()?;
        Ok(DecoderPass { real, ..self })
    }

    /// Sets the rows or logits to answer with; the default is the last row.
    #[must_use]
    pub fn answering(self, answer: AnswerRows) -> Self {
        DecoderPass { answer, ..self }
    }
}

impl<'a, S: Slots> ForwardPass<'a, S> for DecoderPass<'a, S> {
    fn layers(&self) -> usize {
        self.parts.layers.len()
    }

    /// The viewer gets the residual stream after each sum.
    fn view(&mut self, viewer: Viewer<'a, S::Value>) {
        self.viewer = Some(viewer);
    }

    fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        same(StepId::outside("input"), "columns", columns.len(), self.width)?;
        let x = Acts::from_client(columns, self.input_bound);
        self.at_rest(x, StepId::outside("input"), self.placement.attention)
    }

    fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let Some(i) = next.checked_sub(1) else {
            return self.start(columns);
        };
        let vectors = match self.placement.pairs {
            true => self.width / 2,
            false => self.width,
        };
        same(StepId::outside("input"), "vectors", columns.len(), vectors)?;
        let bound = self.choices.layer(i)?.feed_forward_bound;
        Ok(Acts::over(columns, self.width, bound))
    }

    fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (on, last) = (self.on, i + 1 == self.layers());
        let choice = self.choices.layer(i)?;
        let x = x.cut(on, self.placement.attention)?;

        let layer = self.parts.layer(i)?;
        let (id, block) = layer.attention;
        let run = CausalLayer {
            at: id,
            block,
            choice: &choice.scores,
            real: self.real.as_ref(),
            sub_norm: self.sub_norm(id, &block.sub_norm, &choice.attention_sub_norm)?,
            after: After::Sum(choice.attention_bound),
            layout: self.layout,
            placement: &self.placement,
        };
        let spills = self.placement.spill_attention;
        let (norm, normed) = (layer.attention_norm, &choice.attention_norm);
        let result = |limbs| decoder::attention::result_limbs(on, limbs, &run);
        let (y, beside) = self.normed(id, norm, normed, x, spills.then_some(&result))?;
        let y = match spills {
            true => attention_spilled(on, y, &run),
            false => attention(on, &y, &run),
        };
        let y = y.map_err(|error| error.at_step(id))?;
        let x = self.summed(layer.attention_sum, beside, y, choice.attention_bound)?;
        let id = layer.attention_sum;
        let x = self.at_rest(x, id, self.feed_forward_limbs(choice, last)?)?;
        self.show(id, &x)?;

        let layer = self.parts.layer(i)?;
        let (id, block) = layer.feed_forward;
        let run = FeedForwardLayer {
            at: id,
            block,
            choice: &choice.activation,
            sub_norm: self.sub_norm(id, &block.sub_norm, &choice.feed_forward_sub_norm)?,
            after: After::Sum(choice.feed_forward_bound),
            hidden_block: self.placement.hidden_block,
            paired: self.placement.pairs,
            polynomials: &self.polynomials,
        };
        let spills = self.placement.spill_feed_forward;
        let (norm, normed) = (layer.feed_forward_norm, &choice.feed_forward_norm);
        let result = |limbs| feed_forward::result_limbs(on, limbs, &run);
        let (y, beside) = self.normed(id, norm, normed, x, spills.then_some(&result))?;
        let y = match spills {
            true => feed_forward_spilled(on, y, &run),
            false => feed_forward(on, &y, &run),
        };
        let y = y.map_err(|error| error.at_step(id))?;
        let id = layer.feed_forward_sum;
        let x = self.summed(id, beside, y, choice.feed_forward_bound)?;
        // The last norm and the packing use the remaining levels.
        let limbs = if last { 0 } else { self.placement.attention };
        let x = self.at_rest(x, id, limbs)?;
        self.show(id, &x)?;
        Ok(x)
    }

    fn finish(&mut self, x: Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, (id, norm)) = (self.on, self.parts.norm);
        on.at(id);
        let how = (self.placement.statistics, self.placement.pairs);
        let y = rms_norm(on, id, x, norm, &self.choices.norm, how);
        let mut y = y.map_err(|error| error.at_step(id))?;
        if !self.placement.pairs {
            return self.answered(&y);
        }
        let (levels, together) = match self.answer {
            // A logit reads all columns.
            AnswerRows::Logits => (2, self.width / 2),
            _ => (1, (self.layout.rows() / 2).max(1)),
        };
        let low = above_by(on, on.floor(), levels)?;
        let mut packed = Pooled { vectors: Vec::new(), width: 0, factor: Factor::One };
        let pairs = std::mem::take(&mut y.columns);
        let blocks = pairs.chunks(together).zip(y.gain.chunks(2 * together));
        for (pairs, gain) in blocks {
            on.at(id);
            let part = self.answered(&Acts {
                columns: split(on, &dropped(on, pairs, low)?)?,
                gain: gain.to_vec(),
                offset: vec![0.0; gain.len()],
            })?;
            packed.width += part.width;
            packed.vectors.extend(part.vectors);
        }
        Ok(packed)
    }
}

impl<'a, S: Slots> DecoderPass<'a, S> {
    /// Packs the requested rows or logits of these columns.
    fn answered(&self, y: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, id) = (self.on, self.parts.last);
        let answer = match self.answer {
            AnswerRows::Last => last(on, id, y, self.layout),
            AnswerRows::Rows => rows(on, id, y),
            AnswerRows::Logits => logits(on, self.parts.head, y, self.layout),
        };
        answer.map_err(|error| error.at_step(id))
    }

    /// The norm inside block `at`, if it has one.
    fn sub_norm(
        &self,
        at: StepId,
        norm: &'a Option<Norm>,
        choice: &'a Option<NormChoice>,
    ) -> Result<Option<SubNorm<'a>>, FheError> {
        match (norm, choice) {
            (None, None) => Ok(None),
            (Some(norm), Some(choice)) => {
                Ok(Some(SubNorm { at: at.part("sub_norm"), norm, choice, statistics: self.placement.statistics }))
            }
            _ => Err(FheError::absent(at)),
        }
    }

    /// The normalised columns for block `at`, and the columns for the sum after it. The latter go to disk if there is a
    /// `result`, which maps the primes of the block's columns to those of its result.
    fn normed(
        &self,
        at: StepId,
        (id, norm): (StepId, &Norm),
        choice: &NormChoice,
        x: Acts<S::Value>,
        result: Option<&dyn Fn(usize) -> Result<usize, FheError>>,
    ) -> Result<(Acts<S::Value>, Beside<S>), FheError> {
        let (on, statistics) = (self.on, self.placement.statistics);
        let beside = match (result, x.columns.first().map(|v| on.limbs(v))) {
            (Some(result), Some(limbs)) => {
                let limbs = normed_limbs(on, limbs, choice, statistics);
                let limbs = limbs.and_then(result).and_then(|limbs| above(on, limbs));
                let limbs = limbs.map_err(|error| error.at_step(at))?;
                on.at(at.part("kept"));
                Beside::Stored(StoredActs::copy(on, &x, limbs)?)
            }
            _ => Beside::Columns(x.clone()),
        };
        on.at(id);
        let y = rms_norm(on, id, x, norm, choice, (statistics, self.placement.pairs));
        Ok((y.map_err(|error| error.at_step(id))?, beside))
    }

    /// The residual sum, within `bound`.
    fn summed(&self, id: StepId, beside: Beside<S>, y: Vec<S::Value>, bound: f64) -> Result<Acts<S::Value>, FheError> {
        let on = self.on;
        on.at(id);
        let sum = |x: &Acts<S::Value>, y: Vec<S::Value>| sum(on, id, x, y, bound).map_err(|error| error.at_step(id));
        if !self.placement.pairs {
            let x = match beside {
                Beside::Columns(x) => x,
                Beside::Stored(x) => x.load(on)?,
            };
            return sum(&x, y);
        }
        // Sums take the place of the results block by block.
        let width = y.len();
        let (mut rest, mut sums) = (y.into_iter(), Vec::with_capacity(width));
        let (gain, blocks) = beside.blocks(on);
        for pairs in blocks {
            let pairs = pairs?;
            let Some(first) = rest.as_slice().first() else {
                break;
            };
            let low = above(on, on.limbs(first)).map_err(|error| error.at_step(id))?;
            let columns = split(on, &dropped(on, &pairs, low)?)?;
            let count = columns.len();
            let block = rest.by_ref().take(count).collect();
            sums.extend(sum(&Acts::over(columns, count, gain), block)?.columns);
        }
        Ok(Acts::over(sums, width, bound))
    }

    /// Refreshes columns with fewer than `limbs` primes to that many, and pairs them if the placement says so.
    fn at_rest(&self, mut x: Acts<S::Value>, id: StepId, limbs: usize) -> Result<Acts<S::Value>, FheError> {
        let (on, pairs) = (self.on, self.placement.pairs);
        let low = x.columns.first().is_some_and(|v| on.limbs(v) < limbs);
        if low {
            let id = id.part("refresh");
            on.at(id);
            x.columns = match pairs {
                true => self.refreshed_blocks(id, x.columns, limbs)?,
                false => on.refresh(id, x.columns, limbs)?,
            };
        } else if pairs {
            x.columns = joined(on, x.columns)?;
        }
        Ok(x)
    }

    /// Refreshes and pairs columns, block by block: single refreshed columns are never all in memory.
    fn refreshed_blocks(&self, id: StepId, columns: Vec<S::Value>, limbs: usize) -> Result<Vec<S::Value>, FheError> {
        let on = self.on;
        let mut pairs = Vec::with_capacity(columns.len() / 2);
        let mut rest = columns.into_iter();
        while rest.len() > 0 {
            let tile = rest.by_ref().take(REFRESHED);
            let tile = tile.map(|v| on.drop_to(&v, on.floor()));
            let fresh = on.refresh(id, tile.collect::<Result<_, _>>()?, limbs)?;
            pairs.extend(joined(on, fresh)?);
        }
        Ok(pairs)
    }

    /// Splits pairs into single columns, if the placement pairs them.
    fn columns(&self, mut x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        if self.placement.pairs {
            x.columns = split(self.on, &x.columns)?;
        }
        Ok(x)
    }

    /// Primes at which the feed-forward of a layer begins: after the last layer, a norm and the packing follow.
    fn feed_forward_limbs(&self, layer: &DecoderLayerChoice, last: bool) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        if !last {
            return Ok(limbs);
        }
        let inside = usize::from(layer.feed_forward_sub_norm.is_some());
        let block = ledger::feed_forward(layer.activation.degree, true);
        let head = usize::from(self.answer == AnswerRows::Logits);
        let needed = NORM + block + inside + STATISTIC + head;
        Ok(limbs.max(above_by(self.on, self.on.floor(), needed)?))
    }

    fn show(&mut self, id: StepId, x: &Acts<S::Value>) -> Result<(), FheError> {
        let Some(mut viewer) = self.viewer.take() else {
            return Ok(());
        };
        let shown = match self.placement.pairs {
            true => viewer(id, Look::of(&self.columns(x.clone())?)),
            false => viewer(id, Look::of(x)),
        };
        self.viewer = Some(viewer);
        shown
    }
}
