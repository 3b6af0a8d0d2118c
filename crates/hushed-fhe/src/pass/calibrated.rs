//! What a calibration gives a pass, and the errors where it does not.

use hushed_model::{ModelError, Norm, StepId, here, same};

use crate::choices::ChoicesError;
use crate::error::FheError;

pub(super) fn no_layer(layers: usize, asked: usize) -> FheError {
    ModelError::NoSuchLayer { asked, layers }.into()
}

/// (row − offset)/(gain·bound): the constant row in the units of a norm's columns.
pub(super) fn frozen(at: StepId, row: &[f64], n: &Norm, bound: f64) -> Result<Vec<f64>, FheError> {
    same(at, "columns of the constant row", row.len(), n.width)?;
    let (gain, offset) = (here(at, &n.gain)?, here(at, &n.offset)?);
    let numbers = row.iter().zip(gain.iter()).zip(offset.iter());
    let inside = |((x, &g), &o): ((&f64, &f32), &f32)| {
        // A column with gain 0 equals its offset, whatever the vector holds.
        let v = (x - f64::from(o)) / (f64::from(g) * bound);
        if v.is_finite() { v } else { 0.0 }
    };
    let row: Vec<f64> = numbers.map(inside).collect();
    match row.iter().find(|v| v.abs() > 1.0) {
        Some(v) => Err(ChoicesError::Unusable {
            what: format!("at {at}, the frozen row reaches {v:.3} times its norm's bound"),
        }
        .into()),
        None => Ok(row),
    }
}

pub(super) fn absent(at: StepId) -> FheError {
    let what = format!("the calibration has nothing for {at}: it was made for another model");
    ChoicesError::Unusable { what }.into()
}
