//! Splits a matrix into rotations, baby steps of the input and giant steps of partial sums, chosen by cost.
//!
//! Write the offset of a diagonal as k = G + b. Then Σ_k d_k ⊙ rot(x, k) = Σ_G rot(Σ_b rot(d_(G+b), −G) ⊙ rot(x, b),
//! G): one key switch per baby step and one per giant step. With double hoisting (Bossuat, Mouchet, Troncoso-Pastoriza
//! and Hubaux, EUROCRYPT 2021, Algorithm 6) babies share one decomposition and stay modulo Q·P. A baby step then costs
//! only an inner product with its key; a giant step, which needs its own division by P and decomposition, costs several
//! times as much.

use crate::lintrans::{Diagonals, LinTransError};

/// A cost model for key switches, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CostModel {
    /// A baby step: reading the key, expanding its uniform half, inner product.
    pub baby: f64,
    /// A giant step: division by P of one polynomial, decomposition, inner product.
    pub giant: f64,
    /// The fixed cost of a product: the first decomposition and the last divisions.
    pub fixed: f64,
    /// Bytes of one key in memory.
    pub key_bytes: f64,
    /// Nanoseconds charged per byte of keys.
    pub per_key_byte: f64,
}

/// Nanoseconds per word, measured with 52-bit multiply-add kernels: a transform at N = 2^15 and 2^16; a key word (read,
/// uniform half expanded, two products); a product in a base conversion.
const NTT: f64 = 0.95;
const KEY_WORD: f64 = 0.55;
const CONVERT: f64 = 0.02;

/// Keeping a key word in memory counts as a few hundredths of using it: enough to break ties in favour of fewer keys.
const MEMORY: f64 = 0.002;

impl CostModel {
    /// For ciphertexts of `limbs` primes with `special` special primes and `digits` digits at ring degree `n`.
    pub fn new(n: usize, limbs: usize, special: usize, digits: usize) -> Self {
        let (n, q, p, d) = (n as f64, limbs as f64, special as f64, digits as f64);
        let inner = d * (q + p) * n * KEY_WORD;
        let divide = ((q + p) * NTT + p * q * CONVERT) * n;
        let decompose = ((q + d * (q + p) - q) * NTT + q * (q + p) * CONVERT) * n;
        Self {
            baby: inner,
            giant: inner + divide + decompose,
            fixed: decompose + 2.0 * divide,
            key_bytes: d * (q + p) * n * 8.0,
            per_key_byte: MEMORY,
        }
    }

    fn total(&self, babies: usize, giants: usize) -> f64 {
        self.fixed
            + babies as f64 * self.baby
            + giants as f64 * self.giant
            + (babies + giants) as f64 * self.key_bytes * self.per_key_byte
    }
}

/// One giant step: the diagonals whose sum it rotates.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Giant {
    /// Rotation of the sum, in [0, slots).
    pub rotation: usize,
    /// (index into [`Split::babies`], offset of the diagonal in the matrix).
    pub terms: Vec<(usize, usize)>,
}

/// A matrix split into baby and giant steps. Rotation 0 needs no key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Split {
    /// Rotations of the input, ascending.
    pub babies: Vec<usize>,
    /// Rotations of sums; a rotation by 0 comes first.
    pub giants: Vec<Giant>,
}

impl Split {
    /// The cheapest split of `matrix` for ciphertexts of `slots` slots.
    ///
    /// # Errors
    /// [`LinTransError::Dimension`] if the matrix has more rows than slots, [`LinTransError::Empty`] if it has no
    /// diagonals.
    pub fn best(matrix: &Diagonals, slots: usize, cost: &CostModel) -> Result<Self, LinTransError> {
        let offsets = signed_offsets(matrix, slots)?;
        let stride = stride(offsets.iter().map(|&(k, _)| k));
        let steps: Vec<i64> = offsets.iter().map(|&(k, _)| k / stride).collect();
        let span = (steps[steps.len() - 1] - steps[0] + 1) as usize;
        let mut best: Option<(f64, i64, i64)> = None;
        // Tries every width and shift for the small, sparse matrices of bootstrapping, but only those that can matter
        // for larger ones: the cost is flat around its minimum, and a shift saves at most one giant step.
        let fine = span <= 128;
        for width in (1..=span as i64).step_by(if fine { 1 } else { span / 128 }) {
            for shift in (0..width).step_by(if fine { 1 } else { (width as usize).div_ceil(2) }) {
                let (babies, giants) = counts(&steps, width, shift);
                let total = cost.total(babies, giants);
                if best.is_none_or(|(least, ..)| total < least) {
                    best = Some((total, width, shift));
                }
            }
        }
        let (_, width, shift) = best.ok_or(LinTransError::Empty)?;
        Ok(Self::with(&offsets, slots, stride, width, shift))
    }

    /// Only rotations of the input, none of sums: the plain diagonal method.
    ///
    /// # Errors
    /// As [`Split::best`].
    pub fn diagonal(matrix: &Diagonals, slots: usize) -> Result<Self, LinTransError> {
        let offsets = signed_offsets(matrix, slots)?;
        let babies: Vec<usize> = offsets.iter().map(|&(_, offset)| offset).collect();
        let mut sorted = babies.clone();
        sorted.sort_unstable();
        let terms = sorted.iter().enumerate().map(|(i, &k)| (i, k)).collect();
        Ok(Self { babies: sorted, giants: vec![Giant { rotation: 0, terms }] })
    }

    /// Baby steps by 0 … `width` − 1 times the stride of the offsets.
    ///
    /// # Errors
    /// As [`Split::best`].
    pub fn fixed(matrix: &Diagonals, slots: usize, width: usize) -> Result<Self, LinTransError> {
        let offsets = signed_offsets(matrix, slots)?;
        let stride = stride(offsets.iter().map(|&(k, _)| k));
        Ok(Self::with(&offsets, slots, stride, width.max(1) as i64, 0))
    }

    fn with(offsets: &[(i64, usize)], slots: usize, stride: i64, width: i64, shift: i64) -> Self {
        let wrap = |k: i64| k.rem_euclid(slots as i64) as usize;
        let cut = |k: i64| {
            let step = k / stride;
            let giant = (step + shift).div_euclid(width) * width;
            (wrap(giant * stride), wrap((step - giant) * stride))
        };
        let mut babies: Vec<usize> = offsets.iter().map(|&(k, _)| cut(k).1).collect();
        babies.sort_unstable();
        babies.dedup();
        let mut giants: Vec<Giant> = Vec::new();
        for &(k, offset) in offsets {
            let (rotation, baby) = cut(k);
            let index = babies.binary_search(&baby).unwrap_or(0);
            match giants.iter_mut().find(|giant| giant.rotation == rotation) {
                Some(giant) => giant.terms.push((index, offset)),
                None => giants.push(Giant { rotation, terms: vec![(index, offset)] }),
            }
        }
        giants.sort_by_key(|giant| giant.rotation);
        Self { babies, giants }
    }

    /// Its cost under the model.
    pub fn cost(&self, model: &CostModel) -> f64 {
        let (babies, giants) = self.rotations();
        model.total(babies.len(), giants.len())
    }

    /// Rotations that need a key: of the input, then of sums, each list ascending and distinct.
    pub fn rotations(&self) -> (Vec<usize>, Vec<usize>) {
        let babies = self.babies.iter().copied().filter(|&k| k != 0).collect();
        let giants = self.giants.iter().map(|giant| giant.rotation);
        (babies, giants.filter(|&k| k != 0).collect())
    }
}

/// Offsets in (−dim/2, dim/2], ascending, each with its offset in the matrix. If the matrix is smaller than the number
/// of slots, the input repeats, so both signs mean the same.
fn signed_offsets(matrix: &Diagonals, slots: usize) -> Result<Vec<(i64, usize)>, LinTransError> {
    if matrix.dim() > slots {
        return Err(LinTransError::Dimension { given: matrix.dim(), limit: slots });
    }
    if matrix.count() == 0 {
        return Err(LinTransError::Empty);
    }
    let dim = matrix.dim() as i64;
    let all = matrix.offsets();
    // With nearly all offsets there is no gap in the middle to fold at, and without signs the giant by 0 is full.
    let fold = 2 * all.len() < matrix.dim() && !one_sided(&all, matrix.dim());
    let mut offsets: Vec<(i64, usize)> = all
        .into_iter()
        .map(|k| {
            let signed = if fold && 2 * k as i64 > dim { k as i64 - dim } else { k as i64 };
            (signed, k)
        })
        .collect();
    offsets.sort_unstable();
    Ok(offsets)
}

/// Whether the offsets fill [0, dim) evenly (a group with the wrapped layer), in which case signs gain nothing.
fn one_sided(offsets: &[usize], dim: usize) -> bool {
    let step = offsets.iter().copied().filter(|&k| k > 0).min();
    step.is_some_and(|step| offsets.len() * step == dim)
}

/// Greatest common divisor of the offsets, at least 1.
pub(crate) fn stride(offsets: impl Iterator<Item = i64>) -> i64 {
    let gcd = offsets.fold(0_i64, |a, b| {
        let (mut a, mut b) = (a, b.abs());
        while b != 0 {
            (a, b) = (b, a % b);
        }
        a
    });
    gcd.max(1)
}

/// Number of keys for the babies and giants of a split.
fn counts(steps: &[i64], width: i64, shift: i64) -> (usize, usize) {
    let mut babies = vec![false; width as usize];
    let mut giants = Vec::new();
    for &step in steps {
        let giant = (step + shift).div_euclid(width);
        // The remainder of step + shift marks the baby; if it equals the shift, the baby needs no rotation.
        babies[(step + shift).rem_euclid(width) as usize] = true;
        if giant != 0 {
            giants.push(giant);
        }
    }
    giants.dedup();
    let free = usize::from(babies[shift as usize]);
    (babies.iter().filter(|&&b| b).count() - free, giants.len())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lintrans::{DftFactors, Direction};
    use num_complex::Complex64;

    fn matrix(dim: usize, offsets: &[i64]) -> Diagonals {
        let mut m = Diagonals::new(dim).unwrap();
        for &k in offsets {
            let diagonal = (0..dim).map(|j| Complex64::new(j as f64 + k as f64, 1.0)).collect();
            m.set(k, diagonal).unwrap();
        }
        m
    }

    /// The defining sum, by cyclic shifts.
    fn apply(split: &Split, m: &Diagonals, x: &[Complex64]) -> Vec<Complex64> {
        let n = x.len();
        let rotate = |x: &[Complex64], k: usize| -> Vec<Complex64> { (0..n).map(|j| x[(j + k) % n]).collect() };
        let diagonals: std::collections::BTreeMap<_, _> = m.iter().collect();
        let mut out = vec![Complex64::ZERO; n];
        for giant in &split.giants {
            let mut sum = vec![Complex64::ZERO; n];
            for &(baby, offset) in &giant.terms {
                let d = diagonals[&offset];
                let x = rotate(x, split.babies[baby]);
                for j in 0..n {
                    sum[j] += d[(j + n - giant.rotation) % d.len()] * x[j];
                }
            }
            for (o, s) in out.iter_mut().zip(rotate(&sum, giant.rotation)) {
                *o += s;
            }
        }
        out
    }

    #[test]
    fn any_split_is_the_matrix() {
        let dim = 64;
        let shapes: [Vec<i64>; 4] =
            [(0..dim).collect(), (-7..=7).map(|k| 4 * k).collect(), vec![5, -9, 31, 32], vec![0]];
        let x: Vec<_> = (0..dim).map(|i| Complex64::new(i as f64, -(i as f64) / 2.0)).collect();
        for offsets in shapes {
            let m = matrix(dim as usize, &offsets);
            let expected = m.apply(&x).unwrap();
            let cost = CostModel::new(1 << 16, 20, 7, 3);
            let mut splits =
                vec![Split::best(&m, dim as usize, &cost).unwrap(), Split::diagonal(&m, dim as usize).unwrap()];
            for width in [1, 2, 5, 8, 64] {
                splits.push(Split::fixed(&m, dim as usize, width).unwrap());
            }
            for split in splits {
                let found = apply(&split, &m, &x);
                let far = found.iter().zip(&expected).any(|(a, b)| (a - b).norm() > 1e-6);
                assert!(!far, "{offsets:?} {split:?}");
            }
        }
    }

    #[test]
    fn the_factors_of_bootstrapping_take_few_keys() {
        let slots = 1 << 15;
        let up = DftFactors::new(Direction::CoeffsToSlots, slots, &[5, 5, 5], 1.0).unwrap();
        for (factor, most) in up.factors().iter().zip([12, 24, 24]) {
            let cost = CostModel::new(1 << 16, 29, 7, 5);
            let split = Split::best(factor, slots, &cost).unwrap();
            let (babies, giants) = split.rotations();
            assert!(babies.len() + giants.len() <= most, "{babies:?} {giants:?}");
            let terms: usize = split.giants.iter().map(|g| g.terms.len()).sum();
            assert_eq!(terms, factor.count());
        }
    }

    #[test]
    fn dense_and_empty_matrices() {
        let dim = 1024;
        let m = matrix(dim, &(0..dim as i64).collect::<Vec<_>>());
        let split = Split::best(&m, 1 << 15, &CostModel::new(1 << 16, 7, 7, 1)).unwrap();
        let (babies, giants) = split.rotations();
        assert!(babies.len() + giants.len() < 100);
        let empty = Diagonals::new(4).unwrap();
        let cost = CostModel::new(1 << 16, 7, 7, 1);
        assert_eq!(Split::best(&empty, 8, &cost), Err(LinTransError::Empty));
        assert!(Split::diagonal(&m, 512).is_err());
    }
}
