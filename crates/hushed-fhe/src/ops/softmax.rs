//! Softmax of diagonals (MOAI, Algorithm 9), repaired for wide ranges of scores: normalise e^{s/2}, then square. It
//! takes no rotation: the entries of a row are in the same slot of all diagonals, so the sum over a row is a sum of
//! vectors (lemma 4.1). Only sums are refreshed.
//!
//! ```text
//! p = e^{(s − high)/2}/first.high      a polynomial in t = (2s − low − high)/(high − low), accurate where weights are large
//! y = p·(1/Σp)                         Σp within [first.low/first.high, 1], refreshed before it is inverted
//! e = y²                               never negative
//! weights = e·(1/Σe)                   Σe within [1/m, 1], refreshed before it is inverted; multiplied after P·V
//! ```
//!
//! | step | level of the diagonals | of a sum |
//! |---|---|---|
//! | t, by Q·Kᵀ | l | |
//! | p, degree 15 | l − 4 | l − 4, then refreshed to the statistics' level s |
//! | 1/Σp by k steps | | s − k |
//! | y | min(l − 4, s − k) − 1 | |
//! | e | min(l − 4, s − k) − 2 | the same, then refreshed |
//! | 1/Σe by k' steps | | s − k' |
//!
//! The range of the first inverse is the square root of that of an inverse of Σ e^s; the range of the second is at most
//! m. A head takes 9 relinearisations for each of m diagonals (7 for the polynomial, 1 for the product, 1 for the
//! square), 2 refreshed vectors with a conjugation each, and 4k relinearisations of a sum.
//!
//! The paper's own softmax is (1 + x/2^r)^(2^r) and one inverse. That is too small by a factor of e^{−x²/2^(r+1)}.

use hushed_ckks::Scale;
use hushed_ckks::poly::{Inverse, Polynomial, evaluate};
use hushed_model::StepId;
use rayon::prelude::*;

use crate::choices::{AttentionChoice, ChoicesError, HeadChoice, Interval, fits, shapes};
use crate::error::FheError;
use crate::ops::functions::Function;
use crate::ops::key_mask::{KeyMask, total};
use crate::ops::levels::{below, divisor, scale_of};
use crate::ops::norm::product;
use crate::slots::Slots;

/// The polynomials and inverses of a head's softmax.
pub struct Softmax {
    /// The polynomial in t.
    exponential: Polynomial,
    first: Inverse,
    second: Inverse,
    scores: Interval,
    /// The divisor of the exponential: the upper end of its sums.
    divisor: f64,
    head: usize,
}

impl Softmax {
    /// The functions for a head's choice.
    ///
    /// # Errors
    /// [`FheError::Choices`] for a head with a fixed pattern; [`FheError::Poly`] for intervals without a fit.
    pub fn new<S: Slots>(on: &S, head: &HeadChoice, choice: &AttentionChoice) -> Result<Softmax, FheError> {
        Softmax::of(on, head, choice, fits::exponential)
    }

    /// As [`Softmax::new`] for causal attention: the exponential is 0 at −1, and scores are mapped from
    /// [`fits::masked`].
    ///
    /// # Errors
    /// As [`Softmax::new`].
    pub fn masked<S: Slots>(on: &S, head: &HeadChoice, choice: &AttentionChoice) -> Result<Softmax, FheError> {
        let softmax = Softmax::of(on, head, choice, fits::masked_exponential)?;
        Ok(Softmax { scores: fits::masked(softmax.scores), ..softmax })
    }

    fn of<S: Slots>(
        on: &S,
        head: &HeadChoice,
        choice: &AttentionChoice,
        fit: fn(&HeadChoice, usize) -> Result<Polynomial, FheError>,
    ) -> Result<Softmax, FheError> {
        let HeadChoice::Softmax { scores, first, second, .. } = *head else {
            let what = "a head with a fixed pattern has no softmax".to_owned();
            return Err(ChoicesError::Unusable { what }.into());
        };
        let (fit, degree) = (|| fit(head, choice.degree), choice.degree);
        Ok(Softmax {
            exponential: on.fitted(fit, || shapes::polynomial(degree))?,
            first: Inverse::with_steps(first.low / first.high, 1.0, choice.first_steps)?,
            second: Inverse::with_steps(second.low, second.high, choice.second_steps)?,
            scores,
            divisor: first.high,
            head: 0,
        })
    }

    /// The same, reported as head `head` of its layer.
    #[must_use]
    pub fn of_head(self, head: usize) -> Softmax {
        Softmax { head, ..self }
    }

    /// The approximation of the exponential.
    #[cfg(test)]
    pub(crate) fn polynomial(&self) -> &Polynomial {
        &self.exponential
    }

    /// The function that the exponential approximates.
    pub(crate) fn function(&self, diagonal: usize) -> Function {
        Function::Exponential { head: self.head, scores: self.scores, divisor: self.divisor, diagonal }
    }

    /// p of padding, at t = −1.
    pub(crate) fn padding<S: Slots>(&self, on: &S) -> f64 {
        let least = -1.0;
        on.value(&self.function(0), least, || self.exponential.eval(least))
    }

    /// 1/Σp at scale `target`.
    pub(crate) fn first_inverse<S: Slots>(&self, on: &S, sum: &S::Value, target: Scale) -> Result<S::Value, FheError> {
        let f = Function::FirstInverse { head: self.head, scores: self.scores };
        let compute = || self.first.evaluate(on, sum, target);
        on.apply(&f, sum, (self.first.levels(), target), compute)
    }

    /// 1/Σe at scale `target`.
    pub(crate) fn second_inverse<S: Slots>(&self, on: &S, sum: &S::Value, target: Scale) -> Result<S::Value, FheError> {
        let f = Function::SecondInverse { head: self.head };
        let compute = || self.second.evaluate(on, sum, target);
        on.apply(&f, sum, (self.second.levels(), target), compute)
    }

    /// (factor, offset) of t = factor·s + offset.
    pub fn argument(&self) -> (f64, f64) {
        let half = self.scores.half();
        (1.0 / half, -self.scores.middle() / half)
    }

    /// The levels from t to p.
    pub fn exponential_levels(&self) -> usize {
        self.exponential.depth()
    }

    /// The first inverse.
    pub fn first(&self) -> &Inverse {
        &self.first
    }

    /// The second inverse.
    pub fn second(&self) -> &Inverse {
        &self.second
    }

    fn second_high(&self) -> f64 {
        self.second.report().high
    }

    /// p of diagonal `diagonal` of t, at [`Slots::default_scale`].
    ///
    /// # Errors
    /// Too few levels.
    pub fn exponential<S: Slots>(&self, on: &S, diagonal: usize, t: &S::Value) -> Result<S::Value, FheError> {
        let (f, target) = (self.function(diagonal), on.default_scale());
        let compute = || evaluate(on, t, &self.exponential, target);
        let p = on.apply(&f, t, (self.exponential_levels(), target), compute)?;
        Ok(on.within(p, 1.0))
    }
}

/// A head's attention weights without their last factor, 1/Σe.
pub struct Weights<V> {
    /// e, diagonal by diagonal.
    pub exponentials: Vec<V>,
    /// Σe, refreshed.
    pub sum: V,
}

/// Computes e and Σe from p, for heads of a layer whose sums share bootstraps. The scale of e is
/// [`Slots::default_scale`] divided by the largest upper end of the second intervals, if that is above 1.
///
/// # Errors
/// Too few levels; where values are visible, [`FheError::Range`] for sums above 1.
pub fn weights<S: Slots>(
    on: &S,
    at: StepId,
    heads: Vec<(&Softmax, Vec<S::Value>)>,
    keys: &KeyMask<'_, S::Value>,
    statistics: usize,
) -> Result<Vec<Weights<S::Value>>, FheError> {
    let high = highest(heads.iter().map(|(head, _)| *head));
    let sums = heads.iter().map(|(head, p)| {
        let sum = keys.subtract_padding(on, total(on, p)?, head.padding(on))?;
        Ok(on.within(sum, 1.0))
    });
    let sums = sums.collect::<Result<Vec<_>, FheError>>()?;
    let sums = refreshed(on, at.part("first_sum"), sums, statistics)?;
    let mut exponentials = Vec::with_capacity(heads.len());
    let mut second = Vec::with_capacity(heads.len());
    for ((head, p), sum) in heads.into_iter().zip(&sums) {
        let (e, sum) = squares(on, head, p, sum, keys, high)?;
        exponentials.push(e);
        second.push(sum);
    }
    let second = refreshed(on, at.part("second_sum"), second, statistics)?;
    let both = exponentials.into_iter().zip(second);
    Ok(both.map(|(exponentials, sum)| Weights { exponentials, sum }).collect())
}

/// Refreshes sums, to twice their scale, with the imaginary part of the refresh's error removed. The error in the real
/// part of Σp multiplies all weights of a row, and so Σe too, where it cancels. An imaginary part would be removed from
/// Σe by its own refresh but stay in e, and mix the two columns of a pair in P·V, most where Σp is smallest.
pub(crate) fn refreshed<S: Slots>(
    on: &S,
    at: StepId,
    sums: Vec<S::Value>,
    limbs: usize,
) -> Result<Vec<S::Value>, FheError> {
    let sums = on.refresh(at, sums, limbs)?;
    sums.par_iter().map(|sum| on.real(sum)).collect()
}

/// The scale of e for heads that [`weights`] takes together, known before e is computed.
///
/// # Errors
/// None for calibrated intervals.
pub fn weight_scale<'a, S: Slots>(on: &S, heads: impl Iterator<Item = &'a Softmax>) -> Result<Scale, FheError> {
    scale_of(on.default_scale().value() / highest(heads))
}

/// The largest upper end of the second intervals, if that is above 1.
pub(crate) fn highest<'a>(heads: impl Iterator<Item = &'a Softmax>) -> f64 {
    heads.map(Softmax::second_high).fold(1.0, f64::max)
}

/// e = (p/Σp)² and Σe without padding, from the refreshed `sum`.
fn squares<S: Slots>(
    on: &S,
    head: &Softmax,
    p: Vec<S::Value>,
    sum: &S::Value,
    keys: &KeyMask<'_, S::Value>,
    high: f64,
) -> Result<(Vec<S::Value>, S::Value), FheError> {
    let from = p.first().map_or(on.floor(), |p| on.limbs(p));
    let arrives = below(on, on.limbs(sum), head.first.levels())?;
    let limbs = from.min(arrives);
    let normalised = below(on, limbs, 1)?;
    // Scales are derived backwards from that of e.
    let target = on.default_scale().value() / high;
    let y_scale = (target * divisor(on, normalised)?).sqrt();
    let p_scale = p.first().map_or(on.default_scale(), |p| on.scale(p));
    let inverse_scale = scale_of(y_scale * divisor(on, limbs)? / p_scale.value())?;
    let inverse = head.first_inverse(on, sum, inverse_scale)?;
    let inverse = on.drop_to(&inverse, limbs)?;
    let square = |p: S::Value| -> Result<S::Value, FheError> {
        let y = on.within(product(on, &p, &inverse)?, 1.0);
        drop(p);
        Ok(on.within(product(on, &y, &y)?, 1.0))
    };
    let e = p.into_par_iter().map(square);
    let e = e.collect::<Result<Vec<_>, FheError>>()?;
    let again = |scale| head.first_inverse(on, sum, scale);
    let sum = total(on, &e)?;
    let sum = keys.subtract_padding_squares(on, sum, &inverse, again, head.padding(on))?;
    Ok((e, on.within(sum, high)))
}

impl<V: Clone + Send + Sync> Weights<V> {
    /// 1/Σe at scale `target`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn inverse<S: Slots<Value = V>>(&self, on: &S, head: &Softmax, target: Scale) -> Result<V, FheError> {
        head.second_inverse(on, &self.sum, target)
    }

    /// The attention weights with their last factor: one more level, and one more product per diagonal, than in
    /// an encoder's attention, which multiplies by V first.
    ///
    /// # Errors
    /// Too few levels.
    pub fn whole<S: Slots<Value = V>>(&self, on: &S, head: &Softmax) -> Result<Vec<V>, FheError> {
        let inverse = self.inverse(on, head, on.default_scale())?;
        let weight = |e: &V| product(on, e, &inverse);
        self.exponentials.par_iter().map(weight).collect()
    }
}

#[cfg(test)]
#[path = "softmax_tests.rs"]
mod tests;
