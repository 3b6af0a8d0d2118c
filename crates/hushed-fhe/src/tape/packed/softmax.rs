//! Softmax of all heads at once, in packed rows: [`crate::ops::softmax`] with one polynomial per place.
//!
//! The scores of the heads lie side by side, so each head's exponential is in the coefficients of its places. Where
//! heads take several vectors of columns, so do scores, and the sums of two vectors share a refresh. All heads are
//! normalised over one range, the widest: the calibration gives all heads of a layer the same number of steps, which is
//! what the widest needs. Masks exclude padding from the sums; whatever weight it holds is multiplied by values of 0. A
//! head with a fixed pattern has no exponential: its pattern is added instead.
//!
//! With n the mask of keys that are tokens, t = s − 1 + (1 + offset)·n, −1 for padding, and sums are over p·n and e·n.

use std::sync::Arc;

use hushed_ckks::poly::{Inverse, SlotPolynomial};
use hushed_model::StepId;
use rayon::prelude::*;

use super::{Packed, Places};
use crate::choices::{AttentionChoice, HeadChoice, fits};
use crate::error::FheError;
use crate::ops::packed::rows::{Kept, PackedRows};
use crate::packing::PackingError;
use crate::slots::Slots;
use crate::tape::attention::refreshed;
use crate::tape::functions::SlotFunction;
use crate::tape::record::Recorder;
use crate::tape::{NodeId, Plain};

/// The ends of the second interval if no head has a softmax.
const NO_HEAD: (f64, f64) = (0.5, 1.0);

/// The upper end for the sum of a row whose weights are exact, as in calibrations.
const ABOVE: f64 = 1.03;

/// The polynomials and inverses of a layer's softmax.
pub(super) struct PackedSoftmax {
    /// One per vector of columns.
    exponentials: Vec<SlotPolynomial>,
    first: Arc<Inverse>,
    second: Arc<Inverse>,
    /// The upper end of the second sums, at least 1.
    high: f64,
    /// By vector of columns, then by head within it.
    kinds: Arc<Vec<Vec<Kind>>>,
    /// Pairs of columns of a head.
    pairs: usize,
}

/// The kind of a head: t = factor·s + offset if learned.
#[derive(Clone, Copy)]
enum Kind {
    Learned { factor: f64, offset: f64 },
    Previous,
    Absent,
}

impl PackedSoftmax {
    /// The functions for a layer's choice.
    ///
    /// # Errors
    /// [`PackingError::Mismatch`] for more heads than the columns hold; [`FheError::Poly`] for intervals without a fit.
    pub fn new<S: Slots>(on: &S, places: &Places, choice: &AttentionChoice) -> Result<Self, FheError> {
        let Places { heads, columns } = places;
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
            second: Arc::new(Inverse::with_steps(low, high, choice.second_steps)?),
            exponentials,
            first: Arc::new(first),
            high,
            kinds: Arc::new(kinds.collect()),
            pairs: heads.pairs(),
        })
    }

    /// The factor of the scores of head `head` in t: part of the queries' map.
    pub fn factor(&self, head: usize) -> f64 {
        match self.kinds.iter().flatten().nth(head) {
            Some(Kind::Learned { factor, .. }) => *factor,
            _ => 0.0,
        }
    }

    /// The exponentials e, not normalised, laid out as the scores, and 1/Σe in all places of its head, by vector of
    /// columns, from scores times [`PackedSoftmax::factor`].
    pub fn weights(&self, t: &mut Recorder, p: &Packed, at: StepId, scores: &[NodeId]) -> Vec<(NodeId, NodeId)> {
        t.at(at.part("exp"));
        let exponential = |(of, &scores): (usize, &NodeId)| self.exponential(t, p, of, scores);
        let exponentials: Vec<NodeId> = scores.iter().enumerate().map(exponential).collect();
        t.at(at.part("weigh"));
        let sums = self.summed(t, p, &exponentials, 1.0);
        let sums = refreshed(t, at.part("weigh"), "first_sum", &sums, 1.0);
        let first = t.function(SlotFunction::Inverse(Arc::clone(&self.first)));
        // A pattern's e is 1 up to the error of the second inverse.
        let most = self.second.eval(1.0).recip().max(1.0);
        t.at(at.part("weigh"));
        let mut weights = Vec::with_capacity(exponentials.len());
        for (of, (x, sum)) in exponentials.into_iter().zip(sums).enumerate() {
            let inverse = t.apply(first, sum);
            let y = t.mul(x, inverse);
            t.within(y, 1.0);
            let e = t.mul(y, y);
            let e = t.add_vectors(e, self.patterns(p, of));
            weights.push(t.within(e, most));
        }
        let sums = self.summed(t, p, &weights, self.high);
        let sums = refreshed(t, at.part("weigh"), "second_sum", &sums, self.high);
        let second = t.function(SlotFunction::Inverse(Arc::clone(&self.second)));
        t.at(at.part("attend"));
        let inverses = sums.into_iter().map(|sum| t.apply(second, sum));
        weights.into_iter().zip(inverses.collect::<Vec<_>>()).collect()
    }

    /// p of the scores of vector `of` of columns.
    fn exponential(&self, t: &mut Recorder, p: &Packed, of: usize, mut scores: NodeId) -> NodeId {
        let kind = self.kind(of);
        if let Some(hidden) = p.hidden {
            let kind = kind.clone();
            let rise = p.numbers(move |_, _, _, place| match kind(place) {
                Kind::Learned { offset, .. } => 1.0 + offset,
                Kind::Previous | Kind::Absent => 0.0,
            });
            let seen = t.mul_vectors(hidden.keys, vec![rise]);
            scores = t.add(scores, seen);
        }
        let (known, sees) = (p.hidden.is_none(), sees(p));
        let shifts = (0..p.places.heads.vectors()).map(|vector| {
            let (kind, sees) = (kind.clone(), sees.clone());
            p.numbers(move |rows, text, row, place| match kind(place) {
                // Padding has the least exponential: 0 is outside some intervals.
                Kind::Learned { offset, .. } => match sees(rows, vector, text, row, place) {
                    true if known => offset,
                    _ => -1.0,
                },
                Kind::Previous | Kind::Absent => 0.0,
            })
        });
        let argument = t.add_vectors(scores, shifts.collect());
        t.within(argument, 1.0);
        let polynomial = self.exponentials.get(of).into_iter().cloned().collect();
        let function = t.function(SlotFunction::Places(Arc::new(polynomial)));
        let p = t.apply(function, argument);
        t.within(p, 1.0)
    }

    /// e of the heads with a fixed pattern, 0 in others: row i attends to row i − 1, and row 0 to itself, scaled so
    /// that the weight is 1 after the inverse of Σe = 1. It skips the first inverse, which leaves an error of its own
    /// in every place, and near the ends of a wide range multiplies errors by the width.
    fn patterns(&self, p: &Packed, of: usize) -> Vec<Plain> {
        let (one, heads) = (1.0 / self.second.eval(1.0), p.places.heads);
        let pattern = |vector: usize| {
            let kind = self.kind(of);
            p.numbers(move |_, _, row, place| {
                let key = (row + heads.diagonal(vector, place)) % heads.layout().rows();
                match kind(place) {
                    Kind::Previous if key == row.saturating_sub(1) => one,
                    _ => 0.0,
                }
            })
        };
        (0..heads.vectors()).map(pattern).collect()
    }

    /// The sums over the keys of each row and head, excluding padding, in all places of the head; within `high`. 1
    /// where there is nothing to sum.
    fn summed(&self, t: &mut Recorder, p: &Packed, weights: &[NodeId], high: f64) -> Vec<NodeId> {
        let sum = |(of, &weights): (usize, &NodeId)| {
            let (kind, pairs) = (self.kind(of), self.pairs);
            let sum = of_tokens(t, p, weights);
            let learned = kind.clone();
            let mask = move |place: usize| match learned(place) {
                Kind::Learned { .. } => f64::from(u8::from(place.is_multiple_of(pairs))),
                _ => 0.0,
            };
            let sum = p.over_places(t, sum, pairs, |t, sum| p.times(t, sum, Kept::All, vec![mask]));
            let ones = p.numbers(move |rows, text, _, place| match kind(place) {
                Kind::Learned { .. } if rows.length(text) > 0 => 0.0,
                _ => 1.0,
            });
            let sum = t.add_vectors(sum, vec![ones]);
            t.within(sum, high)
        };
        weights.iter().enumerate().map(sum).collect()
    }

    /// The kinds of the heads at places of vector `of` of columns.
    fn kind(&self, of: usize) -> impl Fn(usize) -> Kind + Clone + Send + Sync + 'static {
        let (kinds, pairs) = (Arc::clone(&self.kinds), self.pairs);
        move |place| {
            let kind = kinds.get(of).and_then(|kinds| kinds.get(place / pairs));
            kind.copied().unwrap_or(Kind::Absent)
        }
    }
}

/// Sums vectors of scores over the keys that are tokens.
fn of_tokens(t: &mut Recorder, p: &Packed, weights: NodeId) -> NodeId {
    if let Some(hidden) = p.hidden {
        let (weights, keys) = (t.turn(weights), t.turn(hidden.keys));
        return t.dot(weights, keys);
    }
    let sees = sees(p);
    let mask = |vector: usize| {
        let sees = sees.clone();
        p.numbers(move |rows, text, row, place| f64::from(u8::from(sees(rows, vector, text, row, place))))
    };
    t.combine_vectors(weights, (0..p.places.heads.vectors()).map(mask).collect())
}

/// Whether the key of a slot of a vector of the scores is a token.
fn sees(p: &Packed) -> impl Fn(&PackedRows<()>, usize, usize, usize, usize) -> bool + Clone + Send + Sync + 'static {
    let heads = p.places.heads;
    move |rows, vector, text, row, place| {
        (row + heads.diagonal(vector, place)) % heads.layout().rows() < rows.length(text)
    }
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
