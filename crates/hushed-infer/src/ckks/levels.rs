//! The ledger of a run: how many primes its vectors have at every step, from a placement and the choices alone.
//!
//! It is worked out before anything is computed, so that a chain that is too short is refused with the step's name.
//! Steps are those of the table in [`super`]; a level is one rescale.

use hushed_ckks::poly::Inverse;

use super::activation;
use super::choices::{AttentionChoice, Choices, HeadChoice, Interval, NormChoice};
use super::error::FheError;
use super::head;
use super::norm::statistic_levels;
use super::placement::Placement;
use super::slots::Slots;

/// Primes of a layer's columns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LayerLevels {
    /// Where attention begins.
    pub attention: usize,
    /// Its output, centred.
    pub attended: usize,
    /// Where the feed-forward begins.
    pub feed_forward: usize,
    /// Its output, centred.
    pub fed: usize,
    /// What leaves the layer: refreshed for the next one, or, after the last, as the norm left it.
    pub out: usize,
}

/// The ledger, layer by layer, with the last layer's columns left as they are for the pooling, which takes one level.
///
/// # Errors
/// [`FheError::Levels`] with the step that has too few; [`FheError::Poly`] for choices without a fit.
pub fn levels<S: Slots>(
    on: &S,
    choices: &Choices,
    placement: &Placement,
) -> Result<Vec<LayerLevels>, FheError> {
    let last = choices.layers.len().saturating_sub(1);
    let mut layers = Vec::with_capacity(choices.layers.len());
    for (i, layer) in choices.layers.iter().enumerate() {
        let walk = Walk {
            on,
            layer: i,
            statistics: placement.statistics,
        };
        // Also of the first layer: what a client sends with fewer primes is refreshed to them before it.
        let attention = placement.attention;
        let attended = walk.attention(attention, &layer.attention)?;
        walk.norm("attention.norm", attended, &layer.attention_norm)?;
        let degree = layer.activation.degree;
        // After the last norm there is no refresh, but the pooling.
        let mut feed_forward = placement.feed_forward;
        let pooled = usize::from(i == last);
        let needed = 3 + activation::levels(degree) + pooled;
        while i == last && feed_forward < on.top() && walk.available(feed_forward) < needed {
            feed_forward += 1;
        }
        let step = |limbs, what, levels| walk.down(limbs, what, levels);
        let mut limbs = step(feed_forward, "feed_forward.up", 1)?;
        limbs = step(limbs, "feed_forward.activation", activation::levels(degree))?;
        let fed = step(limbs, "feed_forward.down", 1)?;
        let normed = walk.norm("feed_forward.norm", fed, &layer.feed_forward_norm)?;
        let out = if i == last {
            // Pooling takes one level, and a classifier's first layer does.
            step(normed, "pool", 1)?;
            normed
        } else {
            placement.attention
        };
        layers.push(LayerLevels {
            attention,
            attended,
            feed_forward,
            fed,
            out,
        });
    }
    if let Some(classifier) = &choices.classifier {
        let walk = Walk {
            on,
            layer: last,
            statistics: placement.statistics,
        };
        let (needed, available) = (head::levels(classifier), walk.available(on.top()));
        if available < needed {
            return Err(FheError::Levels {
                step: "head".to_owned(),
                needed,
                available,
            });
        }
    }
    Ok(layers)
}

fn inverse_levels(range: Interval, steps: usize) -> Result<usize, FheError> {
    Ok(Inverse::with_steps(range.low, range.high, steps)?.levels())
}

struct Walk<'a, S> {
    on: &'a S,
    layer: usize,
    statistics: usize,
}

impl<S: Slots> Walk<'_, S> {
    /// Levels above the floor.
    fn available(&self, limbs: usize) -> usize {
        let (mut limbs, mut levels) = (limbs, 0);
        while limbs > self.on.floor() {
            let next = limbs.saturating_sub(self.on.level_primes(limbs).max(1));
            if next < self.on.floor() {
                break;
            }
            (limbs, levels) = (next, levels + 1);
        }
        levels
    }

    fn down(&self, limbs: usize, step: &str, levels: usize) -> Result<usize, FheError> {
        let available = self.available(limbs);
        if available < levels {
            return Err(FheError::Levels {
                step: format!("layer.{}.{step}", self.layer),
                needed: levels,
                available,
            });
        }
        Ok((0..levels).fold(limbs, |l, _| l - self.on.level_primes(l).max(1)))
    }

    /// Primes of the output of a softmax attention.
    fn attention(&self, start: usize, choice: &AttentionChoice) -> Result<usize, FheError> {
        let scores = self.down(start, "attention.scores", 2)?;
        let p = self.down(scores, "attention.weigh", activation::levels(choice.degree))?;
        let softmax = choice.heads.iter().find_map(|head| match head {
            HeadChoice::Softmax { first, second, .. } => Some((*first, *second)),
            HeadChoice::Previous => None,
        });
        let mut limbs = p;
        if let Some((first, second)) = softmax {
            // Σp has lost no level yet when it is refreshed; p waits for its inverse.
            // The exponential is divided by the upper end.
            let unit = Interval {
                low: first.low / first.high,
                high: 1.0,
            };
            let steps = inverse_levels(unit, choice.first_steps)?;
            let inverse = self.down(self.statistics, "attention.first_inverse", steps)?;
            limbs = self.down(limbs.min(inverse), "attention.weigh", 2)?;
            let attended = self.down(limbs, "attention.attend", 1)?;
            let steps = inverse_levels(second, choice.second_steps)?;
            let inverse = self.down(self.statistics, "attention.second_inverse", steps)?;
            limbs = self.down(attended.min(inverse), "attention.attend", 1)?;
        }
        self.down(limbs, "attention.output", 1)
    }

    /// Primes of a norm's result: columns above the level at which their statistic arrives are cut.
    fn norm(&self, step: &str, limbs: usize, choice: &NormChoice) -> Result<usize, FheError> {
        self.down(limbs, step, 1)?;
        let arrives = self.down(self.statistics, step, statistic_levels(choice))?;
        self.down(limbs.min(arrives), step, 1)
    }
}
