//! What is compared, and what is told of it.

use std::path::PathBuf;

use serde::Serialize;

use crate::plan::public_plan::Lengths;
use crate::run::clock::Progress;

/// The layers to compare, and how.
#[derive(Clone, Debug)]
pub struct Options {
    /// Rows per text, padding included: a power of two.
    pub rows: usize,
    /// Number of first layers of the model to compare, pooled after the last of them; by default all.
    pub layers: Option<usize>,
    /// Whether the server knows which rows are padding.
    pub lengths: Lengths,
    /// Seed of simulated errors.
    pub seed: u64,
    /// If present, compares requests of this many texts in packed rows, placed as by a plan for this many: each text is
    /// run alone, without [`Options::encrypted`], and only answers are compared.
    pub together: Option<usize>,
    /// If present, also runs encrypted.
    pub encrypted: Option<OnKey>,
}

/// Settings of the encrypted rung.
#[derive(Clone, Debug, Default)]
pub struct OnKey {
    /// Bytes of memory for everything; vectors beyond that are spilled. By default unlimited.
    pub max_memory: Option<u64>,
    /// The folder for spilled vectors; by default the system's temporary folder.
    pub spill: Option<PathBuf>,
}

/// Progress of a comparison.
#[derive(Clone, Debug)]
pub enum Event {
    /// A layer begins on a rung.
    Layer {
        /// Its number, counted from 0.
        layer: usize,
        /// The rung.
        rung: Which,
    },
    /// A text in packed rows begins on a rung.
    Text {
        /// Its index in the input.
        text: usize,
        /// The rung.
        rung: Which,
    },
    /// Progress of the encrypted run: every second, and at the end of each layer.
    Step(Progress),
}

/// A rung of the comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Which {
    /// Only approximations.
    Polynomial,
    /// With simulated errors.
    Predicted,
    /// On a key.
    Encrypted,
}

/// A value that was too large for a step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OutOfRange {
    /// Index of the text in the input; `None` if no text alone is the cause.
    pub text: Option<usize>,
    /// The layer in which it happened, `None` in packed rows, which are not run layer by layer. The text is left out of
    /// the errors of this layer and of later ones.
    pub layer: Option<usize>,
    /// The rung.
    pub rung: Which,
    /// The step, the value and its bound.
    pub message: String,
}
