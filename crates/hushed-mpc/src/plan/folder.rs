//! The plan of a pass over a folder's model: what `hushed plan` prints.

use std::path::Path;

use hushed_model::{Model, ModelError, PublicFiles};

use super::Plan;
use crate::{RunError, Terms};

/// The fewest tokens of a text: the two special ones and one of its own.
const FEWEST: usize = 3;

/// What a folder's plan is asked for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Request {
    /// Tokens of each text of a pass, the two special ones counted.
    pub tokens: Vec<usize>,
    /// Texts are padded to a multiple of this many tokens, at least 1, or to the longest that the model takes.
    pub bucket: Option<usize>,
    /// The table of token vectors is public.
    pub public_table: bool,
}

/// Why there is no plan.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanError {
    /// The folder.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A length that the model does not take.
    #[error(
        "a text has {given} tokens, and this model takes {FEWEST} to {limit}, the two special ones counted"
    )]
    Tokens {
        /// The length.
        given: usize,
        /// The model's limit.
        limit: usize,
    },
    /// No text, or a bucket of no tokens.
    #[error("a plan is for at least one text and, where there is one, a bucket of at least 1")]
    Nothing,
    /// A step without a protocol.
    #[error(transparent)]
    Run(#[from] RunError),
}

impl Plan {
    /// The plan of one pass over texts of these lengths. Reads the folder's public files, not its weights.
    ///
    /// # Errors
    /// [`PlanError`].
    pub fn of_folder(folder: &Path, request: &Request) -> Result<Plan, PlanError> {
        if request.tokens.is_empty() || request.bucket == Some(0) {
            return Err(PlanError::Nothing);
        }
        let files = PublicFiles::read(folder).map_err(ModelError::from)?;
        let public = files.parse().map_err(ModelError::from)?;
        let limit = public.max_tokens;
        let taken = FEWEST..=limit;
        if let Some(&given) = request.tokens.iter().find(|n| !taken.contains(n)) {
            return Err(PlanError::Tokens { given, limit });
        }
        let terms = Terms {
            padded: request.bucket.is_some(),
            public_table: request.public_table,
        };
        let bucket = request.bucket.unwrap_or(1);
        let up = |n: &usize| n.div_ceil(bucket).saturating_mul(bucket).min(limit);
        let rows: Vec<usize> = request.tokens.iter().map(up).collect();
        let model = Model::shapes_only(&public);
        Ok(Plan::twopc(
            &model.program(),
            &rows,
            terms,
            public.normalise,
        )?)
    }
}
