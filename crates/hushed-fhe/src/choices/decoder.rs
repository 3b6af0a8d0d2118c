//! The choices for a decoder: intervals of scores, bounds of the residual stream, norms and activations.

use serde::{Deserialize, Serialize};

use super::layer::{ActivationChoice, AttentionChoice, Interval, LayerChoice, NormChoice};

/// A decoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderChoice {
    /// One entry per layer.
    pub layers: Vec<DecoderLayerChoice>,
    /// The norm after the last layer.
    pub norm: NormChoice,
}

/// One layer. An RMSNorm has no mean: v = Σ (κ·x)² + κ²·d·ε.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct DecoderLayerChoice {
    /// The norm before attention.
    pub attention_norm: NormChoice,
    /// The map from scores to weights.
    pub scores: ScoresChoice,
    /// The norm of the input of attention's output map, if the model has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub attention_sub_norm: Option<NormChoice>,
    /// Bound on the residual stream after attention.
    pub attention_bound: f64,
    /// The norm before feed-forward.
    pub feed_forward_norm: NormChoice,
    /// The activation of the gate.
    pub activation: ActivationChoice,
    /// The norm of the input of the feed-forward's last map, if the model has one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub feed_forward_sub_norm: Option<NormChoice>,
    /// Bound on the residual stream after feed-forward.
    pub feed_forward_bound: f64,
}

impl DecoderLayerChoice {
    /// The same of a layer that begins with norms, which bound the residual stream; none for a sigmoid.
    pub(crate) fn of_softmax(&self) -> Option<LayerChoice> {
        let ScoresChoice::Softmax(softmax) = &self.scores else { return None };
        Some(LayerChoice {
            attention: softmax.clone(),
            attention_norm: self.attention_norm.clone(),
            activation: self.activation.clone(),
            feed_forward_norm: self.feed_forward_norm.clone(),
            frozen_row: None,
        })
    }
}

/// The map from scores to weights, for all heads of a layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub enum ScoresChoice {
    /// A sigmoid of each score.
    Sigmoid(SigmoidChoice),
    /// A softmax of each row over the scores of keys up to that row. No head has a fixed pattern.
    Softmax(AttentionChoice),
}

impl ScoresChoice {
    /// Number of heads of the layer.
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

/// The sigmoid of all heads of a layer, all of the same degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SigmoidChoice {
    /// Degree.
    pub degree: usize,
    /// Scores per head, with the factor 1/√dh and without the bias, including 0; margins included.
    pub heads: Vec<Interval>,
}
