//! The rules of a tape's nodes.

use super::trace::{Moved, Rule, TracedNode};
use crate::tape::schedule::Placed;
use crate::tape::{Mark, Node, Op, Tape};

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
        rule: rule(node, shape(0), placed),
        visits,
    })
}

fn rule(node: &Node, first: (usize, usize), placed: &Placed) -> Rule {
    match &node.op {
        Op::Input(name) => Rule::Input(name),
        Op::Linear { .. } => Rule::Linear,
        Op::LinearSum { .. } | Op::TernarySum { .. } | Op::SquareSum { .. } => Rule::Begun,
        Op::Finished | Op::TernaryFinished => Rule::Finished,
        Op::Maps { .. } => Rule::All,
        Op::Dot => Rule::Grid,
        Op::DotProduct | Op::Combine { .. } | Op::CombineVectors { .. } | Op::Total => Rule::Sum,
        Op::Mul
        | Op::Scaled { .. }
        | Op::AddNumbers { .. }
        | Op::Add
        | Op::Sub
        | Op::AddVectors { .. }
        | Op::MulVectors { .. }
        | Op::Apply { .. }
        | Op::Rotate { .. }
        | Op::Real
        | Op::Conjugate
        | Op::ReadAs { .. } => Rule::Each,
        Op::Rotations { .. } => Rule::Rows,
        Op::Pair { .. } => Rule::Pairs,
        Op::Parts { .. } => Rule::Parts,
        Op::Row { row } => Rule::Same(Moved::Range(row * first.1..(row + 1) * first.1)),
        Op::Cut { range } => Rule::Same(Moved::Range(range.clone())),
        Op::Split { .. } | Op::Join | Op::Kept => Rule::Same(Moved::All),
        Op::Output => Rule::Output,
        Op::Turn => Rule::Same(Moved::Turned),
        // Without a refresh its mask is not read.
        Op::Mark { mark } => match (placed.refresh, mark) {
            (None, _) => Rule::Same(Moved::Range(0..first.0 * first.1)),
            (Some(_), Mark::Vectors) => Rule::Each,
            (Some(_), _) => Rule::All,
        },
    }
}
