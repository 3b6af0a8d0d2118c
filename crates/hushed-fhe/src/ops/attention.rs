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
//! With the columns on disk it holds neither them nor the output's sums while it computes heads: all queries, keys and
//! values are made first, and are on disk with the result of each head and those primes of the columns that the
//! residual sum reads (`tape/order.rs`).
//!
//! It is recorded in `tape/attention.rs`; here are the linear maps.

use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Attention, Heads, Linear, StepId, same};

use crate::error::FheError;
use crate::ops::acts::{centred_output, reading};
use crate::ops::softmax::Softmax;
use crate::slots::Slots;

/// Rows of the query and key maps applied at a time: an even number, as their results are paired.
pub(crate) const PROJECTED: usize = 32;

/// The maps of a layer, with gains and offsets folded in.
pub(crate) struct Maps {
    pub query: Arc<LinearMap>,
    /// Without its bias, which changes no softmax.
    pub key: Arc<LinearMap>,
    /// Without its bias, which is in the output's bias.
    pub value: Arc<LinearMap>,
    pub output: Arc<LinearMap>,
}

impl Maps {
    /// The maps for columns with these gains and offsets.
    pub fn new<S: Slots>(
        on: &S,
        at: StepId,
        columns: (&[f64], &[f64]),
        layer: &Attention,
        kappa: f64,
    ) -> Result<Maps, FheError> {
        let inner = layer.heads.count * layer.heads.width;
        let folded = |part: &'static str, w: &Linear| reading(on, at.part(part), w, columns);
        let unbiased =
            |part: &'static str, w: &Linear| on.map(at.part(part), || Ok(LinearMap { bias: None, ..folded(part, w)? }));
        let query = on.map(at.part("query"), || folded("query", &layer.query))?;
        let key = unbiased("key", &layer.key)?;
        let value = unbiased("value", &layer.value)?;
        let output = on.map(at.part("output"), || {
            let through = folded("value", &layer.value)?.bias.unwrap_or_default();
            centred_output(on, at.part("output"), &layer.output, kappa, &through)
        })?;
        let at = at.part("output");
        for map in [&query, &key, &value] {
            same(at, "columns of all heads", map.rows, inner)?;
        }
        same(at, "columns of all heads", layer.output.inputs, inner)?;
        Ok(Maps { query, key, value, output })
    }

    /// The map of the queries and keys of head `h`, 1/√dh and the argument of the exponential folded in.
    pub fn query_key(&self, heads: &Heads, h: usize, softmax: &Softmax) -> LinearMap {
        let (factor, _) = softmax.argument();
        let range = h * heads.width..(h + 1) * heads.width;
        // Each takes the square root of the factor, so that one bound holds for both.
        let half = (factor * heads.scale.abs()).sqrt();
        let query = self.query.rows(range.clone()).times(half.copysign(heads.scale));
        LinearMap::stacked(vec![query, self.key.rows(range).times(half)]).bounded()
    }

    /// The map of the values of some heads.
    pub fn values(&self, width: usize, heads: &[usize]) -> LinearMap {
        let maps = heads.iter().map(|&h| self.value.rows(h * width..(h + 1) * width));
        LinearMap::stacked(maps.collect()).bounded()
    }
}
