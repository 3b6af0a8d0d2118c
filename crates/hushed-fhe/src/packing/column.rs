//! Column packing (MOAI, definitions 3.1 and D.1): vector i holds column i of every text's matrix.

use hushed_model::Matrix;

use super::{Interleave, PackingError};

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

    /// One vector a column.
    pub fn vectors(&self) -> &[V] {
        &self.vectors
    }

    /// The same packing of other vectors: encrypted, decrypted, or the result of a function of each entry.
    pub fn map<W, E>(&self, f: impl FnMut(&V) -> Result<W, E>) -> Result<Columns<W>, E> {
        let vectors = self.vectors.iter().map(f).collect::<Result<_, _>>()?;
        Ok(Columns {
            layout: self.layout,
            vectors,
        })
    }
}

impl Columns<Vec<f64>> {
    /// Packs one matrix a text. The caller adds rows of padding: every matrix has the m rows of `layout`.
    ///
    /// # Errors
    /// [`PackingError::TooMany`], [`PackingError::RowCount`], [`PackingError::Width`].
    pub fn pack(layout: Interleave, texts: &[Matrix<f64>]) -> Result<Self, PackingError> {
        let width = check(&layout, texts)?;
        let column = |c| layout.vector(texts.len(), |text, row| texts[text].row(row)[c]);
        Ok(Columns {
            layout,
            vectors: (0..width).map(column).collect(),
        })
    }

    /// The matrices of the first `texts` texts.
    ///
    /// # Errors
    /// [`PackingError::TooMany`].
    pub fn unpack(&self, texts: usize) -> Result<Vec<Matrix<f64>>, PackingError> {
        self.layout.check(texts)?;
        let rows = self.layout.rows();
        let entry = |text, row, c: usize| self.vectors[c][self.layout.slot(text, row)];
        let matrix = |text| {
            let data = (0..rows)
                .flat_map(|row| (0..self.width()).map(move |c| entry(text, row, c)))
                .collect();
            Matrix::new(rows, self.width(), data).ok_or(PackingError::Mismatch)
        };
        (0..texts).map(matrix).collect()
    }
}

/// The common width of `texts`.
pub(super) fn check(layout: &Interleave, texts: &[Matrix<f64>]) -> Result<usize, PackingError> {
    layout.check(texts.len())?;
    let expected = texts.first().map_or(0, Matrix::cols);
    for (text, matrix) in texts.iter().enumerate() {
        if matrix.rows() != layout.rows() {
            return Err(PackingError::RowCount {
                text,
                found: matrix.rows(),
                rows: layout.rows(),
            });
        }
        if matrix.cols() != expected {
            return Err(PackingError::Width {
                text,
                found: matrix.cols(),
                expected,
            });
        }
    }
    Ok(expected)
}
