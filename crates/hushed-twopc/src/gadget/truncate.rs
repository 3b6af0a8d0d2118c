//! Truncation and change of ring in one step, using the wrap bit.
//!
//! For y in 0 .. 2^(ℓ−1), shared as y_c + y_s = y + w·2^ℓ over the integers, the wrap w is 1 iff one of the shares has
//! its top bit set: w = m_c ∨ m_s = 1 − n_c·n_s with n = ¬m. That is one AND of a bit from each party, delivered as an
//! arithmetic share by one additive OT. Then, in the ring of k bits (`to`),
//!
//! > y/2^s ≈ ⌊y_c/2^s⌋ + ⌊y_s/2^s⌋ + 1 − w·2^(ℓ−s) mod 2^k,
//!
//! which needs w only modulo 2^(k−ℓ+s), and not at all if k ≤ ℓ − s: then the step is local. For signed values the
//! client first adds 2^(ℓ−2) and afterwards subtracts 2^(ℓ−2−s). (Cheetah, USENIX Security 2022, one-bit approximate
//! truncation; fused with the extension as in Nimbus, NeurIPS 2024; BumbleBee, NDSS 2025, Alg. 5.)
//!
//! **Error.** With φ the fractional part of x/2^s, the result is ⌊x/2^s⌋ or ⌊x/2^s⌋ + 1, the latter with probability φ
//! over the uniform share: random rounding, unbiased, and exact where 2^s divides x (except with probability 2^−s, when
//! both shares end in s zeros: then one more). The shares determine the random choice, which is part of the
//! functionality. No large error can occur as long as the assumption on the sign holds. With s = 0 the result is exact.
//!
//! One round; 1 + (k − ℓ + s) bits per element, half of them each way.

use super::select::{private_product, private_product_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_at_most};
use crate::share::{BitShare, Ring, Share};

/// What is known of a value's sign and size before truncation, in a ring of ℓ bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sign {
    /// 0 ≤ x < 2^(ℓ−1).
    NonNegative,
    /// −2^(ℓ−2) ≤ x < 2^(ℓ−2).
    Bounded,
}

/// Cost of [`truncate`] of `n` elements of `from`, for either sign.
pub fn truncate_cost(n: usize, from: Ring, shift: u32, to: Ring) -> Cost {
    match (to.bits() + shift).saturating_sub(from.bits()) {
        0 => Cost::ZERO,
        width => private_product_cost(n, width),
    }
}

/// ⌊x/2^shift⌋ + e in the ring `to`, with e in {0, 1} and unbiased rounding; exact for shift 0. `to` may be smaller
/// than, equal to or larger than the ring of x (the sign is extended).
///
/// # Errors
/// [`TwopcError::Misuse`] unless shift ≤ ℓ − 2.
pub fn truncate(ctx: &mut Ctx, x: &Share, shift: u32, sign: Sign, to: Ring) -> Result<Share, TwopcError> {
    let from = x.ring();
    let bits = from.bits();
    let most = u64::from(bits).saturating_sub(2);
    expect_at_most("truncate", "shift", shift.into(), most)?;
    let me = ctx.party();
    let offset = match sign {
        Sign::NonNegative => 0,
        Sign::Bounded => 1i64 << (bits.max(2) - 2),
    };
    let y = x.add_public(me, offset);
    let floors = Share::new(to, y.words().iter().map(|w| w >> shift).collect());
    let out = floors.add_public(me, i64::from(shift > 0) - (offset >> shift));
    let width = (to.bits() + shift).saturating_sub(bits);
    if width == 0 {
        return Ok(out);
    }
    // No top bit on either side: no wrap.
    let clear = y.words().iter().map(|w| 1 - from.top_bit(*w));
    let clear = BitShare::from_low_bits(clear.collect::<Vec<_>>().into_iter());
    let no_wrap = private_product(ctx, &clear, width)?;
    let no_wrap = Share::new(to, no_wrap.into_words());
    // −w·2^(ℓ−s) = (no_wrap − 1)·2^(ℓ−s), where ℓ − s < 64 because width > 0 and `to` has at most 64 bits.
    Ok(out.add(&no_wrap.add_public(me, -1).shift_left(bits - shift)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal_signed, run_counted, share_signed};
    use hushed_math::rng::SecretRng;

    fn run(values: &[i64], from: Ring, shift: u32, sign: Sign, to: Ring, seed: u64) -> Vec<i64> {
        let (x0, x1) = share_signed(from, values, seed);
        let (y0, y1, stats) = run_counted(
            |ctx| truncate(ctx, &x0, shift, sign, to).unwrap(),
            |ctx| truncate(ctx, &x1, shift, sign, to).unwrap(),
        );
        let cost = truncate_cost(values.len(), from, shift, to);
        assert_cost(&stats, cost);
        assert!(cost.rounds <= 1);
        reveal_signed(&y0, &y1)
    }

    fn inputs(bits: u32, sign: Sign) -> Vec<i64> {
        let mut rng = SecretRng::insecure_from_seed(u64::from(bits));
        let (low, high): (i128, i128) = match sign {
            Sign::NonNegative => (0, 1 << (bits - 1)),
            Sign::Bounded => (-(1 << (bits - 2)), 1 << (bits - 2)),
        };
        let span = (high - low) as u128;
        let edges = [low, low + 1, high - 1, high - 2, 0, 1, -1];
        let edges = edges.into_iter().filter(|v| (low..high).contains(v));
        let random = (0..200).map(|_| low + (u128::from(rng.next_u64()) % span) as i128);
        edges.chain(random).map(|v| v as i64).collect()
    }

    #[test]
    fn every_kind_of_ring_change() {
        let cases = [
            (64, 18, 64),
            (64, 18, 46),
            (64, 6, 32),
            (64, 36, 32),
            (32, 12, 32),
            (32, 0, 64),
            (32, 6, 64),
            (37, 9, 40),
            (20, 18, 20),
            (16, 14, 64),
            (2, 0, 5),
            (64, 62, 64),
        ];
        for (bits, shift, to) in cases {
            for sign in [Sign::NonNegative, Sign::Bounded] {
                let (from, to) = (Ring::new(bits), Ring::new(to));
                let values = inputs(bits, sign);
                let got = run(&values, from, shift, sign, to, u64::from(shift));
                for (x, y) in values.iter().zip(got) {
                    // In `to` the quotient itself may wrap, so compare there.
                    let error = to.decode(to.encode(y.wrapping_sub(x >> shift)));
                    let most = i64::from(shift > 0);
                    assert!((0..=most).contains(&error), "{bits} {shift} {to:?} {sign:?}: {x} gave {y}");
                }
            }
        }
    }

    #[test]
    fn rounding_is_right_on_average() {
        let (ring, shift) = (Ring::new(32), 8);
        for fraction in [0i64, 64, 200] {
            let x = -(1000 << shift) + fraction;
            let got = run(&vec![x; 4000], ring, shift, Sign::Bounded, ring, 5);
            let up = got.iter().filter(|y| **y == -999).count() as f64 / 4000.0;
            let want = fraction as f64 / 256.0;
            // Five standard deviations of 4000 coins, and the 2^-8 of exact multiples.
            assert!((up - want).abs() < 0.045, "{fraction}: {up}");
        }
    }

    #[test]
    fn shift_is_checked() {
        let x = Share::zero(Ring::new(8), 2);
        run_counted(|ctx| assert!(truncate(ctx, &x, 7, Sign::Bounded, Ring::new(8)).is_err()), |_| ());
    }
}
