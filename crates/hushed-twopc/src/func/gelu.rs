//! GELU by one quartic of |x| that costs two squares.
//!
//! With G(z) = z/2·erf(z/√2), an even function, GELU(x) = x/2 + G(|x|) = max(x, 0) + (G(z) − z/2), z = |x|. The bracket is small
//! (|·| ≤ 0.17) and vanishes for large z, so on z < [`LIMIT`] a quartic stands for it and beyond it zero does. Scaled by
//! κ = [`KAPPA`], the cube root of the quartic's leading coefficient, the quartic needs no constant in front:
//!
//! > κ·(G(z) − z/2) ≈ ((κz − c)² + β)² + D·κz + ε.
//!
//! κ itself costs nothing: it is folded into the linear layer before, 1/κ into the one after. Beside BumbleBee's Seg4GeLU (§V-A, four
//! segments of degree 3 and 6, three comparisons) this takes two comparisons and two squares at twice to eight times its accuracy:
//! the minimax quartic on [0, 3.25] is off by at most 1.9·10^−3 (Seg4GeLU: 1.5·10^−2; P⁴ on [0, 2.7]: 9.4·10^−3).

use super::{Format, narrow};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    Sign, less_than_public, less_than_public_cost, msb, msb_cost, mux, mux_cost, square,
    square_cost, truncate, truncate_cost,
};
use crate::share::{BitShare, Ring, Share};

/// κ: what the argument and the result are multiplied by.
pub const KAPPA: f64 = 0.275_904_46;
/// Where the quartic ends, in units of x.
pub const LIMIT: f64 = 3.25;
/// Largest |x| that the rings below hold.
pub const RANGE: f64 = 110.0;

const C: f64 = 0.603_160_64;
const BETA: f64 = -0.112_865_79;
const D: f64 = 0.069_028_06;
const EPSILON: f64 = -0.062_638_63;

/// κx: |κx| < 32 leaves (κz − c)² < 2^−1.4 inside the segment in ring 26; outside, the squares are garbage that is not selected.
const ARGUMENT: Format = Format::new(27, 13);
/// Sign of x: exact to 2^−8.
const SIGN_DROP: u32 = 5;
/// Comparison with the limit: exact to 2^−5.
const LIMIT_DROP: u32 = 8;
/// Bits that |κx| < 32 needs beside its fraction and sign.
const INTEGER: u32 = 5;
/// ((κz − c)²)² has 26 fraction bits and stays below 2^−3.9.
const QUARTIC: Format = Format::new(24, 26);
/// The bracket, |κ·(G(z) − z/2)| < 2^−4.4, as it is selected.
const SMALL: Format = Format::new(11, 13);

/// κ·GELU(x) of κx: the argument in any format with at least 13 fraction bits and 14 bits above them to spare, the result in `to`.
pub fn gelu_scaled(ctx: &mut Ctx, x: &Share, frac: u32, to: Format) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let x = narrow(party, x, frac - ARGUMENT.frac, ARGUMENT.ring);

    // z = |x| = x − 2·[x < 0]·x
    let low = Ring::new(ARGUMENT.frac + INTEGER + 1 - SIGN_DROP);
    let negative = msb(ctx, &narrow(party, &x, SIGN_DROP, low))?;
    let folded = mux(ctx, &negative, &x)?;
    let z = x.sub(&folded.shift_left(1));
    let relu = x.sub(&folded);

    let limit = ARGUMENT.signed(KAPPA * LIMIT);
    let keep = ARGUMENT.frac + INTEGER + 1 - LIMIT_DROP;
    let inside = less_than_public(ctx, &z, &[limit], LIMIT_DROP, keep)?;
    let bracket = bracket(ctx, &z, &inside[0])?;

    // Both summands go up to the result's ring; |κx| < 32 fits 19 bits.
    let relu = relu.reduce_to(Ring::new(ARGUMENT.frac + INTEGER + 2));
    // Bounded, not NonNegative: where the sign was missed (x in −2^−8..0) x itself stands here.
    let relu = lift(ctx, &relu, ARGUMENT.frac, Sign::Bounded, to)?;
    let bracket = lift(ctx, &bracket, SMALL.frac, Sign::Bounded, to)?;
    Ok(relu.add(&bracket))
}

/// What the protocol computes instead of GELU(x), in the clear and without its roundings.
pub fn approximation(x: f64) -> f64 {
    let z = KAPPA * x.abs();
    let bracket = if x.abs() < LIMIT {
        ((z - C).powi(2) + BETA).powi(2) + D * z + EPSILON
    } else {
        0.0
    };
    x.max(0.0) + bracket / KAPPA
}

/// What [`gelu_scaled`] of `n` elements sends.
pub fn gelu_scaled_cost(n: usize, to: Format) -> Cost {
    let lift = |from: u32, frac: u32| {
        let ring = Ring::new(to.ring.bits() - (to.frac - frac));
        truncate_cost(n, Ring::new(from), 0, ring)
    };
    let keep = ARGUMENT.frac + INTEGER + 1 - LIMIT_DROP;
    let squares = Ring::new(2 * ARGUMENT.frac);
    msb_cost(n, ARGUMENT.frac + INTEGER + 1 - SIGN_DROP)
        + mux_cost(n, ARGUMENT.ring)
        + less_than_public_cost(n, ARGUMENT.ring, 1, LIMIT_DROP, keep)
        + square_cost(n, squares)
        + truncate_cost(n, squares, ARGUMENT.frac, QUARTIC.ring)
        + square_cost(n, QUARTIC.ring)
        + mux_cost(n, SMALL.ring)
        + lift(ARGUMENT.frac + INTEGER + 2, ARGUMENT.frac)
        + lift(SMALL.ring.bits(), SMALL.frac)
}

/// [z < limit]·κ(G(z) − z/2), in [`SMALL`].
fn bracket(ctx: &mut Ctx, z: &Share, inside: &BitShare) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let a = z
        .reduce_to(Ring::new(2 * ARGUMENT.frac))
        .add_public(party, ARGUMENT.signed(-C));
    let a2 = square(ctx, &a)?; // 26 fraction bits, below 2^24.6
    let w = truncate(ctx, &a2, ARGUMENT.frac, Sign::NonNegative, QUARTIC.ring)?;
    let w = w.add_public(party, ARGUMENT.signed(BETA));
    let w2 = square(ctx, &w)?; // 26 fraction bits
    let line = z
        .reduce_to(QUARTIC.ring)
        .mul_public(ARGUMENT.signed(D))
        .add_public(party, QUARTIC.signed(EPSILON));
    let h = narrow(party, &w2.add(&line), QUARTIC.frac - SMALL.frac, SMALL.ring);
    mux(ctx, inside, &h)
}

/// A value of `frac` fraction bits into the format `to` of as many or more.
fn lift(ctx: &mut Ctx, x: &Share, frac: u32, sign: Sign, to: Format) -> Result<Share, TwopcError> {
    let up = to.frac - frac;
    let ring = Ring::new(to.ring.bits() - up);
    let x = truncate(ctx, x, 0, sign, ring)?;
    Ok(Share::new(to.ring, x.into_words()).shift_left(up))
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!(
        "gelu {KAPPA} {LIMIT} {C} {BETA} {D} {EPSILON} {ARGUMENT:?} {SIGN_DROP} {LIMIT_DROP} {INTEGER} {QUARTIC:?} {SMALL:?}"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};

    /// Φ by the complementary error function's continued fraction is overkill: a fine trapezoid of the density serves a test.
    fn gelu(x: f64) -> f64 {
        let steps = 4000;
        let h = x.abs() / f64::from(steps);
        let density = |t: f64| (-t * t / 2.0).exp() / (2.0 * std::f64::consts::PI).sqrt();
        let inner: f64 = (1..steps).map(|i| density(h * f64::from(i))).sum();
        let half = h * (inner + (density(0.0) + density(x)) / 2.0);
        x * (0.5 + half.copysign(x))
    }

    #[test]
    fn gelu_over_the_range() {
        let x: Vec<f64> = (-1000..=1000)
            .map(|i| f64::from(i) * 0.011)
            .chain([-60.0, -3.25, 3.25, 25.0, 100.0, -100.0])
            .collect();
        let from = Format::new(48, 32);
        let to = Format::new(48, 16);
        let words: Vec<u64> = x.iter().map(|&x| from.encode(KAPPA * x)).collect();
        let (client, server) = share(from.ring, &words, 9);
        let (a, b, stats) = run_counted(
            move |ctx| gelu_scaled(ctx, &client, from.frac, to),
            move |ctx| gelu_scaled(ctx, &server, from.frac, to),
        );
        assert_cost(&stats, gelu_scaled_cost(x.len(), to));
        let mut worst: f64 = 0.0;
        for (x, y) in x.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            worst = worst.max((to.decode(y) / KAPPA - gelu(*x)).abs());
        }
        // 1.9e-3 of the quartic, and roundings of 2^-13/κ.
        assert!(worst < 4.5e-3, "{worst}");
        let quartic = x.iter().map(|&x| (approximation(x) - gelu(x)).abs());
        assert!(quartic.fold(0.0, f64::max) < 1.91e-3);
    }
}
