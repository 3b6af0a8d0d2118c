//! Why a plan file is refused.

use hushed_ckks::CkksParamsError;
use hushed_model::json_words;

/// The version that this program writes and reads. Version 1 declared errors of long texts only.
pub const PLAN_VERSION: u32 = 2;

/// Maximum bytes of a plan file.
pub const MAX_PLAN_BYTES: usize = 4 << 20;

/// Why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// Larger than any plan may be.
    #[error("a plan has at most {MAX_PLAN_BYTES} bytes, and this file {bytes}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not the JSON of a plan.
    #[error("not a run manifest ({}); make one with `hushed plan DIR --protocol fhe --manifest FILE`", json_words(.0))]
    NotJson(#[from] serde_json::Error),
    /// Changed since it was made.
    #[error("the plan is damaged: its hash is {found}, but the file states {stated}; ask for it again")]
    Damaged {
        /// Hash of the bytes read.
        found: String,
        /// Hash stated in the file.
        stated: String,
    },
    /// Made by another release.
    #[error("the plan has version {given}, and this program reads {PLAN_VERSION}; make it again with this release")]
    Version {
        /// Its version.
        given: u32,
    },
    /// A parameter set that this program does not have.
    #[error("the plan names the parameter set {name:?}: {source}")]
    Parameters {
        /// Its name.
        name: String,
        /// The reason.
        source: CkksParamsError,
    },
    /// The named parameter set differs from this program's.
    #[error("the parameter set {name:?} of the plan is {theirs}, and here it is {ours}; use one release on both sides")]
    OtherParameters {
        /// Its name.
        name: String,
        /// The plan's hash of it.
        theirs: String,
        /// This program's.
        ours: String,
    },
    /// A value that is invalid or inconsistent with others.
    #[error("the plan has an invalid {what}: {given}")]
    Unusable {
        /// Which value.
        what: &'static str,
        /// Its value.
        given: String,
    },
}
