//! The answer of a decoder that is read at all rows: normalised hidden states, two columns per vector.

use hushed_ckks::Complex64;

use crate::packing::{Interleave, PackingError};

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
