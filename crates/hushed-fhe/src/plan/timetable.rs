//! Where a run should be at each time, by its plan: the visits to its steps in order, with the seconds of each.
//!
//! A step can be visited more than once (attention does one group of heads after another), so the seconds per step do
//! not tell how far a run is. A dry run makes the same calls of [`crate::Slots::at`] as the run, and each call begins a
//! visit. Prices are those of the steps: the visits to a step add up to the cost of the step.

use std::collections::BTreeMap;

use hushed_ckks::CkksParams;
use hushed_model::StepId;

use super::prices::Prices;
use super::steps::{self, Done};
use crate::simulate::{Counts, Op, Visit};

/// The visits of a run. With an empty timetable, a run reports no progress as a fraction.
#[derive(Clone, Debug, Default)]
pub struct Timetable {
    visits: Vec<Planned>,
}

/// A visit to a step.
#[derive(Clone, Debug)]
struct Planned {
    site: StepId,
    layer: Option<usize>,
    /// Planned seconds of all earlier visits.
    before: f64,
    seconds: f64,
    /// The part of `seconds` spent in bootstraps.
    bootstraps: f64,
    /// Vectors refreshed by them.
    refreshed: u64,
}

impl Planned {
    fn after(&self) -> f64 {
        self.before + self.seconds
    }
}

impl Timetable {
    /// The visits of a dry run.
    pub(crate) fn new(counts: &Counts, params: &CkksParams, prices: &Prices) -> Timetable {
        let mut by_site = BTreeMap::new();
        let mut planned = |visit: &Visit| {
            let all: &[Done] = by_site.entry(visit.site).or_insert_with(|| steps::operations_of(counts, visit.site));
            let of = |these: fn(Op) -> bool| visit.operations.iter().filter(move |o| these(o.0));
            let seconds = |done: &Done| steps::seconds(*done, all, params, prices);
            Planned {
                layer: visit.site.layer(),
                site: visit.site,
                before: 0.0,
                seconds: visit.operations.iter().map(seconds).sum(),
                bootstraps: of(Op::is_bootstrap).map(seconds).sum(),
                refreshed: of(|op| op == Op::Refreshed).map(|o| o.2).sum(),
            }
        };
        Timetable::one_by_one(counts.visits.iter().map(&mut planned).collect())
    }

    fn one_by_one(mut visits: Vec<Planned>) -> Timetable {
        let mut before = 0.0;
        for visit in &mut visits {
            visit.before = before;
            before = visit.after();
        }
        Timetable { visits }
    }

    /// Planned seconds of the whole run.
    #[must_use]
    pub fn seconds(&self) -> f64 {
        self.visits.last().map_or(0.0, Planned::after)
    }

    /// The visited steps in order, with the planned seconds of each visit.
    pub fn visits(&self) -> impl Iterator<Item = (StepId, f64)> {
        self.visits.iter().map(|v| (v.site, v.seconds))
    }

    /// The number of the next visit to `site`, searching from number `from` on.
    pub(crate) fn find(&self, from: usize, site: StepId) -> Option<usize> {
        let rest = self.visits.iter().skip(from);
        let found = rest.enumerate().find(|(_, visit)| visit.site == site);
        found.map(|(number, _)| from + number)
    }

    /// Planned seconds before a visit.
    pub(crate) fn before(&self, visit: usize) -> f64 {
        let found = self.visits.get(visit);
        found.map_or_else(|| self.seconds(), |visit| visit.before)
    }

    /// Planned seconds of a visit.
    pub(crate) fn seconds_of(&self, visit: usize) -> f64 {
        self.visits.get(visit).map_or(0.0, |visit| visit.seconds)
    }

    /// The planned seconds of a visit done once `refreshed` vectors are refreshed. All other work counts at its end.
    pub(crate) fn done_of(&self, visit: usize, refreshed: u64) -> f64 {
        let Some(visit) = self.visits.get(visit) else {
            return 0.0;
        };
        let all = visit.refreshed.max(1);
        visit.bootstraps * refreshed.min(all) as f64 / all as f64
    }

    /// The fraction of the visit's layer, or of the steps before or after all layers, that lies before planned second
    /// `at`.
    pub(crate) fn part(&self, visit: usize, at: f64) -> f64 {
        let Some(here) = self.visits.get(visit) else {
            return 0.0;
        };
        let of_layer = |other: &&Planned| other.layer == here.layer;
        let before = self.visits.get(..=visit).unwrap_or_default().iter().rev();
        let after = self.visits.iter().skip(visit);
        let first = before.take_while(of_layer).last();
        let last = after.take_while(of_layer).last();
        let (Some(first), Some(last)) = (first, last) else {
            return 0.0;
        };
        let whole = last.after() - first.before;
        match whole > 0.0 {
            true => ((at - first.before) / whole).clamp(0.0, 1.0),
            false => 0.0,
        }
    }

    /// A timetable of visits of the given seconds, without refreshes.
    #[cfg(test)]
    pub(crate) fn of(visits: &[(&'static str, f64)]) -> Timetable {
        let planned = |&(site, seconds): &(&'static str, f64)| Planned {
            site: StepId::outside(site),
            layer: site.strip_prefix("layer.").and_then(|rest| rest.split('.').next()?.parse().ok()),
            before: 0.0,
            seconds,
            bootstraps: 0.0,
            refreshed: 0,
        };
        Timetable::one_by_one(visits.iter().map(planned).collect())
    }
}
