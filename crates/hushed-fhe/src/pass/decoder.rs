//! A decoder over [`Slots`], layer by layer: see [`crate::ops::decoder`].
//!
//! Columns between halves of a layer are the refreshed residual stream. After the last layer they are not refreshed:
//! the last norm and the packing of last rows use the remaining levels.
//!
//! If the placement spills vectors, the primes of the residual stream that a half's sum reads go to disk before its
//! norm, and the norm's result takes the place of the columns.

use hushed_model::{
    Attention, Block, FeedForward, Linear, ModelError, Norm, Pool, Program, Step, StepId, same,
};
use rayon::prelude::*;

use super::{Look, Viewer};
use crate::choices::{Choices, DecoderChoice, DecoderLayerChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation::Polynomials;
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
use crate::ops::levels::above;
use crate::ops::mask::lifted;
use crate::ops::pool::Pooled;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::plan::public_plan::AnswerRows;
use crate::slots::Slots;

/// Levels of a feed-forward besides its activation: norm, map, gate, map.
const FEED_FORWARD: usize = 4;

/// Runs a decoder over right-aligned texts.
pub struct DecoderPass<'a, S: Slots> {
    on: &'a S,
    parts: Parts<'a>,
    choices: &'a DecoderChoice,
    placement: Placement,
    layout: Interleave,
    input_bound: f64,
    width: usize,
    polynomials: Polynomials,
    answer: AnswerRows,
    /// The mask of real rows, which a softmax needs.
    real: Option<S::Value>,
    viewer: Option<Viewer<'a, S::Value>>,
}

/// The residual stream while a block runs.
enum Beside<S: Slots> {
    /// In memory.
    Columns(Acts<S::Value>),
    /// On disk, with the primes that the sum reads.
    Stored(StoredActs<S>),
}

/// The blocks of a decoder's program.
pub(super) struct Parts<'a> {
    pub layers: Vec<Layer<'a>>,
    pub norm: (StepId, &'a Norm),
    pub last: StepId,
    pub head: (StepId, &'a Linear),
}

/// The blocks of a layer, with their ids.
pub(super) struct Layer<'a> {
    pub attention_norm: (StepId, &'a Norm),
    pub attention: (StepId, &'a Attention),
    pub attention_sum: StepId,
    pub feed_forward_norm: (StepId, &'a Norm),
    pub feed_forward: (StepId, &'a FeedForward),
    pub feed_forward_sum: StepId,
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
        let absent = || super::absent(StepId::outside("decoder"));
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
            polynomials: Polynomials::default(),
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

    /// Sets a viewer of the residual stream after each sum.
    #[must_use]
    pub fn viewed_by(self, viewer: Viewer<'a, S::Value>) -> Self {
        DecoderPass {
            viewer: Some(viewer),
            ..self
        }
    }

    /// Number of layers.
    pub fn layers(&self) -> usize {
        self.parts.layers.len()
    }

    /// The client's columns as the first layer reads them.
    ///
    /// # Errors
    /// Errors of the refresh; fails if the number of columns is not the model's width.
    pub fn start(&self, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        same(
            StepId::outside("input"),
            "columns",
            columns.len(),
            self.width,
        )?;
        let x = Acts::from_client(columns, self.input_bound);
        self.lifted(x, StepId::outside("input"), self.placement.attention)
    }

    /// The columns that layer `next` reads, from a checkpoint before it.
    ///
    /// # Errors
    /// Fails if the model lacks the layer, or the number of columns is wrong.
    pub fn resume(&self, next: usize, columns: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let Some(i) = next.checked_sub(1) else {
            return self.start(columns);
        };
        same(
            StepId::outside("input"),
            "columns",
            columns.len(),
            self.width,
        )?;
        Ok(Acts::from_client(
            columns,
            self.layer_choice(i)?.feed_forward_bound,
        ))
    }

    /// Layer `i`, from columns to columns.
    ///
    /// # Errors
    /// Those of its steps.
    pub fn layer(&mut self, i: usize, x: Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        let (on, last) = (self.on, i + 1 == self.layers());
        let choice = self.layer_choice(i)?;
        let x = self.cut(x, self.placement.attention)?;

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
        let y = y.map_err(|error| error.lacking_at(id))?;
        let x = self.summed(layer.attention_sum, beside, y, choice.attention_bound)?;
        let id = layer.attention_sum;
        let x = self.lifted(x, id, self.feed_forward_limbs(choice, last)?)?;
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
        let y = y.map_err(|error| error.lacking_at(id))?;
        let id = layer.feed_forward_sum;
        let mut x = self.summed(id, beside, y, choice.feed_forward_bound)?;
        if !last {
            x = self.lifted(x, id, self.placement.attention)?;
        }
        self.show(id, &x)?;
        Ok(x)
    }

    /// The requested normalised rows, or their logits, packed.
    ///
    /// # Errors
    /// Fails if there are too few levels.
    pub fn finish(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, (id, norm)) = (self.on, self.parts.norm);
        on.at(id);
        let y = rms_norm(
            on,
            id,
            x.clone(),
            norm,
            &self.choices.norm,
            self.placement.statistics,
        )
        .map_err(|error| error.lacking_at(id))?;
        let id = self.parts.last;
        let answer = match self.answer {
            AnswerRows::Last => last(on, id, &y, self.layout),
            AnswerRows::Rows => rows(on, id, &y),
            AnswerRows::Logits => logits(on, self.parts.head, &y, self.layout),
        };
        answer.map_err(|error| error.lacking_at(id))
    }

    /// Runs from the client's columns to the packed result.
    ///
    /// # Errors
    /// Those of the layers.
    pub fn run(&mut self, columns: Vec<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let mut x = self.start(columns)?;
        for i in 0..self.layers() {
            x = self.layer(i, x)?;
        }
        self.finish(&x)
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
            (Some(norm), Some(choice)) => Ok(Some(SubNorm {
                at: at.part("sub_norm"),
                norm,
                choice,
                statistics: self.placement.statistics,
            })),
            _ => Err(super::absent(at)),
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
                let limbs = limbs.map_err(|error| error.lacking_at(at))?;
                on.at(at.part("kept"));
                Beside::Stored(StoredActs::copy(on, &x, limbs)?)
            }
            _ => Beside::Columns(x.clone()),
        };
        on.at(id);
        let y = rms_norm(on, id, x, norm, choice, statistics);
        Ok((y.map_err(|error| error.lacking_at(id))?, beside))
    }

    /// The residual sum, within `bound`.
    fn summed(
        &self,
        id: StepId,
        beside: Beside<S>,
        y: Vec<S::Value>,
        bound: f64,
    ) -> Result<Acts<S::Value>, FheError> {
        self.on.at(id);
        let x = match beside {
            Beside::Columns(x) => x,
            Beside::Stored(x) => x.load(self.on)?,
        };
        sum(self.on, id, &x, y, bound).map_err(|error| error.lacking_at(id))
    }

    /// Refreshes columns with fewer than `limbs` primes to that many.
    fn lifted(
        &self,
        mut x: Acts<S::Value>,
        id: StepId,
        limbs: usize,
    ) -> Result<Acts<S::Value>, FheError> {
        if x.columns.first().is_some_and(|v| self.on.limbs(v) < limbs) {
            let id = id.part("refresh");
            self.on.at(id);
            x.columns = self.on.refresh(id, x.columns, limbs)?;
        }
        Ok(x)
    }

    /// Drops columns to the level at which a layer begins: those from a client may be higher.
    fn cut(&self, mut x: Acts<S::Value>, limbs: usize) -> Result<Acts<S::Value>, FheError> {
        let high = |v: &S::Value| self.on.limbs(v) > limbs;
        if x.columns.first().is_some_and(high) {
            let columns = x.columns.into_par_iter();
            let cut = columns.map(|v| self.on.drop_to(&v, limbs));
            x.columns = cut.collect::<Result<_, _>>()?;
        }
        Ok(x)
    }

    /// Primes at which the feed-forward of a layer begins: after the last layer, a norm and the packing follow.
    fn feed_forward_limbs(
        &self,
        layer: &DecoderLayerChoice,
        last: bool,
    ) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        if !last {
            return Ok(limbs);
        }
        let inside = usize::from(layer.feed_forward_sub_norm.is_some());
        let activation = crate::ops::activation::levels(layer.activation.degree);
        let head = usize::from(self.answer == AnswerRows::Logits);
        let needed = FEED_FORWARD + inside + activation + STATISTIC + head;
        let least = (0..needed).try_fold(self.on.floor(), |limbs, _| above(self.on, limbs));
        Ok(limbs.max(least?))
    }

    fn layer_choice(&self, i: usize) -> Result<&'a DecoderLayerChoice, FheError> {
        let layers = self.choices.layers.len();
        let choice = self.choices.layers.get(i);
        Ok(choice.ok_or(ModelError::NoSuchLayer { asked: i, layers })?)
    }

    fn show(&mut self, id: StepId, x: &Acts<S::Value>) -> Result<(), FheError> {
        match &mut self.viewer {
            Some(viewer) => viewer(id, Look::Columns(x)),
            None => Ok(()),
        }
    }
}

impl<'a> Parts<'a> {
    pub(super) fn of(program: &'a Program) -> Result<Parts<'a>, FheError> {
        let refused = || FheError::Unsupported {
            what: "a program of this shape".to_owned(),
            remedy: "decoders of norm, attention, sum, norm, feed-forward and sum a layer can be run",
        };
        for w in program.linears() {
            if w.bias.iter().flat_map(|b| b.iter()).any(|b| *b != 0.0) {
                return Err(FheError::Unsupported {
                    what: "a decoder with biases".to_owned(),
                    remedy: "decoders without biases can be run: a bias would fill rows of padding",
                });
            }
        }
        let steps = program.steps();
        let layers = program.layers().into_iter().map(|range| {
            let steps = steps.get(range).unwrap_or_default();
            Layer::of(steps).ok_or_else(refused)
        });
        let layers = layers.collect::<Result<Vec<_>, _>>()?;
        let after = program.layers().last().map_or(0, |range| range.end);
        match steps.get(after..).unwrap_or_default() {
            [
                Step {
                    id: last,
                    block: Block::Pool(Pool::Last),
                    ..
                },
                Step {
                    id,
                    block: Block::Norm(norm),
                    ..
                },
                Step {
                    id: head,
                    block: Block::Vocabulary(w),
                    ..
                },
            ] => Ok(Parts {
                layers,
                norm: (*id, norm),
                last: *last,
                head: (*head, w),
            }),
            _ => Err(refused()),
        }
    }

    fn layer(&self, i: usize) -> Result<&Layer<'a>, FheError> {
        let layers = self.layers.len();
        let layer = self.layers.get(i);
        Ok(layer.ok_or(ModelError::NoSuchLayer { asked: i, layers })?)
    }
}

impl<'a> Layer<'a> {
    fn of(steps: &'a [Step]) -> Option<Layer<'a>> {
        let [a, b, c, d, e, f] = steps else {
            return None;
        };
        match [&a.block, &b.block, &c.block, &d.block, &e.block, &f.block] {
            [
                Block::Norm(first),
                Block::Attention(attention),
                Block::Add,
                Block::Norm(second),
                Block::FeedForward(feed_forward),
                Block::Add,
            ] => Some(Layer {
                attention_norm: (a.id, first),
                attention: (b.id, attention),
                attention_sum: c.id,
                feed_forward_norm: (d.id, second),
                feed_forward: (e.id, feed_forward),
                feed_forward_sum: f.id,
            }),
            _ => None,
        }
    }
}
