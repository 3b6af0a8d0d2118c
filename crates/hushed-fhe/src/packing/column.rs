//! Column packing (MOAI, definitions 3.1 and D.1): vector i holds column i of every text's matrix.

use super::Interleave;

/// The columns of a batch of matrices, m × d each: d vectors of slots.
#[derive(Clone, Debug)]
pub struct Columns<V> {
    pub(super) layout: Interleave,
    pub(super) vectors: Vec<V>,
}

impl<V> Columns<V> {
    /// Vectors that are already packed this way.
    pub fn from_vectors(layout: Interleave, vectors: Vec<V>) -> Columns<V> {
        Columns { layout, vectors }
    }

    /// The packing.
    pub fn layout(&self) -> Interleave {
        self.layout
    }

    /// The width of the matrices, d.
    pub fn width(&self) -> usize {
        self.vectors.len()
    }

    /// One vector per column.
    pub fn vectors(&self) -> &[V] {
        &self.vectors
    }

    /// The same packing with other vectors: encrypted, decrypted, or a function applied to each entry.
    pub fn map<W, E>(&self, f: impl FnMut(&V) -> Result<W, E>) -> Result<Columns<W>, E> {
        let vectors = self.vectors.iter().map(f).collect::<Result<_, _>>()?;
        Ok(Columns { layout: self.layout, vectors })
    }
}
