//! Ranges of a tape in tiles as tapes of their own, which other machines can run: pure functions of the values of some
//! nodes. Nodes that only arrange vectors are repeated where they are read, for the vectors that are read there. Sums
//! of terms are begun in every range that has terms, and added where they are finished: the same bytes, as additions
//! are exact.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use crate::tape::assign::released;
use crate::tape::schedule::{Placed, Schedule};
use crate::tape::{Node, NodeId, Op, Tape};

/// The name of inputs that are values of other ranges.
const VALUE: &str = "value";

/// A range of nodes.
pub(crate) struct Part {
    pub tape: Tape,
    pub schedule: Schedule,
    /// What it reads.
    pub imports: Vec<Crossing>,
    /// What is read of it elsewhere, or leaves the tape.
    pub exports: Vec<Crossing>,
}

/// A value that a range reads or makes for others.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Crossing {
    /// The node of the whole tape.
    pub id: NodeId,
    /// The node of the part.
    pub here: NodeId,
    /// The primes that are read of it outside the range that makes it.
    pub limbs: usize,
    /// Whether it is unfinished sums.
    pub sums: bool,
    /// The name of what enters the tape from outside, which no range makes.
    pub given: Option<&'static str>,
}

/// Whether a node only arranges vectors.
fn arranges(op: &Op) -> bool {
    matches!(op, Op::Join | Op::Cut { .. } | Op::Row { .. } | Op::Split { .. })
}

fn count(node: &Node) -> usize {
    node.shape.0 * node.shape.1
}

/// The parts of a tape in tiles; `ranges` are all nodes, in order. Sums of squares are finished in the range that
/// begins them.
pub(crate) fn parts(tape: &Tape, schedule: &Schedule, ranges: &[Range<usize>]) -> Vec<Part> {
    let cut = Cut::new(tape, schedule, ranges);
    let (mut parts, mut made): (Vec<Part>, Vec<BTreeMap<NodeId, NodeId>>) =
        (0..ranges.len()).map(|r| cut.part(r)).unzip();
    let mut read: BTreeMap<NodeId, usize> = BTreeMap::new();
    for import in parts.iter().flat_map(|part| &part.imports) {
        let most = read.entry(import.id).or_default();
        *most = import.limbs.max(*most);
    }
    for (part, made) in parts.iter_mut().zip(&mut made) {
        for (&id, &here) in &*made {
            let (node, placed) = (&tape.nodes[id.0], &schedule.nodes[id.0]);
            let limbs = match read.get(&id) {
                _ if node.op == Op::Output => placed.limbs,
                Some(&limbs) => limbs,
                None => continue,
            };
            part.schedule.nodes[here.0].last = None;
            part.exports.push(Crossing { id, here, limbs, sums: node.op.adds(), given: None });
        }
        // It stays, whole.
        let exported: BTreeSet<NodeId> = part.exports.iter().map(|export| export.here).collect();
        for (placed, node) in part.schedule.nodes.iter_mut().zip(&part.tape.nodes) {
            placed.takes &= !node.inputs.iter().any(|id| exported.contains(id));
        }
        for import in &mut part.imports {
            import.limbs = read[&import.id];
        }
    }
    parts
}

/// A tape in tiles, and how it is cut.
struct Cut<'a> {
    tape: &'a Tape,
    schedule: &'a Schedule,
    ranges: &'a [Range<usize>],
    /// The range of each node.
    of: Vec<usize>,
}

impl<'a> Cut<'a> {
    fn new(tape: &'a Tape, schedule: &'a Schedule, ranges: &'a [Range<usize>]) -> Cut<'a> {
        let mut of = vec![0; tape.nodes.len()];
        for (r, range) in ranges.iter().enumerate() {
            of.iter_mut().take(range.end).skip(range.start).for_each(|of| *of = r);
        }
        Cut { tape, schedule, ranges, of }
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

    /// Range number `which`, without exports, and its nodes that compute, here.
    fn part(&self, which: usize) -> (Part, BTreeMap<NodeId, NodeId>) {
        let range = self.ranges.get(which).cloned().unwrap_or_default();
        let tape = Tape { constants: Arc::clone(&self.tape.constants), ..Tape::default() };
        let mut making = Making { cut: self, tape, placed: Vec::new(), here: BTreeMap::new(), imports: Vec::new() };
        let mut made = BTreeMap::new();
        for i in range {
            let node = &self.tape.nodes[i];
            // Inputs are brought where they are read, as what arranges vectors is.
            if arranges(&node.op) || matches!(node.op, Op::Input(_)) {
                continue;
            }
            let inputs = match &node.op {
                op if op.finishes() => self.parts_of_sums(i).into_iter().map(|i| making.bring(NodeId(i))).collect(),
                // Sums that another range began are begun anew.
                op if op.adds() => {
                    let before = node.inputs.iter().rev().nth(1).and_then(|id| making.here.get(id)).copied();
                    let x = node.inputs.last().map(|id| making.bring(*id));
                    before.into_iter().chain(x).collect()
                }
                _ => node.inputs.iter().map(|id| making.bring(*id)).collect(),
            };
            let id = making.push(node, (node.op.clone(), inputs, node.shape), self.schedule.nodes[i].clone());
            making.here.insert(NodeId(i), id);
            made.insert(NodeId(i), id);
        }
        let Making { tape, placed, mut imports, .. } = making;
        let mut reads = vec![0; placed.len()];
        for (node, placed) in tape.nodes.iter().zip(&placed) {
            for id in &node.inputs {
                reads[id.0] = placed.reads.max(reads[id.0]);
            }
        }
        // Unfinished sums are sent whole.
        for import in imports.iter_mut().filter(|import| !import.sums) {
            import.limbs = reads[import.here.0].min(placed[import.here.0].limbs);
        }
        let schedule = released(&tape, placed);
        (Part { tape, schedule, imports, exports: Vec::new() }, made)
    }
}

struct Making<'a> {
    cut: &'a Cut<'a>,
    tape: Tape,
    placed: Vec<Placed>,
    /// Where nodes of the whole tape are here.
    here: BTreeMap<NodeId, NodeId>,
    imports: Vec<Crossing>,
}

impl Making<'_> {
    fn push(&mut self, like: &Node, (op, inputs, shape): (Op, Vec<NodeId>, (usize, usize)), placed: Placed) -> NodeId {
        self.tape.nodes.push(Node { op, step: like.step, inputs, bound: like.bound, shape });
        self.placed.push(placed);
        NodeId(self.placed.len() - 1)
    }

    /// A node of the whole tape, here: made, arranged again, or imported.
    fn bring(&mut self, id: NodeId) -> NodeId {
        if let Some(&here) = self.here.get(&id) {
            return here;
        }
        let (node, placed) = (&self.cut.tape.nodes[id.0], self.cut.schedule.nodes[id.0].clone());
        let made = match &node.op {
            Op::Cut { .. } | Op::Row { .. } if self.takes_some(node) => self.gathered(id),
            op if arranges(op) => {
                let inputs = node.inputs.iter().map(|id| self.bring(*id)).collect();
                self.push(node, (op.clone(), inputs, node.shape), placed)
            }
            op => {
                let given = if let Op::Input(name) = op { Some(*name) } else { None };
                let (sums, limbs) = (op.adds(), placed.limbs);
                let here = self.push(node, (Op::Input(given.unwrap_or(VALUE)), Vec::new(), node.shape), placed);
                self.imports.push(Crossing { id, here, limbs, sums, given });
                here
            }
        };
        self.here.insert(id, made);
        made
    }

    /// Whether a node takes some of the vectors that another arranges, which is not here.
    fn takes_some(&self, node: &Node) -> bool {
        node.inputs.iter().any(|of| arranges(&self.cut.tape.nodes[of.0].op) && !self.here.contains_key(of))
    }

    /// The vectors of a node that only arranges some, from the nodes that make them.
    fn gathered(&mut self, id: NodeId) -> NodeId {
        let (tape, node) = (self.cut.tape, &self.cut.tape.nodes[id.0]);
        let mut runs: Vec<(NodeId, Range<usize>)> = Vec::new();
        let mut bound = node.bound;
        for at in 0..count(node) {
            let (made, at) = source(tape, (id, at), &mut bound);
            match runs.last_mut() {
                Some((last, run)) if *last == made && run.end == at => run.end += 1,
                _ => runs.push((made, at..at + 1)),
            }
        }
        let mut inputs = Vec::with_capacity(runs.len());
        for (made, run) in runs {
            let (all, here) = (&tape.nodes[made.0], self.bring(made));
            if run.len() == count(all) {
                inputs.push(here);
                continue;
            }
            let Placed { limbs, scale, .. } = self.cut.schedule.nodes[made.0];
            let placed = Placed { reads: limbs, limbs, scale, ..Placed::default() };
            let (shape, op) = ((1, run.len()), Op::Cut { range: run });
            inputs.push(self.push(node, (op, vec![here], shape), placed));
        }
        let like = Node { op: Op::Join, step: node.step, inputs: Vec::new(), bound, shape: node.shape };
        self.push(&like, (Op::Join, inputs, node.shape), self.cut.schedule.nodes[id.0].clone())
    }
}

/// The node that makes a vector of a node, and its number there; on the way, the least bound on it.
fn source(tape: &Tape, (mut id, mut at): (NodeId, usize), bound: &mut f64) -> (NodeId, usize) {
    loop {
        let node = &tape.nodes[id.0];
        let input = |k: usize| node.inputs.get(k).copied();
        let next = match &node.op {
            Op::Join => {
                let mut found = None;
                for &input in &node.inputs {
                    let vectors = count(&tape.nodes[input.0]);
                    if at < vectors {
                        found = Some(input);
                        break;
                    }
                    at -= vectors;
                }
                found
            }
            Op::Cut { range } => {
                at += range.start;
                input(0)
            }
            Op::Row { row } => {
                at += row * node.shape.1;
                input(0)
            }
            Op::Split { .. } => input(0),
            _ => None,
        };
        match next {
            Some(next) => {
                *bound = bound.min(node.bound);
                id = next;
            }
            None => return (id, at),
        }
    }
}
