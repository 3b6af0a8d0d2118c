//! A server for encrypted runs: clients send keys and requests, one worker runs them, clients fetch the replies.

#[cfg(feature = "arguments")]
mod arguments;
mod jobs;
mod session;
mod sharing;
mod storage;
mod worker;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use hushed_fhe::FhePlan;
use hushed_fhe::plan::public_plan::MAX_PLAN_BYTES;

use super::FheJobError;
use super::context::{ContextOptions, RunContext};
use super::public::PublicModel;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::session::config::Entrance;
use crate::session::listener::Listener;
#[cfg(feature = "arguments")]
pub use arguments::FheServeArguments;
use jobs::{Jobs, Runs};
use session::Shared;
use storage::{Limits, Storage};
pub use worker::{FheWorker, FheWorkerConfig};

/// How often a stopping server checks whether its run has finished a layer.
const POLL: Duration = Duration::from_millis(20);

/// The configuration of a server.
#[derive(Clone, Debug)]
pub struct FheServerConfig {
    /// Address, identity, accepted clients.
    pub entrance: Entrance,
    /// What it runs, read once when it starts. Every client gets the manifest.
    pub context: ContextOptions,
    /// The public model of the manifest, which every client gets: token vectors, positions and the first norm in plain
    /// numbers.
    pub public: PathBuf,
    /// The folder for keys, requests, jobs and replies.
    pub store: PathBuf,
    /// Bytes that a client's files may take there.
    pub owner_quota: u64,
    /// How long it keeps a reply, or a request that is not run.
    pub keep: Duration,
}

/// A server that listens.
pub struct FheServer {
    shared: Shared,
    jobs: Arc<Jobs>,
    declared: Declared,
}

/// What the manifest reveals to whom, for its operator.
#[derive(Clone, Debug)]
pub struct Declared {
    /// Bytes of the public model.
    pub public_bytes: u64,
    /// The manifest's statement of who sees what.
    pub exposures: Vec<String>,
}

impl Declared {
    /// As lines of text.
    #[must_use]
    pub fn lines(&self) -> Vec<String> {
        let mut lines = vec![format!("every client gets the public model of {} bytes", self.public_bytes)];
        lines.extend(self.exposures.iter().cloned());
        lines
    }
}

impl FheServer {
    /// Checks that manifest, model, calibration and public model match, opens the store and listens. Connections wait
    /// until [`FheServer::run`].
    ///
    /// # Errors
    /// [`ServeError`]: files that do not match, a store in use, the certificate, the token file, a port in use.
    pub fn bind(config: &FheServerConfig) -> Result<FheServer, ServeError> {
        // The cheap refusals first.
        let listener = Listener::open(&config.entrance)?;
        let bytes = files::read(&config.context.plan, MAX_PLAN_BYTES as u64)?;
        let (plan, params) = FhePlan::from_json(&bytes).map_err(FheJobError::from)?;
        let public = PublicModel::read(&config.public, &plan.public_sha256)?;
        let plan_hash = Digest(plan.hash());
        let context = RunContext::of(plan, params, &config.context)?;
        let (plan, params) = (&context.plan, &context.params);
        let places = plan.declared_lengths(params).map_err(FheJobError::from)?;
        if let Some(rate) = listener.texts_per_client()
            && places as u64 > rate.amount()
        {
            let limit = rate.amount();
            return Err(ServeError::LessThanABatch { places, limit });
        }
        let declared = Declared { public_bytes: public.bytes().len() as u64, exposures: plan.exposures.clone() };
        let limits = Limits { quota: config.owner_quota, keep: config.keep };
        let storage = Storage::open(&config.store, plan.clone(), params.clone(), limits)?;
        let jobs = Jobs::open(storage, context, Arc::clone(&listener.metrics), Runs::default())?;
        Ok(FheServer {
            jobs: Arc::new(jobs),
            shared: Shared { listener, plan: bytes, plan_hash, public, places },
            declared,
        })
    }

    /// The listener, with its address and certificate.
    #[must_use]
    pub fn listener(&self) -> &Listener {
        &self.shared.listener
    }

    /// Hash of the manifest, which clients compare with the one that the operator published.
    #[must_use]
    pub fn plan_hash(&self) -> Digest {
        self.shared.plan_hash
    }

    /// What the manifest reveals.
    #[must_use]
    pub fn declared(&self) -> &Declared {
        &self.declared
    }

    /// Serves until `stop` is raised. Then sessions finish and the current run finishes its layer, both within
    /// [`crate::Deadlines::drain`]; a run that does not continues from its last checkpoint at the next start, as after
    /// a crash.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if a thread cannot be started.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), ServeError> {
        let (shared, jobs) = (&self.shared, &self.jobs);
        let started = self.start("hushed-runs", |jobs| jobs.work())?;
        let tidying = match self.start("hushed-tidy", |jobs| jobs.tidy()) {
            Ok(thread) => thread,
            Err(error) => {
                jobs.stop();
                return Err(error);
            }
        };
        tracing::info!(
            address = %self.listener().local_addr(),
            certificate = %self.listener().fingerprint(),
            plan = %self.plan_hash(),
            max_sessions = shared.listener.max_sessions,
            jobs = jobs.under_way(),
            "serving runs under encryption"
        );
        let done = shared
            .listener
            .run(stop, &|entry, socket, peer, outcome| session::serve(shared, jobs, entry, socket, peer, outcome));
        jobs.stop();
        let give_up = Instant::now() + shared.listener.deadlines.drain;
        while !started.is_finished() && Instant::now() < give_up {
            thread::sleep(POLL);
        }
        match started.is_finished() {
            // A panic in it was caught and logged.
            true => drop(started.join()),
            false => {
                jobs.forgive();
                tracing::warn!(
                    "the run under way is broken off: it goes on after its last whole layer at the next start"
                );
            }
        }
        drop(tidying.join());
        done
    }

    /// Starts a detached thread: if it still runs when the server has ended, it dies with the process.
    fn start(&self, name: &str, work: impl FnOnce(&Jobs) + Send + 'static) -> Result<JoinHandle<()>, ServeError> {
        let jobs = Arc::clone(&self.jobs);
        let thread = thread::Builder::new().name(name.to_owned());
        thread.spawn(move || work(&jobs)).map_err(ServeError::Thread)
    }
}
