//! A model made ready for any number of runs: what depends on its numbers alone is computed once.
//!
//! A server simulates its circuit before it runs one ([`crate::plan::declared`]). The simulation folds every linear map
//! and fits every polynomial that a run reads, so these are kept from it, and the published weights are dropped.
//!
//! For all-MiniLM-L6-v2 this saves a core-second of every run. Its maps take 81 MiB in f64, in place of 41 MiB of f32
//! and a token table of 45 MiB; its polynomials take 3 MiB. What is made of the maps is not kept:
//!
//! * digits for the products of a batch: 0.1 s, and as much for each prime, of a run that takes an hour;
//! * encoded diagonals of packed rows: 4.1 GiB, fifty times the maps, for five core-seconds of 150.

use std::sync::Arc;

use hushed_model::{Program, TokenIds};

use crate::error::FheError;
use crate::ops::folded::Folded;
use crate::plan::declared::Circuit;

/// A model without its published weights, and what a run computes with in their place. A step that is not there cannot
/// be folded again: [`hushed_model::ModelError::ShapesOnly`].
pub struct Prepared {
    pub(crate) program: Program,
    pub(crate) folded: Arc<Folded>,
    error: f64,
}

impl Prepared {
    /// Prepares the model of `circuit` by simulating it on these texts.
    ///
    /// # Errors
    /// Those of [`Circuit::deviation`].
    pub fn new(circuit: &Circuit<'_>, texts: &[TokenIds]) -> Result<Prepared, FheError> {
        let error = circuit.deviation(texts)?;
        Ok(Prepared { program: circuit.program.clone().without_weights(), folded: Arc::clone(&circuit.folded), error })
    }

    /// The model's shapes, norms and biases.
    pub fn program(&self) -> &Program {
        &self.program
    }

    /// The standard deviation of the error of a reply slot, as simulated.
    pub fn error(&self) -> f64 {
        self.error
    }
}
