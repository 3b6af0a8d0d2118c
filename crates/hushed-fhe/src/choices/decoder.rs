//! What is chosen for a decoder: intervals of scores, bounds of the residual stream, norms and activations.

use serde::{Deserialize, Serialize};

use super::{ActivationChoice, Interval, NormChoice};

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
    /// The sigmoid of scores.
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

/// The sigmoid of all heads of a layer, of one degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScoresChoice {
    /// Degree.
    pub degree: usize,
    /// Head by head, the scores with the factor 1/√dh and without the bias, 0 among them; margins included.
    pub heads: Vec<Interval>,
}
