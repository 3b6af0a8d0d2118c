//! AND and OR of shared bits.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::ot::triple;
use crate::share::BitShare;

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
            assert_eq!(stats.rounds, 2);
            let both = a.iter().zip(&b);
            let want: Vec<u64> = both.clone().map(|(a, b)| a & b).collect();
            assert_eq!(reveal_bits(&z0.0, &z1.0), want);
            let want: Vec<u64> = both.map(|(a, b)| a | b).collect();
            assert_eq!(reveal_bits(&z0.1, &z1.1), want);
        }
    }
}
