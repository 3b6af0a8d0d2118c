//! Sums of products, made while the ciphertexts arrive.
//!
//! A lookup has hundreds of ciphertexts and fewer leaves. So the ciphertexts are multiplied a few at a time, and the
//! leaves are kept instead of them: this takes less memory, and the other party goes on encrypting meanwhile.

use super::blocks::{BlockInputs, leaves};
use super::leaf::{Leaf, Multiplier};
use crate::he::layout::{ARRIVING_TOGETHER, LEAVES_TOGETHER, Layout};
use hushed_rlwe::{Ciphertext, RlweParams};

/// The sums over the ciphertexts that have arrived, for one product with one row block.
pub(crate) struct Arriving<'a, M> {
    params: &'a RlweParams,
    layout: &'a Layout,
    multiplier: &'a M,
    points: usize,
    chunk: BlockInputs,
    /// Number of ciphertexts so far.
    arrived: usize,
    sums: Vec<Leaf>,
}

impl<'a, M: Multiplier> Arriving<'a, M> {
    /// Starts with no ciphertexts. `None` if the layout keeps them ([`Layout::sums_on_arrival`]), or if multipliers are
    /// held ready, which is for all ciphertexts at once.
    pub(crate) fn new(params: &'a RlweParams, layout: &'a Layout, multiplier: &'a M) -> Option<Self> {
        let points = layout.block_points().filter(|_| layout.sums_on_arrival())?;
        if multiplier.points(0).is_some() {
            return None;
        }
        Some(Self {
            params,
            layout,
            multiplier,
            points,
            chunk: chunk(params, layout, points, 0),
            arrived: 0,
            sums: Vec::new(),
        })
    }

    /// Takes the next ciphertext.
    pub(crate) fn push(&mut self, ct: Ciphertext) {
        let (tiling, inputs) = (&self.layout.tiling, self.layout.tiling.inputs());
        self.chunk.push(ct);
        self.arrived += 1;
        if !self.arrived.is_multiple_of(ARRIVING_TOGETHER) && self.arrived < inputs {
            return;
        }
        for first in (0..tiling.leaves()).step_by(LEAVES_TOGETHER) {
            let range = first..tiling.leaves().min(first + LEAVES_TOGETHER);
            let made = leaves(self.params, tiling, &self.chunk, self.multiplier, range);
            if self.sums.len() == first {
                self.sums.extend(made);
                continue;
            }
            for (sum, leaf) in self.sums[first..].iter_mut().zip(&made) {
                sum.add_assign(self.params, leaf);
            }
        }
        if self.arrived < inputs {
            self.chunk = chunk(self.params, self.layout, self.points, self.arrived);
        }
    }

    /// All leaves, once every ciphertext is there.
    pub(crate) fn into_leaves(self) -> Vec<Leaf> {
        self.sums
    }
}

/// Inputs for the ciphertexts from number `first` on that are multiplied together.
fn chunk(params: &RlweParams, layout: &Layout, points: usize, first: usize) -> BlockInputs {
    let betas = first..layout.tiling.inputs().min(first + ARRIVING_TOGETHER);
    BlockInputs::new(params, &layout.tiling, layout.product_limbs, points, betas)
}
