//! The rows of texts in packed rows, of which the server knows the lengths, and plaintext vectors made of them.

use hushed_ckks::Complex64;

use crate::packing::{Layout, PackingError};
use crate::slots::Slots;

/// A layout, and how many rows of each text are tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedRows {
    layout: Layout,
    lengths: Vec<usize>,
}

/// Some rows of every text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All, padding too.
    All,
    /// Those of tokens.
    Tokens,
    /// Those of tokens but the first, whose results some layers replace by constants.
    Later,
    /// The first, of texts that there are.
    First,
    /// The last of all texts, where those of a decoder end.
    Last,
}

impl PackedRows {
    /// Texts with these numbers of tokens; places without a text have none.
    ///
    /// # Errors
    /// [`PackingError`] for too many texts, or one longer than the rows.
    pub fn new(layout: Layout, mut lengths: Vec<usize>) -> Result<Self, PackingError> {
        let (texts, room, rows) = (lengths.len(), layout.texts(), layout.rows());
        if texts > room {
            let slots = layout.slots();
            return Err(PackingError::TooMany {
                texts,
                room,
                slots,
                rows,
            });
        }
        if let Some(text) = lengths.iter().position(|&l| l > rows) {
            let found = lengths[text];
            return Err(PackingError::RowCount { text, found, rows });
        }
        lengths.resize(room, 0);
        Ok(Self { layout, lengths })
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// Tokens of a text.
    pub fn length(&self, text: usize) -> usize {
        self.lengths.get(text).copied().unwrap_or(0)
    }

    /// Whether a row is one of these.
    pub fn holds(&self, kept: Kept, text: usize, row: usize) -> bool {
        let token = row < self.length(text);
        match kept {
            Kept::All => true,
            Kept::Tokens => token,
            Kept::Later => token && row > 0,
            Kept::First => token && row == 0,
            Kept::Last => row + 1 == self.layout.rows(),
        }
    }

    /// 1 in these rows, 0 in others.
    pub fn mask<S: Slots>(&self, on: &S, kept: Kept) -> Vec<f64> {
        self.numbers(on, |text, row, _| {
            f64::from(u8::from(self.holds(kept, text, row)))
        })
    }

    /// `entry(text, row, place)` in every slot; nothing where only shapes count.
    pub fn numbers<S: Slots>(
        &self,
        on: &S,
        entry: impl Fn(usize, usize, usize) -> f64,
    ) -> Vec<f64> {
        on.plain(|| self.each(&entry))
    }

    /// As [`PackedRows::numbers`], of pairs.
    pub fn pairs<S: Slots>(
        &self,
        on: &S,
        entry: impl Fn(usize, usize, usize) -> Complex64,
    ) -> Vec<Complex64> {
        on.plain_pairs(|| self.each(&entry))
    }

    /// In the order of slots: row, text, place.
    fn each<T>(&self, entry: &impl Fn(usize, usize, usize) -> T) -> Vec<T> {
        let (texts, places) = (self.layout.texts(), self.layout.columns());
        let slot = |slot: usize| {
            let (row, text) = (slot / places / texts, slot / places % texts);
            entry(text, row, slot % places)
        };
        (0..self.layout.slots()).map(slot).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_of_padding_and_places_without_a_text_are_in_no_mask() {
        let layout = Layout::new(64, 4, 4).unwrap();
        let rows = PackedRows::new(layout, vec![3, 0, 1]).unwrap();
        let at = |kept, text| {
            (0..4)
                .filter(|&row| rows.holds(kept, text, row))
                .collect::<Vec<_>>()
        };
        assert_eq!(at(Kept::Tokens, 0), [0, 1, 2]);
        assert_eq!(at(Kept::Later, 0), [1, 2]);
        assert_eq!(at(Kept::First, 0), [0]);
        assert_eq!(at(Kept::First, 2), [0]);
        for text in [1, 3] {
            assert!(at(Kept::Tokens, text).is_empty() && at(Kept::First, text).is_empty());
            assert_eq!(at(Kept::All, text).len(), 4);
        }
        let slots = rows.each(&|text, row, place| (text, row, place));
        for (slot, &(text, row, place)) in slots.iter().enumerate() {
            assert_eq!(layout.slot(text, row, place), slot);
        }
        assert!(matches!(
            PackedRows::new(layout, vec![5]),
            Err(PackingError::RowCount { found: 5, .. })
        ));
        assert!(PackedRows::new(layout, vec![1; 5]).is_err());
    }
}
