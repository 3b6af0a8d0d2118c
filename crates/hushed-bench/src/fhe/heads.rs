//! Q·Kᵀ and P·V of twelve heads of one text of 128 rows at once, in packed rows (docs/one-text.md). All sixteen heads
//! that there are places for are computed, whether a model uses them or not.

use hushed_ckks::CkksParams;
use hushed_fhe::packing::Layout;
use hushed_fhe::packing::heads::Heads;
use hushed_fhe::{FheError, Slots, run_attend, run_scores};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, counted, rotations};
use crate::ckks::with_threads;
use crate::machine::processor_seconds;
use crate::{BenchError, How};

/// Places per row, pairs of columns per head, copies, and baby steps.
const PLACES: usize = 256;
const PAIRS: usize = 16;
const COPIES: usize = 4;
const BABY: usize = 8;
/// Primes of queries and keys, and of weights and values, in a layer: levels 13 and 4.
const SCORES: usize = 17;
const ATTEND: usize = 8;

/// One row for each of the two products.
pub fn heads(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let about = |product: &str, limbs: usize| {
        json!({
            "set": "n16-boot-14x40",
            "product": product,
            "rows": ROWS,
            "heads": PLACES / PAIRS,
            "width": 2 * PAIRS,
            "primes": limbs,
        })
    };
    let all = [about("scores", SCORES), about("values", ATTEND)];
    let mut out = Vec::new();
    for (values, about) in all.iter().enumerate() {
        if how.wants(about) {
            out.push(with_threads(how.threads, || one(about, values == 1, [how.threads, how.runs]))?);
        }
    }
    Ok(out)
}

/// The product on pairs; for P·V, on weights that follow the pairs.
fn product<S: Slots>(on: &S, heads: &Heads, values: bool, x: &[S::Value]) -> Result<Vec<S::Value>, FheError> {
    if values {
        let v = on.pair(x[0].clone(), x[1].clone())?;
        return run_attend(on, heads, x[2..].to_vec(), v);
    }
    let q = on.pair(x[0].clone(), x[1].clone())?;
    let k = on.pair_conjugate(x[2].clone(), x[3].clone())?;
    run_scores(on, heads, q, k)
}

fn one(about: &Value, values: bool, [threads, runs]: [usize; 2]) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let layout = Layout::new(params.slots(), ROWS, PLACES).map_err(FheError::from)?;
    let heads = Heads::new(layout, PAIRS, COPIES, BABY).map_err(FheError::from)?;
    let (limbs, operands) = match values {
        true => (ATTEND, 2 + heads.vectors()),
        false => (SCORES, 4),
    };
    let counts = counted(&params, |on| {
        let x = (0..operands).map(|_| on.vector(Vec::new(), limbs));
        let x = x.collect::<Result<Vec<_>, _>>()?;
        product(on, &heads, values, &x).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let mut random = Normal::new(5);
    // Sums of 32 products are as large as a score; weights add up to about 1.
    let size = |operand: usize| {
        if values && operand >= 2 { 1.0 / 128.0 } else { 0.25 }
    };
    let x: Vec<Vec<f64>> =
        (0..operands).map(|i| (0..params.slots()).map(|_| random.next() * size(i)).collect()).collect();
    let scale = params.default_scale();
    let encrypted = x.iter().map(|x| bed.encrypt(x, limbs, scale));
    let encrypted = encrypted.collect::<Result<Vec<_>, _>>()?;
    let (first, mut taken) = bed.take(|on| product(on, &heads, values, &encrypted))?;
    // The minimum of several runs after the first.
    let mut processor = f64::INFINITY;
    taken.seconds = f64::INFINITY;
    for _ in 0..runs.max(1) {
        let before = processor_seconds();
        let (_, again) = bed.take(|on| product(on, &heads, values, &encrypted))?;
        processor = processor.min(processor_seconds() - before);
        taken.seconds = taken.seconds.min(again.seconds);
    }
    let mut error = 0.0_f64;
    for (number, vector) in first.iter().enumerate() {
        let expected = expected(&heads, &x, values, number);
        error = error.max(bed.error(vector, |slot| expected[slot])?);
    }
    let parts = json!({
        "error": error,
        "processor_seconds": processor,
        "runs": runs,
        "precision_bits_min": -error.log2(),
        "rotations": rotations(&counts),
        "relinearisations": taken.counts.key_switch - taken.counts.rotation,
        "level": limbs - params.bootstrap_limbs(),
        "texts": layout.texts(),
        "seconds_per_text": taken.seconds / layout.texts() as f64,
        "key_switches_per_text": taken.counts.key_switch / layout.texts() as u64,
    });
    Ok(bed.row("fhe.heads", about, threads, &taken, parts))
}

/// By definition: the scores of one vector, or the real parts of the values.
fn expected(heads: &Heads, x: &[Vec<f64>], values: bool, number: usize) -> Vec<f64> {
    let layout = heads.layout();
    let mut out = vec![0.0; layout.slots()];
    for row in 0..ROWS {
        for head in 0..PLACES / PAIRS {
            for diagonal in 0..ROWS {
                let (vector, slot) = heads.score([0, row], head, diagonal);
                if !values && vector != number {
                    continue;
                }
                for place in head * PAIRS..(head + 1) * PAIRS {
                    let here = layout.slot(0, row, place);
                    let there = layout.slot(0, (row + diagonal) % ROWS, place);
                    if values {
                        out[here] += x[2 + vector][slot] * x[0][there];
                    } else {
                        out[slot] += x[0][here] * x[2][there] + x[1][here] * x[3][there];
                    }
                }
            }
        }
    }
    out
}
