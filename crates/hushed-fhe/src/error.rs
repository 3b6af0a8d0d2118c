//! What can go wrong in a run under CKKS.

use hushed_ckks::CkksError;
use hushed_ckks::gemm::GemmError;
use hushed_ckks::poly::PolyError;
use hushed_model::{ModelError, StepId};

use super::choices::ChoicesError;
use super::files::FileError;
use crate::packing::PackingError;
use crate::plan::public_plan::PlanFileError;

/// Why a run under CKKS, or its simulation, stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FheError {
    /// The engine.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// A matrix product of the engine.
    #[error(transparent)]
    Gemm(#[from] GemmError),
    /// A polynomial.
    #[error(transparent)]
    Poly(#[from] PolyError),
    /// The packing.
    #[error(transparent)]
    Packing(#[from] PackingError),
    /// The model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The calibration.
    #[error(transparent)]
    Choices(#[from] ChoicesError),
    /// The public plan.
    #[error(transparent)]
    Plan(#[from] PlanFileError),
    /// A file of a run.
    #[error(transparent)]
    File(#[from] FileError),
    /// A chain that is too short for a step.
    #[error(
        "{step} needs {needed} levels and has {available}; start it with more primes, or choose lower degrees or fewer steps"
    )]
    Levels {
        /// The step.
        step: StepId,
        /// Levels that it needs.
        needed: usize,
        /// Levels that there are.
        available: usize,
    },
    /// A value beyond what a refresh can take: found where values are visible, in a simulation.
    #[error("at {site}, a value of {value} would be refreshed; at most {bound} can be")]
    Range {
        /// Where.
        site: String,
        /// The value.
        value: f64,
        /// The bound.
        bound: f64,
    },
    /// A plan that bounds inputs more tightly than the public model's numbers are. Which input is beyond it is not
    /// said.
    #[error(
        "the plan's bound of inputs is below what the public model gives; ask the server's operator for a plan made from this model"
    )]
    InputBound,
    /// A reply that is less precise than its plan declares, so that the noise that covers it would not cover its error.
    /// Nothing was written.
    #[error(
        "the reply would err by a deviation of {found:.1e}, and its plan declares {declared:.1e}; make the plan again from this model"
    )]
    ReplyError {
        /// What it errs by.
        found: f64,
        /// What the plan declares.
        declared: f64,
    },
    /// Asked to stop: it goes on from the checkpoint of its last layer.
    #[error("the run was stopped between two layers")]
    Stopped,
    /// A step that this backend does not have.
    #[error("{what} cannot run under encryption: {remedy}")]
    Unsupported {
        /// The step.
        what: String,
        /// What to do.
        remedy: &'static str,
    },
    /// A file of vectors put away, a checkpoint.
    #[error("{what}: {source}")]
    Io {
        /// Which file.
        what: String,
        /// What the system says.
        #[source]
        source: std::io::Error,
    },
}

impl FheError {
    /// Vectors are to be put on disk, and there is no folder for them.
    #[must_use]
    pub fn no_spill_folder() -> FheError {
        FheError::Unsupported {
            what: "a plan that puts vectors on disk".to_owned(),
            remedy: "give a folder for them",
        }
    }

    /// The same error of a step: levels that its arithmetic lacks are the step's.
    #[must_use]
    pub(crate) fn lacking_at(self, step: StepId) -> FheError {
        let (needed, available) = match self {
            FheError::Poly(PolyError::LevelsTooFew {
                needed, available, ..
            }) => (needed, available),
            // A vector that has not even the primes that a refresh takes, or a sum.
            FheError::Ckks(CkksError::LevelTooLow { .. }) => (1, 0),
            other => return other,
        };
        FheError::Levels {
            step,
            needed,
            available,
        }
    }
}
