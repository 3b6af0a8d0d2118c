//! The loops where time is spent, one file an instruction set, equal results from each.
//!
//! The order in which kernels are trusted: `reference` (u128, quadratic) checks `portable`, which checks the vector
//! kernels, on edges and on seeded random input, for exact equality.

pub(crate) mod aes_ctr;
mod pointwise;
pub(crate) mod portable;

use crate::cpu::Cpu;
pub use pointwise::Pointwise;

/// Which loops run.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kernel {
    /// 64-bit words, any processor.
    Portable,
}

impl Kernel {
    /// The best kernel of `cpu` for limbs of `n` words.
    pub(crate) fn choose(_cpu: Cpu, _n: usize) -> Kernel {
        Kernel::Portable
    }
}
