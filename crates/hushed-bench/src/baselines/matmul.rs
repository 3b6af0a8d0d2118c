//! The product of two encrypted matrices by rows and columns (the Orion kernels paper, arXiv 2512.11135, §IV; Fig. 5):
//! A·B = Σ_j A[:, j] ⊗ B[j, :], where each column and row is cut out by a mask, moved to the front and copied by
//! rotations. [`hushed_fhe::packing::heads`] is compared with it.
//!
//! | of d × d | rotations | ct × ct, relinearised | pt × ct | levels |
//! |---|---|---|---|---|
//! | [`OuterProducts`] | 2d(1 + log₂ d) − 2 | d | 2d | 2 |

use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Encoder, Evaluator, Scale};

/// Products of matrices stored row by row in the first d² slots.
pub struct OuterProducts {
    dimension: usize,
}

impl OuterProducts {
    /// For d × d matrices, if d is a power of two and d² fits in the slots.
    pub fn new(params: &CkksParams, dimension: usize) -> Option<Self> {
        let fits = dimension.is_power_of_two() && dimension * dimension <= params.slots();
        fits.then_some(Self { dimension })
    }

    /// Rotations that need a key: of each column and row to the front, and powers of two backwards.
    pub fn rotations(&self) -> Vec<i64> {
        let d = self.dimension as i64;
        let front = (1..d).flat_map(|j| [j, d * j]);
        let mut all: Vec<i64> = front.chain(self.copies().flat_map(|by| [by, d * by])).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// A·B of ciphertexts with the same number of primes, at least three. The result has two primes less.
    ///
    /// # Errors
    /// [`CkksError::LevelTooLow`] if there are too few primes, [`CkksError::MissingKey`].
    pub fn apply(&self, encoder: &Encoder, on: &Evaluator, [a, b]: [&Ciphertext; 2]) -> Result<Ciphertext, CkksError> {
        let d = self.dimension;
        let mut sum: Option<Ciphertext> = None;
        for j in 0..d {
            let column = self.cut(encoder, on, a, |slot| slot % d == j)?;
            let column = self.copied(on, on.rotate(&column, j as i64)?, 1)?;
            let row = self.cut(encoder, on, b, |slot| slot / d == j)?;
            let row = self.copied(on, on.rotate(&row, (d * j) as i64)?, d as i64)?;
            let product = on.mul(&column, &row)?;
            match &mut sum {
                Some(sum) => on.add_assign(sum, &product)?,
                None => sum = Some(product),
            }
        }
        // There is always a product, since no dimension is 0.
        on.rescale(&sum.unwrap_or_else(|| a.clone()))
    }

    /// Keeps the numbers in some of the first d² slots and clears all others. The mask is encoded here, as in the
    /// paper: keeping one for every column and row would take 2d plaintexts.
    fn cut(
        &self,
        encoder: &Encoder,
        on: &Evaluator,
        ct: &Ciphertext,
        keep: impl Fn(usize) -> bool,
    ) -> Result<Ciphertext, CkksError> {
        let (used, limbs) = (self.dimension * self.dimension, ct.limbs());
        let slot = |slot: usize| f64::from(u8::from(slot < used && keep(slot))).into();
        let mask: Vec<Complex64> = (0..encoder.params().slots()).map(slot).collect();
        // The product keeps the scale.
        let dropped = encoder.params().prime(limbs.saturating_sub(1));
        let mask = encoder.encode(&mask, limbs, Scale::ONE.times_prime(dropped))?;
        on.rescale(&on.mul_plain(ct, &mask)?)
    }

    /// ct plus its copies moved on by 1, 2, … d − 1 times `step`.
    fn copied(&self, on: &Evaluator, ct: Ciphertext, step: i64) -> Result<Ciphertext, CkksError> {
        self.copies().try_fold(ct, |mut ct, by| {
            let turned = on.rotate(&ct, by * step)?;
            on.add_assign(&mut ct, &turned)?;
            Ok(ct)
        })
    }

    fn copies(&self) -> impl Iterator<Item = i64> + use<> {
        (0..self.dimension.trailing_zeros()).map(|k| -(1 << k))
    }
}
