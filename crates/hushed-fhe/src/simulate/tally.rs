//! The counters of a simulation: operations by step of the model and number of primes, rotations by distance, and
//! residues in memory.
//!
//! A *residue* is one polynomial modulo one prime, N words: 0.5 MiB at N = 2^16. A ciphertext has two per prime.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_model::StepId;
use serde::Serialize;

/// An operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
#[non_exhaustive]
pub enum Op {
    /// A rotation by a nonzero distance: a key switch, without its decomposition.
    Rotate,
    /// A conjugation: a key switch, without its decomposition.
    Conjugate,
    /// A rotated input of a grid of maps: an inner product with a key.
    MapBaby,
    /// A rotated sum of a grid of maps: a key switch with its own decomposition.
    MapGiant,
    /// A diagonal of a grid of maps times a rotated input.
    MapTerm,
    /// A decomposition for the rotations of one vector.
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
    /// An addition of a plaintext vector.
    AddVector,
    /// An addition or subtraction of two vectors.
    Add,
    /// A term of a linear map: a weight and a column.
    LinearTerm,
    /// A refreshed vector, by the primes of the result.
    Refreshed,
    /// A bootstrap of one or two vectors, by the primes of the result.
    Bootstrap,
    /// A call for up to eight vectors: keys and matrices are read once for its bootstraps.
    BootstrapCall,
    /// A vector written to disk.
    Store,
    /// A vector read back.
    Load,
}

impl Op {
    /// Whether its price is a part of what refreshes take.
    #[must_use]
    pub fn is_bootstrap(self) -> bool {
        matches!(self, Op::Bootstrap | Op::BootstrapCall)
    }
}

/// Operations of one kind in one step at one number of primes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Count {
    /// The step of the model, from [`crate::Slots::at`].
    pub site: StepId,
    /// The operation.
    pub op: Op,
    /// Primes of the operands.
    pub limbs: usize,
    /// How many times.
    pub times: u64,
}

/// Rotations by one distance at one number of primes: each distance needs a key, for the most primes at which it is
/// used.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub struct Rotations {
    /// Distance, in slots.
    pub by: usize,
    /// Primes of the operand.
    pub limbs: usize,
    /// How many times.
    pub times: u64,
}

/// Peak memory during one step.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Peak {
    /// The step.
    pub site: StepId,
    /// Residues of vectors, sums, decompositions and unfinished maps.
    pub residues: u64,
}

/// The operations from one call of [`crate::Slots::at`] to the next. A step has one visit each time it is entered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Visit {
    /// The step.
    pub site: StepId,
    /// Operation, primes of the operands, and how many times.
    pub operations: Vec<(Op, usize, u64)>,
}

/// A copy of the counters.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Counts {
    /// By step, operation and primes.
    pub operations: Vec<Count>,
    /// The same in order of execution.
    #[serde(skip)]
    pub visits: Vec<Visit>,
    /// By distance and primes.
    pub rotations: Vec<Rotations>,
    /// Rotations of grids of maps, which need keys of one shape.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub turns: Vec<Rotations>,
    /// By step.
    pub peaks: Vec<Peak>,
    /// Peak of bytes on disk.
    pub disk: u64,
}

impl Counts {
    /// How many times `op` was done in total.
    #[must_use]
    pub fn total(&self, op: Op) -> u64 {
        let those = self.operations.iter().filter(|c| c.op == op);
        those.map(|c| c.times).sum()
    }

    /// How many times `op` was done in steps whose path starts with `prefix`.
    #[cfg(test)]
    pub(crate) fn total_in(&self, op: Op, prefix: &str) -> u64 {
        let those = |c: &&Count| c.op == op && c.site.to_string().starts_with(prefix);
        self.operations.iter().filter(those).map(|c| c.times).sum()
    }

    /// The peak of residues in memory.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peaks.iter().map(|p| p.residues).max().unwrap_or(0)
    }
}

/// Counters, shared by threads. Counts do not depend on the order of threads; peaks do.
#[derive(Debug, Default)]
pub struct Tally(Mutex<State>);

/// Numbers of operations, by operation and primes.
type Done = BTreeMap<(Op, usize), u64>;

/// The counts of a call, so that equal calls need not be made.
#[derive(Debug)]
pub(super) struct Counted {
    operations: Done,
    /// Its peak of residues, in addition to those alive when it began.
    above: u64,
}

#[derive(Debug, Default)]
struct State {
    site: StepId,
    /// A call that is counted again, and how many times.
    repeated: Option<(Arc<Counted>, u64)>,
    /// The peak since this step began. It is updated for every vector, so it is kept separate from `peaks`.
    here: Option<u64>,
    /// One entry for each call of `at`.
    visits: Vec<(StepId, Done)>,
    rotations: BTreeMap<(usize, usize), u64>,
    turns: BTreeMap<(usize, usize), u64>,
    alive: u64,
    peaks: BTreeMap<StepId, u64>,
    stored: u64,
    stored_peak: u64,
}

impl Tally {
    fn with<T>(&self, f: impl FnOnce(&mut State) -> T) -> T {
        // Counters are consistent at all times, even if another thread panicked.
        f(&mut self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sets the step of the operations that follow.
    pub(super) fn at(&self, id: StepId) {
        self.with(|state| {
            if state.site != id {
                state.keep_peak();
                state.site = id;
                state.note_peak();
            }
            // Also for the same step: a step may separate its parts in this way.
            state.begin_visit();
        });
    }

    /// Begins another visit of the step, and returns its number.
    pub(super) fn visit(&self) -> usize {
        self.with(|state| {
            state.begin_visit();
            state.visits.len() - 1
        })
    }

    /// The current step.
    pub(super) fn site(&self) -> StepId {
        self.with(|state| state.site)
    }

    pub(super) fn count(&self, op: Op, limbs: usize, times: usize) {
        if times > 0 {
            self.with(|state| {
                *state.operations().entry((op, limbs)).or_default() += times as u64;
            });
        }
    }

    /// Makes `call` on its own: it stays in its step, rotates nothing, and owns everything counted until it ends.
    pub(super) fn counted<T>(&self, call: impl FnOnce() -> T) -> (T, Arc<Counted>) {
        let (before, peak, alive) = self.with(|state| {
            let before = std::mem::take(state.operations());
            (before, state.here.replace(state.alive), state.alive)
        });
        let made = call();
        let counted = self.with(|state| {
            let operations = std::mem::replace(state.operations(), before);
            state.add(&operations, 1);
            let above = state.here.unwrap_or(0).saturating_sub(alive);
            state.here = state.here.max(peak);
            Counted { operations, above }
        });
        (made, Arc::new(counted))
    }

    /// Counts a call once more.
    pub(super) fn again(&self, counted: &Arc<Counted>) {
        self.with(|state| {
            match &mut state.repeated {
                Some((same, times)) if Arc::ptr_eq(same, counted) => *times += 1,
                _ => {
                    state.keep_repeated();
                    state.repeated = Some((Arc::clone(counted), 1));
                }
            }
            state.here = state.here.max(Some(state.alive + counted.above));
        });
    }

    pub(super) fn rotate(&self, by: usize, limbs: usize) {
        self.count(Op::Rotate, limbs, 1);
        self.with(|state| *state.rotations.entry((by, limbs)).or_default() += 1);
    }

    /// A rotation of some input or sum of a grid of maps.
    pub(super) fn turn(&self, by: usize, limbs: usize) {
        self.with(|state| *state.turns.entry((by, limbs)).or_default() += 1);
    }

    /// The counters so far.
    #[must_use]
    pub fn counts(&self) -> Counts {
        self.with(|state| {
            state.keep_peak();
            state.keep_repeated();
            state.counts()
        })
    }

    /// Residues in memory now.
    #[must_use]
    pub fn alive(&self) -> u64 {
        self.with(|state| state.alive)
    }

    /// Resets the counters, except the residues in memory.
    pub fn reset(&self) {
        self.with(|state| {
            state.repeated = None;
            state.visits.clear();
            state.rotations.clear();
            state.turns.clear();
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
            rotations: rotations(&self.rotations),
            turns: rotations(&self.turns),
            peaks: self.peaks.iter().map(|(site, &residues)| Peak { site: *site, residues }).collect(),
            disk: self.stored_peak,
        }
    }

    fn begin_visit(&mut self) {
        self.keep_repeated();
        let site = self.site;
        self.visits.push((site, Done::new()));
    }

    /// The operations of this visit.
    fn operations(&mut self) -> &mut Done {
        if self.visits.is_empty() {
            self.begin_visit();
        }
        let last = self.visits.len() - 1;
        &mut self.visits[last].1
    }

    fn add(&mut self, operations: &Done, times: u64) {
        let here = self.operations();
        for (&operation, done) in operations {
            *here.entry(operation).or_default() += times * done;
        }
    }

    fn keep_repeated(&mut self) {
        if let Some((counted, times)) = self.repeated.take() {
            self.add(&counted.operations, times);
        }
    }

    fn by_step(&self) -> Vec<Count> {
        // One comparison of steps for each visit, not for each of its operations.
        let mut steps: BTreeMap<StepId, Done> = BTreeMap::new();
        for (site, operations) in &self.visits {
            let sums = steps.entry(*site).or_default();
            for (&operation, times) in operations {
                *sums.entry(operation).or_default() += times;
            }
        }
        let counts = steps.into_iter().flat_map(|(site, sums)| {
            let count = move |((op, limbs), times): ((Op, usize), u64)| Count { site, op, limbs, times };
            sums.into_iter().map(count)
        });
        counts.collect()
    }

    fn note_peak(&mut self) {
        self.here = Some(self.here.unwrap_or(0).max(self.alive));
    }

    /// Merges the peak of this visit into that of its step.
    fn keep_peak(&mut self) {
        if let Some(here) = self.here.take() {
            let peak = self.peaks.entry(self.site).or_default();
            *peak = (*peak).max(here);
        }
    }
}

fn rotations(counted: &BTreeMap<(usize, usize), u64>) -> Vec<Rotations> {
    let all = counted.iter();
    all.map(|(&(by, limbs), &times)| Rotations { by, limbs, times }).collect()
}

/// Residues that count as memory until this is dropped.
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
        Held { tally: Arc::clone(tally), residues }
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

/// Bytes that count as on disk until this is dropped.
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
        OnDisk { tally: Arc::clone(tally), bytes }
    }
}

impl Drop for OnDisk {
    fn drop(&mut self) {
        self.tally.with(|state| state.stored -= self.bytes);
    }
}
