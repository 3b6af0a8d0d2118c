//! Softmax of all heads at once, in packed rows: [`crate::ops::softmax`] with one polynomial per place.
//!
//! The scores of the heads lie side by side, so each head's exponential is in the coefficients of its places. Where
//! heads take several vectors of columns, so do scores, and the sums of two vectors share a refresh. All heads are
//! normalised over one range, the widest: the calibration gives all heads of a layer the same number of steps, which is
//! what the widest needs. Masks exclude padding from the sums; whatever weight it holds is multiplied by values of 0. A
//! head with a fixed pattern has no exponential: its pattern is added instead.
//!
//! With n the mask of keys that are tokens, t = s − 1 + (1 + offset)·n, −1 for padding, and sums are over p·n and e·n.

use hushed_ckks::Scale;
use hushed_ckks::poly::{Inverse, SlotPolynomial, evaluate_slots};
use hushed_model::StepId;
use rayon::prelude::*;

use super::reaching;
use super::rows::{Kept, PackedRows};
use crate::choices::{AttentionChoice, HeadChoice, fits};
use crate::error::FheError;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::ops::norm::product;
use crate::ops::softmax::refreshed;
use crate::packing::heads::Heads;
use crate::packing::sums::over_places;
use crate::packing::{PackingError, Spread};
use crate::slots::Slots;

/// The ends of the second interval if no head has a softmax.
const NO_HEAD: (f64, f64) = (0.5, 1.0);

/// The upper end for the sum of a row whose weights are exact, as in calibrations.
const ABOVE: f64 = 1.03;

/// The polynomials and inverses of a layer's softmax.
pub struct PackedSoftmax<'a, V> {
    heads: &'a Heads,
    rows: &'a PackedRows<V>,
    /// One per vector of columns.
    exponentials: Vec<SlotPolynomial>,
    first: Inverse,
    second: Inverse,
    /// The upper end of the second sums, at least 1.
    high: f64,
    /// By vector of columns, then by head within it.
    kinds: Vec<Vec<Kind>>,
}

/// The kind of a head: t = factor·s + offset if learned.
#[derive(Clone, Copy)]
enum Kind {
    Learned { factor: f64, offset: f64 },
    Previous,
    Absent,
}

/// The exponentials e, not normalised, and Σe, refreshed, by vector of columns.
pub struct PackedWeights<V> {
    /// e, laid out as the scores of [`crate::packing::heads::scores`].
    pub exponentials: Vec<Vec<V>>,
    /// Σe in all places of its head.
    pub sums: Vec<V>,
}

/// Identifies a vector of scores: the vector of columns, and the index among its vectors of scores.
type At = (usize, usize);

impl<'a, V: Clone + Send + Sync> PackedSoftmax<'a, V> {
    /// The functions for a layer's choice.
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] for more heads than the columns hold; [`FheError::Poly`] for intervals without a fit.
    pub fn new<S: Slots<Value = V>>(
        on: &S,
        heads: &'a Heads,
        columns: &Spread,
        rows: &'a PackedRows<V>,
        choice: &AttentionChoice,
    ) -> Result<Self, FheError> {
        let each = columns.used() / heads.pairs();
        if each == 0 || choice.heads.len() > each * columns.vectors() {
            return Err(PackingError::Mismatch.into());
        }
        let kinds = choice.heads.chunks(each);
        let kinds = kinds.map(|heads| heads.iter().map(Kind::of).collect());
        let fit = || -> Result<Vec<_>, FheError> {
            let fit = |head: &HeadChoice| match head {
                HeadChoice::Previous => Ok(None),
                HeadChoice::Softmax { .. } => fits::exponential(head, choice.degree).map(Some),
            };
            let fitted: Vec<_> = choice.heads.par_iter().map(fit).collect::<Result<_, _>>()?;
            let of_vector = |fitted: &[Option<_>]| {
                let places = 0..heads.layout().columns();
                let at = places.map(|u| fitted.get(u / heads.pairs()).and_then(Option::as_ref));
                Ok(SlotPolynomial::new(choice.degree, &at.collect::<Vec<_>>())?)
            };
            fitted.chunks(each).map(of_vector).collect()
        };
        let any = || Ok(vec![SlotPolynomial::new(choice.degree, &[])?; columns.vectors()]);
        let exponentials = on.fitted(fit, any)?;
        let mut lowest: Option<f64> = None;
        let (mut low, mut high) = NO_HEAD;
        for head in &choice.heads {
            if let HeadChoice::Softmax { first, second, .. } = head {
                let ratio = first.low / first.high;
                lowest = Some(lowest.map_or(ratio, |l: f64| l.min(ratio)));
                low = low.min(second.low);
                high = high.max(second.high);
            }
        }
        let first = Inverse::with_steps(lowest.unwrap_or(NO_HEAD.0), 1.0, choice.first_steps)?;
        // A head with a narrow range may get the error of the widest range's inverse anywhere in its own.
        let error = first.report().error;
        low *= (1.0 - error).powi(2);
        high = high.max(ABOVE * (1.0 + error).powi(2));
        Ok(Self {
            second: Inverse::with_steps(low, high, choice.second_steps)?,
            heads,
            rows,
            exponentials,
            first,
            high,
            kinds: kinds.collect(),
        })
    }

    /// The factor of the scores of head `head` in t: part of the queries' map.
    pub fn factor(&self, head: usize) -> f64 {
        match self.kinds.iter().flatten().nth(head) {
            Some(Kind::Learned { factor, .. }) => *factor,
            _ => 0.0,
        }
    }

    /// The scale of e.
    ///
    /// # Errors
    /// None for calibrated intervals.
    pub fn weight_scale<S: Slots>(&self, on: &S) -> Result<Scale, FheError> {
        scale_of(on.default_scale().value() / self.high)
    }

    /// e and Σe from `scores` times [`PackedSoftmax::factor`], by vector of columns.
    ///
    /// # Errors
    /// Too few levels; where values are visible, [`FheError::Range`] for sums above 1.
    pub fn weights<S: Slots<Value = V>>(
        &self,
        on: &S,
        at: StepId,
        scores: Vec<Vec<S::Value>>,
        statistics: usize,
    ) -> Result<PackedWeights<S::Value>, FheError> {
        on.at(at.part("exp"));
        let p = each(scores, |at, s| self.exponential(on, at, s))?;
        on.at(at.part("weigh"));
        let first = p.iter().flatten().next().ok_or(PackingError::Mismatch)?;
        let (from, p_scale) = (on.limbs(first), on.scale(first));
        let primes = reaching(on, from, self.first.levels(), statistics);
        let sums = self.summed(on, at.part("first_sum"), &p, (1.0, primes))?;
        let mut limbs = from;
        for sum in &sums {
            limbs = limbs.min(below(on, on.limbs(sum), self.first.levels())?);
        }
        let normalised = below(on, limbs, 1)?;
        // Scales are derived backwards from that of e.
        let target = self.weight_scale(on)?.value();
        let y_scale = (target * divisor(on, normalised)?).sqrt();
        let inverse_scale = scale_of(y_scale * divisor(on, limbs)? / p_scale.value())?;
        let inverses = sums.iter().map(|sum| {
            let inverse = self.first.evaluate(on, sum, inverse_scale)?;
            on.drop_to(&inverse, limbs)
        });
        let inverses = inverses.collect::<Result<Vec<_>, FheError>>()?;
        drop(sums);
        // A pattern's e is 1 up to the error of the second inverse.
        let most = self.second.eval(1.0).recip().max(1.0);
        let square = |at: At, p: S::Value| {
            let inverse = inverses.get(at.0).ok_or(PackingError::Mismatch)?;
            let y = on.within(product(on, &p, inverse)?, 1.0);
            drop(p);
            let e = on.add_vector(product(on, &y, &y)?, &self.pattern(on, at))?;
            Ok(on.within(e, most))
        };
        let exponentials = each(p, square)?;
        let at = at.part("second_sum");
        // A level below e, where its copies are.
        let first = exponentials.iter().flatten().next();
        let from = first.map_or(on.floor(), |e| on.limbs(e));
        let primes = reaching(on, below(on, from, 1)?, self.second.levels(), statistics);
        let sums = self.summed(on, at, &exponentials, (self.high, primes))?;
        Ok(PackedWeights { exponentials, sums })
    }

    /// 1/Σe at scale `target`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn second_inverse<S: Slots<Value = V>>(
        &self,
        on: &S,
        sum: &S::Value,
        target: Scale,
    ) -> Result<S::Value, FheError> {
        self.second.evaluate(on, sum, target)
    }

    /// Computes p from one vector of the scores.
    fn exponential<S: Slots<Value = V>>(&self, on: &S, at: At, mut scores: S::Value) -> Result<S::Value, FheError> {
        if let Some(keys) = self.rows.keys() {
            let key = keys.get(at.1).ok_or(PackingError::Mismatch)?;
            let key = on.drop_to(key, above(on, on.limbs(&scores))?)?;
            let rise = self.rows.numbers(on, |_, _, place| match self.kind(at.0, place) {
                Kind::Learned { offset, .. } => 1.0 + offset,
                Kind::Previous | Kind::Absent => 0.0,
            });
            let seen = on.mul_vector(&key, &rise, on.scale(&scores))?;
            on.add_assign(&mut scores, &seen)?;
        }
        let known = self.rows.keys().is_none();
        let shift = self.rows.numbers(on, |text, row, place| {
            match self.kind(at.0, place) {
                // Padding has the least exponential: 0 is outside some intervals.
                Kind::Learned { offset, .. } => match self.sees(at.1, text, row, place) {
                    true if known => offset,
                    _ => -1.0,
                },
                Kind::Previous | Kind::Absent => 0.0,
            }
        });
        let t = on.within(on.add_vector(scores, &shift)?, 1.0);
        let polynomial = self.exponentials.get(at.0).ok_or(PackingError::Mismatch)?;
        let p = evaluate_slots(on, &t, polynomial, on.default_scale())?;
        Ok(on.within(p, 1.0))
    }

    /// e of the heads with a fixed pattern, 0 in others: row i attends to row i − 1, and row 0 to itself, scaled so
    /// that the weight is 1 after the inverse of Σe = 1. It skips the first inverse, which leaves an error of its own
    /// in every place, and near the ends of a wide range multiplies errors by the width.
    fn pattern<S: Slots>(&self, on: &S, at: At) -> Vec<f64> {
        let one = 1.0 / self.second.eval(1.0);
        self.rows.numbers(on, |_, row, place| {
            let key = (row + self.heads.diagonal(at.1, place)) % self.heads.layout().rows();
            match self.kind(at.0, place) {
                Kind::Previous if key == row.saturating_sub(1) => one,
                _ => 0.0,
            }
        })
    }

    /// The sums over the keys of each row and head, excluding padding, in all places of the head, refreshed; within
    /// `high`. 1 where there is nothing to sum.
    fn summed<S: Slots<Value = V>>(
        &self,
        on: &S,
        at: StepId,
        weights: &[Vec<S::Value>],
        (high, primes): (f64, usize),
    ) -> Result<Vec<S::Value>, FheError> {
        let scale = scale_of(on.default_scale().value() / high)?;
        let mut sums = Vec::with_capacity(weights.len());
        for (of, vectors) in weights.iter().enumerate() {
            let sum = self.of_tokens(on, vectors, scale)?;
            let (layout, pairs) = (self.heads.layout(), self.heads.pairs());
            let sum = over_places(on, layout, &sum, pairs, |sum, first| {
                let learned = |place| match self.kind(of, place) {
                    Kind::Learned { .. } => first(place),
                    _ => 0.0,
                };
                self.rows.times(on, sum, (Kept::All, learned), scale)
            })?;
            let ones = self.rows.numbers(on, |text, _, place| match self.kind(of, place) {
                Kind::Learned { .. } if self.rows.length(text) > 0 => 0.0,
                _ => 1.0,
            });
            sums.push(on.within(on.add_vector(sum, &ones)?, high));
        }
        refreshed(on, at, sums, primes)
    }

    /// Sums vectors of scores over the keys that are tokens.
    fn of_tokens<S: Slots<Value = V>>(&self, on: &S, vectors: &[V], scale: Scale) -> Result<V, FheError> {
        if let Some(keys) = self.rows.keys() {
            let limbs = vectors.iter().map(|x| on.limbs(x)).min();
            let limbs = limbs.unwrap_or(on.floor());
            let short = |x: &[V]| {
                let cut = x.iter().map(|x| Ok(vec![on.drop_to(x, limbs)?]));
                cut.collect::<Result<Vec<_>, FheError>>()
            };
            let sum = on.dot_grid(&short(vectors)?, &short(keys)?)?;
            let sum = sum.into_iter().flatten().next();
            return sum.ok_or_else(|| PackingError::Mismatch.into());
        }
        let limbs = vectors.iter().map(|x| on.limbs(x)).min();
        let limbs = limbs.unwrap_or(on.floor());
        let mut sum = on.sum(limbs, scale_of(scale.value() * divisor(on, limbs)?)?)?;
        for (vector, x) in vectors.iter().enumerate() {
            let mask =
                self.rows.numbers(on, |text, row, place| f64::from(u8::from(self.sees(vector, text, row, place))));
            on.add_multiples(&mut sum, x, &mask)?;
        }
        on.finish(sum)
    }

    fn kind(&self, vector: usize, place: usize) -> Kind {
        let kinds = self.kinds.get(vector);
        let kind = kinds.and_then(|kinds| kinds.get(place / self.heads.pairs()));
        kind.copied().unwrap_or(Kind::Absent)
    }

    /// Whether the key of a slot of vector `vector` of the scores is a token.
    fn sees(&self, vector: usize, text: usize, row: usize, place: usize) -> bool {
        let key = row + self.heads.diagonal(vector, place);
        key % self.heads.layout().rows() < self.rows.length(text)
    }
}

/// Applies `f` to every vector in parallel.
fn each<V: Send>(
    vectors: Vec<Vec<V>>,
    f: impl Fn(At, V) -> Result<V, FheError> + Sync,
) -> Result<Vec<Vec<V>>, FheError> {
    let of_one = |(of, vectors): (usize, Vec<V>)| {
        let vectors = vectors.into_par_iter().enumerate();
        vectors.map(|(vector, x)| f((of, vector), x)).collect()
    };
    vectors.into_par_iter().enumerate().map(of_one).collect()
}

impl Kind {
    fn of(head: &HeadChoice) -> Kind {
        match head {
            HeadChoice::Softmax { scores, .. } => {
                Kind::Learned { factor: 1.0 / scores.half(), offset: -scores.middle() / scores.half() }
            }
            HeadChoice::Previous => Kind::Previous,
        }
    }
}
