//! Where a run refreshes its vectors, and how much of it is held at once: found by the plan, and followed by the run
//! and by whoever resumes it. Nothing here follows from weights. What goes to disk changes no result and no operation:
//! a plan from before there was any reads as one that puts nothing there, and keeps its hash.

use serde::{Deserialize, Serialize};

use crate::packing::products;

/// The choices of a plan. Numbers of primes are those of vectors: a level more is a prime more.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Placement {
    /// Primes of the columns that the client sends.
    pub upload: usize,
    /// Primes of the columns when a layer's attention reads them.
    pub attention: usize,
    /// Primes of the columns when a layer's feed-forward reads them.
    pub feed_forward: usize,
    /// Primes of refreshed sums and variances: what the inverses begin with.
    pub statistics: usize,
    /// Baby steps of Q·Kᵀ: more of them hold more rotated columns, and rotate fewer in all.
    pub scores_baby: usize,
    /// Baby steps of P·V.
    pub attend_baby: usize,
    /// Heads whose sums wait for each other, so that two share a bootstrap; even, unless it is all of them.
    pub heads_together: usize,
    /// Hidden columns of the feed-forward that are held at once.
    pub hidden_block: usize,
    /// Whether attention puts queries, keys, values and results of heads on disk, so that the columns are let go of
    /// before the scores.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spill_attention: bool,
    /// Whether the feed-forward puts its hidden columns on disk, so that the columns are let go of before the sums of
    /// the second map.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub spill_feed_forward: bool,
    /// Places of a row for pairs of columns ([`crate::packing::Layout`]): 1 is the layout of a batch.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub columns: usize,
}

fn one() -> usize {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde passes references")]
fn is_one(columns: &usize) -> bool {
    *columns == 1
}

impl Placement {
    /// Everything at `top` primes, the fewest rotations, two heads and 64 hidden columns at a time: a beginning for the
    /// search, and what tests run. `rows` rows a text, `width` columns a head.
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
            columns: 1,
        }
    }

    /// Whether a run needs a folder on disk.
    #[must_use]
    pub fn spills(&self) -> bool {
        self.spill_attention || self.spill_feed_forward
    }
}
