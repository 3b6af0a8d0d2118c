//! Whether the functions of a calibration have fits. A plan counts stand-ins ([`super::shapes`]), so without this check
//! a calibration without a fit would be refused only when a run is prepared.

use hushed_model::{Activation, Block, Program, StepId, Weigh};
use rayon::prelude::*;

use super::{
    AttentionChoice, Choices, ChoicesError, ClassifierChoice, Column, HeadChoice, Interval,
    NormChoice, ScoresChoice, fits,
};
use crate::error::FheError;
use crate::ops::decoder::weigh::intervals;
use crate::ops::head::HeadActivation;
use crate::ops::softmax::Softmax;

/// A function to fit.
enum Wanted<'a> {
    Softmax(&'a HeadChoice, &'a AttentionChoice),
    /// The same where scores are masked.
    Masked(&'a HeadChoice, &'a AttentionChoice),
    Sigmoid(Interval, f64, usize),
    Root(&'a NormChoice),
    Activation(Activation, Column, usize),
    Head(Activation, &'a ClassifierChoice),
}

/// A function with its step and its name.
type Named<'a> = (StepId, String, Wanted<'a>);

impl Choices {
    /// Fits the functions on their intervals, one by one. Of a layer's activations, of which there are thousands that
    /// differ in their intervals alone, that of the widest is fitted.
    ///
    /// # Errors
    /// [`ChoicesError::Unfit`] for the first function without a fit.
    pub fn check_fits(&self, program: &Program) -> Result<(), FheError> {
        let mut wanted = Vec::new();
        // The layer of the last norm, and how many it has so far: two, in the order of their choices.
        let mut norms = (None, 0);
        for step in program.steps() {
            let layer = step.id.layer();
            if let Block::Norm(_) = step.block {
                norms = match norms {
                    (last, count) if last == layer => (layer, count + 1),
                    _ => (layer, 1),
                };
                let norm = self.norm(layer, norms.1 - 1);
                wanted.extend(norm.map(|norm| (step.id, root(), Wanted::Root(norm))));
            }
            match layer {
                Some(layer) => self.of_layer(layer, step.id, &step.block, &mut wanted),
                None => {
                    if let (Block::Head(head), Some(choice)) = (&step.block, &self.classifier) {
                        let function = format!("{:?}", head.activation);
                        wanted.push((step.id, function, Wanted::Head(head.activation, choice)));
                    }
                }
            }
        }
        let refused = wanted
            .par_iter()
            .find_map_first(|(step, function, wanted)| {
                let error = wanted.fit().err()?;
                Some(match error {
                    FheError::Poly(source) => ChoicesError::Unfit {
                        step: *step,
                        function: function.clone(),
                        source: Box::new(source),
                    }
                    .into(),
                    other => other,
                })
            });
        refused.map_or(Ok(()), Err)
    }

    /// The choice for the first or second norm of a layer, or for a norm after the layers.
    fn norm(&self, layer: Option<usize>, place: usize) -> Option<&NormChoice> {
        let Some(layer) = layer else {
            return self.decoder.as_ref().map(|decoder| &decoder.norm);
        };
        let decoder = self.decoder.as_ref().and_then(|d| d.layers.get(layer));
        let both = match (decoder, self.layers.get(layer)) {
            (Some(choice), _) => [&choice.attention_norm, &choice.feed_forward_norm],
            (None, Some(choice)) => [&choice.attention_norm, &choice.feed_forward_norm],
            (None, None) => return None,
        };
        both.get(place).copied()
    }

    /// Adds the functions inside a block.
    fn of_layer<'a>(
        &'a self,
        layer: usize,
        at: StepId,
        block: &Block,
        wanted: &mut Vec<Named<'a>>,
    ) {
        let decoder = self.decoder.as_ref().and_then(|d| d.layers.get(layer));
        let encoder = self.layers.get(layer);
        let numbered = |heads: &'a [HeadChoice]| {
            let all = heads.iter().enumerate();
            all.filter(|(_, head)| **head != HeadChoice::Previous)
        };
        let inside = |norm: &'a Option<NormChoice>| {
            let norm = norm.as_ref();
            norm.map(|norm| (at.part("sub_norm"), root(), Wanted::Root(norm)))
        };
        match block {
            Block::Attention(block) => {
                if let Some(choice) = encoder.map(|layer| &layer.attention) {
                    let heads = numbered(&choice.heads);
                    wanted.extend(
                        heads.map(|(i, head)| (at, softmax(i), Wanted::Softmax(head, choice))),
                    );
                }
                let Some(choice) = decoder else { return };
                wanted.extend(inside(&choice.attention_sub_norm));
                match &choice.scores {
                    ScoresChoice::Softmax(choice) => {
                        let heads = numbered(&choice.heads);
                        wanted.extend(
                            heads.map(|(i, head)| (at, softmax(i), Wanted::Masked(head, choice))),
                        );
                    }
                    ScoresChoice::Sigmoid(choice) => {
                        let Weigh::Sigmoid { bias } = block.weigh else {
                            return;
                        };
                        let heads = intervals(block, choice).enumerate();
                        wanted.extend(heads.map(|(i, scores)| {
                            let sigmoid = Wanted::Sigmoid(scores, bias, choice.degree);
                            (at, format!("sigmoid of head {i}"), sigmoid)
                        }));
                    }
                }
            }
            Block::FeedForward(block) => {
                let choice = match (decoder, encoder) {
                    (Some(choice), _) => &choice.activation,
                    (None, Some(choice)) => &choice.activation,
                    (None, None) => return,
                };
                if let Some(choice) = decoder {
                    wanted.extend(inside(&choice.feed_forward_sub_norm));
                }
                let columns = choice.columns.iter().copied();
                let widest =
                    columns.max_by(|a, b| a.interval().half().total_cmp(&b.interval().half()));
                wanted.extend(widest.map(|column| {
                    let activation = Wanted::Activation(block.activation, column, choice.degree);
                    (
                        at.part("activation"),
                        format!("{:?}", block.activation),
                        activation,
                    )
                }));
            }
            _ => {}
        }
    }
}

fn root() -> String {
    "inverse root".to_owned()
}

fn softmax(head: usize) -> String {
    format!("softmax of head {head}")
}

impl Wanted<'_> {
    fn fit(&self) -> Result<(), FheError> {
        match *self {
            Wanted::Softmax(head, choice) => Softmax::new(head, choice).map(drop),
            Wanted::Masked(head, choice) => Softmax::masked(head, choice).map(drop),
            Wanted::Sigmoid(scores, bias, degree) => {
                Ok(fits::sigmoid(scores, bias, degree).map(drop)?)
            }
            Wanted::Root(choice) => Ok(fits::root(choice).map(drop)?),
            Wanted::Activation(f, column, degree) => {
                Ok(fits::activation(f, column, degree).map(drop)?)
            }
            Wanted::Head(f, choice) => Ok(HeadActivation::new(f, choice).map(drop)?),
        }
    }
}
