//! Single operations: sums, products, rescales, rotations, encoding and decryption.

use hushed_ckks::{CkksError, CkksParams, Complex64};
use serde_json::{Value, json};

use super::{Bench, describe, measure, with_threads};
use crate::machine::peak_memory;
use crate::{BenchError, How};

/// Rotations of one ciphertext that share one decomposition.
const HOISTED: i64 = 32;
/// Rescales left.
const LEVELS: [usize; 4] = [2, 6, 13, 28];

/// Measures the inference parameter set.
pub fn operations(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut rows = Vec::new();
        for level in LEVELS {
            let wanted = json!({ "level": level });
            if how.wants(&wanted) {
                at(level, &params, how, &mut rows)?;
            }
        }
        Ok(rows)
    })
}

fn at(
    level: usize,
    params: &std::sync::Arc<CkksParams>,
    how: How<'_>,
    rows: &mut Vec<Value>,
) -> Result<(), BenchError> {
    let limbs = level + 1;
    let steps: Vec<i64> = (1..=HOISTED).collect();
    // Keys for ciphertexts of this length: at low levels they have few special primes and one digit.
    let specs = params.key_specs(limbs, true, &steps, false)?;
    let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)? / specs.len().max(1);
    let mut bench = Bench::new(params, &specs)?;
    let setup = bench.key_seconds;
    let values = bench.random();
    let mut row = |name: &str, each: usize, call: &mut dyn FnMut() -> Result<(), CkksError>| {
        let (seconds, runs) = measure(how.runs, call)?;
        rows.push(json!({
            "name": format!("ckks.{name}"),
            "params": describe(params),
            "level": level,
            "threads": how.threads,
            "seconds": seconds / each as f64,
            "runs": runs,
            "setup_seconds": setup,
            "key_bytes": key_bytes,
            "peak_rss": peak_memory(),
        }));
        Ok::<(), CkksError>(())
    };
    let scale = params.default_scale();
    row("encode", 1, &mut || bench.encoder.encode(&values, limbs, scale).map(drop))?;
    let plain = bench.encoder.encode(&values, limbs, scale)?;
    let a = bench.encryptor.encrypt(&plain, &mut bench.rng)?;
    let b = bench.encryptor.encrypt(&plain, &mut bench.rng)?;
    let evaluator = &bench.evaluator;
    let mut sum = evaluator.add(&a, &b)?;
    row("add", 1, &mut || evaluator.add_assign(&mut sum, &b))?;
    row("mul_plain", 1, &mut || evaluator.mul_plain(&a, &plain).map(drop))?;
    let factor = Complex64::new(0.3141, 0.0);
    let mut terms = evaluator.mul_scalar(&a, factor, scale)?;
    row("mul_scalar_add", 1, &mut || evaluator.mul_scalar_add_assign(&mut terms, &a, factor, scale))?;
    let product = evaluator.mul_plain(&a, &plain)?;
    row("rescale", 1, &mut || evaluator.rescale(&product).map(drop))?;
    row("mul", 1, &mut || evaluator.mul(&a, &b).map(drop))?;
    row("mul_rescale", 1, &mut || evaluator.mul_rescale(&a, &b).map(drop))?;
    let tensor = evaluator.tensor(&a, &b)?;
    row("tensor", 1, &mut || evaluator.tensor(&a, &b).map(drop))?;
    row("relinearise_rescale", 1, &mut || evaluator.relinearize_rescale(&tensor).map(drop))?;
    row("rotate", 1, &mut || evaluator.rotate(&a, 1).map(drop))?;
    row("rotate_hoisted", steps.len(), &mut || {
        let hoisted = evaluator.hoist(&a)?;
        steps.iter().try_for_each(|&by| evaluator.rotate_hoisted(&hoisted, by).map(drop))
    })?;
    row("decrypt", 1, &mut || bench.decryptor.decrypt(&a).map(drop))?;
    Ok(())
}
