//! Integer coefficients of up to 2^120 in magnitude, to be reduced to residues.

use hushed_math::Pointwise;
use zeroize::{Zeroize, Zeroizing};

use crate::error::CkksError;
use crate::scale::Scale;

/// Largest magnitude of an integer.
const LIMIT: f64 = (1u128 << 120) as f64;

/// Integers below this in magnitude take one word.
const WORD: f64 = (1u64 << 62) as f64;

/// Wider integers are split as high·2^60 + low.
const STEP: u64 = 1 << 60;

/// Integers c_0, c_1, …, the coefficients of Σ c_i·X^(i·gap), gap = N/count. Erased on drop.
pub struct Integers {
    low: Vec<i64>,
    /// Empty unless some integer is wide.
    high: Vec<i64>,
    gap: usize,
    max: f64,
}

impl Integers {
    /// The integers nearest to `values`, which are spread evenly over `n` coefficients.
    pub(super) fn round(values: &[f64], n: usize, scale: Scale) -> Result<Self, CkksError> {
        // Comparisons with NaN are false, so `max` alone would not see it.
        let finite = values.iter().fold(true, |all, x| all & x.is_finite());
        let max = values.iter().fold(0.0, |max: f64, x| max.max(x.abs()));
        if !finite || max >= LIMIT {
            return Err(CkksError::ValueOutOfRange { scale: scale.log2() });
        }
        let gap = n / values.len();
        let (low, high) = if max < WORD {
            (values.iter().map(|x| x.round() as i64).collect(), Vec::new())
        } else {
            // Scaling by powers of two and these differences are exact. |low| ≤ 2^60.
            values
                .iter()
                .map(|x| {
                    let x = x.round();
                    let high = (x / STEP as f64).trunc();
                    ((x - high * STEP as f64) as i64, high as i64)
                })
                .unzip()
        };
        Ok(Self { low, high, gap, max })
    }

    /// Distance between neighbouring integers, in coefficients.
    pub fn gap(&self) -> usize {
        self.gap
    }

    /// The number of integers: N/gap.
    pub fn count(&self) -> usize {
        self.low.len()
    }

    /// log2 of the largest magnitude; negative infinity if all are zero.
    pub fn max_bits(&self) -> f64 {
        self.max.log2()
    }

    /// The N residues of the polynomial, in constant time with respect to the integers.
    ///
    /// # Panics
    /// If `out` does not have N words.
    pub fn reduce(&self, modulus: &Pointwise, out: &mut [u64]) {
        if self.gap == 1 {
            return self.reduce_dense(modulus, out);
        }
        let mut dense = Zeroizing::new(vec![0; self.count()]);
        self.reduce_dense(modulus, &mut dense);
        out.fill(0);
        for (out, residue) in out.iter_mut().step_by(self.gap).zip(dense.iter()) {
            *out = *residue;
        }
    }

    /// Residues of the integers alone, without gaps: a polynomial in the ring of degree N/gap.
    ///
    /// # Panics
    /// If `out` does not have [`Integers::count`] words.
    pub fn reduce_dense(&self, modulus: &Pointwise, out: &mut [u64]) {
        if self.high.is_empty() {
            return modulus.reduce_signed(out, &self.low);
        }
        modulus.reduce_signed(out, &self.high);
        modulus.mul_scalar_assign(out, modulus.modulus().reduce(STEP));
        let mut low = Zeroizing::new(vec![0; out.len()]);
        modulus.reduce_signed(&mut low, &self.low);
        modulus.add_assign(out, &low);
    }
}

impl Drop for Integers {
    fn drop(&mut self) {
        self.low.zeroize();
        self.high.zeroize();
        self.max.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushed_math::Modulus;
    use hushed_math::cpu::Cpu;

    #[test]
    fn residues_are_those_of_the_integers() {
        let q = (1u64 << 50) - 27;
        let modulus = Pointwise::with_cpu(Modulus::new(q).unwrap(), Cpu::get());
        for scale in [1.0, 2f64.powi(40), 2f64.powi(75), 2f64.powi(100)] {
            let values: Vec<f64> = (0..16).map(|i| (f64::from(i) - 7.3) * scale).collect();
            let integers = Integers::round(&values, 16, Scale::ONE).unwrap();
            let mut out = vec![0; 16];
            integers.reduce(&modulus, &mut out);
            for (x, r) in values.iter().zip(out) {
                let expected = (x.round() as i128).rem_euclid(i128::from(q));
                assert_eq!(i128::from(r), expected, "{x}");
            }
        }
    }

    #[test]
    fn sparse_integers_lie_at_their_gap() {
        let modulus = Pointwise::with_cpu(Modulus::new(97).unwrap(), Cpu::get());
        let integers = Integers::round(&[1.4, -2.6], 8, Scale::ONE).unwrap();
        assert_eq!((integers.gap(), integers.count()), (4, 2));
        let mut out = vec![5; 8];
        integers.reduce(&modulus, &mut out);
        assert_eq!(out, [1, 0, 0, 0, 94, 0, 0, 0]);
    }

    #[test]
    fn what_is_not_a_number_or_too_large_is_refused() {
        for bad in [f64::NAN, f64::INFINITY, LIMIT] {
            assert!(Integers::round(&[0.0, bad], 2, Scale::ONE).is_err());
        }
    }
}
