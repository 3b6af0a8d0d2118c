//! Packed matrices in the clear, for tests.

use hushed_model::Matrix;

use super::{Columns, Diagonals, Interleave};

impl Columns<Vec<f64>> {
    /// One matrix per text, each with the m rows of `layout`.
    pub(crate) fn pack(layout: Interleave, texts: &[Matrix<f64>]) -> Self {
        let width = texts.first().map_or(0, Matrix::cols);
        let column = |c| layout.vector(texts.len(), |text, row| texts[text].row(row)[c]);
        Columns::from_vectors(layout, (0..width).map(column).collect())
    }

    /// The matrices of the first `texts` texts.
    pub(crate) fn unpack(&self, texts: usize) -> Vec<Matrix<f64>> {
        unpacked(self.layout, texts, &self.vectors, self.width(), |_, c| c)
    }
}

impl Diagonals<Vec<f64>> {
    /// One square matrix per text.
    pub(crate) fn pack(layout: Interleave, texts: &[Matrix<f64>]) -> Self {
        let m = layout.rows();
        let diagonal = |j| layout.vector(texts.len(), |text, row| texts[text].row(row)[(row + j) % m]);
        Diagonals::from_vectors(layout, (0..m).map(diagonal).collect()).unwrap()
    }

    /// The matrices of the first `texts` texts.
    pub(crate) fn unpack(&self, texts: usize) -> Vec<Matrix<f64>> {
        let m = self.layout.rows();
        let place = |row: usize, c: usize| (c + m - row) % m;
        unpacked(self.layout, texts, &self.vectors, m, place)
    }
}

/// Matrices of `cols` columns, with entry (row, c) in vector `place(row, c)`.
fn unpacked(
    layout: Interleave,
    texts: usize,
    vectors: &[Vec<f64>],
    cols: usize,
    place: impl Fn(usize, usize) -> usize,
) -> Vec<Matrix<f64>> {
    let matrix = |text| {
        let mut data = Vec::new();
        for row in 0..layout.rows() {
            data.extend((0..cols).map(|c| vectors[place(row, c)][layout.slot(text, row)]));
        }
        Matrix::new(layout.rows(), cols, data).unwrap()
    };
    (0..texts).map(matrix).collect()
}
