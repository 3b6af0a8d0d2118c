//! Products of scalar matrices with ciphertexts: out_o = Σ_i `w[o][i]`·ct_i.
//!
//! In column packing (MOAI, Algorithms 2 and 6) a linear layer is such a product, with one ciphertext per column of the
//! activations. Done term by term it is memory-bound: each product and sum streams three ciphertexts. But each residue
//! of each output is an inner product of weights with the same residue of all inputs, so the whole is a matrix product
//! modulo each prime, and can be blocked: [`ModularGemm`].
//!
//! Weights are secrets of the server. No term is skipped for its weight, and time and counters depend only on shapes
//! and declared bounds.

mod error;
mod product;
mod stream;
mod weights;

#[cfg(test)]
mod tests;

pub use error::GemmError;
pub(crate) use error::check_count;
pub use product::ModularGemm;
pub use stream::{MemorySource, Part, Shape, Sink, Source, Strip};
pub use weights::GemmWeights;
