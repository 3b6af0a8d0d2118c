//! exp by squarings: of 1 + x/2^r, or of a best polynomial.
//!
//! | method | exact value | for |
//! |---|---|---|
//! | [`ExpByLimit`] | (1 + x/2^r)^(2^r), relative error about x²/2^(r+1) | few products; never above 1 on [−2^(r+1), 0] |
//! | [`ExpBySquarings`] | p(x/2^r)^(2^r), relative error 2^r times that of p | precision |
//!
//! An error ε in what is squared becomes 2^r·ε relative to the result, rescaling errors included: at r = 7 seven bits are
//! lost. Target scales are worked out backwards, s_i = √(s_(i+1)·D).

use hushed_math::fit::minimax;

use super::arithmetic::{Arithmetic, PolyError, Weight, scale};
use super::chebyshev::Polynomial;
use super::paterson::{evaluate, multiple};
use super::report::{Approximation, greatest};
use super::schedule::{Cost, Ladder, Schedule};
use crate::scale::Scale;

/// Largest r.
const MAX_SQUARINGS: usize = 12;

/// (1 + x/2^r)^(2^r).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct ExpByLimit {
    low: f64,
    high: f64,
    squarings: usize,
}

impl ExpByLimit {
    /// For x in [`low`, `high`], with r = `squarings`.
    ///
    /// # Errors
    /// [`PolyError::Range`] unless −2^r ≤ low < high ≤ 2^r (below −2^r the value rises again), [`PolyError::Parameter`] unless
    /// 1 ≤ r ≤ 12.
    pub fn new(low: f64, high: f64, squarings: usize) -> Result<Self, PolyError> {
        check_squarings(squarings)?;
        let reach = (1u64 << squarings) as f64;
        if !(low < high && -reach <= low && high <= reach) {
            return Err(PolyError::Range { low, high });
        }
        Ok(Self {
            low,
            high,
            squarings,
        })
    }

    /// Levels of [`ExpByLimit::evaluate`]: r + 1.
    pub fn levels(&self) -> usize {
        self.squarings + 1
    }

    /// Levels of [`ExpByLimit::evaluate_folded`]: r.
    pub fn levels_folded(&self) -> usize {
        self.squarings
    }

    /// Range, error, cost (of the form that is not folded). The error is absolute: where exp is small, it is.
    pub fn report(&self) -> Approximation {
        Approximation {
            name: "exp(x) = (1 + x/2^r)^(2^r)",
            low: self.low,
            high: self.high,
            degree: 1 << self.squarings,
            error: greatest(self.low, self.high, |x| self.eval(x) - x.exp()),
            relative: false,
            cost: Cost {
                products: self.squarings,
                relinearisations: self.squarings,
                multiples: 1,
                depth: self.levels(),
            },
        }
    }

    /// The value in f64.
    pub fn eval(&self, x: f64) -> f64 {
        let power = (1u64 << self.squarings) as f64;
        (0..self.squarings).fold(1.0 + x / power, |y, _| y * y)
    }

    /// exp(x) at the scale `target`.
    ///
    /// # Errors
    /// Too few levels, scales far from the primes, or what the arithmetic refuses.
    pub fn evaluate<A: Arithmetic>(
        &self,
        ar: &A,
        x: &A::Value,
        target: Scale,
    ) -> Result<A::Value, A::Error> {
        let ladder = Ladder::new(ar, ar.limbs(x), self.levels())?;
        let first = before_squarings(&ladder, 1, self.squarings, target)?;
        let power = (1u64 << self.squarings) as f64;
        let y = multiple(ar, x, 1.0 / power, first)?;
        squarings(ar, ar.add_constant(y, 1.0)?, self.squarings, self.bound())
    }

    /// Greatest |1 + x/2^r|.
    fn bound(&self) -> f64 {
        let power = (1u64 << self.squarings) as f64;
        (1.0 + self.low / power).abs().max(1.0 + self.high / power)
    }

    /// The scale at which [`ExpByLimit::evaluate_folded`] takes x/2^r over `limbs` primes.
    ///
    /// # Errors
    /// [`PolyError::LevelsTooFew`].
    pub fn folded_scale<A: Arithmetic>(
        &self,
        ar: &A,
        limbs: usize,
        target: Scale,
    ) -> Result<Scale, PolyError> {
        let ladder = Ladder::new(ar, limbs, self.squarings)?;
        before_squarings(&ladder, 0, self.squarings, target)
    }

    /// exp(x) at the scale `target` from x/2^r, where whoever produced x has folded the factor into its own: one level fewer.
    ///
    /// # Errors
    /// As [`ExpByLimit::evaluate`]; [`PolyError::ScaleMismatch`] unless the input has the scale [`ExpByLimit::folded_scale`].
    pub fn evaluate_folded<A: Arithmetic>(
        &self,
        ar: &A,
        x: &A::Value,
        target: Scale,
    ) -> Result<A::Value, A::Error> {
        let left = self.folded_scale(ar, ar.limbs(x), target)?;
        let right = ar.scale(x);
        if !left.matches(right) {
            return Err(PolyError::ScaleMismatch { left, right }.into());
        }
        let y = ar.add_constant(x.clone(), 1.0)?;
        squarings(ar, y, self.squarings, self.bound())
    }
}

/// A best polynomial of exp(x/2^r) in relative error, squared r times.
#[derive(Debug, Clone, PartialEq)]
pub struct ExpBySquarings {
    polynomial: Polynomial,
    squarings: usize,
    low: f64,
    high: f64,
}

impl ExpBySquarings {
    /// For x in [`low`, `high`], a polynomial of degree `degree`, r = `squarings` (0 for none).
    ///
    /// # Errors
    /// [`PolyError::Range`], [`PolyError::Parameter`], [`PolyError::Fit`].
    pub fn new(low: f64, high: f64, degree: usize, squarings: usize) -> Result<Self, PolyError> {
        if squarings > 0 {
            check_squarings(squarings)?;
        }
        if !(low < high && low.is_finite() && high.is_finite()) {
            return Err(PolyError::Range { low, high });
        }
        let power = (1u64 << squarings) as f64;
        let fit = minimax(
            |x| (x / power).exp(),
            |x| (-x / power).exp(),
            degree,
            low,
            high,
        )?;
        Ok(Self {
            polynomial: Polynomial::from_fit(&fit)?,
            squarings,
            low,
            high,
        })
    }

    /// Levels that it uses: the polynomial's, and one a squaring.
    pub fn levels(&self) -> usize {
        self.polynomial.depth() + self.squarings
    }

    /// Range, error, cost.
    pub fn report(&self) -> Approximation {
        let mut cost = Schedule::new(&[&self.polynomial]).cost();
        cost.products += self.squarings;
        cost.relinearisations += self.squarings;
        cost.multiples += usize::from(self.polynomial.interval_map().is_some());
        cost.depth = self.levels();
        Approximation {
            name: "exp(x) = p(x/2^r)^(2^r)",
            low: self.low,
            high: self.high,
            degree: self.polynomial.degree() << self.squarings,
            error: greatest(self.low, self.high, |x| self.eval(x) / x.exp() - 1.0),
            relative: true,
            cost,
        }
    }

    /// The polynomial of x that is squared.
    pub fn polynomial(&self) -> &Polynomial {
        &self.polynomial
    }

    /// The value in f64.
    pub fn eval(&self, x: f64) -> f64 {
        (0..self.squarings).fold(self.polynomial.eval(x), |y, _| y * y)
    }

    /// exp(x) at the scale `target`.
    ///
    /// # Errors
    /// Too few levels, scales far from the primes, or what the arithmetic refuses.
    pub fn evaluate<A: Arithmetic>(
        &self,
        ar: &A,
        x: &A::Value,
        target: Scale,
    ) -> Result<A::Value, A::Error> {
        let ladder = Ladder::new(ar, ar.limbs(x), self.levels())?;
        let first = before_squarings(&ladder, self.polynomial.depth(), self.squarings, target)?;
        let y = evaluate(ar, x, &self.polynomial, first)?;
        // The polynomial errs by far less than a thousandth.
        let bound = 1.001 * (self.high / (1u64 << self.squarings) as f64).exp();
        squarings(ar, y, self.squarings, bound)
    }
}

fn check_squarings(squarings: usize) -> Result<(), PolyError> {
    if (1..=MAX_SQUARINGS).contains(&squarings) {
        return Ok(());
    }
    Err(PolyError::Parameter {
        name: "squarings",
        value: squarings as f64,
        low: 1.0,
        high: MAX_SQUARINGS as f64,
    })
}

/// The scale from which `count` squarings, the first at `depth`, lead to `target`.
fn before_squarings(
    ladder: &Ladder,
    depth: usize,
    count: usize,
    target: Scale,
) -> Result<Scale, PolyError> {
    let back = |at: f64, i: usize| (at * ladder.divisor(depth + i)).sqrt();
    scale((0..count).rev().fold(target.value(), back))
}

/// y^(2^count) for |y| ≤ `bound`.
fn squarings<A: Arithmetic>(
    ar: &A,
    y: A::Value,
    count: usize,
    mut bound: f64,
) -> Result<A::Value, A::Error> {
    let mut y = ar.within(y, bound);
    for _ in 0..count {
        // Errors of both factors are one: 2y times it.
        let (exact, error) = ar.take_error(y);
        let mut sum = ar.sum(ar.limbs(&exact), ar.scale(&exact).times(ar.scale(&exact)))?;
        ar.add_product(&mut sum, &exact, &exact, Weight::ONE)?;
        y = ar.with_error(ar.finish(sum)?, 2.0 * bound * error);
        bound *= bound;
        y = ar.within(y, bound);
    }
    Ok(y)
}

#[cfg(test)]
#[path = "exponential_tests.rs"]
mod tests;
