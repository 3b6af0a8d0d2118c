//! The cost of small runs compared with a full batch: one plan for each number of texts that fit in packed rows, and
//! one for a batch.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_model::Program;
use serde::Serialize;

use super::{FheOptions, FhePlanReport, packed_placement};
use crate::choices::Choices;
use crate::dry::check_fits;
use crate::error::FheError;

/// The quantity that a plan minimises.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Goal {
    /// Seconds from a request to its answer.
    Latency,
    /// Seconds per text, with all places full.
    Throughput,
}

/// A plan of a curve.
#[derive(Clone, Debug, Serialize)]
pub struct CurvePoint {
    /// Texts per run.
    pub texts: usize,
    /// Pairs of columns side by side in a vector; 1 in a batch.
    pub columns: usize,
    /// Seconds of a run at the server.
    pub seconds: f64,
    /// Seconds per text if all places are full.
    pub seconds_per_text: f64,
    /// Bytes of the evaluation keys, uploaded once.
    pub key_bytes: u64,
    /// Bytes of memory at the server.
    pub memory: u64,
    /// Whether it was chosen.
    pub chosen: bool,
}

/// All plans, by number of texts, and the chosen one with its options.
pub struct Curve {
    /// By number of texts, ascending.
    pub points: Vec<CurvePoint>,
    /// The options of the chosen plan.
    pub options: FheOptions,
    /// The chosen plan.
    pub report: FhePlanReport,
}

impl Goal {
    /// The best plan among those of packed rows and that of a batch. Plans that do not run, or not within
    /// [`FheOptions::max_memory`], are left out.
    ///
    /// # Errors
    /// As [`FhePlanReport::new`] of a batch, if nothing else can be planned.
    pub fn plan(
        self,
        (program, choices, assumed): (&Program, &Choices, bool),
        params: &Arc<CkksParams>,
        bootstrap: &KeySpecs,
        options: &FheOptions,
    ) -> Result<Curve, FheError> {
        let report = |asked: &FheOptions| FhePlanReport::unfitted(program, choices, assumed, params, bootstrap, asked);
        let asked = |texts, placement| FheOptions { texts, placement, ..options.clone() };
        let mut plans = Vec::new();
        let mut texts = 1;
        while let Some(placement) = possible(packed_placement(program, choices, params, &asked(texts, None)))?.flatten()
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
        let chosen = costs.min_by(|a, b| a.1.total_cmp(&b.1)).map_or(0, |(i, _)| i);
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
        if !assumed {
            check_fits(program, choices, params, &options, &report.placement)?;
        }
        Ok(Curve { points, options, report })
    }
}

/// Maps errors of plans that this model or this much memory does not allow to `None`.
fn possible<T>(plan: Result<T, FheError>) -> Result<Option<T>, FheError> {
    match plan {
        Ok(plan) => Ok(Some(plan)),
        Err(FheError::Unsupported { .. } | FheError::Levels { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
