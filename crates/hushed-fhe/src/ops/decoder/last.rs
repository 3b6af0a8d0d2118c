//! The answer of a decoder: the normalised last row of every text, or its logits, packed like pooled rows.

use hushed_model::{Linear, StepId};
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::above;
use crate::ops::pool::{Factor, Pooled, packed};
use crate::packing::Interleave;
use crate::slots::Slots;

/// Row m − 1 of each text, with its gains multiplied in: column j in row j mod m of vector j/m, zeros elsewhere, one
/// level below. m rotations per vector, all by one row. Zeros where there is no text.
///
/// # Errors
/// Too few levels, a missing rotation key.
pub fn last<S: Slots>(
    on: &S,
    at: StepId,
    x: &Acts<S::Value>,
    layout: Interleave,
) -> Result<Pooled<S::Value>, FheError> {
    on.at(at);
    let blocks = x.columns.chunks(layout.rows());
    let blocks = blocks.zip(x.gain.chunks(layout.rows()));
    let vectors = blocks.map(|(columns, gains)| gathered(on, layout, columns, gains));
    Ok(Pooled { vectors: vectors.collect::<Result<_, FheError>>()?, width: x.width(), factor: Factor::One })
}

/// The logits of row m − 1 of each text, by the head, which has no bias, packed as [`last`] packs columns: ⌈tokens/m⌉
/// vectors, two levels below. m logits are in memory at a time.
///
/// # Errors
/// As [`last`]; columns that do not fit the head.
pub fn logits<S: Slots>(
    on: &S,
    (at, head): (StepId, &Linear),
    x: &Acts<S::Value>,
    layout: Interleave,
) -> Result<Pooled<S::Value>, FheError> {
    on.at(at);
    let map = on.map(at, || {
        let mut map = x.folded(on, at, head)?;
        map.bias = None;
        Ok(map)
    })?;
    let limbs = above(on, above(on, on.floor())?)?;
    let m = layout.rows();
    let block = |first: usize| {
        let rows = map.rows(first..head.outputs.min(first + m)).bounded();
        let logits = on.linear_at(&rows, &x.columns, (limbs, on.default_scale()))?;
        let gains = vec![1.0; logits.len()];
        gathered(on, layout, &logits, &gains)
    };
    let blocks = (0..head.outputs).step_by(m).map(block);
    Ok(Pooled { vectors: blocks.collect::<Result<_, FheError>>()?, width: head.outputs, factor: Factor::One })
}

/// Row m − 1 of each of at most m columns, times its gain: that of column j in row j.
fn gathered<S: Slots>(on: &S, layout: Interleave, columns: &[S::Value], gains: &[f64]) -> Result<S::Value, FheError> {
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
    let rows = columns.par_iter().zip(gains).map(one);
    // `packed` expects row 0; from row m − 1, every column lands one row too early.
    let above = packed(on, layout, rows.collect::<Result<_, FheError>>()?)?;
    match layout.rotation(m - 1) {
        0 => Ok(above),
        by => on.rotate(&above, by),
    }
}
