//! What is known of a ciphertext's error: carried beside it, so that precision is predicted and not guessed.
//!
//! Two numbers, in units of the message (the scale divided out): a bound on the modulus of the slots, and the standard
//! deviation of the real part of a slot's error (the imaginary part has the same). A polynomial with independent coefficients of
//! variance v has slots Σ c_k·ζ^k, whose parts have variance N·v/2. Sources of error, as variances of a coefficient:
//!
//! | source | variance |
//! |---|---|
//! | rounding to integers, encoding | 1/12 |
//! | fresh error | 10.5 |
//! | public-key encryption, u·e + e1 + e2·s | 10.5·(1 + 4N/3) |
//! | rounding of both parts, r_b + r_a·s | (1 + 2N/3)/12 |
//! | key switch by digits below D_i, divided by P | 10.5·N·Σ (D_i/P)²/12, and the rounding above |
//!
//! Products add |m_1|·e_2 + |m_2|·e_1, with the bounds in place of the messages: the prediction is an estimate on the safe side, a
//! few bits where messages are much below their bound. Independence is heuristic (CLT style, as in Costache, Curtis, Hales, Murphy,
//! Ogilvie and Player, ePrint 2022/162).

use crate::scale::Scale;

/// Variance of a coefficient of a fresh error: 42 coins.
const FRESH: f64 = 10.5;

/// Variance of the rounding to an integer.
const ROUNDING: f64 = 1.0 / 12.0;

/// E[−log2|x|] for a standard normal x: (γ + ln 2)/(2·ln 2).
const MEAN_BITS: f64 = 0.916_4;

/// What is known of the error of a ciphertext or plaintext; units of the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    magnitude: f64,
    deviation: f64,
}

impl Noise {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        magnitude: f64::INFINITY,
        deviation: f64::INFINITY,
    };

    /// Slots within `magnitude`, errors of standard deviation `deviation` in each part.
    pub fn new(magnitude: f64, deviation: f64) -> Self {
        Self {
            magnitude,
            deviation,
        }
    }

    /// Integers of an encoded message.
    pub fn encoded(n: usize, scale: Scale, magnitude: f64) -> Self {
        Self::new(magnitude, slots(n, ROUNDING, scale))
    }

    /// After encryption under the secret key.
    #[must_use]
    pub fn encrypted(self, n: usize, scale: Scale) -> Self {
        self.plus(slots(n, FRESH, scale))
    }

    /// After encryption under the public key.
    #[must_use]
    pub fn encrypted_publicly(self, n: usize, scale: Scale) -> Self {
        let variance = FRESH * (1.0 + 4.0 / 3.0 * n as f64);
        self.plus(slots(n, variance, scale))
    }

    /// Bound on the modulus of the slots; infinite if unknown.
    pub fn magnitude(&self) -> f64 {
        self.magnitude
    }

    /// Standard deviation of each part of a slot's error; infinite if unknown.
    pub fn deviation(&self) -> f64 {
        self.deviation
    }

    /// Whether anything is known of the error.
    pub fn is_known(&self) -> bool {
        self.deviation.is_finite()
    }

    /// The same error on a message known to be within `magnitude`: for who knows more than products of bounds say.
    #[must_use]
    pub fn within(self, magnitude: f64) -> Self {
        Self { magnitude, ..self }
    }

    /// Predicted mean over the slots of −log2 of a part's error; `None` if unknown.
    pub fn mean_bits(&self) -> Option<f64> {
        self.is_known().then(|| MEAN_BITS - self.deviation.log2())
    }

    /// Predicted −log2 of the largest error of 2·`slots` parts, on the safe side: [`reach`] deviations.
    pub fn min_bits(&self, slots: usize) -> Option<f64> {
        self.is_known()
            .then(|| -(self.deviation * reach(slots)).log2())
    }

    /// Sum of messages with independent errors.
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        Self {
            magnitude: self.magnitude + other.magnitude,
            deviation: self.deviation.hypot(other.deviation),
        }
    }

    /// Product of messages.
    #[must_use]
    pub fn product(self, other: Self) -> Self {
        if !self.is_known() || !other.is_known() {
            return Self::UNKNOWN;
        }
        // Added up, not in squares: the factors of a power have the same error.
        let cross = self.magnitude * other.deviation + other.magnitude * self.deviation;
        Self {
            magnitude: self.magnitude * other.magnitude,
            deviation: cross.hypot(self.deviation * other.deviation),
        }
    }

    /// Product with a number known exactly, of modulus `factor`.
    #[must_use]
    pub fn times(self, factor: f64) -> Self {
        if !self.is_known() {
            return Self::UNKNOWN;
        }
        Self {
            magnitude: self.magnitude * factor,
            deviation: self.deviation * factor,
        }
    }

    /// After both parts were rounded to integers at `scale`: a rescale, or the end of a key switch.
    #[must_use]
    pub fn rounded(self, n: usize, scale: Scale) -> Self {
        let variance = ROUNDING * (1.0 + 2.0 / 3.0 * n as f64);
        self.plus(slots(n, variance, scale))
    }

    /// After a key switch at `scale` by digits with Σ (D_i/P)² = `ratios`; the rounding is [`Noise::rounded`].
    #[must_use]
    pub fn switched(self, n: usize, scale: Scale, ratios: f64) -> Self {
        self.plus(slots(n, FRESH * n as f64 * ratios * ROUNDING, scale))
    }

    /// One more independent error.
    #[must_use]
    pub fn plus(self, deviation: f64) -> Self {
        Self {
            deviation: self.deviation.hypot(deviation),
            ..self
        }
    }
}

/// The largest of 2·`slots` parts of an error over their deviation, on the safe side. The errors of roundings and key switches are
/// products r(ζ)·s(ζ) of two nearly normal variables, whose tail e^(−2t) at t times the mean is heavier than a normal one: the
/// largest of n is near (ln 2n + 2)/√2 deviations of a part.
pub(crate) fn reach(slots: usize) -> f64 {
    ((2.0 * slots.max(1) as f64).ln() + 2.0) / 2f64.sqrt()
}

/// Standard deviation of each part of a slot for coefficients of `variance` at `scale`.
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
        let product = x.product(y);
        let expected = 8e-6 + 15e-6;
        assert!((product.deviation() / expected - 1.0).abs() < 1e-6);
        assert!(!x.product(Noise::UNKNOWN).is_known() && !x.sum(Noise::UNKNOWN).is_known());
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
