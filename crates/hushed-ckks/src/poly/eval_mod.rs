//! EvalMod: the modular reduction of bootstrapping, as a polynomial of u/q0.
//!
//! After ModRaise a coefficient is u = m + q0·I with |I| < K, and CoeffsToSlots moves x = u/q0 = I + m/q0 into the
//! slots. We want m, and m/q0 is small: sin(2πx) = sin(2π·m/q0) ≈ 2π·m/q0. With r doublings (Han and Ki, CT-RSA 2020;
//! Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021):
//!
//! ```text
//! c_0 = P(x) ≈ cos(2π(x − 1/4)/2^r),   c_(i+1) = 2·c_i² − 1,   c_r = cos(2π(x − 1/4)) = sin(2πx)
//! ```
//!
//! *Input.* The input slots hold x/K', K' = K − 3/4 + w ([`EvalMod::input_scaling`]). After the shift by 1/4, which is
//! free, the interval is [−1, 1] in t = (x − 1/4)/K', and the cosine is even in t. The even polynomial of degree 30
//! costs 9 products and 8 relinearisations on 5 levels, and each of the 3 doublings one square and one level: 11
//! relinearisations and 8 levels in total.
//!
//! *Fit.* Only x within w of an integer occur, by default w = 2^-9, so the fit is the best one over those pieces of
//! |x − 1/4| only. An error at x is weighted by its amplification through the doublings: |d c_r/d c_0| = 2^r·|sin 2^r
//! θ|/|sin θ|, θ = 2π(x − 1/4)/2^r. Degree 30, K = 16, r = 3: error of the sine 2^-32.4, 25 bits below a message at
//! ratio 2^10.
//!
//! *Errors*, in units of the message at full range, for ratio ρ = q0/scale = 2^10, so that the sine is 2π/ρ = 2^-7.35:
//! * the cubic term is (2π/ρ)²/6 = 2^-17.3 of the message at its bound. [`Gain::Balanced`] multiplies the sine by 1 +
//!   3/4 of that, which leaves a quarter of it, ±2^-19.3, at the bound and at half the bound. An arcsine
//!   ([`EvalModLiteral::arcsine`]) removes it for 2 levels (degree 3) or 3 (degree 5, 7);
//! * rescaling errors have deviation 2^13.4 in each part at N = 2^16, at scales of 2·q. Errors on t are amplified by
//!   2πK' = 2^6.6; on T_2(t), the first square, by 2πK'²/(4|x − 1/4|), since T_2 is flat at 0: 2^10.5 where I = 0; on
//!   T_4 by a quarter of that, and so on; on P by 2^r/|sin θ| ≤ 2^5.4. With 50-bit primes the first square therefore
//!   dominates: 2^(13.4 − 51 + 10.5 + 7.35) = 2^-19.7 at I = 0, a quarter of all slots, and three times that in the
//!   slots where the secret is largest ([`super::Clear`]).
//!
//! Bits of the message, minimum and mean over full slots with I distributed as in a bootstrap, real and imaginary
//! results recombined, from the simulator at N = 2^16 (encrypted, one part: 16.6 and 20.25 with 50 bits):
//!
//! | EvalMod primes, in order of use | ratio 2^10 | ratio 2^11 |
//! |---|---|---|
//! | 8 of 49 bits | 15.6, 19.9 | 14.6, 20.0 |
//! | 8 of 50 bits | 16.0 to 16.7, 20.2 | 15.1 to 15.6, 20.8 |
//! | 45, 30 + 30, six of 50 (5 bits and a prime more) | 17.1 to 17.5, 20.3 | 16.5 to 16.9, 21.7 |
//! | 50, 30 + 30, 28 + 27, five of 50 (15 bits, two primes more) | 17.8 to 18.3, 20.3 | 18.0, 22.1 |
//! | 8 of 28 + 27 (40 bits, eight primes more) | 18.9 to 19.1, 20.3 | 19.5 to 19.9, 22.3 |
//!
//! The last three rows rescale by two primes at once on some levels ([`Arithmetic::level_primes`]): primes cannot have
//! 55 bits, but the scale of the first square, 2^56, need not match a single prime.
//!
//! *Output.* The message m/scale, at the requested scale. Its ratio to the sine, about ρ/2π, is applied by reading the
//! same integers at another scale. The target scales of the doublings are computed backwards.

use std::f64::consts::PI;

use hushed_math::fit::{minimax, minimax_over};

use super::arithmetic::{Arithmetic, Weight, scale};
use super::chebyshev::{Parity, Polynomial};
use super::error::PolyError;
use super::paterson::evaluate;
use super::schedule::{Cost, Ladder, Schedule};
use crate::scale::Scale;

/// How the sine is scaled to the message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Gain {
    /// Exact slope at 0: smallest error for messages much smaller than the bound.
    Tangent,
    /// Minimax error up to the bound: a quarter of the cubic term instead of all of it.
    Balanced,
}

/// Unchecked parameters of an EvalMod; [`EvalMod::new`] checks them and fits the polynomials.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvalModLiteral {
    /// K: |u/q0| < K. Default: 16, for an ephemeral secret of weight 32.
    pub range: u32,
    /// Degree in t of the polynomial for the cosine, even. Default: 30.
    pub degree: usize,
    /// r, the number of doublings. Default: 3.
    pub doublings: u32,
    /// ρ = q0/scale of the message. Default: 2^10.
    pub ratio: f64,
    /// Largest |real or imaginary part| of the message, in its units. Default: 1.
    pub bound: f64,
    /// Degree of the arcsine: 1 for none (default), 3, 5 or 7.
    pub arcsine: usize,
    /// How the sine is scaled; an arcsine has the gain in its fit. Default: balanced.
    pub gain: Gain,
}

impl Default for EvalModLiteral {
    fn default() -> Self {
        Self { range: 16, degree: 30, doublings: 3, ratio: 1024.0, bound: 1.0, arcsine: 1, gain: Gain::Balanced }
    }
}

/// Accuracy and cost of an EvalMod.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct EvalModReport {
    /// Largest error of the polynomial and its doublings, in units of the message.
    pub cosine_error: f64,
    /// Largest deviation of the sine (or arcsine) from a line, in units of the message.
    pub sine_error: f64,
    /// Products, relinearisations and levels.
    pub cost: Cost,
}

/// The modular reduction, fitted.
#[derive(Debug, Clone)]
pub struct EvalMod {
    literal: EvalModLiteral,
    /// The cosine as an even polynomial in t = (x − 1/4)/K'.
    cosine: Polynomial,
    /// The arcsine as an odd polynomial in the sine; it returns the message divided by `output`.
    arcsine: Option<Polynomial>,
    /// K'.
    reach: f64,
    /// The ratio of the message to the sine, or to the arcsine's value.
    output: f64,
    report: EvalModReport,
}

impl EvalMod {
    /// Fits the polynomials and measures their errors.
    ///
    /// # Errors
    /// [`PolyError::Parameter`], [`PolyError::Fit`].
    pub fn new(literal: EvalModLiteral) -> Result<Self, PolyError> {
        check(&literal)?;
        // Width for the message, with half as much again for messages that grew a little, and at least 2^-9.
        let width = (1.5 * literal.bound / literal.ratio).max(2f64.powi(-9));
        let reach = f64::from(literal.range) - 0.75 + width;
        let cosine = fit_cosine(&literal, reach, width)?;
        let (arcsine, output, sine_error) = fit_arcsine(&literal)?;
        let mut cost = Schedule::new(&[&cosine]).cost();
        let squares = literal.doublings as usize;
        cost.products += squares;
        cost.relinearisations += squares;
        cost.depth += squares;
        if let Some(arcsine) = &arcsine {
            let more = Schedule::new(&[arcsine]).cost();
            cost.products += more.products;
            cost.relinearisations += more.relinearisations;
            cost.multiples += more.multiples;
            cost.depth += more.depth;
        }
        let mut this = Self {
            literal,
            cosine,
            arcsine,
            reach,
            output,
            report: EvalModReport { cosine_error: 0.0, sine_error, cost },
        };
        this.report.cosine_error = this.measure_cosine();
        Ok(this)
    }

    /// The factor by which CoeffsToSlots must multiply x = u/q0: 1/K'.
    pub fn input_scaling(&self) -> f64 {
        1.0 / self.reach
    }

    /// Number of levels used.
    pub fn levels(&self) -> usize {
        self.report.cost.depth
    }

    /// Errors and cost.
    pub fn report(&self) -> EvalModReport {
        self.report
    }

    /// Largest deviation of the sine (or arcsine) from a line for messages up to `value`, in units of the message.
    /// Beyond the bound it grows with the cube.
    pub fn sine_error(&self, value: f64) -> f64 {
        let error = |v: f64| {
            let sine = (2.0 * PI * v / self.literal.ratio).sin();
            let found = self.arcsine.as_ref().map_or(sine, |a| a.eval(sine));
            (self.output * found - v).abs()
        };
        (0..=256).map(|i| error(value * f64::from(i) / 256.0)).fold(0.0, f64::max)
    }

    /// The parameters it was built from.
    pub fn literal(&self) -> &EvalModLiteral {
        &self.literal
    }

    /// The scale that the input should have over `limbs` primes: the one for which the scale of the squares stays
    /// stable. With equal primes that is 2·q; if the second level has extra bits, the first square can carry half of
    /// them and the input a quarter.
    ///
    /// # Errors
    /// [`PolyError::LevelsTooFew`].
    pub fn input_scale<A: Arithmetic>(&self, ar: &A, limbs: usize) -> Result<Scale, PolyError> {
        let ladder = Ladder::new(ar, limbs, self.cosine.depth())?;
        scale(ladder.power_scales(2.0)[0])
    }

    /// Deviation of the error that rescaling causes where I = 0, a quarter of all slots, in units of the message.
    /// `rounding` is the deviation of a rescale in integers. Covers the squares T_2, T_4, … of the power basis, which
    /// dominate all others.
    ///
    /// # Errors
    /// [`PolyError::LevelsTooFew`].
    pub fn rescaling_error<A: Arithmetic>(&self, ar: &A, limbs: usize, rounding: f64) -> Result<f64, PolyError> {
        let ladder = Ladder::new(ar, limbs, self.cosine.depth())?;
        let first = self.literal.ratio * self.reach * self.reach;
        let scales = ladder.power_scales(2.0);
        let gains = (0..).map(|i| first / 4f64.powi(i));
        let errors = scales.iter().skip(1).zip(gains).map(|(scale, gain)| rounding / scale * gain);
        Ok(errors.fold(0.0, f64::hypot))
    }

    /// The message of each slot at the scale `target`, `levels()` levels below the input, which has slots x/K' and
    /// small imaginary parts.
    ///
    /// # Errors
    /// Fails for too few levels, scales far from the primes, or if the arithmetic fails.
    pub fn evaluate<A: Arithmetic>(&self, ar: &A, x: &A::Value, target: Scale) -> Result<A::Value, A::Error> {
        let ladder = Ladder::new(ar, ar.limbs(x), self.levels())?;
        let squares = self.literal.doublings as usize;
        let first = self.cosine.depth();
        // Scales of c_r, …, c_0: the last makes the message come out at the target.
        let last = match self.arcsine {
            None => target.value() * self.output,
            Some(_) => 2.0 * ladder.divisor(first + squares),
        };
        let mut at = last;
        for i in (0..squares).rev() {
            at = (at * 2.0 * ladder.divisor(first + i)).sqrt();
        }
        let t = ar.add_constant(x.clone(), -0.25 / self.reach)?;
        let mut c = evaluate(ar, &t, &self.cosine, scale(at)?)?;
        for _ in 0..squares {
            c = double_angle(ar, &c)?;
        }
        let Some(arcsine) = &self.arcsine else {
            return ar.read_as(c, self.output);
        };
        let value = evaluate(ar, &c, arcsine, scale(target.value() * self.output)?)?;
        ar.read_as(value, self.output)
    }

    /// The value of `evaluate` for one x = u/q0 without rescaling errors, in units of the message.
    pub fn eval(&self, x: f64) -> f64 {
        let mut c = self.cosine.eval((x - 0.25) / self.reach);
        for _ in 0..self.literal.doublings {
            c = 2.0 * c * c - 1.0;
        }
        self.output * self.arcsine.as_ref().map_or(c, |arcsine| arcsine.eval(c))
    }

    /// Largest error against the sine itself, over all pieces.
    fn measure_cosine(&self) -> f64 {
        let width = self.literal.bound / self.literal.ratio;
        let last = self.literal.range as i32 - 1;
        let mut greatest = 0.0_f64;
        for i in -last..=last {
            for step in -32..=32 {
                let offset = width * f64::from(step) / 32.0;
                let sine = (2.0 * PI * offset).sin();
                let exact = self.arcsine.as_ref().map_or(sine, |arcsine| arcsine.eval(sine));
                let error = self.eval(f64::from(i) + offset) - self.output * exact;
                greatest = greatest.max(error.abs());
            }
        }
        greatest
    }
}

/// 2c² − 1, with the factor 2 taken from the scale.
fn double_angle<A: Arithmetic>(ar: &A, c: &A::Value) -> Result<A::Value, A::Error> {
    let weight = Weight { integer: 1, value: 2.0 };
    let product = ar.scale(c).times(ar.scale(c));
    let mut sum = ar.sum(ar.limbs(c), weight.scale(product)?)?;
    ar.add_product(&mut sum, c, c, weight)?;
    let square = ar.finish(sum)?;
    Ok(ar.within(ar.add_constant(square, -1.0)?, 1.0))
}

fn check(literal: &EvalModLiteral) -> Result<(), PolyError> {
    let within = |name, value: f64, low: f64, high: f64| {
        if (low..=high).contains(&value) { Ok(()) } else { Err(PolyError::Parameter { name, value, low, high }) }
    };
    within("range", f64::from(literal.range), 2.0, 64.0)?;
    within("degree", literal.degree as f64, 4.0, 62.0)?;
    // An odd degree gives the same polynomial as the even one below it, at the same cost.
    within("degree modulo 2", (literal.degree % 2) as f64, 0.0, 0.0)?;
    within("doublings", f64::from(literal.doublings), 1.0, 6.0)?;
    within("ratio", literal.ratio, 16.0, (1u64 << 30) as f64)?;
    // A message further than 1/8 from an integer is not approximated by its sine.
    within("bound", literal.bound, literal.ratio * 1e-9, literal.ratio / 8.0)?;
    within("arcsine", literal.arcsine as f64, 1.0, 7.0)?;
    within("arcsine modulo 2", (literal.arcsine % 2) as f64, 1.0, 1.0)
}

/// The cosine, fitted as a polynomial in y = T_2(t) over the images of the pieces, then rewritten in t.
fn fit_cosine(literal: &EvalModLiteral, reach: f64, width: f64) -> Result<Polynomial, PolyError> {
    let turns = f64::from(1u32 << literal.doublings);
    let distance = |y: f64| reach * ((1.0 + y) / 2.0).max(0.0).sqrt();
    let cosine = |y: f64| (2.0 * PI * distance(y) / turns).cos();
    // sin(2^r·θ) is near ±1 on every piece.
    let weight = |y: f64| turns / (2.0 * PI * distance(y) / turns).sin().abs();
    let image = |d: f64| (2.0 * (d / reach).powi(2) - 1.0).clamp(-1.0, 1.0);
    // |I − 1/4|, ascending, for |I| < K: 1/4, 3/4, 5/4, …
    let pieces: Vec<(f64, f64)> = (0..2 * literal.range - 1)
        .map(|i| 0.25 + f64::from(i) / 2.0)
        .map(|centre| (image(centre - width), image(centre + width)))
        .collect();
    let fit = minimax_over(cosine, weight, literal.degree / 2, (-1.0, 1.0), &pieces)?;
    // T_k(T_2(t)) = T_2k(t).
    let mut coeffs = vec![0.0; literal.degree + 1];
    for (k, &c) in fit.chebyshev.iter().enumerate() {
        coeffs[2 * k] = c;
    }
    Polynomial::chebyshev(coeffs, -1.0, 1.0)?.with_parity(Parity::Even)
}

/// The odd polynomial in the sine, if any; the ratio of message to its value; the largest error in message units.
fn fit_arcsine(literal: &EvalModLiteral) -> Result<(Option<Polynomial>, f64, f64), PolyError> {
    let angle = 2.0 * PI * literal.bound / literal.ratio;
    if literal.arcsine == 1 {
        let gain = match literal.gain {
            Gain::Tangent => 1.0,
            Gain::Balanced => 1.0 + angle * angle / 8.0,
        };
        let output = gain * literal.ratio / (2.0 * PI);
        let error = |v: f64| (output * (2.0 * PI * v / literal.ratio).sin() - v).abs();
        let greatest = (0..=256).map(|i| error(literal.bound * f64::from(i) / 256.0)).fold(0.0, f64::max);
        return Ok((None, output, greatest));
    }
    // arcsin(s)/s as a polynomial in s², minimax for its product with s.
    let (low, high) = (angle.sin().powi(2) * 1e-6, angle.sin().powi(2));
    let ratio = |z: f64| z.sqrt().asin() / z.sqrt();
    let fit = minimax(ratio, f64::sqrt, literal.arcsine / 2, low, high)?;
    let mut coeffs = vec![0.0; literal.arcsine + 1];
    for (k, &c) in fit.monomial.iter().enumerate() {
        coeffs[2 * k + 1] = c;
    }
    let output = literal.ratio / (2.0 * PI);
    let arcsine = Polynomial::monomial(coeffs)?.with_parity(Parity::Odd)?;
    Ok((Some(arcsine), output, fit.max_weighted_error * output))
}

#[cfg(test)]
#[path = "eval_mod_tests.rs"]
mod tests;
