//! A dry run node by node: which of the counted operations are a node's own.

use crate::tape::Tape;
use crate::tape::schedule::Schedule;

/// A tape in tiles that was counted.
#[derive(Default)]
pub struct TracedTape {
    pub(crate) tape: Tape,
    pub(crate) schedule: Schedule,
    /// By node, visits of the tally up to its end; its own begin where those of the node before end.
    pub(crate) visits: Vec<usize>,
    /// Visits of the tally that followed the last node.
    pub(crate) end: usize,
}
