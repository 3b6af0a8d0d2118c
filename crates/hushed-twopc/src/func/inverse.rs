//! 1/x and 1/√x of positive shared integers, one a row: precision matters, bytes hardly.
//!
//! The highest set bit k of x < 2^b gives S = 2^(b−1−k) and u = x·S/2^b in [1/2, 1). A quadratic is the first guess for
//! 1/u or 1/√u and one Newton step follows: relative error below 1.1·10^−4 and 1.6·10^−5. The result is multiplied by
//! the power of two that belongs to k (its root, for 1/√x), a public list that the shared one-hot of k picks from.
//! Source of the scheme: the normalisation of Lu et al. used by BumbleBee's reciprocal and rsqrt; here any weight may
//! stand in the list, so that 1/√x needs no parity case.

use super::{rescale, rescale_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    Sign, bit_to_arith, bit_to_arith_cost, leading_one, leading_one_cost, mul, mul_cost, square,
    square_cost,
};
use crate::share::{BitShare, Ring, Share};

/// Fraction bits of u and of the guesses.
const FRAC: u32 = 18;
/// Holds a product of two guesses, below 4, and its sign.
const WIDE: Ring = Ring::new(2 * FRAC + 4);

/// Bits that the powers of two keep beyond the result's.
const GUARD: u32 = 6;

/// Minimax of relative error on [1/2, 1]: 1/u ≈ c0 + c1·u + c2·u², off by 1/99.
const INVERSE: [f64; 3] = [4.242_424_242, -5.818_181_818, 2.585_858_586];
/// Minimax of relative error on [1/2, 1]: 1/√u, off by 3.2·10^−3.
const ROOT: [f64; 3] = [2.233_947_03, -2.066_206_53, 0.835_447_15];

/// scale/x for integers 0 < x < 2^bits: `x` in a ring of at least bits + 1; the result has `frac` fraction bits in
/// `to`. `scale/x` must stay below 2^(to − frac − 2) for every x that occurs. For x = 0 the result is 0.
pub fn reciprocal(
    ctx: &mut Ctx,
    x: &Share,
    bits: u32,
    scale: f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    let (u, hot) = normalise(ctx, x, bits, to)?;
    let guess = quadratic(ctx, &u, &INVERSE)?;
    // y(2 − u·y)
    let uy = mul(ctx, &u, &guess)?;
    let uy = rescale(ctx, &uy, FRAC, Sign::NonNegative, WIDE)?;
    let two = 2 << FRAC;
    let correction = uy.neg().add_public(ctx.party(), two);
    let y = mul(ctx, &guess, &correction)?;
    let y = rescale(ctx, &y, FRAC, Sign::NonNegative, listed(to))?;
    // 1/x = S/(u·2^bits)
    let weight = |k: u32| scale * (-f64::from(k) - 1.0).exp2();
    finish(ctx, &y, &hot, weight, frac, to)
}

/// scale/√x for integers 0 < x < 2^bits, otherwise as [`reciprocal`].
pub fn inverse_root(
    ctx: &mut Ctx,
    x: &Share,
    bits: u32,
    scale: f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    let (u, hot) = normalise(ctx, x, bits, to)?;
    let guess = quadratic(ctx, &u, &ROOT)?;
    // y(3 − u·y²)/2
    let y2 = square(ctx, &guess)?;
    let y2 = rescale(ctx, &y2, FRAC, Sign::NonNegative, WIDE)?;
    let uy2 = mul(ctx, &u, &y2)?;
    let uy2 = rescale(ctx, &uy2, FRAC, Sign::NonNegative, WIDE)?;
    let correction = uy2.neg().add_public(ctx.party(), 3 << FRAC);
    let y = mul(ctx, &guess, &correction)?;
    let y = rescale(ctx, &y, FRAC + 1, Sign::NonNegative, listed(to))?;
    // 1/√x = 1/√(u·2^(k+1))
    let weight = |k: u32| scale * (-(f64::from(k) + 1.0) / 2.0).exp2();
    finish(ctx, &y, &hot, weight, frac, to)
}

/// The cost of [`reciprocal`] for `n` numbers.
pub fn reciprocal_cost(n: usize, bits: u32, to: Ring) -> Cost {
    normalise_cost(n, bits, to)
        + quadratic_cost(n)
        + mul_cost(n, WIDE)
        + rescale_cost(n, WIDE, FRAC, WIDE)
        + mul_cost(n, WIDE)
        + rescale_cost(n, WIDE, FRAC, listed(to))
        + finish_cost(n, to)
}

/// The cost of [`inverse_root`] for `n` numbers.
pub fn inverse_root_cost(n: usize, bits: u32, to: Ring) -> Cost {
    let cut = rescale_cost(n, WIDE, FRAC, WIDE);
    let last = rescale_cost(n, WIDE, FRAC + 1, listed(to));
    normalise_cost(n, bits, to)
        + quadratic_cost(n)
        + square_cost(n, WIDE)
        + cut
        + mul_cost(n, WIDE)
        + cut
        + mul_cost(n, WIDE)
        + last
        + finish_cost(n, to)
}

fn normalise_cost(n: usize, bits: u32, to: Ring) -> Cost {
    let ring = Ring::new(bits + 1);
    leading_one_cost(n, ring)
        + bit_to_arith_cost(n * bits as usize, wider(ring, listed(to)))
        + mul_cost(n, ring)
        + rescale_cost(n, ring, bits.saturating_sub(FRAC), WIDE)
}

fn quadratic_cost(n: usize) -> Cost {
    square_cost(n, WIDE) + rescale_cost(n, WIDE, FRAC, WIDE).repeated(2)
}

fn finish_cost(n: usize, to: Ring) -> Cost {
    let ring = listed(to);
    mul_cost(n, ring) + rescale_cost(n, ring, FRAC + GUARD, to)
}

/// The ring of the list of powers and of its product with a guess: the list keeps GUARD bits more than the result.
fn listed(to: Ring) -> Ring {
    Ring::new((to.bits() + GUARD + FRAC).min(64))
}

fn wider(a: Ring, b: Ring) -> Ring {
    Ring::new(a.bits().max(b.bits()))
}

/// u = x·2^(bits−1−k)/2^bits with [`FRAC`] fraction bits in [`WIDE`], and the one-hot of k, little end first, as
/// numbers of a ring that both lists of powers fit.
fn normalise(
    ctx: &mut Ctx,
    x: &Share,
    bits: u32,
    to: Ring,
) -> Result<(Share, Vec<Share>), TwopcError> {
    let (ring, n) = (Ring::new(bits + 1), x.len());
    let x = x.reduce_to(ring);
    let hot = leading_one(ctx, &x)?;
    let all = BitShare::concat(&hot.iter().collect::<Vec<_>>());
    let all = bit_to_arith(ctx, &all, wider(ring, listed(to)))?;
    let places = 0..bits as usize;
    let hot: Vec<Share> = places.map(|k| all.slice(k * n..(k + 1) * n)).collect();
    let weights: Vec<u64> = (0..bits).map(|k| 1 << (bits - 1 - k)).collect();
    let u = mul(ctx, &x, &pick(&hot, &weights, ring))?;
    let u = if bits >= FRAC {
        rescale(ctx, &u, bits - FRAC, Sign::NonNegative, WIDE)?
    } else {
        rescale(ctx, &u, 0, Sign::NonNegative, WIDE)?.shift_left(FRAC - bits)
    };
    Ok((u, hot))
}

/// c0 + c1·u + c2·u².
fn quadratic(ctx: &mut Ctx, u: &Share, c: &[f64; 3]) -> Result<Share, TwopcError> {
    let constant = |x: f64| (x * f64::from(1u32 << FRAC)).round() as i64;
    let u2 = square(ctx, u)?;
    let u2 = rescale(ctx, &u2, FRAC, Sign::NonNegative, WIDE)?;
    let sum = u2
        .mul_public(constant(c[2]))
        .add(&u.mul_public(constant(c[1])));
    let sum = sum.add_public(ctx.party(), constant(c[0]) << FRAC);
    rescale(ctx, &sum, FRAC, Sign::NonNegative, WIDE)
}

/// Σ_k hot_k·weights_k.
fn pick(hot: &[Share], weights: &[u64], ring: Ring) -> Share {
    let mut sum = Share::zero(ring, hot.first().map_or(0, Share::len));
    for (hot, &w) in hot.iter().zip(weights) {
        sum.add_assign(&hot.reduce_to(ring).mul_public(w as i64));
    }
    sum
}

/// y·weight(k), where y has [`FRAC`] fraction bits in the ring [`listed`] and the result `frac`.
fn finish(
    ctx: &mut Ctx,
    y: &Share,
    hot: &[Share],
    weight: impl Fn(u32) -> f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    // y is in [1, 2]: the product stays below 2^(to + GUARD + FRAC − 1).
    let limit = 1u64 << (to.bits() + GUARD - 2);
    let weights: Vec<u64> = (0..hot.len() as u32)
        .map(|k| ((weight(k) * f64::from(frac + GUARD).exp2()).round() as u64).min(limit))
        .collect();
    let product = mul(ctx, y, &pick(hot, &weights, y.ring()))?;
    rescale(ctx, &product, FRAC + GUARD, Sign::NonNegative, to)
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("inverse {FRAC} {WIDE:?} {GUARD} {INVERSE:?} {ROOT:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};

    fn arguments(bits: u32) -> Vec<u64> {
        let mut x: Vec<u64> = (3..bits)
            .flat_map(|k| [1u64 << k, (1 << k) + 1, (2 << k) - 1, (1 << k) * 3 / 2])
            .collect();
        x.extend((20..400).map(|i| i * 37));
        x.retain(|&v| v < 1 << bits);
        x
    }

    #[test]
    fn reciprocal_relative_error() {
        let (bits, frac, to) = (21, 16, Ring::new(36));
        let x = arguments(bits);
        let scale = 8192.0;
        let (client, server) = share(Ring::new(30), &x, 2);
        let (a, b, stats) = run_counted(
            move |ctx| reciprocal(ctx, &client, bits, scale, frac, to),
            move |ctx| reciprocal(ctx, &server, bits, scale, frac, to),
        );
        assert_cost(&stats, reciprocal_cost(x.len(), bits, to));
        for (x, y) in x.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let (want, got) = (scale / *x as f64, y as f64 / 65536.0);
            assert!(
                (got - want).abs() < want * 1.4e-4 + 3e-5,
                "{x}: {got} for {want}"
            );
        }
    }

    #[test]
    fn root_relative_error() {
        let (bits, frac, to) = (33, 16, Ring::new(36));
        let x = arguments(bits);
        let scale = 4096.0;
        let (client, server) = share(Ring::new(40), &x, 2);
        let (a, b, stats) = run_counted(
            move |ctx| inverse_root(ctx, &client, bits, scale, frac, to),
            move |ctx| inverse_root(ctx, &server, bits, scale, frac, to),
        );
        assert_cost(&stats, inverse_root_cost(x.len(), bits, to));
        for (x, y) in x.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let (want, got) = (scale / (*x as f64).sqrt(), y as f64 / 65536.0);
            assert!(
                (got - want).abs() < want * 4e-5 + 3e-5,
                "{x}: {got} for {want}"
            );
        }
    }
}
