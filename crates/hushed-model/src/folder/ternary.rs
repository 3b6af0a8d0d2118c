//! Ternary layers of BitNet b1.58 (Ma et al. 2024): weights −s, 0 and s, with one scale s per layer.
//!
//! Stored as by `save_pretrained` of `transformers`: four weights per byte in `weight` (uint8, ⌈outputs/4⌉ × inputs),
//! with weight + 1 of row i + b·⌈outputs/4⌉ in bits 2b and 2b + 1 of row i, and one number in `weight_scale`. Or as
//! floats, with or without a `weight_scale`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use safetensors::Dtype;

use super::weights::{ReadAt, Weights};
use crate::arch::config::WeightScale;
use crate::error::Problem;

/// Weights per byte.
const PACKED: usize = 4;

impl<R: ReadAt> Weights<R> {
    /// The weights of a ternary layer, `outputs × inputs`, with the scale multiplied in.
    pub(crate) fn ternary(&self, layer: &str, shape: [usize; 2], scale: WeightScale) -> Result<Vec<f32>, Problem> {
        let [outputs, inputs] = shape;
        let name = format!("{layer}.weight");
        let packed = self.dtype(&name) == Some(Dtype::U8);
        let signs = match packed {
            true => {
                let stored = self.read_bytes(&name, &[outputs.div_ceil(PACKED), inputs])?;
                unpack(&stored, shape)
            }
            false => {
                let stored = self.read(&name, &shape)?;
                signs(&stored)
            }
        };
        let (signs, size) = signs.ok_or(Problem::NotTernary { name })?;
        let name = format!("{layer}.weight_scale");
        let factor = match self.dtype(&name) {
            None if !packed => 1.0,
            _ => self.scale(name.clone(), scale)?,
        };
        let s = size * factor;
        // Both are finite and the factor is above 0, but the product may overflow, or underflow to 0 for all weights.
        if !s.is_finite() || (s == 0.0 && size > 0.0) {
            return Err(Problem::TernaryScale { name, value: s });
        }
        Ok(signs.into_iter().map(|sign| s * f32::from(sign)).collect())
    }

    /// s itself, however it is stored.
    fn scale(&self, name: String, scale: WeightScale) -> Result<f32, Problem> {
        let stored = self.read(&name, &[1])?;
        let value = stored.first().copied().unwrap_or(0.0);
        let s = match scale {
            WeightScale::Factor => value,
            WeightScale::Divisor => 1.0 / value,
        };
        match s.is_finite() && s > 0.0 {
            true => Ok(s),
            false => Err(Problem::TernaryScale { name, value }),
        }
    }
}

/// The signs of packed weights, with size 1; `None` if a code is not one of the three.
fn unpack(packed: &[u8], [outputs, inputs]: [usize; 2]) -> Option<(Vec<i8>, f32)> {
    let codes = (0..PACKED).flat_map(|b| packed.iter().map(move |byte| byte >> (2 * b) & 3));
    let sign = |code: u8| (code < 3).then_some(code as i8 - 1);
    let signs: Option<Vec<i8>> = codes.take(outputs * inputs).map(sign).collect();
    Some((signs?, 1.0))
}

/// The signs of float weights and their size; `None` if there are two sizes other than 0.
fn signs(weights: &[f32]) -> Option<(Vec<i8>, f32)> {
    let size = weights.iter().fold(0.0_f32, |size, w| size.max(w.abs()));
    let sign = |&w: &f32| match w {
        0.0 => Some(0),
        w if w == size => Some(1),
        w if w == -size => Some(-1),
        _ => None,
    };
    Some((weights.iter().map(sign).collect::<Option<_>>()?, size))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The bytes of the example in the documentation of `unpack_weights` in `transformers`.
    #[test]
    fn packed_as_the_library_packs() {
        let (found, size) = unpack(&[0b1010_0001, 0b0001_1000], [8, 1]).unwrap();
        // Two rows per field: byte 0 holds rows 0, 2, 4, 6.
        assert_eq!(found, [0, -1, -1, 1, 1, 0, 1, -1]);
        assert_eq!(size, 1.0);
        assert!(unpack(&[0b1110_0001, 0b0001_1000], [8, 1]).is_none());
        // The rows do not fill the last field.
        assert_eq!(unpack(&[0b0010_0100], [3, 1]).unwrap().0, [-1, 0, 1]);
    }

    #[test]
    fn floats_have_one_size() {
        let (found, size) = signs(&[0.25, -0.25, 0.0, 0.25]).unwrap();
        assert_eq!((&found[..], size), (&[1, -1, 0, 1][..], 0.25));
        assert!(signs(&[0.25, -0.5]).is_none());
        assert_eq!(signs(&[0.0, 0.0]).unwrap().1, 0.0);
    }
}
