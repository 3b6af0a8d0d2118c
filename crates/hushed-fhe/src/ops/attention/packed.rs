//! Attention of texts in packed rows ([`crate::packing::Layout`]; docs/one-text.md): all heads at once.
//!
//! ```text
//! step                                     level after
//! x̂, pairs                                 l
//! Q, K, V: one grid of maps                l − 1
//! Q·Kᵀ: copies, products, sums             l − 4
//! p ≈ e^{s/2}, degree 15                   l − 8
//! y = p·(1/Σp), Σp refreshed               l − 9
//! e = y²                                   l − 10
//! P·V and ×1/Σe: copies, products, sums    l − 13
//! output: a grid of maps                   l − 14
//! ```
//!
//! What is not here yet: biases, lengths of texts (padding), intervals of each head (one softmax stands for all), and
//! refreshes of few slots: Σp and Σe are spread over the places of their head, and refreshed with all slots.

use hushed_ckks::CkksError;
use hushed_ckks::maps::GridSplit;
use hushed_model::StepId;
use rayon::prelude::*;

use crate::error::FheError;
use crate::ops::levels::{below, divisor, scale_of};
use crate::ops::norm::product;
use crate::ops::softmax::{Softmax, highest, refreshed, total};
use crate::packing::heads::{Heads, attend_times, scores};
use crate::packing::sums::over_places;
use crate::packing::{PackingError, Spread};
use crate::slots::Slots;

/// Weights of a layer's attention, row after row, all d × d; the scores' factor 1/√dh is in none of them.
pub struct PackedWeights<'a> {
    /// Queries.
    pub query: &'a [f64],
    /// Keys.
    pub key: &'a [f64],
    /// Values.
    pub value: &'a [f64],
    /// Output.
    pub output: &'a [f64],
}

/// A layer's attention in packed rows.
pub struct PackedAttention<'a> {
    /// How heads lie.
    pub heads: Heads,
    /// Columns a head.
    pub head_width: usize,
    /// Places of the d columns.
    pub columns: Spread,
    /// The maps.
    pub weights: PackedWeights<'a>,
    /// Exponential and inverses, for all heads.
    pub softmax: &'a Softmax,
    /// Primes of a refreshed sum.
    pub statistics: usize,
}

impl PackedAttention<'_> {
    /// The output of attention, pairs of columns in their places at [`Slots::default_scale`], of `x`, pairs too.
    ///
    /// # Errors
    /// [`FheError::Packing`] for more columns than one vector has places for; too few levels; where values are visible,
    /// [`FheError::Range`] for sums above 1.
    pub fn run<S: Slots>(&self, on: &S, at: StepId, x: S::Value) -> Result<S::Value, FheError> {
        on.at(at.part("query_key"));
        let [q, k, v] = self.inputs(on, x)?;
        on.at(at.part("scores"));
        let t = scores(on, &self.heads, q, k, on.default_scale())?;
        let (e, sum) = self.exponentials(on, at, t)?;
        on.at(at.part("attend"));
        let inverse = self.inverse(on, &sum, &v, &e)?;
        let out = attend_times(on, &self.heads, e, v, &inverse)?;
        on.at(at.part("output"));
        let d = self.columns.width();
        let weight = |r: usize, c: usize| self.weights.output[r * d + c];
        let mut out = self.mapped(on, &self.columns, weight, out)?;
        out.pop().ok_or_else(|| PackingError::Mismatch.into())
    }

    /// Q, the conjugates of K, and V: one set of rotations. The factor that makes t of a score is in Q.
    fn inputs<S: Slots>(&self, on: &S, x: S::Value) -> Result<[S::Value; 3], FheError> {
        let (d, used) = (self.columns.width(), self.columns.used());
        let (factor, _) = self.softmax.argument();
        let factor = factor / (self.head_width as f64).sqrt();
        let group = self.head_width / 2;
        let stacked = self.heads.layout().spread(3 * d, group)?;
        // A matrix a vector: all their columns are in use.
        if self.columns.vectors() != 1 || stacked.vectors() != 3 || 2 * used != d {
            return Err(PackingError::Mismatch.into());
        }
        let weight = |r: usize, c: usize| match r / d {
            0 => factor * self.weights.query[r * d + c],
            1 => self.weights.key[(r - d) * d + c],
            _ => self.weights.value[(r - 2 * d) * d + c],
        };
        let mapped = self.mapped(on, &stacked, weight, x)?;
        let [q, k, v] = <[S::Value; 3]>::try_from(mapped).map_err(|_| PackingError::Mismatch)?;
        Ok([q, on.conjugate(&k)?, v])
    }

    /// One vector of pairs through a map.
    fn mapped<S: Slots>(
        &self,
        on: &S,
        rows: &Spread,
        weight: impl Fn(usize, usize) -> f64,
        x: S::Value,
    ) -> Result<Vec<S::Value>, FheError> {
        let grid = self.heads.layout().map([rows, &self.columns], weight);
        let grid = grid.map_err(CkksError::from)?;
        let split = GridSplit::balanced(&grid).map_err(CkksError::from)?;
        let conjugate = on.conjugate(&x)?;
        on.maps(&grid, &split, &[x, conjugate], on.default_scale())
    }

    /// e of every vector of t less its offset, and Σe, refreshed.
    fn exponentials<S: Slots>(
        &self,
        on: &S,
        at: StepId,
        t: Vec<S::Value>,
    ) -> Result<(Vec<S::Value>, S::Value), FheError> {
        on.at(at.part("exp"));
        let (_, offset) = self.softmax.argument();
        let exponential = |(v, t): (usize, S::Value)| {
            let t = on.within(on.add_constant(t, offset)?, 1.0);
            self.softmax.exponential(on, v, &t)
        };
        let p = t.into_par_iter().enumerate().map(exponential);
        let p = p.collect::<Result<Vec<_>, FheError>>()?;
        on.at(at.part("weigh"));
        let sum = self.summed(on, at.part("first_sum"), &p, 1.0)?;
        // As for the diagonals of a batch: scales are derived backwards from that of e.
        let high = highest(std::iter::once(self.softmax));
        let from = p.first().map_or(on.floor(), |p| on.limbs(p));
        let limbs = from.min(below(on, on.limbs(&sum), self.softmax.first().levels())?);
        let normalised = below(on, limbs, 1)?;
        let y_scale = (on.default_scale().value() / high * divisor(on, normalised)?).sqrt();
        let p_scale = p.first().map_or(on.default_scale(), |p| on.scale(p));
        let inverse_scale = scale_of(y_scale * divisor(on, limbs)? / p_scale.value())?;
        let inverse = self.softmax.first_inverse(on, &sum, inverse_scale)?;
        let inverse = on.drop_to(&inverse, limbs)?;
        let square = |p: S::Value| -> Result<S::Value, FheError> {
            let y = on.within(product(on, &p, &inverse)?, 1.0);
            Ok(on.within(product(on, &y, &y)?, 1.0))
        };
        let e = p.into_par_iter().map(square);
        let e = e.collect::<Result<Vec<_>, FheError>>()?;
        let sum = self.summed(on, at.part("second_sum"), &e, high)?;
        Ok((e, sum))
    }

    /// The sums over the keys of each row and head, in all places of the head, refreshed; within `high`.
    fn summed<S: Slots>(
        &self,
        on: &S,
        at: StepId,
        vectors: &[S::Value],
        high: f64,
    ) -> Result<S::Value, FheError> {
        let sum = total(on, vectors)?;
        let (layout, places) = (self.heads.layout(), self.head_width / 2);
        let scale = on.scale(&sum);
        let sum = on.within(over_places(on, layout, &sum, (places, 1.0), scale)?, high);
        let mut sums = refreshed(on, at, vec![sum], self.statistics)?;
        sums.pop().ok_or_else(|| PackingError::Mismatch.into())
    }

    /// 1/Σe at the scale that brings P·V to the default scale, no higher than it is needed.
    fn inverse<S: Slots>(
        &self,
        on: &S,
        sum: &S::Value,
        v: &S::Value,
        e: &[S::Value],
    ) -> Result<S::Value, FheError> {
        let lowest = e.iter().chain([v]).map(|x| on.limbs(x)).min();
        let limbs = lowest.unwrap_or(on.floor());
        // Copies, then the product that 1/Σe meets; a mask before that.
        let (copied, met) = (below(on, limbs, 1)?, below(on, limbs, 2)?);
        let weights = e.first().map_or(on.default_scale(), |e| on.scale(e));
        let attended = weights.times(on.scale(v)).value() / divisor(on, copied)?;
        let target = scale_of(on.default_scale().value() * divisor(on, met)? / attended)?;
        let f = crate::ops::functions::Function::SecondInverse { head: 0 };
        let second = self.softmax.second();
        let compute = || second.evaluate(on, sum, target);
        let inverse = on.apply(&f, sum, (second.levels(), target), compute)?;
        on.drop_to(&inverse, copied.min(on.limbs(&inverse)))
    }
}
