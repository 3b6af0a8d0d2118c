//! A run at the server, in files or in memory: it reads request and keys, computes layer by layer, and writes the
//! reply. It needs no secret of a client.
//!
//! Between two layers the columns may be saved as a [`checkpoint`]: a run interrupted at any moment resumes from the
//! last one, and as its only randomness is derived from the server's secret and the request, its reply has the same
//! bytes.
//!
//! Progress is read off the run's [`Clock`](crate::Clock) by a separate thread: most of a run is in steps that take
//! minutes.

use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub use hushed_ckks::Counts;
use hushed_ckks::bootstrap::BootstrapLiteral;
pub use hushed_ckks::bootstrap::Bootstrapper;
pub use hushed_ckks::keys::KeySpecs;
pub use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, CkksParams, Evaluator, SeededCiphertext};
use hushed_model::{Program, StepId};

use crate::choices::Choices;
use crate::error::FheError;
use crate::files::atomic::Target;
use crate::files::checkpoint::{self, Run};
use crate::files::chunked::{Hash, open_file};
use crate::files::exchange::{self, RequestHead};
use crate::files::keys::{KeyProgress, KeyReader};
use crate::files::spill::SpillFolder;
use crate::ops::mask::RowsKnown;
use crate::ops::packed::rows::PackedRows;
use crate::packing::SequencePacking;
use crate::pass::{Pass, Texts};
use crate::plan::Timetable;
use crate::plan::public_plan::FhePlan;
use crate::run::clock::Progress;
use crate::run::encrypted::Encrypted;
use crate::run::prepared::Prepared;
use crate::run::reply::{ReplySecret, Sealing};
use crate::slots::Slots;

/// Steps of a run outside its plan, as the clock names them.
const CHECKPOINT: StepId = StepId::outside("checkpoint");
const REPLY: StepId = StepId::outside("reply");

/// Progress events of a run.
#[derive(Clone, Debug)]
pub enum Event {
    /// The run resumes from a checkpoint before this layer.
    Resumed {
        /// The layer, counted from 0.
        layer: usize,
    },
    /// Progress: every second, and at the end.
    Step(Progress),
    /// A layer is done, and its checkpoint, if any, is written.
    Layer {
        /// The layer, counted from 0.
        layer: usize,
        /// Number of layers.
        of: usize,
        /// Seconds that it took.
        seconds: f64,
        /// Estimated seconds left.
        left: f64,
    },
}

/// The receiver of events.
pub type Watch<'a> = &'a (dyn Fn(Event) + Sync);

/// A bootstrap of these parameters, with the evaluation keys it needs. Creating it takes seconds and, at N = 2^16, half
/// a gigabyte: create one and use it both to check the keys and to run.
///
/// # Errors
/// [`FheError::Ckks`] for parameters without a bootstrap.
pub fn bootstrap(params: &Arc<CkksParams>) -> Result<(Arc<Bootstrapper>, KeySpecs), FheError> {
    let bootstrapper = Bootstrapper::new(params, BootstrapLiteral::default())?;
    let keys = bootstrapper.key_specs();
    Ok((Arc::new(bootstrapper), keys))
}

/// A client's keys in memory, with the plan they are for.
pub struct Engine {
    pub(super) plan: FhePlan,
    pub(super) params: Arc<CkksParams>,
    pub(super) on: Encrypted,
    public: Arc<PublicKey>,
    pub(super) keys: Hash,
    stop: Arc<AtomicBool>,
    timetable: Arc<Timetable>,
    /// Error of a run in a slot of its reply: that of the model that was run; until then no reply is sealed.
    error: f64,
}

/// A request that was read and checked in full.
pub struct Batch {
    head: RequestHead,
    name: Hash,
    pub(super) columns: Vec<SeededCiphertext>,
    mask: Option<SeededCiphertext>,
}

impl Batch {
    /// The head of the request.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The hash of its content.
    pub fn name(&self) -> Hash {
        self.name
    }

    /// Reads a request from a file; it must belong to this plan and these keys.
    ///
    /// # Errors
    /// [`FheError::File`].
    pub fn read(path: &Path, plan: &FhePlan, params: &CkksParams, keys: &Hash) -> Result<Batch, FheError> {
        Self::read_from(open_file(path)?, path, plan, params, keys)
    }

    /// Reads a request from a source with its number of bytes; errors call it `path`.
    ///
    /// # Errors
    /// [`FheError::File`].
    pub fn read_from(
        source: (impl Read, u64),
        path: &Path,
        plan: &FhePlan,
        params: &CkksParams,
        keys: &Hash,
    ) -> Result<Batch, FheError> {
        let (head, name, mut columns) = exchange::read_request_from(source, path, plan, params, keys)?;
        let mask = plan.masks().then(|| columns.pop()).flatten();
        Ok(Batch { head, name, columns, mask })
    }
}

impl Engine {
    /// Reads a client's keys, for the bootstrap of [`bootstrap`].
    ///
    /// # Errors
    /// [`FheError::File`] for damaged keys, [`FheError::Ckks`] if keys of the bootstrap are missing.
    pub fn load(
        plan: &FhePlan,
        params: &Arc<CkksParams>,
        bootstrapper: Arc<Bootstrapper>,
        keys: KeyReader<impl Read + Seek>,
        progress: KeyProgress<'_>,
    ) -> Result<Engine, FheError> {
        let id = keys.id();
        let (public, keys) = keys.read(progress)?;
        let evaluator = Evaluator::new(params, Arc::new(keys))?;
        Ok(Engine {
            plan: plan.clone(),
            params: Arc::clone(params),
            on: Encrypted::new(evaluator, bootstrapper)?,
            public: Arc::new(public),
            keys: id,
            stop: Arc::default(),
            timetable: Arc::default(),
            error: f64::INFINITY,
        })
    }

    /// Sets a flag that, once raised, stops runs between two layers.
    #[must_use]
    pub fn stopped_by(self, stop: Arc<AtomicBool>) -> Engine {
        Engine { stop, ..self }
    }

    /// Sets the timetable for progress reports: without one, progress is unknown.
    #[must_use]
    pub fn timed_by(self, timetable: Arc<Timetable>) -> Engine {
        Engine { timetable, ..self }
    }

    /// The id of the keys.
    pub fn keys(&self) -> Hash {
        self.keys
    }

    /// The arithmetic, with its counters.
    pub fn on(&self) -> &Encrypted {
        &self.on
    }

    /// Sets the folder for spilled vectors; required if the plan spills.
    pub fn spill_to(&mut self, folder: SpillFolder) {
        self.on.spill_to(folder);
    }

    /// Runs a batch from its columns, or from this run's checkpoint in the file `save` if there is one, and writes one
    /// there after each layer. The returned ciphertexts are the answer before it is sealed, and must not leave.
    ///
    /// # Errors
    /// [`FheError`], including [`FheError::Stopped`]; the last checkpoint stays.
    pub fn run(
        &mut self,
        model: &Prepared,
        choices: &Choices,
        batch: Batch,
        save: Option<&Path>,
        watch: Watch<'_>,
    ) -> Result<Vec<Ciphertext>, FheError> {
        self.on.keep(Arc::clone(&model.folded));
        self.error = model.error();
        self.on.clock().begin(Arc::clone(&self.timetable));
        let told = |now| watch(Event::Step(now));
        let clock = self.on.clock();
        clock.tell(&told, || self.layers(&model.program, choices, batch, save, watch))
    }

    fn layers(
        &self,
        program: &Program,
        choices: &Choices,
        batch: Batch,
        save: Option<&Path>,
        watch: Watch<'_>,
    ) -> Result<Vec<Ciphertext>, FheError> {
        let run = Run { plan: self.plan.hash(), keys: self.keys, request: batch.name };
        let layers = program.layers().len();
        let found = match save {
            Some(path) => {
                self.on.at(CHECKPOINT);
                checkpoint::read(path, &self.params, &run, self.plan.vectors(), layers)?
            }
            None => None,
        };
        self.on.at(StepId::outside("input"));
        let rows = self.rows(&batch)?;
        let (placement, bound) = (self.plan.placement.clone(), self.plan.input_bound);
        let mut pass = Pass::over(&self.on, (program, choices), placement, rows, bound)?;
        let (first, mut x) = match found {
            Some(found) => {
                drop(batch);
                watch(Event::Resumed { layer: found.layer });
                let x = pass.resume(found.layer, found.columns)?;
                (found.layer, x)
            }
            None => (0, pass.start(self.columns(batch.columns)?)?),
        };
        for layer in first..layers {
            if self.stop.load(Ordering::SeqCst) {
                return Err(FheError::Stopped);
            }
            let began = Instant::now();
            x = pass.layer(layer, x)?;
            if let Some(path) = save {
                self.on.at(CHECKPOINT);
                checkpoint::write(path, &self.params, &run, layer + 1, &x.columns)?;
            }
            watch(Event::Layer {
                layer,
                of: layers,
                seconds: began.elapsed().as_secs_f64(),
                left: self.on.clock().progress().map_or(0.0, |now| now.left()),
            });
        }
        let answer = pass.finish(x)?.vectors;
        // All planned work is done.
        self.on.at(REPLY);
        Ok(answer)
    }

    /// Writes the reply of a batch to `out`, which errors call `path`: masked and re-randomised, and with the same
    /// bytes whenever it is made again.
    ///
    /// # Errors
    /// As [`seal_reply`], including [`FheError::ReplyError`]; [`FheError::File`].
    pub fn reply(
        &self,
        out: impl Target,
        path: &Path,
        head: &RequestHead,
        name: &Hash,
        answer: &[Ciphertext],
        secret: &ReplySecret,
    ) -> Result<Hash, FheError> {
        let work = Sealing { plan: &self.plan, params: &self.params, public: &self.public, keys: &self.keys };
        work.write(out, path, (head, name), answer, self.error, secret)
    }

    pub(super) fn rows(&self, batch: &Batch) -> Result<Texts<Ciphertext>, FheError> {
        let lengths = || batch.head.lengths.iter().map(|&l| usize::from(l)).collect();
        if let Some((layout, _)) = self.plan.packed(&self.params)? {
            return Ok(match self.plan.answer {
                Some(answer) => Texts::PackedLast(layout, answer),
                None => Texts::Packed(match &batch.mask {
                    Some(mask) => PackedRows::private(layout, mask.clone().expand()),
                    None => PackedRows::new(layout, lengths())?,
                }),
            });
        }
        let layout = self.plan.interleave(&self.params)?;
        if let Some(answer) = self.plan.answer {
            let real = batch.mask.clone().map(SeededCiphertext::expand);
            return Ok(Texts::Last(layout, answer, real));
        }
        Ok(Texts::Columns(match &batch.mask {
            Some(mask) => RowsKnown::private(layout, mask.clone().expand()),
            None => {
                let per_place = self.plan.placement.per_place;
                RowsKnown::shared(layout, SequencePacking::new(layout.rows(), per_place, lengths())?)?
            }
        }))
    }

    /// The columns of a request, two per ciphertext, or its vectors of packed rows.
    pub(super) fn columns(&self, sent: Vec<SeededCiphertext>) -> Result<Vec<Ciphertext>, FheError> {
        if self.plan.packed(&self.params)?.is_some() {
            return Ok(sent.into_iter().map(SeededCiphertext::expand).collect());
        }
        self.on.at(StepId::outside("input.columns"));
        let mut columns = Vec::with_capacity(self.plan.width);
        for pair in sent {
            columns.extend(self.on.split(&pair.expand())?);
        }
        columns.truncate(self.plan.width);
        Ok(columns)
    }
}
