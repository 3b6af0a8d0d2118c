//! Answers in packed rows: that of a text of an encoder is in its first row, a pair of numbers per place, and
//! everything else is 0 before noise is added; that of a decoder is in its last row, or in all rows.

use std::ops::Range;

use hushed_ckks::Complex64;

use crate::packing::{Layout, PackingError, Spread};
use crate::plan::public_plan::AnswerRows;

/// The two vectors that a client encrypts, as the parts of one, if lengths are private: 1 in all places of token rows,
/// and, in all places of a text, 1 over the number of its token rows.
#[must_use]
pub fn hidden_rows(layout: Layout, lengths: &[usize]) -> [Vec<f64>; 2] {
    let mut both = [vec![0.0; layout.slots()], vec![0.0; layout.slots()]];
    for (text, &length) in lengths.iter().enumerate().take(layout.texts()) {
        for row in 0..layout.rows() {
            let token = f64::from(u8::from(row < length));
            let first = layout.slot(text, row, 0);
            for (slots, number) in both.iter_mut().zip([token, 1.0 / length.max(1) as f64]) {
                slots[first..first + layout.columns()].fill(number);
            }
        }
    }
    both
}

/// Reads the given rows of each text, concatenated, from decrypted vectors, as the client does: the first row of pooled
/// texts, [`ends`] of a decoder's texts.
///
/// # Errors
/// [`PackingError`] for a wrong number of vectors or slots, too many texts, or rows that do not exist.
pub fn unpack(
    layout: Layout,
    columns: &Spread,
    texts: &[Range<usize>],
    vectors: &[Vec<Complex64>],
) -> Result<Vec<Vec<f64>>, PackingError> {
    let whole = vectors.iter().all(|v| v.len() == layout.slots());
    let inside = texts.iter().all(|rows| rows.end <= layout.rows());
    if !whole || !inside || vectors.len() != columns.vectors() || texts.len() > layout.texts() {
        return Err(PackingError::Mismatch);
    }
    let number = |text: usize, row: usize, column: usize| {
        let (vector, place, part) = columns.place(column);
        let z = vectors[vector][layout.slot(text, row, place)];
        if part == 0 { z.re } else { z.im }
    };
    let of = |(text, rows): (usize, &Range<usize>)| {
        let row = |row| (0..columns.width()).map(move |c| number(text, row, c));
        rows.clone().flat_map(row).collect()
    };
    Ok(texts.iter().enumerate().map(of).collect())
}

/// The rows at which a decoder's texts of these lengths are read.
#[must_use]
pub fn ends(layout: Layout, lengths: &[usize], answer: AnswerRows) -> Vec<Range<usize>> {
    let rows = layout.rows();
    let of = |&length: &usize| match answer {
        AnswerRows::Last | AnswerRows::Logits => rows - 1..rows,
        AnswerRows::Rows => rows - length.min(rows)..rows,
    };
    lengths.iter().map(of).collect()
}
