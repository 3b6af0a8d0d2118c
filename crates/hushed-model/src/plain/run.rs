//! A program in the clear, as published.

use super::{Plain, PlainActs};
use crate::backend::Backend;
use crate::error::ModelError;
use crate::program::{Block, Program, Step, Values};
use crate::site::Site;
use crate::tokens::TokenIds;

/// Runs a program over texts, showing the value of every step.
///
/// # Errors
/// [`ModelError`] if the program has shapes only, or a text does not fit it.
pub fn run(
    program: &Program,
    texts: Vec<TokenIds>,
    mut see: impl FnMut(&Step, &PlainActs),
) -> Result<PlainActs, ModelError> {
    let mut values = Values::<PlainActs>::new(program);
    let mut texts = Some(texts);
    for (number, step) in program.steps().iter().enumerate() {
        let at = Site::root(&step.id.to_string());
        let value = match &step.block {
            Block::Embed(e) => Plain.embed(at, texts.take().unwrap_or_default(), e)?,
            Block::Norm(n) => Plain.norm(at, values.get(step, 0)?.clone(), n)?,
            Block::Attention(a) => Plain.attention(at, values.get(step, 0)?, a)?,
            Block::FeedForward(f) => Plain.feed_forward(at, values.get(step, 0)?, f)?,
            Block::Add => Plain.add(at, values.get(step, 0)?, values.get(step, 1)?)?,
            Block::Pool(p) => Plain.pool(at, values.get(step, 0)?.clone(), p)?,
            Block::Head(c) => Plain.classify(at, values.get(step, 0)?.clone(), c)?,
        };
        see(step, &value);
        values.put(number, value);
        values.ended(step);
    }
    values.answer(program)
}
