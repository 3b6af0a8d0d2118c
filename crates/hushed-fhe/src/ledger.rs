//! How many levels the parts of a layer take, for calibrations. A step that lacks one refuses to run.

use crate::ops::activation::levels;

/// A linear map.
pub const MAP: usize = 1;
/// A product of two matrices: Q·Kᵀ or P·V.
const PRODUCT: usize = 1;
/// A norm, whose root is refreshed: its product with the columns.
pub const NORM: usize = 1;

/// A softmax after its exponentials: × 1/Σp, square, × 1/Σe.
const SOFTMAX: usize = 3;
/// An encoder's attention after its squares: × 1/Σe, output, norm.
pub const AFTER_SQUARES: usize = 1 + MAP + NORM;
/// The same after its exponentials.
pub const AFTER_EXPONENTIALS: usize = SOFTMAX + PRODUCT + MAP + NORM;

/// An encoder's attention in a batch, from x̂ to x̂, with an exponential of this degree.
pub fn attention(exponential: usize) -> usize {
    MAP + PRODUCT + levels(exponential) + AFTER_EXPONENTIALS
}

/// A decoder's attention in a batch: norm, maps, RoPE, scores, a sigmoid of this degree or an exponential, P·V, output.
pub fn causal_attention(degree: usize, softmax: bool) -> usize {
    let softmax = if softmax { SOFTMAX } else { 0 };
    NORM + MAP + 1 + PRODUCT + levels(degree) + softmax + PRODUCT + MAP
}

/// A feed-forward block with an activation of this degree: maps, activation, the product with the other map if it is
/// gated, last map.
pub fn feed_forward(activation: usize, gated: bool) -> usize {
    MAP + levels(activation) + usize::from(gated) + MAP
}
