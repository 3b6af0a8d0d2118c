//! Where a run refreshes its vectors and how much it holds at once: the plan finds this, and a run, new or resumed,
//! follows it. Nothing here depends on weights. Spilling to disk changes no result and no operation: a plan made before
//! spilling existed reads as one that spills nothing, and keeps its hash.

use serde::{Deserialize, Serialize};

use crate::packing::products;

/// The choices of a plan. Primes are those of vectors: one more level is one more prime.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Primes of the columns that the client uploads.
    pub upload: usize,
    /// Primes of the columns when a layer's attention reads them.
    pub attention: usize,
    /// Primes of the columns when a layer's feed-forward reads them.
    pub feed_forward: usize,
    /// Primes of refreshed sums and variances, at which the inverses start.
    pub statistics: usize,
    /// Baby steps of Q·Kᵀ: more of them hold more rotated columns and need fewer rotations in all.
    pub scores_baby: usize,
    /// Baby steps of P·V.
    pub attend_baby: usize,
    /// Heads whose sums are collected, so that two share a bootstrap and eight share a call.
    pub heads_together: usize,
    /// Hidden columns of the feed-forward held at once.
    pub hidden_block: usize,
    /// Whether attention spills queries, keys, values and results of heads to disk, so that the columns are freed
    /// before the scores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spill_attention: bool,
    /// Whether the feed-forward spills its hidden columns to disk, so that the columns are freed before the sums of the
    /// second map.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spill_feed_forward: bool,
    /// Whether vectors of a decoder's residual stream, and of what its norms make of it, hold two columns each: half
    /// the memory, and one conjugation per result of each map that reads them.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub pairs: bool,
    /// Places of a row for pairs of columns ([`crate::packing::Layout`]): 1 is the layout of a batch.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub columns: usize,
    /// Most texts that share the rows of a place of a batch ([`crate::packing::SequencePacking`]): with more than 1,
    /// keys of other texts are masked, which takes a level of the scores.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub per_place: usize,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(columns: &usize) -> bool {
    *columns == 1
}

impl Placement {
    /// Everything at `top` primes, the fewest rotations, two heads and 64 hidden columns at a time: the start of the
    /// search, and what tests run. `rows` rows per text, `width` columns per head.
    #[must_use]
    pub fn plain(top: usize, rows: usize, width: usize) -> Placement {
        Placement {
            upload: top,
            attention: top,
            feed_forward: top,
            statistics: top,
            scores_baby: products::baby_steps(rows, width),
            attend_baby: products::baby_steps(rows, width),
            heads_together: 2,
            hidden_block: 64,
            spill_attention: false,
            spill_feed_forward: false,
            pairs: false,
            columns: 1,
            per_place: 1,
        }
    }

    /// Whether a run needs a folder on disk.
    #[must_use]
    pub fn spills(&self) -> bool {
        self.spill_attention || self.spill_feed_forward
    }
}
