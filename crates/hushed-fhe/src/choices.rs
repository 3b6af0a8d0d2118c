//! The choices made for a model before it runs under CKKS: intervals, degrees and constants of every approximation,
//! fixed heads and frozen rows. `hushed calibrate --protocol fhe` finds them from sample texts. They are a secret of
//! the server, as they depend on the weights.

pub mod decoder;
pub mod fits;
mod layer;
pub(crate) mod read;
pub(crate) mod shapes;

use hushed_ckks::poly::PolyError;
use hushed_model::{StepId, json_words};
use serde::{Deserialize, Serialize};

pub use decoder::{DecoderChoice, DecoderLayerChoice, ScoresChoice, SigmoidChoice};
pub use layer::{
    ActivationChoice, AttentionChoice, ClassifierChoice, Column, HeadChoice, Interval, LayerChoice, NormChoice,
};

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
    /// Number of texts measured.
    pub texts: usize,
    /// Rows per text, padding included, at which intervals were measured.
    pub rows: usize,
    /// The layers of an encoder.
    pub layers: Vec<LayerChoice>,
    /// The head, if the model is a classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<ClassifierChoice>,
    /// The layers, if the model is a decoder; then `layers` is empty.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub decoder: Option<DecoderChoice>,
    /// The norm after the layers of an encoder, if they begin with norms of their own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub norm: Option<NormChoice>,
    /// How the choices were found.
    #[serde(default)]
    pub report: Report,
}

impl Choices {
    /// The same for a decoder that is recorded, as choices of layers that begin with norms.
    ///
    /// # Errors
    /// [`ChoicesError::Unusable`] for choices of an encoder, or of a sigmoid.
    pub(crate) fn of_layers(&self) -> Result<Choices, ChoicesError> {
        let unusable = |what: &str| ChoicesError::Unusable { what: what.to_owned() };
        let decoder = self.decoder.as_ref().ok_or_else(|| unusable("the calibration is of an encoder"))?;
        let layers = decoder.layers.iter().map(DecoderLayerChoice::of_softmax).collect::<Option<_>>();
        let layers = layers.ok_or_else(|| unusable("the calibration is for another function of scores"))?;
        Ok(Choices { norm: Some(decoder.norm.clone()), ..Choices::unnamed(self.rows, layers, None) })
    }

    /// Choices that no calibration of a file has made.
    pub(crate) fn unnamed(rows: usize, layers: Vec<LayerChoice>, classifier: Option<ClassifierChoice>) -> Choices {
        Choices {
            version: VERSION,
            sample_sha256: String::new(),
            model_sha256: String::new(),
            texts: 0,
            rows,
            layers,
            classifier,
            decoder: None,
            norm: None,
            report: Report::default(),
        }
    }
}

/// What the search tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Required minimum over texts of the cosine to the exact embedding.
    pub wanted: f64,
    /// Number of held-out texts on which candidates were compared.
    pub held_out: usize,
    /// Candidates, in the order of the search.
    pub candidates: Vec<Candidate>,
}

/// One set of degrees and steps, and its accuracy on held-out texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Description of its degrees.
    pub name: String,
    /// Maximum levels of the attention half of a layer.
    pub attention_levels: usize,
    /// Maximum levels of the feed-forward half.
    pub feed_forward_levels: usize,
    /// Minimum cosine to the exact embedding without ciphertext errors; 0 if an answer is not finite.
    pub cosine_min: f64,
    /// Mean cosine.
    pub cosine_mean: f64,
    /// Minimum cosine with errors of rescales and refreshes, if simulated.
    pub cosine_min_with_errors: Option<f64>,
    /// The share of texts whose nearest neighbour stays the same, with errors and with answers rounded as clients round
    /// them, if simulated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub neighbours: Option<f64>,
    /// Whether it was chosen: the cheapest that reaches the required cosine, with errors too, and keeps neighbours.
    pub chosen: bool,
}

/// Why choices cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoicesError {
    /// Not the JSON that `hushed calibrate --protocol fhe` writes.
    #[error("not a calibration for fhe ({}); make one with `hushed calibrate DIR --input FILE --protocol fhe`", json_words(.0))]
    NotJson(#[from] serde_json::Error),
    /// Another version, another model, or invalid numbers.
    #[error("{what}; make it again with `hushed calibrate DIR --input FILE --protocol fhe`")]
    Unusable {
        /// The problem, and where it is.
        what: String,
    },
    /// A function without a fit on its interval.
    #[error(
        "{step}: no polynomial fits the interval that was calibrated ({source}); make the calibration again with `hushed calibrate DIR --input FILE --protocol fhe`"
    )]
    Unfit {
        /// The step.
        step: StepId,
        /// Why there is no fit.
        source: Box<PolyError>,
    },
}

/// Maximum bytes of a file. The shipped choices of MiniLM are below 300 KiB; those of BERT-large below 2 MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Maximum rows per text: the most slots of any ring.
pub const MAX_ROWS: usize = 1 << 15;

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
