//! What the kernels of AES take and give.

use crate::bits::Block;
use zeroize::{Zeroize, ZeroizeOnDrop};

/// Inputs per key in a [`super::Batch`].
pub(crate) const GROUP: usize = 16;

/// The eleven round keys.
#[derive(Zeroize, ZeroizeOnDrop)]
pub(crate) struct Rounds(pub(super) [Block; 11]);

/// The eleven round keys of four public keys, round by round: four fill a register, or each is used alone.
pub(crate) type Four = [[Block; 4]; 11];

/// The tweaks of a batch: input j of group g has `first + g·group + j·input`, modulo 2^64.
#[derive(Clone, Copy)]
pub(crate) struct Tweaks {
    pub first: u64,
    pub group: u64,
    pub input: u64,
}

/// Sums of one half-tree level, see `AesKey::half_tree_level`.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct LevelSums {
    /// XOR of all left children.
    pub left: Block,
    /// XOR of all parents after the fix, which is also the XOR of all children.
    pub all: Block,
}

/// The round keys of key g.
#[cfg(target_arch = "x86_64")]
#[inline(always)]
pub(crate) fn key(keys: &[Four], g: usize) -> [Block; 11] {
    keys[g / 4].each_ref().map(|round| round[g % 4])
}

/// σ(hi ‖ lo) = (hi ⊕ lo) ‖ hi: linear, and both σ and x ↦ σ(x) ⊕ x are permutations.
#[inline(always)]
pub(crate) fn sigma(x: Block) -> Block {
    let (hi, lo) = (x.high_u64(), x.low_u64());
    Block((u128::from(hi ^ lo) << 64) | u128::from(hi))
}
