//! What is chosen for a decoder: intervals of scores, bounds of the residual stream, norms and activations.

use serde::{Deserialize, Serialize};

use super::{ActivationChoice, AttentionChoice, Interval, NormChoice};

/// A decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderChoice {
    /// Layer by layer.
    pub layers: Vec<DecoderLayerChoice>,
    /// The norm after the last layer.
    pub norm: NormChoice,
}

/// One layer. Its norms have no mean: v = Σ (κ·x)² + κ²·d·ε.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderLayerChoice {
    /// The norm before attention.
    pub attention_norm: NormChoice,
    /// From scores to weights.
    pub scores: ScoresChoice,
    /// The norm of what attention's output map reads, if the model has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_sub_norm: Option<NormChoice>,
    /// Bound on the residual stream after attention.
    pub attention_bound: f64,
    /// The norm before feed-forward.
    pub feed_forward_norm: NormChoice,
    /// The activation of the gate.
    pub activation: ActivationChoice,
    /// The norm of what the feed-forward's last map reads, if the model has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward_sub_norm: Option<NormChoice>,
    /// Bound on the residual stream after feed-forward.
    pub feed_forward_bound: f64,
}

/// From scores to weights, of all heads of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScoresChoice {
    /// A sigmoid of each score.
    Sigmoid(SigmoidChoice),
    /// A softmax of each row, of scores of keys up to it. No head has a fixed pattern.
    Softmax(AttentionChoice),
}

impl ScoresChoice {
    /// Heads of the layer.
    #[must_use]
    pub fn heads(&self) -> usize {
        match self {
            ScoresChoice::Sigmoid(sigmoid) => sigmoid.heads.len(),
            ScoresChoice::Softmax(softmax) => softmax.heads.len(),
        }
    }

    /// Degree of the polynomial of scores.
    #[must_use]
    pub fn degree(&self) -> usize {
        match self {
            ScoresChoice::Sigmoid(sigmoid) => sigmoid.degree,
            ScoresChoice::Softmax(softmax) => softmax.degree,
        }
    }
}

/// The sigmoid of all heads of a layer, of one degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigmoidChoice {
    /// Degree.
    pub degree: usize,
    /// Head by head, the scores with the factor 1/√dh and without the bias, 0 among them; margins included.
    pub heads: Vec<Interval>,
}
