//! The hot loops, one file per instruction set, all with equal results.
//!
//! The order in which kernels are trusted: `reference` (u128, quadratic) checks `portable`, which checks the vector
//! kernels, on edges and on seeded random input, for exact equality.

pub(crate) mod convert;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
pub(crate) mod fma;
pub(crate) mod gemm;
#[cfg(target_arch = "x86_64")]
pub(crate) mod ifma;
mod points;
mod pointwise;
pub(crate) mod portable;
mod ring;
mod round;
pub(crate) mod sums;

pub use gemm::{GemmScratch, LimbGemm, Method as GemmMethod, PackedWeights, digits_limit};
pub(crate) use points::{LEFT, RIGHT};
pub use points::{PointGemm, PointMatrix};
pub use pointwise::Pointwise;
pub use ring::{product, product_small};
pub use round::round_scaled;

#[cfg(test)]
mod tests;
