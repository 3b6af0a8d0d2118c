//! The jobs that wait and the one that runs, in memory: owners take turns.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, HashMap};
use std::time::Instant;

use crate::digest::Digest;
use crate::fhe::progress::JobEvent;
use crate::fhe::wire::JobState;
use crate::session::owner::Owner;

/// A job by its owner and id.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Job {
    pub(super) owner: Owner,
    pub(super) id: Digest,
    pub(super) request: Digest,
}

impl Job {
    pub(super) fn short(&self) -> String {
        // If clients are not told apart, the whole id gives a client access to a job, so it is not logged.
        self.id.to_string().chars().take(8).collect()
    }
}

#[derive(Default)]
pub(super) struct Queue {
    pub(super) waiting: BTreeMap<u64, Job>,
    pub(super) running: Option<Running>,
    /// When each owner's last job began, as a count of jobs.
    pub(super) served: HashMap<Owner, u64>,
    pub(super) begun: u64,
    /// Seconds that the last run was planned to take.
    pub(super) whole: f64,
}

impl Queue {
    /// The waiting jobs in the order in which they would run: owners in turn, the one served longest ago first, and
    /// each owner's jobs in order of arrival. So no client waits for another's whole queue.
    pub(super) fn order(&self) -> Vec<u64> {
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

    /// Takes a waiting job to run it.
    pub(super) fn take(&mut self, submitted: u64) -> Option<Job> {
        let job = self.waiting.remove(&submitted)?;
        self.begun += 1;
        self.served.insert(job.owner.clone(), self.begun);
        Some(job)
    }

    /// The number of jobs that would run before a waiting one.
    pub(super) fn place(&self, is_it: impl Fn(&Job) -> bool) -> Option<usize> {
        let (wanted, _) = self.waiting.iter().find(|(_, job)| is_it(job))?;
        self.order().iter().position(|place| place == wanted)
    }

    /// Notes the progress of the job that runs.
    pub(super) fn note(&mut self, job: &Job, event: &JobEvent) {
        let Some(running) = self.running.as_mut().filter(|running| running.job == *job) else {
            return;
        };
        match *event {
            JobEvent::Estimate { seconds, layers } => {
                (self.whole, running.of) = (seconds, layers);
                (running.left, running.since) = (seconds, Instant::now());
            }
            JobEvent::Resumed { layer } => running.layer = layer,
            JobEvent::Step { ref site, part, left, .. } => {
                // Reported by another thread, so it may be from the layer before.
                if site.layer() == Some(running.layer) {
                    running.part = part;
                }
                (running.left, running.since) = (left, Instant::now());
            }
            JobEvent::Layer { layer, of, seconds, left } => {
                (running.layer, running.of, running.part) = (layer + 1, of, 0.0);
                (running.left, running.since) = (left, Instant::now());
                tracing::info!(job = job.short(), layer = layer + 1, of, seconds, left, "layer done");
            }
            JobEvent::Keys { .. } => {}
        }
    }

    /// The state of a job that waits or runs.
    pub(super) fn state(&self, owner: &Owner, id: &Digest) -> Option<JobState> {
        let is_it = |job: &Job| job.owner == *owner && job.id == *id;
        let left = |seconds: f64| seconds.clamp(0.0, f64::from(u32::MAX)).ceil() as u32;
        if let Some(running) = self.running.as_ref().filter(|r| is_it(&r.job)) {
            return Some(JobState::Running {
                layer: narrow(running.layer.min(running.of)),
                of: narrow(running.of),
                part: (running.part.clamp(0.0, 1.0) * 1000.0) as u16,
                left: left(running.left - running.since.elapsed().as_secs_f64()),
            });
        }
        let place = self.place(is_it)?;
        let before = self.running.as_ref();
        let before = before.map(|r| (r.left - r.since.elapsed().as_secs_f64()).max(0.0));
        let seconds = before.unwrap_or(0.0) + (place + 1) as f64 * self.whole;
        Some(JobState::Queued { ahead: narrow(place + usize::from(self.running.is_some())), left: left(seconds) })
    }

    /// All jobs that wait or run.
    pub(super) fn jobs(&self) -> impl Iterator<Item = &Job> {
        let running = self.running.iter().map(|running| &running.job);
        self.waiting.values().chain(running)
    }
}

pub(super) struct Running {
    pub(super) job: Job,
    pub(super) layer: usize,
    pub(super) of: usize,
    pub(super) part: f64,
    /// Estimated seconds that were left at `since`.
    pub(super) left: f64,
    pub(super) since: Instant,
}

fn narrow(n: usize) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
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
            queue.waiting.insert(submitted as u64, Job { owner, id, request });
        }
        let expected = [0, 4, 6, 1, 5, 2, 3];
        assert_eq!(queue.order(), expected);
        assert_eq!(queue.place(|job| job.id == Digest([5; 32])), Some(4));
        assert_eq!(queue.place(|job| job.id == Digest([9; 32])), None);
        let mut taken = Vec::new();
        while let Some(next) = queue.order().first().copied() {
            queue.take(next).unwrap();
            taken.push(next);
        }
        assert_eq!(taken, expected);
        assert!(queue.order().is_empty());
    }
}
