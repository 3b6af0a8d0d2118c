//! The table of token vectors as integers.

use hushed_model::{Embedding, StepId, here};

use crate::RunError;
use crate::formats::EMBEDDING;

/// The table's numbers.
pub(crate) fn numbers_of(e: &Embedding) -> Result<&[f32], RunError> {
    Ok(here(StepId::outside("embed"), &e.tokens)?.data())
}

/// A number of the table with [`EMBEDDING`]'s fraction bits. One beyond 32 bits saturates, and is then refused as
/// larger than [`TABLE_BITS`](crate::formats::TABLE_BITS) allow.
pub(crate) fn integer(v: &f32) -> i32 {
    (f64::from(*v) * f64::from(1u32 << EMBEDDING.frac)).round() as i32
}
