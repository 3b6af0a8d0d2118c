//! What a simulation counts: operations by step of the model and number of primes, rotations by distance, and the
//! residues that are alive.
//!
//! A *residue* is one polynomial modulo one prime, N words: 0.5 MiB at N = 2^16. A vector has two a prime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_model::StepId;
use serde::Serialize;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// A rotation by other than zero: a key switch, without its decomposition.
    Rotate,
    /// A conjugation: a key switch, without its decomposition.
    Conjugate,
    /// A decomposition, for the rotations of one vector.
    Hoist,
    /// A product of two vectors, not relinearised.
    Tensor,
    /// A relinearisation: a key switch.
    Relinearise,
    /// A rescale.
    Rescale,
    /// A vector times a number.
    Multiple,
    /// A vector times a plaintext vector.
    MulVector,
    /// A plaintext vector added.
    AddVector,
    /// A vector added or taken away.
    Add,
    /// A term of a linear map: a weight and a column.
    LinearTerm,
    /// A vector refreshed, by the primes that it has afterwards.
    Refreshed,
    /// A bootstrap, of one or two vectors, by the primes that they have afterwards.
    Bootstrap,
    /// A vector written to disk.
    Store,
    /// A vector read back.
    Load,
}

/// Operations of one kind in one step at one number of primes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The step of the model, as [`crate::Slots::at`] was told.
    pub site: StepId,
    /// What.
    pub op: Op,
    /// Primes of the operands.
    pub limbs: usize,
    /// How often.
    pub times: u64,
}

/// Rotations by one distance at one number of primes: each distance is a key, made for the most primes that it is used
/// at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rotations {
    /// Slots.
    pub by: usize,
    /// Primes.
    pub limbs: usize,
    /// How often.
    pub times: u64,
}

/// The most that was alive during one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// The step.
    pub site: StepId,
    /// Residues of vectors, sums, decompositions and unfinished maps.
    pub residues: u64,
}

/// What was done from one call of [`crate::Slots::at`] to the next: a step has as many of these as it is gone back to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The step.
    pub site: StepId,
    /// What, the primes of the operands, and how often.
    pub operations: Vec<(Op, usize, u64)>,
}

/// A copy of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// By step, operation and primes.
    pub operations: Vec<Count>,
    /// The same in the order in which it was done.
    #[serde(skip)]
    pub visits: Vec<Visit>,
    /// By distance and primes.
    pub rotations: Vec<Rotations>,
    /// By step.
    pub peaks: Vec<Peak>,
    /// Bytes on disk at the worst moment.
    pub disk: u64,
}

impl Counts {
    /// How often `op` was done in all.
    #[must_use]
    pub fn total(&self, op: Op) -> u64 {
        self.total_in(op, "")
    }

    /// How often `op` was done in steps whose path begins with `prefix`.
    #[must_use]
    pub fn total_in(&self, op: Op, prefix: &str) -> u64 {
        let those = |c: &&Count| c.op == op && c.site.to_string().starts_with(prefix);
        self.operations.iter().filter(those).map(|c| c.times).sum()
    }

    /// The most residues that were alive at once.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peaks.iter().map(|p| p.residues).max().unwrap_or(0)
    }
}

/// Counters, shared by threads. What each step does is the same in any order, so the counts are; peaks follow from the
/// order.
#[derive(Debug, Default)]
pub struct Tally(Mutex<State>);

/// How often, by operation and primes.
type Done = BTreeMap<(Op, usize), u64>;

#[derive(Debug, Default)]
struct State {
    site: StepId,
    /// The most that was alive since this step began: noted for every vector, so it is not looked up in `peaks`.
    here: Option<u64>,
    /// Call by call of `at`.
    visits: Vec<(StepId, Done)>,
    rotations: BTreeMap<(usize, usize), u64>,
    alive: u64,
    peaks: BTreeMap<StepId, u64>,
    stored: u64,
    stored_peak: u64,
}

impl Tally {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // Counters are sound at every moment, a panic elsewhere or not.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// The step that what follows belongs to.
    pub(super) fn at(&self, id: StepId) {
        self.with(|state| {
            if state.site != id {
                state.keep_peak();
                state.site = id;
                state.note_peak();
            }
            // Also without a change: a step may tell its parts apart.
            state.begin_visit();
        });
    }

    /// The step that is being done.
    pub(super) fn site(&self) -> StepId {
        self.with(|state| state.site)
    }

    pub(super) fn count(&self, op: Op, limbs: usize, times: usize) {
        if times > 0 {
            self.with(|state| {
                if state.visits.is_empty() {
                    state.begin_visit();
                }
                if let Some((_, operations)) = state.visits.last_mut() {
                    *operations.entry((op, limbs)).or_default() += times as u64;
                }
            });
        }
    }

    pub(super) fn rotate(&self, by: usize, limbs: usize) {
        self.count(Op::Rotate, limbs, 1);
        self.with(|state| *state.rotations.entry((by, limbs)).or_default() += 1);
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.with(|state| {
            state.keep_peak();
            state.counts()
        })
    }

    /// Residues that are alive now.
    #[must_use]
    pub fn alive(&self) -> u64 {
        self.with(|state| state.alive)
    }

    /// Begins anew; what is alive stays so.
    pub fn reset(&self) {
        self.with(|state| {
            state.visits.clear();
            state.rotations.clear();
            state.peaks.clear();
            state.here = None;
            state.stored_peak = state.stored;
            state.note_peak();
        });
    }
}

impl State {
    fn counts(&self) -> Counts {
        Counts {
            operations: self.by_step(),
            visits: self
                .visits
                .iter()
                .map(|(site, operations)| Visit {
                    site: *site,
                    operations: operations.iter().map(|(&(o, l), &t)| (o, l, t)).collect(),
                })
                .collect(),
            rotations: self
                .rotations
                .iter()
                .map(|(&(by, limbs), &times)| Rotations { by, limbs, times })
                .collect(),
            peaks: self
                .peaks
                .iter()
                .map(|(site, &residues)| Peak {
                    site: *site,
                    residues,
                })
                .collect(),
            disk: self.stored_peak,
        }
    }

    fn begin_visit(&mut self) {
        let site = self.site;
        self.visits.push((site, Done::new()));
    }

    fn by_step(&self) -> Vec<Count> {
        let mut sums: BTreeMap<(StepId, Op, usize), u64> = BTreeMap::new();
        for (site, operations) in &self.visits {
            for (&(op, limbs), times) in operations {
                *sums.entry((*site, op, limbs)).or_default() += times;
            }
        }
        let count = |((site, op, limbs), times): ((StepId, Op, usize), u64)| Count {
            site,
            op,
            limbs,
            times,
        };
        sums.into_iter().map(count).collect()
    }

    fn note_peak(&mut self) {
        self.here = Some(self.here.unwrap_or(0).max(self.alive));
    }

    /// The peak of this step so far, kept with those of its other visits.
    fn keep_peak(&mut self) {
        if let Some(here) = self.here.take() {
            let peak = self.peaks.entry(self.site).or_default();
            *peak = (*peak).max(here);
        }
    }
}

/// Residues that live as long as this does.
#[derive(Debug)]
pub(super) struct Held {
    tally: Arc<Tally>,
    residues: u64,
}

impl Held {
    pub(super) fn new(tally: &Arc<Tally>, residues: usize) -> Held {
        let residues = residues as u64;
        tally.with(|state| {
            state.alive += residues;
            state.note_peak();
        });
        Held {
            tally: Arc::clone(tally),
            residues,
        }
    }
}

impl Clone for Held {
    fn clone(&self) -> Held {
        Held::new(&self.tally, self.residues as usize)
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.tally.with(|state| state.alive -= self.residues);
    }
}

/// Bytes on disk that are there as long as this is.
#[derive(Debug)]
pub(super) struct OnDisk {
    tally: Arc<Tally>,
    bytes: u64,
}

impl OnDisk {
    pub(super) fn new(tally: &Arc<Tally>, bytes: u64) -> OnDisk {
        tally.with(|state| {
            state.stored += bytes;
            state.stored_peak = state.stored_peak.max(state.stored);
        });
        OnDisk {
            tally: Arc::clone(tally),
            bytes,
        }
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.tally.with(|state| state.stored -= self.bytes);
    }
}
