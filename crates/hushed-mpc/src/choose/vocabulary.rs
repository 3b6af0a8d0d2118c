//! Runs every token of a model's vocabulary through its first layers in the clear, and finds those that leave the
//! formats of a private run.
//!
//! A few neurons that fire on a single token can make activations massive (Sun et al., arXiv 2402.17762), and a private
//! answer to a text with that token is then wrong with nothing said. In published models they fire in the first
//! layers. What comes from an unusual order of usual tokens, or in later layers, is not found here.

use std::collections::BTreeMap;

use hushed_model::{Item, Model, ModelError, TokenIds, calibrate_layers};
use rayon::prelude::*;

use super::fits::{Bound, Fit, fits};
use crate::{Leaves, RunError};

/// The layers of a check that is not told how many.
pub const CHECKED_LAYERS: usize = 2;
/// Tokens of a text: the weights are read once a text, and a token is seen among many others.
const TOGETHER: usize = 62;
/// Tokens named for a step.
const NAMED: usize = 8;

/// Runs texts of [`TOGETHER`] tokens of the vocabulary through the first `layers` layers, and gives every step whose
/// format a text left. `advance` is told of each number of tokens that have been run, and of the number
/// of all. The texts begin with the public `head`, whose rows are not checked. A model of images has no vocabulary:
/// nothing is found.
///
/// # Errors
/// [`RunError::Model`] if the model has shapes only.
pub fn vocabulary(
    model: &Model,
    (head, layers): (&[u32], usize),
    advance: &(dyn Fn(usize, usize) + Sync),
) -> Result<Vec<Leaves>, RunError> {
    if layers == 0 || model.public.images.is_some() {
        return Ok(Vec::new());
    }
    let tokenizer = model.public.tokenizer().map_err(ModelError::from)?;
    let together = model.public.max_tokens.saturating_sub(2.max(head.len())).clamp(1, TOGETHER);
    let beyond = |ids: &[u32]| -> Result<Vec<Fit>, ModelError> {
        let text: Item = match head.is_empty() {
            true => tokenizer.surrounded(ids.iter().copied()).into(),
            false => TokenIds::new([head, ids].concat()).into(),
        };
        let calibration = calibrate_layers(model, &[text], "", (head, layers))?;
        Ok(fits(&calibration, model).into_iter().filter(|fit| fit.bound == Bound::Most && !fit.fits()).collect())
    };
    let ids = tokenizer.ordinary_ids();
    let all = ids.len();
    let texts = ids.par_chunks(together).map(|ids| {
        let found = beyond(ids)?;
        let mut named: Vec<(Fit, Option<u32>)> = found.into_iter().map(|fit| (fit, None)).collect();
        if !named.is_empty() {
            for id in ids {
                named.extend(beyond(&[*id])?.into_iter().map(|fit| (fit, Some(*id))));
            }
        }
        advance(ids.len(), all);
        Ok(named)
    });
    let texts: Vec<_> = texts.collect::<Result<_, ModelError>>()?;
    let mut steps: BTreeMap<(String, &'static str), Leaves> = BTreeMap::new();
    for (fit, id) in texts.into_iter().flatten() {
        let beyond = fit.out_of_range();
        let step = steps.entry((beyond.site.clone(), beyond.what));
        let leaves = step.or_insert(Leaves { beyond, tokens: Vec::new() });
        let new = id.filter(|id| leaves.tokens.len() < NAMED && leaves.tokens.iter().all(|(named, _)| named != id));
        leaves.tokens.extend(new.map(|id| (id, tokenizer.token(id))));
    }
    Ok(steps.into_values().collect())
}
