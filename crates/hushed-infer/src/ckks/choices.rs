//! What is chosen for a model before it runs under CKKS: intervals, degrees and constants of every approximation, the structure that
//! the model has. Found by `hushed calibrate --protocol fhe` over sample texts; a secret of the server, as it follows from the weights.

use serde::{Deserialize, Serialize};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// The contents of `calibration-fhe.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// [`VERSION`].
    pub version: u32,
    /// SHA-256 of the sample file, in hexadecimal.
    pub sample_sha256: String,
    /// SHA-256 of the model's weights file, in hexadecimal.
    pub model_sha256: String,
    /// Texts measured.
    pub texts: usize,
    /// Rows a text, padding included, that intervals are for.
    pub rows: usize,
    /// Layer by layer.
    pub layers: Vec<LayerChoice>,
}

/// A closed interval.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

/// One encoder layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerChoice {
    /// Scores, softmax.
    pub attention: AttentionChoice,
    /// The norm after attention.
    pub attention_norm: NormChoice,
    /// Between the wide layers.
    pub activation: ActivationChoice,
    /// The norm after them.
    pub feed_forward_norm: NormChoice,
    /// Row 0 of every text leaves the layer as these d numbers (gain and offset in them: the mean over texts), if there are any: where it
    /// hardly depends on the text and lies far from all other rows. The norm after attention then gives zeros in that row, so that no
    /// interval of the feed-forward has to hold it.
    pub frozen_row: Option<Vec<f64>>,
}

/// The softmax of all heads of a layer. Degree and steps are the same for all heads, so that operations are.
///
/// For a row of scores s (1/√dh in them, keys without bias): p = e^{(s − high)/2}, y = p·(1/Σp), e = y², weights = e·(1/Σe).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionChoice {
    /// Degree of the polynomial for e^{(s − high)/2} on a head's interval.
    pub degree: usize,
    /// Steps of the inverse of Σp.
    pub first_steps: usize,
    /// Steps of the inverse of Σe.
    pub second_steps: usize,
    /// Head by head.
    pub heads: Vec<HeadChoice>,
}

/// One head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadChoice {
    /// A softmax.
    Softmax {
        /// Of the scores of real queries and padded ones with real keys, margins included.
        scores: Interval,
        /// The least row maximum: below it by much, exponentials need no relative accuracy.
        least_maximum: f64,
        /// Of Σp.
        first: Interval,
        /// Of Σe, with y by a first inverse that errs: around [1/m, 1].
        second: Interval,
    },
    /// Row i attends to row i − 1, and row 0 to itself: a fixed pattern, whatever the text. It takes fewer operations, so the plan says
    /// which heads have it.
    Previous,
}

/// A LayerNorm: columns c = κ·(x − mean), v = Σ c² within [low, 1], result (x̂/bound) = c·v^{−1/2}·√d/bound, gain and offset left to
/// whoever reads it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormChoice {
    /// κ: √(1/(d·greatest variance)), margins included.
    pub scale: f64,
    /// The least v, margins included.
    pub low: f64,
    /// No |x̂| is larger (a row of d numbers of variance 1 has none above √d).
    pub bound: f64,
    /// Degree of the polynomial that begins the inverse root.
    pub seed: usize,
    /// Newton steps after it.
    pub steps: usize,
}

/// An activation, a polynomial a hidden column, all of one degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationChoice {
    /// Degree.
    pub degree: usize,
    /// Of the arguments, column by column.
    pub columns: Vec<Interval>,
}

/// Why choices cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoicesError {
    /// Not the JSON that `hushed calibrate --protocol fhe` writes.
    #[error(
        "not a calibration for fhe ({0}); make one with `hushed calibrate DIR --input FILE --protocol fhe`"
    )]
    NotJson(#[from] serde_json::Error),
    /// Of another version, or for another model, or with numbers that make no sense.
    #[error("{what}; make it again with `hushed calibrate DIR --input FILE --protocol fhe`")]
    Unusable {
        /// What is wrong, and where.
        what: String,
    },
}
