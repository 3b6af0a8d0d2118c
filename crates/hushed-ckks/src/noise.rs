//! What is known about a ciphertext's error, carried with it so that precision is predicted, not guessed.
//!
//! Three numbers, in units of the message (the scale divided out): a bound on the modulus of the slots, the standard
//! deviation of the real part of a slot's error (the same as for the imaginary part), and a bound on the Euclidean norm
//! of all coefficients of the error. That bound holds for every circuit of sums, products, rotations and matrices, and
//! is unknown after anything else. The first two predict precision; flooding relies on the third alone.
//!
//! *Average case.* A polynomial with independent coefficients of variance v has slots Σ c_k·ζ^k, whose real and
//! imaginary parts have variance N·v/2. Sources of error, with the variance of a coefficient:
//!
//! | source | variance |
//! |---|---|
//! | rounding to integers, encoding | 1/12 |
//! | fresh error | 10.5 |
//! | public-key encryption, u·e + e1 + e2·s | 10.5·(1 + 4N/3) |
//! | rounding of both parts, r_b + r_a·s | (1 + 2N/3)/12 |
//! | key switch by digits below D_i, divided by P | 10.5·N·Σ (D_i/P)²/12, and the rounding above |
//!
//! Products add |m_1|·e_2 + |m_2|·e_1, with bounds in place of the messages, so the prediction is conservative, by a
//! few bits where messages are far below their bound. Independence is a heuristic (CLT style, as in Costache, Curtis,
//! Hales, Murphy, Ogilvie and Player, ePrint 2022/162), and false where a ciphertext meets itself: x + x has twice the
//! error, not √2 times.
//!
//! *Worst case.* The coefficient norm |e| is the root mean square of |e(ζ)| over all embeddings. So |m·e| ≤
//! max|m(ζ)|·|e| for the largest slot of m, |e + f| ≤ |e| + |f| however the two are correlated, and rotations and
//! conjugation change nothing: three rules, one number per ciphertext, no independence assumed. [`worst`] bounds the
//! individual errors.

pub(crate) mod worst;

use crate::scale::Scale;
use worst::FRESH;

/// Variance of rounding to an integer.
const ROUNDING: f64 = 1.0 / 12.0;

/// E[−log2|x|] for a standard normal x: (γ + ln 2)/(2·ln 2).
const MEAN_BITS: f64 = 0.916_4;

/// Noise of a ciphertext or plaintext, in units of the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    magnitude: f64,
    deviation: f64,
    /// Infinite if no bound is known; never NaN.
    norm: f64,
}

impl Noise {
    /// Noise about which nothing is known.
    pub const UNKNOWN: Self = Self { magnitude: f64::INFINITY, deviation: f64::INFINITY, norm: f64::INFINITY };

    /// Slots within `magnitude` and errors of standard deviation `deviation` in each part. This is an estimate, without
    /// the bound that flooding needs ([`Noise::with_norm`]).
    pub fn new(magnitude: f64, deviation: f64) -> Self {
        Self { magnitude, deviation, norm: f64::INFINITY }
    }

    /// Slots within `magnitude` and no error at all.
    pub fn exact(magnitude: f64) -> Self {
        Self::new(magnitude, 0.0).with_norm(0.0)
    }

    /// The same, with a bound on the norm of all coefficients of the error divided by the scale, whatever the circuit
    /// was. The caller vouches for it: flooding relies on it. A negative value or NaN means no bound.
    #[must_use]
    pub fn with_norm(self, norm: f64) -> Self {
        let bound = norm >= 0.0;
        Self { norm: if bound { norm } else { f64::INFINITY }, ..self }
    }

    /// Noise of an encoded message: the rounding to integers.
    pub fn encoded(n: usize, scale: Scale, magnitude: f64) -> Self {
        Self::new(magnitude, slots(n, ROUNDING, scale))
            .with_norm(worst::encoding(n) / scale.value() + worst::DOUBLES * magnitude)
    }

    /// After encryption under the secret key.
    #[must_use]
    pub fn encrypted(self, n: usize, scale: Scale) -> Self {
        self.plus(slots(n, FRESH, scale), worst::fresh(n) / scale.value())
    }

    /// After encryption under the public key.
    #[must_use]
    pub fn encrypted_publicly(self, n: usize, scale: Scale) -> Self {
        let variance = FRESH * (1.0 + 4.0 / 3.0 * n as f64);
        self.plus(slots(n, variance, scale), worst::public(n) / scale.value())
    }

    /// Bound on the modulus of the slots; infinite if unknown.
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// Standard deviation of each part of a slot's error; infinite if unknown.
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    /// Bound on the Euclidean norm of all coefficients of the error, divided by the scale; infinite if unknown.
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// Whether the deviation of the error is known.
    pub fn is_known(&self) -> bool {
        self.deviation.is_finite()
    }

    /// The same error on a message known to be within `magnitude`, for callers who know more than bounds imply.
    #[must_use]
    pub fn within(self, magnitude: f64) -> Self {
        Self { magnitude, ..self }
    }

    /// Predicted mean over the slots of −log2 of the error of a part; `None` if unknown.
    pub fn mean_bits(&self) -> Option<f64> {
        self.is_known().then(|| MEAN_BITS - self.deviation.log2())
    }

    /// Predicted −log2 of the largest error among 2·`slots` parts, conservatively [`reach`] deviations.
    pub fn min_bits(&self, slots: usize) -> Option<f64> {
        self.is_known().then(|| -(self.deviation * reach(slots)).log2())
    }

    /// Bits after the binary point that rounding keeps: the largest error predicted is below half a unit of the last
    /// one, by the estimate and, where there is one, by the bound. The estimate alone would leave bits that are nothing
    /// but error in x + x, and with them the key. `None` if both are unknown.
    pub fn kept_bits(&self, slots: usize) -> Option<f64> {
        // The norm is the root mean square of a slot's error, so its parts are smaller by √2.
        let bound = self.norm / 2f64.sqrt();
        let deviation = match (self.is_known(), bound.is_finite()) {
            (true, true) => self.deviation.max(bound),
            (false, true) => bound,
            _ => self.deviation,
        };
        let worse = Self { deviation, ..*self };
        worse.min_bits(slots).map(|bits| (bits - 1.0).floor())
    }

    /// Noise of a sum. The estimate assumes independent errors; the bound does not.
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        // Scales are rounded to doubles, so the smaller message may be off by this much relative to the other.
        let doubles = worst::DOUBLES * self.magnitude.min(other.magnitude);
        Self { magnitude: self.magnitude + other.magnitude, deviation: self.deviation.hypot(other.deviation), ..self }
            .with_norm(self.norm + other.norm + doubles)
    }

    /// Noise of a product in a ring of degree `n`.
    #[must_use]
    pub fn product(self, other: Self, n: usize) -> Self {
        if !self.is_known() || !other.is_known() {
            return Self::UNKNOWN;
        }
        // Added linearly, not in quadrature: the factors of a power have the same error.
        let cross = self.magnitude * other.deviation + other.magnitude * self.deviation;
        // No slot of an error exceeds √N times its norm.
        let both = (n as f64).sqrt() * self.norm * other.norm;
        Self {
            magnitude: self.magnitude * other.magnitude,
            deviation: cross.hypot(self.deviation * other.deviation),
            ..self
        }
        .with_norm(self.magnitude * other.norm + other.magnitude * self.norm + both)
    }

    /// Noise of a product with an exact number of modulus `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        if !self.is_known() {
            return Self::UNKNOWN;
        }
        Self { magnitude: self.magnitude * factor, deviation: self.deviation * factor, ..self }
            .with_norm(self.norm * factor)
    }

    /// Noise of a product with a number of modulus `factor` rounded to 1/`scale`.
    #[must_use]
    pub fn times_rounded(self, factor: f64, scale: Scale) -> Self {
        // Uniform in each part, of deviation 1/√12.
        let average = self.magnitude / (12f64.sqrt() * scale.value());
        let most = worst::constant(factor, scale);
        self.times(factor).plus(average, most * (self.magnitude + self.norm))
    }

    /// Noise of a sum with a number of modulus `value` rounded to 1/`scale`.
    #[must_use]
    pub fn plus_rounded(self, value: f64, scale: Scale) -> Self {
        let most = worst::constant(value, scale);
        self.within(self.magnitude + value).plus(0.0, most)
    }

    /// Noise of a message at scale `own` that is read at `scale`. They match; what difference remains is an error.
    #[must_use]
    pub(crate) fn read_at(self, own: Scale, scale: Scale) -> Self {
        let ratio = own.value() / scale.value();
        if ratio == 1.0 {
            return self;
        }
        self.with_norm(self.norm * ratio + (ratio - 1.0).abs() * self.magnitude)
    }

    /// After rounding both parts to integers at `scale`: a rescale, or the end of a key switch.
    #[must_use]
    pub fn rounded(self, n: usize, scale: Scale) -> Self {
        let variance = ROUNDING * (1.0 + 2.0 / 3.0 * n as f64);
        self.plus(slots(n, variance, scale), worst::rounding(n) / scale.value())
    }

    /// After a key switch at `scale` by digits whose ratios D_i/P have the given sums of first and second powers,
    /// without the rounding ([`Noise::rounded`]).
    #[must_use]
    pub fn switched(self, n: usize, scale: Scale, [ratios, squares]: [f64; 2]) -> Self {
        self.plus(slots(n, FRESH * n as f64 * squares * ROUNDING, scale), worst::switching(n, ratios) / scale.value())
    }

    /// Adds an error: for the estimate an independent one of this deviation, for the bound any of at most this norm.
    #[must_use]
    pub fn plus(self, deviation: f64, norm: f64) -> Self {
        Self { deviation: self.deviation.hypot(deviation), ..self }.with_norm(self.norm + norm)
    }

    /// Noise that covers both.
    #[must_use]
    pub fn worse(self, other: Self) -> Self {
        Self {
            magnitude: self.magnitude.max(other.magnitude),
            deviation: self.deviation.max(other.deviation),
            norm: self.norm.max(other.norm),
        }
    }
}

/// A conservative value for the largest of 2·`slots` parts of an error, in deviations. The errors of rounding and key
/// switching are products r(ζ)·s(ζ) of two nearly normal variables, whose tail e^(−2t) at t times the mean is heavier
/// than a normal one: the largest of n is near (ln 2n + 2)/√2 deviations of a part.
pub(crate) fn reach(slots: usize) -> f64 {
    ((2.0 * slots.max(1) as f64).ln() + 2.0) / 2f64.sqrt()
}

/// Standard deviation of each part of a slot, given the variance of the coefficients, at `scale`.
fn slots(n: usize, variance: f64, scale: Scale) -> f64 {
    (0.5 * n as f64 * variance).sqrt() / scale.value()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_add_and_multiply_as_they_should() {
        let (x, y) = (Noise::new(2.0, 3e-6), Noise::new(5.0, 4e-6));
        let sum = x.sum(y);
        assert!((sum.deviation() - 5e-6).abs() < 1e-18 && sum.magnitude() == 7.0);
        let product = x.product(y, 1 << 10);
        let expected = 8e-6 + 15e-6;
        assert!((product.deviation() / expected - 1.0).abs() < 1e-6);
        assert!(!x.product(Noise::UNKNOWN, 1 << 10).is_known() && !x.sum(Noise::UNKNOWN).is_known());
        assert_eq!(Noise::UNKNOWN.mean_bits(), None);
        assert_eq!(Noise::UNKNOWN.times(0.0).mean_bits(), None);
    }

    #[test]
    fn the_mean_of_bits_is_that_of_a_normal_variable() {
        // ∫ −log2|x| φ(x) dx by the midpoint rule; the singularity at 0 is integrable.
        let steps = 4_000_000;
        let width = 16.0 / f64::from(steps);
        let mean: f64 = (0..steps)
            .map(|i| -8.0 + (f64::from(i) + 0.5) * width)
            .map(|x| -x.abs().log2() * (-0.5 * x * x).exp())
            .sum::<f64>()
            * width
            / (2.0 * std::f64::consts::PI).sqrt();
        assert!((mean - MEAN_BITS).abs() < 1e-3, "{mean}");
    }
}
