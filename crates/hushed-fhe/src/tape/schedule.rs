//! A placed tape: level, scale, refresh and release of every node, and what a run of it takes.

use std::collections::BTreeMap;

use hushed_ckks::{CkksParams, Scale};

use super::NodeId;
use crate::plan::keys::KeyDemand;
use crate::plan::{Prices, Timetable};
use crate::simulate::Counts;

/// Where a node runs.
#[derive(Clone, Debug, Default, PartialEq)]
pub(crate) struct Placed {
    /// Primes of its operands that it reads.
    pub reads: usize,
    /// Primes of its result.
    pub limbs: usize,
    /// The scale that it is asked for, if it can choose.
    pub target: Option<Scale>,
    /// The scale of its result.
    pub scale: Option<Scale>,
    /// For a mark where vectors are refreshed, the primes they get.
    pub refresh: Option<usize>,
    /// The last node that reads it: its vectors are released then.
    pub last: Option<usize>,
    /// All that read it take one row each, and no two the same.
    pub only_rows: bool,
}

/// A tape's placement, and what a run of it takes.
pub(crate) struct Schedule {
    /// By node.
    pub nodes: Vec<Placed>,
    /// By the first node that rotates it: a block that several nodes rotate, and the last of them. It is decomposed
    /// once.
    pub hoists: BTreeMap<usize, (NodeId, usize)>,
    /// Operations, and the most that is in memory.
    pub counts: Counts,
    /// The most residues of nodes that are alive at once, without what a node needs while it runs.
    pub alive: u64,
    /// SHA-256 of the operations and their placement, in hexadecimal. With a range of nodes it names a piece of work.
    pub hash: String,
}

impl Schedule {
    /// The keys that a run needs.
    pub fn keys(&self, params: &CkksParams) -> KeyDemand {
        KeyDemand::of(params, &self.counts)
    }

    /// Core-seconds at these prices.
    pub fn seconds(&self, params: &CkksParams, prices: &Prices) -> f64 {
        Timetable::new(&self.counts, params, prices).seconds()
    }
}
