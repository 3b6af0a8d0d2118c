//! Places a tape.

use std::collections::BTreeMap;

use sha2::{Digest, Sha256};

use super::levels::{Limits, levels};
use super::order::{in_phases, spills};
use super::scales::scales;
use super::schedule::{Placed, Schedule};
use super::{NodeId, Op, Tape};
use crate::error::FheError;
use crate::slots::Slots;

/// Places a tape; with columns on disk, its nodes get another order.
///
/// # Errors
/// [`FheError::Levels`] naming a step that has too few, and what the arithmetic refuses.
pub(crate) fn assign<S: Slots>(tape: &mut Tape, on: &S, limits: &Limits<'_>) -> Result<Schedule, FheError> {
    let phases = in_phases(tape, &limits.spilled);
    let found = levels(tape, on, limits)?;
    let mut nodes: Vec<Placed> = Vec::with_capacity(tape.nodes.len());
    for level in &found {
        let refresh = level.refreshed.then_some(level.limbs);
        nodes.push(Placed { reads: level.reads, limbs: level.limbs, refresh, ..Placed::default() });
    }
    scales(tape, on, (&found, limits), &mut nodes)?;
    let readers = readers(tape, &mut nodes);
    let spills = spills(tape, &phases, &nodes, &readers);
    Ok(Schedule { hoists: hoists(tape), nodes, spills })
}

/// The readers of each node, from which follow when it is released and whether it is taken apart.
fn readers(tape: &Tape, nodes: &mut [Placed]) -> Vec<Vec<usize>> {
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
    for (i, node) in tape.nodes.iter().enumerate() {
        for id in &node.inputs {
            readers[id.0].push(i);
        }
    }
    for (placed, readers) in nodes.iter_mut().zip(&readers) {
        (placed.last, placed.takes) = (readers.last().copied(), false);
    }
    for readers in &readers {
        for &reader in taking(tape, readers) {
            nodes[reader].takes = true;
        }
    }
    readers
}

/// The schedule of nodes that have their levels and scales: when they are released, and what is decomposed once.
pub(crate) fn released(tape: &Tape, mut nodes: Vec<Placed>) -> Schedule {
    readers(tape, &mut nodes);
    Schedule { hoists: hoists(tape), nodes, spills: BTreeMap::new() }
}

/// Those of the readers of a block that may take vectors out of it: all if each takes another row, or the last ones,
/// as far as each cuts the vectors that follow those of the one before.
fn taking<'r>(tape: &Tape, readers: &'r [usize]) -> &'r [usize] {
    let op = |&i: &usize| &tape.nodes[i].op;
    let mut rows: Vec<usize> = Vec::with_capacity(readers.len());
    rows.extend(readers.iter().map(op).filter_map(|op| if let Op::Row { row } = op { Some(*row) } else { None }));
    if rows.len() == readers.len() {
        rows.sort_unstable();
        let apart = rows.windows(2).all(|two| two[0] != two[1]);
        return if apart { readers } else { &[] };
    }
    let mut follows = usize::MAX;
    let cuts = readers.iter().rev().take_while(|reader| match op(reader) {
        Op::Cut { range } if range.end <= follows => {
            follows = range.start;
            true
        }
        _ => false,
    });
    &readers[readers.len() - cuts.count()..]
}

/// The blocks that more than one node rotates.
fn hoists(tape: &Tape) -> BTreeMap<usize, (NodeId, usize)> {
    let mut rotated: BTreeMap<NodeId, Vec<usize>> = BTreeMap::new();
    for (i, node) in tape.nodes.iter().enumerate() {
        if let (Op::Rotations { .. }, Some(&id)) = (&node.op, node.inputs.first()) {
            rotated.entry(id).or_default().push(i);
        }
    }
    let several = rotated.into_iter().filter(|(_, readers)| readers.len() > 1);
    let all = several.flat_map(|(id, readers)| {
        let last = readers.last().copied().unwrap_or_default();
        readers.into_iter().map(move |reader| (reader, (id, last)))
    });
    all.collect()
}

/// SHA-256 of the operations and their placement, in hexadecimal. With a range of nodes it names a piece of work.
pub(crate) fn hash(tape: &Tape, schedule: &Schedule) -> String {
    let mut hash = Sha256::new();
    for (node, placed) in tape.nodes.iter().zip(&schedule.nodes) {
        let (scale, target) = (placed.scale, placed.target);
        let bits = [scale, target].map(|scale| scale.map(|scale| scale.value().to_bits()));
        let place = (placed.reads, placed.limbs, placed.refresh, bits, node.bound.to_bits());
        hash.update(format!("{} {:?} {:?} {:?} {place:?}\n", node.step, node.op, node.inputs, node.shape));
    }
    hash.update(format!("{:?}", schedule.spills));
    crate::hex::hex(&hash.finalize())
}
