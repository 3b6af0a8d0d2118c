//! The answer of a decoder that is read at all rows: normalised hidden states, two columns per vector.

use hushed_ckks::Complex64;
use hushed_model::StepId;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::{above, divisor, scale_of};
use crate::ops::pool::{Factor, Pooled};
use crate::packing::{Interleave, PackingError};
use crate::slots::Slots;

/// The columns with their gains multiplied in, columns 2j and 2j + 1 as the parts of vector j, one level below. Padding
/// rows are zeros.
///
/// # Errors
/// Too few levels.
pub fn rows<S: Slots>(on: &S, at: StepId, x: &Acts<S::Value>) -> Result<Pooled<S::Value>, FheError> {
    on.at(at);
    let limbs = above(on, on.floor())?;
    let wide = scale_of(on.default_scale().value() * divisor(on, limbs)?)?;
    let one = |(v, gain): (&S::Value, &f64)| {
        let v = on.drop_to(v, limbs)?;
        let mut sum = on.sum(limbs, wide)?;
        on.add_multiple(&mut sum, &v, *gain)?;
        on.finish(sum)
    };
    let both = |(columns, gains): (&[S::Value], &[f64])| {
        let mut parts = columns.iter().zip(gains).map(one);
        let first = parts.next().ok_or(PackingError::Mismatch)??;
        match parts.next() {
            Some(second) => on.pair(first, second?),
            None => Ok(first),
        }
    };
    let pairs = x.columns.par_chunks(2).zip(x.gain.par_chunks(2));
    Ok(Pooled { vectors: pairs.map(both).collect::<Result<_, FheError>>()?, width: x.width(), factor: Factor::One })
}

/// Reads the rows of each text, concatenated, from decrypted vectors. Texts end in row m − 1.
///
/// # Errors
/// [`PackingError`] for a wrong number of vectors or slots, too many texts, or a text of more than m rows.
pub fn unpack(
    layout: Interleave,
    lengths: &[usize],
    width: usize,
    vectors: &[Vec<Complex64>],
) -> Result<Vec<Vec<f64>>, PackingError> {
    let (m, texts) = (layout.rows(), layout.texts());
    let whole = vectors.iter().all(|v| v.len() == layout.slots());
    if !whole || vectors.len() != width.div_ceil(2) || lengths.iter().any(|&length| length > m) {
        return Err(PackingError::Mismatch);
    }
    if lengths.len() > texts {
        return Err(PackingError::TooMany { texts: lengths.len(), room: texts, slots: layout.slots(), rows: m });
    }
    let text = |(t, &length): (usize, &usize)| {
        let row = |row: usize| {
            let slot = layout.slot(t, row);
            (0..width).map(move |j| {
                let pair = vectors[j / 2][slot];
                if j % 2 == 0 { pair.re } else { pair.im }
            })
        };
        (m - length..m).flat_map(row).collect()
    };
    Ok(lengths.iter().enumerate().map(text).collect())
}
