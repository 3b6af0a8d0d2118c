//! RLWE keys, ciphertexts, key switching and their bytes.
//!
//! A ciphertext (b, a) over a prefix of the primes q_0, q_1, … has phase b + a·s = message + noise. This crate decides
//! what is secret and what is noise; it knows no slots, no scales of CKKS and no matrices. The data flow:
//!
//! ```text
//! share mod 2^ℓ ─ message::scale_up ─ encrypt_seeded ─ codec ─▶ mul_plain, automorphism … ─ response::answer ─▶ open ─▶ share
//! ```

#![forbid(unsafe_code)]

pub mod audit;
pub mod ciphertext;
pub mod codec;
pub mod encrypt;
pub mod error;
pub mod evaluator;
pub mod flooded;
#[cfg(any(test, feature = "insecure-test-parameters"))]
pub mod fuzz;
mod galois;
pub mod hybrid;
mod interleave;
pub mod keys;
pub mod message;
pub mod noise;
pub mod params;
pub mod response;
pub mod truncate;

pub use ciphertext::{Ciphertext, SeededCiphertext};
pub use error::{CodecError, ParamsError, RlweError};
pub use evaluator::{Interleaving, modulus_switch};
pub use flooded::FloodedFormat;
pub use galois::children;
pub use keys::{GaloisKeys, KeyEquation, KeySet, PublicKey, SecretKey, WITNESS_BITS};
pub use message::{PrimeScale, RingScale};
pub use noise::NoiseBound;
pub use params::{RlweLiteral, RlweParams};
pub use response::{Positions, ResponseFormat};
pub use truncate::{SeededFormat, Truncation};

#[cfg(test)]
mod tests;
