//! What a reply says, computed in the clear from the published model.

use hushed_model::{Block, Model, Program, TokenIds, plain};

use crate::error::FheError;

/// The answer to a text as a reply has it, the model's own end included: an embedding, logits of a classifier, or a
/// decoder's last row ([`last_row`]).
///
/// # Errors
/// Those of the model.
pub fn answer_in_clear(model: &Model, text: &TokenIds) -> Result<Vec<f64>, FheError> {
    let program = model.program_of_all_rows();
    match program.vocabulary() {
        Some(_) => last_row(&program, text),
        None => Ok(model.embed(vec![text.clone()])?.pop().unwrap_or_default()),
    }
}

/// The last row of a text before the head of a decoder: normalised.
///
/// # Errors
/// Those of the model.
pub fn last_row(program: &Program, text: &TokenIds) -> Result<Vec<f64>, FheError> {
    let mut row = Vec::new();
    plain::run(program, vec![text.clone()], |step, x| {
        if matches!(step.block, Block::Norm(_)) && step.id.layer().is_none() {
            row = x.values.row(0).to_vec();
        }
    })?;
    Ok(row)
}
