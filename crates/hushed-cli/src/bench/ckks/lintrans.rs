//! A matrix of 768 × 768 complex numbers times the slots: by baby and giant steps, and diagonal by diagonal.

use hushed_ckks::keys::EvalKeyPlan;
use hushed_ckks::lintrans::{Diagonals, LinearTransform, Method, Options};
use hushed_ckks::{CkksError, CkksParams, Complex64};
use serde_json::{Value, json};

use super::{Bench, measure, with_threads};
use crate::bench::{BenchError, How};
use crate::machine::peak_memory;

const SIZE: usize = 768;
/// The next power of two, in whose cyclic diagonals the matrix lies; every one of them is taken.
const DIMENSION: usize = 1024;
const LEVEL: usize = 6;

/// Rows of the set for inference at level 6.
pub fn transforms(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let entry = |r: usize, c: usize| {
            let inside = r < SIZE && c < SIZE;
            let value = ((r * 31 + c * 17) % 1009) as f64 / 1009.0 - 0.5;
            Complex64::new(if inside { value / 16.0 } else { 0.0 }, 0.0)
        };
        let rows: Vec<Vec<Complex64>> = (0..DIMENSION)
            .map(|r| (0..DIMENSION).map(|c| entry(r, c)).collect())
            .collect();
        let matrix = Diagonals::from_rows(DIMENSION, &rows).map_err(CkksError::from)?;
        let mut out = Vec::new();
        for (name, method) in [
            (
                "baby-step giant-step, double hoisted",
                Method::DoubleHoisted,
            ),
            ("diagonal", Method::Diagonal),
        ] {
            let description =
                json!({ "set": params.literal().name, "dimension": SIZE, "method": name });
            if !how.wants(&description) {
                continue;
            }
            let map = LinearTransform::new(
                &params,
                &matrix,
                LEVEL + 1,
                Options {
                    method,
                    ..Options::default()
                },
            )
            .map_err(CkksError::from)?;
            let mut plan = EvalKeyPlan::new();
            map.add_keys(&mut plan);
            let key_bytes = plan.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
            let mut bench = Bench::new(&params, &plan)?;
            let block: Vec<Complex64> = bench.random().into_iter().take(DIMENSION).collect();
            // The matrix acts on vectors that repeat through the slots.
            let values: Vec<Complex64> =
                block.iter().copied().cycle().take(params.slots()).collect();
            let ct = bench.encrypt(&values, LEVEL + 1)?;
            let expected = matrix.apply(&block).map_err(CkksError::from)?;
            let expected: Vec<Complex64> = expected
                .iter()
                .copied()
                .cycle()
                .take(params.slots())
                .collect();
            let before = bench.evaluator.counters().snapshot();
            let image = map.apply(&bench.evaluator, &ct)?;
            let counts = bench.evaluator.counters().snapshot().since(&before);
            let (worst, mean) = bench.precision(&image, &expected)?;
            let (seconds, runs) = measure(how.runs, || map.apply(&bench.evaluator, &ct).map(drop))?;
            out.push(json!({
                "name": "lintrans",
                "params": description,
                "level": LEVEL,
                "threads": how.threads,
                "seconds": seconds,
                "runs": runs,
                "rotations": counts.rotation,
                "key_switches": counts.key_switch,
                "precision_bits_min": worst,
                "precision_bits_mean": mean,
                "key_bytes": key_bytes,
                "plaintext_bytes": map.plaintext_bytes(),
                "peak_rss": peak_memory(),
            }));
        }
        Ok(out)
    })
}
