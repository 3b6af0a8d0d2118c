//! Row maxima by a tournament with approximate comparison.
//!
//! A match of a and b keeps a + 1{a < b}·(b − a). The comparison drops low bits
//! ([`less_than_public`](super::less_than_public)), so a match can be lost by less than 2^(drop_bits−1). The winner of
//! ⌈log₂ cols⌉ levels is always an element of its row, at most ⌈log₂ cols⌉·2^(drop_bits−1) below the maximum. That is
//! enough for a softmax, which only needs its arguments not to be large. Where nothing is dropped, more than two
//! elements meet at once where that saves messages ([`super::pairs`]): in rows of equal width, and in rows of nearly
//! equal width (such as those of a few tokens behind a long text), which are padded by repeating an element.
//! [`argmax_levels`] carries the column along: its multiplexer selects both in one message, at no further round. It
//! keeps the elements of every level, because the second largest is among those that the largest has met.

use super::compare::{coarse, msb, msb_cost};
use super::pairs::{largest, largest_cost};
use super::select::{mux, mux_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most, expect_len};
use crate::link::Link;
use crate::share::{BitShare, Ring, Share};

/// Cost of [`max_rows`] that drops and keeps these numbers of bits.
pub fn max_rows_cost(link: &Link, rows: usize, cols: usize, ring: Ring, bits: (u32, u32)) -> Cost {
    max_of_rows_cost(link, &vec![cols; rows], ring, bits)
}

/// Cost of [`max_of_rows`] that drops and keeps these numbers of bits.
pub fn max_of_rows_cost(link: &Link, widths: &[usize], ring: Ring, bits: (u32, u32)) -> Cost {
    match exact_rows_of(link, widths, ring, bits) {
        Some(cols) => largest_cost(link, widths.len(), cols, ring, 1),
        None => tournament_cost(link, widths, ring, bits, 1),
    }
}

/// The width to which rows are padded, if comparisons drop nothing and a tournament is not cheaper.
fn exact_rows_of(link: &Link, widths: &[usize], ring: Ring, bits: (u32, u32)) -> Option<usize> {
    let (drop_bits, keep_bits) = bits;
    let widest = *widths.iter().max()?;
    if drop_bits > 0 || keep_bits < ring.bits() {
        return None;
    }
    let cheaper = || {
        let filled = largest_cost(link, widths.len(), widest, ring, 1);
        link.price(&filled) < link.price(&tournament_cost(link, widths, ring, bits, 1))
    };
    let same = widths.iter().all(|width| *width == widest);
    (same || cheaper()).then_some(widest)
}

/// Pads rows of `widths` elements to `cols`, repeating the last element of each.
fn filled(x: &Share, widths: &[usize], cols: usize) -> Share {
    if x.len() == widths.len() * cols {
        return x.clone();
    }
    let mut start = 0;
    let rows = widths.iter().flat_map(|&width| {
        let from = start;
        start += width;
        (0..cols).map(move |j| from + j.min(width - 1))
    });
    x.gather(&rows.collect::<Vec<_>>())
}

/// One element of each row of x (rows × cols, signed), at most ⌈log₂ cols⌉·2^(drop_bits−1) below the row's maximum.
/// Differences within a row must satisfy |a − b| + 2^drop_bits < 2^(drop_bits + keep_bits − 1).
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
    max_of_rows(ctx, x, &vec![cols; rows], drop_bits, keep_bits)
}

/// [`max_rows`] for rows of `widths` elements each, one after another. The number of levels is that of the widest.
///
/// # Errors
/// [`TwopcError::Misuse`] unless x has Σ widths elements, each width is ≥ 1, drop_bits < ℓ and keep_bits ≥ 1.
pub fn max_of_rows(
    ctx: &mut Ctx,
    x: &Share,
    widths: &[usize],
    drop_bits: u32,
    keep_bits: u32,
) -> Result<Share, TwopcError> {
    for &width in widths {
        expect_at_least("max_rows", "columns", width as u64, 1)?;
    }
    expect_len("max_rows", "elements", x.len(), widths.iter().sum())?;
    let bits = (drop_bits, keep_bits);
    let [winners] = match exact_rows_of(&ctx.link(), widths, x.ring(), bits) {
        Some(cols) => largest(ctx, [filled(x, widths, cols)], widths.len(), cols)?,
        None => tournament(ctx, [x.clone()], widths, bits, |_| ())?,
    };
    Ok(winners)
}

/// Cost of [`largest_of_few`].
pub fn largest_of_few_cost(link: &Link, rows: usize, cols: usize, ring: Ring) -> Cost {
    largest_cost(link, rows, cols, ring, 2)
}

/// The largest of each row of x (rows × cols, signed), and the element of `with` at the same place; `with` has the size
/// and ring of x. Exact; among equals any one may be chosen. Differences within a row must be below 2^(ℓ−1).
///
/// # Errors
/// [`TwopcError::Misuse`] unless x and `with` have rows × cols elements and the same ring, and cols ≥ 1.
pub fn largest_of_few(
    ctx: &mut Ctx,
    x: &Share,
    with: &Share,
    rows: usize,
    cols: usize,
) -> Result<[Share; 2], TwopcError> {
    let name = "largest_of_few";
    let bits = |ring: Ring| ring.bits() as usize;
    expect_len(name, "ring bits", bits(with.ring()), bits(x.ring()))?;
    expect_at_least(name, "columns", cols as u64, 1)?;
    for x in [x, with] {
        expect_len(name, "elements", x.len(), rows * cols)?;
    }
    largest(ctx, [x.clone(), with.clone()], rows, cols)
}

/// Cost of [`argmax_levels`].
pub fn argmax_levels_cost(link: &Link, rows: usize, cols: usize, ring: Ring) -> Cost {
    tournament_cost(link, &vec![cols; rows], ring, (0, ring.bits()), 2)
}

/// The levels of an exact tournament, each with its elements and their columns, both in the ring of x: from x itself,
/// `cols` per row, to the largest, one per row; among equals any one may win. In a level of width w, number j of a row
/// meets number j + ⌊w/2⌋, and the winner is number j of the next level; with an odd w the last one rests and is the
/// last of the next level too. Differences within a row must be below 2^(ℓ−1).
///
/// # Errors
/// [`TwopcError::Misuse`] unless x has rows × cols elements, cols ≥ 1, and the column numbers fit the ring.
pub fn argmax_levels(ctx: &mut Ctx, x: &Share, rows: usize, cols: usize) -> Result<Vec<[Share; 2]>, TwopcError> {
    let (name, ring) = ("argmax_levels", x.ring());
    expect_at_least(name, "columns", cols as u64, 1)?;
    expect_len(name, "elements", x.len(), rows * cols)?;
    expect_at_most(name, "last column", cols as u64 - 1, ring.mask())?;
    let columns: Vec<i64> = (0..rows * cols).map(|i| (i % cols) as i64).collect();
    let all = [x.clone(), Share::public(ctx.party(), ring, &columns)];
    let (bits, widths) = ((0, ring.bits()), vec![cols; rows]);
    let mut levels = Vec::new();
    let last = tournament(ctx, all, &widths, bits, |level: &[Share; 2]| {
        levels.push(level.clone());
    })?;
    levels.push(last);
    Ok(levels)
}

/// The tournament over the first of `all`; the others are carried along. Comparisons drop and keep the given numbers of
/// bits. `before` sees the input of each level.
fn tournament<const N: usize>(
    ctx: &mut Ctx,
    mut all: [Share; N],
    widths: &[usize],
    (drop_bits, keep_bits): (u32, u32),
    mut before: impl FnMut(&[Share; N]),
) -> Result<[Share; N], TwopcError> {
    let mut widths = widths.to_vec();
    while widths.iter().any(|width| *width > 1) {
        before(&all);
        let Level { a, b, kept } = Level::new(&mut widths);
        let apart = all.each_ref().map(|x| x.gather(&b).sub(&x.gather(&a)));
        let less = coarse(ctx, &apart[0].neg(), drop_bits, keep_bits)?;
        let less = msb(ctx, &less)?;
        let bits = BitShare::concat(&[&less; N]);
        let moves = Share::concat(apart[0].ring(), &apart.each_ref());
        let moves = mux(ctx, &bits, &moves)?;
        for (k, x) in all.iter_mut().enumerate() {
            let winners = x.gather(&a).add(&moves.slice(k * less.len()..(k + 1) * less.len()));
            *x = Share::concat(x.ring(), &[&winners, &*x]).gather(&kept);
        }
    }
    Ok(all)
}

/// A level of the tournament: in a row of w elements, number j meets number j + ⌊w/2⌋; with an odd w the last one
/// rests.
struct Level {
    /// Places of the first and second elements of the matches.
    a: Vec<usize>,
    b: Vec<usize>,
    /// Places of the next level's elements in the concatenation of all winners and all elements of this level.
    kept: Vec<usize>,
}

impl Level {
    /// A level for rows of these widths, which are updated to those after it.
    fn new(widths: &mut [usize]) -> Self {
        let matches: usize = widths.iter().map(|width| width / 2).sum();
        let (mut a, mut b, mut kept) = (Vec::new(), Vec::new(), Vec::new());
        let mut start = 0;
        for width in widths {
            let half = *width / 2;
            kept.extend(a.len()..a.len() + half);
            kept.extend((2 * half..*width).map(|j| matches + start + j));
            a.extend(start..start + half);
            b.extend(start + half..start + 2 * half);
            start += *width;
            *width -= half;
        }
        Level { a, b, kept }
    }
}

fn tournament_cost(
    link: &Link,
    widths: &[usize],
    ring: Ring,
    (drop_bits, keep_bits): (u32, u32),
    carried: usize,
) -> Cost {
    let compared = keep_bits.min(ring.bits() - drop_bits);
    let mut cost = Cost::ZERO;
    let mut widths = widths.to_vec();
    while widths.iter().any(|width| *width > 1) {
        let matches = widths.iter().map(|width| width / 2).sum();
        cost = cost + msb_cost(link, matches, compared) + mux_cost(carried * matches, ring);
        widths.iter_mut().for_each(|width| *width = width.div_ceil(2));
    }
    cost
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
        let cost = max_rows_cost(&Link::LAN, rows, cols, ring, (drop, keep));
        assert_cost(&stats, cost);
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
                assert!(row.contains(&near[r]) && max - near[r] <= levels * 16, "{rows} {cols}");
            }
        }
    }

    /// The largest of each row, for rows of these widths.
    fn maxima(mut x: &[i64], widths: &[usize]) -> Vec<i64> {
        let row = |width: &usize| {
            let row = x.split_off(..*width).unwrap();
            *row.iter().max().unwrap()
        };
        widths.iter().map(row).collect()
    }

    #[test]
    fn rows_of_several_widths() {
        let ring = Ring::new(32);
        let widths = [1, 5, 2, 64, 3, 1];
        let mut rng = SecretRng::insecure_from_seed(4);
        let n = widths.iter().sum::<usize>();
        let x: Vec<i64> = (0..n).map(|_| (rng.next_u64() % 60_001) as i64 - 30_000).collect();
        let (x0, x1) = share_signed(ring, &x, 1);
        let (y0, y1, stats) = run_counted(
            |ctx| max_of_rows(ctx, &x0, &widths, 0, 20).unwrap(),
            |ctx| max_of_rows(ctx, &x1, &widths, 0, 20).unwrap(),
        );
        assert_cost(&stats, max_of_rows_cost(&Link::LAN, &widths, ring, (0, 20)));
        assert_eq!(reveal_signed(&y0, &y1), maxima(&x, &widths));
    }

    /// Rows of a few tokens behind a long text are padded to the widest; those of a whole text are not.
    #[test]
    fn rows_of_nearly_one_width() {
        let (ring, full) = (Ring::new(17), (0, 17));
        let behind: Vec<usize> = (0..12).flat_map(|_| 129..133).collect();
        let whole: Vec<usize> = (0..12).flat_map(|_| 1..65).collect();
        assert_eq!(exact_rows_of(&Link::LAN, &behind, ring, full), Some(132));
        assert_eq!(exact_rows_of(&Link::LAN, &whole, ring, full), None);
        assert_eq!(exact_rows_of(&Link::LAN, &behind, ring, (2, 17)), None);
        assert_eq!(exact_rows_of(&Link::LAN, &behind, ring, (0, 15)), None);
        let rounds = |bits| tournament_cost(&Link::LAN, &behind, ring, bits, 1).rounds;
        assert!(max_of_rows_cost(&Link::LAN, &behind, ring, (0, 17)).rounds * 4 < rounds(full) * 3);

        let widths = [33, 34, 35, 36];
        assert!(exact_rows_of(&Link::LAN, &widths, ring, full).is_some());
        let mut rng = SecretRng::insecure_from_seed(12);
        let n = widths.iter().sum::<usize>();
        let mut x: Vec<i64> = (0..n).map(|_| (rng.next_u64() % 60_001) as i64 - 30_000).collect();
        // The repeated element is the largest of the first row, and the smallest of the second.
        (x[32], x[66]) = (30_001, -30_001);
        let (x0, x1) = share_signed(ring, &x, 1);
        let (y0, y1, stats) = run_counted(
            |ctx| max_of_rows(ctx, &x0, &widths, 0, 17).unwrap(),
            |ctx| max_of_rows(ctx, &x1, &widths, 0, 17).unwrap(),
        );
        assert_cost(&stats, max_of_rows_cost(&Link::LAN, &widths, ring, (0, 17)));
        assert_eq!(reveal_signed(&y0, &y1), maxima(&x, &widths));
    }

    #[test]
    fn the_column_comes_along() {
        let ring = Ring::new(24);
        let mut rng = SecretRng::insecure_from_seed(3);
        for (rows, cols) in [(1, 1), (2, 2), (3, 7), (2, 129)] {
            let mut x: Vec<i64> = (0..rows * cols).map(|_| (rng.next_u64() % 8_001) as i64 - 4_000).collect();
            x[..cols].fill(-5); // a row of equals
            let (x0, x1) = share_signed(ring, &x, 4);
            let (y0, y1, stats) = run_counted(
                |ctx| argmax_levels(ctx, &x0, rows, cols).unwrap(),
                |ctx| argmax_levels(ctx, &x1, rows, cols).unwrap(),
            );
            let cost = argmax_levels_cost(&Link::LAN, rows, cols, ring);
            assert_cost(&stats, cost);
            let open = |level: usize, k: usize| reveal_signed(&y0[level][k], &y1[level][k]);
            let last = y0.len() - 1;
            let (max, at) = (open(last, 0), open(last, 1));
            // Every level holds elements of the row with their columns, and they are paired as documented.
            let mut width = cols;
            for level in 0..last {
                let (now, places) = (open(level, 0), open(level, 1));
                let next = open(level + 1, 0);
                for r in 0..rows {
                    let row = &now[r * width..][..width];
                    let (half, winners) = (width / 2, &next[r * width.div_ceil(2)..]);
                    for j in 0..half {
                        assert_eq!(winners[j], row[j].max(row[j + half]));
                    }
                    assert!(width % 2 == 0 || winners[half] == row[width - 1]);
                    for (j, v) in row.iter().enumerate() {
                        assert_eq!(x[r * cols + places[r * width + j] as usize], *v);
                    }
                }
                width = width.div_ceil(2);
            }
            for (r, row) in x.chunks(cols).enumerate() {
                assert_eq!(max[r], *row.iter().max().unwrap());
                assert_eq!(row[at[r] as usize], max[r]);
            }
        }
    }

    #[test]
    fn columns_must_fit_the_ring() {
        let x = Share::zero(Ring::new(2), 5);
        run_counted(|ctx| assert!(argmax_levels(ctx, &x, 1, 5).is_err()), |_| ());
    }

    #[test]
    fn the_largest_of_every_row_brings_what_goes_with_it() {
        let ring = Ring::new(20);
        let largest = (1 << 18) - 1;
        let mut rng = SecretRng::insecure_from_seed(8);
        for (rows, cols) in [(1, 1), (3, 2), (2, 3), (4, 14), (1, 64), (2, 65), (1, 300)] {
            let any = |_| (rng.next_u64() % (2 * largest as u64 + 1)) as i64 - largest;
            let mut x: Vec<i64> = (0..rows * cols).map(any).collect();
            // Equal numbers, and numbers as far apart as allowed.
            x[..cols].fill(3);
            (x[0], x[cols - 1]) = (-largest, largest);
            let with: Vec<i64> = (0..rows * cols).map(|i| (7 * i) as i64).collect();
            let ((x0, x1), (w0, w1)) = (share_signed(ring, &x, 1), share_signed(ring, &with, 2));
            let (y0, y1, stats) = run_counted(
                |ctx| largest_of_few(ctx, &x0, &w0, rows, cols).unwrap(),
                |ctx| largest_of_few(ctx, &x1, &w1, rows, cols).unwrap(),
            );
            assert_cost(&stats, largest_of_few_cost(&Link::LAN, rows, cols, ring));
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
