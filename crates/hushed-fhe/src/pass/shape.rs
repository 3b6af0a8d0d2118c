//! The programs that a pass accepts: post-norm encoders, each layer in two halves.

use std::ops::Range;

use hushed_model::{Block, Kind, Program, Step, StepId};

use crate::error::FheError;

/// The half of a layer that a step belongs to: a block, the sum after it and its norm.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Half {
    Attention,
    FeedForward,
}

/// The half of its layer of each step; none for steps outside layers.
pub fn halves(program: &Program) -> Vec<Option<Half>> {
    let mut halves: Vec<Option<Half>> = Vec::new();
    for step in program.steps() {
        let of = |operand: usize| {
            let edge = step.operands.get(operand)?;
            halves.get(edge.from).copied().flatten()
        };
        halves.push(match step.block {
            Block::Attention(_) => Some(Half::Attention),
            Block::FeedForward(_) => Some(Half::FeedForward),
            Block::Add => of(1),
            Block::Norm(_) => of(0),
            Block::Embed(_)
            | Block::Patches(_)
            | Block::Pool(_)
            | Block::Head(_)
            | Block::Vocabulary(_)
            | Block::Classes(_) => None,
        });
    }
    halves
}

/// Accepts post-norm encoders: a block shares levels with the sum and the norm after it.
pub fn supported(program: &Program, layer: Range<usize>) -> Result<(), FheError> {
    const SHAPE: [Kind; 6] = [
        Kind::Attention,
        Kind::Add,
        Kind::Norm,
        Kind::FeedForward,
        Kind::Add,
        Kind::Norm,
    ];
    let start = layer.start;
    let steps = program.steps().get(layer).unwrap_or_default();
    let kinds = steps.iter().map(|step| step.id.kind());
    // Operands are steps of the layer, or the step before it.
    let near = |step: &Step| step.operands.iter().all(|edge| edge.from + 1 >= start);
    match start > 0 && kinds.eq(SHAPE) && steps.iter().all(near) {
        true => Ok(()),
        false => Err(shape(
            steps.first().map_or(StepId::outside("layer"), |s| s.id),
        )),
    }
}

/// The error for a program that is no such encoder.
pub fn shape(at: StepId) -> FheError {
    FheError::Unsupported {
        what: format!("{at}: a program of this shape"),
        remedy: "encoders with a sum and a norm after each block can be run",
    }
}
