//! CKKS: approximate arithmetic on encrypted vectors of complex numbers, with bootstrapping.
//!
//! Takes vectors and ciphertexts; returns ciphertexts with a level and a scale. It knows nothing of model matrices,
//! packings, files or sockets.
#![forbid(unsafe_code)]

pub mod bootstrap;
pub mod ciphertext;
pub mod codec;
pub mod counters;
pub mod encoding;
pub mod encrypt;
mod error;
pub mod evaluator;
mod flood;
#[cfg(any(test, feature = "insecure-test-parameters"))]
pub mod fuzz;
pub mod gemm;
pub mod keys;
#[cfg(test)]
mod known_answers;
pub mod lintrans;
pub mod maps;
pub mod noise;
pub mod params;
pub mod plaintext;
pub mod poly;
pub mod scale;
#[cfg(test)]
mod testing;

pub use ciphertext::Ciphertext;
pub use counters::{Counters, Counts};
pub use encoding::Encoder;
pub use encrypt::{Decryptor, Encryptor, Opened, Opening, PublicEncryptor, SeededCiphertext};
pub use error::{CkksError, CkksParamsError};
pub use evaluator::{Evaluator, Hoisted, Tensor};
pub use noise::Noise;
pub use num_complex::Complex64;
pub use params::{CkksLiteral, CkksParams, PRESETS, PrimeGroup, SHALLOW};
pub use plaintext::Plaintext;
pub use scale::Scale;
