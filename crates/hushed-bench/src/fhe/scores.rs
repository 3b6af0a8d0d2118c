//! Q·Kᵀ of one head of BERT-base, 128 × 64 times 64 × 128 (MOAI, Table 5): baby and giant steps over hoisted rotations.
//! Also reported are the rotations of the paper's algorithm 7, of texts one after the other, and of ENSI's product,
//! which extracts every element, all counted by the same counter.

use hushed_ckks::CkksParams;
use hushed_fhe::FheError;
use hushed_fhe::packing::{Columns, products};
use hushed_fhe::simulate::Simulator;
use serde_json::{Value, json};

use super::{Bed, Normal, ROWS, counted, layout, rotations};
use crate::baselines::packing;
use crate::ckks::with_threads;
use crate::{BenchError, How};

const WIDTH: usize = 64;
/// Eight baby steps hold fewer rotated columns of a head in memory than sixteen, for a few more rotations.
const BABY: usize = 8;
/// Primes of queries and keys in a layer.
const LIMBS: usize = 16;
/// Diagonals compared with the clear.
const COMPARED: [usize; 4] = [0, 1, 13, 127];

/// One row.
pub fn scores(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let about = json!({ "set": "n16-boot-14x40", "rows": ROWS, "width": WIDTH, "primes": LIMBS, "baby_steps": BABY });
    if !how.wants(&about) {
        return Ok(Vec::new());
    }
    with_threads(how.threads, || Ok(vec![one(&about, how.threads)?]))
}

fn one(about: &Value, threads: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let layout = layout(&params)?;
    let columns = |on: &Simulator| -> Result<Columns<_>, FheError> {
        let vectors = (0..WIDTH).map(|_| on.vector(Vec::new(), LIMBS));
        Ok(Columns::from_vectors(
            layout,
            vectors.collect::<Result<_, _>>()?,
        ))
    };
    let counts = counted(&params, |on| {
        products::scores(on, &columns(on)?, &columns(on)?, BABY).map(drop)
    })?;
    let by_paper = counted(&params, |on| {
        packing::scores_by_paper(on, &columns(on)?, &columns(on)?).map(drop)
    })?;
    let naive = counted(&params, |on| {
        let (q, k) = (columns(on)?, columns(on)?);
        packing::scores_naive(on, q.vectors(), k.vectors(), ROWS).map(drop)
    })?;
    let by_extraction = counted(&params, |on| {
        packing::scores_by_extraction(on, &columns(on)?, &columns(on)?).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let (slots, scale) = (params.slots(), params.default_scale());
    let mut random = Normal::new(2);
    // Within 1/8 each, so that sums of 64 products are as large as scores.
    let mut table = || -> Vec<Vec<f64>> {
        (0..WIDTH)
            .map(|_| (0..slots).map(|_| random.next() / 8.0).collect())
            .collect()
    };
    let (q, k) = (table(), table());
    let mut encrypted = |table: &[Vec<f64>]| -> Result<Columns<_>, BenchError> {
        let vectors = table.iter().map(|column| bed.encrypt(column, LIMBS, scale));
        Ok(Columns::from_vectors(
            layout,
            vectors.collect::<Result<_, _>>()?,
        ))
    };
    let (eq, ek) = (encrypted(&q)?, encrypted(&k)?);
    let (diagonals, taken) = bed.take(|on| products::scores(on, &eq, &ek, BABY))?;
    let mut error = 0.0_f64;
    for j in COMPARED {
        let by = layout.rotation(j);
        let found = bed.error(&diagonals.vectors()[j], |s| {
            let pairs = q.iter().zip(&k);
            pairs.map(|(q, k)| q[s] * k[(s + by) % slots]).sum()
        })?;
        error = error.max(found);
    }
    let parts = json!({
        "error": error,
        "rotations": rotations(&counts),
        "rotations_by_paper": rotations(&by_paper),
        "rotations_naive_batching": rotations(&naive),
        "rotations_by_extraction": rotations(&by_extraction),
        "level": LIMBS - params.bootstrap_limbs(),
    });
    Ok(bed.row("fhe.scores", about, threads, &taken, parts))
}
