//! A placed tape: level, scale, refresh and release of every node, and what a run of it takes.

use std::collections::BTreeMap;

use hushed_ckks::Scale;

use super::{Node, NodeId, Op, Tape};

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
    /// It may take vectors out of its operand: nobody reads them, or what is before them, afterwards.
    pub takes: bool,
}

/// A tape's placement.
#[derive(Default)]
pub(crate) struct Schedule {
    /// By node.
    pub nodes: Vec<Placed>,
    /// By the first node that rotates it: a block that several nodes rotate, and the last of them. It is decomposed
    /// once.
    pub hoists: BTreeMap<usize, (NodeId, usize)>,
    /// By the node after which they are spilled to disk, until the next node reads them: blocks, and the primes that
    /// are kept.
    pub spills: BTreeMap<usize, Vec<(NodeId, usize)>>,
}

impl Schedule {
    /// The primes of an input that are read.
    pub fn reads(&self, tape: &Tape, name: &str) -> usize {
        let reads =
            |node: &Node| node.inputs.iter().any(|id| matches!(tape.nodes[id.0].op, Op::Input(of) if of == name));
        let readers = tape.nodes.iter().zip(&self.nodes).filter(|(node, _)| reads(node));
        readers.map(|(_, placed)| placed.reads).max().unwrap_or(0)
    }
}
