//! Matrices that stay in the files of a model folder: each is read when it is needed, and not kept.
//!
//! The files are opened once and read at positions. One that was written since is refused, so that numbers of two
//! models never meet in one pass.
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
    /// Of each file, when it was opened.
    written: Vec<Written>,
}

impl Files {
    pub(crate) fn new(folder: &Path, weights: Weights<File>) -> Result<Arc<Files>, FolderError> {
        let folder = folder.to_owned();
        match weights.written() {
            Ok(written) => Ok(Arc::new(Files {
                folder,
                weights,
                written,
            })),
            Err(problem) => Err(FolderError {
                folder,
                problems: vec![problem],
            }),
        }
    }

    pub(crate) fn weights(&self) -> &Weights<File> {
        &self.weights
    }

    /// What was read of the weights, unless they were written meanwhile, which comes first because it explains a
    /// failure to read.
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
    /// Only these columns, as rows.
    columns: Option<Range<usize>>,
}

impl Stored {
    pub(crate) fn new(files: &Arc<Files>, name: &str, [rows, cols]: [usize; 2]) -> Stored {
        Stored {
            files: Arc::clone(files),
            name: name.to_owned(),
            rows,
            cols,
            columns: None,
        }
    }

    /// The matrix whose rows are these columns of the stored one.
    pub(crate) fn columns(&self, range: Range<usize>) -> Stored {
        Stored {
            columns: Some(range),
            ..self.clone()
        }
    }

    /// Reads it.
    ///
    /// # Errors
    /// [`FolderError`]: a file that cannot be read, that was written since it was opened, or with numbers that are
    /// none.
    pub fn read(&self) -> Result<Matrix<f32>, FolderError> {
        let numbers = self.files.weights.read(&self.name, &self.shape());
        let matrix = self.files.unchanged(numbers).and_then(|numbers| {
            Matrix::new(self.rows, self.cols, numbers).ok_or_else(|| Problem::MissingTensor {
                name: self.name.clone(),
            })
        });
        let matrix = matrix.map_err(|problem| self.refused(problem))?;
        Ok(match &self.columns {
            Some(range) => matrix.columns(range.clone()),
            None => matrix,
        })
    }

    /// Reads it, some rows at a time, in order. What was seen counts only if all could be read.
    ///
    /// # Errors
    /// As [`Stored::read`].
    pub(crate) fn each_rows(&self, mut visit: impl FnMut(&[f32])) -> Result<(), FolderError> {
        if self.columns.is_some() {
            // Its rows lie across those of the file.
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
        FolderError {
            folder: self.files.folder.clone(),
            problems: vec![problem],
        }
    }
}
