//! What the heads of a decoder layer share: linear maps, levels, and the functions from scores to weights.

use std::borrow::Cow;
use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Attention, StepId, same};

use super::sub_norm::SubNorm;
use super::weigh::{self, Weighing};
use crate::choices::ScoresChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::after::{After, Form, Last};
use crate::ops::levels::below;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::slots::Slots;

/// An attention block of a run.
pub struct CausalLayer<'a, V> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// The intervals and the degree.
    pub choice: &'a ScoresChoice,
    /// The token rows, which a softmax needs.
    pub real: Option<&'a V>,
    /// The norm before the output map, if there is one.
    pub sub_norm: Option<SubNorm<'a>>,
    /// The reader of its result.
    pub after: After<'a>,
    /// The packing; the last row of each text is row m − 1.
    pub layout: Interleave,
    /// Baby steps of both products (`scores_baby`), heads whose sums share bootstraps, and primes of refreshed sums.
    pub placement: &'a Placement,
}

/// The keys of a head, turned and masked.
pub(super) struct Keys<V> {
    /// By pair, then by baby step.
    pub rotated: Vec<Vec<V>>,
    /// By pair, for the diagonal.
    pub diagonal: Vec<Vec<V>>,
}

/// How the layers of a block that are declared ternary are computed, by part; `None` for the others.
#[must_use]
pub fn forms(a: &Attention, after: After<'_>) -> [(&'static str, Option<Form>); 4] {
    [
        ("query", Form::first(&a.query)),
        ("key", Form::first(&a.key)),
        ("value", Form::first(&a.value)),
        ("output", output_form(a, after)),
    ]
}

fn output_form(a: &Attention, after: After<'_>) -> Option<Form> {
    after.form(&a.output, a.sub_norm.as_ref(), true)
}

/// Primes on the way from the columns to the result.
pub(super) struct Limbs {
    /// Of turned queries and keys.
    pub turned: usize,
    pub weights: usize,
    /// Of the output map's operands.
    pub attended: usize,
    pub result: usize,
}

impl Limbs {
    pub fn of<S: Slots>(on: &S, columns: usize, layer: &CausalLayer<'_, S::Value>) -> Result<Limbs, FheError> {
        let turned = below(on, columns, 2)?;
        let (scores, statistics) = (below(on, turned, 1)?, layer.placement.statistics);
        let (weights, attended) = weigh::limbs(on, scores, layer.choice, statistics)?;
        let norm = layer.sub_norm.as_ref();
        let form = output_form(layer.block, layer.after);
        let read = below(on, attended, Form::levels(form))?;
        Ok(Limbs { turned, weights, attended, result: norm.map_or(Ok(read), |norm| norm.limbs(on, read))? })
    }
}

/// One layer over one batch.
pub(super) struct Run<'a, S: Slots> {
    pub on: &'a S,
    pub layer: &'a CausalLayer<'a, S::Value>,
    pub query: Arc<LinearMap>,
    pub key: Arc<LinearMap>,
    pub value: Arc<LinearMap>,
    pub output: Last,
    pub weighing: Weighing<'a, S::Value>,
    /// For a softmax, the token rows, as one more pair of all keys.
    pub tokens: Option<Keys<S::Value>>,
    pub limbs: Limbs,
}

impl<'a, S: Slots> Run<'a, S> {
    /// The layer's run, without the token rows ([`Run::with_tokens`]).
    pub fn new(on: &'a S, x: &Acts<S::Value>, layer: &'a CausalLayer<'a, S::Value>) -> Result<Self, FheError> {
        let CausalLayer { at, block, choice, .. } = *layer;
        same(at, "heads of the calibration", choice.heads(), block.heads.count)?;
        // Biases are zeros: a decoder with other biases is refused before it begins.
        let map = |part, w| {
            on.map(at.part(part), || {
                let mut map = x.folded(on, at.part(part), w)?;
                map.bias = None;
                Ok(map)
            })
        };
        let columns = x.columns.first().map_or(on.top(), |v| on.limbs(v));
        let limbs = Limbs::of(on, columns, layer)?;
        let (after, w) = match &layer.sub_norm {
            Some(norm) => norm.last(layer.after, &block.output)?,
            None => (layer.after, Cow::Borrowed(&block.output)),
        };
        let form = output_form(block, layer.after);
        let output = after.last(on, at.part("output"), &w, limbs.attended, form)?;
        let split = (layer.layout, layer.placement.scores_baby);
        Ok(Run {
            on,
            layer,
            query: map("query", &block.query)?,
            key: map("key", &block.key)?,
            value: map("value", &block.value)?,
            output,
            weighing: Weighing::new(on, (at, block), choice, split, layer.real)?,
            tokens: None,
            limbs,
        })
    }

    /// Names a part of the layer's step.
    pub fn site(&self, step: &'static str) {
        self.on.at(self.layer.at.part(step));
    }
}
