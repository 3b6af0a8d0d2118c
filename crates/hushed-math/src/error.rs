//! Errors in setting up moduli, bases and transforms. Operations on values of agreed shape do not fail.

/// A set-up that this crate refuses.
#[derive(Debug, Clone, Copy, PartialEq, thiserror::Error)]
pub enum MathError {
    /// A modulus that is even, at most 2, or not below 2^50.
    #[error("modulus {value} is not an odd number between 3 and 2^50")]
    InvalidModulus {
        /// The refused value.
        value: u64,
    },
    /// A ring degree that is not a power of two between 1 and 2^20.
    #[error("ring degree {n} is not a power of two between 1 and 2^20")]
    InvalidDegree {
        /// The refused degree.
        n: usize,
    },
    /// No primitive 2n-th root of unity: the modulus is composite or not 1 modulo 2n.
    #[error(
        "modulus {value} has no number-theoretic transform of degree {n}: it must be a prime congruent to 1 modulo 2N"
    )]
    NoTransform {
        /// The modulus.
        value: u64,
        /// The ring degree.
        n: usize,
    },
    /// A residue number system with a repeated modulus, with none or with too many.
    #[error("a residue number system needs distinct moduli, at least one and at most {max}")]
    InvalidBasis {
        /// The largest number of moduli.
        max: usize,
    },
    /// A list of words whose length does not fit the polynomial.
    #[error("expected {expected} words, got {found}")]
    WrongLength {
        /// Number of words the shape needs.
        expected: usize,
        /// Number of words given.
        found: usize,
    },
    /// A residue that is not below its modulus.
    #[error("a residue of limb {limb} is not below its modulus")]
    ResidueOutOfRange {
        /// Position of the limb in the polynomial.
        limb: usize,
    },
    /// A stream, key or session of a parent process, used in a process forked from it.
    #[error("created before a fork: create streams, keys and sessions in the process that uses them")]
    Forked,
    /// An approximation that cannot be fitted: empty interval, non-finite values, too high a degree.
    #[error("cannot fit degree {degree} on [{low}, {high}]")]
    InvalidFit {
        /// The requested degree.
        degree: usize,
        /// Lower end of the interval.
        low: f64,
        /// Upper end of the interval.
        high: f64,
    },
}
