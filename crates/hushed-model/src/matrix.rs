//! A row-major matrix.

use std::fmt;
use std::ops::Range;

/// `rows × cols` numbers, row after row.
#[derive(Clone, PartialEq)]
pub struct Matrix<T> {
    rows: usize,
    cols: usize,
    data: Vec<T>,
}

impl<T> Matrix<T> {
    /// Takes `rows·cols` numbers; `None` if there are more or fewer.
    pub fn new(rows: usize, cols: usize, data: Vec<T>) -> Option<Matrix<T>> {
        (rows.checked_mul(cols) == Some(data.len())).then_some(Matrix { rows, cols, data })
    }

    /// Number of rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of columns.
    pub fn cols(&self) -> usize {
        self.cols
    }

    /// All numbers, row after row.
    pub fn data(&self) -> &[T] {
        &self.data
    }

    /// All numbers, row after row.
    pub fn data_mut(&mut self) -> &mut [T] {
        &mut self.data
    }

    /// Row i. Panics if there is none: shapes are checked when a matrix is made.
    pub fn row(&self, i: usize) -> &[T] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Row i, mutable.
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }
}

impl<T: Copy + Default> Matrix<T> {
    /// These columns as rows. Panics if the range is out of bounds.
    pub(crate) fn columns(&self, range: Range<usize>) -> Matrix<T> {
        let mut rows = Matrix::zero(range.len(), self.rows);
        for i in 0..self.rows {
            let numbers = &self.row(i)[range.clone()];
            numbers.iter().enumerate().for_each(|(j, &v)| rows.row_mut(j)[i] = v);
        }
        rows
    }

    /// These rows. Panics if the range is out of bounds.
    pub(crate) fn rows_of(&self, range: Range<usize>) -> Matrix<T> {
        let data = self.data[range.start * self.cols..range.end * self.cols].to_vec();
        Matrix { rows: range.len(), cols: self.cols, data }
    }

    /// A matrix of zeros.
    pub fn zero(rows: usize, cols: usize) -> Matrix<T> {
        Matrix { rows, cols, data: vec![T::default(); rows * cols] }
    }
}

/// Prints only the shape: the numbers may be a server's weights.
impl<T> fmt::Debug for Matrix<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Matrix({} × {})", self.rows, self.cols)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn debug_prints_no_number() {
        let matrix = Matrix::new(1, 2, vec![777.0, 888.0]);
        assert_eq!(format!("{matrix:?}"), "Some(Matrix(1 × 2))");
    }
}
