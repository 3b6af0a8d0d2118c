//! Places a tape.

use std::collections::BTreeMap;

use hushed_ckks::poly::Arithmetic;
use sha2::{Digest, Sha256};

use super::levels::{Limits, levels};
use super::run::{Executor, Local, Work};
use super::scales::wishes;
use super::schedule::{Placed, Schedule};
use super::values::Held;
use super::{NodeId, Op, Tape};
use crate::error::FheError;
use crate::ops::levels::scale_of;
use crate::simulate::{Counts, Simulator};
use crate::slots::Slots;

/// Places a tape. `shapes` makes simulators without numbers, on which levels and scales are computed as in a run.
///
/// # Errors
/// [`FheError::Levels`] naming a step that has too few, and what the arithmetic refuses.
pub(crate) fn assign(
    tape: &Tape,
    shapes: &dyn Fn() -> Result<Simulator, FheError>,
    limits: &Limits,
) -> Result<Schedule, FheError> {
    let on = shapes()?;
    let found = levels(tape, &on, limits)?;
    let wishes = wishes(tape, &on, &found)?;
    let mut nodes: Vec<Placed> = Vec::with_capacity(tape.nodes.len());
    for level in &found {
        let refresh = level.refreshed.then_some(level.limbs);
        nodes.push(Placed { reads: level.reads, limbs: level.limbs, refresh, ..Placed::default() });
    }
    let mut rows: Vec<Vec<Option<usize>>> = vec![Vec::new(); tape.nodes.len()];
    for (i, node) in tape.nodes.iter().enumerate() {
        for id in &node.inputs {
            nodes[id.0].last = Some(i);
            rows[id.0].push(if let Op::Row { row } = node.op { Some(row) } else { None });
        }
    }
    for (placed, mut rows) in nodes.iter_mut().zip(rows) {
        rows.sort_unstable();
        placed.only_rows = rows.iter().all(Option::is_some) && rows.windows(2).all(|two| two[0] != two[1]);
    }
    // Scales, as the arithmetic rounds them.
    let mut values = inputs(tape, &on, limits)?;
    for (i, wish) in wishes.iter().enumerate() {
        if tape.nodes[i].op.chooses_scale() {
            let scale = |node: usize| nodes.get(node).and_then(|n| n.scale).unwrap_or(on.default_scale()).value();
            let wished = wish.as_ref().map_or(on.default_scale().value(), |wish| wish.value(&scale));
            nodes[i].target = Some(scale_of(wished)?);
        }
        Work { on: &on, tape, placed: &nodes }.node(i, &mut values, None)?;
        nodes[i].scale = values.get(&NodeId(i)).and_then(|made| made.vectors().first().map(|v| on.scale(v)));
    }
    let mut schedule = Schedule {
        hoists: hoists(tape),
        counts: Counts::default(),
        alive: alive(tape, &nodes),
        hash: hash(tape, &nodes),
        nodes,
    };
    let on = shapes()?;
    let mut values = inputs(tape, &on, limits)?;
    Local(&on).run(tape, &schedule, 0..tape.nodes.len(), &mut values, &mut |_, _| ())?;
    schedule.counts = on.tally().counts();
    Ok(schedule)
}

/// Shapes of the inputs.
fn inputs(tape: &Tape, on: &Simulator, limits: &Limits) -> Result<BTreeMap<NodeId, Held<Simulator>>, FheError> {
    let mut values = BTreeMap::new();
    for (i, node) in tape.nodes.iter().enumerate() {
        if let Op::Input(name) = node.op {
            let limbs = limits.inputs.get(name).copied().unwrap_or_default();
            let vectors = (0..node.shape.1).map(|_| on.vector(Vec::new(), limbs)).collect::<Result<_, _>>()?;
            values.insert(NodeId(i), Held::row(vectors));
        }
    }
    Ok(values)
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

fn alive(tape: &Tape, nodes: &[Placed]) -> u64 {
    let (mut now, mut most) = (0, 0);
    let residues = |i: usize| {
        let (rows, columns) = tape.nodes[i].shape;
        (2 * nodes[i].limbs * rows * columns) as u64
    };
    for (i, node) in tape.nodes.iter().enumerate() {
        now += residues(i);
        most = most.max(now);
        let mut inputs = node.inputs.clone();
        inputs.dedup();
        let released = inputs.into_iter().filter(|id| nodes[id.0].last == Some(i));
        now -= released.map(|id| residues(id.0)).sum::<u64>();
    }
    most
}

fn hash(tape: &Tape, nodes: &[Placed]) -> String {
    let mut hash = Sha256::new();
    for (node, placed) in tape.nodes.iter().zip(nodes) {
        let (scale, target) = (placed.scale, placed.target);
        let bits = [scale, target].map(|scale| scale.map(|scale| scale.value().to_bits()));
        let place = (placed.reads, placed.limbs, placed.refresh, bits, node.bound.to_bits());
        hash.update(format!("{} {:?} {:?} {:?} {place:?}\n", node.step, node.op, node.inputs, node.shape));
    }
    crate::hex::hex(&hash.finalize())
}
