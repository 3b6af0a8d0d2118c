//! The attention of a layer: from refreshed columns to the centred columns that the next norm reads (MOAI, Algorithms
//! 2, 3, 9, 4).
//!
//! | step | primes of a vector | folded into it |
//! |---|---|---|
//! | Q, K of a head: one map of 2·dh rows, packed in pairs | l − 1 | gain and offset of the norm before; no bias of K |
//! | | | half in each: 1/√dh and the argument of the exponential |
//! | Q·Kᵀ, the real parts of m diagonals | l − 2 | padding: [`crate::ops::key_mask`] |
//! | p, y, e: [`crate::ops::softmax`] | min(l − 6, s − k) − 2 = e | |
//! | V, projected where it is used, in pairs | e | gain of the norm before; no bias |
//! | P·V | e − 1 | |
//! | × 1/Σe, on dh/2 pairs instead of m diagonals | min(e − 1, s − k') − 1 | |
//! | output, of pairs split into columns | one fewer | κ and centring of the norm after; bias of V (weights sum to 1) |
//!
//! With l = 14 levels, s = 14, k = 8 or 7 and k' ≤ 10: 14, 13, 12, 8 | 5, 4 | 3, 2, 1 or 6, 5 | 4, 3, 2.
//!
//! A head with a fixed pattern ("the previous row") is a rotation of V and two masks.
//!
//! *Memory.* Heads are computed in groups whose sums share bootstraps. A group's exponentials are held until then;
//! everything else of a head is dropped before the next. The peak is when the last head of a group computes its scores.
//! At N = 2^16, 384 columns, 12 heads in groups of two, m = 128 and 8 baby steps it is, besides the keys, 6.8 GiB of
//! columns, 2.1 of rotated keys, 1.5 of queries, their rotations and decompositions, 3 of exponentials, 2.3 of the
//! output's sums: 15.6 GiB, as counted by a test. 4 baby steps take 14.5 GiB and 1.5 times the rotations; one head at a
//! time takes 1.5 GiB less and twice the bootstraps of sums.
//!
//! [`attention_stored`] does not hold the columns or the output's sums while it computes heads: it spills all queries,
//! keys and values first, the result of each head, and those primes of the columns that the residual sum reads.

mod heads;
mod layer;
mod output;
mod source;

use crate::error::FheError;
use crate::ops::acts::{Acts, StoredActs};
use crate::ops::levels::{above, below};
use crate::slots::Slots;

pub use layer::AttentionLayer;
#[cfg(test)]
pub(crate) use layer::Maps;
#[cfg(test)]
pub(crate) use source::PROJECTED;

use layer::Run;
use output::Output;
use source::Source;

/// Returns κ·(y − mean of y) by columns, where y is the attention's output with its biases, at the scale
/// [`centred_scale`](super::norm::centred_scale) of the level it ends at.
///
/// # Errors
/// A number of heads or columns other than that of the choices or the layer; too few levels; where values are visible,
/// [`FheError::Range`] for sums outside their intervals.
pub fn attention<S: Slots>(
    on: &S,
    x: &Acts<S::Value>,
    layer: &AttentionLayer<'_, S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let run = Run::new(on, x, layer)?;
    run.all(Source::Columns(&x.columns), Output::new(&run, false)?)
}

/// As [`attention`], bit for bit, with less memory: queries, keys and values of all heads are made first and spilled,
/// so the columns are dropped before the scores. Also returns, spilled, the primes of the columns that the residual sum
/// reads.
///
/// # Errors
/// As [`attention`] and [`Slots::store`].
pub fn attention_stored<S: Slots>(
    on: &S,
    x: Acts<S::Value>,
    layer: &AttentionLayer<'_, S::Value>,
) -> Result<(Vec<S::Value>, StoredActs<S>), FheError> {
    let run = Run::new(on, &x, layer)?;
    let source = Source::stored(&run, &x.columns)?;
    // As many as the residual sum reads.
    let limbs = above(on, below(on, run.limbs.heads, 1)?)?;
    run.site("kept");
    let kept = StoredActs::new(on, x, limbs)?;
    Ok((run.all(source, Output::new(&run, true)?)?, kept))
}

#[cfg(test)]
#[path = "attention_tests.rs"]
mod tests;
