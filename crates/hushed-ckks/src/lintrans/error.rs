//! Errors of a linear map or its input.

use thiserror::Error;

/// A linear map that cannot be built or applied.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LinTransError {
    /// Dimensions are powers of two, at most the number of slots.
    #[error("a dimension of {given}: a power of two up to {limit} is needed")]
    Dimension {
        /// What was asked for.
        given: usize,
        /// Largest possible.
        limit: usize,
    },
    /// A vector of another length than the matrix has columns, or a diagonal that does not divide it.
    #[error("{found} values where {expected}, or for a diagonal a divisor of it, are needed")]
    Length {
        /// Entries of the matrix.
        expected: usize,
        /// Entries given.
        found: usize,
    },
    /// A factorisation that does not cover each layer of butterflies once.
    #[error("factors of {layers:?} layers for a transform of {total}")]
    Layers {
        /// Layers of each factor.
        layers: Vec<usize>,
        /// log2 of the number of slots.
        total: usize,
    },
    /// An encoded diagonal beyond what integers of 63 bits hold.
    #[error(
        "a diagonal at the scale 2^{scale_bits:.1} has coefficients of 2^62 or more, or is not finite; lower the scale"
    )]
    Overflow {
        /// log2 of the scale.
        scale_bits: f64,
    },
    /// A matrix without diagonals.
    #[error("a matrix without diagonals")]
    Empty,
    /// The arithmetic layer refused.
    #[error(transparent)]
    Math(#[from] hushed_math::MathError),
    /// No number of special primes makes keys for this length: the parameters have none, or too small ones.
    #[error("no keys for ciphertexts of {limbs} primes: the parameters lack special primes")]
    NoGadget {
        /// Primes of the ciphertext.
        limbs: usize,
    },
    /// A ciphertext of another length than the map was prepared for, or a length that does not exist.
    #[error(
        "a ciphertext of {limbs} primes where {needed} are needed (the chain has {available}): drop it to that length, bootstrap it, or prepare the map for its length"
    )]
    Level {
        /// Primes that there are.
        limbs: usize,
        /// Primes that are needed.
        needed: usize,
        /// Primes of the chain.
        available: usize,
    },
    /// Keys or key switching refused.
    #[error(transparent)]
    Rlwe(#[from] hushed_rlwe::RlweError),
    /// A file of diagonals that is of another kind or parameter set, truncated or damaged.
    #[error("stored diagonals: {0}; write the map again")]
    Codec(#[from] hushed_rlwe::CodecError),
    /// A file of diagonals whose shape no map has under these parameters, or a map of such a file that is to be written
    /// again.
    #[error(
        "stored diagonals of a shape that these parameters do not have, or a map that is itself in a file: write the map from its matrix"
    )]
    Stored,
    /// A file of diagonals could not be read or written.
    #[error("stored diagonals: {kind}")]
    File {
        /// What the system said.
        kind: std::io::ErrorKind,
    },
}

impl From<std::io::Error> for LinTransError {
    fn from(error: std::io::Error) -> Self {
        Self::File { kind: error.kind() }
    }
}
