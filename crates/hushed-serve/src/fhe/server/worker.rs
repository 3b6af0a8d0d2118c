//! A process that runs the jobs of a store, beside the store's server and other such processes.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use super::jobs::{Jobs, Runs};
use super::storage::Storage;
use crate::error::ServeError;
use crate::fhe::context::{ContextOptions, RunContext};
use crate::fhe::read_plan;

/// How often it looks whether it is to end.
const POLL: Duration = Duration::from_millis(50);

/// The settings of a worker.
#[derive(Clone, Debug)]
pub struct FheWorkerConfig {
    /// What it runs: the manifest, model, calibration and reply secret of the store's server.
    pub context: ContextOptions,
    /// The store of a server, on a file system that keeps locks.
    pub store: PathBuf,
    /// Whether it ends when no job waits.
    pub until_empty: bool,
}

/// A worker. It listens to nobody: jobs come from the store, and replies go there.
pub struct FheWorker {
    jobs: Jobs,
}

impl FheWorker {
    /// Checks that manifest, model, calibration, reply secret and store match.
    ///
    /// # Errors
    /// [`ServeError`]: files that do not match, a store that is none, a file system without locks.
    pub fn open(config: &FheWorkerConfig) -> Result<FheWorker, ServeError> {
        let (plan, params) = read_plan(&config.context.plan)?;
        let storage = Storage::join(&config.store, plan.clone(), params.clone())?;
        let context = RunContext::of(plan, params, &config.context)?;
        let runs = Runs { scans: true, until_empty: config.until_empty };
        Ok(FheWorker { jobs: Jobs::open(storage, context, Arc::default(), runs)? })
    }

    /// Jobs that it sees waiting.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.jobs.under_way()
    }

    /// Runs jobs until `stop` is raised, and then the current one to the end of its layer; or until none waits, if the
    /// settings say so. A job that was broken off goes on after its last whole layer, here or elsewhere.
    ///
    /// # Errors
    /// [`ServeError::Thread`].
    pub fn run(&self, stop: &AtomicBool) -> Result<(), ServeError> {
        thread::scope(|scope| {
            let working = thread::Builder::new().name("hushed-runs".to_owned());
            let working = working.spawn_scoped(scope, || self.jobs.work()).map_err(ServeError::Thread)?;
            let mut stopping = false;
            while !working.is_finished() {
                if !stopping && stop.load(Ordering::SeqCst) {
                    stopping = true;
                    self.jobs.stop();
                    // Whatever ends this process before the layer ends, it is not the job's fault.
                    self.jobs.forgive();
                }
                thread::sleep(POLL);
            }
            // A panic of a run was caught and logged.
            Ok(())
        })
    }
}
