//! Choices for a model that has not been calibrated: degrees and steps that trained encoders of this kind were found to
//! need, so that a plan has its counts. Nothing is run with them: intervals are round numbers.

use hushed_model::Network;

use crate::{
    ActivationChoice, AttentionChoice, Choices, ClassifierChoice, HeadChoice, Interval,
    LayerChoice, NormChoice,
};

/// Degree 12 for exponentials and 28 for activations, seven and six steps for the two inverses of a softmax, a seed of
/// degree 15 and one step for inverse roots, degree 63 for a classifier's tanh; no head with a fixed pattern, no frozen
/// row.
#[must_use]
pub fn assumed_choices(network: &Network, rows: usize) -> Choices {
    let head = HeadChoice::Softmax {
        scores: Interval {
            low: -20.0,
            high: 10.0,
        },
        least_maximum: 0.0,
        first: Interval {
            low: 0.01,
            high: rows as f64,
        },
        second: Interval {
            low: 0.5 / rows as f64,
            high: 1.05,
        },
    };
    let norm = |width: usize, low: f64| NormChoice {
        scale: 1.0 / (4.0 * width as f64).sqrt(),
        low,
        bound: (width as f64).sqrt(),
        seed: 15,
        steps: 1,
    };
    let layers = network.layers.iter().map(|layer| LayerChoice {
        attention: AttentionChoice {
            degree: 12,
            first_steps: 7,
            second_steps: 6,
            heads: vec![head.clone(); layer.attention.heads.count],
        },
        attention_norm: norm(layer.attention_norm.width, 0.05),
        activation: ActivationChoice {
            degree: 28,
            columns: vec![
                Interval {
                    low: -8.0,
                    high: 8.0,
                }
                .into();
                layer.feed_forward.up.outputs
            ],
        },
        feed_forward_norm: norm(layer.feed_forward_norm.width, 0.005),
        frozen_row: None,
    });
    let classifier = network.classifier.as_ref().map(|_| ClassifierChoice {
        degree: 63,
        reach: 16.0,
    });
    Choices::unnamed(rows, layers.collect(), classifier)
}
