//! Non-interactive model inference under CKKS (MOAI): the client encrypts a batch of texts and disconnects, and the
//! server computes alone.
//!
//! Every step is written once, over [`Slots`], the operations on vectors of slots. It is implemented by ciphertexts,
//! and by numbers in the clear with levels, scales and errors, which predict the accuracy and the operations of a run.
//!
//! Levels of a layer, from one refresh to the next (`m` rows, `d` columns, one per vector; a chain of 14 levels):
//!
//! ```text
//! attention                    level after      feed-forward                    level after
//! refreshed columns x̂              14           refreshed columns x̂                 8
//! query, key (maps of exp folded)  13           up (maps of GELU folded)            7
//! Q·Kᵀ, m diagonals a head         12           GELU, degree 15 or 31           3 or 2
//! p ≈ e^{s/2}, degree 15            8           down, centred and scaled        2 or 1
//! p/Σp: the sum is refreshed,     ≤ 6           variance refreshed, its inverse
//!   its inverse comes in lower                    root taken, × columns         1 or 0
//! square                          ≤ 5
//! P·V                             ≤ 4
//! × 1/Σp² (refreshed as well)     ≤ 3
//! output, centred and scaled      ≤ 2
//! × inverse root of the variance  ≤ 1
//! ```
//!
//! A number outside its interval belongs to one text, in one slot, and harms no other text unless it wraps around the
//! modulus; a refresh bounds it again. How far out of range a number may be at each step is measured in
//! `run/encrypted/contained.rs` and stated in docs/fhe-circuit.md.
//!
//! A layer refreshes all its columns twice, two columns per bootstrap; sums and variances are refreshed separately.
//! Keys and values have no biases: a key bias does not change the softmax, and the value bias is folded into the output
//! bias, as weights sum to 1. The gain and offset of a norm are folded into the next linear layers.
#![forbid(unsafe_code)]

pub mod calibrate;
mod choices;
mod clear;
mod dry;
mod error;
pub mod files;
#[cfg(any(test, feature = "insecure-test-parameters"))]
pub mod fuzz;
mod hex;
mod inputs;
mod ledger;
mod machines;
pub mod network;
pub mod ops;
pub mod packing;
mod pass;
pub mod plan;
mod resolution;
pub mod run;
pub mod simulate;
mod slots;
mod tape;
#[cfg(test)]
mod testing;
#[cfg(any(feature = "client", test))]
pub mod verify;

pub use choices::fits;
pub use choices::{
    ActivationChoice, AttentionChoice, Candidate, Choices, ChoicesError, ClassifierChoice, Column, DecoderChoice,
    DecoderLayerChoice, HeadChoice, Interval, LayerChoice, MAX_BYTES, MAX_ROWS, NormChoice, Report, ScoresChoice,
    SigmoidChoice, VERSION,
};
pub use clear::{all_rows, answer_in_clear, last_row};
pub use error::FheError;
pub use hushed_lower::{LinearMap, bound_of};
pub use machines::{Division, OnMachines, PlannedRange, on_machines};
pub use ops::acts::{Acts, centred};
pub use ops::folded::Folded;
pub use ops::functions::Function;
pub use ops::key_mask::KeyMask;
pub use ops::mask::{RowsKnown, token_rows};
pub use ops::softmax::Softmax;
pub use pass::{Look, Pass, Texts, Viewer, can_run, head_is_public};
pub use plan::keys::KeyDemand;
pub use plan::placement::Placement;
pub use plan::public_plan::{AnswerRows, FhePlan, PlanFileError};
pub use run::clock::{Clock, Progress};
pub use run::encrypted::{Encrypted, EncryptedPartial};
pub use run::prepared::Prepared;
pub use simulate::{Simulator, Tally};
pub use slots::{OwnedMask, Slots};
pub use tape::causal::norm::rms_norm;
pub use tape::packed::products::{run_attend, run_scores};
