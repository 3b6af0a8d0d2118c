//! The loop of MOAI's Algorithm 2: one scalar product and one sum per weight.
//!
//! Each term streams three ciphertexts through memory: the product reads an input and writes a term, the sum reads both
//! and writes the output. [`hushed_ckks::gemm::ModularGemm`] computes the same residues if weights are rounded to whole
//! digits of the same scale.

use std::ops::Range;

use hushed_ckks::gemm::GemmError;
use hushed_ckks::{Ciphertext, Complex64, Evaluator, Scale};

/// Σ_i `w[o][i]`·ct_i + bias_o for the rows o in `rows` of a matrix with `columns` columns, with weights at `scale` and
/// without rescaling.
///
/// # Errors
/// [`GemmError::Shape`], [`GemmError::Block`], [`GemmError::Count`]; [`GemmError::Ckks`] if the evaluator refuses.
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
        return Err(GemmError::Shape { rows: available, columns, found: weights.len() });
    }
    let Some(matrix) = weights.get(rows.start * columns..rows.end * columns) else {
        return Err(GemmError::Block { start: rows.start, end: rows.end, available });
    };
    if inputs.len() != columns {
        return Err(GemmError::Count { what: "inputs", expected: columns, found: inputs.len() });
    }
    let biases = bias.unwrap_or_default();
    if bias.is_some() && biases.len() != available {
        return Err(GemmError::Count { what: "biases", expected: available, found: biases.len() });
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ckks::Bench;
    use hushed_ckks::CkksParams;
    use hushed_ckks::gemm::{GemmWeights, ModularGemm};
    use hushed_ckks::keys::KeySpecs;

    const ROWS: usize = 12;
    const COLUMNS: usize = 40;

    #[test]
    fn modular_products_are_those_of_the_loop() {
        let params = CkksParams::insecure_test(9, 2).unwrap();
        let mut f = Bench::seeded(&params, &KeySpecs::new(), 11);
        let inputs: Vec<_> = (0..COLUMNS)
            .map(|_| {
                let x = f.random();
                f.encrypt(&x, 3).unwrap()
            })
            .collect();
        let values = f.random();
        let weights: Vec<f64> = values.iter().flat_map(|z| [z.re, z.im]).collect();
        let weights = &weights[..ROWS * COLUMNS];
        let bias: Vec<f64> = f.random().iter().take(ROWS).map(|z| z.re).collect();
        let bias = Some(&bias[..]);
        let gemm = ModularGemm::new(&params);
        let scale = gemm.weight_scale(3);
        let digits = GemmWeights::from_f64(weights, ROWS, COLUMNS, 1.0, scale).unwrap();
        let fast = gemm.multiply_all(&digits, &inputs, bias).unwrap();
        let slow = multiply(&f.evaluator, weights, COLUMNS, scale, &inputs, 0..ROWS, bias).unwrap();
        assert_eq!(slow.len(), ROWS);
        for (fast, slow) in fast.iter().zip(&slow) {
            // The same integers, so the same residues.
            assert!(fast.b() == slow.b() && fast.a() == slow.a());
            assert_eq!(fast.scale(), slow.scale());
        }
        let counts = f.evaluator.counters().snapshot();
        assert_eq!(counts.scalar_mul, gemm.counters().snapshot().scalar_mul);
    }
}
