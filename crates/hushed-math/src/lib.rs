//! Numbers: moduli, NTT, RNS, samplers and the bit kernels of oblivious transfer; the only unsafe code.
//!
//! In: slices of words. Out: polynomials in a known domain, random streams, blocks of bits. Never: keys, what a sample
//! is for, scales, files, sockets. Everything here is a function of its arguments, except [`rng::SecretRng::from_os`]
//! and [`process::Origin`].

mod automorphism;
pub mod bits;
pub mod cache;
mod convert;
pub mod cpu;
mod error;
pub mod fit;
mod kernels;
pub mod modulus;
pub mod ntt;
pub mod poly;
pub mod primes;
pub mod process;
pub mod reference;
pub mod rng;
pub mod rns;
pub mod sample;
pub mod taint;
mod words;

pub use automorphism::Automorphism;
pub use convert::BaseConverter;
pub use error::MathError;
pub use kernels::{GemmMethod, GemmScratch, LimbGemm, PackedWeights, Pointwise, digits_limit};
pub use modulus::Modulus;
pub use ntt::NttPlan;
pub use poly::{Coeff, Eval, RnsPoly, SecretPoly, dot_eval};
pub use rns::RnsBasis;
pub use words::slab::KeepMemory;
