//! The server's part of a network's run: a request in, a sealed reply out.

use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hushed_fhe::files::atomic::{Access, AtomicFile};
use hushed_fhe::files::chunked::open_file;
use hushed_fhe::files::exchange;
use hushed_fhe::files::keys::KeyFile;
use hushed_fhe::network::{Circuit, NetworkChoices, NetworkEngine, NetworkPlan, network_sha256};
use hushed_fhe::plan::public_plan::{Manifest as _, hex};
use hushed_fhe::{FheError, MAX_BYTES};
use hushed_model::{Graph, ModelError};
use sha2::{Digest as _, Sha256};

use super::run::read_secret;
use super::{FheJobError, JobEvent, RunOptions, read_network_plan, system};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;

/// What a run of a network did.
#[derive(Clone, Debug)]
pub struct NetworkReport {
    /// Id of the request, in hexadecimal.
    pub request: String,
    /// Seconds of the circuit, for all inputs.
    pub seconds: f64,
    /// Seconds in all: with making the circuit, reading files and sealing.
    pub all_seconds: f64,
    /// Bytes of the reply.
    pub bytes: u64,
    /// The whole reply was already there, and nothing was computed.
    pub done_before: bool,
}

/// The calibration of a network: the file's content must have the stated hash, if there is one, and be of the folder's
/// files.
///
/// # Errors
/// [`FheJobError::OtherModel`], [`FheJobError::Run`], [`ServeError::File`].
pub fn network_choices(folder: &Path, calibration: &Path, stated: Option<&str>) -> Result<NetworkChoices, ServeError> {
    let bytes = files::read(calibration, MAX_BYTES as u64)?;
    let other = |what, planned: &str, found: String| {
        let planned = planned.to_owned();
        Err(FheJobError::OtherModel { what, planned, found }.into())
    };
    let found = Digest(Sha256::digest(&bytes).into()).to_string();
    if let Some(stated) = stated.filter(|stated| *stated != found) {
        return other("calibration", stated, found);
    }
    let choices = NetworkChoices::from_json(&bytes).map_err(FheJobError::from)?;
    let read = |source| ServeError::File { operation: "read", path: folder.to_owned(), source };
    let found = network_sha256(folder).map_err(read)?;
    match found == choices.network_sha256 {
        true => Ok(choices),
        false => other("network", &choices.network_sha256, found),
    }
}

/// The circuit that a manifest was made for.
fn circuit_of(plan: &NetworkPlan, folder: &Path, calibration: &Path) -> Result<Circuit, ServeError> {
    let choices = network_choices(folder, calibration, Some(&plan.calibration_sha256))?;
    let graph = Graph::load(folder).map_err(ModelError::from)?;
    let circuit = Circuit::new(&graph, &choices, plan.inputs, &plan.parameters).map_err(FheJobError::from)?;
    // Another machine's simulated errors may differ in the last digits, which no part of a run depends on.
    let ours = NetworkPlan { error: plan.error, exposures: plan.exposures.clone(), ..circuit.plan().clone() };
    if ours != *plan {
        let (planned, found) = (Digest(plan.hash()).to_string(), Digest(ours.hash()).to_string());
        return Err(FheJobError::OtherModel { what: "circuit", planned, found }.into());
    }
    Ok(circuit)
}

/// Runs a request of a network's inputs and writes the reply. `watch` sees keys being read.
///
/// # Errors
/// [`ServeError::Fhe`], [`ServeError::File`]: see [`FheJobError`]. Whatever was there before stays.
pub fn run_network(options: &RunOptions, watch: &(dyn Fn(JobEvent) + Sync)) -> Result<NetworkReport, ServeError> {
    let (context, files, began) = (&options.context, &options.files, Instant::now());
    let (plan, params) = read_network_plan(&context.plan)?;
    if files.checkpoint.is_some() || files.spill.is_some() {
        return Err(FheJobError::from(FheError::Unsupported {
            what: "a network with checkpoints or vectors on disk".to_owned(),
            remedy: "leave out --checkpoint and --spill: a run has one step and fits into memory",
        })
        .into());
    }
    drop(files.check(&plan, &params)?);
    let circuit = Arc::new(circuit_of(&plan, &context.model, &context.calibration)?);
    let params = circuit.params();
    let reply_bytes = exchange::reply_bytes(&plan, params);
    system::check_room(files.folder(), reply_bytes)?;
    let secret = read_secret(&context.secret)?;
    let threads = context.threads.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|_| FheJobError::Threads { threads })?;
    pool.install(|| {
        let keys = KeyFile::open(&files.keys, params.rlwe(), &plan.key_specs(params).map_err(FheJobError::from)?);
        let (keys, mut told) = (keys.map_err(FheJobError::from)?, |done, of| watch(JobEvent::Keys { done, of }));
        let id = keys.id();
        let engine = NetworkEngine::load(Arc::clone(&circuit), keys, &mut told).map_err(FheJobError::from)?;
        let source = open_file(&files.request).map_err(FheJobError::from)?;
        let request = engine.request(source, &files.request).map_err(FheJobError::from)?;
        let report = |seconds, done_before| NetworkReport {
            request: hex(&request.head.id),
            seconds,
            all_seconds: began.elapsed().as_secs_f64(),
            bytes: reply_bytes,
            done_before,
        };
        if files.answered(&plan, params, &id, (&request.head.id, &request.name))? {
            return Ok(report(0.0, true));
        }
        let start = Instant::now();
        let answer = engine.run(&request).map_err(FheJobError::from)?;
        let seconds = start.elapsed().as_secs_f64();
        let out = AtomicFile::create(&files.out, Access::Usual).map_err(FheJobError::from)?;
        engine.reply(out, &files.out, &request, &answer, &secret).map_err(FheJobError::from)?;
        Ok(report(seconds, false))
    })
}
