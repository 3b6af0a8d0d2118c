//! The contents of a reply, computed in the clear from the published model.

use hushed_model::{Block, Item, Model, Program, StepId, TokenIds, here, plain};

use crate::error::FheError;
use crate::plan::public_plan::AnswerRows;

/// Returns the answer to a text as a reply holds it, including the model's own last step: an embedding, a classifier's
/// logits, or for a decoder whatever `read` selects ([`last_row`], [`all_rows`], or the logits of the last row).
///
/// # Errors
/// The model's errors.
pub fn answer_in_clear(model: &Model, text: &TokenIds, read: AnswerRows) -> Result<Vec<f64>, FheError> {
    let program = model.program_of_all_rows();
    match (program.vocabulary(), read) {
        (Some(_), AnswerRows::Last) => last_row(&program, text),
        (Some(_), AnswerRows::Rows) => all_rows(&program, text),
        (Some(_), AnswerRows::Logits) => {
            let logits = plain::run(&program, vec![text.clone()], |_, _| ())?;
            Ok(logits.values.row(0).to_vec())
        }
        (None, _) => Ok(model.embed(vec![text.clone()])?.pop().unwrap_or_default()),
    }
}

/// Returns the normalised rows of a text before a decoder's head, concatenated.
///
/// # Errors
/// The model's errors.
pub fn all_rows(program: &Program, text: &TokenIds) -> Result<Vec<f64>, FheError> {
    let (mut residual, at) = (None, StepId::outside("norm"));
    plain::run(program, vec![text.clone()], |step, x| {
        if matches!(step.block, Block::Add) {
            residual = Some(x.clone());
        }
    })?;
    let (at, norm) = *here(at, &program.norms().last())?;
    let x = here(at, &residual)?.clone();
    let mut rows = plain::norm(at, x, norm)?.values.data().to_vec();
    rows.truncate(text.rows().real * norm.width);
    Ok(rows)
}

/// Returns the normalised last row of a text before a decoder's head.
///
/// # Errors
/// The model's errors.
pub fn last_row<T: Clone + Into<Item>>(program: &Program, text: &T) -> Result<Vec<f64>, FheError> {
    let mut row = Vec::new();
    plain::run(program, vec![text.clone()], |step, x| {
        if matches!(step.block, Block::Norm(_)) && step.id.layer().is_none() {
            row = x.values.row(0).to_vec();
        }
    })?;
    Ok(row)
}
