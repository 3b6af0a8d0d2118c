//! Jobs: a queue on disk; one worker that runs them one after another (a run takes all cores), owners in turn; and
//! their replies until they expire.
//!
//! A job's record says whether it is waiting, done or failed. That it is running is known in memory only: however the
//! server ends, the job waits again at the next start and continues from its last checkpoint.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use hushed_fhe::files::FileError;
use serde::{Deserialize, Serialize};

use super::storage::{Storage, entries, remove, without_ids};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::context::RunContext;
use crate::fhe::progress::JobEvent;
use crate::fhe::record::{VERSION, read, write};
use crate::fhe::run::RunFiles;
use crate::fhe::wire::{Failure, JobState, job_id};
use crate::files::{make_folder, now};
use crate::session::metrics::Metrics;
use crate::session::owner::Owner;
use crate::session::wire::Refusal;

/// Maximum number of jobs per owner that wait or run.
const MAX_QUEUED: usize = 8;
/// After this many server exits during a job, without a layer done in between, the job fails.
const MAX_ATTEMPTS: u32 = 3;
/// How often to look for expired files.
const TIDY: Duration = Duration::from_secs(60);

const JOB: &str = "job.json";
const REPLY: &str = "reply";
const CHECKPOINTS: &str = "checkpoints";

/// The record of a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct JobRecord {
    version: u32,
    /// Id of the key set, in hexadecimal.
    keys: String,
    /// The name of the request's content, in hexadecimal.
    request: String,
    /// Microseconds since 1970, but later than the last job's: the order of the queue.
    submitted: u64,
    /// How often it was started since the last layer was done.
    attempts: u32,
    state: State,
    /// When it was done or failed, in seconds since 1970.
    ended: Option<u64>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
enum State {
    Queued,
    Done,
    Failed(String),
}

/// A job by its owner and id.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Job {
    owner: Owner,
    id: Digest,
    request: Digest,
}

impl Job {
    fn short(&self) -> String {
        // If clients are not told apart, the whole id gives a client access to a job, so it is not logged.
        self.id.to_string().chars().take(8).collect()
    }
}

#[derive(Default)]
struct Queue {
    waiting: BTreeMap<u64, Job>,
    running: Option<Running>,
    /// When each owner's last job began, as a count of jobs.
    served: HashMap<Owner, u64>,
    begun: u64,
    /// Seconds that the last run was planned to take.
    whole: f64,
}

impl Queue {
    /// The waiting jobs in the order in which they would run: owners in turn, the one served longest ago first, and
    /// each owner's jobs in order of arrival. So no client waits for another's whole queue.
    fn order(&self) -> Vec<u64> {
        let mut ahead: HashMap<&Owner, (usize, u64)> = HashMap::new();
        let mut places: Vec<_> = self
            .waiting
            .iter()
            .map(|(submitted, job)| {
                let (before, first) = ahead.entry(&job.owner).or_insert((0, *submitted));
                let round = *before;
                *before += 1;
                let served = self.served.get(&job.owner).copied().unwrap_or(0);
                (round, served, *first, *submitted)
            })
            .collect();
        places.sort_unstable();
        places.into_iter().map(|place| place.3).collect()
    }

    /// Takes the next job.
    fn take(&mut self) -> Option<(u64, Job)> {
        let submitted = self.order().into_iter().next()?;
        let job = self.waiting.remove(&submitted)?;
        self.begun += 1;
        self.served.insert(job.owner.clone(), self.begun);
        Some((submitted, job))
    }

    /// The number of jobs that would run before a waiting one.
    fn place(&self, is_it: impl Fn(&Job) -> bool) -> Option<usize> {
        let (wanted, _) = self.waiting.iter().find(|(_, job)| is_it(job))?;
        self.order().iter().position(|place| place == wanted)
    }

    /// All jobs that wait or run.
    fn jobs(&self) -> impl Iterator<Item = &Job> {
        let running = self.running.iter().map(|running| &running.job);
        self.waiting.values().chain(running)
    }
}

struct Running {
    job: Job,
    layer: usize,
    of: usize,
    part: f64,
    /// Estimated seconds that were left at `since`.
    left: f64,
    since: Instant,
}

/// All jobs of a server.
pub(super) struct Jobs {
    storage: Storage,
    plan: Digest,
    context: RunContext,
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
}

impl Jobs {
    /// Opens the jobs of a store; those that wait are queued in order of arrival.
    pub(super) fn open(
        storage: Storage,
        context: RunContext,
        metrics: Arc<Metrics>,
    ) -> Result<Jobs, ServeError> {
        let mut queue = Queue::default();
        for owner in storage.owners() {
            for folder in entries(&storage.jobs_folder(&owner)) {
                let name = folder.file_name().and_then(|name| name.to_str());
                let Some(id) = name.and_then(|name| name.parse::<Digest>().ok()) else {
                    continue;
                };
                let path = folder.join(JOB);
                if !path.is_file() {
                    continue;
                }
                let record: JobRecord = match read(&path) {
                    Ok(record) => record,
                    Err(error) => {
                        // One client's damaged record does not keep others waiting. If the job is requested again, its
                        // record is written anew.
                        let (owner, reason) = (owner.name(), error.name());
                        tracing::warn!(owner, reason, "the record of a job cannot be read");
                        continue;
                    }
                };
                let Ok(request) = record.request.parse() else {
                    continue;
                };
                if record.state == State::Queued {
                    let owner = owner.clone();
                    let job = Job { owner, id, request };
                    tracing::info!(job = job.short(), "a job waits from before");
                    queue.waiting.insert(record.submitted, job);
                }
            }
        }
        Ok(Jobs {
            storage,
            plan: Digest(context.plan.hash()),
            context,
            queue: Mutex::new(queue),
            changed: Condvar::new(),
            stop: Arc::default(),
            metrics,
        })
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// Jobs that wait or run.
    pub(super) fn under_way(&self) -> usize {
        self.counted(&self.lock())
    }

    /// Like [`Jobs::under_way`], and also updates the metric.
    fn counted(&self, queue: &Queue) -> usize {
        let jobs = queue.waiting.len() + usize::from(queue.running.is_some());
        self.metrics.jobs(jobs);
        jobs
    }

    /// Queues a run, unless it is already there. A failed run is started again. `count` counts a new run and may refuse
    /// it; a failed run was counted before, and gave no answers.
    pub(super) fn submit(
        &self,
        owner: &Owner,
        keys: Digest,
        request: Digest,
        count: &dyn Fn() -> Result<(), Refusal>,
    ) -> Result<JobState, Refusal> {
        let id = job_id(&self.plan, &keys, &request);
        let mut queue = self.lock();
        let before = self.state(&queue, owner, &id);
        if !matches!(before, JobState::Unknown | JobState::Failed(_)) {
            return Ok(before);
        }
        self.storage.check_pair(owner, &keys, &request)?;
        let ours = queue.jobs().filter(|job| job.owner == *owner);
        if ours.count() >= MAX_QUEUED {
            let limit = MAX_QUEUED as u32;
            return Err(Refusal::QueueFull { limit });
        }
        if before == JobState::Unknown {
            count()?;
        }
        let last = queue.waiting.last_key_value().map_or(0, |(time, _)| *time);
        let submitted = micros().max(last + 1);
        let record = JobRecord {
            version: VERSION,
            keys: keys.to_string(),
            request: request.to_string(),
            submitted,
            attempts: 0,
            state: State::Queued,
            ended: None,
        };
        let folder = self.folder(owner, &id);
        if let JobState::Failed(Failure::Other) = before {
            // Its own files may be damaged, so it starts over.
            let _ = fs::remove_dir_all(folder.join(CHECKPOINTS));
            remove(&folder.join(REPLY));
        }
        make_folder(&folder)
            .and_then(|()| write(&folder.join(JOB), &record))
            .map_err(|error| {
                tracing::warn!(reason = error.name(), "a job could not be written down");
                Refusal::NoRoom
            })?;
        let job = Job {
            owner: owner.clone(),
            id,
            request,
        };
        tracing::info!(owner = owner.name(), job = job.short(), "job queued");
        queue.waiting.insert(submitted, job);
        self.counted(&queue);
        let state = self.state(&queue, owner, &id);
        drop(queue);
        self.changed.notify_all();
        Ok(state)
    }

    /// The state of a job of this owner.
    pub(super) fn status(&self, owner: &Owner, id: &Digest) -> JobState {
        self.state(&self.lock(), owner, id)
    }

    /// The path of a reply.
    pub(super) fn reply(&self, owner: &Owner, id: &Digest) -> Result<PathBuf, Refusal> {
        match self.status(owner, id) {
            JobState::Done { .. } => Ok(self.folder(owner, id).join(REPLY)),
            _ => Err(Refusal::NoReply),
        }
    }

    /// Runs jobs until the server stops. The current run then ends after its layer.
    pub(super) fn work(&self) {
        while let Some((submitted, job)) = self.next() {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run(&job)));
            let outcome = outcome.unwrap_or_else(|_| {
                tracing::error!(job = job.short(), "a defect of this program ended a run");
                Outcome::Failed(Failure::Other)
            });
            // Recorded before it stops being the running job, so that a client always sees one or the other.
            let ended = self.end(&job, &outcome);
            let mut queue = self.lock();
            queue.running = None;
            if let (Outcome::Stopped, false) = (outcome, ended) {
                queue.waiting.insert(submitted, job);
            }
            self.counted(&queue);
        }
    }

    /// Deletes expired files from time to time, until the server stops.
    pub(super) fn tidy(&self) {
        loop {
            for owner in self.storage.owners() {
                self.storage.tidy(&owner);
                {
                    // Held until they are deleted, so that no job is queued whose request is about to go.
                    let queue = self.lock();
                    let needed = queue.jobs().filter(|job| job.owner == owner);
                    let needed = needed.map(|job| job.request).collect();
                    self.storage.tidy_requests(&owner, &needed);
                }
                self.expire(&owner);
            }
            let began = Instant::now();
            let mut queue = self.lock();
            while began.elapsed() < TIDY {
                if self.stop.load(Ordering::SeqCst) {
                    return;
                }
                let waited = self
                    .changed
                    .wait_timeout(queue, TIDY.saturating_sub(began.elapsed()));
                queue = waited.unwrap_or_else(PoisonError::into_inner).0;
            }
        }
    }

    /// Starts no more jobs; the running one ends after its layer.
    pub(super) fn stop(&self) {
        // Under the lock: a thread that has read the flag before is waiting by now and will be woken.
        let queue = self.lock();
        self.stop.store(true, Ordering::SeqCst);
        drop(queue);
        self.changed.notify_all();
    }

    /// Records that the server stops now, which is not the running job's fault.
    pub(super) fn forgive(&self) {
        // Held while reading and writing: the job may end at this moment, and its end must stay.
        let queue = self.lock();
        let Some(job) = queue.running.as_ref().map(|running| &running.job) else {
            return;
        };
        let path = self.folder(&job.owner, &job.id).join(JOB);
        let written = read::<JobRecord>(&path).and_then(|mut record| {
            if record.state != State::Queued {
                return Ok(());
            }
            record.attempts = 0;
            write(&path, &record)
        });
        if let Err(error) = written {
            let detail = without_ids(&error);
            tracing::warn!(job = job.short(), detail, "a job could not be written down");
        }
    }

    fn next(&self) -> Option<(u64, Job)> {
        let mut queue = self.lock();
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if let Some((submitted, job)) = queue.take() {
                queue.running = Some(Running {
                    job: job.clone(),
                    layer: 0,
                    of: 0,
                    part: 0.0,
                    left: queue.whole,
                    since: Instant::now(),
                });
                return Some((submitted, job));
            }
            let waited = self.changed.wait(queue);
            queue = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn run(&self, job: &Job) -> Outcome {
        let folder = self.folder(&job.owner, &job.id);
        let path = folder.join(JOB);
        let mut record: JobRecord = match read(&path) {
            Ok(record) => record,
            Err(error) => return failed(job, &error),
        };
        let Ok(keys) = record.keys.parse::<Digest>() else {
            return Outcome::Failed(Failure::Other);
        };
        if record.attempts >= MAX_ATTEMPTS {
            return Outcome::Failed(Failure::Crashed);
        }
        record.attempts += 1;
        if let Err(error) = write(&path, &record) {
            return failed(job, &error);
        }
        let files = RunFiles {
            keys: self.storage.keys_path(&job.owner, &keys),
            request: self.storage.request_path(&job.owner, &job.request),
            out: folder.join(REPLY),
            checkpoint: Some(folder.join(CHECKPOINTS)),
            // Beside the reply.
            spill: None,
        };
        tracing::info!(job = job.short(), "job begins");
        let began = Instant::now();
        let record = Mutex::new(record);
        let watch = |event: JobEvent| {
            self.progress(job, &event);
            if let JobEvent::Layer { .. } = event {
                let mut record = record.lock().unwrap_or_else(PoisonError::into_inner);
                record.attempts = 0;
                // If this fails, the job at worst fails a little early.
                let _ = write(&path, &*record);
            }
        };
        match self.context.run_until(&files, &self.stop, &watch) {
            Ok(report) => {
                let seconds = began.elapsed().as_secs_f64();
                tracing::info!(job = job.short(), seconds, bytes = report.bytes, "job done");
                Outcome::Done
            }
            Err(ServeError::Fhe(FheJobError::Stopped)) => {
                self.forgive();
                tracing::info!(
                    job = job.short(),
                    "job stopped after a layer: it goes on at the next start"
                );
                Outcome::Stopped
            }
            Err(error) => failed(job, &error),
        }
    }

    /// Records the end of a job. Returns false if it has not ended, or if its end could not be written; the job then
    /// waits again at the next start.
    fn end(&self, job: &Job, outcome: &Outcome) -> bool {
        let state = match outcome {
            Outcome::Stopped => return false,
            Outcome::Done => {
                self.metrics.job_ended("done");
                State::Done
            }
            Outcome::Failed(why) => {
                self.metrics.job_ended(why.name());
                State::Failed(why.name().to_owned())
            }
        };
        let folder = self.folder(&job.owner, &job.id);
        let path = folder.join(JOB);
        let held = self.lock();
        let written = read::<JobRecord>(&path).and_then(|mut record| {
            record.state = state;
            record.ended = Some(now());
            write(&path, &record)
        });
        drop(held);
        if let Err(error) = written {
            tracing::warn!(
                job = job.short(),
                reason = error.name(),
                detail = without_ids(&error),
                "the end of a job could not be written down"
            );
            return false;
        }
        if let Outcome::Done = outcome {
            // The same request again finds the reply.
            remove(&self.storage.request_path(&job.owner, &job.request));
            let _ = fs::remove_dir_all(folder.join(CHECKPOINTS));
        }
        true
    }

    fn progress(&self, job: &Job, event: &JobEvent) {
        let mut queue = self.lock();
        let mut whole = queue.whole;
        let Some(running) = queue.running.as_mut().filter(|running| running.job == *job) else {
            return;
        };
        match *event {
            JobEvent::Estimate { seconds, layers } => {
                (whole, running.of) = (seconds, layers);
                (running.left, running.since) = (seconds, Instant::now());
            }
            JobEvent::Resumed { layer } => running.layer = layer,
            JobEvent::Step {
                ref site,
                part,
                left,
                ..
            } => {
                // Reported by another thread, so it may be from the layer before.
                if site.layer() == Some(running.layer) {
                    running.part = part;
                }
                (running.left, running.since) = (left, Instant::now());
            }
            JobEvent::Layer {
                layer,
                of,
                seconds,
                left,
            } => {
                (running.layer, running.of, running.part) = (layer + 1, of, 0.0);
                (running.left, running.since) = (left, Instant::now());
                tracing::info!(
                    job = job.short(),
                    layer = layer + 1,
                    of,
                    seconds,
                    left,
                    "layer done"
                );
            }
            JobEvent::Keys { .. } => {}
        }
        queue.whole = whole;
    }

    fn state(&self, queue: &Queue, owner: &Owner, id: &Digest) -> JobState {
        let is_it = |job: &Job| job.owner == *owner && job.id == *id;
        let left = |seconds: f64| seconds.clamp(0.0, f64::from(u32::MAX)).ceil() as u32;
        if let Some(running) = queue.running.as_ref().filter(|r| is_it(&r.job)) {
            return JobState::Running {
                layer: narrow(running.layer.min(running.of)),
                of: narrow(running.of),
                part: (running.part.clamp(0.0, 1.0) * 1000.0) as u16,
                left: left(running.left - running.since.elapsed().as_secs_f64()),
            };
        }
        if let Some(place) = queue.place(is_it) {
            let before = queue.running.as_ref();
            let before = before.map(|r| (r.left - r.since.elapsed().as_secs_f64()).max(0.0));
            let seconds = before.unwrap_or(0.0) + (place + 1) as f64 * queue.whole;
            return JobState::Queued {
                ahead: narrow(place + usize::from(queue.running.is_some())),
                left: left(seconds),
            };
        }
        let folder = self.folder(owner, id);
        match read::<JobRecord>(&folder.join(JOB)).map(|record| record.state) {
            Ok(State::Done) => match fs::metadata(folder.join(REPLY)) {
                Ok(metadata) => JobState::Done {
                    bytes: metadata.len(),
                },
                Err(_) => JobState::Unknown,
            },
            Ok(State::Failed(why)) => JobState::Failed(Failure::named(&why)),
            // A job whose end could not be written waits for the next start.
            Ok(State::Queued) => JobState::Queued { ahead: 0, left: 0 },
            Err(_) => JobState::Unknown,
        }
    }

    /// Deletes the jobs of an owner that ended long ago.
    fn expire(&self, owner: &Owner) {
        let keep = self.storage.keep_time().as_secs();
        for folder in entries(&self.storage.jobs_folder(owner)) {
            // Held for each: a job that is requested again at this moment is not deleted along with its old state.
            let queue = self.lock();
            let name = folder.file_name().and_then(|name| name.to_str());
            let id = name.and_then(|name| name.parse::<Digest>().ok());
            let mut under_way = queue.jobs();
            if under_way.any(|job| job.owner == *owner && Some(job.id) == id) {
                continue;
            }
            let Ok(record) = read::<JobRecord>(&folder.join(JOB)) else {
                continue;
            };
            if let Some(ended) = record.ended
                && record.state != State::Queued
                && ended.saturating_add(keep) <= now()
            {
                // The record first: without it the job does not exist.
                remove(&folder.join(JOB));
                let _ = fs::remove_dir_all(&folder);
                tracing::info!(owner = owner.name(), "a reply has expired");
            }
        }
    }

    fn folder(&self, owner: &Owner, id: &Digest) -> PathBuf {
        self.storage.jobs_folder(owner).join(id.to_string())
    }

    fn lock(&self) -> MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

enum Outcome {
    Done,
    Failed(Failure),
    /// The server is stopping.
    Stopped,
}

fn failed(job: &Job, error: &ServeError) -> Outcome {
    let detail = without_ids(error);
    tracing::warn!(
        job = job.short(),
        reason = error.name(),
        detail,
        "job failed"
    );
    Outcome::Failed(failure(error))
}

/// What a client is told of its job's error.
fn failure(error: &ServeError) -> Failure {
    let ServeError::Fhe(error) = error else {
        return Failure::Model;
    };
    match error {
        FheJobError::Expired { .. } => Failure::Keys,
        FheJobError::Memory { .. } => Failure::Memory,
        FheJobError::File(FileError::NoRoom { .. }) => Failure::Disk,
        FheJobError::File(FileError::Io { source, .. })
            if source.kind() == std::io::ErrorKind::StorageFull =>
        {
            Failure::Disk
        }
        FheJobError::File(FileError::Io { path, .. } | FileError::Codec { path, .. }) => {
            of_path(path)
        }
        FheJobError::File(FileError::Content { path, .. } | FileError::Other { path, .. }) => {
            of_path(path)
        }
        FheJobError::OtherModel { .. } | FheJobError::Choices(_) | FheJobError::Plan(_) => {
            Failure::Model
        }
        _ => Failure::Other,
    }
}

/// The failure that a bad file of a job means.
fn of_path(path: &Path) -> Failure {
    match path.extension().and_then(|extension| extension.to_str()) {
        Some("keys") => Failure::Keys,
        Some("request") => Failure::Request,
        _ => Failure::Other,
    }
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn owners_take_turns() {
        let owner = |n| Owner::of(None, Some(Digest([n; 32])));
        let mut queue = Queue::default();
        // One owner with four jobs, then another with two, then a third with one.
        for (submitted, n) in [1, 1, 1, 1, 2, 2, 3].into_iter().enumerate() {
            let id = Digest([submitted as u8; 32]);
            let (owner, request) = (owner(n), id);
            queue
                .waiting
                .insert(submitted as u64, Job { owner, id, request });
        }
        let expected = [0, 4, 6, 1, 5, 2, 3];
        assert_eq!(queue.order(), expected);
        assert_eq!(queue.place(|job| job.id == Digest([5; 32])), Some(4));
        assert_eq!(queue.place(|job| job.id == Digest([9; 32])), None);
        let mut taken = Vec::new();
        while let Some((submitted, _)) = queue.take() {
            taken.push(submitted);
        }
        assert_eq!(taken, expected);
        assert!(queue.order().is_empty());
    }
}
