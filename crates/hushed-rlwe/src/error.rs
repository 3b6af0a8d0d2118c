//! Errors of this crate: rejected parameters, invalid bytes, and misuse.

use hushed_math::MathError;
use thiserror::Error;

use crate::hybrid::KeyUse;

/// Why a parameter literal was rejected.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum ParamsError {
    /// The ring degree is not one of the degrees of the security table.
    #[error("ring degree 2^{log_n} is outside the security table (2^12 to 2^16)")]
    DegreeOutOfTable {
        /// log2 of the requested degree.
        log_n: u32,
    },
    /// The ring degree cannot be represented at all.
    #[error("ring degree 2^{log_n} is not supported")]
    UnsupportedDegree {
        /// log2 of the requested degree.
        log_n: u32,
    },
    /// No ciphertext prime was given.
    #[error("a parameter set needs at least one ciphertext prime")]
    NoCiphertextPrimes,
    /// More primes than the crate supports.
    #[error("{given} primes given, at most {limit} supported")]
    TooManyPrimes {
        /// Number of primes in the literal.
        given: usize,
        /// Largest supported number.
        limit: usize,
    },
    /// More special primes than key switching is built for.
    #[error("{given} special primes given, at most {limit} supported")]
    TooManySpecialPrimes {
        /// Number of special primes in the literal.
        given: usize,
        /// Largest supported number.
        limit: usize,
    },
    /// The same prime twice.
    #[error("prime {prime} appears twice")]
    RepeatedPrime {
        /// The prime in question.
        prime: u64,
    },
    /// Not a prime, or not 1 modulo 2N.
    #[error("{value} is not a prime congruent to 1 modulo {two_n}")]
    NotAnNttPrime {
        /// The offending value.
        value: u64,
        /// Twice the ring degree.
        two_n: u64,
    },
    /// log2(QP) exceeds what 128-bit security allows at this degree.
    #[error("log2(QP) = {log_qp:.2} exceeds the 128-bit limit {limit} at ring degree 2^{log_n}")]
    Insecure {
        /// log2 of the degree.
        log_n: u32,
        /// log2 of the product of all primes, including special ones.
        log_qp: f64,
        /// The table's limit.
        limit: f64,
    },
    /// An error of the arithmetic layer.
    #[error(transparent)]
    Math(#[from] MathError),
}

/// Why bytes were rejected. Nothing in it depends on secret data.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
pub enum CodecError {
    /// The byte count differs from what the expected parameters imply.
    #[error("{given} bytes, {expected} expected")]
    Length {
        /// Bytes received.
        given: usize,
        /// Bytes implied by the parameters.
        expected: usize,
    },
    /// The artefact, or a chunk of it, ends early.
    #[error("truncated: {given} bytes, {expected} expected")]
    Truncated {
        /// Bytes received.
        given: usize,
        /// Bytes implied by the parameters.
        expected: usize,
    },
    /// A chunk does not match its digest.
    #[error("chunk {chunk} is damaged")]
    Damaged {
        /// The number of the chunk, from 0.
        chunk: usize,
    },
    /// The list of keys is invalid, or has unexpected keys.
    #[error("keys that are not expected")]
    Keys,
    /// The artefact does not begin with this project's magic.
    #[error("not an artefact of this project")]
    Magic,
    /// Another kind of artefact.
    #[error("artefact of kind {given}, kind {expected} expected")]
    Kind {
        /// The kind in the header.
        given: u16,
        /// The kind the reader expects.
        expected: u16,
    },
    /// Another version of the format.
    #[error("format version {given}, version {expected} supported")]
    Version {
        /// The version in the header.
        given: u16,
        /// The version of this build.
        expected: u16,
    },
    /// It was made with other parameters.
    #[error("made under other parameters")]
    Parameters,
    /// A residue is not below its modulus.
    #[error("residue not below its modulus (limb {limb})")]
    Residue {
        /// Index of the limb in the polynomial.
        limb: usize,
    },
    /// A truncated coefficient is larger than any that the encoder produces.
    #[error("coefficient out of range")]
    Coefficient,
    /// Padding bits of the last byte are not zero.
    #[error("padding bits are not zero")]
    Padding,
}

/// Errors of operations on keys and ciphertexts.
#[derive(Debug, Clone, PartialEq, Error)]
pub enum RlweError {
    /// Rejected parameters.
    #[error(transparent)]
    Params(#[from] ParamsError),
    /// Invalid bytes.
    #[error(transparent)]
    Codec(#[from] CodecError),
    /// An error of the arithmetic layer.
    #[error(transparent)]
    Math(#[from] MathError),
    /// Two objects belong to different parameter sets.
    #[error("operands belong to different parameter sets")]
    IncompatibleParameters,
    /// An object has other primes than the operation needs.
    #[error("operand carries primes {given:?}, {expected:?} needed")]
    Limbs {
        /// Basis indices of the operand.
        given: Vec<usize>,
        /// Basis indices needed.
        expected: Vec<usize>,
    },
    /// The number of primes is outside 1..=available.
    #[error("{given} primes requested, {available} available")]
    LimbCount {
        /// The requested number.
        given: usize,
        /// The set's number of ciphertext primes.
        available: usize,
    },
    /// There is no key for this automorphism.
    #[error("no Galois key for X -> X^{element}")]
    MissingGaloisKey {
        /// The Galois element.
        element: usize,
    },
    /// Galois elements are the odd numbers below 2N.
    #[error("{element} is not a Galois element of ring degree {n}")]
    NotAGaloisElement {
        /// The offending exponent.
        element: usize,
        /// The ring degree.
        n: usize,
    },
    /// Key switching was requested for a parameter set without a special prime.
    #[error("the parameter set has no special prime for key switching")]
    NoSpecialPrime,
    /// No gadget with these special primes: there are too few, or one of the primes is too large for them.
    #[error("no gadget for {limbs} primes with {special} special primes")]
    Gadget {
        /// The requested number of ciphertext primes.
        limbs: usize,
        /// The requested number of special primes.
        special: usize,
    },
    /// Digits made for one key are multiplied by another, or a key is used for another purpose.
    #[error("digits and key are not of one gadget, or the key is for another use")]
    GadgetMismatch,
    /// There is no evaluation key for ciphertexts of this length.
    #[error("no key {key:?} for {limbs} primes (the longest is for {longest})")]
    MissingKey {
        /// What the key is for.
        key: KeyUse,
        /// Primes of the ciphertext.
        limbs: usize,
        /// Primes of the longest key for this use, 0 if there is none.
        longest: usize,
    },
    /// The keys to and from the sparse secret come in pairs, the former modulo q_0·p_0 only.
    #[error("the keys of the sparse secret come in pairs, the one to it for one prime and one special prime")]
    Encapsulation,
    /// Keys that are parts of others have no bytes of their own.
    #[error("keys without some primes are parts of others: write those")]
    PartsOfKeys,
    /// The sparse secret would be published at a modulus too large for this degree.
    #[error("a key to the sparse secret at N = 2^{log_n} and log2(q_0·p_0) = {bits:.1}: the limit there is {limit:?}")]
    SparseModulus {
        /// log2 of the ring degree.
        log_n: u32,
        /// log2 of q_0·p_0.
        bits: f64,
        /// The limit; `None` at degrees for which none is published.
        limit: Option<f64>,
    },
    /// The bits of a share are outside 1..=64.
    #[error("shares of {ell} bits are not supported (1 to 64)")]
    RingBits {
        /// The requested width.
        ell: u32,
    },
    /// The plaintext modulus shares a factor with the ciphertext modulus.
    #[error("plaintext modulus {t} shares a factor with the ciphertext modulus")]
    PlainModulus {
        /// The modulus.
        t: u64,
    },
    /// A slice has the wrong length.
    #[error("{given} values given, {expected} expected")]
    Count {
        /// Values given.
        given: usize,
        /// Values expected.
        expected: usize,
    },
    /// A coefficient position is outside the ring, or positions are out of order.
    #[error("positions must be strictly increasing and below {n}")]
    Positions {
        /// The ring degree.
        n: usize,
    },
    /// Flooding for the requested hiding leaves no room for residues modulo t.
    #[error("noise of 2^{noise_bits} hidden to 2^-{hiding_bits} leaves no room for residues modulo {t}")]
    NoRoomForFlood {
        /// The plaintext modulus.
        t: u64,
        /// log2 of the noise bound of the answered ciphertext.
        noise_bits: u32,
        /// The requested statistical distance, as its negative log2.
        hiding_bits: u32,
    },
    /// The noise leaves no room for a response over that ring.
    #[error("noise of 2^{noise_bits} leaves no room for {ell}-bit shares in {limbs} ciphertext primes")]
    NoRoomForResponse {
        /// The bits of a share.
        ell: u32,
        /// log2 of the noise bound of the answered ciphertext.
        noise_bits: u32,
        /// The number of primes of the answered ciphertext.
        limbs: usize,
    },
}
