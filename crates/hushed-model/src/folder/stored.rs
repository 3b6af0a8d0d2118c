//! Matrices that stay in the files of a model folder: each is read when needed, and not kept.
//!
//! The files are opened once and read at positions. A file that was written since is refused, so that one pass never
//! mixes the numbers of two models.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::weights::{Weights, Written};
use crate::error::{FolderError, Problem};
use crate::matrix::Matrix;

/// The opened weights of a folder.
pub(crate) struct Files {
    folder: PathBuf,
    weights: Weights<File>,
    /// The state of each file when it was opened.
    written: Vec<Written>,
}

impl Files {
    pub(crate) fn new(folder: &Path, weights: Weights<File>) -> Result<Arc<Files>, FolderError> {
        let folder = folder.to_owned();
        match weights.written() {
            Ok(written) => Ok(Arc::new(Files { folder, weights, written })),
            Err(problem) => Err(FolderError { folder, problems: vec![problem] }),
        }
    }

    pub(crate) fn weights(&self) -> &Weights<File> {
        &self.weights
    }

    /// The result of a read, unless the weights were written meanwhile. That is checked first, because it explains a
    /// failed read.
    fn unchanged<T>(&self, read: Result<T, Problem>) -> Result<T, Problem> {
        self.weights.unchanged(&self.written)?;
        read
    }
}

/// Where a matrix is in the files of a folder. Clones share the opened files.
#[derive(Clone)]
pub struct Stored {
    files: Arc<Files>,
    name: String,
    rows: usize,
    cols: usize,
    /// If set, only these columns, as rows.
    columns: Option<Range<usize>>,
    /// Factor of the numbers as they are read.
    factor: f64,
}

impl Stored {
    pub(crate) fn new(files: &Arc<Files>, name: &str, [rows, cols]: [usize; 2]) -> Stored {
        Stored { files: Arc::clone(files), name: name.to_owned(), rows, cols, columns: None, factor: 1.0 }
    }

    /// The matrix whose rows are these columns of the stored one.
    pub(crate) fn columns(&self, range: Range<usize>) -> Stored {
        Stored { columns: Some(range), ..self.clone() }
    }

    /// The same matrix times a factor.
    pub(crate) fn times(&self, factor: f64) -> Stored {
        Stored { factor: self.factor * factor, ..self.clone() }
    }

    /// Reads the matrix.
    ///
    /// # Errors
    /// [`FolderError`] if a file cannot be read, was written since it was opened, or holds numbers that are not finite.
    pub fn read(&self) -> Result<Matrix<f32>, FolderError> {
        let numbers = self.files.weights.read(&self.name, &self.shape());
        let matrix = self.files.unchanged(numbers).and_then(|numbers| {
            Matrix::new(self.rows, self.cols, numbers).ok_or_else(|| Problem::MissingTensor { name: self.name.clone() })
        });
        let mut matrix = matrix.map_err(|problem| self.refused(problem))?;
        if self.factor != 1.0 {
            matrix.data_mut().iter_mut().for_each(|w| *w = (f64::from(*w) * self.factor) as f32);
        }
        Ok(match &self.columns {
            Some(range) => matrix.columns(range.clone()),
            None => matrix,
        })
    }

    /// Reads the matrix in order, some rows at a time. The visits count only if everything could be read.
    pub(crate) fn each_rows(&self, mut visit: impl FnMut(&[f32])) -> Result<(), FolderError> {
        if self.columns.is_some() || self.factor != 1.0 {
            // Its rows are columns of the file, or other numbers.
            visit(self.read()?.data());
            return Ok(());
        }
        let read = self.files.weights.each(&self.name, &self.shape(), visit);
        let read = self.files.unchanged(read);
        read.map_err(|problem| self.refused(problem))
    }

    fn shape(&self) -> [usize; 2] {
        [self.rows, self.cols]
    }

    fn refused(&self, problem: Problem) -> FolderError {
        FolderError { folder: self.files.folder.clone(), problems: vec![problem] }
    }
}
