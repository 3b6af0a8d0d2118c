//! 1/x and 1/√x on a positive range, by Goldschmidt's and Newton's iterations with relaxation.
//!
//! Both keep a quantity w that tends to 1: w = x·y for the inverse, w = x·y² for the root, known to lie in [e, 1].
//! While e is small, a plain step moves it to about 2e (9e/4). A factor chosen from e so that both ends of the range
//! land on the same value moves it to about 4e (27e/4): adaptive successive over-relaxation, as used by THOR. Message
//! factors are free in a product ([`Weight`]), so relaxation costs nothing.
//!
//! | function | step | levels per step | products per step |
//! |---|---|---|---|
//! | 1/x | w ← kw(2 − kw), y ← ky(2 − kw) | 1 | 2 (first 1, last 1 fewer) |
//! | 1/√x | y ← (κ/2)·y·(3 − κ²·x·y²) | 2 | 3 |
//!
//! The first step of the inverse starts from the constant 1/high, so it is linear. If high > 4, one level before it
//! scales x to x/high, because squares of larger messages outgrow the primes. The root starts from a best polynomial in
//! relative error. A last free factor centres the result. Outside the range the iterations diverge, so x must lie
//! within it, errors included.

use hushed_math::fit::minimax;

use super::arithmetic::{Arithmetic, Weight, factor_scale, scale};
use super::chebyshev::Polynomial;
use super::error::PolyError;
use super::paterson::{evaluate, multiple};
use super::report::{Approximation, greatest};
use super::schedule::{Cost, Ladder, Schedule};
use crate::scale::Scale;

/// Messages up to this are squared unscaled: w ← kw(2 − kw) with k ≤ 2 reproduces scales up to four times the prime.
const LARGEST_PLAIN: f64 = 4.0;

/// Step limit, more than any range in f64 needs.
const MAX_STEPS: usize = 64;

/// 1/x on [low, high] by relaxed Goldschmidt.
#[derive(Debug, Clone, PartialEq)]
pub struct Inverse {
    low: f64,
    high: f64,
    /// k for each step.
    relaxations: Vec<f64>,
    /// The final centring factor.
    centre: f64,
    error: f64,
}

impl Inverse {
    /// An inverse with as many steps as the relative error `error` needs.
    ///
    /// # Errors
    /// [`PolyError::Range`] unless 0 < low < high, all finite; [`PolyError::Parameter`] unless 2^-48 ≤ error < 1.
    pub fn new(low: f64, high: f64, error: f64) -> Result<Self, PolyError> {
        check(low, high, error)?;
        let enough = |steps: usize, off_centre: f64| steps > 0 && off_centre <= error;
        Ok(Self::until(low, high, enough))
    }

    /// An inverse with `steps` steps, whatever the error: for models where all ranges must cost the same.
    ///
    /// # Errors
    /// As [`Inverse::new`]; [`PolyError::Parameter`] unless 1 ≤ steps ≤ 64.
    pub fn with_steps(low: f64, high: f64, steps: usize) -> Result<Self, PolyError> {
        check(low, high, 0.5)?;
        check_steps(steps, 1)?;
        Ok(Self::until(low, high, |done, _| done == steps))
    }

    /// Adds steps until `enough`(steps, largest relative error) holds.
    fn until(low: f64, high: f64, enough: impl Fn(usize, f64) -> bool) -> Self {
        let mut relaxations = Vec::new();
        let mut e = low / high;
        let off_centre = |e: f64| (1.0 - e) / (1.0 + e);
        while !enough(relaxations.len(), off_centre(e)) && relaxations.len() < MAX_STEPS {
            relaxations.push(2.0 / (1.0 + e));
            e = 4.0 * e / (1.0 + e).powi(2);
        }
        Self { low, high, relaxations, centre: 2.0 / (1.0 + e), error: off_centre(e) }
    }

    /// Number of steps.
    pub fn steps(&self) -> usize {
        self.relaxations.len()
    }

    /// Levels used: one per step, plus one before them if `high` is above 4.
    pub fn levels(&self) -> usize {
        self.steps() + usize::from(self.shrinks())
    }

    fn shrinks(&self) -> bool {
        self.high > LARGEST_PLAIN
    }

    /// Range, error, cost.
    pub fn report(&self) -> Approximation {
        let products = 2 * (self.steps() - 1);
        Approximation {
            name: "1/x (Goldschmidt)",
            low: self.low,
            high: self.high,
            degree: (1 << self.steps().min(62)) - 1,
            error: self.error,
            cost: Cost {
                products,
                relinearisations: products,
                multiples: products + 1 + usize::from(self.shrinks()),
                depth: self.levels(),
            },
        }
    }

    /// The function that [`Inverse::evaluate`] computes, in f64.
    pub fn eval(&self, x: f64) -> f64 {
        let (mut w, mut y) = (x / self.high, 1.0 / self.high);
        for k in &self.relaxations {
            (w, y) = (k * w * (2.0 - k * w), k * y * (2.0 - k * w));
        }
        self.centre * y
    }

    /// 1/x at the scale `target`, [`Inverse::levels`] levels below x.
    ///
    /// # Errors
    /// Fails for too few levels, scales far from the primes, or if the arithmetic fails.
    pub fn evaluate<A: Arithmetic>(&self, ar: &A, x: &A::Value, target: Scale) -> Result<A::Value, A::Error> {
        let ladder = Ladder::new(ar, ar.limbs(x), self.levels())?;
        if self.shrinks() {
            let suited = scale(2.0 * ladder.divisor(1))?;
            let unit = Self { low: self.low / self.high, high: 1.0, ..self.clone() };
            let small = multiple(ar, x, 1.0 / self.high, suited)?;
            // 1/x = (1/high)/(x/high).
            let target = scale(target.value() / self.high)?;
            return ar.read_as(unit.evaluate(ar, &small, target)?, 1.0 / self.high);
        }
        let steps = self.steps();
        // w_0 = x/high is x with a factor; later w_i have none.
        let (mut w, mut w_errors) = (Vec::with_capacity(steps), Vec::with_capacity(steps));
        let (exact, error) = ar.take_error(x.clone());
        w.push(exact);
        w_errors.push(error);
        for (i, &k) in self.relaxations.iter().enumerate().take(steps - 1) {
            let k = if i == 0 { k / self.high } else { k };
            // |d/dw kw(2 − kw)| ≤ 2k.
            let next = logistic(ar, &w[i], k, &ladder, i)?;
            let (exact, error) = ar.take_error(ar.with_error(next, 2.0 * k * w_errors[i]));
            w.push(exact);
            w_errors.push(error);
        }
        // Scales and integer factors of y are computed backwards; y_1 is linear in x and can have any scale.
        let mut weights = vec![Weight::ONE; steps];
        let mut now = target.value() * self.centre;
        for i in (1..steps).rev() {
            let square = self.relaxations[i].powi(2);
            let needed = now * square * ladder.divisor(i) / ar.scale(&w[i]).value();
            let integer = (needed / target.value()).round().clamp(1.0, 1e12);
            weights[i] = Weight { integer: -(integer as i64), value: -square };
            now = needed / integer;
        }
        // y_1 = k/high·(2 − k·x/high).
        let first = self.relaxations[0] / self.high;
        let mut sum = ar.sum(ladder.limbs(0), scale(now * ladder.divisor(0))?)?;
        factor_scale(scale(now * ladder.divisor(0))?, ar.scale(x))?;
        ar.add_multiple(&mut sum, x, -first * first)?;
        let mut y = ar.add_constant(ar.finish(sum)?, 2.0 * first)?;
        for (i, weight) in weights.iter().enumerate().skip(1) {
            let k = self.relaxations[i];
            let (exact, error) = ar.take_error(y);
            // The errors of y and w carried through ky(2 − kw), with y ≤ 1/low.
            let error = (2.0 * k * error).hypot(k * k / self.low * w_errors[i]);
            y = exact;
            let product = ar.scale(&w[i]).times(ar.scale(&y));
            let mut sum = ar.sum(ladder.limbs(i), weight.scale(product)?)?;
            ar.add_product(&mut sum, &w[i], &y, *weight)?;
            ar.add_multiple(&mut sum, &y, 2.0 * k)?;
            // y = w/x, and w ≤ 1.
            y = ar.with_error(ar.within(ar.finish(sum)?, 1.0 / self.low), error);
        }
        ar.read_as(y, self.centre)
    }
}

/// kw(2 − kw) = 2kw − k²w².
fn logistic<A: Arithmetic>(ar: &A, w: &A::Value, k: f64, ladder: &Ladder, depth: usize) -> Result<A::Value, A::Error> {
    let product = ar.scale(w).times(ar.scale(w));
    let wanted = scale(ladder.divisor(depth + 1) * ladder.divisor(depth))?;
    let weight = Weight::towards(-k * k, product, wanted);
    let wide = weight.scale(product)?;
    factor_scale(wide, ar.scale(w))?;
    let mut sum = ar.sum(ladder.limbs(depth), wide)?;
    ar.add_product(&mut sum, w, w, weight)?;
    ar.add_multiple(&mut sum, w, 2.0 * k)?;
    Ok(ar.within(ar.finish(sum)?, 1.0))
}

/// 1/√x on [low, high] by a best polynomial in relative error, then relaxed Newton steps.
#[derive(Debug, Clone, PartialEq)]
pub struct InverseSqrt {
    low: f64,
    high: f64,
    seed: Polynomial,
    /// κ for each step.
    relaxations: Vec<f64>,
    /// Largest slope of each step: (3κ/2)·|1 − κ²w|.
    slopes: Vec<f64>,
    centre: f64,
    error: f64,
}

impl InverseSqrt {
    /// A seed of degree `seed` (1 to 15), then as many steps as the relative error `error` needs.
    ///
    /// # Errors
    /// As [`Inverse::new`]; [`PolyError::Parameter`] if the seed degree is out of range, [`PolyError::Fit`].
    pub fn new(low: f64, high: f64, seed: usize, error: f64) -> Result<Self, PolyError> {
        check(low, high, error)?;
        Self::until(low, high, seed, |_, off_centre| off_centre <= error)
    }

    /// `steps` steps after the seed, whatever the error: for models where all ranges must cost the same.
    ///
    /// # Errors
    /// As [`InverseSqrt::new`]; [`PolyError::Parameter`] unless steps ≤ 64.
    pub fn with_steps(low: f64, high: f64, seed: usize, steps: usize) -> Result<Self, PolyError> {
        check(low, high, 0.5)?;
        check_steps(steps, 0)?;
        Self::until(low, high, seed, |done, _| done == steps)
    }

    /// Adds steps until `enough`(steps, largest relative error) holds.
    fn until(low: f64, high: f64, seed: usize, enough: impl Fn(usize, f64) -> bool) -> Result<Self, PolyError> {
        if !(1..=15).contains(&seed) {
            return Err(PolyError::Parameter { name: "seed", value: seed as f64, low: 1.0, high: 15.0 });
        }
        let fit = minimax(|x: f64| 1.0 / x.sqrt(), f64::sqrt, seed, low, high)?;
        // A linear seed needs no change of interval, so one level instead of two.
        let polynomial = if seed == 1 { Polynomial::monomial(fit.monomial)? } else { Polynomial::from_fit(&fit)? };
        // w = x·y² is in ((1 − ε)², (1 + ε)²).
        let epsilon = fit.max_weighted_error;
        let (mut e, mut top) = ((1.0 - epsilon).powi(2), (1.0 + epsilon).powi(2));
        let (mut relaxations, mut slopes) = (Vec::new(), Vec::new());
        let off_centre = |e: f64, top: f64| (top.sqrt() - e.sqrt()) / (top.sqrt() + e.sqrt());
        while !enough(relaxations.len(), off_centre(e, top)) && relaxations.len() < MAX_STEPS {
            let kappa = relaxation(e, top);
            let square = kappa * kappa;
            relaxations.push(kappa);
            slopes.push(1.5 * kappa * (1.0 - square * e).max(square * top - 1.0));
            (e, top) = (newton(kappa * kappa * e), 1.0);
        }
        Ok(Self {
            low,
            high,
            seed: polynomial,
            relaxations,
            slopes,
            centre: 2.0 / (e.sqrt() + top.sqrt()),
            error: off_centre(e, top),
        })
    }

    /// Number of steps after the seed.
    pub fn steps(&self) -> usize {
        self.relaxations.len()
    }

    /// Levels used: those of the seed, plus two per step.
    pub fn levels(&self) -> usize {
        self.seed.depth() + 2 * self.steps()
    }

    /// Range, error, cost.
    pub fn report(&self) -> Approximation {
        let mut cost = Schedule::new(&[&self.seed]).cost();
        cost.products += 3 * self.steps();
        cost.relinearisations += 3 * self.steps();
        cost.multiples += self.steps() + usize::from(self.seed.interval_map().is_some());
        cost.depth = self.levels();
        let triple = |degree: usize, _| degree.saturating_mul(3).saturating_add(1);
        Approximation {
            name: "1/sqrt(x) (Newton)",
            low: self.low,
            high: self.high,
            degree: (0..self.steps()).fold(self.seed.degree(), triple),
            error: greatest(self.low, self.high, |x| self.eval(x) * x.sqrt() - 1.0).max(self.error),
            cost,
        }
    }

    /// The function that [`InverseSqrt::evaluate`] computes, in f64.
    pub fn eval(&self, x: f64) -> f64 {
        let step = |y: f64, k: &f64| k / 2.0 * y * (3.0 - k * k * x * y * y);
        self.centre * self.relaxations.iter().fold(self.seed.eval(x), step)
    }

    /// 1/√x at the scale `target`, [`InverseSqrt::levels`] levels below x.
    ///
    /// # Errors
    /// Fails for too few levels, scales far from the primes, or if the arithmetic fails.
    pub fn evaluate<A: Arithmetic>(&self, ar: &A, x: &A::Value, target: Scale) -> Result<A::Value, A::Error> {
        let first = self.seed.depth();
        let ladder = Ladder::new(ar, ar.limbs(x), self.levels())?;
        // Backwards: y' = −(κ³/2)·(x·y)·y² has scale s_x·s_y³·m/((κ³/2)·D²·D'), which gives s_y from the scale of y'.
        let mut weights = Vec::with_capacity(self.steps());
        let mut now = target.value() * self.centre;
        for (i, kappa) in self.relaxations.iter().enumerate().rev() {
            let (d, next) = (ladder.divisor(first + 2 * i), ladder.divisor(first + 2 * i + 1));
            let cube = kappa.powi(3) / 2.0;
            let needed = now * cube * d * d * next / ar.scale(x).value();
            let integer = (needed / d.powi(3)).round().clamp(1.0, 1e12);
            weights.push(Weight { integer: -(integer as i64), value: -cube });
            now = (needed / integer).cbrt();
        }
        let mut y = evaluate(ar, x, &self.seed, scale(now)?)?;
        let slopes = self.slopes.iter();
        for ((kappa, slope), weight) in self.relaxations.iter().zip(slopes).zip(weights.iter().rev()) {
            let (exact, error) = ar.take_error(y);
            let next = newton_step(ar, x, &exact, *kappa, *weight, self.low)?;
            // y = √(w/x), and w ≤ 1; errors of y contract.
            let next = ar.within(next, 1.0 / self.low.sqrt());
            y = ar.with_error(next, slope * error);
        }
        ar.read_as(y, self.centre)
    }
}

/// (3κ/2)·y − (κ³/2)·(x·y)·y², the second term with `weight`; two levels below y.
fn newton_step<A: Arithmetic>(
    ar: &A,
    x: &A::Value,
    y: &A::Value,
    kappa: f64,
    weight: Weight,
    low: f64,
) -> Result<A::Value, A::Error> {
    let limbs = ar.limbs(y);
    let product = |a: &A::Value, b: &A::Value| -> Result<A::Value, A::Error> {
        let mut sum = ar.sum(limbs, ar.scale(a).times(ar.scale(b)))?;
        ar.add_product(&mut sum, a, b, Weight::ONE)?;
        ar.finish(sum)
    };
    let (xy, square) = (product(x, y)?, product(y, y)?);
    let square = ar.within(square, 1.0 / low);
    let wide = weight.scale(ar.scale(&xy).times(ar.scale(&square)))?;
    factor_scale(wide, ar.scale(y))?;
    let mut sum = ar.sum(ar.limbs(&xy), wide)?;
    ar.add_product(&mut sum, &xy, &square, weight)?;
    ar.add_multiple(&mut sum, y, 1.5 * kappa)?;
    ar.finish(sum)
}

/// w after a plain Newton step.
fn newton(w: f64) -> f64 {
    w * (3.0 - w).powi(2) / 4.0
}

/// κ for w in [e, top]: κ²e and κ²top land on the same value, the new minimum; the maximum is 1, at κ²w = 1.
fn relaxation(e: f64, top: f64) -> f64 {
    // Below the κ sought, the upper end lands higher than the lower; κ²·top stays in [1, 3), where the step decreases.
    let (mut low, mut high) = (1.0 / top, 3.0 / top);
    for _ in 0..200 {
        let middle = f64::midpoint(low, high);
        if newton(middle * top) > newton(middle * e) {
            low = middle;
        } else {
            high = middle;
        }
    }
    low.sqrt()
}

fn check(low: f64, high: f64, error: f64) -> Result<(), PolyError> {
    if !(low > 0.0 && low < high && high.is_finite()) {
        return Err(PolyError::Range { low, high });
    }
    let (least, most) = (2f64.powi(-48), 1.0);
    if !(least..most).contains(&error) {
        return Err(PolyError::Parameter { name: "error", value: error, low: least, high: most });
    }
    Ok(())
}

fn check_steps(steps: usize, least: usize) -> Result<(), PolyError> {
    if (least..=MAX_STEPS).contains(&steps) {
        return Ok(());
    }
    Err(PolyError::Parameter { name: "steps", value: steps as f64, low: least as f64, high: MAX_STEPS as f64 })
}

#[cfg(test)]
#[path = "inverse_tests.rs"]
mod tests;
