//! AND and OR of two or more shared bits.

use super::planes::plane_share;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_least, expect_len};
use crate::ot::triple;
use crate::share::{BitShare, SecretWords};

/// Cost of [`and`] and [`or`] of `n` bits.
pub fn and_cost(n: usize) -> Cost {
    triple::and_words_cost(n.div_ceil(64), 0)
}

/// a ∧ b.
///
/// # Errors
/// [`TwopcError::Misuse`] unless the lengths agree.
pub fn and(ctx: &mut Ctx, a: &BitShare, b: &BitShare) -> Result<BitShare, TwopcError> {
    expect_len("and", "bits", b.len(), a.len())?;
    let (z, _) = triple::and_words(ctx, a.words(), b.words(), &[])?;
    Ok(BitShare::new(z.into_words(), a.len()))
}

/// a ∨ b = ¬(¬a ∧ ¬b).
///
/// # Errors
/// As [`and`].
pub fn or(ctx: &mut Ctx, a: &BitShare, b: &BitShare) -> Result<BitShare, TwopcError> {
    let me = ctx.party();
    Ok(and(ctx, &a.not_by(me), &b.not_by(me))?.not_by(me))
}

/// Cost of [`all`] of `places` vectors of `n` bits.
pub fn all_cost(n: usize, places: usize) -> Cost {
    let (words, mut left, mut cost) = (n.div_ceil(64), places, Cost::ZERO);
    while left > 1 {
        cost = cost + triple::and_words_cost(words * (left / 2), 0);
        left = left.div_ceil(2);
    }
    cost
}

/// The AND of all vectors, by a tree of depth ⌈log₂⌉ of their number.
///
/// # Errors
/// [`TwopcError::Misuse`] unless there is at least one vector and all have the same length.
pub fn all(ctx: &mut Ctx, bits: &[BitShare]) -> Result<BitShare, TwopcError> {
    expect_at_least("all", "vectors", bits.len() as u64, 1)?;
    let n = bits[0].len();
    for b in bits {
        expect_len("all", "bits", b.len(), n)?;
    }
    let mut left = SecretWords::with_room(n.div_ceil(64) * bits.len());
    bits.iter().for_each(|b| left.extend_from_slice(b.words()));
    all_planes(ctx, left, n)
}

/// [`all`] of vectors of `n` bits that lie one after the other. Their unused high bits, which are sent masked as the
/// others are, may be any.
pub(super) fn all_planes(ctx: &mut Ctx, mut left: SecretWords, n: usize) -> Result<BitShare, TwopcError> {
    let words = n.div_ceil(64);
    while left.len() > words {
        let half = left.len() / words / 2 * words;
        let (a, rest) = left.split_at(half);
        let (b, odd) = rest.split_at(half);
        let (both, _) = triple::and_words(ctx, a, b, &[])?;
        left = SecretWords::from([both.as_slice(), odd].concat());
    }
    Ok(plane_share(&left, n))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_bits, run_counted, share_bits};

    #[test]
    fn truth_tables() {
        for n in [1, 4, 64, 131] {
            let a: Vec<u64> = (0..n as u64).map(|i| i & 1).collect();
            let b: Vec<u64> = (0..n as u64).map(|i| (i >> 1) & 1).collect();
            let (a0, a1) = share_bits(&a, 1);
            let (b0, b1) = share_bits(&b, 2);
            let (z0, z1, stats) = run_counted(
                |ctx| (and(ctx, &a0, &b0).unwrap(), or(ctx, &a0, &b0).unwrap()),
                |ctx| (and(ctx, &a1, &b1).unwrap(), or(ctx, &a1, &b1).unwrap()),
            );
            assert_cost(&stats, and_cost(n).repeated(2));
            let both = a.iter().zip(&b);
            let want: Vec<u64> = both.clone().map(|(a, b)| a & b).collect();
            assert_eq!(reveal_bits(&z0.0, &z1.0), want);
            let want: Vec<u64> = both.map(|(a, b)| a | b).collect();
            assert_eq!(reveal_bits(&z0.1, &z1.1), want);
        }
    }

    #[test]
    fn all_of_any_number() {
        for places in [1, 2, 5, 8] {
            let bit = |k: usize| (0..90).map(move |i: u64| u64::from(i % 7 != k as u64));
            let shares = (0..places).map(|k| share_bits(&bit(k).collect::<Vec<_>>(), k as u64));
            let (b0, b1): (Vec<_>, Vec<_>) = shares.unzip();
            let (z0, z1, stats) = run_counted(|ctx| all(ctx, &b0).unwrap(), |ctx| all(ctx, &b1).unwrap());
            let cost = all_cost(90, places);
            assert_cost(&stats, cost);
            let want: Vec<u64> = (0..90).map(|i| u64::from(i % 7 >= places.min(7) as u64)).collect();
            assert_eq!(reveal_bits(&z0, &z1), want, "{places}");
        }
        run_counted(|ctx| assert!(all(ctx, &[]).is_err()), |_| ());
    }
}
