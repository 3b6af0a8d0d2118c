//! LayerNorm of 128 × 768 (MOAI, Table 2), from centred to normalised columns: one statistic is refreshed.

use hushed_ckks::{CkksParams, Scale};
use hushed_fhe::ops::norm::{NormSettings, centred_scale, norm, statistic_levels};
use hushed_fhe::{FheError, NormChoice, OwnedMask, Slots};
use hushed_model::{Norm, NormKind, StepId};
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, counted, rotations};
use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Columns compared with the clear.
const COMPARED: usize = 8;

/// Rows for the widths of MiniLM and BERT-base, and for RMSNorm.
pub fn norms(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    with_threads(how.threads, || {
        let mut rows = Vec::new();
        for width in [384, 768] {
            let params = json!({ "set": "n16-boot-14x40", "rows": ROWS, "width": width });
            if how.wants(&params) {
                rows.push(one(width, &params, how.threads)?);
            }
        }
        rows.extend(super::decoder::rms_norms(how)?);
        Ok(rows)
    })
}

fn one(width: usize, about: &Value, threads: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let choice = NormChoice {
        scale: (1.0 / (4.0 * width as f64)).sqrt(),
        low: 0.04,
        bound: (width as f64).sqrt(),
        seed: 15,
        steps: 1,
    };
    let shape = Norm {
        kind: NormKind::LayerNorm,
        width,
        epsilon: 1e-12,
        reach: None,
        gain: Some(vec![1.0; width].into()),
        offset: Some(vec![0.0; width].into()),
    };
    let site = StepId::outside("norm");
    let rows = OwnedMask::Public(vec![1.0; params.slots()]);
    // One level for the product with the inverse root, and above it the levels that the root needs.
    let limbs = params.bootstrap_limbs() + 1;
    let statistics = limbs + statistic_levels(&choice);
    let counts = counted(&params, |on| {
        let all = OwnedMask::Public(vec![1.0; params.slots()]);
        let settings = settings(&all, statistics);
        let scale = centred_scale(on, limbs)?;
        let columns = (0..width).map(|_| {
            let ratio = on.default_scale().over(scale).value();
            hushed_ckks::poly::Arithmetic::read_as(on, on.vector(Vec::new(), limbs)?, ratio)
        });
        let columns = columns.collect::<Result<Vec<_>, FheError>>()?;
        norm(on, site, columns, &shape, &choice, &settings).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    // Each slot is a row with a standard deviation from 0.5 to 1.8.
    let slots = params.slots();
    let deviation = |slot: usize| 0.5 + 1.3 * (slot * 7919 % 10_007) as f64 / 10_007.0;
    let mut random = Normal::new(1);
    let mut table: Vec<Vec<f64>> =
        (0..width).map(|_| (0..slots).map(|s| random.next() * deviation(s)).collect()).collect();
    let mut squares = vec![0.0; slots];
    centre(&mut table, choice.scale, &mut squares);
    let scale: Scale = centred_scale(&bed.on, limbs)?;
    let columns = table.iter().map(|column| bed.encrypt(column, limbs, scale)).collect::<Result<Vec<_>, _>>()?;
    let (result, taken) = bed.take(|on| norm(on, site, columns, &shape, &choice, &settings(&rows, statistics)))?;
    let mut error = 0.0_f64;
    let factor = (width as f64).sqrt() / choice.bound;
    for j in (0..width).step_by(width / COMPARED) {
        let found = bed.error(&result.columns[j], |s| factor * table[j][s] / squares[s].sqrt())?;
        error = error.max(found);
    }
    let parts = json!({
        "error": error,
        "rotations": rotations(&counts),
        "refreshed": counts.total(hushed_fhe::simulate::Op::Refreshed),
        "statistics_primes": statistics,
        "paper_seconds_per_text": 0.38,
        "paper_width": 768,
    });
    Ok(bed.row("fhe.norm", about, threads, &taken, parts))
}

fn settings<V>(rows: &OwnedMask<V>, statistics: usize) -> NormSettings<'_, V> {
    NormSettings { rows, statistics: Some(statistics), constant: None }
}

/// κ·(x − mean) in every slot, and the sums of squares.
fn centre(table: &mut [Vec<f64>], kappa: f64, squares: &mut [f64]) {
    let width = table.len() as f64;
    for (slot, square) in squares.iter_mut().enumerate() {
        let mean = table.iter().map(|column| column[slot]).sum::<f64>() / width;
        for column in table.iter_mut() {
            column[slot] = kappa * (column[slot] - mean);
            *square += column[slot] * column[slot];
        }
    }
}
