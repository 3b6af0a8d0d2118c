//! Attention by a sigmoid of each score (ENSI, §IV), whose weights depend on no sum. A masked score, which is 0, is
//! moved to −1 by a plaintext vector; there the polynomial is 0. Keys of rows before a text need no mask, as their
//! values are zeros.

use std::sync::Arc;

use hushed_ckks::poly::{Polynomial, evaluate};
use hushed_model::{Attention, Mask, StepId};

use crate::choices::{Interval, SigmoidChoice, fits, shapes};
use crate::error::FheError;
use crate::ops::functions::Function;
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

/// The sigmoid of one head.
pub struct Sigmoid {
    f: Function,
    interval: Interval,
    polynomial: Arc<Polynomial>,
}

impl Sigmoid {
    /// The sigmoids of all heads of a block.
    ///
    /// # Errors
    /// [`FheError::Poly`] for an interval without a fit.
    pub(crate) fn of_heads<S: Slots>(
        on: &S,
        block: &Attention,
        bias: f64,
        choice: &SigmoidChoice,
    ) -> Result<Vec<Sigmoid>, FheError> {
        let mut heads: Vec<Sigmoid> = Vec::with_capacity(choice.heads.len());
        for (head, scores) in intervals(block, choice).enumerate() {
            let interval = fits::masked(scores);
            // Heads with the same interval share a fit.
            let polynomial = match heads.last().filter(|like| like.interval == interval) {
                Some(like) => Arc::clone(&like.polynomial),
                None => Arc::new(
                    on.fitted(|| fits::sigmoid(scores, bias, choice.degree), || shapes::polynomial(choice.degree))?,
                ),
            };
            heads.push(Sigmoid { f: Function::Sigmoid { head, scores: interval, bias }, polynomial, interval });
        }
        Ok(heads)
    }

    /// The levels from t to a weight.
    pub(crate) fn levels(&self) -> usize {
        self.polynomial.depth()
    }

    /// The function that the polynomial approximates.
    #[cfg(test)]
    pub(crate) fn function(&self) -> &Function {
        &self.f
    }

    /// The approximation.
    #[cfg(test)]
    pub(crate) fn polynomial(&self) -> &Polynomial {
        &self.polynomial
    }

    /// The interval of scores that is mapped to [−1, 1].
    pub(crate) fn interval(&self) -> Interval {
        self.interval
    }

    /// The weight of t, at [`Slots::default_scale`].
    ///
    /// # Errors
    /// Too few levels.
    pub(crate) fn evaluate<S: Slots>(&self, on: &S, t: &S::Value) -> Result<S::Value, FheError> {
        let target = on.default_scale();
        let compute = || evaluate(on, t, &self.polynomial, target);
        on.apply(&self.f, t, (self.levels(), target), compute)
    }
}

/// For each head the interval of a sigmoid's scores: the widest of those that share its key head.
pub(crate) fn intervals(block: &Attention, choice: &SigmoidChoice) -> impl Iterator<Item = Interval> {
    let shared = block.heads.shared().max(1);
    let widest = choice.heads.chunks(shared).map(widest);
    let each = widest.flat_map(move |scores| std::iter::repeat_n(scores, shared));
    each.take(choice.heads.len())
}

/// The widest interval of heads that share a key head, including 0: their keys have one factor.
pub(crate) fn widest(heads: &[Interval]) -> Interval {
    let zero = Interval { low: 0.0, high: 0.0 };
    heads.iter().fold(zero, |wide, head| Interval { low: wide.low.min(head.low), high: wide.high.max(head.high) })
}
