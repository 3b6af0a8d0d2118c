//! Errors of a run under CKKS.

use hushed_ckks::CkksError;
use hushed_ckks::gemm::GemmError;
use hushed_ckks::poly::PolyError;
use hushed_model::{ModelError, StepId, counted};

use super::choices::ChoicesError;
use super::files::FileError;
use crate::packing::PackingError;
use crate::plan::public_plan::PlanFileError;

/// Why a run under CKKS, or its simulation, stopped.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum FheError {
    /// An error of the engine.
    #[error(transparent)]
    Ckks(#[from] CkksError),
    /// An error of the engine's matrix products.
    #[error(transparent)]
    Gemm(#[from] GemmError),
    /// An error of a polynomial.
    #[error(transparent)]
    Poly(#[from] PolyError),
    /// An error of the packing.
    #[error(transparent)]
    Packing(#[from] PackingError),
    /// An error of the model.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// An error of the calibration.
    #[error(transparent)]
    Choices(#[from] ChoicesError),
    /// An error of the public plan.
    #[error(transparent)]
    Plan(#[from] PlanFileError),
    /// An error of a run's file.
    #[error(transparent)]
    File(#[from] FileError),
    /// The chain of primes is too short for a step.
    #[error(
        "{step} needs {} and has {available}; start it with more primes, or choose lower degrees or fewer steps",
        counted(*needed, "level")
    )]
    Levels {
        /// The step.
        step: StepId,
        /// Levels it needs.
        needed: usize,
        /// Levels available.
        available: usize,
    },
    /// A value is larger than a refresh can take. Only a simulation, where values are visible, reports this.
    #[error("at {site}, a value of {value} would be refreshed; at most {bound} can be")]
    Range {
        /// The step.
        site: String,
        /// The value.
        value: f64,
        /// The bound.
        bound: f64,
    },
    /// The plan bounds inputs more tightly than the public model allows. The error does not say which input exceeds the
    /// bound.
    #[error(
        "the plan's input bound is too small for the public model; ask the server's operator for a plan made from this model"
    )]
    InputBound,
    /// The reply is less precise than its plan declares, so that the noise meant to hide its error would not. Nothing
    /// was written.
    #[error(
        "the reply would err by a deviation of {found:.1e}, and its plan declares {declared:.1e}; make the plan again from this model"
    )]
    ReplyError {
        /// The deviation of the reply's error.
        found: f64,
        /// The deviation declared by the plan.
        declared: f64,
    },
    /// A decrypted reply that is not of the shape that its plan states. What was decrypted must not reach the server,
    /// and neither may this error.
    #[error(
        "vector {vector} of the reply is not that of an honest run: {}. The run failed, or some text left the calibrated ranges. No answer is \
         shown; do not tell the server. The keys are retired: nothing more is encrypted for them",
        if *used { "an answer is larger than any can be" } else { "there is more than noise beside the answers" }
    )]
    ReplyShape {
        /// Which vector.
        vector: usize,
        /// Whether the number is in the slot of an answer.
        used: bool,
    },
    /// A few large columns leave too few bits of all others.
    #[error(
        "answers within {magnitude} are kept to {bits} bits after the point, and half of their columns are smaller than {typical:.2}: of these little \
         would be left, and nearest neighbours would change. Scale down the largest gains of the last norm, or use protocol 2pc"
    )]
    Coarse {
        /// Bits kept.
        bits: u32,
        /// The bound on all columns.
        magnitude: f64,
        /// The typical size of a column.
        typical: f64,
    },
    /// The run was asked to stop; it resumes from the checkpoint of its last layer.
    #[error("the run was stopped between two layers")]
    Stopped,
    /// A step that does not run under encryption.
    #[error("{what} cannot run under encryption: {remedy}")]
    Unsupported {
        /// The step.
        what: String,
        /// What to do instead.
        remedy: &'static str,
    },
    /// An I/O error of a file of spilled vectors or a checkpoint.
    #[error("{what}: {source}")]
    Io {
        /// Which file.
        what: String,
        /// The system's error.
        #[source]
        source: std::io::Error,
    },
}

impl FheError {
    /// The error of a plan that spills vectors to disk when no folder is given for them.
    #[must_use]
    pub fn no_spill_folder() -> FheError {
        FheError::Unsupported { what: "a plan that puts vectors on disk".to_owned(), remedy: "give a folder for them" }
    }

    /// The error of a batch that needs more bytes of memory than it may use.
    #[must_use]
    pub(crate) fn too_large(allowed: u64, needed: u64) -> FheError {
        FheError::Unsupported {
            what: format!("a batch of this size in {} MiB, as it needs {}", allowed >> 20, needed >> 20),
            remedy: "allow more memory, or use fewer rows per text",
        }
    }

    /// The error of a program of another shape.
    pub(crate) fn shape(at: StepId) -> FheError {
        FheError::Unsupported {
            what: format!("{at}: a program of this shape"),
            remedy: "encoders with a norm before each block, or after each sum, can be run",
        }
    }

    /// The error of choices of another model.
    pub(crate) fn absent(at: StepId) -> FheError {
        let what = format!("the calibration has nothing for {at}: it was made for another model");
        ChoicesError::Unusable { what }.into()
    }

    /// Attributes the error to `step`: missing levels become [`FheError::Levels`], a function without a fit
    /// [`ChoicesError::Unfit`], other errors stay as they are.
    #[must_use]
    pub(crate) fn at_step(self, step: StepId) -> FheError {
        let (needed, available) = match self {
            FheError::Poly(PolyError::LevelsTooFew { needed, available, .. }) => (needed, available),
            // A vector without even the primes that a refresh or a sum takes.
            FheError::Ckks(CkksError::LevelTooLow { .. }) => (1, 0),
            FheError::Poly(
                source @ (PolyError::Fit(_)
                | PolyError::Degree { .. }
                | PolyError::Coefficient { .. }
                | PolyError::Range { .. }
                | PolyError::Parameter { .. }),
            ) => {
                let source = Box::new(source);
                return ChoicesError::Unfit { step, source }.into();
            }
            other => return other,
        };
        FheError::Levels { step, needed, available }
    }
}
