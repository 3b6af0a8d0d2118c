//! Runs a model between two parties: activations are additive shares, and every step is a protocol between client and
//! server.
//!
//! Both parties run the same circuit ([`run`]) in the same order, so messages follow the order of the model. The
//! client's layers are shapes only; the server's hold the numbers. Running, counting and clear evaluation are all
//! interpretations of this one circuit ([`Shares`]). For the number formats see [`formats`].

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
pub use choose::fits::{Bound, Fit, Quantity, fits};
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
    /// The model does not suit this use.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A protocol stopped: the peer disconnected, misbehaved or does not match.
    #[error(transparent)]
    Protocol(#[from] TwopcError),
    /// There is no two-party protocol for a step of this model.
    #[error("{site}: there is no two-party protocol for {what}")]
    Unsupported {
        /// The step.
        site: String,
        /// What it asks for.
        what: &'static str,
    },
    /// The model has numbers that the formats cannot hold.
    #[error(transparent)]
    OutOfRange(#[from] OutOfRange),
    /// The public table's size differs from the model's, or it has values that no table can have.
    #[error("the public table does not fit the model")]
    WrongTable,
    /// The other party opened an index beyond the classes or tokens.
    #[error(
        "the peer opened place {place} of {places}: it misbehaves, or one of the two is defective"
    )]
    NoSuchPlace {
        /// The opened index.
        place: u64,
        /// The number of valid indices.
        places: usize,
    },
    /// The wrong input for this party (the client gives ids or images, the server the number of rows), padding that was
    /// not agreed on, or input for another kind of model.
    #[error(
        "the client gives token ids or images, as the model reads them, and the server their numbers, padded only where that was agreed on; this party was given another input"
    )]
    WrongInput,
    /// The pass takes products made ahead, and none are left.
    #[error("no products were made ahead for this pass")]
    NothingAhead,
    /// This party was asked to stop.
    #[error("stopped")]
    Stopped,
}

impl RunError {
    /// The underlying connection failure, if there is one.
    pub fn net(&self) -> Option<&NetError> {
        match self {
            Self::Protocol(TwopcError::Net(error)) => Some(error),
            _ => None,
        }
    }
}
