//! The bound on a client's columns, from public numbers alone.

use hushed_model::{Embedding, ModelError, Norm, Patches, Program, StepId, here};
use rayon::prelude::*;

/// Margin above the largest number that a client can send.
const MARGIN: f64 = 1.0 + 1e-6;

/// Bound on the numbers of an image, after its normalisation: with the usual means and deviations they are within 2.7.
const PIXELS: f64 = 4.0;

/// [`input_bound`] of a program.
///
/// # Errors
/// [`ModelError::ShapesOnly`] if the model has no numbers.
pub fn bound_of_inputs(program: &Program, rows: usize) -> Result<f64, ModelError> {
    if let Some(patches) = program.patches() {
        return bound_of_patches(patches);
    }
    let table = program.embedding();
    let table = *here(StepId::outside("embed"), &table)?;
    input_bound(table, program.embedding_norm(), rows)
}

/// Bounds every number of the rows of an image: public numbers, and those of an image within [`PIXELS`].
///
/// # Errors
/// [`ModelError::ShapesOnly`] if the model has no numbers.
fn bound_of_patches(p: &Patches) -> Result<f64, ModelError> {
    let at = StepId::outside("patches");
    let (weights, bias) = (here(at, &p.linear.weights)?, here(at, &p.linear.bias)?);
    let (class, offsets) = (here(at, &p.class)?, here(at, &p.offsets)?);
    let greatest = |column: usize| {
        let place = |row: usize| f64::from(offsets.row(row)[column]);
        let most = weights.row(column).iter().map(|w| f64::from(w.abs())).sum::<f64>() * PIXELS;
        let patch = |row: usize| (place(row) + f64::from(bias[column])).abs() + most;
        (1..offsets.rows()).map(patch).fold((place(0) + f64::from(class[column])).abs(), f64::max)
    };
    Ok((0..p.linear.outputs).map(greatest).fold(1e-3, f64::max) * MARGIN)
}

/// Bounds every number that a client sends by the largest entry of all token vectors at all positions, after the first
/// norm. All three are public. Where layers begin with norms of their own, token vectors are sent as they are.
///
/// # Errors
/// [`ModelError::ShapesOnly`] if the model has no numbers.
pub fn input_bound(e: &Embedding, norm: Option<&Norm>, rows: usize) -> Result<f64, ModelError> {
    let at = StepId::outside("embed");
    let tokens = here(at, &e.tokens)?;
    let Some(norm) = norm else {
        let largest = tokens.data().iter().fold(0.0_f32, |m, v| m.max(v.abs()));
        return Ok(f64::from(largest).max(1e-3) * MARGIN);
    };
    let offsets = here(at, &e.offsets)?;
    let (gain, offset) = (here(at, &norm.gain)?, here(at, &norm.offset)?);
    let positions = offsets.rows().min(rows);
    let width = e.width as f64;
    let greatest = |token: usize| {
        let vector = tokens.row(token);
        let mut x = vec![0.0; e.width];
        (0..positions).fold(0.0_f64, |most, position| {
            let pairs = vector.iter().zip(offsets.row(position));
            for (x, (&t, &p)) in x.iter_mut().zip(pairs) {
                *x = f64::from(t) + f64::from(p);
            }
            let mean = x.iter().sum::<f64>() / width;
            let variance = x.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width;
            let root = (variance + norm.epsilon).sqrt();
            let affine = x.iter().zip(gain.iter()).zip(offset.iter());
            affine.fold(most, |most, ((v, &g), &o)| most.max((f64::from(g) * (v - mean) / root + f64::from(o)).abs()))
        })
    };
    let most = (0..tokens.rows()).into_par_iter().map(greatest);
    Ok(most.reduce(|| 0.0, f64::max).max(1e-3) * MARGIN)
}
