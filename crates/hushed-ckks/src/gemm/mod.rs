//! Products of matrices of scalars with ciphertexts: out_o = Σ_i `w[o][i]`·ct_i.
//!
//! In column packing (MOAI, Algorithms 2 and 6) a linear layer is such a product, with one ciphertext a column of the
//! activations. Term by term it is bound by memory: each product and sum streams three ciphertexts. But every residue
//! of every output is an inner product of weights with the same residue of all inputs, so that the whole is a matrix
//! product modulo each prime, and can be blocked: [`ModularGemm`].
//!
//! Weights are secrets of the server. Every weight takes part in every term; nothing is skipped, and time and counters
//! depend on shapes and declared bounds only.
//!
//! [`outer`] is the product of two encrypted matrices by outer products (Orion kernels paper, §IV).

mod error;
pub mod outer;
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
