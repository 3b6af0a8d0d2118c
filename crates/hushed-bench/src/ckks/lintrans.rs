//! A 768 × 768 matrix times the slots: by double-hoisted baby and giant steps, diagonal by diagonal, and by the methods
//! that these are compared with.

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::lintrans::{Diagonals, LinearTransform, Method, Options};
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator};
use serde_json::{Value, json};

use super::{Bench, measure, with_threads};
use crate::baselines::lintrans::{PackedRows, SingleHoisted};
use crate::machine::peak_memory;
use crate::{BenchError, How};

const SIZE: usize = 768;
/// The next power of two, whose cyclic diagonals hold the matrix; all of them are used.
const DIMENSION: usize = 1024;
const LEVEL: usize = 6;
const LIMBS: usize = LEVEL + 1;
/// Baby steps of the method hoisted once: as many as its giant steps.
const WIDTH: usize = 32;

/// A prepared matrix.
struct Prepared {
    specs: KeySpecs,
    plaintext_bytes: usize,
    apply: Apply,
    /// Slots of the result, each with the entry of the product in it.
    places: Vec<(usize, usize)>,
}

type Apply = Box<dyn Fn(&Evaluator, &Ciphertext) -> Result<Ciphertext, CkksError> + Send>;
type Prepare<'a> = &'a (dyn Fn() -> Result<Prepared, CkksError> + Sync);

/// Measures the inference parameter set at level 6.
pub fn transforms(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let params = CkksParams::n16_boot()?;
        let entry = |r: usize, c: usize| {
            let inside = r < SIZE && c < SIZE;
            let value = ((r * 31 + c * 17) % 1009) as f64 / 1009.0 - 0.5;
            if inside { value / 16.0 } else { 0.0 }
        };
        let rows: Vec<Vec<f64>> = (0..DIMENSION).map(|r| (0..DIMENSION).map(|c| entry(r, c)).collect()).collect();
        let complex = rows.iter().map(|row| row.iter().map(|&x| x.into()));
        let complex: Vec<Vec<Complex64>> = complex.map(Iterator::collect).collect();
        let matrix = Diagonals::from_rows(DIMENSION, &complex).map_err(CkksError::from)?;
        // Bytes of a plaintext for a method that does not store repetitions only once.
        let whole = params.n() * LIMBS * size_of::<u64>();
        let prepared = |method: Method| {
            let options = Options { method, ..Options::default() };
            let map = LinearTransform::new(&params, &matrix, LIMBS, options)?;
            let mut specs = KeySpecs::new();
            map.add_keys(&mut specs);
            Ok(Prepared {
                specs,
                plaintext_bytes: map.plaintext_bytes(),
                apply: Box::new(move |evaluator, ct| map.apply(evaluator, ct)),
                places: repeated(&params),
            })
        };
        let single = || {
            let encoder = Encoder::new(&params);
            let map = SingleHoisted::new(&encoder, &matrix, LIMBS, WIDTH)?;
            Ok(Prepared {
                specs: params.key_specs(LIMBS, false, &map.rotations(), false)?,
                plaintext_bytes: matrix.count() * whole,
                apply: Box::new(move |evaluator, ct| map.apply(evaluator, ct)),
                places: repeated(&params),
            })
        };
        let packed = || {
            let encoder = Encoder::new(&params);
            let map = PackedRows::new(&encoder, &rows[..SIZE], LIMBS)?;
            let rotations = map.rotations();
            let places = (0..SIZE).map(|row| (map.slot(row), row)).collect();
            Ok(Prepared {
                specs: params.key_specs(LIMBS, false, &rotations, false)?,
                plaintext_bytes: map.plaintext_bytes(),
                apply: Box::new(move |evaluator, ct| map.apply(evaluator, ct)),
                places,
            })
        };
        let methods: [(&str, Prepare<'_>); 4] = [
            ("baby-step giant-step, double hoisted", &|| prepared(Method::DoubleHoisted)),
            ("diagonal", &|| prepared(Method::Diagonal)),
            ("baby-step giant-step, hoisted once", &single),
            ("packed rows", &packed),
        ];
        let mut out = Vec::new();
        for (name, prepare) in methods {
            let description = json!({ "set": params.literal().name, "dimension": SIZE, "method": name });
            if how.wants(&description) {
                let prepared = prepare()?;
                out.push(one_method(&params, &matrix, &prepared, description, how)?);
            }
        }
        Ok(out)
    })
}

/// All slots: the product repeats in them, as the vector does.
fn repeated(params: &CkksParams) -> Vec<(usize, usize)> {
    (0..params.slots()).map(|slot| (slot, slot % DIMENSION)).collect()
}

fn one_method(
    params: &std::sync::Arc<CkksParams>,
    matrix: &Diagonals,
    prepared: &Prepared,
    description: Value,
    how: How<'_>,
) -> Result<Value, BenchError> {
    let specs = &prepared.specs;
    let key_bytes = specs.memory_bytes(params.rlwe()).map_err(CkksError::from)?;
    let mut bench = Bench::new(params, specs)?;
    let block: Vec<Complex64> = bench.random().into_iter().take(DIMENSION).collect();
    // The matrix acts on vectors that repeat through the slots.
    let values: Vec<Complex64> = block.iter().copied().cycle().take(params.slots()).collect();
    let ct = bench.encrypt(&values, LIMBS)?;
    let expected = matrix.apply(&block).map_err(CkksError::from)?;
    let apply = || (prepared.apply)(&bench.evaluator, &ct);
    let before = bench.evaluator.counters().snapshot();
    let image = apply()?;
    let counts = bench.evaluator.counters().snapshot().since(&before);
    let places = prepared.places.iter();
    let expected: Vec<_> = places.map(|&(slot, entry)| (slot, expected[entry])).collect();
    let (worst, mean) = bench.precision_at(&image, &expected)?;
    let (seconds, runs) = measure(how.runs, || apply().map(drop))?;
    Ok(json!({
        "name": "lintrans",
        "params": description,
        "level": LEVEL,
        "levels_used": ct.limbs() - image.limbs(),
        "threads": how.threads,
        "seconds": seconds,
        "runs": runs,
        "rotations": counts.rotation,
        "key_switches": counts.key_switch,
        "precision_bits_min": worst,
        "precision_bits_mean": mean,
        "key_bytes": key_bytes,
        "plaintext_bytes": prepared.plaintext_bytes,
        "peak_rss": peak_memory(),
    }))
}
