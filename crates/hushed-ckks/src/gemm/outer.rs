//! Baseline: the product of two encrypted matrices by outer products (Orion kernels paper, §IV, figure 4).
//!
//! d × d matrices, d a power of two with d² ≤ n slots, are stored row by row in the first d² slots, followed by zeros.
//! Then AB = Σ_j A_j ⊗ B_j over the columns A_j of A and the rows B_j of B, where
//!
//! 1. a mask keeps column j of A (row j of B) and zeroes the rest: one plaintext product;
//! 2. a rotation moves it to column (row) 0;
//! 3. rotations by 1, 2, 4, … (by d, 2d, 4d, …) the other way, with sums, replicate it over the matrix;
//! 4. one ciphertext product is added to the result.
//!
//! Costs two levels, 2d plaintext products, d ciphertext products and 2d·(1 + log2 d) − 2 rotations.

use num_complex::Complex64;

use super::error::GemmError;
use crate::ciphertext::Ciphertext;
use crate::encoding::Encoder;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::scale::Scale;

/// The rotations that need keys for products of d × d matrices: 1 … d − 1 and multiples of d to move to the front, and
/// the negatives of powers of two below d and d² to replicate.
pub fn rotations(d: usize) -> Vec<i64> {
    let d = d as i64;
    let front = (1..d).chain((1..d).map(|j| j * d));
    let powers = (0..).map(|t| 1 << t).take_while(|&power| power < d);
    let replicate = powers.flat_map(|power: i64| [-power, -power * d]);
    front.chain(replicate).collect()
}

/// The product of the d × d matrices in `a` and `b`, rescaled: two levels below the lower of them.
///
/// # Errors
/// [`GemmError::Shape`] unless d is a power of two above 1 and d² fits the slots; [`GemmError::Ckks`] for fewer than
/// two levels, or if a key of [`rotations`] or for relinearisation is missing.
pub fn multiply(
    evaluator: &Evaluator,
    encoder: &Encoder,
    a: &Ciphertext,
    b: &Ciphertext,
    d: usize,
) -> Result<Ciphertext, GemmError> {
    let slots = evaluator.params().slots();
    if d < 2 || !d.is_power_of_two() || d.checked_mul(d).is_none_or(|all| all > slots) {
        return Err(GemmError::Shape {
            rows: d,
            columns: d,
            found: slots,
        });
    }
    let limbs = a.limbs().min(b.limbs());
    if limbs < 3 {
        return Err(GemmError::Ckks(CkksError::LevelTooLow {
            operation: "outer product",
            limbs,
            needed: 3,
        }));
    }
    let a = evaluator.drop_to(a, limbs)?;
    let b = evaluator.drop_to(b, limbs)?;
    let mut sum: Option<Ciphertext> = None;
    for j in 0..d {
        let column = extract(evaluator, encoder, &a, d, |slot| slot % d == j, j)?;
        let column = replicate(evaluator, column, d, 1)?;
        let row = extract(evaluator, encoder, &b, d, |slot| slot / d == j, j * d)?;
        let row = replicate(evaluator, row, d, d)?;
        let product = evaluator.mul(&column, &row)?;
        match &mut sum {
            None => sum = Some(product),
            Some(sum) => evaluator.add_assign(sum, &product)?,
        }
    }
    match sum {
        Some(sum) => Ok(evaluator.rescale(&sum)?),
        None => unreachable!("d is above 1"),
    }
}

/// The slots of `ct` selected by `keep`, rotated by `steps` to the front. The mask has the scale of the prime that the
/// rescale drops, so the scale is preserved.
fn extract(
    evaluator: &Evaluator,
    encoder: &Encoder,
    ct: &Ciphertext,
    d: usize,
    keep: impl Fn(usize) -> bool,
    steps: usize,
) -> Result<Ciphertext, CkksError> {
    let scale = Scale::ONE.times_prime(evaluator.params().prime(ct.limbs() - 1));
    let mask: Vec<Complex64> = (0..d * d)
        .map(|slot| if keep(slot) { 1.0 } else { 0.0 }.into())
        .collect();
    let mask = encoder.encode(&mask, ct.limbs(), scale)?;
    let masked = evaluator.rescale(&evaluator.mul_plain(ct, &mask)?)?;
    if steps == 0 {
        return Ok(masked);
    }
    evaluator.rotate(&masked, steps as i64)
}

/// Copies the first line to all d lines, which are `step` slots apart.
fn replicate(
    evaluator: &Evaluator,
    mut ct: Ciphertext,
    d: usize,
    step: usize,
) -> Result<Ciphertext, CkksError> {
    let mut copies = 1;
    while copies < d {
        let moved = evaluator.rotate(&ct, -((copies * step) as i64))?;
        evaluator.add_assign(&mut ct, &moved)?;
        copies *= 2;
    }
    Ok(ct)
}
