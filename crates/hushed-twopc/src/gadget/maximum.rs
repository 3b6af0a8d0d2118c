//! Row maxima by a tournament with approximate comparison.
//!
//! A match of a and b keeps a + 1{a < b}·(b − a). Comparison drops low bits ([`less_than_public`](super::less_than_public)): a match
//! can be lost by less than 2^(drop_bits−1), so the winner of ⌈log₂ cols⌉ levels is at most ⌈log₂ cols⌉·2^(drop_bits−1) below the maximum,
//! and is always one of the row's elements. That is all a softmax needs, which only wants its arguments not to be large.

use super::compare::{coarse, msb, msb_cost};
use super::select::{mux, mux_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_len};
use crate::share::{Ring, Share};

/// Cost of [`max_rows`].
pub fn max_rows_cost(rows: usize, cols: usize, ring: Ring, drop_bits: u32, keep_bits: u32) -> Cost {
    let compared = keep_bits.min(ring.bits() - drop_bits);
    let mut cost = Cost::ZERO;
    let mut left = cols;
    while left > 1 {
        let matches = rows * (left / 2);
        cost = cost + msb_cost(matches, compared) + mux_cost(matches, ring);
        left = left.div_ceil(2);
    }
    cost
}

/// One element of each row of x (rows × cols, signed), at most ⌈log₂ cols⌉·2^(drop_bits−1) below the row's maximum. Differences
/// within a row must satisfy |a − b| + 2^drop_bits < 2^(drop_bits + keep_bits − 1).
///
/// # Errors
/// [`TwopcError::Misuse`] unless x has rows × cols elements, cols ≥ 1, drop_bits < ℓ and keep_bits ≥ 1.
pub fn max_rows(
    ctx: &mut Ctx,
    x: &Share,
    rows: usize,
    cols: usize,
    drop_bits: u32,
    keep_bits: u32,
) -> Result<Share, TwopcError> {
    expect_at_least("max_rows", "columns", cols as u64, 1)?;
    expect_len("max_rows", "elements", x.len(), rows * cols)?;
    let mut x = x.clone();
    let mut cols = cols;
    while cols > 1 {
        let half = cols / 2;
        // Column j meets column j + half; with an odd number the last one rests.
        let part = |from: usize, to: usize| {
            let place = |r: usize| (from..to).map(move |j| r * cols + j);
            let places: Vec<usize> = (0..rows).flat_map(place).collect();
            x.gather(&places)
        };
        let (a, b, rest) = (part(0, half), part(half, 2 * half), part(2 * half, cols));
        let less = msb(ctx, &coarse(ctx, &a.sub(&b), drop_bits, keep_bits)?)?;
        let winners = a.add(&mux(ctx, &less, &b.sub(&a))?);
        x = join_columns(&winners, &rest, rows);
        cols -= half;
    }
    Ok(x)
}

/// Two matrices of `rows` rows side by side.
fn join_columns(a: &Share, b: &Share, rows: usize) -> Share {
    if b.is_empty() {
        return a.clone();
    }
    let (left, right) = (a.len() / rows, b.len() / rows);
    let row = |r: usize| {
        let a = &a.words()[r * left..(r + 1) * left];
        a.iter()
            .chain(&b.words()[r * right..(r + 1) * right])
            .copied()
    };
    Share::new(a.ring(), (0..rows).flat_map(row).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_signed, run_counted, share_signed};
    use hushed_math::rng::SecretRng;

    fn run(x: &[i64], rows: usize, cols: usize, drop: u32, keep: u32) -> Vec<i64> {
        let ring = Ring::new(32);
        let (x0, x1) = share_signed(ring, x, 1);
        let (y0, y1, stats) = run_counted(
            |ctx| max_rows(ctx, &x0, rows, cols, drop, keep).unwrap(),
            |ctx| max_rows(ctx, &x1, rows, cols, drop, keep).unwrap(),
        );
        let cost = max_rows_cost(rows, cols, ring, drop, keep);
        assert_cost(&stats, cost);
        assert_eq!(stats.rounds, cost.rounds);
        reveal_signed(&y0, &y1)
    }

    #[test]
    fn maxima_exact_and_approximate() {
        let mut rng = SecretRng::insecure_from_seed(2);
        for (rows, cols) in [(1, 1), (1, 2), (3, 3), (5, 7), (2, 64), (4, 101)] {
            let x = (0..rows * cols).map(|_| (rng.next_u64() % 60_001) as i64 - 30_000);
            let x: Vec<i64> = x.collect();
            let exact = run(&x, rows, cols, 0, 20);
            let near = run(&x, rows, cols, 5, 14);
            for (r, row) in x.chunks(cols).enumerate() {
                let max = *row.iter().max().unwrap();
                assert_eq!(exact[r], max);
                let levels = i64::from(cols.next_power_of_two().trailing_zeros());
                assert!(
                    row.contains(&near[r]) && max - near[r] <= levels * 16,
                    "{rows} {cols}"
                );
            }
        }
    }
}
