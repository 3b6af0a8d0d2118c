//! GELU as a model's layers use it: the curve of eight segments.
//!
//! [`curve::GELU`], with sixteen, errs a fifth as much for a quarter more bytes; which of the two runs is part of what the parties agree on.
//! Eight it is because the roundings of the formats (2·10^−4 an element, at random) are then about as large as the approximation's error,
//! and no order of sentence embeddings differs between the two.

use super::Format;
use super::curve::{self, Curve, curve_scaled, curve_scaled_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::Share;

/// The curve.
const CURVE: Curve = curve::GELU_EIGHT;

/// κ: what the argument and the result are multiplied by.
pub const KAPPA: f64 = CURVE.kappa();
/// Largest |x| that the rings hold.
pub const RANGE: f64 = CURVE.range();

/// κ·GELU(x) of κx, as [`curve_scaled`].
///
/// # Errors
/// If the session fails.
pub fn gelu_scaled(ctx: &mut Ctx, x: &Share, frac: u32, to: Format) -> Result<Share, TwopcError> {
    curve_scaled(ctx, &CURVE, x, frac, to)
}

/// What [`gelu_scaled`] of `n` elements sends.
pub fn gelu_scaled_cost(n: usize, to: Format) -> Cost {
    curve_scaled_cost(n, &CURVE, to)
}

/// What the protocol computes instead of GELU(x), in the clear and without its roundings.
pub fn approximation(x: f64) -> f64 {
    CURVE.approximation(x)
}

/// The curve on which both parties must agree, as text.
pub fn describe() -> String {
    format!("gelu={}", CURVE.name())
}
