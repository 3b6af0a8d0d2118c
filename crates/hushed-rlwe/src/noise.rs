//! Noise bounds as formulas, so that decryption margins are computed rather than guessed.
//!
//! A bound has two parts: `|e| ≤ bounded + TAIL·sqrt(variance)`. The first always holds; the second is the tail of a
//! sub-Gaussian variable with that variance proxy. With [`TAIL`], a coefficient exceeds its bound with probability at
//! most 2^-70, so a ciphertext's noise and that of its response together stay below 2^-69 per coefficient, and below
//! 2^-40 over half a billion coefficients.
//!
//! Sub-Gaussian here are the centred binomial error (a sum of 42 fair coins, each with proxy 1/4: proxy 10.5, equal to
//! its variance), a uniform rounding error of width 1 (proxy 1/12), and any fixed linear combination of independent
//! ones, weighted by the squared coefficients. A product of two random polynomials is bounded given one of them, with
//! ‖ternary‖² ≤ N always. One assumption is heuristic and standard: the rounding errors of pseudo-random `a` parts, and
//! of fresh `b` parts of which the top bits are sent, are independent and uniform.
//!
//! Decisions that both parties must make identically use only `+ - × / sqrt`, which IEEE 754 rounds the same
//! everywhere.

use crate::galois::{KeyShape, children};
use crate::params::RlweParams;

/// Variance of the centred binomial error with 42 coins (σ ≈ 3.24).
pub const ERROR_VARIANCE: f64 = 10.5;

/// Variance of a uniform rounding error in [-1/2, 1/2].
const ROUNDING_VARIANCE: f64 = 1.0 / 12.0;

/// 2·exp(-TAIL²/2) ≤ 2^-70.
pub const TAIL: f64 = 9.93;

/// A bound on the coefficients of a noise polynomial; see the module header.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct NoiseBound {
    /// The part that always holds.
    pub bounded: f64,
    /// The variance proxy of the rest.
    pub variance: f64,
}

impl NoiseBound {
    /// No noise.
    pub const ZERO: Self = Self { bounded: 0.0, variance: 0.0 };

    /// A bound known from elsewhere: |e| ≤ 2^`bits`.
    pub fn from_bits(bits: u32) -> Self {
        Self { bounded: power_of_two(bits), variance: 0.0 }
    }

    /// A fresh symmetric encryption of a message scaled into Z_Q: one error, plus the rounding of the scaling.
    pub fn fresh_secret() -> Self {
        Self { bounded: 0.5, variance: ERROR_VARIANCE }
    }

    /// The same if the lowest `drop` bits of b were not sent ([`crate::SeededFormat`]): b is uniform, and so is its
    /// rounding error.
    pub fn fresh_top_bits(drop: u32) -> Self {
        let fresh = Self::fresh_secret();
        if drop == 0 {
            return fresh;
        }
        // Ties are rounded in one direction, so the mean is 1/2 and not 0.
        Self {
            bounded: fresh.bounded + 0.5,
            variance: fresh.variance + power_of_two(drop) * power_of_two(drop) * ROUNDING_VARIANCE,
        }
    }

    /// A public-key encryption of zero: u·e + e1 + e2·s with ternary u and s.
    pub fn fresh_public(params: &RlweParams) -> Self {
        let n = params.n() as f64;
        Self { bounded: 0.0, variance: ERROR_VARIANCE * (2.0 * n + 1.0) }
    }

    /// Σ_i d_i·e_i / P for one key switch of a ciphertext of `limbs` primes, with a Galois key for at most `key_limbs`:
    /// |d_i| is at most half the product of its primes.
    fn key_products(params: &RlweParams, key_limbs: usize, limbs: usize) -> Self {
        let shape = KeyShape::new(params, key_limbs);
        let product = |ids: &mut dyn Iterator<Item = usize>| {
            let primes = ids.map(|id| params.basis().modulus(id).value() as f64);
            primes.fold(1.0, |product, p| product * p)
        };
        let p = product(&mut shape.special().iter().copied());
        let ratios = shape.digits(limbs).into_iter().map(|mut own| product(&mut own) / (2.0 * p));
        Self { bounded: 0.0, variance: ratios.map(|r| r * r).sum::<f64>() * params.n() as f64 * ERROR_VARIANCE }
    }

    /// Rounding both parts of a ciphertext to integers: b itself, and a times the secret.
    pub fn rounding(params: &RlweParams) -> Self {
        Self { bounded: 0.5, variance: ROUNDING_VARIANCE * params.n() as f64 }
    }

    /// Dropping the lowest `bits_b` bits of b and `bits_a` bits of a by rounding to nearest.
    pub fn truncation(params: &RlweParams, bits_a: u32, bits_b: u32) -> Self {
        let half = |bits: u32| {
            if bits == 0 { 0.0 } else { power_of_two(bits) / 2.0 }
        };
        let step_a = 2.0 * half(bits_a);
        Self { bounded: half(bits_b), variance: step_a * step_a * ROUNDING_VARIANCE * params.n() as f64 }
    }

    /// The sum of two independent noises.
    #[must_use]
    pub fn add(&self, other: &Self) -> Self {
        Self { bounded: self.bounded + other.bounded, variance: self.variance + other.variance }
    }

    /// Product with plaintext polynomials: every output coefficient is a sum of at most `terms` products of a noise
    /// coefficient with a factor of magnitude ≤ `magnitude`. `terms` counts over all ciphertexts that are added, whose
    /// errors are independent.
    #[must_use]
    pub fn plain_product(&self, magnitude: f64, terms: usize) -> Self {
        let terms = terms as f64;
        Self { bounded: self.bounded * magnitude * terms, variance: self.variance * magnitude * magnitude * terms }
    }

    /// This noise after a tree of 2^`levels` leaves of `limbs` primes, with keys for at most `key_limbs`
    /// ([`crate::Interleaving`]).
    ///
    /// Every used output coefficient comes from one coefficient of one node per level, which the levels above multiply
    /// by the distance h; so the factor 2^-levels passes the input noise unchanged. A node rounds a once, and switches
    /// keys once for each child but one. b is rounded once, at the end.
    #[must_use]
    pub fn interleave(&self, params: &RlweParams, key_limbs: usize, limbs: usize, levels: u32) -> Self {
        let switch = Self::key_products(params, key_limbs, limbs).variance;
        let size = 1 << levels;
        let (mut h, mut variance) = (1, 0.0);
        while h < size {
            let children = children(params.n(), h, size);
            let node = (children - 1) as f64 * switch + ROUNDING_VARIANCE * params.n() as f64;
            variance += (h * h) as f64 * node;
            h *= children;
        }
        let bounded = if levels == 0 { 0.0 } else { 0.5 };
        self.add(&Self { bounded, variance })
    }

    /// Modulus switching from the first `from` primes to the first `to` of them, one prime at a time.
    #[must_use]
    pub fn modulus_switch(&self, params: &RlweParams, from: usize, to: usize) -> Self {
        let rounding = Self::rounding(params);
        let dropped = params.q().iter().take(from).skip(to).rev();
        dropped.fold(*self, |noise, &q| {
            let q = q as f64;
            let scaled = Self { bounded: noise.bounded / q, variance: noise.variance / q / q };
            scaled.add(&rounding)
        })
    }

    /// The bound itself: a coefficient exceeds it with probability at most 2^-70.
    pub fn value(&self) -> f64 {
        self.bounded + TAIL * self.variance.sqrt()
    }

    /// The smallest integer b with [`NoiseBound::value`] ≤ 2^b.
    pub fn bits(&self) -> u32 {
        let value = self.value();
        (0..1023).find(|&b| value <= power_of_two(b)).unwrap_or(1023)
    }
}

/// The product of the first `limbs` primes, correctly rounded at every step.
pub(crate) fn modulus(params: &RlweParams, limbs: usize) -> f64 {
    params.q().iter().take(limbs).fold(1.0, |acc, &q| acc * q as f64)
}

/// log2 of the probability that a decrypted coefficient is off by more than its declared error: the noises of the
/// ciphertext and of the response each exceed their bound with probability at most 2^-70.
pub fn failure_log2() -> f64 {
    2.0 - TAIL * TAIL / 2.0 / std::f64::consts::LN_2
}

/// 2^`bits` exactly, for bits < 1023.
pub(crate) fn power_of_two(bits: u32) -> f64 {
    f64::from_bits(u64::from(1023 + bits.min(1022)) << 52)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tail_is_what_it_says() {
        let log2_tail = 1.0 - TAIL * TAIL / 2.0 / std::f64::consts::LN_2;
        assert!(log2_tail <= -70.0 && log2_tail > -71.0);
        assert!(failure_log2() <= -69.0);
    }

    #[test]
    fn powers_and_bits() {
        assert_eq!(power_of_two(0), 1.0);
        assert_eq!(power_of_two(100), 2f64.powi(100));
        assert_eq!(NoiseBound::from_bits(37).bits(), 37);
        assert_eq!(NoiseBound::ZERO.bits(), 0);
    }

    /// The figures the presets were chosen with.
    #[test]
    fn preset_figures() {
        let params = RlweParams::olt_small().unwrap();
        assert_eq!(NoiseBound::fresh_secret().bits(), 6);
        assert_eq!(NoiseBound::fresh_public(&params).bits(), 13);
        // 20-bit weights over an inner dimension of 1536, then 13 levels of InterLeave.
        let product = NoiseBound::fresh_secret().plain_product(power_of_two(20), 1536);
        let packed = product.interleave(&params, 2, 2, 13);
        assert!(packed.bits() <= 34, "{}", packed.bits());
        let one_prime = packed.modulus_switch(&params, 2, 1);
        assert!(one_prime.bits() <= 9, "{}", one_prime.bits());
    }
}
