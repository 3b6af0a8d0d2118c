//! A row-major matrix.

/// `rows × cols` numbers, row after row.
#[derive(Clone, Debug, PartialEq)]
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

    /// Row i. Panics if there is none: shapes are checked where a matrix is made.
    pub fn row(&self, i: usize) -> &[T] {
        &self.data[i * self.cols..(i + 1) * self.cols]
    }

    /// Row i, to be written.
    pub fn row_mut(&mut self, i: usize) -> &mut [T] {
        &mut self.data[i * self.cols..(i + 1) * self.cols]
    }
}

impl<T: Copy + Default> Matrix<T> {
    /// All zero.
    pub fn zero(rows: usize, cols: usize) -> Matrix<T> {
        Matrix {
            rows,
            cols,
            data: vec![T::default(); rows * cols],
        }
    }
}
