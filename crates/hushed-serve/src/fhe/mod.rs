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
mod machines;
mod network;
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
    Answer, CanaryOutcome, Chosen, ClientModel, EncryptOptions, Encrypted, EncryptedInputs, Head, Item, KeyOrder,
    KeygenOptions, Likely, MemoryKeys, NetworkAnswer, OnEvent, Remote, RemoteEvent, RemoteOptions, SaveState, Scored,
    StoredParts, Texts, Wanted, Warning, check_items, chosen_in_clear, decrypt, decrypt_outputs, encrypt,
    encrypt_inputs, keygen, network_client, perplexity, scored_in_clear, scored_in_clear_rounded,
    tokens_scored_in_clear,
};
pub use context::{ContextOptions, RunContext};
pub use error::FheJobError;
pub use ledger::StepTime;
pub use machines::{MachinesDriver, MachinesWorker, Values};
pub use network::{NetworkReport, network_choices, run_network};
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

use hushed_fhe::network::{AnyManifest, NetworkChoices, NetworkPlan};
use hushed_fhe::plan::public_plan::{MAX_PLAN_BYTES, Params};
use hushed_fhe::{FhePlan, PlanFileError};

use crate::error::ServeError;
use crate::files;
pub use crate::files::now;

/// Reads the run manifest of a model.
pub fn read_plan(path: &Path) -> Result<(FhePlan, Params), ServeError> {
    match read_manifest(path)? {
        (AnyManifest::Model(plan), params) => Ok((*plan, params)),
        (AnyManifest::Network(_), _) => Err(other_kind("a network; a model's is needed here")),
    }
}

/// Reads the run manifest of a network.
pub fn read_network_plan(path: &Path) -> Result<(NetworkPlan, Params), ServeError> {
    match read_manifest(path)? {
        (AnyManifest::Network(plan), params) => Ok((*plan, params)),
        (AnyManifest::Model(_), _) => Err(other_kind("a model; a network's is needed here")),
    }
}

/// Reads a run manifest, of a model or of a network.
pub fn read_manifest(path: &Path) -> Result<(AnyManifest, Params), ServeError> {
    let bytes = files::read(path, MAX_PLAN_BYTES as u64)?;
    Ok(AnyManifest::from_json(&bytes).map_err(FheJobError::from)?)
}

fn other_kind(given: &str) -> ServeError {
    FheJobError::Plan(PlanFileError::Unusable { what: "kind", given: given.to_owned() }).into()
}

/// Writes a run manifest, as a whole or not at all.
pub fn write_plan(path: &Path, plan: &FhePlan) -> Result<(), ServeError> {
    files::write(path, &plan.to_json().map_err(FheJobError::from)?)
}

/// Writes the run manifest of a network, as a whole or not at all.
pub fn write_network_plan(path: &Path, plan: &NetworkPlan) -> Result<(), ServeError> {
    files::write(path, &plan.to_json().map_err(FheJobError::from)?)
}

/// Writes the calibration of a network, as a whole or not at all.
pub fn write_calibration(path: &Path, choices: &NetworkChoices) -> Result<(), ServeError> {
    files::write(path, &choices.to_json().map_err(FheJobError::from)?)
}
