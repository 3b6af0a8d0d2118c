//! The order of nodes while the columns that a block reads are on disk: first what is made of the columns, then what is
//! made of that, last the sums that are as wide as the columns. So the columns, the projections of all heads or hidden
//! columns, and the sums are not in memory at the same time: what one phase leaves for a later one is spilled.

use std::collections::BTreeMap;

use super::schedule::Placed;
use super::{NodeId, Op, Tape};

/// Two sets of phases for each region whose columns are spilled, after that of what is before all of them.
const PHASES: usize = 3;

/// Puts the nodes of a tape in the order of their phases. Returns the phase of each node, if any columns are spilled.
pub(super) fn in_phases(tape: &mut Tape, spilled: &[bool]) -> Vec<usize> {
    let regions: Vec<NodeId> =
        tape.regions.iter().zip(spilled).filter(|(_, spilled)| **spilled).map(|(&x, _)| x).collect();
    if regions.is_empty() {
        return Vec::new();
    }
    let phases = phases(tape, &regions);
    let mut order: Vec<usize> = (0..phases.len()).collect();
    order.sort_by_key(|&i| phases[i]);
    let mut place = vec![0; order.len()];
    for (new, &old) in order.iter().enumerate() {
        place[old] = new;
    }
    let moved = |id: &mut NodeId| id.0 = place[id.0];
    tape.nodes
        .iter_mut()
        .flat_map(|node| &mut node.inputs)
        .chain(&mut tape.regions)
        .chain(&mut tape.kept)
        .chain(&mut tape.shown)
        .for_each(moved);
    let mut nodes: Vec<_> = std::mem::take(&mut tape.nodes).into_iter().map(Some).collect();
    tape.nodes.extend(order.iter().filter_map(|&old| nodes[old].take()));
    order.iter().map(|&old| phases[old]).collect()
}

fn phases(tape: &Tape, regions: &[NodeId]) -> Vec<usize> {
    let nodes = &tape.nodes;
    let size = |i: usize| nodes[i].shape.0 * nodes[i].shape.1;
    let mut phases = vec![0; nodes.len()];
    for (i, node) in nodes.iter().enumerate() {
        let begun = regions.iter().take_while(|x| x.0 < i).count();
        let before = node.inputs.iter().map(|id| phases[id.0]).max().unwrap_or(0);
        let Some(x) = begun.checked_sub(1).map(|region| regions[region]) else {
            phases[i] = before;
            continue;
        };
        let [early, middle, late] = [1, 2, 3].map(|phase| PHASES * (begun - 1) + phase);
        let from_early = node.inputs.iter().all(|id| *id == x || phases[id.0] == early);
        let enough = size(i) <= node.inputs.iter().map(|id| size(id.0)).sum();
        phases[i] = match node.op {
            Op::Linear { .. } if node.inputs.first() == Some(&x) => early,
            _ if node.op.adds() => late,
            Op::Apply { .. }
            | Op::Pair { .. }
            | Op::Join
            | Op::Cut { .. }
            | Op::Mul
            | Op::Add
            | Op::Real
            | Op::Conjugate
            | Op::ReadAs { .. }
                if from_early && enough =>
            {
                early
            }
            // Wider than what it is made of, and only sums read it; or a part of the residual sum.
            Op::Parts { .. } => late,
            _ if node.inputs.iter().any(|id| *id == x || tape.kept.contains(id)) => late,
            _ => before.max(middle),
        };
    }
    phases
}

/// What is spilled, by the node after which it is: blocks that a later phase reads, with the primes that it reads.
pub(super) fn spills(
    tape: &Tape,
    phases: &[usize],
    nodes: &[Placed],
    readers: &[Vec<usize>],
) -> BTreeMap<usize, Vec<(NodeId, usize)>> {
    let mut spills = BTreeMap::<usize, Vec<(NodeId, usize)>>::new();
    for (i, &phase) in phases.iter().enumerate() {
        let columns = tape.regions.contains(&NodeId(i));
        // What is made of the columns is of the phase after theirs.
        let here = if columns { phase + 1 } else { phase };
        let (now, later): (Vec<usize>, Vec<usize>) = readers[i].iter().partition(|&&reader| phases[reader] <= here);
        if later.is_empty() || !(columns || tape.kept.contains(&NodeId(i))) && phase % PHASES == 0 {
            continue;
        }
        let limbs = later.iter().map(|&reader| nodes[reader].reads).max().unwrap_or(nodes[i].limbs);
        let after = now.last().copied().unwrap_or(i);
        spills.entry(after).or_default().push((NodeId(i), limbs));
    }
    spills
}
