//! Errors of the products over RLWE that occur before a peer is involved.

/// A product that cannot be laid out, or inputs that do not fit the tiling.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeError {
    /// A dimension is zero or the product is too large.
    #[error(
        "no product of {batch} times {k}x{m} by {m}x{n}: dimensions must be between 1 and 2^21, results at most 2^34"
    )]
    Shape {
        /// Rows of the left matrix.
        k: usize,
        /// Inner dimension.
        m: usize,
        /// Columns of the right matrix.
        n: usize,
        /// Number of products.
        batch: usize,
    },
    /// Windows that do not fit the ring.
    #[error("window {kw}x{mw}x{nw} does not fit ring degree {degree}, or its inner size is no power of two")]
    Window {
        /// Rows.
        kw: usize,
        /// Inner size.
        mw: usize,
        /// Columns.
        nw: usize,
        /// Ring degree.
        degree: usize,
    },
    /// An operand has the wrong number of entries.
    #[error("an operand has {found} entries where {expected} were expected")]
    Operand {
        /// Number of entries that the shape requires.
        expected: usize,
        /// Entries given.
        found: usize,
    },
    /// A weight above its declared bound.
    #[error("a weight exceeds 2^{bits}, or the bound exceeds 2^30")]
    Weight {
        /// log2 of the declared bound.
        bits: u32,
    },
    /// The server encrypts, or the client answers.
    #[error("the client encrypts and the server answers, never the other way round")]
    Role,
}
