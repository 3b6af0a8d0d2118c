//! Interleaved batching (MOAI, §5, equation 2): entry t of text r lies in slot t·B + r, B = slots / rows.
//!
//! A rotation by j·B then rotates every text's vector by j (lemma 5.1). With texts one after another that would take a
//! second rotation and two masks.

use super::PackingError;

/// How many rows a text has, and how many texts share a vector of slots.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Interleave {
    slots: usize,
    rows: usize,
}

impl Interleave {
    /// `rows` rows per text in `slots` slots.
    ///
    /// # Errors
    /// [`PackingError::Rows`] unless both are powers of two and `rows` ≤ `slots`.
    pub fn new(slots: usize, rows: usize) -> Result<Interleave, PackingError> {
        if slots.is_power_of_two() && rows.is_power_of_two() && rows <= slots {
            Ok(Interleave { slots, rows })
        } else {
            Err(PackingError::Rows { rows, slots })
        }
    }

    /// Slots of a vector.
    pub fn slots(&self) -> usize {
        self.slots
    }

    /// Rows of a text, m.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Texts that share a vector, B.
    pub fn texts(&self) -> usize {
        self.slots / self.rows
    }

    /// The slot of row `row` of text `text`.
    pub fn slot(&self, text: usize, row: usize) -> usize {
        row * self.texts() + text
    }

    /// The rotation of the slots that rotates every text's vector by `rows` rows, modulo m.
    pub fn rotation(&self, rows: usize) -> usize {
        (rows % self.rows) * self.texts()
    }

    /// Packs `entry(text, row)` into a vector of slots, with 0 where there is no text.
    pub fn vector(&self, texts: usize, entry: impl Fn(usize, usize) -> f64) -> Vec<f64> {
        let mut slots = vec![0.0; self.slots];
        for (row, block) in slots.chunks_exact_mut(self.texts()).enumerate() {
            for (text, slot) in block.iter_mut().enumerate().take(texts) {
                *slot = entry(text, row);
            }
        }
        slots
    }
}
