//! Choices for a model that has not been calibrated: degrees and steps that trained encoders of this kind need, so that
//! a plan has its counts. They are never run: intervals are round numbers.

use hushed_model::{Attention, FeedForward, Program, Weigh};

use crate::tape::encoder::begins_with_norm;
use crate::{
    ActivationChoice, AttentionChoice, Choices, ClassifierChoice, DecoderChoice, DecoderLayerChoice, HeadChoice,
    Interval, LayerChoice, NormChoice, ScoresChoice, SigmoidChoice,
};

/// For an encoder: degree 12 for exponentials and 28 for activations, seven and six steps for the two inverses of a
/// softmax, a seed of degree 15 and one step for inverse roots, degree 63 for a classifier's tanh; no head with a fixed
/// pattern, no frozen row. For a decoder: degree 31 for sigmoid and activation, 15 for exponentials, the same inverses
/// and roots.
#[must_use]
pub fn assumed_choices(program: &Program, rows: usize) -> Choices {
    if program.vocabulary().is_some() {
        let mut choices = Choices::unnamed(rows, Vec::new(), None);
        choices.decoder = Some(decoder(program, rows));
        return choices;
    }
    let width = program.width();
    let layer = |(a, f): (&Attention, Option<&FeedForward>)| LayerChoice {
        attention: softmax(12, a.heads.count, rows),
        attention_norm: norm(width, 0.05),
        activation: activation(28, f.map_or(0, |f| f.up.outputs)),
        feed_forward_norm: norm(width, 0.005),
        frozen_row: None,
    };
    let classifier = program.classifier().map(|_| ClassifierChoice { degree: 63, reach: 16.0 });
    let layers = program.attentions().zip(program.feed_forwards());
    let mut choices = Choices::unnamed(rows, layers.map(layer).collect(), classifier);
    choices.norm = begins_with_norm(program).then(|| norm(width, 0.05));
    choices
}

fn decoder(program: &Program, rows: usize) -> DecoderChoice {
    let width = program.width();
    let layer = |(a, f): (&Attention, Option<&FeedForward>)| DecoderLayerChoice {
        attention_norm: norm(width, 0.05),
        scores: match a.weigh {
            Weigh::Sigmoid { .. } => {
                ScoresChoice::Sigmoid(SigmoidChoice { degree: 31, heads: vec![between(-8.0, 8.0); a.heads.count] })
            }
            Weigh::Softmax => ScoresChoice::Softmax(softmax(15, a.heads.count, rows)),
        },
        attention_sub_norm: a.sub_norm.as_ref().map(|n| norm(n.width, 0.05)),
        attention_bound: 16.0,
        feed_forward_norm: norm(width, 0.05),
        activation: activation(31, f.map_or(0, |f| f.up.outputs)),
        feed_forward_sub_norm: f.and_then(|f| f.sub_norm.as_ref()).map(|n| norm(n.width, 0.05)),
        feed_forward_bound: 16.0,
    };
    let layers = program.attentions().zip(program.feed_forwards());
    DecoderChoice { layers: layers.map(layer).collect(), norm: norm(width, 0.05) }
}

fn softmax(degree: usize, heads: usize, rows: usize) -> AttentionChoice {
    let head = HeadChoice::Softmax {
        scores: between(-20.0, 10.0),
        least_maximum: 0.0,
        first: between(0.01, rows as f64),
        second: between(0.5 / rows as f64, 1.05),
    };
    AttentionChoice { degree, first_steps: 7, second_steps: 6, heads: vec![head; heads] }
}

fn between(low: f64, high: f64) -> Interval {
    Interval { low, high }
}

fn norm(width: usize, low: f64) -> NormChoice {
    NormChoice { scale: 1.0 / (4.0 * width as f64).sqrt(), low, bound: (width as f64).sqrt(), seed: 15, steps: 1 }
}

fn activation(degree: usize, columns: usize) -> ActivationChoice {
    ActivationChoice { degree, columns: vec![between(-8.0, 8.0).into(); columns] }
}
