//! The numbers of matrices, which are here or [stored](Stored).

use std::sync::Arc;

use crate::blocks::{Embedding, Linear};
use crate::error::ModelError;
use crate::folder::Stored;
use crate::matrix::Matrix;
use crate::program::{StepId, here};

impl Linear {
    /// The weights, `outputs × inputs`, read now if they are stored.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`]; [`ModelError::Folder`] for files that cannot be read any more.
    pub fn numbers(&self, at: StepId) -> Result<Arc<Matrix<f32>>, ModelError> {
        numbers(at, &self.weights, &self.stored)
    }
}

impl Embedding {
    /// The token vectors, `vocabulary × width`, read now if they are stored.
    ///
    /// # Errors
    /// As [`Linear::numbers`].
    pub fn numbers(&self, at: StepId) -> Result<Arc<Matrix<f32>>, ModelError> {
        numbers(at, &self.tokens, &self.stored)
    }
}

fn numbers(
    at: StepId,
    held: &Option<Arc<Matrix<f32>>>,
    stored: &Option<Stored>,
) -> Result<Arc<Matrix<f32>>, ModelError> {
    match (held, stored) {
        (None, Some(stored)) => Ok(Arc::new(stored.read()?)),
        (held, _) => here(at, held).cloned(),
    }
}
