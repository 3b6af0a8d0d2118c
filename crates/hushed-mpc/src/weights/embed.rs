//! The tables of token and position vectors as integers.

use hushed_model::{Embedding, StepId, here};

use crate::RunError;
use crate::formats::EMBEDDING;
use crate::lookup::Table;

/// The table's numbers.
pub(crate) fn numbers_of(e: &Embedding, table: Table) -> Result<&[f32], RunError> {
    let numbers = match table {
        Table::Tokens | Table::PublicTokens => &e.tokens,
        Table::Positions => &e.offsets,
    };
    let numbers = here(StepId::outside("embed"), numbers)?.data();
    Ok(numbers.get(..table.rows(e) * e.width).unwrap_or(numbers))
}

/// A number of the table with [`EMBEDDING`]'s fraction bits. One beyond 32 bits saturates, and is then refused as
/// larger than [`TABLE_BITS`](crate::formats::TABLE_BITS) allow.
pub(crate) fn integer(v: &f32) -> i32 {
    (f64::from(*v) * f64::from(1u32 << EMBEDDING.frac)).round() as i32
}
