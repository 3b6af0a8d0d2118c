//! A placed tape in tiles: nodes of many vectors become nodes of a few, so that a node is a piece of work that one
//! machine does. Each vector keeps its operations, its level and its scale, and so its bytes.

use std::collections::HashMap;
use std::ops::Range;

use crate::error::FheError;
use crate::packing::PackingError;
use crate::slots::REFRESH_TILE;
use crate::tape::assign::released;
use crate::tape::functions::SlotFunction;
use crate::tape::schedule::{Placed, Schedule};
use crate::tape::{Mark, Node, NodeId, Op, Tape};

/// Vectors of a tile: as many as are refreshed together.
const TILE: usize = REFRESH_TILE;

/// A vector of a block of the tape in tiles, numbered row by row, and the primes that are read of it.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Source {
    node: NodeId,
    at: usize,
    limbs: usize,
}

/// The same computation in tiles. Nothing is spilled or shown.
///
/// # Errors
/// [`FheError::Packing`] for a tape whose operands do not fit its operations.
pub(crate) fn tiled(tape: Tape, schedule: &Schedule) -> Result<(Tape, Schedule), FheError> {
    let Tape { nodes, constants, .. } = tape;
    let tape = Tape { constants, ..Tape::default() };
    let mut tiles = Tiles { tape, placed: Vec::new(), made: Vec::new(), known: HashMap::new(), moved: HashMap::new() };
    for (node, placed) in nodes.iter().zip(&schedule.nodes) {
        let made = tiles.node(node, placed, &nodes)?;
        tiles.made.push(made);
    }
    let Tiles { tape, placed, .. } = tiles;
    let schedule = released(&tape, placed);
    Ok((tape, schedule))
}

struct Tiles {
    tape: Tape,
    placed: Vec<Placed>,
    /// By node of the whole tape: its vectors, or its sums.
    made: Vec<Made>,
    /// Nodes that only arrange vectors, by what they arrange.
    known: HashMap<(Vec<Source>, (usize, usize)), NodeId>,
    /// Nodes whose vectors went into another, and where they are in it.
    moved: HashMap<NodeId, (NodeId, usize)>,
}

enum Made {
    Vectors(Vec<Source>),
    Sums(NodeId),
}

/// Vectors of a tile and the operation on them.
struct Tile {
    range: Range<usize>,
    op: Op,
}

impl Tiles {
    fn node(&mut self, node: &Node, placed: &Placed, whole: &[Node]) -> Result<Made, FheError> {
        let (rows, columns) = node.shape;
        let count = rows * columns;
        let shape = |k: usize| node.inputs.get(k).map_or((0, 0), |id| whole[id.0].shape);
        let low = |x: Vec<Source>| x.into_iter().map(|v| Source { limbs: v.limbs.min(placed.limbs), ..v }).collect();
        let arranged = match &node.op {
            Op::Join | Op::Split { .. } | Op::Kept => Some(low(self.all(node)?)),
            Op::Cut { range } => {
                Some(self.operand(node, 0)?.get(range.clone()).ok_or(PackingError::Mismatch)?.to_vec())
            }
            Op::Row { row } => {
                let range = row * columns..(row + 1) * columns;
                Some(self.operand(node, 0)?.get(range).ok_or(PackingError::Mismatch)?.to_vec())
            }
            Op::Turn => {
                let x = self.operand(node, 0)?;
                let at = |k: usize| x.get(k % columns * rows + k / columns).copied().ok_or(PackingError::Mismatch);
                Some(low((0..count).map(at).collect::<Result<_, _>>()?))
            }
            Op::Mark { .. } if placed.refresh.is_none() => Some(low(self.operand(node, 0)?)),
            _ => None,
        };
        // A bound is declared where vectors are made.
        let marked = matches!(node.op, Op::Mark { .. });
        if let Some(x) = arranged {
            if node.bound.is_infinite() || marked {
                return Ok(Made::Vectors(x));
            }
            let id = self.arranged(node, &x, node.shape)?;
            let op = Op::Cut { range: 0..count };
            return Ok(Made::Vectors(self.push(node, placed, (op, vec![id], (1, count)))));
        }
        match &node.op {
            op if op.adds() => {
                let mut inputs = Vec::new();
                for id in &node.inputs {
                    match self.made.get(id.0).ok_or(PackingError::Mismatch)? {
                        Made::Sums(sums) => inputs.push(*sums),
                        Made::Vectors(_) => {
                            let x = self.vectors(*id)?;
                            inputs.push(self.arranged(node, &x, (1, x.len()))?);
                        }
                    }
                }
                self.push(node, placed, (node.op.clone(), inputs, node.shape));
                return Ok(Made::Sums(NodeId(self.placed.len() - 1)));
            }
            op if op.finishes() => {
                let Some(Made::Sums(sums)) = node.inputs.first().and_then(|id| self.made.get(id.0)) else {
                    return Err(PackingError::Mismatch.into());
                };
                let inputs = vec![*sums];
                return Ok(Made::Vectors(self.push(node, placed, (node.op.clone(), inputs, node.shape))));
            }
            _ => {}
        }
        let Some(tiles) = self.tiles(node) else {
            // As a whole, of operands in the shape that they had.
            let mut inputs = Vec::new();
            for (k, id) in node.inputs.iter().enumerate() {
                let x = self.vectors(*id)?;
                match node.op {
                    Op::Total => inputs.extend(self.parts(node, &x)?),
                    _ => inputs.push(self.arranged(node, &x, shape(k))?),
                }
            }
            return Ok(Made::Vectors(self.push(node, placed, (node.op.clone(), inputs, node.shape))));
        };
        let mut made = Vec::with_capacity(count);
        for Tile { range, op } in tiles {
            let mut inputs = Vec::new();
            for (k, id) in node.inputs.iter().enumerate() {
                let x = self.vectors(*id)?;
                let range = match node.op {
                    Op::Linear { .. } => 0..x.len(),
                    Op::Rotations { .. } => range.start / columns..range.end / columns,
                    Op::Pair { .. } => 2 * range.start..(2 * range.end).min(x.len()),
                    Op::Parts { .. } => range.start / 2..range.end.div_ceil(2),
                    // A vector alone is used with every vector of the first operand, or of the constants.
                    _ if x.len() == 1 && (k > 0 || count > 1) => 0..1,
                    _ => range.clone(),
                };
                let x = x.get(range).ok_or(PackingError::Mismatch)?;
                inputs.push(self.arranged(node, x, (1, x.len()))?);
            }
            let shape = match op {
                Op::Rotations { .. } => (range.len() / columns, columns),
                _ => (1, range.len()),
            };
            made.extend(self.push(node, placed, (op, inputs, shape)));
        }
        Ok(Made::Vectors(made))
    }

    /// The tiles of a node; none for one that is computed as a whole.
    fn tiles(&mut self, node: &Node) -> Option<Vec<Tile>> {
        let (rows, columns) = node.shape;
        let (lines, length, size) = match node.op {
            // A row has one distance.
            Op::Rotate { .. } => (rows, columns, TILE),
            // Whole vectors: each is decomposed once.
            Op::Rotations { .. } => (1, rows * columns, columns * (TILE / columns.max(1)).max(1)),
            _ => (1, rows * columns, TILE),
        };
        let of_line = |line: usize| {
            let (first, end) = (line * length, (line + 1) * length);
            (first..end).step_by(size.max(1)).map(move |from| from..end.min(from + size))
        };
        let ranges: Vec<Range<usize>> = (0..lines).flat_map(of_line).collect();
        let tile = |range: Range<usize>| {
            let op = self.part(node, &range)?;
            Some(Tile { range, op })
        };
        ranges.into_iter().map(tile).collect()
    }

    /// The operation on some vectors of its result; none if they cannot be computed apart from the others.
    fn part(&mut self, node: &Node, range: &Range<usize>) -> Option<Op> {
        let constants = self.tape.constants_mut();
        Some(match &node.op {
            Op::Linear { map, rows } => {
                Op::Linear { map: *map, rows: rows.start + range.start..rows.start + range.end }
            }
            Op::Scaled { numbers } => Op::Scaled { numbers: cut(&mut constants.numbers, *numbers, range) },
            Op::AddNumbers { numbers } => Op::AddNumbers { numbers: cut(&mut constants.numbers, *numbers, range) },
            Op::AddVectors { vectors } => Op::AddVectors { vectors: cut(&mut constants.vectors, *vectors, range) },
            Op::MulVectors { vectors } => Op::MulVectors { vectors: cut(&mut constants.vectors, *vectors, range) },
            Op::Apply { function } => match constants.functions.get(*function)?.cut(range) {
                None => Op::Apply { function: *function },
                Some(cut) => {
                    constants.functions.push(cut);
                    Op::Apply { function: constants.functions.len() - 1 }
                }
            },
            Op::Rotate { by } => Op::Rotate { by: vec![*by.get(range.start / node.shape.1.max(1))?] },
            Op::Parts { .. } => Op::Parts { width: range.len() },
            Op::Mul
            | Op::Add
            | Op::Sub
            | Op::Rotations { .. }
            | Op::Pair { .. }
            | Op::Real
            | Op::Conjugate
            | Op::ReadAs { .. }
            | Op::Mark { mark: Mark::Vectors }
            | Op::Output => node.op.clone(),
            _ => return None,
        })
    }

    /// All vectors of the operands.
    fn all(&self, node: &Node) -> Result<Vec<Source>, FheError> {
        let all = node.inputs.iter().map(|id| self.vectors(*id)).collect::<Result<Vec<_>, _>>()?;
        Ok(all.concat())
    }

    fn operand(&self, node: &Node, k: usize) -> Result<Vec<Source>, FheError> {
        self.vectors(*node.inputs.get(k).ok_or(PackingError::Mismatch)?)
    }

    /// The vectors of a node of the whole tape, where they are now.
    fn vectors(&self, id: NodeId) -> Result<Vec<Source>, FheError> {
        match self.made.get(id.0) {
            Some(Made::Vectors(x)) => Ok(x.clone()),
            _ => Err(PackingError::Mismatch.into()),
        }
    }

    fn push(
        &mut self,
        like: &Node,
        placed: &Placed,
        (op, inputs, shape): (Op, Vec<NodeId>, (usize, usize)),
    ) -> Vec<Source> {
        let node = NodeId(self.placed.len());
        self.tape.nodes.push(Node { op, step: like.step, inputs, bound: like.bound, shape });
        self.placed.push(placed.clone());
        (0..shape.0 * shape.1).map(|at| Source { node, at, limbs: placed.limbs }).collect()
    }

    /// A node with these vectors in this shape, for a reader.
    fn arranged(&mut self, reader: &Node, x: &[Source], shape: (usize, usize)) -> Result<NodeId, FheError> {
        let key = (x.to_vec(), shape);
        if let Some(&known) = self.known.get(&key) {
            return Ok(known);
        }
        let parts = self.parts(reader, x)?;
        let fewest = x.iter().map(|v| v.limbs).min().ok_or(PackingError::Mismatch)?;
        let limbs = |tiles: &Tiles, id: NodeId| tiles.placed[id.0].limbs;
        let fits = |tiles: &Tiles, id: NodeId| tiles.tape.nodes[id.0].shape.0 == 1 || shape.0 > 1;
        let mut made = match *parts {
            [one] if limbs(self, one) == fewest && fits(self, one) => one,
            _ => {
                let joined = self.free(reader, Op::Join, parts.clone(), (1, x.len()), fewest)?;
                let mut at = 0;
                for part in parts {
                    // Later readers of these vectors take them from here, so that they are not in memory twice.
                    if limbs(self, part) == fewest {
                        self.moved.insert(part, (joined, at));
                    }
                    at += count(&self.tape.nodes[part.0]);
                }
                joined
            }
        };
        if self.tape.nodes[made.0].shape != shape {
            made = self.free(reader, Op::Split { columns: shape.1 }, vec![made], shape, fewest)?;
        }
        if matches!(self.tape.nodes[made.0].op, Op::Join | Op::Split { .. }) {
            self.known.insert(key, made);
        }
        Ok(made)
    }

    /// Nodes whose vectors are these, one after the other.
    fn parts(&mut self, reader: &Node, x: &[Source]) -> Result<Vec<NodeId>, FheError> {
        let mut runs: Vec<(NodeId, Range<usize>)> = Vec::new();
        for v in x {
            let (mut node, mut at) = (v.node, v.at);
            while let Some(&(into, from)) = self.moved.get(&node) {
                (node, at) = (into, from + at);
            }
            match runs.last_mut() {
                Some((last, run)) if *last == node && run.end == at => run.end += 1,
                _ => runs.push((node, at..at + 1)),
            }
        }
        let mut parts = Vec::with_capacity(runs.len());
        for (node, run) in runs {
            let (rows, columns) = self.tape.nodes[node.0].shape;
            let row = (rows > 1 && run.len() == columns && run.start % columns == 0).then(|| run.start / columns);
            let (op, len, limbs) = match row {
                _ if run.len() == rows * columns => {
                    parts.push(node);
                    continue;
                }
                Some(row) => (Op::Row { row }, columns, self.placed[node.0].limbs),
                None => (Op::Cut { range: run.clone() }, run.len(), self.placed[node.0].limbs),
            };
            let key = (run.map(|at| Source { node, at, limbs }).collect::<Vec<_>>(), (1, len));
            let made = match self.known.get(&key) {
                Some(&known) => known,
                None => self.free(reader, op, vec![node], (1, len), limbs)?,
            };
            self.known.insert(key, made);
            parts.push(made);
        }
        Ok(parts)
    }

    /// Arranges vectors without computing.
    fn free(
        &mut self,
        reader: &Node,
        op: Op,
        inputs: Vec<NodeId>,
        shape: (usize, usize),
        limbs: usize,
    ) -> Result<NodeId, FheError> {
        let scale = self.placed.get(inputs.first().ok_or(PackingError::Mismatch)?.0).and_then(|placed| placed.scale);
        let placed = Placed { reads: limbs, limbs, scale, ..Placed::default() };
        let node = Node { op, step: reader.step, inputs, bound: f64::INFINITY, shape };
        self.tape.nodes.push(node);
        self.placed.push(placed);
        Ok(NodeId(self.placed.len() - 1))
    }
}

fn count(node: &Node) -> usize {
    node.shape.0 * node.shape.1
}

/// Adds a part of a list of constants; one for all vectors stays.
fn cut<T: Clone>(all: &mut Vec<Vec<T>>, which: usize, range: &Range<usize>) -> usize {
    match all.get(which).and_then(|list| list.get(range.clone())).filter(|_| all[which].len() > 1) {
        None => which,
        Some(part) => {
            let part = part.to_vec();
            all.push(part);
            all.len() - 1
        }
    }
}

impl SlotFunction {
    /// The function of some vectors of a block; none for one that is the same for all.
    fn cut(&self, range: &Range<usize>) -> Option<SlotFunction> {
        match self {
            SlotFunction::Exponential { softmax, first } => {
                Some(SlotFunction::Exponential { softmax: softmax.clone(), first: first + range.start })
            }
            SlotFunction::Places(all) if all.len() > 1 => {
                Some(SlotFunction::Places(all.get(range.clone()).unwrap_or_default().to_vec().into()))
            }
            SlotFunction::Activation { f, first, columns, degree, polynomials } => Some(SlotFunction::Activation {
                f: *f,
                first: first + range.start,
                columns: columns.get(range.clone()).unwrap_or_default().to_vec(),
                degree: *degree,
                polynomials: polynomials.clone(),
            }),
            _ => None,
        }
    }
}
