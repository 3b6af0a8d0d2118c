//! Arithmetic: moduli, NTT, RNS, samplers and the bit kernels of oblivious transfer. Holds the unsafe code but that of
//! `hushed-device`.
//!
//! Input: slices of words. Output: polynomials in a known domain, random streams, blocks of bits. The crate knows
//! nothing of keys, the purpose of a sample, scales, files or sockets. Everything here is a function of its arguments,
//! except [`rng::SecretRng::from_os`] and [`process::Origin`].

// Much of what the layouts and the streams say is read only by kernels of that architecture.
#![cfg_attr(not(target_arch = "x86_64"), allow(dead_code, unused_imports, unused_variables))]

mod automorphism;
pub mod bits;
mod blocks;
mod convert;
mod error;
pub mod fit;
mod kernels;
pub mod machine;
pub mod modulus;
pub mod ntt;
pub mod poly;
pub mod primes;
pub mod reference;
pub mod rng;
pub mod rns;
pub mod sample;
pub mod taint;
mod words;

pub use automorphism::Automorphism;
pub use blocks::{BlockTables, FactorRoom, PartSums};
pub use convert::BaseConverter;
pub use error::MathError;
pub use kernels::{
    GemmMethod, GemmScratch, LimbGemm, PackedWeights, PointGemm, PointMatrix, Pointwise, digits_limit, product,
    product_small, round_scaled,
};
pub use machine::{cache, cpu, process};
pub use modulus::Modulus;
pub use ntt::{EveryCoefficient, NttTables};
pub use poly::{Coeff, Eval, RnsPoly, SecretPoly};
pub use rns::RnsBasis;
pub use words::room::{Lists, Room};
pub use words::slab::KeepMemory;
