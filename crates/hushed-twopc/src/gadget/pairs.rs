//! The largest of few numbers, in few messages: all pairs are compared at once, and the largest is the one that wins
//! all its comparisons (of equal numbers the first).
//!
//! A tournament of k waits for ⌈log₂ k⌉ comparisons, this for one and an AND of k − 1 bits; it makes k(k−1)/2
//! comparisons instead of k − 1. More than [`FEW`] numbers play a tournament first, until as many are left.

use super::boolean::{all, all_cost};
use super::compare::{msb, msb_cost};
use super::maximum::{tournament, tournament_cost};
use super::select::{mux, mux_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::share::{BitShare, Ring, Share};

/// Numbers whose pairs are all compared: at most 2,016 pairs, some tens of kilobytes.
const FEW: usize = 64;

/// Cost of [`largest_of_few`].
pub fn largest_of_few_cost(rows: usize, cols: usize, ring: Ring) -> Cost {
    let cost = tournament_cost(&vec![cols; rows], ring, (0, ring.bits()), 2, FEW);
    match left_of(cols) {
        0 | 1 => cost,
        left => {
            cost + msb_cost(rows * pairs(left), ring.bits())
                + all_cost(rows * left, left - 1)
                + mux_cost(2 * rows * left, ring)
        }
    }
}

/// The largest of each row of x (rows × cols, signed), and what goes with it: of `with`, in the ring of x, as many
/// elements. Exact; of equal ones any one may be it. Differences within a row must be below 2^(ℓ−1).
///
/// # Errors
/// [`TwopcError::Misuse`] unless x and `with` have rows × cols elements and one ring, and cols ≥ 1.
pub fn largest_of_few(
    ctx: &mut Ctx,
    x: &Share,
    with: &Share,
    rows: usize,
    cols: usize,
) -> Result<[Share; 2], TwopcError> {
    let (name, ring) = ("largest_of_few", x.ring());
    let bits = |ring: Ring| ring.bits() as usize;
    expect_len(name, "ring bits", bits(with.ring()), bits(ring))?;
    let (widths, exact) = (vec![cols; rows], (0, ring.bits()));
    let given = [x.clone(), with.clone()];
    let [x, with] = tournament(ctx, name, given, &widths, exact, FEW, |_| ())?;
    let left = left_of(cols);
    if left < 2 {
        return Ok([x, with]);
    }
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
    let kept = BitShare::concat(&[&all_won, &all_won]);
    let kept = mux(ctx, &kept, &Share::concat(ring, &[&x, &with]))?;
    let n = rows * left;
    Ok([0..n, n..2 * n].map(|part| kept.slice(part).sum_rows(rows, left)))
}

/// How many of a row are left to be compared with each other.
fn left_of(mut cols: usize) -> usize {
    while cols > FEW {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_signed, run_counted, share_signed};
    use hushed_math::rng::SecretRng;

    #[test]
    fn the_largest_of_every_row_brings_what_goes_with_it() {
        let ring = Ring::new(20);
        let largest = (1 << 18) - 1;
        let mut rng = SecretRng::insecure_from_seed(8);
        for (rows, cols) in [(1, 1), (3, 2), (2, 3), (4, 14), (1, 64), (2, 65), (1, 300)] {
            let any = |_| (rng.next_u64() % (2 * largest as u64 + 1)) as i64 - largest;
            let mut x: Vec<i64> = (0..rows * cols).map(any).collect();
            // Equal ones, and numbers as far apart as they may be.
            x[..cols].fill(3);
            (x[0], x[cols - 1]) = (-largest, largest);
            let with: Vec<i64> = (0..rows * cols).map(|i| (7 * i) as i64).collect();
            let ((x0, x1), (w0, w1)) = (share_signed(ring, &x, 1), share_signed(ring, &with, 2));
            let (y0, y1, stats) = run_counted(
                |ctx| largest_of_few(ctx, &x0, &w0, rows, cols).unwrap(),
                |ctx| largest_of_few(ctx, &x1, &w1, rows, cols).unwrap(),
            );
            assert_cost(&stats, largest_of_few_cost(rows, cols, ring));
            let [most, found] = [0, 1].map(|k| reveal_signed(&y0[k], &y1[k]));
            for (r, row) in x.chunks(cols).enumerate() {
                assert_eq!(Some(&most[r]), row.iter().max());
                let at = found[r] as usize / 7 - r * cols;
                assert_eq!((found[r] % 7, row[at]), (0, most[r]));
            }
        }
    }

    #[test]
    fn one_of_equal_numbers_is_the_largest() {
        let ring = Ring::new(8);
        let (x0, x1) = share_signed(ring, &[5; 9], 1);
        let (w0, w1) = share_signed(ring, &[1, 2, 3, 4, 5, 6, 7, 8, 9], 2);
        let (y0, y1, _) = run_counted(
            |ctx| largest_of_few(ctx, &x0, &w0, 1, 9).unwrap(),
            |ctx| largest_of_few(ctx, &x1, &w1, 1, 9).unwrap(),
        );
        assert_eq!(reveal_signed(&y0[0], &y1[0]), [5]);
        assert!((1..=9).contains(&reveal_signed(&y0[1], &y1[1])[0]));
        run_counted(
            |ctx| {
                assert!(largest_of_few(ctx, &x0, &w0, 1, 8).is_err());
                let other = w0.reduce_to(Ring::new(7));
                assert!(largest_of_few(ctx, &x0, &other, 1, 9).is_err());
            },
            |_| (),
        );
    }
}
