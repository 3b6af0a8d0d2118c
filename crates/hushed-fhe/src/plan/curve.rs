//! What few texts a run cost beside many: a plan for each number of texts that packed rows have room for, and one for a
//! batch.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::keys::EvalKeyPlan;
use hushed_model::Program;
use serde::Serialize;

use super::{FheOptions, FhePlanReport, packed_placement};
use crate::choices::Choices;
use crate::error::FheError;

/// What a plan is to be least in.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Seconds from a request to its answer.
    Latency,
    /// Seconds a text, of a full run.
    Throughput,
}

/// A plan of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct CurvePoint {
    /// Texts a run.
    pub texts: usize,
    /// Pairs of columns beside each other in a vector; 1 in a batch.
    pub columns: usize,
    /// Seconds of a run at the server.
    pub seconds: f64,
    /// The same a text, if places are full.
    pub seconds_per_text: f64,
    /// Bytes of the evaluation keys, uploaded once.
    pub key_bytes: u64,
    /// Bytes of memory at the server.
    pub memory: u64,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// All plans, by texts, and the one that was chosen, with what it was asked for.
pub struct Curve {
    /// By texts, ascending.
    pub points: Vec<CurvePoint>,
    /// What the chosen plan was asked for.
    pub options: FheOptions,
    /// The chosen plan.
    pub report: FhePlanReport,
}

impl Goal {
    /// The plan that is least, of those that packed rows take and a batch. Those that do not run, or not in
    /// [`FheOptions::max_memory`], are left out.
    ///
    /// # Errors
    /// As [`FhePlanReport::new`] of a batch, if nothing else can be planned.
    pub fn plan(
        self,
        (program, choices, assumed): (&Program, &Choices, bool),
        params: &Arc<CkksParams>,
        bootstrap: &EvalKeyPlan,
        options: &FheOptions,
    ) -> Result<Curve, FheError> {
        let report = |asked: &FheOptions| {
            FhePlanReport::new(program, choices, assumed, params, bootstrap, asked)
        };
        let asked = |texts, placement| FheOptions {
            texts,
            placement,
            ..options.clone()
        };
        let mut plans = Vec::new();
        let mut texts = 1;
        while let Some(placement) = possible(packed_placement(
            program,
            choices,
            params,
            &asked(texts, None),
        ))?
        .flatten()
        {
            let room = params.slots() / options.rows / placement.columns;
            let asked = asked(room, Some(placement));
            plans.extend(possible(report(&asked))?.map(|report| (asked, report)));
            texts = room + 1;
        }
        let batch = asked(usize::MAX, None);
        match report(&batch) {
            Ok(report) => plans.push((batch, report)),
            Err(error) if plans.is_empty() => return Err(error),
            refused => drop(possible(refused)?),
        }
        let cost = |plan: &FhePlanReport| match self {
            Goal::Latency => plan.work.seconds,
            Goal::Throughput => plan.per_text.seconds,
        };
        let costs = plans.iter().map(|(_, plan)| cost(plan)).enumerate();
        let chosen = costs
            .min_by(|a, b| a.1.total_cmp(&b.1))
            .map_or(0, |(i, _)| i);
        let point = |(i, (_, plan)): (usize, &(FheOptions, FhePlanReport))| CurvePoint {
            texts: plan.texts,
            columns: plan.placement.columns,
            seconds: plan.work.seconds,
            seconds_per_text: plan.per_text.seconds,
            key_bytes: plan.key_bytes,
            memory: plan.memory.total(),
            chosen: i == chosen,
        };
        let points = plans.iter().enumerate().map(point).collect();
        let (options, report) = plans.swap_remove(chosen);
        Ok(Curve {
            points,
            options,
            report,
        })
    }
}

/// `None` for what this model, or this much memory, has no plan of.
fn possible<T>(plan: Result<T, FheError>) -> Result<Option<T>, FheError> {
    match plan {
        Ok(plan) => Ok(Some(plan)),
        Err(FheError::Unsupported { .. } | FheError::Levels { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
