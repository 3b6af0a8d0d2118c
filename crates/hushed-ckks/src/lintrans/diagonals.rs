//! Square complex matrices as wrapped diagonals.
//!
//! out\[j\] = Σ_k d_k\[j\]·x\[(j + k) mod dim\], so the product is Σ_k d_k ⊙ rotate(x, k) in slots. Of a repeating
//! diagonal one period is stored, whose length divides `dim`.

use std::collections::BTreeMap;
use std::fmt;

use num_complex::Complex64;

use crate::lintrans::LinTransError;

/// A matrix as diagonals; those not listed are zero. Entries may be weights, so `Debug` shows only the shape.
#[derive(Clone, PartialEq)]
pub struct Diagonals {
    dim: usize,
    map: BTreeMap<usize, Vec<Complex64>>,
}

impl fmt::Debug for Diagonals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (dim, count) = (self.dim, self.map.len());
        write!(f, "Diagonals({count} of {dim})")
    }
}

impl Diagonals {
    /// The zero matrix with `dim` rows and columns.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] unless `dim` is a power of two.
    pub fn new(dim: usize) -> Result<Self, LinTransError> {
        if !dim.is_power_of_two() {
            return Err(LinTransError::Dimension { given: dim, limit: usize::MAX });
        }
        Ok(Self { dim, map: BTreeMap::new() })
    }

    /// The matrix with these rows of `dim` entries each. Diagonals that are exactly zero are kept, because which
    /// diagonals a matrix has must not depend on its entries.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if `dim` is not a power of two, [`LinTransError::Length`] if there are not `dim`
    /// rows of `dim` entries.
    pub fn from_rows(dim: usize, rows: &[Vec<Complex64>]) -> Result<Self, LinTransError> {
        let mut matrix = Self::new(dim)?;
        let lengths = std::iter::once(rows.len()).chain(rows.iter().map(Vec::len));
        if let Some(found) = lengths.into_iter().find(|&length| length != dim) {
            return Err(LinTransError::Length { expected: dim, found });
        }
        for k in 0..dim {
            let diagonal = (0..dim).map(|j| rows[j][(j + k) % dim]).collect();
            matrix.map.insert(k, diagonal);
        }
        Ok(matrix)
    }

    /// Number of rows and columns.
    pub fn dim(&self) -> usize {
        self.dim
    }

    /// Sets diagonal `offset` (modulo `dim`, negative offsets counting from the end) to `values`, repeated.
    ///
    /// # Errors
    /// [`LinTransError::Length`] unless the number of values divides `dim`.
    pub fn set(&mut self, offset: i64, values: Vec<Complex64>) -> Result<(), LinTransError> {
        if values.is_empty() || !self.dim.is_multiple_of(values.len()) {
            return Err(LinTransError::Length { expected: self.dim, found: values.len() });
        }
        let offset = offset.rem_euclid(self.dim as i64) as usize;
        self.map.insert(offset, values);
        Ok(())
    }

    /// Iterates over the offset and one period of each diagonal, by ascending offset.
    pub fn iter(&self) -> impl Iterator<Item = (usize, &[Complex64])> {
        self.map.iter().map(|(&k, values)| (k, values.as_slice()))
    }

    /// Offsets of the diagonals, ascending.
    pub fn offsets(&self) -> Vec<usize> {
        self.map.keys().copied().collect()
    }

    /// Number of diagonals.
    pub fn count(&self) -> usize {
        self.map.len()
    }

    /// The longest period of a diagonal: that many slots suffice to store each of them.
    pub fn period(&self) -> usize {
        self.map.values().map(Vec::len).max().unwrap_or(1)
    }

    /// The product with a vector of `dim` entries in the clear.
    ///
    /// # Errors
    /// [`LinTransError::Length`].
    pub fn apply(&self, x: &[Complex64]) -> Result<Vec<Complex64>, LinTransError> {
        if x.len() != self.dim {
            return Err(LinTransError::Length { expected: self.dim, found: x.len() });
        }
        let mut out = vec![Complex64::ZERO; self.dim];
        for (k, values) in self.iter() {
            for (j, slot) in out.iter_mut().enumerate() {
                *slot += values[j % values.len()] * x[(j + k) % self.dim];
            }
        }
        Ok(out)
    }

    /// The matrix that applies `first`, then `self`.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if the dimensions differ.
    pub fn after(&self, first: &Diagonals) -> Result<Diagonals, LinTransError> {
        if self.dim != first.dim {
            return Err(LinTransError::Dimension { given: first.dim, limit: self.dim });
        }
        let mut product = Self::new(self.dim)?;
        for (a, left) in self.iter() {
            for (b, right) in first.iter() {
                // Periods are powers of two, so the longer one is a period of both.
                let period = left.len().max(right.len());
                let sum = product.map.entry((a + b) % self.dim).or_insert_with(|| vec![Complex64::ZERO; period]);
                if sum.len() < period {
                    *sum = sum.iter().copied().cycle().take(period).collect();
                }
                for (j, entry) in sum.iter_mut().enumerate() {
                    *entry += left[j % left.len()] * right[(j + a) % right.len()];
                }
            }
        }
        Ok(product)
    }

    /// Multiplies every entry by `factor`.
    pub fn scale(&mut self, factor: Complex64) {
        self.map.values_mut().flatten().for_each(|entry| *entry *= factor);
    }

    /// Reduces each diagonal to its smallest period (a power of two). Only for public matrices, because the stored size
    /// then depends on the entries.
    pub fn compact(&mut self) {
        for values in self.map.values_mut() {
            while values.len() > 1 {
                let (low, high) = values.split_at(values.len() / 2);
                if low != high {
                    break;
                }
                values.truncate(values.len() / 2);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{distance, random};
    use hushed_math::rng::SecretRng;

    fn random_rows(dim: usize, seed: u64) -> Vec<Vec<Complex64>> {
        let mut rng = SecretRng::insecure_from_seed(seed);
        (0..dim).map(|_| random(&mut rng, dim)).collect()
    }

    fn near(a: &[Complex64], b: &[Complex64]) -> bool {
        distance(a, b) < 1e-12
    }

    #[test]
    fn products_and_compositions_are_those_of_the_dense_matrices() {
        let dim = 16;
        let (a, b) = (random_rows(dim, 1), random_rows(dim, 2));
        let x = &random_rows(dim, 3)[0];
        let dense = |rows: &[Vec<Complex64>], x: &[Complex64]| -> Vec<Complex64> {
            rows.iter().map(|row| row.iter().zip(x).map(|(m, v)| m * v).sum()).collect()
        };
        let left = Diagonals::from_rows(dim, &a).unwrap();
        let right = Diagonals::from_rows(dim, &b).unwrap();
        let step = dense(&b, x);
        assert!(near(&right.apply(x).unwrap(), &step));
        let both = left.after(&right).unwrap();
        assert!(near(&both.apply(x).unwrap(), &dense(&a, &step)));
    }

    #[test]
    fn repeated_diagonals_are_stored_once() {
        let mut m = Diagonals::new(8).unwrap();
        let [one, two] = [1.0, 2.0].map(|x| Complex64::new(x, -x));
        m.set(-1, [one, two].repeat(4)).unwrap();
        m.set(0, vec![one; 8]).unwrap();
        let whole = m.clone();
        m.compact();
        assert_eq!(m.offsets(), [0, 7]);
        assert_eq!(m.period(), 2);
        let x: Vec<_> = (0..8).map(|i| Complex64::new(i as f64, 1.0)).collect();
        assert_eq!(m.apply(&x).unwrap(), whole.apply(&x).unwrap());
        let square = m.after(&m).unwrap();
        assert_eq!(square.period(), 2);
        assert!(near(&square.apply(&x).unwrap(), &m.apply(&m.apply(&x).unwrap()).unwrap()));
    }

    #[test]
    fn shapes_are_checked() {
        assert!(matches!(Diagonals::new(12), Err(LinTransError::Dimension { given: 12, .. })));
        let mut m = Diagonals::new(8).unwrap();
        assert!(matches!(m.set(0, vec![Complex64::ZERO; 3]), Err(LinTransError::Length { .. })));
        assert!(matches!(m.apply(&[]), Err(LinTransError::Length { .. })));
        assert!(m.after(&Diagonals::new(4).unwrap()).is_err());
    }
}
