//! Q·Kᵀ of one head of BERT-base, 128 × 64 times 64 × 128 (MOAI, Table 5): baby and giant steps over hoisted rotations.
//! Also reported are the key switches of the paper's algorithm 7, of texts one after the other, and of ENSI's product,
//! which extracts every element: all counted by the same counter, at this size and at that of ENSI's heads.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_fhe::FheError;
use hushed_fhe::packing::{Columns, Interleave, products};
use hushed_fhe::simulate::{Simulator, Vector};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, counted, layout, layout_of, switches};
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
/// Rows and columns of a head in ENSI's Table III.
const ENSI: (usize, usize) = (2048, 96);

/// One row.
pub fn ccmm(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let about = json!({ "set": "n16-boot-14x40", "rows": ROWS, "width": WIDTH, "primes": LIMBS, "baby_steps": BABY });
    if !how.wants(&about) {
        return Ok(Vec::new());
    }
    with_threads(how.threads, || Ok(vec![one(&about, how.threads)?]))
}

fn one(about: &Value, threads: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let layout = layout(&params)?;
    let counts = counted(&params, |on| {
        let (q, k) = (shapes(on, layout, WIDTH)?, shapes(on, layout, WIDTH)?);
        products::scores(on, &q, &k, BABY).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let (slots, scale) = (params.slots(), params.default_scale());
    let mut random = Normal::new(2);
    // Within 1/8 each, so that sums of 64 products are as large as scores.
    let mut table =
        || -> Vec<Vec<f64>> { (0..WIDTH).map(|_| (0..slots).map(|_| random.next() / 8.0).collect()).collect() };
    let (q, k) = (table(), table());
    let mut encrypted = |table: &[Vec<f64>]| -> Result<Columns<_>, BenchError> {
        let vectors = table.iter().map(|column| bed.encrypt(column, LIMBS, scale));
        Ok(Columns::from_vectors(layout, vectors.collect::<Result<_, _>>()?))
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
        "counted_by_algorithm": by_algorithm(&params, (ROWS, WIDTH), BABY)?,
        "counted_by_algorithm_2048_by_96": by_algorithm(&params, ENSI, products::baby_steps(ENSI.0, ENSI.1))?,
        "level": LIMBS - params.bootstrap_limbs(),
    });
    Ok(bed.row("fhe.ccmm", about, threads, &taken, parts))
}

/// The key switches of Q·Kᵀ of one head, by algorithm.
fn by_algorithm(params: &Arc<CkksParams>, (rows, width): (usize, usize), baby: usize) -> Result<Value, BenchError> {
    let layout = layout_of(params, rows)?;
    let count = |product: fn(&Simulator, &Shapes, &Shapes, usize) -> Result<(), FheError>| {
        let counts = counted(params, |on| {
            let (q, k) = (shapes(on, layout, width)?, shapes(on, layout, width)?);
            product(on, &q, &k, baby)
        })?;
        Ok::<_, BenchError>(switches(&counts))
    };
    Ok(json!({
        "ours": count(|on, q, k, baby| products::scores(on, q, k, baby).map(drop))?,
        "moai_algorithm_7": count(|on, q, k, _| packing::scores_by_paper(on, q, k).map(drop))?,
        "ensi_extraction": count(|on, q, k, _| packing::scores_by_extraction(on, q, k).map(drop))?,
        "texts_one_after_another": count(|on, q, k, _| {
            let rows = q.layout().rows();
            packing::scores_naive(on, q.vectors(), k.vectors(), rows).map(drop)
        })?,
    }))
}

type Shapes = Columns<Vector>;

/// Columns without numbers.
fn shapes(on: &Simulator, layout: Interleave, width: usize) -> Result<Shapes, FheError> {
    let vectors = (0..width).map(|_| on.vector(Vec::new(), LIMBS));
    let vectors = vectors.collect::<Result<_, _>>()?;
    Ok(Columns::from_vectors(layout, vectors))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The figures of docs/ensi.md. Every sum of products is relinearised once.
    #[test]
    fn key_switches_of_a_head_by_algorithm() {
        let params = CkksParams::n16_boot().unwrap();
        let found = by_algorithm(&params, (ROWS, WIDTH), BABY).unwrap();
        let parts = ["key_switches", "rotations", "conjugations", "relinearisations"];
        for (name, expected) in [
            ("ours", [1080, 824, 128, 128]),
            ("moai_algorithm_7", [8128 + 128, 8128, 0, 128]),
            ("ensi_extraction", [57_344 + 128, 57_344, 0, 128]),
            ("texts_one_after_another", [16_256 + 128, 16_256, 0, 128]),
        ] {
            let counts = parts.map(|part| found[name][part].as_u64().unwrap());
            assert_eq!(counts, expected, "{name}");
        }
    }
}
