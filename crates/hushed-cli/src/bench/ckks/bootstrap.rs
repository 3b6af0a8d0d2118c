//! Whole bootstraps, all slots random in the unit square: one at a time, and several in one call.

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::{CkksError, CkksParams};
use serde_json::{Value, json};

use super::{Bench, describe, measure, with_threads};
use crate::bench::{BenchError, How};
use crate::machine::peak_memory;

/// Ciphertexts of one call.
const BATCH: usize = 4;

/// Rows of the sets that bootstrap.
pub fn bootstrap(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let mut rows = Vec::new();
        for params in [CkksParams::n15_boot()?, CkksParams::n16_boot()?] {
            if how.wants(&json!({ "set": params.literal().name })) {
                one_set(&params, how, &mut rows)?;
            }
        }
        Ok(rows)
    })
}

fn one_set(
    params: &Arc<CkksParams>,
    how: How<'_>,
    rows: &mut Vec<Value>,
) -> Result<(), BenchError> {
    let start = Instant::now();
    let bootstrapper = Bootstrapper::new(params, BootstrapLiteral::default())?;
    let matrices = start.elapsed().as_secs_f64();
    let plan = bootstrapper.key_plan()?;
    let key_bytes = plan.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
    let mut bench = Bench::new(params, &plan)?;
    let values = bench.random();
    let inputs = (0..BATCH)
        .map(|_| bench.encrypt(&values, params.bootstrap_limbs()))
        .collect::<Result<Vec<_>, _>>()?;
    let evaluator = &bench.evaluator;
    for batch in [1, BATCH] {
        let cts: Vec<_> = inputs.iter().take(batch).collect();
        let before = evaluator.counters().snapshot();
        let refreshed = bootstrapper.bootstrap_many(evaluator, &cts)?;
        let counts = evaluator.counters().snapshot().since(&before);
        let (seconds, runs) = measure(how.runs, || {
            bootstrapper.bootstrap_many(evaluator, &cts).map(drop)
        })?;
        let mut precision = (f64::INFINITY, 0.0);
        for ct in &refreshed {
            let (worst, mean) = bench.precision(ct, &values)?;
            precision = (precision.0.min(worst), precision.1 + mean / batch as f64);
        }
        let left = bootstrapper.output_limbs() - params.bootstrap_limbs();
        let counts: serde_json::Map<_, _> = counts
            .entries()
            .into_iter()
            .map(|(name, count)| (name.to_owned(), json!(count)))
            .collect();
        let mut about = describe(params);
        about["slots"] = json!(params.slots());
        about["batch"] = json!(batch);
        about["order"] = json!("slots to coefficients first");
        rows.push(json!({
            "name": "bootstrap",
            "params": about,
            "threads": how.threads,
            "seconds": seconds / batch as f64,
            "runs": runs,
            "setup_seconds": matrices + bench.key_seconds,
            "level": left,
            "modulus_bits_left": left * params.literal().levels.bits as usize,
            "precision_bits_min": precision.0,
            "precision_bits_mean": precision.1,
            "key_bytes": key_bytes,
            "plaintext_bytes": bootstrapper.plaintext_bytes(),
            "log2_failure": bootstrapper.log2_failure(),
            "counts": counts,
            "peak_rss": peak_memory(),
        }));
    }
    Ok(())
}
