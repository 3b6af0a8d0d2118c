//! What is known of a ciphertext's error: carried beside it, so that precision is predicted, not guessed.
//!
//! Three numbers, in units of the message (the scale divided out): a bound on the modulus of the slots, the standard
//! deviation of the real part of a slot's error (the imaginary part has the same), and a bound on the Euclidean norm of
//! all coefficients of the error together, which holds for every circuit of sums, products, rotations and matrices, and
//! is unknown after others. The first two predict precision; flooding relies on the third alone.
//!
//! *Average case.* A polynomial with independent coefficients of
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
//! Products add |m_1|·e_2 + |m_2|·e_1, with the bounds in place of the messages: the prediction is an estimate on the
//! safe side, a few bits where messages are much below their bound. Independence is heuristic (CLT style, as in
//! Costache, Curtis, Hales, Murphy, Ogilvie and Player, ePrint 2022/162), and false where a ciphertext meets itself:
//! x + x has twice the error and not √2 times.
//!
//! *Worst case.* |e|, the norm of the coefficients, is the root mean square of |e(ζ)| over all embeddings. So |m·e| ≤
//! max|m(ζ)|·|e| for the largest slot of m, |e + f| ≤ |e| + |f| however the two are correlated, and
//! rotations and conjugation change nothing: three rules, one number a ciphertext, no independence. [`worst`] has the
//! bounds of single errors.

pub(crate) mod worst;

use crate::scale::Scale;

/// Variance of a coefficient of a fresh error: 42 coins.
const FRESH: f64 = 10.5;

/// Variance of the rounding to an integer.
const ROUNDING: f64 = 1.0 / 12.0;

/// E[−log2|x|] for a standard normal x: (γ + ln 2)/(2·ln 2).
const MEAN_BITS: f64 = 0.916_4;

/// Noise of a ciphertext or plaintext, in units of the message.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Noise {
    magnitude: f64,
    deviation: f64,
    /// Infinite where no bound is known; never a NaN.
    norm: f64,
}

impl Noise {
    /// Nothing is known.
    pub const UNKNOWN: Self = Self {
        magnitude: f64::INFINITY,
        deviation: f64::INFINITY,
        norm: f64::INFINITY,
    };

    /// Slots within `magnitude`, errors of standard deviation `deviation` in each part; an estimate, without the bound
    /// that flooding needs ([`Noise::with_norm`]).
    pub fn new(magnitude: f64, deviation: f64) -> Self {
        Self {
            magnitude,
            deviation,
            norm: f64::INFINITY,
        }
    }

    /// Slots within `magnitude` and no error at all.
    pub fn exact(magnitude: f64) -> Self {
        Self::new(magnitude, 0.0).with_norm(0.0)
    }

    /// The same, with a bound on the norm of all coefficients of the error over the scale, whatever the circuit was. It
    /// is the caller's responsibility: flooding relies on it. Anything but a number from 0 on means no bound.
    #[must_use]
    pub fn with_norm(self, norm: f64) -> Self {
        let bound = norm >= 0.0;
        Self {
            norm: if bound { norm } else { f64::INFINITY },
            ..self
        }
    }

    /// Integers of an encoded message.
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

    /// Bound on the Euclidean norm of all coefficients of the error together, over the scale; infinite if unknown.
    pub fn norm(&self) -> f64 {
        self.norm
    }

    /// Whether anything is known of the error.
    pub fn is_known(&self) -> bool {
        self.deviation.is_finite()
    }

    /// The same error on a message known to be within `magnitude`: for callers that know more than products of bounds.
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

    /// Sum of messages: the estimate assumes independent errors, the bound does not.
    #[must_use]
    pub fn sum(self, other: Self) -> Self {
        // Scales are rounded to doubles: the smaller message may be off by so much against the other.
        let doubles = worst::DOUBLES * self.magnitude.min(other.magnitude);
        Self {
            magnitude: self.magnitude + other.magnitude,
            deviation: self.deviation.hypot(other.deviation),
            ..self
        }
        .with_norm(self.norm + other.norm + doubles)
    }

    /// Product of messages in a ring of degree `n`.
    #[must_use]
    pub fn product(self, other: Self, n: usize) -> Self {
        if !self.is_known() || !other.is_known() {
            return Self::UNKNOWN;
        }
        // Added up, not in squares: the factors of a power have the same error.
        let cross = self.magnitude * other.deviation + other.magnitude * self.deviation;
        // No slot of an error is above √N times its norm.
        let both = (n as f64).sqrt() * self.norm * other.norm;
        Self {
            magnitude: self.magnitude * other.magnitude,
            deviation: cross.hypot(self.deviation * other.deviation),
            ..self
        }
        .with_norm(self.magnitude * other.norm + other.magnitude * self.norm + both)
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
            ..self
        }
        .with_norm(self.norm * factor)
    }

    /// Product with a number of modulus `factor` that is rounded to 1/`scale`.
    #[must_use]
    pub fn times_rounded(self, factor: f64, scale: Scale) -> Self {
        // Uniform in each part, of deviation 1/√12.
        let average = self.magnitude / (12f64.sqrt() * scale.value());
        let most = worst::constant(factor, scale);
        self.times(factor)
            .plus(average, most * (self.magnitude + self.norm))
    }

    /// Sum with a number of modulus `value` that is rounded to 1/`scale`.
    #[must_use]
    pub fn plus_rounded(self, value: f64, scale: Scale) -> Self {
        let most = worst::constant(value, scale);
        self.within(self.magnitude + value).plus(0.0, most)
    }

    /// Of a message at the scale `own`, read at `scale`: the two match, and the remaining difference is an error.
    #[must_use]
    pub(crate) fn read_at(self, own: Scale, scale: Scale) -> Self {
        let ratio = own.value() / scale.value();
        if ratio == 1.0 {
            return self;
        }
        self.with_norm(self.norm * ratio + (ratio - 1.0).abs() * self.magnitude)
    }

    /// After both parts were rounded to integers at `scale`: a rescale, or the end of a key switch.
    #[must_use]
    pub fn rounded(self, n: usize, scale: Scale) -> Self {
        let variance = ROUNDING * (1.0 + 2.0 / 3.0 * n as f64);
        self.plus(
            slots(n, variance, scale),
            worst::rounding(n) / scale.value(),
        )
    }

    /// After a key switch at `scale` by digits whose ratios D_i/P have these sums of first and second powers; the
    /// rounding is [`Noise::rounded`].
    #[must_use]
    pub fn switched(self, n: usize, scale: Scale, [ratios, squares]: [f64; 2]) -> Self {
        self.plus(
            slots(n, FRESH * n as f64 * squares * ROUNDING, scale),
            worst::switching(n, ratios) / scale.value(),
        )
    }

    /// One more error: of this deviation and independent, of at most this norm and any.
    #[must_use]
    pub fn plus(self, deviation: f64, norm: f64) -> Self {
        Self {
            deviation: self.deviation.hypot(deviation),
            ..self
        }
        .with_norm(self.norm + norm)
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

/// The largest of 2·`slots` parts of an error over their deviation, on the safe side. The errors of roundings and key
/// switches are products r(ζ)·s(ζ) of two nearly normal variables, whose tail e^(−2t) at t times the mean is heavier
/// than a normal one: the largest of n is near (ln 2n + 2)/√2 deviations of a part.
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
        let product = x.product(y, 1 << 10);
        let expected = 8e-6 + 15e-6;
        assert!((product.deviation() / expected - 1.0).abs() < 1e-6);
        assert!(
            !x.product(Noise::UNKNOWN, 1 << 10).is_known() && !x.sum(Noise::UNKNOWN).is_known()
        );
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
