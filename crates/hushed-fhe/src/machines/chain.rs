//! A run as one tape in tiles, which can be cut anywhere: the columns that a tape reads are those that leave the one
//! before it.

use std::cell::RefCell;
use std::sync::Arc;

use hushed_ckks::Scale;

use super::tiles::tiled;
use crate::error::FheError;
use crate::packing::PackingError;
use crate::slots::Slots;
use crate::tape::encoder::COLUMNS;
use crate::tape::run::{Inputs, Place, placed};
use crate::tape::schedule::{Placed, Schedule};
use crate::tape::{Constants, Mark, NodeId, Op, Tape};

/// Keeps the tapes of a pass in place of running them.
pub(crate) struct Recording<'r, S: Slots> {
    chain: RefCell<Chain>,
    /// A vector with so many primes at this scale, in place of what a tape would make.
    stand_in: Box<dyn Fn(usize, Scale) -> S::Value + 'r>,
}

impl<'r, S: Slots> Recording<'r, S> {
    pub fn new(stand_in: impl Fn(usize, Scale) -> S::Value + 'r) -> Recording<'r, S> {
        Recording { chain: RefCell::default(), stand_in: Box::new(stand_in) }
    }

    /// Places a tape for these inputs and keeps it. Returns stand-ins for what leaves it.
    ///
    /// # Errors
    /// Those of the placement.
    pub fn keep(
        &self,
        on: &S,
        mut tape: Tape,
        inputs: &Inputs<S>,
        place: Place<'_>,
    ) -> Result<Vec<S::Value>, FheError> {
        let schedule = placed(on, &mut tape, inputs, place)?;
        let (tape, schedule) = tiled(tape, &schedule)?;
        let mut left = Vec::new();
        for (node, placed) in tape.nodes.iter().zip(&schedule.nodes).filter(|(node, _)| node.op == Op::Output) {
            let scale = placed.scale.ok_or(PackingError::Mismatch)?;
            left.extend((0..node.shape.0 * node.shape.1).map(|_| (self.stand_in)(placed.limbs, scale)));
        }
        self.chain.borrow_mut().add((tape, schedule));
        Ok(left)
    }

    pub fn finish(self) -> Chain {
        self.chain.into_inner()
    }
}

/// Tapes in tiles, one after the other.
#[derive(Default)]
pub(crate) struct Chain {
    pub tape: Tape,
    pub placed: Vec<Placed>,
    /// Where each tape ends.
    pub ends: Vec<usize>,
}

impl Chain {
    /// Adds a tape, which reads the columns that leave the one before it.
    pub fn add(&mut self, (tape, schedule): (Tape, Schedule)) {
        let (first, constants) = (self.tape.nodes.len(), Lengths::of(&self.tape.constants));
        self.tape.constants_mut().append(Arc::unwrap_or_clone(tape.constants));
        let mut columns = Vec::new();
        for (i, node) in self.tape.nodes.iter_mut().enumerate().filter(|(_, node)| node.op == Op::Output) {
            // It no longer leaves.
            node.op = Op::Join;
            columns.push(NodeId(i));
        }
        for (mut node, placed) in tape.nodes.into_iter().zip(schedule.nodes) {
            node.inputs.iter_mut().for_each(|id| id.0 += first);
            constants.shift(&mut node.op);
            let read = node.op == Op::Input(COLUMNS) && first > 0;
            if read {
                (node.op, node.inputs) = (Op::Join, columns.clone());
            }
            let reads = if read { placed.limbs } else { placed.reads };
            self.tape.nodes.push(node);
            self.placed.push(Placed { reads, ..placed });
        }
        self.ends.push(self.tape.nodes.len());
    }
}

impl Constants {
    fn append(&mut self, mut other: Constants) {
        self.maps.append(&mut other.maps);
        self.numbers.append(&mut other.numbers);
        self.vectors.append(&mut other.vectors);
        self.grids.append(&mut other.grids);
        self.functions.append(&mut other.functions);
    }
}

/// The constants that come before those of a tape.
struct Lengths {
    maps: usize,
    numbers: usize,
    vectors: usize,
    grids: usize,
    functions: usize,
}

impl Lengths {
    fn of(c: &Constants) -> Lengths {
        Lengths {
            maps: c.maps.len(),
            numbers: c.numbers.len(),
            vectors: c.vectors.len(),
            grids: c.grids.len(),
            functions: c.functions.len(),
        }
    }

    /// Names the constants of an operation by their new numbers.
    fn shift(&self, op: &mut Op) {
        match op {
            Op::Linear { map, .. } | Op::LinearSum { map, .. } | Op::TernarySum { map, .. } => *map += self.maps,
            Op::Combine { numbers } | Op::Scaled { numbers } | Op::AddNumbers { numbers } => *numbers += self.numbers,
            Op::CombineVectors { vectors } | Op::AddVectors { vectors } | Op::MulVectors { vectors } => {
                *vectors += self.vectors;
            }
            Op::Mark { mark: Mark::Statistic { mask: Some(vectors) } } => *vectors += self.vectors,
            Op::Maps { grid } => *grid += self.grids,
            Op::Apply { function } => *function += self.functions,
            Op::Input(_)
            | Op::SquareSum { .. }
            | Op::Finished
            | Op::TernaryFinished
            | Op::Dot
            | Op::DotProduct
            | Op::Mul
            | Op::Add
            | Op::Sub
            | Op::Total
            | Op::Rotate { .. }
            | Op::Rotations { .. }
            | Op::Pair { .. }
            | Op::Parts { .. }
            | Op::Real
            | Op::Conjugate
            | Op::ReadAs { .. }
            | Op::Row { .. }
            | Op::Cut { .. }
            | Op::Split { .. }
            | Op::Turn
            | Op::Join
            | Op::Kept
            | Op::Mark { .. }
            | Op::Output => {}
        }
    }
}
