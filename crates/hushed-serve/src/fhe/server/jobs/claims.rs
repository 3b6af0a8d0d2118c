//! Which job a process runs next: one that waits, and whose lease no other process has.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::PoisonError;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use super::lease::Lease;
use super::queue::{Job, Queue, Running};
use super::{JOB, JobRecord, Jobs, State};
use crate::digest::Digest;
use crate::fhe::record::read;
use crate::fhe::server::storage::{entries, without_ids};
use crate::fhe::wire::{Failure, job_id};

/// How often to look for jobs that are new, or that another process has left.
const LOOK: Duration = Duration::from_secs(2);

impl Jobs {
    /// Queues the jobs of the store that wait and are not known yet. Returns how many.
    pub(super) fn scan(&self, queue: &mut Queue) -> usize {
        let mut found = 0;
        for owner in self.storage.owners() {
            for folder in entries(&self.storage.jobs_folder(&owner)) {
                let name = folder.file_name().and_then(|name| name.to_str());
                let Some(id) = name.and_then(|name| name.parse::<Digest>().ok()) else {
                    continue;
                };
                let path = folder.join(JOB);
                if !path.is_file() || queue.jobs().any(|job| job.owner == owner && job.id == id) {
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
                let (Ok(keys), Ok(request)) = (record.keys.parse(), record.request.parse()) else {
                    continue;
                };
                // A store's other jobs, of another manifest, are not this process's.
                if record.state == State::Queued && job_id(&self.plan, &keys, &request) == id {
                    queue.waiting.insert(record.submitted, Job { owner: owner.clone(), id, request });
                    found += 1;
                }
            }
        }
        found
    }

    /// The next job, once there is one that no other process runs.
    pub(super) fn next(&self) -> Option<(u64, Job, Lease)> {
        let mut queue = self.lock();
        loop {
            if self.stop.load(Ordering::SeqCst) {
                return None;
            }
            if self.runs.scans {
                self.scan(&mut queue);
            }
            if let Some(claimed) = self.claim(&mut queue) {
                return Some(claimed);
            }
            if self.runs.until_empty && queue.waiting.is_empty() {
                return None;
            }
            let waited = self.changed.wait_timeout(queue, LOOK);
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// Takes the first job in order whose lease can be had.
    pub(super) fn claim(&self, queue: &mut Queue) -> Option<(u64, Job, Lease)> {
        self.refresh(queue);
        for submitted in queue.order() {
            let job = queue.waiting.get(&submitted)?.clone();
            let folder = self.folder(&job.owner, &job.id);
            let lease = match Lease::take(&folder, &self.holder) {
                // It may have ended since.
                Ok(Some(lease)) if self.end_of(&job).is_none() => lease,
                Ok(_) => continue,
                Err(error) => {
                    tracing::warn!(job = job.short(), detail = without_ids(&error), "a job could not be leased");
                    continue;
                }
            };
            let job = queue.take(submitted)?;
            queue.running = Some(Running {
                job: job.clone(),
                layer: 0,
                of: 0,
                part: 0.0,
                left: queue.whole,
                since: Instant::now(),
            });
            return Some((submitted, job, lease));
        }
        None
    }

    /// How a job has ended, if it has: here or in another process.
    fn end_of(&self, job: &Job) -> Option<&'static str> {
        let path = self.folder(&job.owner, &job.id).join(JOB);
        match read::<JobRecord>(&path).map(|record| record.state) {
            Ok(State::Queued) => None,
            Ok(State::Done) => Some("done"),
            Ok(State::Failed(why)) => Some(Failure::named(&why).name()),
            // A damaged one fails when it is run.
            Err(_) if path.is_file() => None,
            Err(_) => Some("gone"),
        }
    }

    /// Forgets waiting jobs that another process has ended.
    pub(super) fn refresh(&self, queue: &mut Queue) {
        queue.waiting.retain(|_, job| {
            let end = self.end_of(job);
            end.iter().for_each(|end| self.metrics.job_ended(end));
            end.is_none()
        });
        self.counted(queue);
    }
}
