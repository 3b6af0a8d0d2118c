//! Which rows of a batch are tokens, and whether the server knows.
//!
//! With public lengths the masks are plaintext vectors. With private lengths the client sends one more vector, 1 in
//! token rows and 0 in padding rows; all other masks are computed from it.

use crate::packing::{Interleave, PackingError, SequencePacking};

/// The rows of the texts of a batch.
#[derive(Clone)]
pub enum RowsKnown<V> {
    /// Known to the server.
    Public {
        /// The packing.
        layout: Interleave,
        /// The number of tokens of each text, and how they share places.
        packing: SequencePacking,
    },
    /// The server knows only m.
    Private {
        /// The packing.
        layout: Interleave,
        /// 1 in token rows, 0 elsewhere, encrypted.
        real: V,
    },
}

impl<V> RowsKnown<V> {
    /// Rows of texts with these numbers of tokens, one in each place; 0 for places without a text.
    ///
    /// # Errors
    /// [`PackingError`] for too many texts, or a text longer than m.
    pub fn public(layout: Interleave, lengths: Vec<usize>) -> Result<Self, PackingError> {
        Self::shared(layout, SequencePacking::new(layout.rows(), 1, lengths)?)
    }

    /// Rows of texts that share places.
    ///
    /// # Errors
    /// [`PackingError::TooMany`] for more places than there are.
    pub fn shared(layout: Interleave, packing: SequencePacking) -> Result<Self, PackingError> {
        if packing.places() > layout.texts() {
            return Err(PackingError::TooMany {
                texts: packing.places(),
                room: layout.texts(),
                slots: layout.slots(),
                rows: layout.rows(),
            });
        }
        Ok(Self::Public { layout, packing })
    }

    /// Rows given by an encrypted vector, 1 in token rows.
    pub fn private(layout: Interleave, real: V) -> Self {
        Self::Private { layout, real }
    }

    /// The packing.
    pub fn layout(&self) -> Interleave {
        match self {
            Self::Public { layout, .. } | Self::Private { layout, .. } => *layout,
        }
    }
}

/// The step that refreshes encrypted token rows, before the columns of an upload are split.
pub(crate) const REAL_ROWS: &str = "input.rows";

/// The vector that a client encrypts with private lengths, in the clear: 1 in token rows, 0 elsewhere.
pub fn token_rows(layout: Interleave, lengths: &[usize]) -> Vec<f64> {
    layout.vector(lengths.len().min(layout.texts()), |text, row| f64::from(u8::from(row < lengths[text])))
}

/// The same for texts that end in row m − 1, as in a decoder.
pub(crate) fn token_rows_to_last(layout: Interleave, lengths: &[usize]) -> Vec<f64> {
    layout.vector(lengths.len().min(layout.texts()), |text, row| {
        f64::from(u8::from(row + lengths[text] >= layout.rows()))
    })
}
