//! exp by repeated squaring of 1 + x/2^r: (1 + x/2^r)^(2^r) takes few products, never exceeds 1 on [−2^(r+1), 0], and
//! has a relative error of about x²/2^(r+1).
//!
//! An error ε before the squarings, rescaling errors included, becomes 2^r·ε relative to the result: r = 7 costs seven
//! bits. Target scales are computed backwards, s_i = √(s_(i+1)·D).

use super::arithmetic::{Arithmetic, PolyError, Weight, scale};
use super::paterson::multiple;
use super::report::{Approximation, greatest};
use super::schedule::{Cost, Ladder};
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
    /// [`PolyError::Range`] unless −2^r ≤ low < high ≤ 2^r (below −2^r the value rises again), [`PolyError::Parameter`]
    /// unless 1 ≤ r ≤ 12.
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

    /// Range, error, cost. The error is absolute; where exp is small, so is the error.
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
    /// Fails for too few levels, scales far from the primes, or if the arithmetic fails.
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

    /// Largest |1 + x/2^r|.
    fn bound(&self) -> f64 {
        let power = (1u64 << self.squarings) as f64;
        (1.0 + self.low / power).abs().max(1.0 + self.high / power)
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

/// The scale from which `count` squarings, the first at depth `depth`, reach `target`.
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
        // Both factors have the same error, so it grows by 2y.
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
