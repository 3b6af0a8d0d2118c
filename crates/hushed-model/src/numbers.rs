//! The numbers of matrices, which are in memory or [stored](Stored).

use std::sync::Arc;

use crate::blocks::{Embedding, Linear};
use crate::error::ModelError;
use crate::folder::Stored;
use crate::matrix::Matrix;
use crate::program::{StepId, here, same};

impl Linear {
    /// The weights, `outputs × inputs`, read now if they are stored.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`]; [`ModelError::Folder`] if the files can no longer be read.
    pub fn numbers(&self, at: StepId) -> Result<Arc<Matrix<f32>>, ModelError> {
        numbers(at, &self.weights, &self.stored)
    }

    /// Visits the weights in order, some rows at a time; stored ones are not kept in memory. The visits count only if
    /// this succeeds.
    ///
    /// # Errors
    /// Those of [`Linear::numbers`]; [`ModelError::Mismatch`] if the numbers have another shape.
    pub fn each_rows(&self, at: StepId, mut visit: impl FnMut(&[f32])) -> Result<(), ModelError> {
        if let (None, Some(stored)) = (&self.weights, &self.stored) {
            return Ok(stored.each_rows(visit)?);
        }
        let weights = here(at, &self.weights)?;
        same(at, "rows of weights", weights.rows(), self.outputs)?;
        same(at, "columns of weights", weights.cols(), self.inputs)?;
        visit(weights.data());
        Ok(())
    }
}

impl Embedding {
    /// The token vectors, `vocabulary × width`, read now if they are stored.
    ///
    /// # Errors
    /// Those of [`Linear::numbers`].
    pub fn numbers(&self, at: StepId) -> Result<Arc<Matrix<f32>>, ModelError> {
        numbers(at, &self.tokens, &self.stored)
    }

    /// Rows of a table of the token vectors, with a last one for what token type 1 adds where there is such a type.
    pub fn table_rows(&self) -> usize {
        self.vocabulary + usize::from(self.typed)
    }

    /// The last row of such a table: empty without token types.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`].
    pub fn type_row(&self, at: StepId) -> Result<&[f32], ModelError> {
        match self.typed {
            true => here(at, &self.second).map(|row| &**row),
            false => Ok(&[]),
        }
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
