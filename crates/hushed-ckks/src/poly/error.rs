//! Why polynomials are refused.

use hushed_math::MathError;
use thiserror::Error;

/// Why a polynomial or an iteration was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum PolyError {
    /// A degree that is not possible here.
    #[error("degree {degree} must be 1 to {limit}")]
    Degree {
        /// The degree.
        degree: usize,
        /// The largest degree possible.
        limit: usize,
    },
    /// Coefficients that are not finite, or that a declared parity excludes.
    #[error("coefficient {index} is {value}: not finite, or excluded by the declared parity")]
    Coefficient {
        /// Its index or name.
        index: usize,
        /// Its value.
        value: f64,
    },
    /// An interval that is empty, not finite, or outside the range of the method.
    #[error("the range [{low}, {high}] is empty or outside of what this method converges on")]
    Range {
        /// Lower end.
        low: f64,
        /// Upper end.
        high: f64,
    },
    /// Another parameter is out of range.
    #[error("{name} = {value} must be between {low} and {high}")]
    Parameter {
        /// Its index or name.
        name: &'static str,
        /// Its value.
        value: f64,
        /// Least.
        low: f64,
        /// Greatest.
        high: f64,
    },
    /// Polynomials evaluated together do not share basis and interval, or there are none.
    #[error("polynomials on one input need one basis and one interval, and at least one polynomial")]
    MixedBases,
    /// Too few primes for the depth.
    #[error(
        "{needed} levels needed, but an operand of {limbs} primes has {available}; bootstrap it first, or start at a higher level"
    )]
    LevelsTooFew {
        /// Levels that the evaluation needs.
        needed: usize,
        /// Levels available.
        available: usize,
        /// Primes of the operand.
        limbs: usize,
    },
    /// A sum of terms whose scales differ.
    #[error("scales 2^{left:.6} and 2^{right:.6} do not match")]
    ScaleMismatch {
        /// log2 of the scale of the sum.
        left: f64,
        /// log2 of the scale of the term.
        right: f64,
    },
    /// A factor would be encoded with too few bits.
    #[error(
        "a factor would be encoded at 2^{log2:.1}, too coarse: ask for a scale nearer to the primes, or bring the input's nearer to them"
    )]
    ScaleTooSmall {
        /// log2 of the scale of the factor.
        log2: f64,
    },
    /// A scale that is not positive and finite.
    #[error("a scale is a positive finite number, not {value}")]
    InvalidScale {
        /// The number.
        value: f64,
    },
    /// The message would wrap around the modulus.
    #[error("a message of 2^{bits:.1} does not fit {limbs} primes of 2^{room:.1} in total")]
    Overflow {
        /// log2 of message times scale.
        bits: f64,
        /// Primes.
        limbs: usize,
        /// log2 of half their product.
        room: f64,
    },
    /// The fit failed.
    #[error(transparent)]
    Fit(#[from] MathError),
}
