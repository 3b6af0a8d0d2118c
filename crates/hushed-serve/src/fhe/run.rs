//! The server's part: a request in, a reply out, from files to a file. Everything is checked before any work begins.

use std::fs::{self, File};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Instant;

use hushed_infer::calibrate::weights_sha256;
use hushed_infer::ckks::declared::{self, Circuit};
use hushed_infer::ckks::files::atomic::{self, Access, AtomicFile};
use hushed_infer::ckks::files::exchange::{self, RequestReader};
use hushed_infer::ckks::files::keys::KeyFile;
use hushed_infer::ckks::files::spill::{SpillFolder, SpillUse};
use hushed_infer::ckks::files::{FileError, checkpoint};
use hushed_infer::ckks::job::{Batch, Bootstrapper, Counts, Engine, EvalKeyPlan, Event, bootstrap};
use hushed_infer::ckks::offer::needed;
use hushed_infer::ckks::plan::{FheOptions, FhePlanReport, reference};
use hushed_infer::ckks::public_plan::Params;
use hushed_infer::ckks::public_plan::hex;
use hushed_infer::ckks::reply::{ReplySecret, covers};
use hushed_infer::ckks::{Choices, FheError, FhePlan, MAX_BYTES};
use hushed_model::{Model, TooLong};
use sha2::{Digest as _, Sha256};
use zeroize::Zeroizing;

use super::ledger::{StepTime, ledger};
use super::progress::JobEvent;
use super::record::check_time;
use super::{FheJobError, PublicModel, read_plan, system};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::files;
use crate::files::make_folder;

/// What a run is made of.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The model folder.
    pub model: PathBuf,
    /// The public plan.
    pub plan: PathBuf,
    /// The calibration that the plan was made with.
    pub calibration: PathBuf,
    /// The client's keys.
    pub keys: PathBuf,
    /// Its request.
    pub request: PathBuf,
    /// Where the reply goes.
    pub out: PathBuf,
    /// The folder for checkpoints, if there are to be any.
    pub checkpoint: Option<PathBuf>,
    /// The folder for what a plan puts on disk while it runs; beside the reply if `None`.
    pub spill: Option<PathBuf>,
    /// What the randomness of replies follows from: made on first use, and kept.
    pub secret: PathBuf,
    /// Bytes of memory that the run may take; what the machine has if `None`.
    pub max_memory: Option<u64>,
    /// Threads; as many as the machine has if `None`.
    pub threads: Option<usize>,
}

/// What a run did.
#[derive(Clone, Debug)]
pub struct JobReport {
    /// Id of the request, in hexadecimal.
    pub request: String,
    /// Seconds, reading of keys included.
    pub seconds: f64,
    /// Seconds of all steps by the plan.
    pub planned_seconds: f64,
    /// What each step took beside what the plan said; none where nothing was computed.
    pub steps: Vec<StepTime>,
    /// The reply was there already, whole: nothing was computed.
    pub done_before: bool,
    /// Bytes of the reply.
    pub bytes: u64,
    /// Bytes that the plan says the run holds at most.
    pub planned_memory: u64,
    /// Bytes that the plan says it has on disk at most, besides keys, checkpoint and reply.
    pub planned_disk: u64,
    /// What it put on disk.
    pub spilled: SpillUse,
    /// What was computed, since a checkpoint if it went on from one.
    pub counts: Counts,
}

/// Where the secret of replies is kept unless said otherwise: `$XDG_STATE_HOME/hushed/reply.secret`, or under `~/.local/state`.
#[must_use]
pub fn default_secret() -> Option<PathBuf> {
    let set = |name| {
        let value = std::env::var_os(name).map(PathBuf::from);
        value.filter(|path: &PathBuf| path.is_absolute())
    };
    let base = set("XDG_STATE_HOME").or_else(|| Some(set("HOME")?.join(".local/state")));
    Some(base?.join("hushed").join("reply.secret"))
}

/// The calibration that lies beside a model's weights unless another is named.
#[must_use]
pub fn default_calibration(model: &Path) -> PathBuf {
    model.join("calibration-fhe.json")
}

/// Runs a batch. After a run that was ended in any way, the same call goes on from the last checkpoint, and its reply has the same bytes.
///
/// # Errors
/// [`ServeError::Fhe`], [`ServeError::Model`], [`ServeError::File`]: see [`FheJobError`]; whatever was there before is still there.
pub fn run(
    options: &RunOptions,
    watch: &(dyn Fn(JobEvent) + Sync),
) -> Result<JobReport, ServeError> {
    run_until(options, &Arc::default(), watch)
}

/// [`run`], which ends with [`FheJobError::Stopped`] between two layers once `stop` is raised.
pub(super) fn run_until(
    options: &RunOptions,
    stop: &Arc<AtomicBool>,
    watch: &(dyn Fn(JobEvent) + Sync),
) -> Result<JobReport, ServeError> {
    let began = Instant::now();
    let Prepared {
        plan,
        params,
        model,
        choices,
        keys: file,
        bootstrapper,
        report: predicted,
        spill,
    } = Prepared::check(options)?;
    let keys = file.id();
    let batch = Batch::read(&options.request, &plan, &params, &keys).map_err(FheJobError::from)?;
    let (head, name) = (batch.head().clone(), batch.name());
    let report = |done_before, steps, (spilled, counts)| JobReport {
        request: hex(&head.id),
        seconds: began.elapsed().as_secs_f64(),
        planned_seconds: predicted.work.seconds,
        steps,
        done_before,
        bytes: exchange::reply_bytes(&plan, &params),
        planned_memory: predicted.memory.total(),
        planned_disk: predicted.disk,
        spilled,
        counts,
    };
    if options.out.symlink_metadata().is_ok() {
        let there = exchange::read_reply(&options.out, &plan, &params, &keys);
        return match there {
            Ok((reply, _)) if reply.id == head.id && reply.request == name => {
                if let Some(folder) = &options.checkpoint {
                    // Left by a run that ended between its reply and this.
                    let _ = fs::remove_file(checkpoint_path(folder, &head.id));
                }
                Ok(report(true, Vec::new(), Default::default()))
            }
            _ => Err(FheJobError::OtherReply {
                path: options.out.clone(),
            }
            .into()),
        };
    }
    let saved = options
        .checkpoint
        .as_deref()
        .map(|folder| Saved::open(folder, &plan, &params, &head.id))
        .transpose()?;
    let secret = read_secret(&options.secret)?;
    let threads = options.threads.unwrap_or(0);
    let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build();
    let pool = pool.map_err(|_| FheJobError::Threads { threads })?;
    let told = |event: Event| {
        watch(match event {
            Event::Resumed { layer } => JobEvent::Resumed { layer },
            Event::Step(now) => now.into(),
            Event::Layer {
                layer,
                of,
                seconds,
                left,
            } => JobEvent::Layer {
                layer,
                of,
                seconds,
                left,
            },
        });
    };
    watch(JobEvent::Estimate {
        seconds: predicted.work.seconds,
        layers: plan.layers,
    });
    let (steps, used) = pool.install(|| -> Result<_, FheJobError> {
        let mut engine = Engine::load(&plan, &params, bootstrapper, file, &mut |done, of| {
            watch(JobEvent::Keys { done, of });
        })?;
        if let Some(folder) = spill {
            engine.spill_to(folder);
        }
        let engine = engine.stopped_by(Arc::clone(stop));
        let engine = engine.timed_by(Arc::clone(&predicted.timetable));
        let error = simulated_error(&plan, &params, &model, &choices)?;
        // Also refused before a reply is sealed, hours later.
        covers(&plan.reply, error)?;
        let engine = engine.erring_by(error);
        let path = saved.as_ref().map(|saved| saved.path.as_path());
        let answer = engine.run(&model.bert, &choices, batch, path, &told)?;
        engine.reply(&options.out, &head, &name, &answer, &secret)?;
        let steps = ledger(&predicted, &engine.on().clock().seconds());
        let counts = engine.on().evaluator().counters().snapshot();
        Ok((steps, (engine.on().spilled(), counts)))
    })?;
    if let Some(saved) = saved {
        // The reply is there: what is left over is only space.
        let _ = fs::remove_file(&saved.path);
    }
    Ok(report(false, steps, used))
}

/// Everything that is checked before work begins.
struct Prepared {
    plan: FhePlan,
    params: Params,
    model: Model,
    choices: Choices,
    keys: KeyFile,
    bootstrapper: Arc<Bootstrapper>,
    report: FhePlanReport,
    spill: Option<SpillFolder>,
}

impl Prepared {
    fn check(options: &RunOptions) -> Result<Prepared, ServeError> {
        let (plan, params) = read_plan(&options.plan)?;
        if options.out.symlink_metadata().is_err() {
            // A folder that is not there or cannot be written to is found now, and not when there is an answer. Nothing is left of it.
            let draft = AtomicFile::create(&options.out, Access::Usual);
            drop(draft.map_err(FheJobError::from)?);
        }
        let key_plan = plan.key_plan(&params).map_err(FheJobError::from)?;
        let keys = KeyFile::open(&options.keys, params.rlwe(), &key_plan);
        let keys = keys.map_err(FheJobError::from)?;
        check_time(&keys.id(), keys.times().expires)?;
        let request = RequestReader::open(&options.request, &plan, &params, Some(&keys.id()));
        request.map_err(FheJobError::from)?;

        let (model, choices) = fitting(&options.model, &options.calibration, &plan)?;
        let (bootstrapper, keys_of_it) = bootstrap(&params).map_err(FheJobError::from)?;
        let report = predicted(options, &plan, &params, &keys_of_it, &model, &choices)?;
        let folder = options.out.parent().unwrap_or(Path::new("."));
        let reply = exchange::reply_bytes(&plan, &params);
        system::check_room(folder, reply)?;
        let spill = plan.placement.spills().then(|| {
            let given = options.spill.as_deref();
            if let Some(given) = given {
                make_folder(given)?;
            }
            let spill = SpillFolder::open(given.unwrap_or(folder)).map_err(FheJobError::from)?;
            // Also for the reply and two checkpoints, which may be on the same disk.
            let checkpoints = options
                .checkpoint
                .as_ref()
                .map_or(0, |_| 2 * checkpoint_bytes(&plan, &params));
            system::check_room(spill.path(), report.disk + reply + checkpoints)?;
            Ok::<_, ServeError>(spill)
        });
        let spill = spill.transpose()?;
        Ok(Prepared {
            spill,
            plan,
            params,
            model,
            choices,
            keys,
            bootstrapper,
            report,
        })
    }
}

/// The model and the calibration that the plan was made for, or what is not the plan's.
pub(super) fn fitting(
    folder: &Path,
    calibration: &Path,
    plan: &FhePlan,
) -> Result<(Model, Choices), ServeError> {
    let model = Model::load(folder)?;
    let other = |what, planned: String, found: String| FheJobError::OtherModel {
        what,
        planned,
        found,
    };
    let sizes = |(layers, width, logits): (usize, usize, Option<usize>)| match logits {
        Some(logits) => format!("{layers} layers of {width} columns, {logits} logits"),
        None => format!("{layers} layers of {width} columns"),
    };
    let bert = &model.bert;
    let logits = bert.classifier.as_ref().map(|c| c.classes.outputs);
    let found = (bert.layers.len(), bert.embedding.width, logits);
    let planned = (plan.layers, plan.width, plan.logits);
    if found != planned {
        return Err(other("model", sizes(planned), sizes(found)).into());
    }
    let public = PublicModel::from_folder(folder, &model)?.hash();
    if public.to_string() != plan.public_sha256 {
        let planned = plan.public_sha256.clone();
        return Err(other("public model", planned, public.to_string()).into());
    }
    let bytes = files::read(calibration, MAX_BYTES as u64)?;
    let found = Digest(Sha256::digest(&bytes).into()).to_string();
    if found != plan.calibration_sha256 {
        let planned = plan.calibration_sha256.clone();
        return Err(other("calibration", planned, found).into());
    }
    let choices = Choices::from_json(&bytes).map_err(FheJobError::from)?;
    choices.check(&model.bert).map_err(FheJobError::from)?;
    let weights = weights_sha256(folder).map_err(|source| ServeError::File {
        operation: "read",
        path: folder.to_owned(),
        source,
    })?;
    choices.check_model(&weights).map_err(FheJobError::from)?;
    Ok((model, choices))
}

/// What the plan's placement costs, refused if it takes more memory than it may.
fn predicted(
    options: &RunOptions,
    plan: &FhePlan,
    params: &Params,
    bootstrap: &EvalKeyPlan,
    model: &Model,
    choices: &Choices,
) -> Result<FhePlanReport, ServeError> {
    let all = std::thread::available_parallelism().map_or(1, usize::from);
    let asked = FheOptions {
        rows: plan.rows,
        texts: usize::MAX,
        lengths: plan.lengths,
        max_memory: None,
        uplink: f64::INFINITY,
        prices: reference(options.threads.unwrap_or(all)),
        placement: Some(plan.placement.clone()),
    };
    check_needed(plan, params, bootstrap, model, choices, &asked)?;
    let report = FhePlanReport::new(&model.bert, choices, false, params, bootstrap, &asked);
    let report = report.map_err(FheJobError::from)?;
    let needed = report.memory.total();
    // A run that the machine cannot hold would be ended by the system after hours.
    let limit = options.max_memory.or_else(system::memory);
    match limit.filter(|&limit| limit < needed) {
        Some(limit) => Err(FheJobError::Memory {
            needed: needed >> 20,
            limit: limit >> 20,
        }
        .into()),
        None => Ok(report),
    }
}

/// The error of a run, simulated on the texts that the plan was made with.
fn simulated_error(
    plan: &FhePlan,
    params: &Params,
    model: &Model,
    choices: &Choices,
) -> Result<f64, FheError> {
    let known = plan.canary.as_ref();
    let known = known.map(|canary| model.tokens(&canary.text, TooLong::Refuse));
    let texts = declared::texts(&model.public.tokenizer, plan.rows, known.transpose()?);
    let circuit = Circuit {
        bert: &model.bert,
        choices,
        params,
        placement: &plan.placement,
        rows: plan.rows,
        lengths: plan.lengths,
        input_bound: plan.input_bound,
    };
    circuit.deviation(&texts)
}

/// That the plan lists the keys that its run needs, and its reply, as an offer of this model does: a plan that says less would fail after
/// hours, or leave more in a reply than the answer.
fn check_needed(
    plan: &FhePlan,
    params: &Params,
    bootstrap: &EvalKeyPlan,
    model: &Model,
    choices: &Choices,
    asked: &FheOptions,
) -> Result<(), ServeError> {
    let found = needed(
        &model.bert,
        choices,
        params,
        bootstrap,
        asked,
        &plan.placement,
    );
    let (keys, mut reply) = found.map_err(FheJobError::from)?;
    // What its simulation errs by may be more; a plan with less was refused when it was read, and a reply that errs by more is not sealed.
    reply.deviation = reply.deviation.max(plan.reply.deviation);
    let mut ours = plan.clone();
    ours.set_keys(&keys);
    let other = |what, planned, found| {
        Err(FheJobError::OtherModel {
            what,
            planned,
            found,
        }
        .into())
    };
    if ours.keys != plan.keys {
        let (planned, found) = (plan.keys.len(), ours.keys.len());
        let differ = ours.keys.iter().filter(|key| !plan.keys.contains(key));
        let missing = differ.count();
        return other(
            "set of evaluation keys",
            format!("{planned} keys"),
            format!("{found} keys, of which the plan lacks {missing}"),
        );
    }
    if reply != plan.reply {
        let (planned, found) = (format!("{:?}", plan.reply), format!("{reply:?}"));
        return other("reply", planned, found);
    }
    Ok(())
}

fn checkpoint_path(folder: &Path, request: &[u8]) -> PathBuf {
    folder.join(format!("{}.checkpoint", hex(request)))
}

fn checkpoint_bytes(plan: &FhePlan, params: &Params) -> u64 {
    let most = params.max_limbs().min(plan.placement.attention);
    checkpoint::bytes(params, plan.width, most)
}

/// The checkpoint of a request, which one process at a time may use.
struct Saved {
    path: PathBuf,
    _lock: File,
}

impl Saved {
    fn open(
        folder: &Path,
        plan: &FhePlan,
        params: &Params,
        request: &[u8],
    ) -> Result<Saved, ServeError> {
        make_folder(folder)?;
        let path = checkpoint_path(folder, request);
        let lock = folder.join(format!("{}.lock", hex(request)));
        let failed = || FileError::io("lock", &lock);
        let file = File::create(&lock).map_err(failed());
        let file = file.map_err(FheJobError::from)?;
        if let Err(error) = file.try_lock() {
            return Err(FheJobError::from(failed()(error.into())).into());
        }
        // What a killed process had not finished.
        atomic::clear_drafts(&path);
        // The last one stays until the next is whole.
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

/// Reads the secret of replies, or makes it. Of several processes that do so at once, all get the one that was there first: two secrets for
/// one request would be two covers of one computation.
fn read_secret(path: &Path) -> Result<ReplySecret, ServeError> {
    if !path.exists() {
        if let Some(folder) = path.parent() {
            make_folder(folder)?;
        }
        let made = ReplySecret::from_os();
        let written = AtomicFile::create(path, Access::Private).and_then(|mut file| {
            file.write_all(made.bytes().as_slice())
                .map_err(FileError::io("write", path))?;
            file.commit_new()
        });
        written.map_err(FheJobError::from)?;
    }
    let metadata = fs::metadata(path).map_err(FileError::io("read", path));
    let metadata = metadata.map_err(FheJobError::from)?;
    atomic::check_private(path, &metadata).map_err(FheJobError::from)?;
    let bytes = Zeroizing::new(files::read(path, 32)?);
    let unusable = || FileError::Unusable {
        path: path.to_owned(),
        what: "length",
    };
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
        // Many at once agree.
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
