//! What reading any plan file begins with.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde::de::DeserializeOwned;

use super::error::{MAX_PLAN_BYTES, PlanFileError};
use crate::files::chunked::Hash;
use crate::hex::hex;

/// The JSON of a plan file, which is not too large.
pub(crate) fn from_bytes<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, PlanFileError> {
    if bytes.len() > MAX_PLAN_BYTES {
        let bytes = bytes.len();
        return Err(PlanFileError::TooLarge { bytes });
    }
    Ok(serde_json::from_slice(hushed_model::without_mark(bytes))?)
}

/// Checks that a plan is what its file says.
pub(crate) fn same_hash(found: &Hash, stated: &str) -> Result<(), PlanFileError> {
    let found = hex(found);
    match found == stated {
        true => Ok(()),
        false => Err(PlanFileError::Damaged { found, stated: stated.chars().take(64).collect() }),
    }
}
