//! Plaintext diagonals as values under several primes, with repeated values stored once.
//!
//! A vector of slots with period B, B | N/2, is the slots of a polynomial p(X^g), g = N/2B: its value at ψ^e depends on
//! e mod 2N/g, so in the bit-reversed order of [`hushed_math::ntt`], where value k belongs to e = 2·rev(k) + 1, each
//! value occurs g times in a row, and the distinct ones are the transform of p in the ring of degree N/g = 2B with root
//! ψ^g. A transform of that degree chooses this root by itself, since both are powers of the least non-residue. So N/g
//! words per prime are stored.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use hushed_math::{MathError, Modulus, NttTables, RnsBasis};
use num_complex::Complex64;
use zeroize::Zeroize;

use crate::lintrans::{DftFactors, Direction, LinTransError};

/// Smallest stored period: shorter ones are repeated up to it, so that vector kernels fill whole registers.
pub(crate) const LEAST_PERIOD: usize = 16;

/// Largest coefficient of an encoded diagonal: the integers are rounded from f64 through i64.
const LARGEST: f64 = (1_u64 << 62) as f64;

/// One polynomial of R under several primes, in evaluation form; each stored word stands for `repeat` consecutive equal
/// ones.
pub struct CompactPlain {
    /// N over the number of stored words.
    repeat: usize,
    stored: usize,
    /// Limb j at j·stored.
    words: Vec<u64>,
}

impl CompactPlain {
    /// Number of consecutive equal values per stored word.
    pub fn repeat(&self) -> usize {
        self.repeat
    }

    /// The stored words of limb `j`, in the order of the primes it was encoded for.
    pub fn limb(&self, j: usize) -> &[u64] {
        &self.words[j * self.stored..(j + 1) * self.stored]
    }

    /// The stored words of limb `j` for `length` values from `start` on. `start` and `length` are multiples of
    /// [`CompactPlain::repeat`], or all values lie within one run of equal ones.
    pub(crate) fn strip(&self, j: usize, start: usize, length: usize) -> &[u64] {
        let first = start / self.repeat;
        &self.limb(j)[first..first + length.div_ceil(self.repeat)]
    }

    /// Bytes in memory.
    pub fn bytes(&self) -> usize {
        size_of_val(self.words.as_slice())
    }
}

/// Diagonals may be weights, which are secrets of the server.
impl Drop for CompactPlain {
    fn drop(&mut self) {
        self.words.zeroize();
    }
}

/// Encodes vectors of slots under fixed primes at one scale, building the transforms of smaller rings once.
pub struct CompactEncoder<'a> {
    basis: &'a RnsBasis,
    ids: Vec<usize>,
    scale: f64,
    /// One transform per prime, by degree.
    rings: BTreeMap<usize, Vec<NttTables>>,
    /// The layers of the inverse special transform, by number of slots.
    layers: BTreeMap<usize, DftFactors>,
}

impl<'a> CompactEncoder<'a> {
    /// An encoder for the primes `ids` of `basis`.
    pub fn new(basis: &'a RnsBasis, ids: &[usize], scale: f64) -> Self {
        Self { basis, ids: ids.to_vec(), scale, rings: BTreeMap::new(), layers: BTreeMap::new() }
    }

    /// The polynomial whose slots are `values` repeated over all N/2.
    ///
    /// # Errors
    /// [`LinTransError::Length`] unless the number of values divides N/2, [`LinTransError::Overflow`] if a coefficient
    /// at this scale is 2^62 or more.
    pub fn encode(&mut self, values: &[Complex64]) -> Result<CompactPlain, LinTransError> {
        let mut words = vec![0; self.length(values.len())];
        self.encode_into(values, &mut words)?;
        let stored = words.len() / self.ids.len().max(1);
        Ok(CompactPlain { repeat: self.basis.n() / stored.max(1), stored, words })
    }

    /// Number of words that `values` values take under all primes.
    pub fn length(&self, values: usize) -> usize {
        2 * values.max(LEAST_PERIOD.min(self.basis.n() / 2)) * self.ids.len()
    }

    /// Encodes into [`CompactEncoder::length`] words, prime by prime.
    ///
    /// # Errors
    /// As [`CompactEncoder::encode`], and [`LinTransError::Length`] for any other number of words.
    pub fn encode_into(&mut self, values: &[Complex64], words: &mut [u64]) -> Result<(), LinTransError> {
        let (slots, expected) = (self.basis.n() / 2, self.length(values.len()));
        if values.is_empty() || !slots.is_multiple_of(values.len()) {
            return Err(LinTransError::Length { expected: slots, found: values.len() });
        }
        let period = values.len().max(LEAST_PERIOD.min(slots));
        let values: Vec<_> = values.iter().copied().cycle().take(period).collect();
        let coefficients = self.coefficients(&values)?;
        let degree = 2 * period;
        if words.len() != expected {
            let found = words.len();
            return Err(LinTransError::Length { expected, found });
        }
        let (basis, ids) = (self.basis, &self.ids);
        let rings = match self.rings.entry(degree) {
            _ if degree == basis.n() => None,
            Entry::Occupied(entry) => Some(entry.into_mut()),
            Entry::Vacant(entry) => {
                let ntt = |&id: &usize| NttTables::new(degree, Modulus::new(basis.modulus(id).value())?);
                let transforms = ids.iter().map(ntt).collect::<Result<Vec<_>, MathError>>()?;
                Some(entry.insert(transforms))
            }
        };
        let limbs = words.chunks_exact_mut(degree);
        for (j, (&id, limb)) in ids.iter().zip(limbs).enumerate() {
            let ntt = match &rings {
                Some(transforms) => &transforms[j],
                None => basis.ntt(id),
            };
            ntt.pointwise().reduce_signed(limb, &coefficients);
            ntt.forward(limb);
        }
        Ok(())
    }

    /// round(scale·m), where m is the polynomial of 2B coefficients with the B slots `values`.
    fn coefficients(&mut self, values: &[Complex64]) -> Result<Vec<i64>, LinTransError> {
        let bits = values.len().trailing_zeros();
        let t = if bits == 0 {
            values.to_vec()
        } else {
            let inverse = match self.layers.entry(values.len()) {
                Entry::Occupied(entry) => entry.into_mut(),
                Entry::Vacant(entry) => {
                    let single = vec![1; bits as usize];
                    let map = DftFactors::new(Direction::CoeffsToSlots, values.len(), &single, 1.0)?;
                    entry.insert(map)
                }
            };
            inverse.apply(values)?
        };
        let natural = (0..t.len()).map(|k| t[hushed_math::ntt::reverse_bits(k, bits)]);
        let (real, imaginary): (Vec<f64>, Vec<f64>) = natural.map(|z| (z.re, z.im)).unzip();
        real.into_iter()
            .chain(imaginary)
            .map(|m| {
                let scaled = (m * self.scale).round();
                // NaN fails too.
                if scaled.abs() < LARGEST {
                    Ok(scaled as i64)
                } else {
                    Err(LinTransError::Overflow { scale_bits: self.scale.log2() })
                }
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use hushed_math::primes::ntt_primes;
    use hushed_math::{Coeff, RnsPoly};

    fn vector(slots: usize) -> Vec<Complex64> {
        let mut rng = hushed_math::rng::SecretRng::insecure_from_seed(slots as u64);
        let mut real = || rng.next_u64() as f64 / (1_u64 << 63) as f64 - 1.0;
        (0..slots).map(|_| Complex64::new(real(), real())).collect()
    }

    #[test]
    fn a_periodic_vector_is_the_whole_one_with_values_repeated_in_a_row() {
        let n = 512;
        let basis = RnsBasis::new(n, &ntt_primes(50, n, 3)).unwrap();
        let ids = [2, 0];
        for period in [1, 4, 32, 64, 256] {
            let values = vector(period);
            let mut encoder = CompactEncoder::new(&basis, &ids, (1_u64 << 45) as f64);
            let compact = encoder.encode(&values).unwrap();
            let stored = 2 * period.max(LEAST_PERIOD);
            assert_eq!(compact.repeat() * stored, n);
            // Through the transform of the whole ring, with coefficients at multiples of g.
            let whole: Vec<_> = values.iter().copied().cycle().take(n / 2).collect();
            let coefficients = encoder.coefficients(&whole).unwrap();
            let gap = n / (2 * period);
            assert!(coefficients.iter().enumerate().all(|(i, &c)| i % gap == 0 || c.abs() <= 1));
            let cleaned: Vec<_> =
                coefficients.iter().enumerate().map(|(i, &c)| if i % gap == 0 { c } else { 0 }).collect();
            let poly = RnsPoly::<Coeff>::from_signed(&basis, &ids, &cleaned).into_eval();
            for (j, &id) in ids.iter().enumerate() {
                let repeated: Vec<u64> =
                    compact.limb(j).iter().flat_map(|&w| std::iter::repeat_n(w, compact.repeat())).collect();
                let q = basis.modulus(id).value();
                // Rounding in the smaller and the larger transform occasionally differs by one unit.
                let far = repeated.iter().zip(poly.limb(j)).filter(|&(&a, &b)| a != b).count();
                let ntt = basis.ntt(id);
                let mut difference: Vec<u64> =
                    repeated.iter().zip(poly.limb(j)).map(|(&a, &b)| ntt.modulus().sub(a, b)).collect();
                ntt.inverse(&mut difference);
                let small = difference.iter().all(|&d| d <= 1 || d == q - 1);
                assert!(small, "period {period}: {far} values off");
            }
        }
    }

    #[test]
    fn slots_come_back_through_the_definition() {
        let n = 64;
        let basis = RnsBasis::new(n, &ntt_primes(50, n, 1)).unwrap();
        let values = vector(n / 2);
        let scale = (1_u64 << 40) as f64;
        let mut encoder = CompactEncoder::new(&basis, &[0], scale);
        let m = encoder.coefficients(&values).unwrap();
        let mut power = 1;
        for value in &values {
            let sum: Complex64 = m
                .iter()
                .enumerate()
                .map(|(i, &c)| {
                    let angle = std::f64::consts::PI * (i * power % (2 * n)) as f64 / n as f64;
                    Complex64::from_polar(c as f64 / scale, angle)
                })
                .sum();
            assert!((sum - value).norm() < 1e-9);
            power = power * 5 % (2 * n);
        }
    }

    #[test]
    fn too_large_and_too_long_vectors_are_refused() {
        let n = 64;
        let basis = RnsBasis::new(n, &ntt_primes(50, n, 1)).unwrap();
        let mut encoder = CompactEncoder::new(&basis, &[0], (1_u64 << 60) as f64);
        let huge = vec![Complex64::new(8.0, 0.0)];
        assert!(matches!(encoder.encode(&huge), Err(LinTransError::Overflow { .. })));
        assert!(matches!(encoder.encode(&[Complex64::new(f64::NAN, 0.0)]), Err(LinTransError::Overflow { .. })));
        assert!(encoder.encode(&vector(3)).is_err());
        assert!(encoder.encode(&vector(64)).is_err());
    }
}
