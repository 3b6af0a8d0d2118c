//! What BumbleBee (NDSS 2025, §V) computes for GELU and exp, for tables beside this crate's own functions; no model uses them.
//!
//! * [`seg4_gelu`]: −ε below −5, P³ to −1.97, P⁶ (powers 0, 1, 2, 4, 6) to 3, x − ε above; ε = 10^−5. For 64 bits with 18 fraction bits: x⁶
//!   overflows 32 bits with 12 from |x| = 2.24 on.
//! * [`quartic_gelu`]: x/2 + Σ c_i·|x|^i for |x| < 2.7 (§V-C, after BOLT), which the paper takes for 32 bits.
//! * [`exp_negative`]: (1 + x/2^6)^(2^6) for −13 ≤ x ≤ 0, zero below.
//!
//! The paper prints no coefficients: these are minimax fits over its intervals, which err no more than the paper says (1.5·10^−2 for
//! Seg4GeLU). Comparisons keep 4 fraction bits. Powers go over bOLE ([`Powers::Ole`], as in the paper, without its reuse of ciphertexts
//! for the cube) or over OT ([`Powers::Ot`]); every product is truncated by the crate's own protocol, and comparisons and multiplexers are the
//! crate's own too: what differs is the function.

use super::Format;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    self, Sign, less_than_public, less_than_public_cost, msb, msb_cost, mux, mux_cost, truncate,
    truncate_cost,
};
use crate::he::OleContext;
use crate::he::bole::shares;
use crate::share::{BitShare, Share};

/// 64 bits, 18 of them fraction: the paper's main ring.
pub const WIDE: Format = Format::new(64, 18);
/// 32 bits, 12 of them fraction: the paper's ring inside activations.
pub const NARROW: Format = Format::new(32, 12);

/// How squares and products are computed.
#[derive(Clone, Copy)]
pub enum Powers<'a> {
    /// Gilboa's products over OT.
    Ot,
    /// Batched oblivious linear evaluation.
    Ole(&'a OleContext),
}

/// ε of Seg4GeLU.
const EPSILON: f64 = 1e-5;
/// Where its segments end.
const PIVOTS: [f64; 3] = [-5.0, -1.97, 3.0];
/// P³ on (−5, −1.97]: coefficients of 1, x, x², x³; off by 1.7·10^−3.
const P3: [f64; 4] = [-0.393_628_53, -0.299_865_38, -0.075_189_58, -0.006_202_14];
/// P⁶ on (−1.97, 3]: coefficients of 1, x, x², x⁴, x⁶; off by 9.7·10^−3.
const P6: [f64; 5] = [0.009_673_45, 0.5, 0.356_585_13, -0.036_119_72, 0.001_656_68];
/// Where the quartic ends.
const QUARTIC_LIMIT: f64 = 2.7;
/// Coefficients of 1, |x|, x², |x|³, x⁴ and x: off by 9.4·10^−3.
const QUARTIC: [f64; 6] = [
    0.004_230_55,
    -0.054_810_02,
    0.567_445_24,
    -0.198_098_44,
    0.023_449_73,
    0.5,
];
/// Squarings of the exponential.
const SQUARINGS: u32 = 6;
/// Below this the exponential is zero.
const CLIP: f64 = -13.0;
/// Fraction bits that comparisons keep.
const COMPARED: u32 = 4;

impl Powers<'_> {
    /// x² with the fraction bits of x.
    fn square(self, ctx: &mut Ctx, x: &Share, frac: u32) -> Result<Share, TwopcError> {
        let y = match self {
            Powers::Ot => gadget::square(ctx, x)?,
            Powers::Ole(ole) => shares::square(ctx, ole, x)?,
        };
        // Bounded: a square over bOLE may be two units below zero.
        truncate(ctx, &y, frac, Sign::Bounded, x.ring())
    }

    fn product(self, ctx: &mut Ctx, x: &Share, y: &Share, f: u32) -> Result<Share, TwopcError> {
        let z = match self {
            Powers::Ot => gadget::mul(ctx, x, y)?,
            Powers::Ole(ole) => shares::product(ctx, ole, x, y)?,
        };
        truncate(ctx, &z, f, Sign::Bounded, x.ring())
    }

    fn square_cost(self, n: usize, f: Format) -> Cost {
        let square = match self {
            Powers::Ot => gadget::square_cost(n, f.ring),
            Powers::Ole(ole) => shares::square_cost(ole, n, f.ring),
        };
        square + truncate_cost(n, f.ring, f.frac, f.ring)
    }

    fn product_cost(self, n: usize, f: Format) -> Cost {
        let product = match self {
            Powers::Ot => gadget::mul_cost(n, f.ring),
            Powers::Ole(ole) => shares::product_cost(ole, n, f.ring),
        };
        product + truncate_cost(n, f.ring, f.frac, f.ring)
    }
}

/// Seg4GeLU of x in [`WIDE`], |x| < 2^20.
///
/// # Errors
/// If the session fails.
pub fn seg4_gelu(ctx: &mut Ctx, how: Powers<'_>, x: &Share) -> Result<Share, TwopcError> {
    let f = WIDE;
    let x2 = how.square(ctx, x, f.frac)?;
    let x3 = how.product(ctx, &x2, x, f.frac)?;
    let x4 = how.square(ctx, &x2, f.frac)?;
    let x6 = how.square(ctx, &x3, f.frac)?;
    let p3 = polynomial(ctx, f, P3, EPSILON, [x, &x2, &x3])?;
    let p6 = polynomial(ctx, f, P6, EPSILON, [x, &x2, &x4, &x6])?;

    let below = less(ctx, f, x, &PIVOTS)?;
    let segments = [
        below[0].xor(&below[1]),
        below[1].xor(&below[2]),
        below[2].not_by(ctx.party()),
    ];
    choose(ctx, f, &segments, [&p3, &p6, x], -EPSILON)
}

/// Cost of [`seg4_gelu`] of `n` elements.
pub fn seg4_gelu_cost(n: usize, how: Powers<'_>) -> Cost {
    let f = WIDE;
    how.square_cost(n, f).repeated(3)
        + how.product_cost(n, f)
        + truncate_cost(n, f.ring, f.frac, f.ring).repeated(2)
        + less_cost(n, f, 3)
        + mux_cost(3 * n, f.ring)
}

/// The quartic GELU of x in `f`, |x| < 11 in [`NARROW`].
///
/// # Errors
/// If the session fails.
pub fn quartic_gelu(
    ctx: &mut Ctx,
    how: Powers<'_>,
    f: Format,
    x: &Share,
) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let negative = msb(ctx, x)?;
    let z = x.sub(&mux(ctx, &negative, x)?.shift_left(1));
    let z2 = how.square(ctx, &z, f.frac)?;
    let z3 = how.product(ctx, &z2, &z, f.frac)?;
    let z4 = how.square(ctx, &z2, f.frac)?;
    let p = polynomial(ctx, f, QUARTIC, 0.0, [&z, &z2, &z3, &z4, x])?;

    let below = less(ctx, f, x, &[-QUARTIC_LIMIT, QUARTIC_LIMIT])?;
    let inside = below[0].xor(&below[1]);
    choose(ctx, f, &[inside, below[1].not_by(party)], [&p, x], 0.0)
}

/// Cost of [`quartic_gelu`] of `n` elements.
pub fn quartic_gelu_cost(n: usize, how: Powers<'_>, f: Format) -> Cost {
    msb_cost(n, f.ring.bits())
        + mux_cost(n, f.ring)
        + how.square_cost(n, f).repeated(2)
        + how.product_cost(n, f)
        + truncate_cost(n, f.ring, f.frac, f.ring)
        + less_cost(n, f, 2)
        + mux_cost(2 * n, f.ring)
}

/// e^x of x ≤ 0 in `f`, by six squarings.
///
/// # Errors
/// If the session fails.
pub fn exp_negative(
    ctx: &mut Ctx,
    how: Powers<'_>,
    f: Format,
    x: &Share,
) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let below = less(ctx, f, x, &[CLIP])?;
    let y = truncate(ctx, x, SQUARINGS, Sign::Bounded, f.ring)?;
    let mut y = y.add_public(party, f.signed(1.0));
    for _ in 0..SQUARINGS {
        y = how.square(ctx, &y, f.frac)?;
    }
    mux(ctx, &below[0].not_by(party), &y)
}

/// Cost of [`exp_negative`] of `n` elements.
pub fn exp_negative_cost(n: usize, how: Powers<'_>, f: Format) -> Cost {
    less_cost(n, f, 1)
        + truncate_cost(n, f.ring, SQUARINGS, f.ring)
        + how.square_cost(n, f).repeated(SQUARINGS.into())
        + mux_cost(n, f.ring)
}

/// c_0 + `more` + Σ c_i·x_i, each x_i in `f`, with one truncation. |c_i·x_i| summed stays below 2^(ℓ − 2f − 2) where it matters.
fn polynomial<const N: usize, const M: usize>(
    ctx: &mut Ctx,
    f: Format,
    c: [f64; N],
    more: f64,
    x: [&Share; M],
) -> Result<Share, TwopcError> {
    const { assert!(N == M + 1) };
    let twice = Format::new(f.ring.bits(), 2 * f.frac);
    let mut sum = Share::zero(f.ring, x[0].len());
    for (x, c) in x.iter().zip(&c[1..]) {
        sum.add_assign(&x.mul_public(f.signed(*c)));
    }
    let sum = sum.add_public(ctx.party(), twice.signed(c[0] + more));
    truncate(ctx, &sum, f.frac, Sign::Bounded, f.ring)
}

/// 1{x < t} for every t, to 1/16.
fn less(ctx: &mut Ctx, f: Format, x: &Share, at: &[f64]) -> Result<Vec<BitShare>, TwopcError> {
    let at: Vec<i64> = at.iter().map(|t| f.signed(*t)).collect();
    let drop = f.frac - COMPARED;
    less_than_public(ctx, x, &at, drop, f.ring.bits() - drop)
}

fn less_cost(n: usize, f: Format, thresholds: usize) -> Cost {
    let drop = f.frac - COMPARED;
    less_than_public_cost(n, f.ring, thresholds, drop, f.ring.bits() - drop)
}

/// Σ_i bit_i·value_i + c, all multiplexers in one message.
fn choose<const N: usize>(
    ctx: &mut Ctx,
    f: Format,
    bits: &[BitShare; N],
    values: [&Share; N],
    c: f64,
) -> Result<Share, TwopcError> {
    let n = values[0].len();
    let all = mux(
        ctx,
        &BitShare::concat(&bits.each_ref()),
        &Share::concat(f.ring, &values),
    )?;
    let mut sum = all.slice(0..n);
    for k in 1..N {
        sum.add_assign(&all.slice(k * n..(k + 1) * n));
    }
    Ok(sum.add_public(ctx.party(), f.signed(c)))
}

#[cfg(test)]
mod tests;
