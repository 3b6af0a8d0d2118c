//! From scores to weights in the frames of the giant steps: a sigmoid of each score, or a softmax of each row.
//!
//! *Sigmoid.* Masked scores, which are 0, are moved to −1 by a plaintext vector. Rows before a text have zero values,
//! so their keys need no mask.
//!
//! *Softmax.* As for encoders ([`crate::ops::softmax`]): p ≈ e^{s/2}, p/Σp, its square, and 1/Σ of the squares after
//! P·V. Sums are over the keys of a text up to the row, so padding has to be masked as well: by one more column of Q
//! and K, which carries the token rows and the causal mask ([`KeyMask::Turned`]). All other scores are at −1, where p
//! is 0. Sums are rotated home frame by frame, and the first inverse back to the frames: 3·(g − 1) rotations per head.

use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_ckks::poly::{Inverse, Polynomial, evaluate};
use hushed_model::{Attention, Mask, StepId, Weigh};

use super::rope::seen;
use crate::choices::{AttentionChoice, ChoicesError, HeadChoice, Interval, ScoresChoice, SigmoidChoice, fits, shapes};
use crate::error::FheError;
use crate::ops::activation::levels;
use crate::ops::functions::Function;
use crate::ops::key_mask::KeyMask;
use crate::ops::levels::{below, divisor, scale_of};
use crate::ops::softmax::{Softmax, weight_scale, weights};
use crate::packing::{Interleave, PackingError};
use crate::slots::Slots;

/// Checks that an attention block is causal.
///
/// # Errors
/// [`FheError::Unsupported`] for another mask.
pub fn causal(at: StepId, block: &Attention) -> Result<(), FheError> {
    match block.mask {
        Mask::Causal => Ok(()),
        Mask::Full | Mask::Window { .. } => Err(FheError::Unsupported {
            what: format!("{at}: attention without a causal mask, in a decoder"),
            remedy: "decoders with causal attention can be run",
        }),
    }
}

/// The primes of the weights when they are multiplied with V, and of the results of heads, for scores with `scores`
/// primes.
///
/// # Errors
/// Too few levels.
pub(super) fn limbs<S: Slots>(
    on: &S,
    scores: usize,
    choice: &ScoresChoice,
    statistics: usize,
) -> Result<(usize, usize), FheError> {
    let p = below(on, scores, levels(choice.degree()))?;
    let ScoresChoice::Softmax(softmax) = choice else {
        return Ok((p, below(on, p, 1)?));
    };
    let (first, second) = inverses(softmax)?;
    let weights = below(on, p.min(below(on, statistics, first)?), 2)?;
    let attended = below(on, weights, 1)?;
    let attended = attended.min(below(on, statistics, second)?);
    Ok((weights, below(on, attended, 1)?))
}

/// The levels of the two inverses, for the deepest head.
fn inverses(choice: &AttentionChoice) -> Result<(usize, usize), FheError> {
    let mut most = (0, 0);
    for head in &choice.heads {
        if let HeadChoice::Softmax { first, second, .. } = head {
            let first = Inverse::with_steps(first.low / first.high, 1.0, choice.first_steps)?;
            let second = Inverse::with_steps(second.low, second.high, choice.second_steps)?;
            most = (most.0.max(first.levels()), most.1.max(second.levels()));
        }
    }
    Ok(most)
}

/// The functions from scores to weights of all heads of a layer.
pub(super) enum Weighing<'a, V> {
    Sigmoid(Vec<Sigmoid>),
    Softmax(Vec<Softmax>, KeyMask<'a, V>),
}

/// The weights of a head, diagonal by diagonal, and for a softmax the sum to divide them by.
pub(super) struct Weighed<V> {
    pub diagonals: Vec<V>,
    pub sum: Option<V>,
}

impl<'a, V: Clone + Send + Sync> Weighing<'a, V> {
    /// The functions for a choice. `real`: the token rows.
    ///
    /// # Errors
    /// [`FheError::Choices`] for a choice of another function; a softmax without token rows.
    pub fn new<S: Slots<Value = V>>(
        on: &S,
        (at, block): (StepId, &Attention),
        choice: &ScoresChoice,
        (layout, baby): (Interleave, usize),
        real: Option<&'a V>,
    ) -> Result<Self, FheError> {
        causal(at, block)?;
        let unusable = |what: &str| ChoicesError::Unusable { what: format!("{at}: {what}") };
        match (block.weigh, choice) {
            (Weigh::Sigmoid { bias }, ScoresChoice::Sigmoid(choice)) => {
                let mut heads: Vec<Sigmoid> = Vec::with_capacity(choice.heads.len());
                for (head, scores) in intervals(block, choice).enumerate() {
                    // Heads with the same interval share a fit.
                    let alike = |like: &&Sigmoid| like.interval == fits::masked(scores);
                    let polynomial = match heads.last().filter(alike) {
                        Some(like) => Arc::clone(&like.polynomial),
                        None => Arc::new(on.fitted(
                            || fits::sigmoid(scores, bias, choice.degree),
                            || shapes::polynomial(choice.degree),
                        )?),
                    };
                    heads.push(Sigmoid::new(head, scores, bias, polynomial, layout));
                }
                Ok(Weighing::Sigmoid(heads))
            }
            (Weigh::Softmax, ScoresChoice::Softmax(choice)) => {
                let Some(real) = real else {
                    return Err(FheError::Unsupported {
                        what: format!("{at}: softmax attention without the rows of tokens"),
                        remedy: "a request of this plan has a vector of them",
                    });
                };
                let mut heads: Vec<Softmax> = Vec::with_capacity(choice.heads.len());
                for (number, head) in choice.heads.iter().enumerate() {
                    heads.push(Softmax::masked(on, head, choice)?.of_head(number));
                }
                let keys = KeyMask::Turned { layout, real, baby };
                Ok(Weighing::Softmax(heads, keys))
            }
            _ => Err(unusable("the calibration is for another function of scores").into()),
        }
    }

    /// Half the length of the interval of a head's scores that is mapped to [−1, 1].
    pub fn half(&self, head: usize) -> f64 {
        let half = match self {
            Weighing::Sigmoid(heads) => heads.get(head).map(|sigmoid| sigmoid.interval.half()),
            Weighing::Softmax(heads, _) => heads.get(head).map(|softmax| 1.0 / softmax.argument().0),
        };
        half.unwrap_or(1.0)
    }

    /// The token rows, and what their score adds to t in a head; none for a sigmoid.
    pub fn tokens(&self, head: usize) -> Option<(&'a V, f64)> {
        match self {
            Weighing::Sigmoid(_) => None,
            Weighing::Softmax(heads, keys) => {
                let KeyMask::Turned { real, .. } = *keys else {
                    return None;
                };
                let offset = heads.get(head).map_or(0.0, |softmax| softmax.argument().1);
                Some((real, 1.0 + offset))
            }
        }
    }

    /// Applies the function of head `head` to the scores of diagonal `giant` + `r`, in the frame of `giant`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn score<S: Slots<Value = V>>(
        &self,
        on: &S,
        head: usize,
        s: V,
        (giant, r): (usize, usize),
    ) -> Result<V, FheError> {
        match self {
            Weighing::Sigmoid(heads) => at(heads, head)?.of(on, s, giant, r),
            Weighing::Softmax(heads, keys) => {
                let t = keys.argument(on, giant + r, s, 0.0)?;
                at(heads, head)?.exponential(on, giant + r, &t)
            }
        }
    }

    /// The scale of V that brings P·V to `factor` times the default scale, where P and V have `limbs` primes;
    /// approximately so for a softmax.
    ///
    /// # Errors
    /// None for calibrated intervals.
    pub fn value_scale<S: Slots>(&self, on: &S, limbs: usize, factor: f64) -> Result<Scale, FheError> {
        let wanted = factor * divisor(on, limbs)?;
        let Weighing::Softmax(heads, _) = self else {
            return scale_of(wanted);
        };
        let weights = weight_scale(on, heads.iter())?.value() / on.default_scale().value();
        scale_of(wanted / weights)
    }

    /// The weights of heads taken together, from their functions of scores.
    pub fn weights<S: Slots<Value = V>>(
        &self,
        on: &S,
        at_step: StepId,
        scored: Vec<(usize, Vec<V>)>,
        statistics: usize,
    ) -> Result<Vec<Weighed<V>>, FheError> {
        let (heads, keys) = match self {
            Weighing::Sigmoid(_) => {
                let scored = scored.into_iter();
                let weighed = scored.map(|(_, diagonals)| Weighed { diagonals, sum: None });
                return Ok(weighed.collect());
            }
            Weighing::Softmax(heads, keys) => (heads, keys),
        };
        let of = |(head, p)| Ok((at(heads, head)?, p));
        let scored = scored.into_iter().map(of);
        let scored = scored.collect::<Result<_, FheError>>()?;
        let found = weights(on, at_step, scored, keys, statistics)?.into_iter();
        let weighed = found.map(|weights| Weighed { diagonals: weights.exponentials, sum: Some(weights.sum) });
        Ok(weighed.collect())
    }

    /// The inverse of `sum`, of head `head`, at scale `target`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn inverse<S: Slots<Value = V>>(&self, on: &S, head: usize, sum: &V, target: Scale) -> Result<V, FheError> {
        match self {
            // A sigmoid's weights have no sum.
            Weighing::Sigmoid(_) => Err(PackingError::Mismatch.into()),
            Weighing::Softmax(heads, _) => at(heads, head)?.second_inverse(on, sum, target),
        }
    }
}

/// The function of a head.
fn at<T>(heads: &[T], head: usize) -> Result<&T, FheError> {
    let absent = || ChoicesError::Unusable { what: format!("the calibration has no head {head}") };
    Ok(heads.get(head).ok_or_else(absent)?)
}

/// For each head the interval of a sigmoid's scores: the widest of those that share its key head.
pub(crate) fn intervals(block: &Attention, choice: &SigmoidChoice) -> impl Iterator<Item = Interval> {
    let shared = block.heads.shared().max(1);
    let widest = choice.heads.chunks(shared).map(widest);
    let each = widest.flat_map(move |scores| std::iter::repeat_n(scores, shared));
    each.take(choice.heads.len())
}

/// The widest interval of heads that share a key head, including 0: their keys have one factor.
fn widest(heads: &[Interval]) -> Interval {
    let zero = Interval { low: 0.0, high: 0.0 };
    heads.iter().fold(zero, |wide, head| Interval { low: wide.low.min(head.low), high: wide.high.max(head.high) })
}

/// The sigmoid of one head.
pub(super) struct Sigmoid {
    f: Function,
    interval: Interval,
    polynomial: Arc<Polynomial>,
    layout: Interleave,
}

impl Sigmoid {
    fn new(head: usize, scores: Interval, bias: f64, polynomial: Arc<Polynomial>, layout: Interleave) -> Self {
        let interval = fits::masked(scores);
        Sigmoid { f: Function::Sigmoid { head, scores: interval, bias }, polynomial, interval, layout }
    }

    /// Applies the sigmoid to the scores of diagonal `giant` + `r` in its frame: masked ones, which are 0, give 0.
    fn of<S: Slots>(&self, on: &S, s: S::Value, giant: usize, r: usize) -> Result<S::Value, FheError> {
        let (m, texts) = (self.layout.rows(), self.layout.texts());
        let shift = |slot: usize| match seen(m, giant, r, slot / texts) {
            true => -self.interval.middle() / self.interval.half(),
            false => -1.0,
        };
        let shift = on.plain(|| (0..self.layout.slots()).map(shift).collect());
        let t = on.within(on.add_vector(s, &shift)?, 1.0);
        let target = on.default_scale();
        let compute = || evaluate(on, &t, &self.polynomial, target);
        on.apply(&self.f, &t, (self.polynomial.depth(), target), compute)
    }
}
