//! Equality of shared values, exact.
//!
//! x = x_c + x_s is zero iff x_c = −x_s, that is, iff all bits of x_c ⊕ (−x_s) are zero. The bits are local; their
//! complements are ANDed in a tree of depth ⌈log₂ ℓ⌉. Bits per element: 2(ℓ − 1) each way.
//!
//! [`one_hot`] tests an id that neither party knows against all numbers below a bound (a vocabulary) at once: it takes
//! the id's bits, then outer products of the one-hot vectors of its halves, so that the last level is one AND per entry
//! instead of ℓ − 1. BumbleBee (NDSS 2025, §VI) runs one equality per entry.

use super::bits::{to_bits, to_bits_cost};
use super::boolean::{all_cost, all_planes, and, and_cost};
use super::planes::bit_planes;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_at_most, expect_len};
use crate::share::{BitShare, Share};
use hushed_net::Party;

/// Cost of [`is_zero`] of `n` elements of `bits` bits.
pub fn is_zero_cost(n: usize, bits: u32) -> Cost {
    all_cost(n, bits as usize)
}

/// 1{x = 0} for each element. Subtract first to compare two values.
pub fn is_zero(ctx: &mut Ctx, x: &Share) -> Result<BitShare, TwopcError> {
    let bits = x.ring().bits();
    let mut same = match ctx.party() {
        Party::Client => bit_planes(x.words(), bits),
        Party::Server => bit_planes(x.neg().words(), bits),
    };
    if ctx.party() == Party::Client {
        same.iter_mut().for_each(|w| *w = !*w);
    }
    all_planes(ctx, same, x.len())
}

/// Cost of [`equal`] for `n` pairs of `bits` bits.
pub fn equal_cost(n: usize, bits: u32) -> Cost {
    is_zero_cost(n, bits)
}

/// 1{x = y} for each pair.
///
/// # Errors
/// [`TwopcError::Misuse`] unless the lengths and rings agree.
pub fn equal(ctx: &mut Ctx, x: &Share, y: &Share) -> Result<BitShare, TwopcError> {
    let bits = |s: &Share| s.ring().bits() as usize;
    expect_len("equal", "elements", y.len(), x.len())?;
    expect_len("equal", "ring bits", bits(y), bits(x))?;
    is_zero(ctx, &x.sub(y))
}

/// Cost of [`one_hot`] of `n` numbers of `bits` bits.
pub fn one_hot_cost(n: usize, bits: u32, count: usize) -> Cost {
    fn outer(n: usize, bits: usize, entries: usize) -> Cost {
        if bits == 1 {
            return Cost::ZERO;
        }
        let low = bits / 2;
        outer(n, low, 1 << low) + outer(n, bits - low, 1 << (bits - low)) + and_cost(n * entries)
    }
    to_bits_cost(n, bits) + outer(n, bits as usize, count)
}

/// The row 1{x = 0}, 1{x = 1}, … 1{x = count − 1} of each number x in 0 .. 2^ℓ: n × count bits, row by row; a row is
/// zero if x ≥ count. Exact. Sends little more than 4 bits per entry.
///
/// # Errors
/// [`TwopcError::Misuse`] unless `count` is 1 to 2^ℓ and ℓ at most 32.
pub fn one_hot(ctx: &mut Ctx, x: &Share, count: usize) -> Result<BitShare, TwopcError> {
    let bits = x.ring().bits();
    expect_at_most("one_hot", "ring bits", bits.into(), 32)?;
    expect_at_least("one_hot", "count", count as u64, 1)?;
    expect_at_most("one_hot", "count", count as u64, 1 << bits)?;
    let planes = to_bits(ctx, x)?;
    unit_rows(ctx, &planes, x.len(), count)
}

/// The first `count` entries of the one-hot rows of numbers with the given bits, least significant first.
fn unit_rows(ctx: &mut Ctx, bits: &[BitShare], n: usize, count: usize) -> Result<BitShare, TwopcError> {
    if let [bit] = bits {
        let both = BitShare::concat(&[&bit.not_by(ctx.party()), bit]);
        let places = (0..n).flat_map(|i| (0..count).map(move |j| j * n + i));
        return Ok(both.gather(&places.collect::<Vec<_>>()));
    }
    let (low, high) = bits.split_at(bits.len() / 2);
    let (l, h) = (1 << low.len(), 1 << high.len());
    let low = unit_rows(ctx, low, n, l)?;
    let high = unit_rows(ctx, high, n, h)?;
    let spread = |from: &BitShare, place: &dyn Fn(usize, usize) -> usize| {
        let places = (0..n).flat_map(|i| (0..count).map(move |j| (i, j)));
        let places = places.map(|(i, j)| place(i, j)).collect::<Vec<_>>();
        from.gather(&places)
    };
    let low = spread(&low, &|i, j| i * l + j % l);
    let high = spread(&high, &|i, j| i * h + j / l);
    and(ctx, &low, &high)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::share::Ring;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share};

    #[test]
    fn zero_and_nothing_else() {
        for bits in [1, 2, 7, 16, 37, 64] {
            let ring = Ring::new(bits);
            let mut x: Vec<u64> = (0..bits).map(|j| 1 << j).collect();
            x.extend([0, ring.mask(), 0, ring.mask() >> 1, 0]);
            let (x0, x1) = share(ring, &x, u64::from(bits));
            let (b0, b1, stats) = run_counted(|ctx| is_zero(ctx, &x0).unwrap(), |ctx| is_zero(ctx, &x1).unwrap());
            assert_cost(&stats, is_zero_cost(x.len(), bits));
            let want: Vec<u64> = x.iter().map(|x| u64::from(*x == 0)).collect();
            assert_eq!(reveal_bits(&b0, &b1), want, "{bits} bits");
        }
    }

    #[test]
    fn pairs_are_compared() {
        let ring = Ring::new(16);
        let x: Vec<u64> = (0..200).collect();
        let y: Vec<u64> = (0..200).map(|i| if i % 3 == 0 { i } else { i ^ 0x8000 }).collect();
        let ((x0, x1), (y0, y1)) = (share(ring, &x, 1), share(ring, &y, 2));
        let (b0, b1, stats) = run_counted(|ctx| equal(ctx, &x0, &y0).unwrap(), |ctx| equal(ctx, &x1, &y1).unwrap());
        assert_cost(&stats, equal_cost(x.len(), 16));
        let want: Vec<u64> = (0..200).map(|i| u64::from(i % 3 == 0)).collect();
        assert_eq!(reveal_bits(&b0, &b1), want);
        run_counted(
            |ctx| {
                assert!(equal(ctx, &x0, &y0.slice(0..3)).is_err());
                assert!(equal(ctx, &x0, &y0.reduce_to(Ring::new(8))).is_err());
                assert!(one_hot(ctx, &x0, 0).is_err() && one_hot(ctx, &x0, 1 << 17).is_err());
            },
            |_| (),
        );
    }

    #[test]
    fn rows_have_their_one() {
        for (n, bits, count) in [(1, 1, 2), (5, 1, 1), (3, 2, 3), (7, 5, 32), (4, 9, 300), (2, 15, 30522)] {
            let ring = Ring::new(bits);
            let last = count as u64 - 1;
            let x = (0..n as u64).map(|i| ring.reduce(i.wrapping_mul(0x9e37_79b9) >> 3));
            let x: Vec<u64> = [last, ring.mask()].into_iter().chain(x).take(n).collect();
            let (x0, x1) = share(ring, &x, 3);
            let (b0, b1, stats) =
                run_counted(|ctx| one_hot(ctx, &x0, count).unwrap(), |ctx| one_hot(ctx, &x1, count).unwrap());
            let cost = one_hot_cost(n, bits, count);
            assert_cost(&stats, cost);
            let open = reveal_bits(&b0, &b1);
            for (row, x) in open.chunks(count).zip(&x) {
                let want = (0..count as u64).map(|j| u64::from(j == *x));
                assert!(row.iter().copied().eq(want), "{n} {bits} {count}");
            }
        }
    }
}
