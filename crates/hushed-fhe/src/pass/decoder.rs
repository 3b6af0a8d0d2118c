//! A decoder over [`Slots`], layer by layer: see [`crate::ops::decoder`].
//!
//! Columns between halves of a layer are the residual stream, refreshed. After the last layer they are not: the last
//! norm and the packing of last rows take the levels that are left.

use hushed_model::{
    Attention, Block, FeedForward, ModelError, Norm, Pool, Program, Step, StepId, same,
};
use rayon::prelude::*;

use super::{Look, Viewer};
use crate::choices::{Choices, DecoderChoice, DecoderLayerChoice};
use crate::error::FheError;
use crate::ops::activation::Polynomials;
use crate::ops::acts::Acts;
use crate::ops::after::After;
use crate::ops::decoder::attention::{SigmoidLayer, attention};
use crate::ops::decoder::last::last;
use crate::ops::decoder::rms::{STATISTIC, rms_norm, sum};
use crate::ops::feed_forward::{FeedForwardLayer, feed_forward};
use crate::ops::levels::above;
use crate::ops::pool::Pooled;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
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
    viewer: Option<Viewer<'a, S::Value>>,
}

/// The blocks of a decoder's program.
pub(super) struct Parts<'a> {
    layers: Vec<Layer<'a>>,
    norm: (StepId, &'a Norm),
    last: StepId,
}

/// The blocks of a layer, with their names.
struct Layer<'a> {
    attention_norm: (StepId, &'a Norm),
    attention: (StepId, &'a Attention),
    attention_sum: StepId,
    feed_forward_norm: (StepId, &'a Norm),
    feed_forward: (StepId, &'a FeedForward),
    feed_forward_sum: StepId,
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
            viewer: None,
        })
    }

    /// The same, with a viewer of the residual stream after each sum.
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
    /// Those of a refresh; another number of columns than the model's width.
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
    /// A layer that the model does not have, another number of columns.
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
        let statistics = self.placement.statistics;
        let x = self.cut(x, self.placement.attention)?;

        let layer = self.parts.layer(i)?;
        let (id, norm) = layer.attention_norm;
        on.at(id);
        let y = rms_norm(on, id, &x, norm, &choice.attention_norm, statistics)
            .map_err(|error| error.lacking_at(id))?;
        let (id, block) = layer.attention;
        let run = SigmoidLayer {
            at: id,
            block,
            choice: &choice.scores,
            after: After::Sum(choice.attention_bound),
            layout: self.layout,
            baby: self.placement.scores_baby,
        };
        let y = attention(on, &y, &run).map_err(|error| error.lacking_at(id))?;
        let id = layer.attention_sum;
        on.at(id);
        let x = sum(on, id, &x, y, choice.attention_bound).map_err(|error| error.lacking_at(id))?;
        let x = self.lifted(x, id, self.feed_forward_limbs(choice, last)?)?;
        self.show(id, &x)?;

        let layer = self.parts.layer(i)?;
        let (id, norm) = layer.feed_forward_norm;
        on.at(id);
        let y = rms_norm(on, id, &x, norm, &choice.feed_forward_norm, statistics)
            .map_err(|error| error.lacking_at(id))?;
        let (id, block) = layer.feed_forward;
        let run = FeedForwardLayer {
            at: id,
            block,
            choice: &choice.activation,
            after: After::Sum(choice.feed_forward_bound),
            hidden_block: self.placement.hidden_block,
            polynomials: &self.polynomials,
        };
        let y = feed_forward(on, &y, &run).map_err(|error| error.lacking_at(id))?;
        let id = layer.feed_forward_sum;
        on.at(id);
        let mut x =
            sum(on, id, &x, y, choice.feed_forward_bound).map_err(|error| error.lacking_at(id))?;
        if !last {
            x = self.lifted(x, id, self.placement.attention)?;
        }
        self.show(id, &x)?;
        Ok(x)
    }

    /// The normalised last rows, packed.
    ///
    /// # Errors
    /// Too few levels.
    pub fn finish(&mut self, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
        let (on, (id, norm)) = (self.on, self.parts.norm);
        on.at(id);
        let y = rms_norm(
            on,
            id,
            x,
            norm,
            &self.choices.norm,
            self.placement.statistics,
        )
        .map_err(|error| error.lacking_at(id))?;
        let id = self.parts.last;
        last(on, id, &y, self.layout).map_err(|error| error.lacking_at(id))
    }

    /// From the client's columns to the packed result.
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

    /// Refreshed to `limbs` primes, unless they have as many.
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

    /// Drops columns to the level at which a layer begins: a client's may be higher.
    fn cut(&self, mut x: Acts<S::Value>, limbs: usize) -> Result<Acts<S::Value>, FheError> {
        let high = |v: &S::Value| self.on.limbs(v) > limbs;
        if x.columns.first().is_some_and(high) {
            let columns = x.columns.into_par_iter();
            let cut = columns.map(|v| self.on.drop_to(&v, limbs));
            x.columns = cut.collect::<Result<_, _>>()?;
        }
        Ok(x)
    }

    /// Primes at which the feed-forward of a layer begins: after the last, a norm and the packing follow.
    fn feed_forward_limbs(
        &self,
        layer: &DecoderLayerChoice,
        last: bool,
    ) -> Result<usize, FheError> {
        let limbs = self.placement.feed_forward;
        if !last {
            return Ok(limbs);
        }
        let needed =
            FEED_FORWARD + crate::ops::activation::levels(layer.activation.degree) + STATISTIC;
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
                    block: Block::Vocabulary(_),
                    ..
                },
            ] => Ok(Parts {
                layers,
                norm: (*id, norm),
                last: *last,
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
