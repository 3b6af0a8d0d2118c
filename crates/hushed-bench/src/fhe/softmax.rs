//! Softmax of 128 × 128 (MOAI, Table 2) for two heads that share their bootstraps: from scores mapped to [−1, 1] to
//! final weights.

use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_fhe::ops::activation::argument_scale;
use hushed_fhe::ops::softmax::{Softmax, weights};
use hushed_fhe::packing::Interleave;
use hushed_fhe::simulate::{Op, Simulator};
use hushed_fhe::{AttentionChoice, FheError, HeadChoice, Interval, KeyMask, RowsKnown, Slots};
use hushed_model::StepId;
use rayon::prelude::*;
use serde_json::{Value, json};

use super::bed::{Bed, Normal, ROWS, counted, layout, rotations};
use crate::ckks::with_threads;
use crate::{BenchError, How};

/// Heads that share bootstraps.
const HEADS: usize = 2;
/// Four levels for the exponential, two to normalise and square, one for the last factor.
const LEVELS: usize = 7;
/// Standard deviation of the scores.
const SPREAD: f64 = 3.0;
/// Diagonals compared with the clear.
const COMPARED: [usize; 3] = [0, 5, 127];

/// One row.
pub fn softmaxes(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let about = json!({ "set": "n16-boot-14x40", "rows": ROWS, "heads": HEADS, "exponential": "degree 15, normalised, squared" });
    if !how.wants(&about) {
        return Ok(Vec::new());
    }
    with_threads(how.threads, || Ok(vec![one(&about, how.threads)?]))
}

fn choice() -> AttentionChoice {
    let head = HeadChoice::Softmax {
        scores: Interval { low: -20.0, high: 12.0 },
        least_maximum: 3.0,
        first: Interval { low: 0.2, high: 20.0 },
        second: Interval { low: 0.5 / ROWS as f64, high: 1.05 },
    };
    AttentionChoice { degree: 15, first_steps: 7, second_steps: 6, heads: vec![head; HEADS] }
}

fn one(about: &Value, threads: usize) -> Result<Value, BenchError> {
    let params = CkksParams::n16_boot()?;
    let (layout, choice) = (layout(&params)?, choice());
    let clear = Simulator::new(&params, params.slots())?;
    let heads = choice.heads.iter().map(|head| Softmax::new(&clear, head, &choice)).collect::<Result<Vec<_>, _>>()?;
    let limbs = params.bootstrap_limbs() + LEVELS;
    // Puts the first inverse at the level of the exponentials; the second needs less.
    let statistics = limbs - 4 + heads.iter().map(|h| h.first().levels()).max().unwrap_or(0);
    let counts = counted(&params, |on| {
        let scale = argument_scale(on, limbs)?;
        let ratio = on.default_scale().over(scale).value();
        let one = || on.read_as(on.vector(Vec::new(), limbs)?, ratio);
        let t = (0..HEADS).map(|_| (0..ROWS).map(|_| one()).collect()).collect::<Result<Vec<Vec<_>>, FheError>>()?;
        softmax(on, layout, &heads, t, statistics).map(drop)
    })?;
    let mut bed = Bed::new(&params, &counts)?;
    let scale = argument_scale(&bed.on, limbs)?;
    let slots = params.slots();
    let mut random = Normal::new(4);
    let mut scores = Vec::with_capacity(HEADS);
    let mut t = Vec::with_capacity(HEADS);
    for head in &heads {
        let (factor, offset) = head.argument();
        let mut table = Vec::with_capacity(ROWS);
        let mut diagonals = Vec::with_capacity(ROWS);
        for _ in 0..ROWS {
            let s: Vec<f64> = (0..slots).map(|_| SPREAD * random.next()).collect();
            let mapped: Vec<f64> = s.iter().map(|s| factor * s + offset).collect();
            diagonals.push(bed.encrypt(&mapped, limbs, scale)?);
            table.push(s);
        }
        scores.push(table);
        t.push(diagonals);
    }
    let (result, taken) = bed.take(|on| softmax(on, layout, &heads, t, statistics))?;
    let mut error = 0.0_f64;
    for (table, weights) in scores.iter().zip(&result) {
        let sums: Vec<f64> = (0..slots).map(|s| table.iter().map(|diagonal| diagonal[s].exp()).sum()).collect();
        for j in COMPARED {
            let found = bed.error(&weights[j], |s| table[j][s].exp() / sums[s])?;
            error = error.max(found);
        }
    }
    let each = taken.seconds / (bed.texts() * HEADS) as f64;
    let parts = json!({
        "error": error,
        "seconds_per_softmax": each,
        "core_seconds_per_softmax": each * threads as f64,
        "rotations": rotations(&counts),
        "refreshed": counts.total(Op::Refreshed),
        "levels": LEVELS,
        "paper_seconds_per_softmax": 0.62,
    });
    Ok(bed.row("fhe.softmax", about, threads, &taken, parts))
}

fn softmax<S: Slots>(
    on: &S,
    layout: Interleave,
    heads: &[Softmax],
    t: Vec<Vec<S::Value>>,
    statistics: usize,
) -> Result<Vec<Vec<S::Value>>, FheError> {
    let rows = RowsKnown::public(layout, vec![ROWS; layout.texts()])?;
    let keys = KeyMask::new(on, &rows)?;
    let mut with = Vec::with_capacity(heads.len());
    for (head, t) in heads.iter().zip(t) {
        let p = t.into_par_iter().map(|t| head.exponential(on, 0, &t));
        with.push((head, p.collect::<Result<Vec<_>, FheError>>()?));
    }
    let weights = weights(on, StepId::outside("softmax"), with, &keys, statistics)?;
    let each = heads.iter().zip(weights);
    each.map(|(head, weights)| weights.whole(on, head)).collect()
}
