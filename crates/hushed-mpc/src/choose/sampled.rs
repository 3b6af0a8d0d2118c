//! Checks a model's activations against its formats with one text from its own vocabulary or one image, when a model is
//! checked or served. Activations that are large for every text, as published decoders have them at their first tokens
//! (Sun et al., arXiv 2402.17762), show up here. Later texts may still have larger ones: `hushed calibrate` measures
//! texts like those to come.

use hushed_model::{Item, Model, ModelError, Preprocess, Task, TokenIds, calibrate_layers};

use super::fits::{Bound, Fit, Quantity, fits};
use crate::{OutOfRange, RunError};

/// Tokens of the text, not counting special ones.
const TOKENS: usize = 24;

/// What a text of tokens from all over a model's vocabulary, or a synthetic image, shows about its formats.
#[derive(Debug)]
pub struct Sampled {
    /// Norms and sums that exceed them: the model must not be served.
    pub beyond: Vec<OutOfRange>,
    /// Norms with a row so small that its rounding shows in an answer. A model may have tokens that occur in no text,
    /// with vectors as small as this.
    pub inexact: Vec<Fit>,
    /// Whether only texts that begin with the public head fit: without it, the first rows exceed the formats.
    pub needs_head: bool,
}

/// Runs the model in the clear and returns its [`Sampled`]: for any text, or, if these do not fit, for those behind a
/// public `head`, which may be empty.
///
/// # Errors
/// [`RunError::Model`] if the model has shapes only.
pub fn sampled(model: &Model, head: &[u32]) -> Result<Sampled, RunError> {
    let alone = sampled_behind(model, &[])?;
    if alone.beyond.is_empty() || head.is_empty() {
        return Ok(alone);
    }
    Ok(Sampled { needs_head: true, ..sampled_behind(model, head)? })
}

fn sampled_behind(model: &Model, head: &[u32]) -> Result<Sampled, RunError> {
    let item = match &model.public.images {
        Some(images) => image(images)?,
        None => text(model, head)?,
    };
    let calibration = calibrate_layers(model, &[item], "", (head, usize::MAX))?;
    let all = fits(&calibration, model).into_iter();
    let (small, large): (Vec<Fit>, Vec<Fit>) = all.filter(|fit| !fit.fits()).partition(|fit| fit.bound == Bound::Least);
    let decodes = model.public.task() == Task::Generate;
    let beyond = large.into_iter().filter(|fit| counts(fit.what, decodes)).map(Fit::out_of_range);
    Ok(Sampled { beyond: beyond.collect(), inexact: small, needs_head: false })
}

/// Whether a single text of arbitrary tokens shows that a model must not be served. A decoder's first tokens are large
/// in every text; an encoder's values and arguments are those of its own kind of text.
fn counts(what: Quantity, decodes: bool) -> bool {
    match what {
        Quantity::RowMeans | Quantity::Variances { .. } | Quantity::Results => true,
        // An encoder declares a reach for these.
        Quantity::HeadValues | Quantity::Arguments => decodes,
        Quantity::BiasedScores | Quantity::Differences | Quantity::Sums => decodes,
        Quantity::LeastVariances => false,
    }
}

/// Evenly spaced ordinary tokens, after a public head or what the tokenizer puts before a text.
fn text(model: &Model, head: &[u32]) -> Result<Item, ModelError> {
    let tokenizer = model.public.tokenizer()?;
    let ids = tokenizer.ordinary_ids();
    let room = model.public.max_tokens.saturating_sub(2.max(head.len())).clamp(1, TOKENS);
    let step = (ids.len() / room).max(1);
    let inside = ids.iter().copied().step_by(step).take(room);
    Ok(match head.is_empty() {
        // Half of them as in the second text of a pair.
        true if model.public.config.typed() => tokenizer.surrounded(inside).with_second(room / 2).into(),
        true => tokenizer.surrounded(inside).into(),
        false => TokenIds::new(head.iter().copied().chain(inside).collect()).into(),
    })
}

/// Gradients in all three channels with edges and noise on top, so that points of every brightness lie next to points
/// of every other.
fn image(images: &Preprocess) -> Result<Item, ModelError> {
    let side = images.side;
    let point = |place: usize| {
        let (channel, y, x) = (place % 3, place / 3 / side, place / 3 % side);
        let slope = [x, y, x + y].map(|at| at * 255 / side)[channel] / 2;
        let edge = 128 * ((x * 8 / side + y * 8 / side) % 2);
        // Multiples of the golden ratio are evenly distributed.
        let noise = place.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 59;
        (slope + edge + noise).min(255) as u8
    };
    let points = (0..side * side * 3).map(point).collect();
    Ok(images.of_points(points)?.into())
}
