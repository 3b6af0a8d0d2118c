//! The `twopc` backend: activations are additive shares, every step of the model is a protocol between client and
//! server.
//!
//! Both parties run the same circuit ([`run`]) in the same order, so the order of messages is the order of the model.
//! The client's layers are shapes; the server's hold the numbers. Everything that is said of a run is an interpretation
//! of that circuit ([`Shares`]). Formats are in [`formats`].

#![forbid(unsafe_code)]

mod bias;
mod choose;
mod circuit;
mod establish;
pub mod formats;
pub mod index;
mod lookup;
pub mod plan;
mod sample;
mod shares;
#[cfg(test)]
pub(crate) mod testing;
pub mod verify;
mod weights;

pub use bias::{MAX_BIAS, Penalties, PenaltyError};
pub use choose::fits::{Bound, Fit, fits};
pub use choose::norms::choose_norms;
pub use choose::sampled::{Sampled, sampled};
pub use choose::{LEAST_COSINE, MARGIN, Trial, choose};
pub use circuit::answer::{Answers, MAX_TOP, embeddings, labels, logits};
pub use circuit::cache::{Cache, TextCache};
pub use circuit::function::Function;
pub use circuit::input::{Input, Terms, pads_in_front};
pub use circuit::prefix::{MAX_PREFIX, Prefix};
pub use circuit::product::Product;
pub use circuit::search::{Hit, Wanted, search};
pub use circuit::token::{Adds, next_token, next_tokens, tokens_of_rows};
pub use circuit::{Acts, open, run, run_next, supported};
pub use establish::agreement;
pub use index::Index;
pub use lookup::Table;
pub use plan::{Before, memory::Memory};
pub use sample::{Draw, MAX_TEMPERATURE, Sampler};
pub use shares::{Clear, Counting, Entry, Known, Local, Protocol, Shares, StepCost};
pub use weights::held::{Layers, Ready};
pub use weights::prepare::out_of_range;
pub use weights::ranges::OutOfRange;
pub use weights::table::{PublicTable, rows_in_chunk};

use hushed_model::ModelError;
use hushed_net::NetError;
use hushed_twopc::TwopcError;

/// Errors of a private run.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RunError {
    /// The model does not suit its use.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A protocol stopped: the peer is gone, misbehaves or does not fit.
    #[error(transparent)]
    Protocol(#[from] TwopcError),
    /// The two-party backend has no protocol for a step of this model.
    #[error("{site}: the two-party backend does not support {what}")]
    Unsupported {
        /// The step.
        site: String,
        /// What it asks for.
        what: &'static str,
    },
    /// Numbers of the model that the formats do not hold.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// A public table of another size than the model's, or with values that no table has.
    #[error("the public table does not fit the model")]
    WrongTable,
    /// The other party has opened a place that no class or token has.
    #[error(
        "the peer opened place {place} of {places}: it misbehaves, or one of the two is defective"
    )]
    NoSuchPlace {
        /// What was opened.
        place: u64,
        /// How many there are.
        places: usize,
    },
    /// The input is not the one that this party gives: the client gives ids or images, the server numbers of rows; or
    /// it has padding that was not agreed on, or is for another kind of model.
    #[error(
        "the client gives token ids or images, as the model reads them, and the server their numbers, padded only where that was agreed on; this party was given another input"
    )]
    WrongInput,
    /// A pass that takes products made ahead, of which none are left.
    #[error("no products were made ahead for this pass")]
    NothingAhead,
    /// This party was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl RunError {
    /// The connection's failure, where it is one.
    pub fn net(&self) -> Option<&NetError> {
        match self {
            Self::Protocol(TwopcError::Net(error)) => Some(error),
            _ => None,
        }
    }
}
