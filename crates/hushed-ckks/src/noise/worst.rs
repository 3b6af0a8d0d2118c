//! Norms of individual errors, for any ciphertext: the Euclidean norm of all N coefficients, in integers.
//!
//! Rounding errors depend on the ciphertext and thus on the choice of circuit, so only |r| ≤ √N/2 holds. Secrets, key
//! errors and fresh errors are drawn once, before the circuit is known, and are bounded with probability 1 − 2^-64:
//!
//! | error | bound |
//! |---|---|
//! | largest slot, strictly sub-Gaussian coefficients, variance v | T(v) = √(N·v·ln 2·b)/cos(π/8), b = 64 + log2(4N) |
//! | fresh error, √(2·10.5·N) | twice the mean of the square (Laurent and Massart 2000, Lemma 1) |
//! | rounding of both parts, r_b + r_a·s | √N/2·(1 + T(2/3)) |
//! | key switch, Σ d_i·e_i/P with \|d_i\| ≤ D_i/2 | √N/2·T(10.5)·Σ D_i/P |
//! | public-key encryption, u·e + e1 + e2·s | √N·T(10.5) + √(21·N)·(1 + T(2/3)) |
//!
//! T: one of eight directions is within π/8 of a slot's value. The component in a direction exceeds t with probability
//! at most e^(−t²/(N·v)), and there are N/2 slots. Uniform ternary and centred binomial coefficients are strictly
//! sub-Gaussian. Keys contain many errors: the bound allows for 2^16 polynomials.

use crate::scale::Scale;

/// Variance of a coefficient of a fresh error: 42 coins.
pub(super) const FRESH: f64 = 10.5;

/// Relative error of computation in doubles: sixteen layers of a transform, or a hundred roundings of a scale.
pub(crate) const DOUBLES: f64 = 1.0 / (1u64 << 46) as f64;

/// −log2 of the probability that a bound on a drawn polynomial fails.
const TAIL: f64 = 64.0;

/// log2 of the number of error polynomials in all keys of a set: 4,096 keys of up to 16 digits.
const KEY_ERRORS: f64 = 16.0;

/// cos²(π/8).
const DIRECTION: f64 = 0.853_553_390_593_273_8;

/// Variance of a ternary coefficient.
const TERNARY: f64 = 2.0 / 3.0;

/// T(`variance`), as a bound on 2^`many` polynomials at once.
fn largest_slot(n: usize, variance: f64, many: f64) -> f64 {
    let n = n as f64;
    let bits = TAIL + (4.0 * n).log2() + many;
    (n * variance * std::f64::consts::LN_2 * bits / DIRECTION).sqrt()
}

/// The largest slot of the secret.
fn secret(n: usize) -> f64 {
    largest_slot(n, TERNARY, 0.0)
}

/// √N/2: N coefficients of at most 1/2 each.
pub(crate) fn encoding(n: usize) -> f64 {
    0.5 * (n as f64).sqrt()
}

/// A fresh error.
pub(crate) fn fresh(n: usize) -> f64 {
    (2.0 * FRESH * n as f64).sqrt()
}

/// An encryption under the public key.
pub(crate) fn public(n: usize) -> f64 {
    let key = largest_slot(n, FRESH, KEY_ERRORS);
    (n as f64).sqrt() * key + fresh(n) * (1.0 + secret(n))
}

/// The rounding of both parts.
pub(crate) fn rounding(n: usize) -> f64 {
    encoding(n) * (1.0 + secret(n))
}

/// A key switch by digits with Σ D_i/P = `ratios`, without the rounding.
pub(crate) fn switching(n: usize, ratios: f64) -> f64 {
    encoding(n) * largest_slot(n, FRESH, KEY_ERRORS) * ratios
}

/// A constant of modulus `value` at `scale`, in units of the message: half a unit in each part, plus the error of
/// multiplying by the scale in doubles.
pub(crate) fn constant(value: f64, scale: Scale) -> f64 {
    std::f64::consts::FRAC_1_SQRT_2 / scale.value() + DOUBLES * value
}
