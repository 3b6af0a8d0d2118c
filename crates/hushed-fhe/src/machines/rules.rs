//! The rules of the nodes of a tape in tiles.

use super::trace::{Moved, Rule, TracedNode};
use crate::tape::schedule::Placed;
use crate::tape::{Node, Op, Tape};

/// A placed node as it was counted.
pub(crate) fn traced(tape: &Tape, i: usize, placed: &Placed, visits: usize) -> Option<TracedNode> {
    let node = tape.nodes.get(i)?;
    let shape = |k: usize| node.inputs.get(k).and_then(|id| tape.nodes.get(id.0)).map_or((0, 0), |of| of.shape);
    Some(TracedNode {
        step: node.step,
        inputs: node.inputs.iter().map(|id| id.0).collect(),
        shape: node.shape,
        reads: placed.reads,
        limbs: placed.limbs,
        rule: rule(node, shape(0)),
        visits,
    })
}

fn rule(node: &Node, first: (usize, usize)) -> Rule {
    match &node.op {
        Op::Input(name) => Rule::Input(name),
        Op::SquareSum { .. } => Rule::Squares,
        op if op.adds() => Rule::Begun,
        op if op.finishes() => Rule::Finished,
        Op::DotProduct | Op::Combine { .. } | Op::CombineVectors { .. } | Op::Total => Rule::Sum,
        Op::Row { row } => Rule::Same(Moved::Range(row * first.1..(row + 1) * first.1)),
        Op::Cut { range } => Rule::Same(Moved::Range(range.clone())),
        Op::Split { .. } | Op::Join => Rule::Same(Moved::All),
        Op::Output => Rule::Output,
        _ => Rule::Own,
    }
}
