//! The norms of a recorded program, and what was chosen for them.

use hushed_model::{Block, Norm, NormKind, Program, Step, StepId};

use crate::choices::{Choices, NormChoice};
use crate::error::FheError;
use crate::ops::levels::above;
use crate::slots::Slots;

/// Whether a program is recorded: an encoder, or a decoder with LayerNorm. Decoders with RMSNorm run by a pass of their
/// own ([`crate::pass::DecoderPass`]).
pub(crate) fn recorded(program: &Program) -> bool {
    program.vocabulary().is_none() || program.norms().any(|(_, norm)| norm.kind == NormKind::LayerNorm)
}

/// Whether the layers of a recorded program begin with norms: between layers is then what a norm reads, and not what
/// one makes.
pub(crate) fn begins_with_norm(program: &Program) -> bool {
    let first = program.steps().get(program.before_layers().end);
    recorded(program) && matches!(first, Some(Step { block: Block::Norm(_), .. }))
}

/// The fewest primes with which columns are sent: those of a refresh, or one level more where they are centred first.
///
/// # Errors
/// Those of levels.
pub(crate) fn least_upload<S: Slots>(on: &S, program: &Program) -> Result<usize, FheError> {
    if begins_with_norm(program) { above(on, on.floor()) } else { Ok(on.floor()) }
}

/// The first norm from step `number` on: the one that reads the sum that the step is a term of. Its number, too.
///
/// # Errors
/// [`FheError::Unsupported`] if there is none.
pub(crate) fn norm_after(program: &Program, number: usize) -> Result<(usize, &Norm), FheError> {
    let later = program.steps().iter().enumerate().skip(number);
    let mut norms = later.filter_map(|(number, step)| match &step.block {
        Block::Norm(norm) => Some((number, norm)),
        _ => None,
    });
    let id = program.steps().get(number).map_or(StepId::outside("norm"), |step| step.id);
    norms.next().ok_or_else(|| FheError::shape(id))
}

/// What was chosen for the norm with this number.
///
/// # Errors
/// A norm that the choices lack, a layer with more than two.
pub(crate) fn choice_of_norm<'c>(
    program: &Program,
    choices: &'c Choices,
    number: usize,
) -> Result<&'c NormChoice, FheError> {
    let steps = program.steps();
    let id = steps.get(number).map_or(StepId::outside("norm"), |step| step.id);
    let Some(i) = id.layer() else {
        return choices.norm.as_ref().ok_or_else(|| FheError::absent(id));
    };
    let before = steps.iter().take(number).filter(|step| step.id.layer() == Some(i));
    let layer = choices.layers.get(i).ok_or_else(|| FheError::absent(id))?;
    match before.filter(|step| matches!(step.block, Block::Norm(_))).count() {
        0 => Ok(&layer.attention_norm),
        1 => Ok(&layer.feed_forward_norm),
        _ => Err(FheError::shape(id)),
    }
}

/// κ of the norm that reads the sum that step `number` is a term of.
///
/// # Errors
/// As [`norm_after`] and [`choice_of_norm`].
pub(crate) fn kappa_after(program: &Program, choices: &Choices, number: usize) -> Result<f64, FheError> {
    let (norm, _) = norm_after(program, number)?;
    Ok(choice_of_norm(program, choices, norm)?.scale)
}
