//! Baseline: the loop of MOAI's Algorithm 2, one scalar product and one sum a weight.
//!
//! Each term streams three ciphertexts through memory: the product reads an input and writes a term, the sum reads both and
//! writes the output. [`super::ModularGemm`] computes the same residues when weights are rounded to whole digits of the same
//! scale; for tests and tables only.

use std::ops::Range;

use num_complex::Complex64;

use super::error::GemmError;
use crate::ciphertext::Ciphertext;
use crate::evaluator::Evaluator;
use crate::scale::Scale;

/// Σ_i `w[o][i]`·ct_i + bias_o for the rows o in `rows` of a matrix of `columns` columns, weights at `scale`, not rescaled.
///
/// # Errors
/// [`GemmError::Shape`], [`GemmError::Block`], [`GemmError::Count`]; [`GemmError::Ckks`] as the evaluator refuses.
pub fn multiply(
    evaluator: &Evaluator,
    weights: &[f64],
    columns: usize,
    scale: Scale,
    inputs: &[Ciphertext],
    rows: Range<usize>,
    bias: Option<&[f64]>,
) -> Result<Vec<Ciphertext>, GemmError> {
    let available = weights.len() / columns.max(1);
    if columns == 0 || available * columns != weights.len() {
        return Err(GemmError::Shape {
            rows: available,
            columns,
            found: weights.len(),
        });
    }
    let Some(matrix) = weights.get(rows.start * columns..rows.end * columns) else {
        return Err(GemmError::Block {
            start: rows.start,
            end: rows.end,
            available,
        });
    };
    if inputs.len() != columns {
        return Err(GemmError::Count {
            what: "inputs",
            expected: columns,
            found: inputs.len(),
        });
    }
    let biases = bias.unwrap_or_default();
    if bias.is_some() && biases.len() != available {
        return Err(GemmError::Count {
            what: "biases",
            expected: available,
            found: biases.len(),
        });
    }
    let mut outputs = Vec::with_capacity(rows.len());
    for (o, row) in rows.zip(matrix.chunks_exact(columns)) {
        let mut sum: Option<Ciphertext> = None;
        for (&w, ct) in row.iter().zip(inputs) {
            let term = evaluator.mul_scalar(ct, Complex64::new(w, 0.0), scale)?;
            match &mut sum {
                None => sum = Some(term),
                Some(sum) => evaluator.add_assign(sum, &term)?,
            }
        }
        if let Some(mut sum) = sum {
            if let Some(&b) = biases.get(o) {
                evaluator.add_scalar_assign(&mut sum, Complex64::new(b, 0.0))?;
            }
            outputs.push(sum);
        }
    }
    Ok(outputs)
}
