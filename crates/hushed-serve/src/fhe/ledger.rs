//! The measured time of each step of a run, beside its planned time.

use hushed_fhe::plan::FhePlanReport;
use hushed_model::StepId;

/// A step of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct StepTime {
    /// Which step; `checkpoint` and `reply` are in no plan.
    pub site: StepId,
    /// Seconds by the plan, at the prices of docs/benchmarks.md.
    pub planned: f64,
    /// Seconds measured; `None` if it was done before the checkpoint.
    pub seconds: Option<f64>,
}

/// The steps of a plan with their measured times, followed by the measured steps that are not in it.
pub(super) fn ledger(plan: &FhePlanReport, measured: &[(StepId, f64)]) -> Vec<StepTime> {
    let planned = plan.steps.iter().map(|step| {
        let site = step.site;
        let found = measured.iter().find(|(at, _)| *at == site);
        StepTime { planned: step.work.seconds, seconds: found.map(|(_, seconds)| *seconds), site }
    });
    let known = |at: &StepId| plan.steps.iter().any(|step| step.site == *at);
    let others = measured.iter().filter(|(at, _)| !known(at));
    let others = others.map(|(site, seconds)| StepTime { site: *site, planned: 0.0, seconds: Some(*seconds) });
    planned.chain(others).collect()
}
