//! Errors of this crate. Each names the levels and scales involved, and what to do.

use hushed_math::MathError;
use hushed_rlwe::{CodecError, ParamsError, RlweError};
use thiserror::Error;

use crate::lintrans::LinTransError;
use crate::poly::PolyError;

/// Why a parameter literal was refused.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CkksParamsError {
    /// A group of primes of a size that the kernels do not support, or of which the ring has too few.
    #[error(
        "cannot find {count} primes of {bits} bits: primes have 20 to 50 bits, and the ring must have enough of them"
    )]
    PrimeGroup {
        /// Bits of each prime.
        bits: u32,
        /// How many.
        count: usize,
    },
    /// Bootstrapping needs primes for all of SlotsToCoeffs, EvalMod and CoeffsToSlots; levels alone need none.
    #[error("stc {stc}, eval_mod {eval_mod}, cts {cts} primes: either all of them or none")]
    PartialBootstrap {
        /// Primes of SlotsToCoeffs.
        stc: usize,
        /// Primes of EvalMod.
        eval_mod: usize,
        /// Primes of CoeffsToSlots.
        cts: usize,
    },
    /// The modulus that the ephemeral sparse key would see is too large.
    #[error("q0·p0 has {bits:.1} bits, the ephemeral key of weight 32 may see {limit}")]
    EphemeralModulus {
        /// log2 of q0·p0.
        bits: f64,
        /// The limit; 0 at degrees for which none is published.
        limit: f64,
    },
    /// Bootstrapping would too often wrap a coefficient.
    #[error(
        "range K = {range} at weight {weight} fails with probability 2^{log2_failure:.1} per bootstrap; at most 2^-100 is allowed"
    )]
    FailureBound {
        /// K.
        range: u32,
        /// Hamming weight of the ephemeral secret.
        weight: u32,
        /// log2 of the failure probability.
        log2_failure: f64,
    },
    /// No preset has this name.
    #[error("unknown preset; available: {available:?}")]
    UnknownPreset {
        /// The names.
        available: &'static [&'static str],
    },
    /// Refused by the RLWE layer: security, degree or primes.
    #[error(transparent)]
    Rlwe(#[from] ParamsError),
}

/// Why an operation failed.
#[derive(Debug, Clone, PartialEq, Error)]
#[non_exhaustive]
pub enum CkksError {
    /// Refused parameters.
    #[error(transparent)]
    Params(#[from] CkksParamsError),
    /// Not a positive finite number.
    #[error("a scale is a positive finite number, not {value}")]
    InvalidScale {
        /// The number.
        value: f64,
    },
    /// Operands whose scales differ by more than a relative 2^-40.
    #[error(
        "{operation}: scales 2^{left:.6} and 2^{right:.6} do not match; multiply one side by 1 at the scale that makes up the difference, then rescale"
    )]
    ScaleMismatch {
        /// The operation.
        operation: &'static str,
        /// log2 of the left operand's scale.
        left: f64,
        /// log2 of the right operand's scale.
        right: f64,
    },
    /// Too few primes left.
    #[error(
        "{operation}: a ciphertext of {limbs} primes, at least {needed} needed; bootstrap it first, or start at a higher level"
    )]
    LevelTooLow {
        /// The operation.
        operation: &'static str,
        /// Primes available.
        limbs: usize,
        /// Primes needed.
        needed: usize,
    },
    /// No primes, or more than there are.
    #[error("{operation}: {limbs} primes requested, must be 1 to {available}")]
    LimbCount {
        /// The operation.
        operation: &'static str,
        /// Primes requested.
        limbs: usize,
        /// Primes available.
        available: usize,
    },
    /// A message at this scale would not fit the modulus.
    #[error(
        "no room for a message at the scale 2^{scale:.6} under {limbs} primes of {modulus_bits:.1} bits in total; lower the scale or use more primes"
    )]
    ScaleTooLarge {
        /// log2 of the scale.
        scale: f64,
        /// Primes.
        limbs: usize,
        /// log2 of their product.
        modulus_bits: f64,
    },
    /// An operand made under another parameter set.
    #[error("{operation}: operand made under another parameter set; encode and encrypt it again")]
    OtherParameters {
        /// The operation.
        operation: &'static str,
    },
    /// More values than slots or coefficients.
    #[error("{given} values given, at most {slots} fit")]
    TooManyValues {
        /// Values given.
        given: usize,
        /// Slots or coefficients available.
        slots: usize,
    },
    /// The number of values that repeat over the slots must be a power of two.
    #[error("{given} values cannot repeat over {slots} slots: give a power of two of them")]
    NotPeriodic {
        /// Values given.
        given: usize,
        /// Slots.
        slots: usize,
    },
    /// A value that is not finite, or too large for the scale.
    #[error("a value is not finite, or 2^120 or more at the scale 2^{scale:.6}")]
    ValueOutOfRange {
        /// log2 of the scale.
        scale: f64,
    },
    /// An operation that needs evaluation keys, on an evaluator without keys.
    #[error("{operation} needs evaluation keys; create the evaluator with them")]
    NoKeys {
        /// The operation.
        operation: &'static str,
    },
    /// The key owner made no key for this rotation, or only for shorter ciphertexts.
    #[error(
        "{operation}: no key for a rotation by {steps} of {limbs} primes (the longest is for {longest}); add it to the key specs, or drop primes first"
    )]
    MissingRotation {
        /// The operation.
        operation: &'static str,
        /// Slots to rotate by.
        steps: i64,
        /// Primes of the ciphertext.
        limbs: usize,
        /// Primes of the longest key for this rotation, 0 if there is none.
        longest: usize,
    },
    /// No key for conjugation or relinearisation, or only for shorter ciphertexts.
    #[error(
        "{operation}: no key for {limbs} primes (the longest is for {longest}); add it to the key specs, or drop primes first"
    )]
    MissingKey {
        /// The operation.
        operation: &'static str,
        /// Primes of the ciphertext.
        limbs: usize,
        /// Primes of the longest key, 0 if there is none.
        longest: usize,
    },
    /// The key has reached its limit on decryptions.
    #[error(
        "this key has decrypted {limit} times, its limit; make a new key: each published result reveals something about it"
    )]
    DecryptionsSpent {
        /// The limit.
        limit: u64,
    },
    /// Flooding for no more decryptions than the key has already made.
    #[error(
        "noise for {decryptions} decryptions was requested, but this key has already made that many; state the total number of decryptions, or make a new key"
    )]
    FloodingSpent {
        /// Decryptions that the noise was requested for.
        decryptions: u64,
    },
    /// Flooding that hides too little.
    #[error(
        "flooding with {security} bits of security was requested, and at least {least} are needed to hide the error"
    )]
    FloodingTooWeak {
        /// Bits requested.
        security: u32,
        /// Fewest bits.
        least: u32,
    },
    /// Flooding that leaves no message.
    #[error(
        "flooding costs {cost_bits:.1} bits and leaves {left_bits:.1} of precision; ask for less or compute with more"
    )]
    FloodingTooLarge {
        /// Bits that flooding costs.
        cost_bits: f64,
        /// Bits left after the binary point.
        left_bits: f64,
    },
    /// The error of a ciphertext may have reached the modulus.
    #[error(
        "the error may have {error_bits:.1} bits by its bound, the modulus has {modulus_bits:.1}: rescale earlier, or keep more primes"
    )]
    ErrorOutgrown {
        /// log2 of the bound, in integers.
        error_bits: f64,
        /// log2 of the modulus.
        modulus_bits: f64,
    },
    /// The operation needs the error of this ciphertext, which is unknown or unbounded.
    #[error(
        "{operation}: this ciphertext carries no bound on its error (after a bootstrap or from a file there is none); state one with Noise::with_norm if it is known"
    )]
    UnknownError {
        /// The operation.
        operation: &'static str,
    },
    /// A polynomial, an iteration or its range was refused.
    #[error(transparent)]
    Poly(#[from] PolyError),
    /// A chain without primes for a bootstrap, or with fewer or more EvalMod primes than its polynomial needs.
    #[error(
        "EvalMod needs {needed} levels, the chain has {available} for it: take parameters made for bootstrapping, or another degree, number of doublings or arcsine"
    )]
    BootstrapLevels {
        /// Levels of the polynomial.
        needed: usize,
        /// Primes that the chain has for EvalMod.
        available: usize,
    },
    /// A message larger than a bootstrap can carry at this scale.
    #[error(
        "a message of up to {magnitude:.3} at the scale 2^{scale:.6}: a bootstrap carries real and imaginary parts up to {limit:.3} there; lower the scale, divide the message, or state its true range"
    )]
    BootstrapRange {
        /// Bound on the modulus of the slots.
        magnitude: f64,
        /// Largest real or imaginary part that fits.
        limit: f64,
        /// log2 of the message's scale.
        scale: f64,
    },
    /// A linear map refused its matrix or its input.
    #[error(transparent)]
    LinTrans(#[from] LinTransError),
    /// Keys, ciphertexts or key switching were refused.
    #[error(transparent)]
    Rlwe(#[from] RlweError),
    /// Bytes were refused.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// Refused by the arithmetic layer.
    #[error(transparent)]
    Math(#[from] MathError),
}
