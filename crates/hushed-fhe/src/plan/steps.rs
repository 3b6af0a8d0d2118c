//! The cost of each step, from the counters of a dry run.

use std::collections::HashMap;

use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::StepId;
use serde::Serialize;

use super::prices::Prices;
use crate::simulate::{Counts, Op};

/// An operation, the primes of its operands, and how often it is done.
pub(crate) type Done = (Op, usize, u64);

/// Sums of more products than this per relinearisation use the grid kernel: polynomials have two or three.
const GRID: u64 = 4;

/// Operations of a step or a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Work {
    /// Rotations and conjugations: one key switch each.
    pub rotations: u64,
    /// Relinearisations: one key switch each.
    pub relinearisations: u64,
    /// Bootstraps of columns.
    pub bootstraps_wide: u64,
    /// Bootstraps of sums and variances.
    pub bootstraps_narrow: u64,
    /// Products of two vectors.
    pub products: u64,
    /// Weights times columns.
    pub linear_terms: u64,
    /// Rescales, those of relinearisations included.
    pub rescales: u64,
    /// Bytes to and from disk.
    pub disk_bytes: u64,
    /// Seconds by the prices, with the number of threads of those.
    pub seconds: f64,
    /// The part of `seconds` spent in bootstraps.
    pub bootstrap_seconds: f64,
}

impl Work {
    /// Key switches outside bootstraps.
    #[must_use]
    pub fn key_switches(&self) -> u64 {
        self.rotations + self.relinearisations
    }

    /// Bootstraps of both kinds.
    #[must_use]
    pub fn bootstraps(&self) -> u64 {
        self.bootstraps_wide + self.bootstraps_narrow
    }

    /// Adds the work of another step.
    pub fn add(&mut self, other: &Work) {
        self.rotations += other.rotations;
        self.relinearisations += other.relinearisations;
        self.bootstraps_wide += other.bootstraps_wide;
        self.bootstraps_narrow += other.bootstraps_narrow;
        self.products += other.products;
        self.linear_terms += other.linear_terms;
        self.rescales += other.rescales;
        self.disk_bytes += other.disk_bytes;
        self.seconds += other.seconds;
        self.bootstrap_seconds += other.bootstrap_seconds;
    }
}

/// One step of the ledger. Levels are rescales left before a vector has to be refreshed.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Step {
    /// The step.
    pub site: StepId,
    /// Level of the operands with the most primes; none if a step only refreshes.
    pub level_before: Option<usize>,
    /// Level of the results with the fewest primes, before any refresh.
    pub level_after: Option<usize>,
    /// Numbers of refreshed vectors, and the levels they are refreshed to.
    pub refreshed: Vec<(u64, usize)>,
    /// The operations.
    pub work: Work,
    /// Peak of live vectors, in bytes.
    pub peak: u64,
}

/// The priced steps of a dry run, in the order in which it first came to them. A step that refreshes `wide` vectors or
/// more refreshes columns.
pub(super) fn steps(counts: &Counts, params: &CkksParams, prices: &Prices, wide: usize) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for peak in &counts.peaks {
        let operations = operations_of(counts, peak.site);
        let level = |limbs: usize| limbs.saturating_sub(params.bootstrap_limbs());
        let other = |op: Op| op.is_bootstrap() || matches!(op, Op::Refreshed | Op::Store | Op::Load);
        let computed = operations.iter().filter(|(op, ..)| !other(*op));
        let rescaled = operations.iter().filter(|(op, ..)| *op == Op::Rescale);
        let refreshed: Vec<(u64, usize)> = operations
            .iter()
            .filter(|(op, ..)| *op == Op::Refreshed)
            .map(|&(_, limbs, times)| (times, level(limbs)))
            .collect();
        let least = rescaled.map(|&(_, limbs, _)| limbs - params.level_primes(limbs).min(limbs));
        let (before, least) = (computed.clone().map(|c| c.1).max(), least.min());
        let lowest = computed.map(|c| c.1).min();
        steps.push(Step {
            site: peak.site,
            level_before: before.map(level),
            level_after: least.or(lowest).map(level),
            work: work(&operations, params, prices, &refreshed, wide),
            refreshed,
            peak: peak.residues * 8 * params.n() as u64,
        });
    }
    steps.retain(|step| step.work != Work::default());
    let mut first: HashMap<StepId, usize> = HashMap::new();
    for (number, visit) in counts.visits.iter().enumerate() {
        first.entry(visit.site).or_insert(number);
    }
    steps.sort_by_key(|step| first.get(&step.site).copied());
    steps
}

/// All operations of a step.
pub(crate) fn operations_of(counts: &Counts, site: StepId) -> Vec<Done> {
    let those = counts.operations.iter().filter(|c| c.site == site);
    those.map(|c| (c.op, c.limbs, c.times)).collect()
}

/// Seconds of one operation of the step with operations `all`: the price of a product depends on how many products the
/// step's sums have.
pub(crate) fn seconds((op, limbs, times): Done, all: &[Done], params: &CkksParams, prices: &Prices) -> f64 {
    let each = match op {
        Op::Tensor => {
            let of = |wanted: Op| {
                let found = all.iter().find(|o| o.0 == wanted && o.1 == limbs);
                found.map_or(0, |o| o.2)
            };
            match of(Op::Tensor) > GRID * of(Op::Relinearise) {
                true => prices.grid_seconds(limbs),
                false => prices.seconds(op, limbs),
            }
        }
        Op::Store | Op::Load => {
            return disk_bytes(params, limbs, times) as f64 / prices.disk;
        }
        _ => prices.seconds(op, limbs),
    };
    times as f64 * each
}

fn disk_bytes(params: &CkksParams, limbs: usize, times: u64) -> u64 {
    times * Ciphertext::list_bytes(params, limbs, 1) as u64
}

fn work(operations: &[Done], params: &CkksParams, prices: &Prices, refreshed: &[(u64, usize)], wide: usize) -> Work {
    let columns = refreshed.iter().map(|r| r.0).sum::<u64>() >= wide as u64;
    let mut work = Work::default();
    for &(op, limbs, times) in operations {
        let seconds = seconds((op, limbs, times), operations, params, prices);
        match op {
            Op::Rotate | Op::Conjugate | Op::MapBaby | Op::MapGiant => work.rotations += times,
            Op::Relinearise => work.relinearisations += times,
            Op::Bootstrap if columns => work.bootstraps_wide += times,
            Op::Bootstrap => work.bootstraps_narrow += times,
            Op::Tensor => work.products += times,
            Op::LinearTerm => work.linear_terms += times,
            Op::Rescale => work.rescales += times,
            Op::Store | Op::Load => work.disk_bytes += disk_bytes(params, limbs, times),
            _ => {}
        }
        work.seconds += seconds;
        if op.is_bootstrap() {
            work.bootstrap_seconds += seconds;
        }
    }
    work
}
