//! The norms of a recorded program, and what was chosen for them.

use hushed_model::{Block, Norm, NormKind, Program, Step, StepId};

use crate::choices::{Choices, DecoderLayerChoice, NormChoice};
use crate::error::FheError;
use crate::ops::levels::above;
use crate::slots::Slots;

/// Whether a program is a decoder with RMSNorm, whose norms ignore no mean and whose rows of padding stay zeros.
pub(crate) fn has_rms_norms(program: &Program) -> bool {
    program.vocabulary().is_some() && program.norms().all(|(_, norm)| norm.kind != NormKind::LayerNorm)
}

/// Whether the layers of a program begin with LayerNorms: between layers is then what a norm reads, and not what one
/// makes.
pub(crate) fn begins_with_norm(program: &Program) -> bool {
    let first = program.steps().get(program.before_layers().end);
    !has_rms_norms(program) && matches!(first, Some(Step { block: Block::Norm(_), .. }))
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
        let norm = choices.decoder.as_ref().map(|decoder| &decoder.norm).or(choices.norm.as_ref());
        return norm.ok_or_else(|| FheError::absent(id));
    };
    let norms = match &choices.decoder {
        Some(decoder) => decoder.layers.get(i).map(|layer| [&layer.attention_norm, &layer.feed_forward_norm]),
        None => choices.layers.get(i).map(|layer| [&layer.attention_norm, &layer.feed_forward_norm]),
    };
    let norms = norms.ok_or_else(|| FheError::absent(id))?;
    norms.get(norms_before(program, number)).copied().ok_or_else(|| FheError::shape(id))
}

/// The norms of the layer of a step that are before it.
fn norms_before(program: &Program, number: usize) -> usize {
    let steps = program.steps();
    let layer = steps.get(number).and_then(|step| step.id.layer());
    let before = steps.iter().take(number).filter(|step| step.id.layer() == layer);
    before.filter(|step| matches!(step.block, Block::Norm(_))).count()
}

/// What was chosen for a layer of a decoder with RMSNorm.
///
/// # Errors
/// A layer that the choices lack.
pub(crate) fn choice_of_layer(choices: &Choices, id: StepId) -> Result<&DecoderLayerChoice, FheError> {
    let layers = choices.decoder.as_ref().map(|decoder| &decoder.layers);
    let layer = id.layer().and_then(|i| layers?.get(i));
    layer.ok_or_else(|| FheError::absent(id))
}

/// The bound on the residual sum that step `number` of a decoder with RMSNorm is a term of.
///
/// # Errors
/// As [`choice_of_layer`].
pub(crate) fn bound_after(program: &Program, choices: &Choices, number: usize) -> Result<f64, FheError> {
    let id = program.steps().get(number).map_or(StepId::outside("sum"), |step| step.id);
    let layer = choice_of_layer(choices, id)?;
    Ok(match norms_before(program, number) {
        1 => layer.attention_bound,
        _ => layer.feed_forward_bound,
    })
}

/// κ of the norm that reads the sum that step `number` is a term of.
///
/// # Errors
/// As [`norm_after`] and [`choice_of_norm`].
pub(crate) fn kappa_after(program: &Program, choices: &Choices, number: usize) -> Result<f64, FheError> {
    let (norm, _) = norm_after(program, number)?;
    Ok(choice_of_norm(program, choices, norm)?.scale)
}
