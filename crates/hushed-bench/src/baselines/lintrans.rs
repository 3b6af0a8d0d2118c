//! The methods that [`hushed_ckks::lintrans::LinearTransform`] is compared with, written with the evaluator's
//! rotations, plaintext products and rescales. They compute the same products, with different numbers and kinds of key
//! switches.
//!
//! | method | rotations of d × d | decompositions | levels |
//! |---|---|---|---|
//! | [`SingleHoisted`] baby-step giant-step (Halevi and Shoup, CRYPTO 2018) | n₁ − 1 + n₂ − 1 | n₂ | 1 |
//! | [`PackedRows`] (row method, Orion kernels paper §IV-A; Gazelle packing) | ⌈d·d/n⌉·(log₂ d + 1) − 1 | as many | 2 |

use std::collections::BTreeMap;

use hushed_ckks::lintrans::{Diagonals, LinTransError, Split};
use hushed_ckks::{Ciphertext, CkksError, Complex64, Encoder, Evaluator, Plaintext, Scale};

/// The scale of a plaintext whose product with a ciphertext of `limbs` primes is rescaled: that of the dropped prime.
fn plain_scale(encoder: &Encoder, limbs: usize) -> Result<Scale, CkksError> {
    let params = encoder.params();
    if limbs < 2 || limbs > params.max_limbs() {
        return Err(LinTransError::Level { limbs, needed: 2, available: params.max_limbs() }.into());
    }
    Ok(Scale::ONE.times_prime(params.prime(limbs - 1)))
}

/// Baby-step giant-step with one decomposition for all baby steps, each of which is divided by P at once.
pub struct SingleHoisted {
    babies: Vec<i64>,
    giants: Vec<(i64, Vec<(usize, Plaintext)>)>,
}

impl SingleHoisted {
    /// Encodes `matrix` for ciphertexts of `limbs` primes with baby steps 0 … `width` − 1.
    ///
    /// # Errors
    /// [`CkksError::LinTrans`] if there is no such length; errors of the encoder.
    pub fn new(encoder: &Encoder, matrix: &Diagonals, limbs: usize, width: usize) -> Result<Self, CkksError> {
        let scale = plain_scale(encoder, limbs)?;
        let split = Split::fixed(matrix, encoder.params().slots(), width)?;
        let diagonals: BTreeMap<_, _> = matrix.iter().collect();
        let encode = |giant: usize, offset: usize| {
            let values = diagonals.get(&offset).ok_or(LinTransError::Empty)?;
            let mut back = values.to_vec();
            back.rotate_right(giant % values.len());
            encoder.encode_periodic(&back, limbs, scale)
        };
        let giants = split.giants.iter().map(|giant| {
            let terms = giant.terms.iter();
            let terms = terms.map(|&(baby, k)| Ok((baby, encode(giant.rotation, k)?)));
            let terms = terms.collect::<Result<_, CkksError>>()?;
            Ok((giant.rotation as i64, terms))
        });
        Ok(Self {
            giants: giants.collect::<Result<_, CkksError>>()?,
            babies: split.babies.iter().map(|&k| k as i64).collect(),
        })
    }

    /// Rotations that need a key.
    pub fn rotations(&self) -> Vec<i64> {
        let giants = self.giants.iter().map(|&(k, _)| k);
        let mut all: Vec<i64> = self.babies.iter().copied().chain(giants).collect();
        all.sort_unstable();
        all.dedup();
        all.retain(|&k| k != 0);
        all
    }

    /// The product, with one prime less.
    ///
    /// # Errors
    /// Those of [`Evaluator::rotate`] and [`Evaluator::mul_plain`].
    pub fn apply(&self, evaluator: &Evaluator, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let rotated = evaluator.rotate_many(ct, &self.babies)?;
        let mut total: Option<Ciphertext> = None;
        for (rotation, terms) in &self.giants {
            let mut sum = None;
            for (baby, plain) in terms {
                let input = rotated.get(*baby).ok_or(LinTransError::Empty)?;
                add_product(evaluator, &mut sum, input, plain)?;
            }
            let sum = evaluator.rotate(&sum.ok_or(LinTransError::Empty)?, *rotation)?;
            match &mut total {
                Some(total) => evaluator.add_assign(total, &sum)?,
                None => total = Some(sum),
            }
        }
        finish(evaluator, total)
    }
}

/// Rows side by side in plaintexts; each is summed by rotations, and the sums are masked and combined.
pub struct PackedRows {
    rows: Vec<Plaintext>,
    mask: Plaintext,
    /// Columns, a power of two.
    columns: usize,
    /// Rows per plaintext.
    side: usize,
}

impl PackedRows {
    /// Encodes a matrix of these rows, all of the same length, for ciphertexts of `limbs` primes. The input vector,
    /// padded with zeros to a power of two, repeats over all slots.
    ///
    /// # Errors
    /// [`LinTransError::Length`] if row lengths differ, [`LinTransError::Dimension`] for more columns than slots or
    /// more rows than fit, [`LinTransError::Empty`] for no rows or columns, [`LinTransError::Level`] unless two primes
    /// can be spent.
    pub fn new(encoder: &Encoder, rows: &[Vec<f64>], limbs: usize) -> Result<Self, CkksError> {
        let (params, width) = (encoder.params(), rows.first().map_or(0, Vec::len));
        if width == 0 {
            return Err(LinTransError::Empty.into());
        }
        if let Some(row) = rows.iter().find(|row| row.len() != width) {
            return Err(LinTransError::Length { expected: width, found: row.len() }.into());
        }
        let (slots, columns) = (params.slots(), width.next_power_of_two());
        let side = slots / columns;
        if side == 0 || rows.len().div_ceil(side.max(1)) > columns {
            return Err(LinTransError::Dimension { given: width.max(rows.len()), limit: slots }.into());
        }
        let (first, second) = (plain_scale(encoder, limbs)?, plain_scale(encoder, limbs - 1)?);
        let pack = |rows: &[Vec<f64>]| {
            let mut values = vec![Complex64::ZERO; slots];
            for (block, row) in values.chunks_exact_mut(columns).zip(rows) {
                for (slot, &entry) in block.iter_mut().zip(row) {
                    *slot = entry.into();
                }
            }
            encoder.encode(&values, limbs, first)
        };
        let mut mask = vec![Complex64::ZERO; columns];
        mask[0] = 1.0.into();
        Ok(Self {
            rows: rows.chunks(side).map(pack).collect::<Result<_, _>>()?,
            mask: encoder.encode_periodic(&mask, limbs - 1, second)?,
            columns,
            side,
        })
    }

    /// Rotations that need a key: powers of two below the number of columns, and one step back.
    pub fn rotations(&self) -> Vec<i64> {
        let sums = (0..self.columns.trailing_zeros()).map(|k| 1 << k);
        sums.chain((self.rows.len() > 1).then_some(-1)).collect()
    }

    /// The slot of entry `row` of the product.
    pub fn slot(&self, row: usize) -> usize {
        (row % self.side) * self.columns + row / self.side
    }

    /// Bytes of the encoded rows and the mask.
    pub fn plaintext_bytes(&self) -> usize {
        let limbs = self.rows.iter().chain([&self.mask]).map(Plaintext::limbs);
        // A polynomial has twice as many coefficients as slots.
        let n = 2 * self.side * self.columns;
        limbs.sum::<usize>() * n * size_of::<u64>()
    }

    /// The product, with its entries at [`PackedRows::slot`] and two primes less.
    ///
    /// # Errors
    /// Those of [`Evaluator::rotate`] and [`Evaluator::mul_plain`].
    pub fn apply(&self, evaluator: &Evaluator, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        let mut sum: Option<Ciphertext> = None;
        // Last rows first: each later step moves the sum by one.
        for plain in self.rows.iter().rev() {
            let product = evaluator.mul_plain(ct, plain)?;
            let mut row = evaluator.rescale(&product)?;
            for k in 0..self.columns.trailing_zeros() {
                let turned = evaluator.rotate(&row, 1 << k)?;
                evaluator.add_assign(&mut row, &turned)?;
            }
            let mut masked = evaluator.mul_plain(&row, &self.mask)?;
            if let Some(sum) = sum {
                evaluator.add_assign(&mut masked, &evaluator.rotate(&sum, -1)?)?;
            }
            sum = Some(masked);
        }
        finish(evaluator, sum)
    }
}

/// sum ← sum + x·plain.
fn add_product(
    evaluator: &Evaluator,
    sum: &mut Option<Ciphertext>,
    x: &Ciphertext,
    plain: &Plaintext,
) -> Result<(), CkksError> {
    match sum {
        Some(sum) => evaluator.mul_plain_add_assign(sum, x, plain),
        None => {
            *sum = Some(evaluator.mul_plain(x, plain)?);
            Ok(())
        }
    }
}

fn finish(evaluator: &Evaluator, sum: Option<Ciphertext>) -> Result<Ciphertext, CkksError> {
    evaluator.rescale(&sum.ok_or(LinTransError::Empty)?)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::Bench;
    use hushed_ckks::CkksParams;
    use hushed_ckks::keys::KeySpecs;
    use hushed_ckks::lintrans::{LinearTransform, Method, Options};
    use hushed_math::rng::SecretRng;

    const DIM: usize = 16;

    fn random(rng: &mut SecretRng) -> Vec<f64> {
        let mut uniform = || (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
        (0..DIM).map(|_| uniform()).collect()
    }

    /// A dense 16 × 16 matrix, its product with a vector, and keys for `rotations` at four primes.
    fn setting(rotations: &[i64]) -> (Bench, Vec<Vec<f64>>, Diagonals, Vec<Complex64>) {
        let params = CkksParams::insecure_shallow(9, 4).unwrap();
        let specs = params.key_specs(4, false, rotations, false).unwrap();
        let f = Bench::seeded(&params, &specs, 8);
        let mut rng = SecretRng::insecure_from_seed(9);
        let rows: Vec<Vec<f64>> = (0..DIM).map(|_| random(&mut rng)).collect();
        let complex: Vec<Vec<Complex64>> = rows.iter().map(|row| row.iter().map(|&x| x.into()).collect()).collect();
        let matrix = Diagonals::from_rows(DIM, &complex).unwrap();
        let x: Vec<Complex64> = random(&mut rng).into_iter().map(Complex64::from).collect();
        (f, rows, matrix, x)
    }

    fn encrypt(f: &mut Bench, x: &[Complex64]) -> Ciphertext {
        let plain = f.encoder.encode_periodic(x, 4, f.params.default_scale());
        f.encryptor.encrypt(&plain.unwrap(), &mut f.rng).unwrap()
    }

    fn near(found: &[Complex64], expected: &[Complex64]) {
        for (found, expected) in found.iter().zip(expected) {
            assert!((found - expected).norm() < 1e-5, "{found} {expected}");
        }
    }

    #[test]
    fn methods_agree_and_rotate_as_often_as_they_say() {
        let all: Vec<i64> = (-1..DIM as i64).filter(|&k| k != 0).collect();
        let (mut f, rows, matrix, x) = setting(&all);
        let expected = matrix.apply(&x).unwrap();
        let ct = encrypt(&mut f, &x);
        let encoder = f.encoder.clone();

        let method = SingleHoisted::new(&encoder, &matrix, 4, 4).unwrap();
        f.evaluator.counters().reset();
        let out = method.apply(&f.evaluator, &ct).unwrap();
        let counts = f.evaluator.counters().snapshot();
        assert_eq!((counts.rotation, counts.mod_up), (6, 4));
        assert_eq!((counts.mod_down, counts.pt_mul), (12, 16));
        assert_eq!(method.rotations().len(), 6);
        near(&f.decryptor.decrypt_raw(&out).unwrap()[..DIM], &expected);

        // 256 slots: sixteen rows of sixteen columns in one plaintext.
        let method = PackedRows::new(&encoder, &rows, 4).unwrap();
        f.evaluator.counters().reset();
        let out = method.apply(&f.evaluator, &ct).unwrap();
        let counts = f.evaluator.counters().snapshot();
        assert_eq!((counts.rotation, counts.pt_mul, counts.rescale), (4, 2, 2));
        assert_eq!(out.limbs(), 2);
        let found = f.decryptor.decrypt_raw(&out).unwrap();
        let found: Vec<_> = (0..DIM).map(|row| found[method.slot(row)]).collect();
        near(&found, &expected);

        // Three times as many rows: three plaintexts, combined by rotations by −1.
        let tall: Vec<_> = rows.iter().cycle().take(3 * DIM).cloned().collect();
        let method = PackedRows::new(&encoder, &tall, 4).unwrap();
        f.evaluator.counters().reset();
        let out = method.apply(&f.evaluator, &ct).unwrap();
        assert_eq!(f.evaluator.counters().snapshot().rotation, 3 * 5 - 1);
        let found = f.decryptor.decrypt_raw(&out).unwrap();
        let found: Vec<_> = (0..3 * DIM).map(|row| found[method.slot(row)]).collect();
        for found in found.chunks(DIM) {
            near(found, &expected);
        }
    }

    #[test]
    fn double_hoisting_rotates_as_often_and_decomposes_and_divides_less() {
        let (mut f, _, matrix, x) = setting(&[]);
        let options = Options { method: Method::Width(4), ..Options::default() };
        let map = LinearTransform::new(&f.params, &matrix, 4, options).unwrap();
        let mut specs = KeySpecs::new();
        map.add_keys(&mut specs);
        f = Bench::seeded(&f.params, &specs, 8);
        let ct = encrypt(&mut f, &x);
        let out = map.apply(&f.evaluator, &ct).unwrap();
        let counts = f.evaluator.counters().snapshot();
        assert_eq!((counts.rotation, counts.mod_up), (6, 4));
        // Two polynomials at the end, and one per giant step.
        assert_eq!(counts.mod_down, 5);
        let found = f.decryptor.decrypt_raw(&out).unwrap();
        near(&found[..DIM], &matrix.apply(&x).unwrap());
    }

    #[test]
    fn shapes_that_do_not_fit_are_refused() {
        let (f, rows, matrix, _) = setting(&[1]);
        let mut ragged = rows.clone();
        ragged[3].pop();
        for bad in [&ragged[..], &[]] {
            assert!(PackedRows::new(&f.encoder, bad, 4).is_err());
        }
        assert!(PackedRows::new(&f.encoder, &rows, 2).is_err());
        assert!(SingleHoisted::new(&f.encoder, &matrix, 9, 4).is_err());
    }
}
