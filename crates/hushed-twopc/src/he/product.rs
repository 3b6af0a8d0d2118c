//! Leaves: sums over β of encrypted blocks times multiplier blocks.
//!
//! leaf(p, α, γ) = Σ_β ct(p, α, β) · πrhs(V_p[β, γ]), by blocks of the ciphertexts (`blocks`) where multipliers are
//! short enough for that to pay off, else by values of the whole degree (`values`). Both give the same residues, so the
//! choice does not concern the other party. Multipliers are transformed from integers as they are needed, unless they
//! are held ready.
//!
//! Every block is transformed and multiplied whatever its values: weights and shares are secret. Only the coefficients
//! that the packing leaves empty are skipped.

mod arriving;
pub(super) mod blocks;
mod leaf;
pub(super) mod values;

use super::layout::{LEAVES_TOGETHER, Layout};
use super::window::OltTiling;
pub(super) use arriving::Arriving;
use blocks::BlockInputs;
use hushed_rlwe::{Ciphertext, RlweParams};
pub(super) use leaf::{Leaf, Multiplier, erase};
use rayon::prelude::*;
use std::ops::Range;

/// The ciphertexts of the encrypted operand, in the form in which the products take them.
pub(crate) enum Inputs {
    Values(Vec<Ciphertext>),
    Blocks(BlockInputs),
    /// All leaves, made while the ciphertexts arrived.
    Leaves(Vec<Leaf>),
}

impl Inputs {
    /// No ciphertexts yet.
    pub(crate) fn new(params: &RlweParams, layout: &Layout) -> Self {
        let (tiling, limbs) = (&layout.tiling, layout.product_limbs);
        match layout.block_points() {
            Some(points) => {
                let (_, mb, _) = tiling.blocks();
                Self::Blocks(BlockInputs::new(params, tiling, limbs, points, 0..mb))
            }
            None => Self::Values(Vec::with_capacity(tiling.inputs())),
        }
    }

    /// Takes the next ciphertext.
    pub(crate) fn push(&mut self, ct: Ciphertext) {
        match self {
            Self::Values(all) => all.push(ct),
            Self::Blocks(all) => all.push(ct),
            // Complete.
            Self::Leaves(_) => {}
        }
    }

    /// How many leaves to make at once, if a response takes `response`.
    pub(crate) fn leaves_together(&self, response: usize) -> usize {
        match self {
            Self::Values(_) | Self::Leaves(_) => response,
            Self::Blocks(_) => LEAVES_TOGETHER,
        }
    }

    /// The leaves of `range`, in order.
    pub(crate) fn leaves(
        &self,
        params: &RlweParams,
        tiling: &OltTiling,
        limbs: usize,
        multiplier: &impl Multiplier,
        range: Range<usize>,
    ) -> Vec<Leaf> {
        match self {
            Self::Values(all) => {
                let ((kb, _, _), mw) = (tiling.blocks(), tiling.window().mw);
                // A leaf keeps half of its sum; leaves of one column share its multipliers.
                let together = LEAVES_TOGETHER.next_multiple_of(kb);
                let mut leaves = Vec::with_capacity(range.len());
                for first in range.clone().step_by(together) {
                    let range = first..range.end.min(first + together);
                    let sums = values::leaves(params, tiling, limbs, all, multiplier, range);
                    let made = sums.into_par_iter().map(|sum| Leaf::of_values(params, sum, mw));
                    leaves.extend(made.collect::<Vec<_>>());
                }
                leaves
            }
            Self::Blocks(all) => blocks::leaves(params, tiling, all, multiplier, range),
            Self::Leaves(all) => all[range].to_vec(),
        }
    }
}
