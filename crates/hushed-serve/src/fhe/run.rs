//! The server's part: a request in, a reply out, in files or in memory. Everything is checked before work begins.

use std::fs::{self, File};
use std::io::{Cursor, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hushed_fhe::files::atomic::{self, Access, AtomicFile, Target};
use hushed_fhe::files::chunked::Hash;
use hushed_fhe::files::exchange::{self, RequestReader};
use hushed_fhe::files::keys::{KeyFile, KeyReader};
use hushed_fhe::files::spill::{SpillFolder, SpillUse};
use hushed_fhe::files::{FileError, checkpoint};
use hushed_fhe::plan::FhePlanReport;
use hushed_fhe::plan::public_plan::{Manifest, Params, hex};
use hushed_fhe::run::job::{Batch, Counts, Engine, Event};
use hushed_fhe::run::reply::{ReplySecret, covers};
use hushed_fhe::{FheError, FhePlan};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::context::{ContextOptions, Predicted, RunContext};
use super::ledger::{StepTime, ledger};
use super::progress::JobEvent;
use super::record::check_time;
use super::{FheJobError, read_plan, system};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::files::make_folder;

/// The files of one run.
#[derive(Clone, Debug)]
pub struct RunFiles {
    /// The client's keys.
    pub keys: PathBuf,
    /// Its request.
    pub request: PathBuf,
    /// Where the reply goes.
    pub out: PathBuf,
    /// The folder for checkpoints, if any are wanted.
    pub checkpoint: Option<PathBuf>,
    /// The folder for spilled vectors; beside the reply if `None`.
    pub spill: Option<PathBuf>,
}

/// The inputs of a run in memory: bytes that would be in files.
#[derive(Clone, Copy)]
pub struct RunBytes<'a> {
    /// The client's keys.
    pub keys: &'a [u8],
    /// Its request.
    pub request: &'a [u8],
    /// The folder for spilled vectors; a manifest that spills is refused without one.
    pub spill: Option<&'a Path>,
}

/// The inputs of a single run.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// What it shares with other runs.
    pub context: ContextOptions,
    /// Its files.
    pub files: RunFiles,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Id of the request, in hexadecimal.
    pub request: String,
    /// Seconds, including reading the keys.
    pub seconds: f64,
    /// Planned seconds of all steps.
    pub planned_seconds: f64,
    /// The measured and planned time of each step; empty if nothing was computed.
    pub steps: Vec<StepTime>,
    /// The whole reply was already there, and nothing was computed.
    pub done_before: bool,
    /// Bytes of the reply.
    pub bytes: u64,
    /// Planned peak memory in bytes.
    pub planned_memory: u64,
    /// Planned peak disk space in bytes, besides keys, checkpoint and reply.
    pub planned_disk: u64,
    /// What it spilled to disk.
    pub spilled: SpillUse,
    /// Operations, counted from the checkpoint that it continued from, if any.
    pub counts: Counts,
}

/// The default file for the secret of replies: `$XDG_STATE_HOME/hushed/reply.secret`, or under `~/.local/state`.
#[must_use]
pub fn default_secret() -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path: &PathBuf| path.is_absolute())
    };
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    Some(base?.join("hushed").join("reply.secret"))
}

/// The default calibration: beside a model's weights.
#[must_use]
pub fn default_calibration(model: &Path) -> PathBuf {
    model.join("calibration-fhe.json")
}

/// Loads a context for a single run ([`RunContext::run`]). Faults in the request's files are found before the model is
/// read.
pub fn run(options: &RunOptions, watch: &(dyn Fn(JobEvent) + Sync)) -> Result<JobReport, ServeError> {
    let began = Instant::now();
    let (plan, params) = read_plan(&options.context.plan)?;
    let keys = options.files.check(&plan, &params)?;
    let context = RunContext::of(plan, params, &options.context)?;
    context.run_with(&options.files, keys, began, &Arc::default(), watch)
}

impl RunFiles {
    /// Makes the checks that need no model. Returns the keys, which have not been read yet.
    pub(super) fn check(&self, plan: &dyn Manifest, params: &Params) -> Result<KeyFile, ServeError> {
        if self.out.symlink_metadata().is_err() {
            // A missing or unwritable folder is found now, not when there is an answer. Leaves nothing behind.
            let draft = AtomicFile::create(&self.out, Access::Usual);
            drop(draft.map_err(FheJobError::from)?);
        }
        let keys = self.keys(plan, params)?;
        let request = RequestReader::open(&self.request, plan, params, Some(&keys.id()));
        request.map_err(FheJobError::from)?;
        Ok(keys)
    }

    /// The keys, which have not been read yet.
    pub(super) fn keys(&self, plan: &dyn Manifest, params: &Params) -> Result<KeyFile, ServeError> {
        let key_specs = plan.key_specs(params).map_err(FheJobError::from)?;
        let keys = KeyFile::open(&self.keys, params.rlwe(), &key_specs);
        let keys = keys.map_err(FheJobError::from)?;
        check_time(&keys.id(), keys.times().expires)?;
        Ok(keys)
    }

    /// Whether the reply to this request, by its id and the hash of its content, is there already.
    ///
    /// # Errors
    /// [`FheJobError::OtherReply`] if another file is there.
    pub(super) fn answered(
        &self,
        plan: &dyn Manifest,
        params: &Params,
        keys: &Hash,
        (id, name): (&[u8], &Hash),
    ) -> Result<bool, ServeError> {
        if self.out.symlink_metadata().is_err() {
            return Ok(false);
        }
        match exchange::read_reply(&self.out, plan, params, keys) {
            Ok((reply, _)) if reply.id == id && reply.request == *name => Ok(true),
            _ => Err(FheJobError::OtherReply { path: self.out.clone() }.into()),
        }
    }

    /// The folder of the reply.
    pub(super) fn folder(&self) -> &Path {
        self.out.parent().unwrap_or(Path::new("."))
    }

    /// Checks that the disks have room for a run of this manifest. Returns the folder for spilled vectors.
    fn make_room(
        &self,
        plan: &FhePlan,
        params: &Params,
        predicted: &FhePlanReport,
    ) -> Result<Option<SpillFolder>, ServeError> {
        let reply = exchange::reply_bytes(plan, params);
        system::check_room(self.folder(), reply)?;
        if !plan.placement.spills() {
            return Ok(None);
        }
        if let Some(given) = &self.spill {
            make_folder(given)?;
        }
        let spill = SpillFolder::open(self.spill.as_deref().unwrap_or(self.folder()));
        let spill = spill.map_err(FheJobError::from)?;
        // Room for the reply and two checkpoints too, which may be on the same disk.
        let checkpoints = self.checkpoint.as_ref().map_or(0, |_| 2 * checkpoint_bytes(plan, params));
        system::check_room(spill.path(), predicted.disk + reply + checkpoints)?;
        Ok(Some(spill))
    }
}

impl RunContext {
    /// Runs a batch. However a run has ended, the same call continues from the last checkpoint and gives a reply with
    /// the same bytes.
    ///
    /// # Errors
    /// [`ServeError::Fhe`], [`ServeError::File`]: see [`FheJobError`]. Whatever was there before stays.
    pub fn run(&self, files: &RunFiles, watch: &(dyn Fn(JobEvent) + Sync)) -> Result<JobReport, ServeError> {
        self.run_until(files, &Arc::default(), watch)
    }

    /// Like [`RunContext::run`], but ends with [`FheJobError::Stopped`] between two layers once `stop` is raised.
    pub(super) fn run_until(
        &self,
        files: &RunFiles,
        stop: &Arc<AtomicBool>,
        watch: &(dyn Fn(JobEvent) + Sync),
    ) -> Result<JobReport, ServeError> {
        let began = Instant::now();
        let keys = files.check(&self.plan, &self.params)?;
        self.run_with(files, keys, began, stop, watch)
    }

    /// [`RunContext::run_until`] with opened keys, in a call that started at `began`.
    fn run_with(
        &self,
        files: &RunFiles,
        file: KeyFile,
        began: Instant,
        stop: &Arc<AtomicBool>,
        watch: &(dyn Fn(JobEvent) + Sync),
    ) -> Result<JobReport, ServeError> {
        let (plan, params) = (&self.plan, &self.params);
        let spill = files.make_room(plan, params, &self.predicted()?.report)?;
        let keys = file.id();
        let batch = Batch::read(&files.request, plan, params, &keys).map_err(FheJobError::from)?;
        let (head, name) = (batch.head().clone(), batch.name());
        if files.answered(plan, params, &keys, (&head.id, &name))? {
            if let Some(folder) = &files.checkpoint {
                // Left by a run that ended after its reply and before this.
                let _ = fs::remove_file(checkpoint_path(folder, &head.id));
            }
            let report = self.report(&head.id, began, Default::default())?;
            return Ok(JobReport { done_before: true, ..report });
        }
        let saved =
            files.checkpoint.as_deref().map(|folder| Saved::open(folder, plan, params, &head.id)).transpose()?;
        let work = Work { keys: file, batch, spill, save: saved.as_ref().map(|saved| saved.path.as_path()), stop };
        let out = || AtomicFile::create(&files.out, Access::Usual);
        let done = self.work(work, out, &files.out, watch)?;
        if let Some(saved) = saved {
            // The reply is there; the checkpoint only takes space.
            let _ = fs::remove_file(&saved.path);
        }
        self.report(&head.id, began, done)
    }

    /// Runs a batch in memory and writes to `out` the reply that [`RunContext::run`] would leave in a file. However a
    /// run has ended, it starts anew, and its reply has the same bytes. The secret from which the randomness of replies
    /// is derived is the context's and must outlive it: with another secret, a request that is run twice gives two
    /// replies, which together reveal more of the computation than one.
    ///
    /// # Errors
    /// Those of [`RunContext::run`]; what `out` holds by then is not a reply.
    pub fn run_in_memory(
        &self,
        bytes: RunBytes<'_>,
        out: &mut (impl Write + Send),
        watch: &(dyn Fn(JobEvent) + Sync),
    ) -> Result<JobReport, ServeError> {
        let began = Instant::now();
        let (plan, params) = (&self.plan, &self.params);
        let key_specs = plan.key_specs(params).map_err(FheJobError::from)?;
        let source = Cursor::new(bytes.keys);
        let keys = KeyReader::begin(source, Path::new("<keys>"), params.rlwe(), &key_specs);
        let keys = keys.map_err(FheJobError::from)?;
        check_time(&keys.id(), keys.times().expires)?;
        let (path, source) = (Path::new("<request>"), bytes.request);
        let source = (source, source.len() as u64);
        let batch = Batch::read_from(source, path, plan, params, &keys.id());
        let batch = batch.map_err(FheJobError::from)?;
        let predicted = &self.predicted()?.report;
        let spill = match (plan.placement.spills(), bytes.spill) {
            (false, _) => None,
            (true, Some(folder)) => {
                let folder = SpillFolder::open(folder).map_err(FheJobError::from)?;
                system::check_room(folder.path(), predicted.disk)?;
                Some(folder)
            }
            (true, None) => return Err(FheJobError::from(FheError::no_spill_folder()).into()),
        };
        let id = batch.head().id;
        let work = Work { keys, batch, spill, save: None, stop: &Arc::default() };
        let done = self.work(work, || Ok(out), Path::new("<reply>"), watch)?;
        self.report(&id, began, done)
    }

    pub(super) fn report(
        &self,
        request: &[u8],
        began: Instant,
        (steps, spilled, counts): Done,
    ) -> Result<JobReport, ServeError> {
        let predicted = &self.predicted()?.report;
        Ok(JobReport {
            request: hex(request),
            seconds: began.elapsed().as_secs_f64(),
            planned_seconds: predicted.work.seconds,
            steps,
            done_before: false,
            bytes: exchange::reply_bytes(&self.plan, &self.params),
            planned_memory: predicted.memory.total(),
            planned_disk: predicted.disk,
            spilled,
            counts,
        })
    }

    /// The common part of all runs: loads keys, runs the layers and writes the reply to `out`, opened only then.
    fn work<W: Target + Send>(
        &self,
        work: Work<'_, impl Read + Seek + Send>,
        out: impl FnOnce() -> Result<W, FileError> + Send,
        path: &Path,
        watch: &(dyn Fn(JobEvent) + Sync),
    ) -> Result<Done, ServeError> {
        let (plan, params) = (&self.plan, &self.params);
        let Predicted { report: predicted, bootstrapper } = self.predicted()?;
        let secret = read_secret(&self.secret)?;
        let pool = thread_pool(self.threads)?;
        let told = |event: Event| {
            watch(match event {
                Event::Resumed { layer } => JobEvent::Resumed { layer },
                Event::Step(now) => now.into(),
                Event::Layer { layer, of, seconds, left } => JobEvent::Layer { layer, of, seconds, left },
            });
        };
        watch(JobEvent::Estimate { seconds: predicted.work.seconds, layers: plan.layers });
        let done = pool.install(|| -> Result<_, FheJobError> {
            // Reading keys occupies at most one thread.
            let (engine, model) = rayon::join(
                || {
                    let mut told = |done, of| watch(JobEvent::Keys { done, of });
                    let bootstrapper = Arc::clone(bootstrapper);
                    Engine::load(plan, params, bootstrapper, work.keys, &mut told)
                },
                || self.prepared(),
            );
            let (mut engine, model) = (engine?, model?);
            if let Some(folder) = work.spill {
                engine.spill_to(folder);
            }
            let engine = engine.stopped_by(Arc::clone(work.stop));
            let mut engine = engine.timed_by(Arc::clone(&predicted.timetable));
            // Checked again before a reply is sealed, hours later.
            covers(&plan.reply, model.error())?;
            let (head, name) = (work.batch.head().clone(), work.batch.name());
            let answer = engine.run(&model, &self.choices, work.batch, work.save, &told)?;
            engine.reply(out()?, path, &head, &name, &answer, &secret)?;
            let steps = ledger(predicted, &engine.on().clock().seconds());
            let counts = engine.on().evaluator().counters().snapshot();
            Ok((steps, engine.on().spilled(), counts))
        });
        Ok(done?)
    }
}

/// Threads for a run, as many as the machine has if `None`.
pub(super) fn thread_pool(threads: Option<usize>) -> Result<rayon::ThreadPool, ServeError> {
    let threads = threads.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    Ok(pool.map_err(|_| FheJobError::Threads { threads })?)
}

/// A run that has been checked.
struct Work<'a, R> {
    keys: KeyReader<R>,
    batch: Batch,
    spill: Option<SpillFolder>,
    /// The file of its checkpoint.
    save: Option<&'a Path>,
    stop: &'a Arc<AtomicBool>,
}

/// The time of each step, what was spilled, and the operation counts.
type Done = (Vec<StepTime>, SpillUse, Counts);

fn checkpoint_path(folder: &Path, request: &[u8]) -> PathBuf {
    folder.join(format!("{}.checkpoint", hex(request)))
}

fn checkpoint_bytes(plan: &FhePlan, params: &Params) -> u64 {
    let most = params.max_limbs().min(plan.placement.attention);
    checkpoint::bytes(params, plan.width, most)
}

/// The checkpoint of a request, used by one process at a time.
struct Saved {
    path: PathBuf,
    _lock: File,
}

impl Saved {
    fn open(folder: &Path, plan: &FhePlan, params: &Params, request: &[u8]) -> Result<Saved, ServeError> {
        make_folder(folder)?;
        let path = checkpoint_path(folder, request);
        let lock = folder.join(format!("{}.lock", hex(request)));
        let failed = || FileError::io("lock", &lock);
        let file = File::create(&lock).map_err(failed());
        let file = file.map_err(FheJobError::from)?;
        if let Err(error) = file.try_lock() {
            return Err(FheJobError::from(failed()(error.into())).into());
        }
        // Drafts left by a killed process.
        atomic::clear_drafts(&path);
        // The last checkpoint stays until the next one is complete.
        let bytes = checkpoint_bytes(plan, params);
        let there = path.metadata().map_or(0, |metadata| metadata.len());
        system::check_room(folder, (2 * bytes).saturating_sub(there))?;
        Ok(Saved { path, _lock: file })
    }
}

impl Drop for Saved {
    fn drop(&mut self) {
        let _ = fs::remove_file(self.path.with_extension("lock"));
    }
}

/// A hash of the secret of replies, by which processes compare theirs. The secret is created if there is none.
pub(super) fn secret_hash(path: &Path) -> Result<Digest, ServeError> {
    let secret = read_secret(path)?;
    let hash = Sha256::new().chain_update(b"hushed reply secret of a store").chain_update(secret.bytes().as_slice());
    Ok(Digest(hash.finalize().into()))
}

/// Reads the secret of replies, or creates it. If several processes do so at once, all get the one that was there
/// first: two secrets for one request would mask one computation twice.
pub(super) fn read_secret(path: &Path) -> Result<ReplySecret, ServeError> {
    if !path.exists() {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let made = ReplySecret::from_os();
        let written = AtomicFile::create(path, Access::Private).and_then(|mut file| {
            file.write_all(made.bytes().as_slice()).map_err(FileError::io("write", path))?;
            file.commit_new()
        });
        written.map_err(FheJobError::from)?;
    }
    let bytes = files::read_private(path, 32)?;
    let unusable = || FileError::Unusable { path: path.to_owned(), what: "length" };
    let secret = <[u8; 32]>::try_from(bytes.as_slice()).map_err(|_| unusable());
    let secret = Zeroizing::new(secret.map_err(FheJobError::from)?);
    Ok(ReplySecret::from_bytes(secret))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_secret_of_replies_is_made_once_and_private() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("state/reply.secret");
        let one = read_secret(&path).unwrap();
        let again = read_secret(&path).unwrap();
        assert_eq!(one.bytes(), again.bytes());
        #[cfg(unix)]
        {
            use std::os::unix::fs::PermissionsExt;
            fs::set_permissions(&path, fs::Permissions::from_mode(0o644)).unwrap();
            assert_eq!(read_secret(&path).err().unwrap().name(), "not-private");
        }
        // Many threads at once agree.
        let path = folder.path().join("shared/reply.secret");
        let made: Vec<[u8; 32]> = std::thread::scope(|scope| {
            let read = || **read_secret(&path).unwrap().bytes();
            let threads: Vec<_> = (0..8).map(|_| scope.spawn(read)).collect();
            threads.into_iter().map(|t| t.join().unwrap()).collect()
        });
        assert!(made.iter().all(|secret| *secret == made[0]));
        assert_eq!(fs::read_dir(path.parent().unwrap()).unwrap().count(), 1);
        let path = folder.path().join("short");
        atomic::write(&path, Access::Private, b"short").unwrap();
        assert_eq!(read_secret(&path).err().unwrap().name(), "file-damaged");
    }
}
