//! A range of a tape in tiles as a tape of its own, which another machine can run: a pure function of the values of
//! some nodes. Nodes that only arrange vectors are repeated where they are read. Sums of terms are begun in every range
//! that has terms, and added where they are finished: the same bytes, as additions are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use crate::tape::assign::released;
use crate::tape::schedule::{Placed, Schedule};
use crate::tape::{Node, NodeId, Op, Tape};

/// The name of inputs that are values of other ranges.
const VALUE: &str = "value";

/// A range of nodes.
pub(crate) struct Part {
    pub tape: Tape,
    pub schedule: Schedule,
    /// What it reads: a node of the whole tape, and the input here.
    pub imports: Vec<(NodeId, NodeId)>,
    /// What is read of it elsewhere, or leaves the tape: a node of the whole tape, and the node here.
    pub exports: Vec<(NodeId, NodeId)>,
}

/// Whether a node only arranges vectors.
fn arranges(op: &Op) -> bool {
    matches!(op, Op::Join | Op::Cut { .. } | Op::Row { .. } | Op::Split { .. })
}

/// A tape in tiles, and how it is cut.
pub(crate) struct Cut<'a> {
    tape: &'a Tape,
    schedule: &'a Schedule,
    ranges: &'a [Range<usize>],
    /// The range of each node.
    of: Vec<usize>,
    /// By node that finishes sums, or reads them last: the last node of each range that adds to them.
    sums: BTreeMap<usize, Vec<usize>>,
    /// By node, the ranges that read it, also through nodes that arrange vectors.
    readers: Vec<BTreeSet<usize>>,
}

impl<'a> Cut<'a> {
    /// `ranges` are all nodes, in order.
    pub fn new(tape: &'a Tape, schedule: &'a Schedule, ranges: &'a [Range<usize>]) -> Cut<'a> {
        let mut of = vec![0; tape.nodes.len()];
        for (r, range) in ranges.iter().enumerate() {
            of.iter_mut().take(range.end).skip(range.start).for_each(|of| *of = r);
        }
        let mut cut = Cut { tape, schedule, ranges, of, sums: BTreeMap::new(), readers: Vec::new() };
        cut.sums =
            (0..tape.nodes.len()).filter(|&i| tape.nodes[i].op.finishes()).map(|i| (i, cut.parts_of_sums(i))).collect();
        let mut readers = vec![BTreeSet::new(); tape.nodes.len()];
        for (i, node) in tape.nodes.iter().enumerate().rev() {
            let here: BTreeSet<usize> = match arranges(&node.op) {
                true => readers[i].clone(),
                false => BTreeSet::from([cut.of[i]]),
            };
            // Sums of other ranges are read where they are finished.
            let skipped = match &node.op {
                op if op.finishes() => node.inputs.len(),
                op if op.adds() => node.inputs.len() - 1,
                _ => 0,
            };
            for id in node.inputs.iter().skip(skipped) {
                readers[id.0].extend(&here);
            }
        }
        for (finished, parts) in &cut.sums {
            for &part in parts {
                readers[part].insert(cut.of[*finished]);
            }
        }
        cut.readers = readers;
        cut
    }

    /// The last node of each range that adds to the sums that node `finished` finishes.
    fn parts_of_sums(&self, finished: usize) -> Vec<usize> {
        let mut parts: BTreeMap<usize, usize> = BTreeMap::new();
        let mut next = self.tape.nodes[finished].inputs.first().copied();
        while let Some(NodeId(i)) = next {
            parts.entry(self.of[i]).or_insert(i);
            let node = &self.tape.nodes[i];
            next = (node.inputs.len() > 1).then(|| node.inputs[0]);
        }
        parts.into_values().collect()
    }

    /// Range number `which`.
    pub fn part(&self, which: usize) -> Part {
        let range = self.ranges.get(which).cloned().unwrap_or_default();
        let tape = Tape { constants: self.tape.constants.clone(), ..Tape::default() };
        let mut made = Making { cut: self, tape, placed: Vec::new(), here: BTreeMap::new(), imports: Vec::new() };
        let mut exports = Vec::new();
        for i in range {
            let node = &self.tape.nodes[i];
            // Inputs are brought where they are read, as what arranges vectors is.
            if arranges(&node.op) || matches!(node.op, Op::Input(_)) {
                continue;
            }
            let inputs = match &self.sums.get(&i) {
                Some(parts) => parts.iter().map(|&part| made.bring(NodeId(part))).collect(),
                // Sums that another range began are begun anew.
                None if node.op.adds() => {
                    let before = node.inputs.iter().rev().nth(1).and_then(|id| made.here.get(id)).copied();
                    let x = node.inputs.last().map(|id| made.bring(*id));
                    before.into_iter().chain(x).collect()
                }
                None => node.inputs.iter().map(|id| made.bring(*id)).collect(),
            };
            let id = made.push(node, node.op.clone(), inputs, self.schedule.nodes[i].clone());
            made.here.insert(NodeId(i), id);
            if node.op == Op::Output || self.readers[i].iter().any(|&reader| reader != which) {
                exports.push((NodeId(i), id));
            }
        }
        let Making { tape, placed, imports, .. } = made;
        let mut schedule = released(&tape, placed);
        for (_, id) in &exports {
            schedule.nodes[id.0].last = None;
        }
        Part { tape, schedule, imports, exports }
    }
}

struct Making<'a> {
    cut: &'a Cut<'a>,
    tape: Tape,
    placed: Vec<Placed>,
    /// Where nodes of the whole tape are here.
    here: BTreeMap<NodeId, NodeId>,
    imports: Vec<(NodeId, NodeId)>,
}

impl Making<'_> {
    fn push(&mut self, like: &Node, op: Op, inputs: Vec<NodeId>, placed: Placed) -> NodeId {
        self.tape.nodes.push(Node { op, step: like.step, inputs, bound: like.bound, shape: like.shape });
        self.placed.push(placed);
        NodeId(self.placed.len() - 1)
    }

    /// A node of the whole tape, here: made, arranged again, or imported.
    fn bring(&mut self, id: NodeId) -> NodeId {
        if let Some(&here) = self.here.get(&id) {
            return here;
        }
        let (node, placed) = (&self.cut.tape.nodes[id.0], self.cut.schedule.nodes[id.0].clone());
        let made = if arranges(&node.op) {
            let inputs = node.inputs.iter().map(|id| self.bring(*id)).collect();
            self.push(node, node.op.clone(), inputs, placed)
        } else {
            let op = match node.op {
                Op::Input(name) => Op::Input(name),
                _ => Op::Input(VALUE),
            };
            let made = self.push(node, op, Vec::new(), placed);
            self.imports.push((id, made));
            made
        };
        self.here.insert(id, made);
        made
    }
}
