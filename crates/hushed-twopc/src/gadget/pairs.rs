//! The largest of few numbers, in few messages: all pairs are compared at once, and the largest is the one that wins
//! all its comparisons (of equal numbers the first).
//!
//! A tournament of k waits for ⌈log₂ k⌉ comparisons, this for one and an AND of k − 1 bits; it makes k(k−1)/2
//! comparisons instead of k − 1. More numbers play a tournament first ([`super::maximum`]).

use super::boolean::{all, all_cost};
use super::compare::{msb, msb_cost};
use super::select::{mux, mux_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{BitShare, Ring, Share};

/// Pairs of all rows that are compared at once: for more, as of a whole prompt, bytes matter and rounds do not.
const PAIRS: usize = 4096;

/// Whether rows of so many numbers are few enough.
pub(super) fn few(rows: usize, left: usize) -> bool {
    rows * pairs(left) <= PAIRS
}

/// Of each row the number that wins all its comparisons, and what goes with it.
pub(super) fn best<const N: usize>(
    ctx: &mut Ctx,
    all_of: [Share; N],
    rows: usize,
    left: usize,
) -> Result<[Share; N], TwopcError> {
    if left < 2 || N == 0 {
        return Ok(all_of);
    }
    let (x, ring) = (&all_of[0], all_of[0].ring());
    let of_rows = |k: usize| (0..rows).map(move |row| row * k);
    let places = |second: bool| -> Vec<usize> {
        let pair = (0..left).flat_map(|i| (i + 1..left).map(move |j| if second { j } else { i }));
        let pair: Vec<usize> = pair.collect();
        let row = |start| pair.iter().map(move |at| start + at);
        of_rows(left).flat_map(row).collect()
    };
    let apart = x.gather(&places(false)).sub(&x.gather(&places(true)));
    // Whether the first of a pair loses, and whether it wins.
    let loses = msb(ctx, &apart)?;
    let both = BitShare::concat(&[&loses, &loses.not_by(ctx.party())]);
    let won = |i: usize, j: usize| match i < j {
        true => loses.len() + pair_of(left, i, j),
        false => pair_of(left, j, i),
    };
    // Vector t has every number's comparison with the t-th of the others.
    let against = |t: usize| {
        let one = |i| won(i, if t < i { t } else { t + 1 });
        let row = |start| (0..left).map(move |i| start + one(i));
        both.gather(&of_rows(pairs(left)).flat_map(row).collect::<Vec<_>>())
    };
    let all_won = all(ctx, &(0..left - 1).map(against).collect::<Vec<_>>())?;
    let kept = BitShare::concat(&[&all_won; N]);
    let kept = mux(ctx, &kept, &Share::concat(ring, &all_of.each_ref()))?;
    let n = rows * left;
    Ok(std::array::from_fn(|part| {
        kept.slice(part * n..(part + 1) * n).sum_rows(rows, left)
    }))
}

/// The cost of [`best`], with `carried` numbers a number.
pub(super) fn best_cost(rows: usize, left: usize, ring: Ring, carried: usize) -> Cost {
    match left {
        0 | 1 => Cost::ZERO,
        left => {
            msb_cost(rows * pairs(left), ring.bits())
                + all_cost(rows * left, left - 1)
                + mux_cost(carried * rows * left, ring)
        }
    }
}

/// How many of a row are left by a tournament that ends where there are at most `few`.
pub(super) fn left_of(mut cols: usize, few: usize) -> usize {
    while cols > few {
        cols = cols.div_ceil(2);
    }
    cols
}

fn pairs(k: usize) -> usize {
    k * (k - 1) / 2
}

/// The number of the pair i < j of k.
fn pair_of(k: usize, i: usize, j: usize) -> usize {
    i * (2 * k - i - 1) / 2 + j - i - 1
}
