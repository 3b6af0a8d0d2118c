//! Diagonal packing (MOAI, definitions 3.2 and D.2): vector j holds the upper diagonal j, entries (t, t + j mod m), of
//! every text's square matrix.
//!
//! The entries of one row are in the same slot of all m vectors, so the sum over a row is the sum of the vectors (lemma
//! 4.1): softmax needs no rotation.

use hushed_model::Matrix;

use super::{Interleave, PackingError, column};

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

    /// One vector a diagonal.
    pub fn vectors(&self) -> &[V] {
        &self.vectors
    }

    /// The same packing of other vectors: encrypted, decrypted, or the result of a function of each entry.
    pub fn map<W, E>(&self, f: impl FnMut(&V) -> Result<W, E>) -> Result<Diagonals<W>, E> {
        let vectors = self.vectors.iter().map(f).collect::<Result<_, _>>()?;
        Ok(Diagonals {
            layout: self.layout,
            vectors,
        })
    }
}

impl Diagonals<Vec<f64>> {
    /// Packs one square matrix a text.
    ///
    /// # Errors
    /// [`PackingError::TooMany`], [`PackingError::RowCount`], [`PackingError::Width`].
    pub fn pack(layout: Interleave, texts: &[Matrix<f64>]) -> Result<Self, PackingError> {
        let (width, m) = (column::check(&layout, texts)?, layout.rows());
        if !texts.is_empty() && width != m {
            return Err(PackingError::Width {
                text: 0,
                found: width,
                expected: m,
            });
        }
        let diagonal =
            |j| layout.vector(texts.len(), |text, row| texts[text].row(row)[(row + j) % m]);
        Ok(Diagonals {
            layout,
            vectors: (0..m).map(diagonal).collect(),
        })
    }

    /// The matrices of the first `texts` texts.
    ///
    /// # Errors
    /// [`PackingError::TooMany`].
    pub fn unpack(&self, texts: usize) -> Result<Vec<Matrix<f64>>, PackingError> {
        self.layout.check(texts)?;
        let m = self.layout.rows();
        let entry =
            |text, row, c: usize| self.vectors[(c + m - row) % m][self.layout.slot(text, row)];
        let matrix = |text| {
            let data = (0..m)
                .flat_map(|row| (0..m).map(move |c| entry(text, row, c)))
                .collect();
            Matrix::new(m, m, data).ok_or(PackingError::Mismatch)
        };
        (0..texts).map(matrix).collect()
    }
}
