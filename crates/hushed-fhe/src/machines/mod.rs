//! One run on several machines, simulated: a schedule's work in ranges with few live values at their cuts, each on the
//! machine that ends it first, with the seconds of the plan's prices and a stated bandwidth.
//!
//! A run on several machines ([`crate::run::worker`]) has these ranges, and the machine of each as a first choice. What
//! is assumed of it: every machine has the keys, the model and the request; a wide node, if it is no product of
//! matrices, is computed in tiles of eight vectors; sums of terms are kept where the terms are made and added at the
//! end, which gives the same bytes; a vector that is needed elsewhere is sent with as many primes as are read there.
//! Not counted: the time of serialising, of messages without vectors, and of reading keys.

pub(crate) mod chain;
pub(crate) mod part;
mod pieces;
mod ranges;
pub(crate) mod rules;
mod schedule;
#[cfg(test)]
mod tests;
pub(crate) mod tiles;
pub mod trace;
pub(crate) mod value;

use std::ops::Range;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::Program;
use serde::{Deserialize, Serialize};

use crate::choices::Choices;
use crate::dry::{FheOptions, traced_run};
use crate::error::FheError;
use crate::packing::PackingError;
use crate::plan::FhePlanReport;
use pieces::Pieces;
use ranges::{Cuts, WorkRange};
use schedule::{Cluster, Outcome, peak, schedule};

/// Ranges per machine that are tried: the more, the better they are spread, and the more is sent.
const SHARES: [usize; 5] = [4, 16, 64, 256, 1024];

/// A run on several machines, simulated.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct OnMachines {
    /// Machines that there are.
    pub machines: usize,
    /// Machines that it uses: more would not be quicker.
    pub used: usize,
    /// Cores of each.
    pub cores: usize,
    /// Seconds from the request to the reply.
    pub seconds: f64,
    /// Seconds on one machine divided by that.
    pub speed_up: f64,
    /// The part of their time that the machines compute.
    pub busy: f64,
    /// Ranges of work.
    pub ranges: usize,
    /// Bytes that a machine sends and receives, the most of any; the request included.
    pub moved: u64,
    /// The same for all machines, each byte once.
    pub moved_in_all: u64,
    /// Memory of a machine, the most of any.
    pub memory: u64,
    /// Bytes of evaluation keys to distribute.
    pub keys: u64,
    /// Hours of cores, those that wait included.
    pub core_hours: f64,
}

/// Simulates the run of a plan on these numbers of machines, with `rate` bytes per second between any two of them.
///
/// # Errors
/// Those of a dry run.
pub fn on_machines(
    (program, choices): (&Program, &Choices),
    params: &Arc<CkksParams>,
    options: &FheOptions,
    plan: &FhePlanReport,
    (machines, rate): (&[usize], f64),
) -> Result<Vec<OnMachines>, FheError> {
    let pieces = pieces((program, choices), params, options, plan)?;
    let cuts = Cuts::new(&pieces, params);
    let alone = {
        let ranges = cuts.ranges(f64::INFINITY);
        let outcome = schedule(&pieces, &ranges, &Cluster { machines: 1, rate, request: 0 });
        peak(&pieces, &ranges, &outcome)
    };
    let mut sizes: Vec<usize> = machines.iter().copied().chain([1]).map(|m| m.max(1)).collect();
    sizes.sort_unstable();
    sizes.dedup();
    let mut found: Vec<(usize, OnMachines)> = Vec::new();
    for used in sizes {
        let (outcome, ranges) = quickest(&pieces, &cuts, &Cluster { machines: used, rate, request: plan.bytes_up });
        if let Some((_, before)) = found.last().filter(|(_, before)| before.seconds <= outcome.seconds) {
            let same = OnMachines { machines: used, ..before.clone() };
            found.push((used, same));
            continue;
        }
        let cores = options.prices.threads;
        // What a machine holds besides vectors, as decompositions, grows with them as in a run on one.
        let held = peak(&pieces, &ranges, &outcome) as f64 / alone.max(1) as f64;
        let vectors = if used == 1 { plan.memory.vectors } else { (plan.memory.vectors as f64 * held) as u64 };
        let busy: f64 = outcome.busy.iter().sum();
        let moved: u64 = outcome.moved.iter().sum();
        let fetched = (used as u64 - 1) * plan.bytes_up;
        found.push((
            used,
            OnMachines {
                machines: used,
                used,
                cores,
                seconds: outcome.seconds,
                speed_up: plan.work.seconds / outcome.seconds,
                busy: busy / (outcome.seconds * used as f64),
                ranges: ranges.len(),
                moved: outcome.moved.iter().copied().max().unwrap_or(0),
                // Between machines each byte is sent and received.
                moved_in_all: fetched + (moved - fetched) / 2,
                memory: plan.memory.total() - plan.memory.vectors + vectors,
                keys: plan.key_bytes * used as u64,
                core_hours: outcome.seconds * (used * cores) as f64 / 3600.0,
            },
        ));
    }
    let of = |size: &usize| found.iter().find(|(used, _)| used == size).map(|(_, of)| of.clone());
    Ok(machines.iter().filter_map(|size| of(&(*size).max(1))).collect())
}

/// The ranges of a run and the machine of each, for all processes that run it: the recorded nodes, cut.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Division {
    /// Seconds from the first range to the last, by the plan's prices.
    pub seconds: f64,
    /// Bytes of values that go from one machine to another.
    pub moved: u64,
    /// In the order of the run.
    pub ranges: Vec<PlannedRange>,
}

/// A range of nodes that one machine runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedRange {
    /// The node before which it ends; it begins where the one before it ends.
    pub end: usize,
    /// The machine that could begin it first.
    pub machine: usize,
    /// Seconds by the plan's prices.
    pub seconds: f64,
}

impl Division {
    /// Cuts the run of a plan for so many machines, with `rate` bytes per second between any two of them.
    ///
    /// # Errors
    /// As [`on_machines`].
    pub fn new(
        model: (&Program, &Choices),
        params: &Arc<CkksParams>,
        options: &FheOptions,
        plan: &FhePlanReport,
        (machines, rate): (usize, f64),
    ) -> Result<Division, FheError> {
        let pieces = pieces(model, params, options, plan)?;
        let cluster = Cluster { machines, rate, request: plan.bytes_up };
        let (outcome, ranges) = quickest(&pieces, &Cuts::new(&pieces, params), &cluster);
        let planned = ranges.iter().zip(&outcome.places).map(|(range, &machine)| {
            let (end, seconds) = (range.end, range.seconds);
            PlannedRange { end, machine, seconds }
        });
        // Between machines each byte is sent and received; every machine but the first gets the request.
        let moved =
            outcome.moved.iter().sum::<u64>().saturating_sub((machines as u64).saturating_sub(1) * plan.bytes_up);
        Ok(Division { seconds: outcome.seconds, moved: moved / 2, ranges: planned.collect() })
    }

    /// The nodes of each range; none unless they are `count` nodes in order.
    pub(crate) fn nodes(&self, count: usize) -> Option<Vec<Range<usize>>> {
        let mut from = 0;
        let range = |range: &PlannedRange| {
            let nodes = from..range.end;
            from = range.end;
            (nodes.start < nodes.end).then_some(nodes)
        };
        let nodes: Vec<Range<usize>> = self.ranges.iter().map(range).collect::<Option<_>>()?;
        (from == count).then_some(nodes)
    }
}

fn pieces(
    (program, choices): (&Program, &Choices),
    params: &Arc<CkksParams>,
    options: &FheOptions,
    plan: &FhePlanReport,
) -> Result<Pieces, FheError> {
    let (run, tapes) = traced_run(program, choices, params, options, &plan.placement)?;
    Ok(Pieces::new(&tapes, &run.counts, params, &options.prices).ok_or(PackingError::Mismatch)?)
}

/// The ranges with which these machines are the quickest.
fn quickest(pieces: &Pieces, cuts: &Cuts<'_>, cluster: &Cluster) -> (Outcome, Vec<WorkRange>) {
    let machines = cluster.machines.max(1);
    let tried = SHARES.iter().take(if machines == 1 { 1 } else { SHARES.len() }).map(|share| {
        let target = pieces.seconds() / (machines * share) as f64;
        let ranges = cuts.ranges(if machines == 1 { f64::INFINITY } else { target });
        (schedule(pieces, &ranges, cluster), ranges)
    });
    let best = tried.min_by(|(a, _), (b, _)| a.seconds.total_cmp(&b.seconds));
    best.unwrap_or_default()
}
