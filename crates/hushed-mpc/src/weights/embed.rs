//! The tables of token and position vectors as integers.

use std::sync::Arc;

use hushed_model::{Embedding, StepId, here};

use crate::RunError;
use crate::formats::EMBEDDING;
use crate::lookup::Table;

/// Applies `of` to the table's numbers, which are read now if they are stored, in two parts: the last row of a table
/// with token types is apart.
pub(crate) fn of_numbers<T>(e: &Embedding, table: Table, of: impl FnOnce([&[f32]; 2]) -> T) -> Result<T, RunError> {
    let at = StepId::outside("embed");
    let (numbers, last) = match table {
        Table::Tokens | Table::PublicTokens => (e.numbers(at)?, e.type_row(at)?),
        Table::Positions => (Arc::clone(here(at, &e.offsets)?), &[][..]),
    };
    let numbers = numbers.data();
    Ok(of([numbers.get(..table.rows(e) * e.width).unwrap_or(numbers), last]))
}

/// A table entry with [`EMBEDDING`]'s fraction bits. Beyond 32 bits it saturates, and is then rejected as larger than
/// [`TABLE_BITS`](crate::formats::TABLE_BITS) allow.
pub(crate) fn integer(v: &f32) -> i32 {
    (f64::from(*v) * f64::from(1u32 << EMBEDDING.frac)).round() as i32
}
