//! What products are made from and what they give: multipliers in the clear, and leaves.

use hushed_math::{Coeff, PointMatrix, RnsPoly};
use hushed_rlwe::Ciphertext;

/// The matrix in the clear, cut into blocks.
pub(crate) trait Multiplier: Sync {
    /// Writes the coefficients of πrhs of block (β, γ) of product `p`: the first [`crate::he::encode::right_prefix`]
    /// ones.
    fn block(&self, p: usize, beta: usize, gamma: usize, out: &mut [i64]);

    /// The block's transform modulo prime `limb`, where it is held ready.
    fn values(&self, _p: usize, _beta: usize, _gamma: usize, _limb: usize) -> Option<&[u64]> {
        None
    }

    /// All blocks of all products modulo prime `limb`, γ by β, by their values at the points of blocks, where they are
    /// held ready.
    fn points(&self, _limb: usize) -> Option<&PointMatrix> {
        None
    }
}

/// A sum of products.
pub(crate) enum Leaf {
    Values(Ciphertext),
    /// By coefficients, of b only those at multiples of mw, for each prime: the others are never sent, and what they
    /// make of the phase the tree cancels as it does the rest of what is not wanted.
    Coefficients {
        b: Vec<Vec<u64>>,
        a: RnsPoly<Coeff>,
    },
}
