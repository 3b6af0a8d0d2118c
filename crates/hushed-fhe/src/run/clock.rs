//! The position of a run and the time of its steps: seconds per step, and the place in the [`Timetable`] of its plan.
//!
//! The run reports its steps ([`crate::Slots::at`]) and its refreshed vectors; observers call [`Clock::progress`] at
//! any time.

use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use hushed_model::StepId;

use crate::plan::Timetable;

/// Interval between progress reports.
const TOLD_EVERY: Duration = Duration::from_secs(1);

/// Fraction of the planned time after which the estimate of the time left uses the time taken.
const TELLING: f64 = 0.01;

/// Progress of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct Progress {
    /// The current step.
    pub site: StepId,
    /// Planned seconds of the whole run.
    pub planned: f64,
    /// The part of them before the current position, including what a checkpoint had.
    pub behind: f64,
    /// The part of those that was done in this run.
    pub worked: f64,
    /// Seconds that this run took for it.
    pub taken: f64,
    /// Fraction of the layer done, up to 1; outside layers, of everything before or after them.
    pub part: f64,
}

impl Progress {
    /// Fraction of the whole run done, up to 1.
    #[must_use]
    pub fn done(&self) -> f64 {
        match self.planned > 0.0 {
            true => (self.behind / self.planned).clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    /// Estimated seconds left: by the plan, scaled by how the work done compares with it once there is enough to
    /// compare.
    #[must_use]
    pub fn left(&self) -> f64 {
        let left = (self.planned - self.behind).max(0.0);
        match self.worked > TELLING * self.planned {
            true => left * self.taken / self.worked,
            false => left,
        }
    }
}

/// The clock of successive runs. Shared by threads; no call waits for the run.
#[derive(Debug, Default)]
pub struct Clock(Mutex<State>);

#[derive(Debug, Default)]
struct State {
    table: Arc<Timetable>,
    began: Option<Instant>,
    /// Per step, in the order of first visits.
    seconds: Vec<(StepId, f64)>,
    /// The current step, as an index into `seconds`.
    now: Option<(usize, Instant)>,
    /// Its visit in the table, if it has one.
    visit: Option<usize>,
    /// The first visit after everything done.
    next: usize,
    refreshed: u64,
    /// Planned seconds of the visits that this run has ended.
    worked: f64,
}

impl Clock {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // The state is valid at every moment, even after a panic elsewhere.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Resets the clock for a run of this table.
    pub fn begin(&self, table: Arc<Timetable>) {
        self.with(|state| {
            *state = State { table, began: Some(Instant::now()), ..State::default() };
        });
    }

    /// Begins a visit to `site`, and so ends the one before. It is matched to the next visit to `site` in the table: a
    /// run resumed from a checkpoint finds its place in this way, and steps that the table lacks (writing a checkpoint)
    /// stay at the place where they occur.
    pub(crate) fn at(&self, site: StepId) {
        self.with(|state| {
            let time = Instant::now();
            state.began.get_or_insert(time);
            state.end_visit(time);
            let known = state.seconds.iter().position(|(at, _)| *at == site);
            let step = known.unwrap_or_else(|| {
                state.seconds.push((site, 0.0));
                state.seconds.len() - 1
            });
            state.now = Some((step, time));
            state.visit = state.table.find(state.next, site);
            if let Some(visit) = state.visit {
                state.next = visit;
            }
        });
    }

    /// Counts `vectors` more refreshed vectors.
    pub(crate) fn refreshed(&self, vectors: usize) {
        self.with(|state| state.refreshed += vectors as u64);
    }

    /// The progress of the run; `None` before its first step.
    #[must_use]
    pub fn progress(&self) -> Option<Progress> {
        self.with(|state| {
            let (step, _) = state.now?;
            let (site, _) = state.seconds.get(step)?;
            let done = state.visit.map_or(0.0, |visit| state.table.done_of(visit, state.refreshed));
            let behind = state.table.before(state.next) + done;
            Some(Progress {
                site: *site,
                planned: state.table.seconds(),
                behind,
                worked: state.worked + done,
                taken: state.began?.elapsed().as_secs_f64(),
                part: state.visit.map_or(0.0, |visit| state.table.part(visit, behind)),
            })
        })
    }

    /// Reports progress while `work` runs, and once at its end, from a separate thread: those of the pool are busy.
    pub fn tell<T>(&self, watch: &(dyn Fn(Progress) + Sync), work: impl FnOnce() -> T) -> T {
        thread::scope(|scope| {
            // Dropped when the work ends, however it ends.
            let (working, ended) = mpsc::channel::<()>();
            let look = move || {
                let mut over = false;
                while !over {
                    let waited = ended.recv_timeout(TOLD_EVERY);
                    over = waited == Err(RecvTimeoutError::Disconnected);
                    if let Some(now) = self.progress() {
                        watch(now);
                    }
                }
            };
            // If the system has no thread to spare, the run reports nothing.
            let _ = thread::Builder::new().spawn_scoped(scope, look);
            let done = work();
            drop(working);
            done
        })
    }

    /// Seconds of each step so far, in the order of first visits.
    #[must_use]
    pub fn seconds(&self) -> Vec<(StepId, f64)> {
        self.with(|state| {
            let mut seconds = state.seconds.clone();
            if let Some((step, since)) = state.now
                && let Some((_, sum)) = seconds.get_mut(step)
            {
                *sum += since.elapsed().as_secs_f64();
            }
            seconds
        })
    }
}

impl State {
    fn end_visit(&mut self, time: Instant) {
        if let Some((step, since)) = self.now.take()
            && let Some((_, sum)) = self.seconds.get_mut(step)
        {
            *sum += time.duration_since(since).as_secs_f64();
        }
        if let Some(visit) = self.visit.take() {
            self.worked += self.table.seconds_of(visit);
            self.next = visit + 1;
        }
        self.refreshed = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_follows_what_was_taken() {
        let at = |behind, worked, taken| Progress {
            site: StepId::outside("x"),
            planned: 100.0,
            behind,
            worked,
            taken,
            part: 0.0,
        };
        // By the plan until there is enough to compare.
        assert_eq!(at(0.5, 0.5, 60.0).left(), 99.5);
        assert_eq!(at(20.0, 20.0, 40.0).left(), 160.0);
        assert_eq!(at(20.0, 20.0, 10.0).left(), 40.0);
        // A checkpoint's work is done, but does not tell how quick this run is.
        assert_eq!(at(60.0, 10.0, 20.0).left(), 80.0);
        assert_eq!((at(60.0, 10.0, 20.0).done(), at(0.0, 0.0, 1.0).done()), (0.6, 0.0));
        assert_eq!((at(100.0, 100.0, 9.0).done(), at(100.0, 100.0, 9.0).left()), (1.0, 0.0));
        // Nothing is known without a table.
        let none = Progress { planned: 0.0, ..at(0.0, 0.0, 5.0) };
        assert_eq!((none.done(), none.left()), (0.0, 0.0));
    }

    #[test]
    fn a_run_finds_its_place() {
        let visits = [
            ("input", 1.0),
            ("layer.0.a", 2.0),
            ("layer.0.b", 3.0),
            ("layer.0.a", 4.0),
            ("layer.1.a", 5.0),
            ("pool", 5.0),
        ];
        let clock = Clock::default();
        clock.begin(Arc::new(Timetable::of(&visits)));
        assert_eq!(clock.progress(), None);
        let at = |site: &'static str| {
            let site = StepId::outside(site);
            clock.at(site);
            let now = clock.progress().unwrap();
            assert_eq!((now.site, now.planned), (site, 20.0));
            (now.behind, now.worked, now.part)
        };
        assert_eq!(at("input"), (0.0, 0.0, 0.0));
        assert_eq!(at("layer.0.a"), (1.0, 1.0, 0.0));
        assert_eq!(at("layer.0.b"), (3.0, 3.0, 2.0 / 9.0));
        assert_eq!(at("layer.0.a"), (6.0, 6.0, 5.0 / 9.0));
        // Not in the plan: everything before it is done.
        assert_eq!(at("checkpoint"), (10.0, 10.0, 0.0));
        assert_eq!(at("layer.1.a"), (10.0, 10.0, 0.0));
        assert_eq!(at("pool"), (15.0, 15.0, 0.0));
        assert_eq!(at("reply"), (20.0, 20.0, 0.0));
        let seconds = clock.seconds();
        let sites: Vec<String> = seconds.iter().map(|(site, _)| site.to_string()).collect();
        let first = ["input", "layer.0.a", "layer.0.b", "checkpoint", "layer.1.a", "pool", "reply"];
        assert_eq!(sites, first);
        assert!(seconds.iter().all(|(_, seconds)| *seconds >= 0.0));

        // After a checkpoint: layer 0 is done, but not by this run.
        clock.begin(Arc::new(Timetable::of(&visits)));
        assert_eq!(at("input"), (0.0, 0.0, 0.0));
        assert_eq!(at("layer.1.a"), (10.0, 1.0, 0.0));
        assert_eq!(at("pool"), (15.0, 6.0, 0.0));
        assert_eq!(clock.seconds().len(), 3);
    }
}
