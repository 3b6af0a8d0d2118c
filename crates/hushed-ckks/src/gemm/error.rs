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
    /// A weight beyond the declared bound, a bound that is not positive, or too large for integers of 62 bits at the
    /// scale.
    #[error(
        "a weight is not finite or beyond the declared bound {bound} (2^{limit_bits:.1} as an integer, at most 2^62)"
    )]
    Bound {
        /// The bound.
        bound: f64,
        /// log2 of the bound at the scale.
        limit_bits: f64,
    },
    /// Digits that a weight cannot have.
    #[error("weights of {digits} digits: 1 to 7 are possible")]
    Digits {
        /// Digits asked for.
        digits: u32,
    },
    /// Not as many ciphertexts as columns, or not as many outputs or biases as rows.
    #[error("{found} {what} where the matrix needs {expected}")]
    Count {
        /// Inputs, outputs or biases.
        what: &'static str,
        /// By the matrix.
        expected: usize,
        /// Given.
        found: usize,
    },
    /// Ciphertexts of different lengths.
    #[error(
        "ciphertexts of {found} primes beside others of {expected}: drop all of them to one length first"
    )]
    Lengths {
        /// Primes of the first.
        expected: usize,
        /// Primes of another.
        found: usize,
    },
    /// A part of a matrix that it does not have.
    #[error("rows {start}..{end} of {available}")]
    Block {
        /// First.
        start: usize,
        /// One after the last.
        end: usize,
        /// How many there are.
        available: usize,
    },
    /// Ciphertexts, scales or constants refused.
    #[error(transparent)]
    Ckks(#[from] CkksError),
}

/// [`GemmError::Count`] unless there are as many as the matrix needs.
pub(crate) fn check_count(
    what: &'static str,
    expected: usize,
    found: usize,
) -> Result<(), GemmError> {
    if expected == found {
        return Ok(());
    }
    Err(GemmError::Count {
        what,
        expected,
        found,
    })
}
