//! Paterson–Stockmeyer, with scales computed backwards from the result.
//!
//! A node whose value must have scale S after a rescale by D is a sum at scale U = S·D. In it, the coefficient of the
//! power T_k (scale s_k) is encoded at U/s_k, and q·T_g fits if q has scale U/s_g. That is the target of the node q,
//! whose sum is then at (U/s_g)·D', and so on down to linear combinations, which can have any scale. So every addition
//! matches exactly, and the result has the requested scale, whatever the primes (as in Lattigo's polynomial evaluator;
//! Bossuat, Mouchet, Troncoso-Pastoriza and Hubaux, EUROCRYPT 2021).
//!
//! Chebyshev powers: T_(a+b) = 2·T_a·T_b − T_(a−b). The factor 2 halves the scale instead of doubling the integers, so
//! the stable scale is 2D instead of D, and rescaling errors weigh half as much. An integer multiple makes up for
//! scales that are too small ([`Weight::towards`]). Scales that are too large grow with each square, and are refused
//! once a factor has too few bits.

use std::collections::BTreeMap;

use super::arithmetic::{Arithmetic, SlotArithmetic, Weight, factor_scale, scale};
use super::chebyshev::{Basis, Parity, Polynomial};
use super::error::PolyError;
use super::per_slot::{Coefficient, Numbers, SlotPolynomial};
use super::schedule::{Ladder, Schedule, Step, factors, log2_ceil, remainder_degree};
use crate::scale::Scale;

/// p(x) at the scale `target`, [`Polynomial::depth`] levels below x.
///
/// # Errors
/// Fails for too few levels, a target so small that factors lose their bits, or if the arithmetic fails.
pub fn evaluate<A: Arithmetic>(ar: &A, x: &A::Value, p: &Polynomial, target: Scale) -> Result<A::Value, A::Error> {
    let mut values = evaluate_many(ar, x, &[(p, target)])?;
    // One polynomial in, one value out.
    values.pop().ok_or(PolyError::MixedBases.into())
}

/// Several polynomials in one input, each at its own target scale and depth; the powers are computed once.
///
/// # Errors
/// As [`evaluate`], or [`PolyError::MixedBases`].
pub fn evaluate_many<A: Arithmetic>(
    ar: &A,
    x: &A::Value,
    polynomials: &[(&Polynomial, Scale)],
) -> Result<Vec<A::Value>, A::Error> {
    let (first, _) = polynomials.first().ok_or(PolyError::MixedBases)?;
    if polynomials.iter().any(|(p, _)| p.basis() != first.basis()) {
        return Err(PolyError::MixedBases.into());
    }
    if let Basis::Chebyshev { low, high } = first.basis()
        && first.interval_map().is_some()
    {
        let t = to_unit_interval(ar, x, low, high)?;
        let folded: Vec<_> = polynomials.iter().map(|(p, s)| (p.on_unit(), *s)).collect();
        let folded: Vec<_> = folded.iter().map(|(p, s)| (p, *s)).collect();
        return evaluate_many(ar, &t, &folded);
    }
    let only: Vec<&Polynomial> = polynomials.iter().map(|(p, _)| *p).collect();
    let chebyshev = matches!(first.basis(), Basis::Chebyshev { .. });
    let evaluation = Evaluation::new(ar, x, Schedule::new(&only), chebyshev)?;
    let value = |(p, target): &(&Polynomial, Scale)| {
        let depth = log2_ceil(p.degree() + 1);
        evaluation.node(p.coeffs(), p.parity(), depth, *target)
    };
    polynomials.iter().map(value).collect()
}

/// p_s(x) in each slot s, one polynomial per slot. Uses the operations of [`evaluate`], with plaintext vectors as
/// coefficients.
///
/// # Errors
/// As [`evaluate`].
pub fn evaluate_slots<A: SlotArithmetic>(
    ar: &A,
    x: &A::Value,
    p: &SlotPolynomial,
    target: Scale,
) -> Result<A::Value, A::Error> {
    let schedule = Schedule::new(&[&p.shape()?]);
    let evaluation = Evaluation::new(ar, x, schedule, true)?;
    let coeffs: Vec<Numbers> = p.coeffs().iter().cloned().map(Numbers).collect();
    evaluation.node(&coeffs, Parity::None, p.depth(), target)
}

/// p_n(…p_2(p_1(x))…), each on the interval that the previous one maps to. Intermediate scales are the best for the
/// next polynomial.
///
/// # Errors
/// As [`evaluate`]; [`PolyError::MixedBases`] for no polynomials.
pub fn compose<A: Arithmetic>(
    ar: &A,
    x: &A::Value,
    polynomials: &[Polynomial],
    target: Scale,
) -> Result<A::Value, A::Error> {
    let (last, before) = polynomials.split_last().ok_or(PolyError::MixedBases)?;
    let mut value: Option<A::Value> = None;
    for p in before {
        let now = value.as_ref().unwrap_or(x);
        // The first rescale of the next polynomial drops the level just below this result.
        let ladder = Ladder::new(ar, ar.limbs(now), p.depth() + 1)?;
        let next = scale(2.0 * ladder.divisor(p.depth()))?;
        value = Some(evaluate(ar, now, p, next)?);
    }
    evaluate(ar, value.as_ref().unwrap_or(x), last, target)
}

/// t = (2x − low − high)/(high − low), one level below x, at the scale that suits Chebyshev polynomials: twice the next
/// divisor.
///
/// # Errors
/// As [`evaluate`].
pub fn to_unit_interval<A: Arithmetic>(ar: &A, x: &A::Value, low: f64, high: f64) -> Result<A::Value, A::Error> {
    if !(low.is_finite() && high.is_finite() && low < high) {
        return Err(PolyError::Range { low, high }.into());
    }
    let ladder = Ladder::new(ar, ar.limbs(x), 2)?;
    let wanted = scale(2.0 * ladder.divisor(1))?;
    let t = multiple(ar, x, 2.0 / (high - low), wanted)?;
    let t = ar.add_constant(t, -(low + high) / (high - low))?;
    Ok(ar.within(t, 1.0))
}

/// `factor`·x at the scale `target`, one level below x.
pub(crate) fn multiple<A: Arithmetic>(ar: &A, x: &A::Value, factor: f64, target: Scale) -> Result<A::Value, A::Error> {
    let ladder = Ladder::new(ar, ar.limbs(x), 1)?;
    let wide = scale(target.value() * ladder.divisor(0))?;
    factor_scale(wide, ar.scale(x))?;
    let mut sum = ar.sum(ar.limbs(x), wide)?;
    ar.add_multiple(&mut sum, x, factor)?;
    ar.finish(sum)
}

/// T_k or x^k, at depth ⌈log2 k⌉.
struct Powers<'a, A: Arithmetic> {
    ar: &'a A,
    chebyshev: bool,
    ladder: Ladder,
    /// The scale that powers should have, by depth.
    scales: Vec<f64>,
    values: BTreeMap<usize, A::Value>,
}

impl<A: Arithmetic> Powers<'_, A> {
    fn get(&self, k: usize) -> &A::Value {
        // The schedule lists every power that a step uses, because it was built by the same walk as the evaluation.
        &self.values[&k]
    }

    fn compute(&mut self, k: usize) -> Result<(), A::Error> {
        let (ar, depth) = (self.ar, log2_ceil(k));
        let (left, right) = factors(k);
        let (a, b) = (self.get(left), self.get(right));
        let factor = if self.chebyshev { 2.0 } else { 1.0 };
        let product = ar.scale(a).times(ar.scale(b));
        let wanted = scale(self.scales[depth] * self.ladder.divisor(depth - 1))?;
        let weight = Weight::towards(factor, product, wanted);
        let mut sum = ar.sum(self.ladder.limbs(depth - 1), weight.scale(product)?)?;
        ar.add_product(&mut sum, a, b, weight)?;
        let difference = left - right;
        if self.chebyshev && difference > 0 {
            ar.add_multiple(&mut sum, self.get(difference), -1.0)?;
        }
        let mut power = ar.finish(sum)?;
        if self.chebyshev {
            if difference == 0 {
                power = ar.add_constant(power, -1.0)?;
            }
            power = ar.within(power, 1.0);
        }
        self.values.insert(k, power);
        Ok(())
    }
}

struct Evaluation<'a, A: Arithmetic> {
    powers: Powers<'a, A>,
    schedule: Schedule,
}

impl<'a, A: Arithmetic> Evaluation<'a, A> {
    /// Computes the powers listed in `schedule`.
    fn new(ar: &'a A, x: &A::Value, schedule: Schedule, chebyshev: bool) -> Result<Self, A::Error> {
        let ladder = Ladder::new(ar, ar.limbs(x), schedule.cost().depth)?;
        let mut powers = Powers {
            ar,
            chebyshev,
            scales: ladder.power_scales(if chebyshev { 2.0 } else { 1.0 }),
            ladder,
            values: BTreeMap::from([(1, x.clone())]),
        };
        for &k in schedule.powers() {
            powers.compute(k)?;
        }
        Ok(Evaluation { powers, schedule })
    }

    /// p at `depth` and at the scale `target`.
    fn node<C: Coefficient<A>>(
        &self,
        coeffs: &[C],
        parity: Parity,
        depth: usize,
        target: Scale,
    ) -> Result<A::Value, A::Error> {
        let Powers { ar, ladder, .. } = &self.powers;
        let wide = scale(target.value() * ladder.divisor(depth - 1))?;
        let mut sum = ar.sum(ladder.limbs(depth - 1), wide)?;
        let constant = self.accumulate(&mut sum, coeffs.to_vec(), parity, depth - 1, wide)?;
        let mut value = ar.finish(sum)?;
        if parity != Parity::Odd {
            value = constant.add_to(ar, value)?;
        }
        if self.powers.chebyshev {
            // |T_k| ≤ 1.
            value = ar.within(value, C::sizes(coeffs));
        }
        Ok(value)
    }

    /// Adds p without its constant term to a sum at scale `wide`, operands at depth `available`; returns that term.
    fn accumulate<C: Coefficient<A>>(
        &self,
        sum: &mut A::Sum,
        mut coeffs: Vec<C>,
        parity: Parity,
        available: usize,
        wide: Scale,
    ) -> Result<C, A::Error> {
        let ar = self.powers.ar;
        let mut degree = coeffs.len() - 1;
        while let Step::Split(g) = self.schedule.step(degree, available) {
            let power = self.powers.get(g);
            let quotient = self.divide(&mut coeffs, g);
            let quotient_scale = scale(factor_scale(wide, ar.scale(power))?)?;
            if let [only] = &quotient[..] {
                only.add_multiple(ar, sum, power)?;
            } else {
                let q = self.node(&quotient, parity, available, quotient_scale)?;
                ar.add_product(sum, &q, power, Weight::ONE)?;
            }
            degree = remainder_degree(g, parity);
            coeffs.truncate(degree + 1);
        }
        let mut terms = Vec::with_capacity(degree);
        for k in (1..=degree).filter(|&k| parity.has(k)) {
            let power = self.powers.get(k);
            factor_scale(wide, ar.scale(power))?;
            terms.push((&coeffs[k], power));
        }
        C::add_combination(ar, sum, &terms)?;
        Ok(coeffs.swap_remove(0))
    }

    /// Splits p = q·T_g + r: returns q and leaves r. 2·T_g·T_j = T_(g+j) + T_(g−j), and g − j ≥ 1 because the degree of
    /// p is below 2g.
    fn divide<C: Coefficient<A>>(&self, coeffs: &mut Vec<C>, g: usize) -> Vec<C> {
        let mut quotient = coeffs.split_off(g);
        if self.powers.chebyshev {
            for (j, c) in quotient.iter_mut().enumerate().skip(1) {
                coeffs[g - j].subtract(c);
                c.double();
            }
        }
        quotient
    }
}

#[cfg(test)]
#[path = "paterson_tests.rs"]
mod tests;
