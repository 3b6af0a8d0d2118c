//! The answer of a decoder: the last row of every text, normalised, packed as pooled rows are.

use hushed_model::StepId;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::ops::pool::{Factor, Pooled, packed};
use crate::packing::Interleave;
use crate::slots::Slots;

/// Row m − 1 of each text, its gains multiplied in: column j in row j mod m of vector j/m, zeros in all else, one level
/// below. m rotations a vector, all by one row. Zeros where there is no text.
///
/// # Errors
/// Too few levels, no key for the rotation.
pub fn last<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    layout: Interleave,
) -> Result<Pooled<S::Value>, FheError> {
    on.at(at);
    let (m, texts) = (layout.rows(), layout.texts());
    let limbs = above(on, on.floor())?;
    let one = |(v, gain): (&S::Value, &f64)| {
        let kept = on.plain(|| {
            let mut kept = vec![0.0; layout.slots()];
            kept[(m - 1) * texts..].fill(*gain);
            kept
        });
        on.mul_vector(&on.drop_to(v, limbs)?, &kept, on.default_scale())
    };
    let mut vectors = Vec::with_capacity(x.width().div_ceil(m));
    for (columns, gains) in x.columns.chunks(m).zip(x.gain.chunks(m)) {
        let rows = columns.par_iter().zip(gains).map(one);
        // Packed from row 0 it would be one row further.
        let above = packed(on, layout, rows.collect::<Result<_, FheError>>()?)?;
        let by = layout.rotation(m - 1);
        vectors.push(match by {
            0 => above,
            by => on.rotate(&above, by)?,
        });
    }
    Ok(Pooled {
        vectors,
        width: x.width(),
        factor: Factor::One,
    })
}
