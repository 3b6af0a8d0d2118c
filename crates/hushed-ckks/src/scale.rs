//! Scales: factors between messages and the integers that carry them.
//!
//! A scale follows the arithmetic: products multiply it, rescaling by a prime divides it, and nothing assigns it. It is
//! an f64, so every step rounds it to a relative 2^-53. A squaring doubles that error; after thirteen levels of
//! squarings two ways to the same scale still agree within 2^-40, which is what [`Scale::matches`] allows.

use std::fmt;

use crate::error::CkksError;

/// Largest relative difference between scales that are added. It acts as a relative error of one operand, below all
/// others.
const TOLERANCE: f64 = 1.0 / (1u64 << 40) as f64;

/// A positive finite factor.
#[derive(Clone, Copy, PartialEq, PartialOrd)]
pub struct Scale(f64);

impl Scale {
    /// Scale 1: the message is the integers themselves.
    pub const ONE: Self = Self(1.0);

    /// The scale `value`.
    ///
    /// # Errors
    /// [`CkksError::InvalidScale`] unless it is positive and finite.
    pub fn new(value: f64) -> Result<Self, CkksError> {
        if value.is_finite() && value > 0.0 { Ok(Self(value)) } else { Err(CkksError::InvalidScale { value }) }
    }

    /// 2^`bits`, for `bits` below 1024.
    pub fn from_bits(bits: u32) -> Self {
        Self(2f64.powi(bits.min(1023) as i32))
    }

    /// The factor.
    pub fn value(self) -> f64 {
        self.0
    }

    /// log2 of the factor.
    pub fn log2(self) -> f64 {
        self.0.log2()
    }

    /// Scale of a product.
    #[must_use]
    pub fn times(self, other: Self) -> Self {
        Self(self.0 * other.0)
    }

    /// The factor that takes `other` to this scale.
    #[must_use]
    pub fn over(self, other: Self) -> Self {
        Self(self.0 / other.0)
    }

    /// Scale after the integers are multiplied by the prime `q`.
    #[must_use]
    pub fn times_prime(self, q: u64) -> Self {
        Self(self.0 * q as f64)
    }

    /// Scale after rescaling by the prime `q`.
    #[must_use]
    pub fn over_prime(self, q: u64) -> Self {
        Self(self.0 / q as f64)
    }

    /// Whether two scales are equal up to accumulated rounding: within 2^-40 relative.
    pub fn matches(self, other: Self) -> bool {
        (self.0 - other.0).abs() <= TOLERANCE * self.0.max(other.0)
    }

    /// [`CkksError::ScaleMismatch`] unless the scales match.
    pub(crate) fn check(self, other: Self, operation: &'static str) -> Result<(), CkksError> {
        if self.matches(other) {
            return Ok(());
        }
        Err(CkksError::ScaleMismatch { operation, left: self.log2(), right: other.log2() })
    }
}

impl fmt::Debug for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// As a power of two.
impl fmt::Display for Scale {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "2^{:.6}", self.log2())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scales_follow_the_arithmetic() {
        let s = Scale::from_bits(40);
        let q = (1 << 40) + 131_073;
        let up = s.times_prime(q).over_prime(q);
        assert!(up.matches(s));
        assert!(!s.times_prime(q).over_prime(1 << 40).matches(s));
        assert_eq!(s.times(s).over(s), s);
        assert_eq!(format!("{s}"), "2^40.000000");
        for bad in [0.0, -1.0, f64::NAN, f64::INFINITY] {
            assert!(Scale::new(bad).is_err());
        }
    }

    #[test]
    fn two_ways_to_one_scale_agree_after_thirteen_squarings() {
        let q = 1_099_511_922_689_u64;
        let (mut chain, mut log) = (Scale::from_bits(40), 40.0f64);
        for _ in 0..13 {
            chain = chain.times(chain).over_prime(q);
            log = 2.0 * log - (q as f64).log2();
        }
        // `log` has an error of a few 2^-45·2^13: a coarse check that nothing drifts.
        assert!((chain.log2() - log).abs() < 1e-8);
        let again = Scale::new(chain.value() * (1.0 + 2f64.powi(-41))).unwrap();
        assert!(chain.matches(again));
        let off = Scale::new(chain.value() * (1.0 + 2f64.powi(-39))).unwrap();
        assert!(chain.check(off, "add").is_err());
    }
}
