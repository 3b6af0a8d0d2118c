//! Jobs: a queue on disk; one thread of each process that runs them one after another (a run takes all cores), owners
//! in turn; and their replies until they expire.
//!
//! A job's record says whether it is waiting, done or failed. Who runs it holds its [lease](lease): however that
//! process ends, the job waits again, and the next one that looks continues from its last checkpoint.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod claims;
mod failure;
mod lease;
mod queue;
#[cfg(test)]
mod tests;

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use super::sharing::check_secret;
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
use failure::failure;
use lease::Lease;
use queue::{Job, Queue};

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

/// How a process runs the jobs of its store.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Runs {
    /// It looks for jobs that a server has put there, as it has no clients of its own.
    pub(super) scans: bool,
    /// It ends when no job waits.
    pub(super) until_empty: bool,
}

/// All jobs of a store, as one of its processes sees them.
pub(super) struct Jobs {
    storage: Storage,
    plan: Digest,
    context: RunContext,
    queue: Mutex<Queue>,
    changed: Condvar,
    stop: Arc<AtomicBool>,
    metrics: Arc<Metrics>,
    runs: Runs,
    /// This process, in leases.
    holder: String,
}

impl Jobs {
    /// Opens the jobs of a store; those that wait are queued in order of arrival.
    pub(super) fn open(
        storage: Storage,
        context: RunContext,
        metrics: Arc<Metrics>,
        runs: Runs,
    ) -> Result<Jobs, ServeError> {
        check_secret(storage.root(), &context.secret)?;
        let jobs = Jobs {
            storage,
            plan: Digest(context.plan.hash()),
            context,
            queue: Mutex::default(),
            changed: Condvar::new(),
            stop: Arc::default(),
            metrics,
            runs,
            holder: lease::holder()?,
        };
        let waiting = jobs.scan(&mut jobs.lock());
        tracing::info!(waiting, holder = jobs.holder, "the jobs that wait from before");
        Ok(jobs)
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
        self.refresh(&mut queue);
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
        make_folder(&folder).and_then(|()| write(&folder.join(JOB), &record)).map_err(|error| {
            tracing::warn!(reason = error.name(), "a job could not be written down");
            Refusal::NoRoom
        })?;
        let job = Job { owner: owner.clone(), id, request };
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
        while let Some((submitted, job, lease)) = self.next() {
            let outcome = catch_unwind(AssertUnwindSafe(|| self.run(&job, &lease)));
            let outcome = outcome.unwrap_or_else(|_| {
                tracing::error!(job = job.short(), "a defect of this program ended a run");
                Outcome::Failed(Failure::Other)
            });
            // Recorded before it stops being the running job, so that a client always sees one or the other.
            let ended = self.end(&job, &outcome);
            drop(lease);
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
                    let mut queue = self.lock();
                    self.refresh(&mut queue);
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
                let waited = self.changed.wait_timeout(queue, TIDY.saturating_sub(began.elapsed()));
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

    fn run(&self, job: &Job, lease: &Lease) -> Outcome {
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
            let state = {
                let mut queue = self.lock();
                queue.note(job, &event);
                queue.state(&job.owner, &job.id)
            };
            state.iter().for_each(|state| lease.tell(state));
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
                tracing::info!(job = job.short(), "job stopped after a layer: it goes on from there");
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

    fn state(&self, queue: &Queue, owner: &Owner, id: &Digest) -> JobState {
        let (known, folder) = (queue.state(owner, id), self.folder(owner, id));
        match known {
            // Another process may run it, or have ended it.
            Some(JobState::Queued { .. }) => {
                if let Some(running) = lease::heard(&folder) {
                    return running;
                }
            }
            Some(state) => return state,
            None => {}
        }
        match read::<JobRecord>(&folder.join(JOB)).map(|record| record.state) {
            Ok(State::Done) => match fs::metadata(folder.join(REPLY)) {
                Ok(metadata) => JobState::Done { bytes: metadata.len() },
                Err(_) => JobState::Unknown,
            },
            Ok(State::Failed(why)) => JobState::Failed(Failure::named(&why)),
            // A job whose end could not be written waits for the next start.
            Ok(State::Queued) => known.unwrap_or(JobState::Queued { ahead: 0, left: 0 }),
            Err(_) => known.unwrap_or(JobState::Unknown),
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
    tracing::warn!(job = job.short(), reason = error.name(), detail, "job failed");
    Outcome::Failed(failure(error))
}

fn micros() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |time| u64::try_from(time.as_micros()).unwrap_or(0))
}
