//! The table of token vectors, if its owner has made it public: the client looks up its ids locally, and the lookup
//! sends nothing. What token type 1 adds is its last row, if the embedding has types.
//!
//! The rows are the same integers that the private lookup multiplies by, so both give shares with the same sum.

use std::sync::Arc;

use hushed_model::{Embedding, ModelError, StepId};

use crate::RunError;
use crate::formats::TABLE_BITS;
use crate::weights::embed::integer;

/// A public table: rows × width integers with the fraction bits of [`crate::formats::EMBEDDING`].
#[derive(Clone)]
pub struct PublicTable {
    width: usize,
    values: Arc<[i32]>,
}

/// Rows that are sent together: about one mebibyte.
pub fn rows_in_chunk(width: usize) -> usize {
    ((1 << 20) / (4 * width.max(1))).max(1)
}

impl PublicTable {
    /// Builds a table from chunks received.
    ///
    /// # Errors
    /// [`RunError::WrongTable`] if the number of values is not `rows`·`width`, or a value exceeds 2^[`TABLE_BITS`].
    pub fn new(rows: usize, width: usize, values: Vec<i32>) -> Result<PublicTable, RunError> {
        let within = |v: &i32| v.unsigned_abs() <= 1 << TABLE_BITS;
        if Some(values.len()) != rows.checked_mul(width) || !values.iter().all(within) {
            return Err(RunError::WrongTable);
        }
        Ok(PublicTable { width, values: values.into() })
    }

    /// The bytes of a server's table, chunk by chunk: little-endian integers, row by row.
    ///
    /// # Errors
    /// [`RunError::Model`] if the numbers are missing.
    pub fn chunks(e: &Embedding) -> Result<impl Iterator<Item = Vec<u8>> + use<>, RunError> {
        let size = (rows_in_chunk(e.width) * e.width).max(1);
        let at = StepId::outside("embed");
        let (numbers, last) = (e.numbers(at)?, e.type_row(at)?.to_vec());
        let chunks = (numbers.data().len() + last.len()).div_ceil(size);
        Ok((0..chunks).map(move |i| {
            let chunk = numbers.data().iter().chain(&last).skip(i * size).take(size);
            chunk.flat_map(|v| integer(v).to_le_bytes()).collect()
        }))
    }

    /// Row `id`.
    pub(crate) fn row(&self, id: u32) -> Result<&[i32], ModelError> {
        let first = id as usize * self.width;
        self.values
            .get(first..first + self.width)
            .ok_or(ModelError::TokenOutOfRange { vocabulary: self.values.len() / self.width.max(1) })
    }
}
