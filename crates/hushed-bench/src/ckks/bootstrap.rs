//! Whole bootstraps of slots random in the square [−1, 1)²: of all slots, one ciphertext at a time, several per call,
//! and in two passes; and of few slots that repeat. Those in one pass are also timed step by step.

use std::sync::Arc;
use std::time::Instant;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper, encapsulate};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Evaluator};
use rayon::prelude::*;
use serde_json::{Value, json};

use super::{Bench, describe, measure, with_threads};
use crate::counters;
use crate::machine::peak_memory;
use crate::{BenchError, How, median};

/// Ciphertexts per call.
const BATCH: usize = 4;

/// Slots of a sparse message: one row of statistics for eight texts of 128 tokens.
const SPARSE: usize = 1024;

/// Bits that a second pass gains.
const GAIN: u32 = 12;

/// Ciphertexts per call, and passes.
#[derive(Clone, Copy)]
struct Form {
    batch: usize,
    passes: usize,
}

const ONE: Form = Form { batch: 1, passes: 1 };
const MANY: Form = Form { batch: BATCH, passes: 1 };
const TWICE: Form = Form { batch: 1, passes: 2 };

/// Measures the sets that bootstrap.
pub fn bootstrap(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let mut rows = Vec::new();
        let (n15, n16) = (CkksParams::n15_boot()?, CkksParams::n16_boot()?);
        let (precise, fast) = (CkksParams::n16_boot_precise()?, CkksParams::n16_boot_fast()?);
        for (params, slots, forms) in [
            (&n15, None, &[ONE, MANY, TWICE][..]),
            (&n16, None, &[ONE, MANY, TWICE]),
            (&precise, None, &[ONE, MANY, TWICE]),
            (&fast, None, &[ONE, MANY, TWICE]),
            (&n16, Some(SPARSE), &[ONE, MANY]),
        ] {
            one_set(params, slots, forms, how, &mut rows)?;
        }
        Ok(rows)
    })
}

fn one_set(
    params: &Arc<CkksParams>,
    slots: Option<usize>,
    forms: &[Form],
    how: How<'_>,
    rows: &mut Vec<Value>,
) -> Result<(), BenchError> {
    let about = |form: &Form| {
        let mut about = describe(params);
        about["slots"] = json!(slots.unwrap_or(params.slots()));
        about["batch"] = json!(form.batch);
        about["passes"] = json!(form.passes);
        about["order"] = json!("slots to coefficients first");
        about
    };
    let forms: Vec<&Form> = forms.iter().filter(|f| how.wants(&about(f))).collect();
    if forms.is_empty() {
        return Ok(());
    }
    let start = Instant::now();
    let literal = BootstrapLiteral { slots, ..BootstrapLiteral::default() };
    let bootstrapper = Bootstrapper::new(params, literal)?;
    let matrices = start.elapsed().as_secs_f64();
    let specs = bootstrapper.key_specs();
    let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
    let mut bench = Bench::new(params, &specs)?;
    let once = bench.random().into_iter().take(bootstrapper.slots());
    let once: Vec<Complex64> = once.collect();
    let values: Vec<Complex64> = once.iter().copied().cycle().take(params.slots()).collect();
    let inputs = (0..BATCH).map(|_| bench.encrypt(&values, params.bootstrap_limbs())).collect::<Result<Vec<_>, _>>()?;
    let evaluator = &bench.evaluator;
    for form in forms {
        let cts: Vec<_> = inputs.iter().take(form.batch).collect();
        let run = || -> Result<Vec<Ciphertext>, CkksError> {
            if form.passes == 1 {
                return bootstrapper.bootstrap_many(evaluator, &cts);
            }
            cts.iter().map(|ct| bootstrapper.bootstrap_twice(evaluator, ct, GAIN)).collect()
        };
        let before = evaluator.counters().snapshot();
        let refreshed = run()?;
        let counts = evaluator.counters().snapshot().since(&before);
        let (seconds, runs) = measure(how.runs, || run().map(drop))?;
        let batch = form.batch as f64;
        let mut precision = (f64::INFINITY, 0.0);
        for ct in &refreshed {
            let (worst, mean) = bench.precision(ct, &values)?;
            precision = (precision.0.min(worst), precision.1 + mean / batch);
        }
        let stages = match form.passes {
            1 => stages(&bootstrapper, evaluator, &cts, how.runs)?,
            _ => Value::Null,
        };
        let left = bootstrapper.output_limbs() - params.bootstrap_limbs();
        rows.push(json!({
            "name": "bootstrap",
            "params": about(form),
            "threads": how.threads,
            "seconds": seconds / batch,
            "stage_seconds": stages,
            "runs": runs,
            "setup_seconds": matrices + bench.key_seconds,
            "level": left,
            "modulus_bits_left": left * params.literal().levels.bits as usize,
            "precision_bits_min": precision.0,
            "precision_bits_mean": precision.1,
            "key_bytes": key_bytes,
            "plaintext_bytes": bootstrapper.plaintext_bytes(),
            "log2_failure": bootstrapper.log2_failure(),
            "counts": counters(&counts),
            "peak_rss": peak_memory(),
        }));
    }
    Ok(())
}

/// Seconds per ciphertext for each step: medians over `runs`. The steps are those of one call for `cts`, one after the
/// other.
fn stages(
    bootstrapper: &Bootstrapper,
    evaluator: &Evaluator,
    cts: &[&Ciphertext],
    runs: usize,
) -> Result<Value, CkksError> {
    let limbs = bootstrapper.params().bootstrap_limbs();
    let mut seconds: [Vec<f64>; 4] = Default::default();
    for _ in 0..runs {
        let low = cts.iter().map(|ct| evaluator.drop_to(ct, limbs));
        let low = low.collect::<Result<Vec<_>, _>>()?;
        let mut last = Instant::now();
        let mut lap = |stage: usize| {
            let now = Instant::now();
            seconds[stage].push((now - last).as_secs_f64() / cts.len() as f64);
            last = now;
        };
        let low = bootstrapper.slots_to_coeffs().apply(evaluator, low)?;
        lap(0);
        let low = low.into_iter().map(|ct| encapsulate(evaluator, ct));
        let low = low.collect::<Result<Vec<_>, _>>()?;
        lap(1);
        let parts = bootstrapper.coeffs_to_slots().apply(evaluator, &low)?;
        lap(2);
        let work: Vec<_> = parts.iter().zip(cts).collect();
        work.into_par_iter().try_for_each(|(parts, ct)| {
            let parts = parts.as_slice().par_iter();
            parts.try_for_each(|part| bootstrapper.reduce(evaluator, part, ct).map(drop))
        })?;
        lap(3);
    }
    let [first, second, third, fourth] = seconds.map(median);
    Ok(json!({
        "slots_to_coeffs": first,
        "encapsulate": second,
        "coeffs_to_slots": third,
        "eval_mod": fourth,
    }))
}
