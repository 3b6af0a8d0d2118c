//! A wide matrix times one vector over all slots, as in Fig. 2 of the Orion kernels paper (arXiv 2512.11135): the first
//! map of a feed-forward block of GPT-2, Phi-3 mini and Llama 3 (8B), by packed rows and by baby and giant steps.

use std::sync::Arc;

use hushed_ckks::counters::Counts;
use hushed_ckks::keys::KeySpecs;
use hushed_ckks::lintrans::{LinearTransform, Options};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator};
use serde_json::{Value, json};

use super::{Bench, Places, measure, with_threads};
use crate::baselines::lintrans::PackedRows;
use crate::machine::{forget_peak, peak_memory};
use crate::{BenchError, How, counters};

/// Inputs and outputs.
const SIZES: [[usize; 2]; 3] = [[768, 3072], [3072, 8192], [4096, 14336]];
/// The levels that packed rows use up; both methods start at this level.
const LEVEL: usize = 2;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Method {
    PackedRows,
    Steps,
    /// As [`Method::Steps`], but every product reads the diagonals from a file.
    StepsFromFile,
}

impl Method {
    const ALL: [Method; 3] = [Method::Steps, Method::StepsFromFile, Method::PackedRows];

    fn name(self) -> &'static str {
        match self {
            Method::PackedRows => "packed rows",
            Method::Steps => "baby-step giant-step, double hoisted",
            Method::StepsFromFile => "baby-step giant-step, diagonals from a file",
        }
    }
}

/// Measures all sizes by all methods.
pub fn vectors(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let mut out = Vec::new();
        for shape in SIZES {
            for method in Method::ALL {
                let about = json!({
                    "set": params.literal().name,
                    "inputs": shape[0],
                    "outputs": shape[1],
                    "method": method.name(),
                });
                if how.wants(&about) {
                    forget_peak();
                    out.push(row(&params, shape, method, about, how)?);
                }
            }
        }
        Ok(out)
    })
}

fn row(
    params: &Arc<CkksParams>,
    shape: [usize; 2],
    method: Method,
    about: Value,
    how: How<'_>,
) -> Result<Value, BenchError> {
    let (run, map) = Run::new(params, shape, method, LEVEL + 1)?;
    let apply = || map.apply(&run.bench.evaluator, &run.input).map(drop);
    let (seconds, runs) = measure(how.runs, apply)?;
    Ok(json!({
        "name": "matvec",
        "params": about,
        "level": LEVEL,
        "levels_used": run.levels_used,
        "threads": how.threads,
        "seconds": seconds,
        "runs": runs,
        "rotations": run.counts.rotation,
        "key_switches": run.counts.key_switch,
        "counts": counters(&run.counts),
        "precision_bits_min": run.bits.0,
        "precision_bits_mean": run.bits.1,
        "key_bytes": run.key_bytes,
        "plaintext_bytes": map.plaintext_bytes(),
        "peak_rss": peak_memory(),
    }))
}

/// A prepared matrix.
enum Map {
    Rows(PackedRows),
    /// One map, and the rotations that sum its shares.
    Steps(Box<LinearTransform>, Vec<i64>),
}

impl Map {
    fn new(
        encoder: &Encoder,
        places: &Places,
        [inputs, outputs]: [usize; 2],
        method: Method,
        limbs: usize,
    ) -> Result<Map, BenchError> {
        let params = encoder.params();
        if method == Method::PackedRows {
            let row = |r| (0..inputs).map(|c| weight(r, c)).collect();
            let rows: Vec<Vec<f64>> = (0..outputs).map(row).collect();
            return Ok(Map::Rows(PackedRows::new(encoder, &rows, limbs)?));
        }
        let matrix = places.matrix(weight).map_err(CkksError::from)?;
        let map = LinearTransform::new(params, &matrix, limbs, Options::default());
        let mut map = map.map_err(CkksError::from)?;
        if method == Method::StepsFromFile {
            let mut file = tempfile::tempfile().map_err(BenchError::Weights)?;
            map.write(&mut file).map_err(CkksError::from)?;
            map = LinearTransform::open(params, file).map_err(CkksError::from)?;
        }
        Ok(Map::Steps(Box::new(map), places.folds()))
    }

    fn keys(&self, params: &CkksParams, limbs: usize) -> Result<KeySpecs, CkksError> {
        match self {
            Map::Rows(map) => params.key_specs(limbs, false, &map.rotations(), false),
            Map::Steps(map, folds) => {
                let mut specs = KeySpecs::new();
                map.add_keys(&mut specs);
                specs.merge(&params.key_specs(limbs - 1, false, folds, false)?);
                Ok(specs)
            }
        }
    }

    fn apply(&self, on: &Evaluator, x: &Ciphertext) -> Result<Ciphertext, CkksError> {
        match self {
            Map::Rows(map) => map.apply(on, x),
            Map::Steps(map, folds) => {
                let mut sum = map.apply(on, x)?;
                for &by in folds {
                    let turned = on.rotate(&sum, by)?;
                    on.add_assign(&mut sum, &turned)?;
                }
                Ok(sum)
            }
        }
    }

    /// The column of the vector that an input slot holds.
    fn column(&self, places: &Places, slot: usize, inputs: usize) -> Option<usize> {
        match self {
            Map::Rows(_) => {
                let column = slot % inputs.next_power_of_two();
                (column < inputs).then_some(column)
            }
            Map::Steps(..) => places.column(slot),
        }
    }

    /// The slot of an output.
    fn slot(&self, row: usize) -> usize {
        match self {
            Map::Rows(map) => map.slot(row),
            Map::Steps(..) => row,
        }
    }

    fn plaintext_bytes(&self) -> usize {
        match self {
            Map::Rows(map) => map.plaintext_bytes(),
            Map::Steps(map, _) => map.block_bytes(),
        }
    }
}

/// Weights within ±1/16: a public pattern, since nothing here is secret.
fn weight(row: usize, column: usize) -> f64 {
    (((row * 31 + column * 17) % 1009) as f64 / 1009.0 - 0.5) / 8.0
}

/// One product and its properties.
struct Run {
    bench: Bench,
    input: Ciphertext,
    counts: Counts,
    levels_used: usize,
    /// Bits of precision of the outputs: worst and mean.
    bits: (f64, f64),
    key_bytes: usize,
}

impl Run {
    /// Encrypts a random vector (two, one in the imaginary parts), multiplies it once and compares all outputs with the
    /// product in f64. Slots without a column hold random numbers too.
    fn new(
        params: &Arc<CkksParams>,
        [inputs, outputs]: [usize; 2],
        method: Method,
        limbs: usize,
    ) -> Result<(Self, Map), BenchError> {
        let shape = [outputs, inputs];
        let places = Places::packed(params.slots(), shape).map_err(CkksError::from)?;
        let map = Map::new(&Encoder::new(params), &places, [inputs, outputs], method, limbs)?;
        let specs = map.keys(params, limbs)?;
        let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
        let mut bench = Bench::new(params, &specs)?;
        let mut slots = bench.random();
        let x: Vec<Complex64> = bench.random().into_iter().take(inputs).collect();
        for (slot, z) in slots.iter_mut().enumerate() {
            if let Some(column) = map.column(&places, slot, inputs) {
                *z = x[column];
            }
        }
        let input = bench.encrypt(&slots, limbs)?;
        let before = bench.evaluator.counters().snapshot();
        let out = map.apply(&bench.evaluator, &input)?;
        let counts = bench.evaluator.counters().snapshot().since(&before);
        let expected = (0..outputs).map(|row| {
            let terms = x.iter().enumerate().map(|(c, x)| weight(row, c) * x);
            (map.slot(row), terms.sum())
        });
        let expected: Vec<(usize, Complex64)> = expected.collect();
        let run = Self {
            bits: bench.precision_at(&out, &expected)?,
            levels_used: input.limbs() - out.limbs(),
            bench,
            input,
            counts,
            key_bytes,
        };
        Ok((run, map))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_method_is_the_matrix_and_rotates_as_often_as_it_says() {
        // 256 slots: twelve inputs in sixteen places, and forty outputs in sixty-four, or sixteen per plaintext.
        let params = CkksParams::insecure_shallow(9, 3).unwrap();
        for (method, rotations, used) in [
            // Four diagonals and four classes; three plaintexts of rows.
            (Method::Steps, 3 + 2, 1),
            (Method::StepsFromFile, 3 + 2, 1),
            (Method::PackedRows, 3 * 5 - 1, 2),
        ] {
            let (run, _) = Run::new(&params, [12, 40], method, 3).unwrap();
            assert!(run.bits.0 > 15.0, "{method:?}: {}", run.bits.0);
            let counted = (run.counts.rotation, run.levels_used);
            assert_eq!(counted, (rotations, used), "{method:?}");
        }
    }
}
