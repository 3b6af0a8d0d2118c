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
mod error;
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
pub use choose::vocabulary::{CHECKED_LAYERS, vocabulary};
pub use choose::{LEAST_COSINE, MARGIN, Trial, choose};
pub use circuit::answer::{ANSWER_BITS, Answers, MAX_TOP, THRESHOLDS, embeddings, labels, logits, opened_bits};
pub use circuit::cache::{Cache, TextCache};
pub use circuit::function::Function;
pub use circuit::input::{Input, SessionTerms, Terms};
pub use circuit::prefix::{MAX_PREFIX, Prefix};
pub use circuit::product::Product;
pub use circuit::search::{Hit, Wanted, search, search_opened_bits};
pub use circuit::token::{Adds, next_token, next_tokens, tokens_of_rows};
pub use circuit::{Acts, open, run, run_next, supported};
pub use error::{Leaves, OutOfRange, RunError};
pub use establish::agreement;
pub use hushed_twopc::Link;
pub use hushed_twopc::link::{NoLink, parse_bandwidth, parse_round_trip};
pub use index::Index;
pub use lookup::Table;
pub use plan::{Before, memory::Memory};
pub use sample::{Draw, MAX_TEMPERATURE, Sampler};
pub use shares::{Clear, Counting, Entry, Known, Later, Local, Protocol, Shares, StepCost};
pub use weights::held::{Layers, Ready};
pub use weights::prepare::out_of_range;
pub use weights::table::{PublicTable, rows_in_chunk};
