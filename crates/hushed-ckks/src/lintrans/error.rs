//! Errors in a linear map or its input.

use thiserror::Error;

/// A linear map that cannot be built or applied.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum LinTransError {
    /// A dimension is not a power of two, or exceeds the number of slots.
    #[error("dimension {given} must be a power of two up to {limit}")]
    Dimension {
        /// The dimension requested.
        given: usize,
        /// Largest dimension possible.
        limit: usize,
    },
    /// A vector whose length is not the number of columns, or a diagonal whose length does not divide it.
    #[error("{found} values given, {expected} needed (a diagonal may have any divisor of it)")]
    Length {
        /// Entries of the matrix.
        expected: usize,
        /// Entries given.
        found: usize,
    },
    /// A factorisation that does not cover each butterfly layer once.
    #[error("factors of {layers:?} layers for a transform of {total}")]
    Layers {
        /// Layers of each factor.
        layers: Vec<usize>,
        /// log2 of the number of slots.
        total: usize,
    },
    /// An encoded diagonal that does not fit 63-bit integers.
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
    /// Refused by the arithmetic layer.
    #[error(transparent)]
    Math(#[from] hushed_math::MathError),
    /// No number of special primes gives keys for this length: the parameters have none, or they are too small.
    #[error("no keys for ciphertexts of {limbs} primes: the parameters lack special primes")]
    NoGadget {
        /// Primes of the ciphertext.
        limbs: usize,
    },
    /// A ciphertext whose length the map was not prepared for, or an impossible length.
    #[error(
        "a ciphertext of {limbs} primes where {needed} are needed (the chain has {available}): drop it to that length, bootstrap it, or prepare the map for its length"
    )]
    Level {
        /// Primes of the ciphertext.
        limbs: usize,
        /// Primes needed.
        needed: usize,
        /// Primes of the chain.
        available: usize,
    },
    /// Keys or key switching were refused.
    #[error(transparent)]
    Rlwe(#[from] hushed_rlwe::RlweError),
    /// A file of diagonals of another kind or parameter set, or one that is truncated or damaged.
    #[error("stored diagonals: {0}; write the map again")]
    Codec(#[from] hushed_rlwe::CodecError),
    /// A file of diagonals whose shape is impossible under these parameters, or an attempt to write a map that was
    /// opened from a file.
    #[error(
        "stored diagonals of a shape that these parameters do not have, or a map that is itself in a file: write the map from its matrix"
    )]
    Stored,
    /// A file of diagonals could not be read or written.
    #[error("stored diagonals: {kind}")]
    File {
        /// The error kind reported by the system.
        kind: std::io::ErrorKind,
    },
}

impl From<std::io::Error> for LinTransError {
    fn from(error: std::io::Error) -> Self {
        Self::File { kind: error.kind() }
    }
}
