//! One run on several machines: the driver, which cuts the run and seals the reply, and a machine's part. The caller
//! moves values between them. Whatever it does with them, the reply is that of [`RunContext::run`], byte for byte, or
//! there is none.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use hushed_fhe::files::atomic::{Access, AtomicFile};
use hushed_fhe::files::checkpoint::Run;
use hushed_fhe::files::chunked::Hash;
use hushed_fhe::files::exchange::RequestHead;
use hushed_fhe::plan::public_plan::hex;
use hushed_fhe::run::job::{Batch, Engine, PublicKey};
use hushed_fhe::run::reply::{Sealing, covers};
use hushed_fhe::run::worker::{WorkList, Worker};
use hushed_fhe::{Division, FheError};
use rayon::ThreadPool;

use super::context::{Predicted, RunContext};
use super::run::{JobReport, RunFiles, RunOptions, read_secret, thread_pool};
use super::{FheJobError, read_plan};
use crate::error::ServeError;

/// Values by their names.
pub type Values<'a> = BTreeMap<usize, &'a [u8]>;

/// The driver of a run on several machines: it needs the secret of replies, and of the keys only the public one.
pub struct MachinesDriver {
    context: RunContext,
    files: RunFiles,
    began: Instant,
    keys: Hash,
    public: Arc<PublicKey>,
    head: RequestHead,
    name: Hash,
}

impl MachinesDriver {
    /// Makes the checks of a run, and reads the keys to check them.
    ///
    /// # Errors
    /// Those of [`super::run`] before any work.
    pub fn open(options: &RunOptions) -> Result<MachinesDriver, ServeError> {
        let began = Instant::now();
        let (plan, params) = read_plan(&options.context.plan)?;
        let keys = options.files.check(&plan, &params)?;
        let context = RunContext::of(plan, params, &options.context)?;
        let id = keys.id();
        let public = keys.check(&mut |_, _| {}).map_err(FheJobError::from)?;
        let batch = Batch::read(&options.files.request, &context.plan, &context.params, &id);
        let batch = batch.map_err(FheJobError::from)?;
        let (head, name) = (batch.head().clone(), batch.name());
        let files = options.files.clone();
        Ok(MachinesDriver { context, files, began, keys: id, public: Arc::new(public), head, name })
    }

    /// The id of the request, in hexadecimal.
    #[must_use]
    pub fn request(&self) -> String {
        hex(&self.head.id)
    }

    /// Whether the reply is there already.
    ///
    /// # Errors
    /// [`FheJobError::OtherReply`] if another file is there.
    pub fn answered(&self) -> Result<bool, ServeError> {
        let RunContext { plan, params, .. } = &self.context;
        self.files.answered(plan, params, &self.keys, (&self.head.id, &self.name))
    }

    /// The name of program, plan, keys and request, in hexadecimal: every machine has to have the same.
    #[must_use]
    pub fn run(&self) -> String {
        hex(&self.names().name())
    }

    fn names(&self) -> Run {
        Run { plan: self.context.plan.hash(), keys: self.keys, request: self.name }
    }

    /// Cuts the run for so many machines, with `rate` bytes per second between any two of them.
    ///
    /// # Errors
    /// Those of a plan.
    pub fn divide(&self, machines: usize, rate: f64) -> Result<Division, ServeError> {
        let report = &self.context.predicted()?.report;
        self.context.divide(report, (machines, rate))
    }

    /// Seals the reply from the values of which [`WorkList`] says that they are of it, and writes it.
    ///
    /// # Errors
    /// [`FheJobError::Fhe`] for values of another run, and for a reply that errs more than declared; those of files.
    pub fn seal(&self, list: &WorkList, values: &Values<'_>) -> Result<JobReport, ServeError> {
        let RunContext { plan, params, .. } = &self.context;
        let secret = read_secret(&self.context.secret)?;
        let model = self.context.prepared().map_err(FheJobError::from)?;
        let write = || -> Result<(), FheError> {
            covers(&plan.reply, model.error())?;
            let answer = list.answer(params, &self.names(), values)?;
            let out = AtomicFile::create(&self.files.out, Access::Usual)?;
            let work = Sealing { plan, params, public: &self.public, keys: &self.keys };
            let request = (&self.head, &self.name);
            work.write(out, &self.files.out, request, &answer, model.error(), &secret).map(drop)
        };
        write().map_err(FheJobError::from)?;
        self.context.report(&self.head.id, self.began, Default::default())
    }
}

/// A machine's part of a run: keys, model and request, read once.
pub struct MachinesWorker {
    worker: Worker,
    pool: ThreadPool,
}

impl MachinesWorker {
    /// Reads everything that a machine needs for its part; neither the reply's file nor the secret of replies is.
    ///
    /// # Errors
    /// Those of [`super::run`] before any work, and of a division of another run.
    pub fn open(options: &RunOptions, division: &Division) -> Result<MachinesWorker, ServeError> {
        let (plan, params) = read_plan(&options.context.plan)?;
        let keys = options.files.keys(&plan, &params)?;
        let context = RunContext::of(plan, params, &options.context)?;
        let RunContext { plan, params, choices, .. } = &context;
        let Predicted { bootstrapper, .. } = context.predicted()?;
        let pool = thread_pool(context.threads)?;
        let worker = pool.install(|| -> Result<Worker, FheError> {
            let batch = Batch::read(&options.files.request, plan, params, &keys.id())?;
            let bootstrapper = Arc::clone(bootstrapper);
            let (engine, model) =
                rayon::join(|| Engine::load(plan, params, bootstrapper, keys, &mut |_, _| {}), || context.prepared());
            Worker::new(engine?, &*model?, choices, batch, division)
        });
        let worker = worker.map_err(FheJobError::from)?;
        Ok(MachinesWorker { worker, pool })
    }

    /// The ranges, the same on all machines.
    #[must_use]
    pub fn list(&self) -> &WorkList {
        self.worker.list()
    }

    /// Runs a range with the values that it reads. Returns those that it makes, in the order of the list.
    ///
    /// # Errors
    /// [`FheJobError`]: see [`Worker::run`].
    pub fn run(&self, range: usize, values: &Values<'_>) -> Result<Vec<Vec<u8>>, ServeError> {
        let made = self.pool.install(|| self.worker.run(range, values));
        Ok(made.map_err(FheJobError::from)?)
    }
}
