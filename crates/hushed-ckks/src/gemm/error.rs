//! Errors of a matrix product.

use thiserror::Error;

use crate::error::CkksError;

/// A matrix product that cannot be prepared or computed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum GemmError {
    /// A matrix without rows or columns, or values that do not fill it.
    #[error("{found} values for a matrix of {rows} rows and {columns} columns")]
    Shape {
        /// Rows.
        rows: usize,
        /// Columns.
        columns: usize,
        /// Values given.
        found: usize,
    },
    /// A weight beyond the declared bound, or a bound that is not positive or exceeds 62-bit integers at the scale.
    #[error(
        "a weight is not finite or beyond the declared bound {bound} (2^{limit_bits:.1} as an integer, at most 2^62)"
    )]
    Bound {
        /// The bound.
        bound: f64,
        /// log2 of the bound at the scale.
        limit_bits: f64,
    },
    /// A number of digits that a weight cannot have.
    #[error("weights of {digits} digits: must be 1 to 7")]
    Digits {
        /// Digits requested.
        digits: u32,
    },
    /// The number of ciphertexts does not match the columns, or that of outputs or biases the rows.
    #[error("{found} {what} where the matrix needs {expected}")]
    Count {
        /// What was counted: inputs, outputs or biases.
        what: &'static str,
        /// Number that the matrix needs.
        expected: usize,
        /// Number given.
        found: usize,
    },
    /// Ciphertexts of different lengths.
    #[error("ciphertexts of {found} primes beside others of {expected}: drop all of them to one length first")]
    Lengths {
        /// Primes of the first.
        expected: usize,
        /// Primes of the other.
        found: usize,
    },
    /// A block outside the matrix.
    #[error("rows {start}..{end} are out of range: the matrix has {available}")]
    Block {
        /// First row.
        start: usize,
        /// One past the last row.
        end: usize,
        /// Rows available.
        available: usize,
    },
    /// Ciphertexts, scales or constants were refused.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// [`GemmError::Count`] unless there are as many as needed.
pub(crate) fn check_count(what: &'static str, expected: usize, found: usize) -> Result<(), GemmError> {
    if expected == found {
        return Ok(());
    }
    Err(GemmError::Count { what, expected, found })
}
