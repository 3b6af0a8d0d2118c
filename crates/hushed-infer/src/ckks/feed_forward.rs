//! The feed-forward block on columns: hidden columns are made, used and dropped block by block, so that they are never all alive.
//!
//! | step | levels |
//! |---|---|
//! | up: gains and offsets of the norm before and the map of each column's interval in its weights | 1 |
//! | the activation, a polynomial a column ([`super::activation`]) | ⌈log2(degree + 1)⌉ |
//! | down: κ and the centring of the norm after in its weights; a block's products join a sum that is rescaled once | 1 |
//!
//! It has no rotations. MOAI holds all hidden columns (3072 ciphertexts); at N = 2^16 a block of 64 takes 0.8 GiB at most.

use hushed_model::{FeedForward, Site};

use super::activation::{Polynomials, activation, argument_scale, levels, unit_map};
use super::acts::{Acts, centred, same};
use super::choices::{ActivationChoice, NormChoice};
use super::error::FheError;
use super::norm::{below, centred_scale};
use super::slots::Slots;

/// κ·(y − mean of y) by columns for y = down(f(up(x))), `hidden_block` hidden columns at a time; `progress` is told the part that is
/// done. At the scale of [`centred_scale`].
///
/// # Errors
/// Shapes that differ, layers without numbers, too few levels, and what the arithmetic refuses.
#[allow(clippy::too_many_arguments)]
pub fn feed_forward<S: Slots>(
    on: &S,
    at: &Site,
    x: &Acts<S::Value>,
    f: &FeedForward,
    choice: &ActivationChoice,
    norm: &NormChoice,
    hidden_block: usize,
    polynomials: &Polynomials,
    mut progress: impl FnMut(f64),
) -> Result<Vec<S::Value>, FheError> {
    let hidden = f.up.outputs;
    same(at, "intervals", choice.columns.len(), hidden)?;
    same(at, "hidden columns", f.down.inputs, hidden)?;
    let (up_at, down_at) = (at.then("up"), at.then("down"));
    let activation_at = at.then("activation");
    let up = unit_map(x.folded(&up_at, &f.up)?, &choice.columns)?;
    let down = centred(&down_at, &f.down, norm.scale)?;
    let start = x.columns.iter().map(|c| on.limbs(c)).min().unwrap_or(0);
    let argument = argument_scale(on, below(on, start, 1)?)?;
    let target = centred_scale(on, below(on, start, 2 + levels(choice.degree))?)?;

    let mut partial = None;
    let mut from = 0;
    while from < hidden {
        let block = from..hidden.min(from + hidden_block.max(1));
        on.at(up_at.path());
        let t = on.linear(&up.rows(block.clone()), &x.columns, argument)?;
        on.at(activation_at.path());
        let intervals = &choice.columns[block.clone()];
        let y = activation(on, f.activation, t, intervals, choice.degree, polynomials)?;
        on.at(down_at.path());
        let mut map = down.columns(block.clone());
        if from == 0 {
            map.bias.clone_from(&down.bias);
        }
        partial = Some(on.linear_add(&map, &y, target, partial)?);
        from = block.end;
        progress(from as f64 / hidden as f64);
    }
    match partial {
        Some(partial) => on.linear_finish(partial),
        None => Ok(Vec::new()),
    }
}

#[cfg(test)]
#[path = "feed_forward_tests.rs"]
mod tests;
