//! Diagonal packing (MOAI, definitions 3.2 and D.2): vector j holds upper diagonal j, the entries (t, t + j mod m), of
//! every text's square matrix.
//!
//! The entries of a row are in the same slot of all m vectors, so the sum over a row is the sum of the vectors (lemma
//! 4.1), and a softmax needs no rotation.

use super::{Interleave, PackingError};

/// The diagonals of a batch of m × m matrices: m vectors of slots.
#[derive(Clone, Debug)]
pub struct Diagonals<V> {
    pub(super) layout: Interleave,
    pub(super) vectors: Vec<V>,
}

impl<V> Diagonals<V> {
    /// Vectors that are already packed this way.
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] unless there are m of them.
    pub fn from_vectors(layout: Interleave, vectors: Vec<V>) -> Result<Diagonals<V>, PackingError> {
        if vectors.len() != layout.rows() {
            return Err(PackingError::Mismatch);
        }
        Ok(Diagonals { layout, vectors })
    }

    /// The packing.
    pub fn layout(&self) -> Interleave {
        self.layout
    }

    /// One vector per diagonal.
    pub fn vectors(&self) -> &[V] {
        &self.vectors
    }

    /// The same packing with other vectors: encrypted, decrypted, or a function applied to each entry.
    pub fn map<W, E>(&self, f: impl FnMut(&V) -> Result<W, E>) -> Result<Diagonals<W>, E> {
        let vectors = self.vectors.iter().map(f).collect::<Result<_, _>>()?;
        Ok(Diagonals { layout: self.layout, vectors })
    }
}
