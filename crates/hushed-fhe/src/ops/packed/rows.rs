//! Which rows of the texts in packed rows are tokens.
//!
//! With public lengths, masks made from that are plaintext vectors. With private lengths the client sends two more
//! vectors, encrypted as the parts of one ciphertext: 1 in all places of token rows, and, in all places of a text, one
//! over their number ([`super::pool::hidden_rows`]). They replace a plaintext vector in products that are needed
//! anyway, so they cost relinearisations and no level; the plaintext vectors are then those of texts that fill all
//! their rows.

use crate::packing::{Layout, PackingError};

/// A layout, and which rows of each text are tokens.
#[derive(Clone)]
pub struct PackedRows<V> {
    layout: Layout,
    /// The lengths as far as the server knows them.
    lengths: Vec<usize>,
    /// What the client sent of lengths that the server does not know.
    hidden: Option<V>,
}

/// A choice of rows of every text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// All rows, including padding.
    All,
    /// Token rows.
    Tokens,
    /// Token rows but the first, whose results some layers replace by constants.
    Later,
    /// The first row, in places with a text.
    First,
    /// The last row of all texts, where a decoder's texts end.
    Last,
}

impl<V> PackedRows<V> {
    /// Texts with these numbers of tokens; places without a text have none.
    ///
    /// # Errors
    /// [`PackingError`] for too many texts, or a text longer than the rows.
    pub fn new(layout: Layout, mut lengths: Vec<usize>) -> Result<Self, PackingError> {
        let (texts, room, rows) = (lengths.len(), layout.texts(), layout.rows());
        if texts > room {
            let slots = layout.slots();
            return Err(PackingError::TooMany { texts, room, slots, rows });
        }
        if let Some(text) = lengths.iter().position(|&l| l > rows) {
            let found = lengths[text];
            return Err(PackingError::RowCount { text, found, rows });
        }
        lengths.resize(room, 0);
        Ok(Self { layout, lengths, hidden: None })
    }

    /// Texts in all places, with their token rows given only by two encrypted vectors: `sent` is half of
    /// [`super::pool::hidden_rows`], as a pair.
    pub fn private(layout: Layout, sent: V) -> Self {
        Self { layout, lengths: vec![layout.rows(); layout.texts()], hidden: Some(sent) }
    }

    /// The same, with what `f` makes of what the client sent.
    pub(crate) fn map<W>(&self, f: impl FnOnce(&V) -> W) -> PackedRows<W> {
        PackedRows { layout: self.layout, lengths: self.lengths.clone(), hidden: self.hidden.as_ref().map(f) }
    }

    /// What the server knows, and what the client sent of what it does not.
    pub(crate) fn known(self) -> (PackedRows<()>, Option<V>) {
        (PackedRows { layout: self.layout, lengths: self.lengths, hidden: None }, self.hidden)
    }

    /// The layout.
    pub fn layout(&self) -> Layout {
        self.layout
    }

    /// The number of tokens of a text; if lengths are private, all rows.
    pub fn length(&self, text: usize) -> usize {
        self.lengths.get(text).copied().unwrap_or(0)
    }

    /// Whether a row is one of these, or may be if lengths are private.
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

    /// In the order of slots: row, text, place.
    pub(crate) fn each<T>(&self, entry: &impl Fn(usize, usize, usize) -> T) -> Vec<T> {
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
        let rows = PackedRows::<()>::new(layout, vec![3, 0, 1]).unwrap();
        let at = |kept, text| (0..4).filter(|&row| rows.holds(kept, text, row)).collect::<Vec<_>>();
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
        assert!(matches!(PackedRows::<()>::new(layout, vec![5]), Err(PackingError::RowCount { found: 5, .. })));
        assert!(PackedRows::<()>::new(layout, vec![1; 5]).is_err());
    }
}
