//! Runs under CKKS, through files or a connection: a client makes keys, encrypts texts and disconnects; a server that
//! has none of its secrets runs the model; the client decrypts the reply.
//!
//! ```text
//! owner    plan      model, calibration      → manifest (JSON), public model
//! client   keygen    manifest                → secret.key, evaluation.keys, key.json
//! client   encrypt   manifest, public, keys, texts → request
//! server   run       model, manifest, evaluation.keys, request → reply     a checkpoint after each layer
//! client   decrypt   manifest, public, keys, reply → embeddings
//! ```
//!
//! All of it works in memory as well, with the same bytes (`ClientModel`, `MemoryKeys`, [`RunContext::run_in_memory`]).
//!
//! Over a connection ([`FheServer`], `Remote`) the same files are sent to the server and fetched from it
//! ([`wire`]).
//!
//! [`hushed_fhe::files`] checks the contents of files. This module decides the rest: which files belong together, that
//! keys have not expired, that disk and memory suffice, what is kept and for how long.

#[cfg(feature = "arguments")]
mod arguments;
#[cfg(feature = "client")]
mod client;
mod context;
mod error;
mod ledger;
#[cfg(test)]
#[path = "../../tests/common/offered.rs"]
mod offered;
mod progress;
pub(crate) mod public;
mod record;
mod run;
mod server;
mod store;
mod system;
pub mod wire;

#[cfg(feature = "arguments")]
pub use arguments::{RunArguments, WorkArguments};
#[cfg(feature = "client")]
pub use client::{
    Answer, CanaryOutcome, Chosen, ClientModel, EncryptOptions, Encrypted, Head, Item, KeyOrder, KeygenOptions, Likely,
    MemoryKeys, OnEvent, Remote, RemoteEvent, RemoteOptions, SaveState, Scored, StoredParts, Texts, Wanted, Warning,
    check_items, chosen_in_clear, decrypt, encrypt, keygen, perplexity, scored_in_clear, scored_in_clear_rounded,
    tokens_scored_in_clear,
};
pub use context::{ContextOptions, RunContext};
pub use error::FheJobError;
pub use ledger::StepTime;
pub use progress::{JobEvent, Lines, duration, step_words};
pub use public::PublicModel;
pub use record::{KeyRecord, NotRight};
pub use run::{JobReport, RunBytes, RunFiles, RunOptions, default_calibration, default_secret, run};
#[cfg(feature = "arguments")]
pub use server::FheServeArguments;
pub use server::{Declared, FheServer, FheServerConfig, FheWorker, FheWorkerConfig};
pub use store::{KeyStore, StoredKeys};
pub use system::{free_memory, memory, peak_memory};

use std::path::Path;

use hushed_fhe::FhePlan;
use hushed_fhe::plan::public_plan::MAX_PLAN_BYTES;

use crate::error::ServeError;
use crate::files;
pub use crate::files::now;

/// Reads a run manifest.
pub fn read_plan(path: &Path) -> Result<(FhePlan, hushed_fhe::plan::public_plan::Params), ServeError> {
    let bytes = files::read(path, MAX_PLAN_BYTES as u64)?;
    Ok(FhePlan::from_json(&bytes).map_err(FheJobError::from)?)
}

/// Writes a run manifest, as a whole or not at all.
pub fn write_plan(path: &Path, plan: &FhePlan) -> Result<(), ServeError> {
    files::write(path, &plan.to_json().map_err(FheJobError::from)?)
}
