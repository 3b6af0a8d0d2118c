//! The order of products: which powers and splits, at which depth, and at what cost.
//!
//! A polynomial is p = q·T_g + r, with g the largest power of two up to its degree. A node at depth d (its value is
//! available after d rescales) multiplies operands of depth d − 1. So q is a node at depth d − 1, and r, which is only
//! added, joins the *same* sum: its own products q'·T_g' are added before the single relinearisation and rescale of the
//! node. A part of degree below the baby step, with powers no deeper than d − 1, is a linear combination of powers in
//! that sum. So
//!
//! * the depth is ⌈log2(degree + 1)⌉, coefficients included: a node at depth d holds degrees up to 2^d − 1;
//! * a node costs one relinearisation, however many products it sums.
//!
//! The baby step is chosen by counting. Even (odd) polynomials need only even powers (odd ones and powers of two): a
//! split by an even g keeps the parity.

use std::collections::BTreeSet;

use super::arithmetic::Arithmetic;
use super::chebyshev::{Parity, Polynomial};
use super::error::PolyError;

/// The cost of an evaluation.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Cost {
    /// Products of two vectors.
    pub products: usize,
    /// Relinearisations: key switches.
    pub relinearisations: usize,
    /// Multiples by a coefficient.
    pub multiples: usize,
    /// Consecutive rescales.
    pub depth: usize,
}

impl Cost {
    /// Weighted cost: a product is about a fifth of a relinearisation, a multiple a fortieth.
    fn weight(&self) -> usize {
        40 * self.relinearisations + 8 * self.products + self.multiples
    }
}

/// How to evaluate a polynomial of some degree.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Step {
    /// A linear combination of powers.
    Combine,
    /// q·T_g + r.
    Split(usize),
}

/// The powers and the baby step for one or several polynomials in one input.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Schedule {
    baby: usize,
    powers: Vec<usize>,
    cost: Cost,
}

impl Schedule {
    /// The cheapest schedule for these polynomials.
    pub fn new(polynomials: &[&Polynomial]) -> Self {
        let largest = polynomials.iter().map(|p| p.degree()).max().unwrap_or(1);
        let babies = (1..=log2_ceil(largest + 1)).map(|log| Self::with_baby(polynomials, 1 << log));
        let cheapest = babies.min_by_key(|schedule| schedule.cost.weight());
        cheapest.unwrap_or_else(|| Self::with_baby(polynomials, 2))
    }

    /// The schedule with baby step `baby`, a power of two.
    fn with_baby(polynomials: &[&Polynomial], baby: usize) -> Self {
        let mut walk = Walk { baby, powers: BTreeSet::new(), cost: Cost::default() };
        for p in polynomials {
            let depth = log2_ceil(p.degree() + 1);
            walk.cost.depth = walk.cost.depth.max(depth);
            walk.node(p.degree(), p.parity(), depth);
        }
        // In ascending order, each power comes after its factors.
        let powers: Vec<usize> = walk.powers.into_iter().collect();
        walk.cost.products += powers.len();
        walk.cost.relinearisations += powers.len();
        Self { baby, powers, cost: walk.cost }
    }

    /// The powers to compute, above the first, ascending.
    pub fn powers(&self) -> &[usize] {
        &self.powers
    }

    /// The cost, without a change of interval.
    pub fn cost(&self) -> Cost {
        self.cost
    }

    /// The step for a polynomial of `degree` if powers of depth up to `available` may be used.
    pub(crate) fn step(&self, degree: usize, available: usize) -> Step {
        step(self.baby, degree, available)
    }
}

/// Walks through the evaluation, counting.
struct Walk {
    baby: usize,
    powers: BTreeSet<usize>,
    cost: Cost,
}

impl Walk {
    fn node(&mut self, degree: usize, parity: Parity, depth: usize) {
        if self.accumulate(degree, parity, depth - 1) {
            self.cost.relinearisations += 1;
        }
    }

    /// Counts one sum; returns whether it has products.
    fn accumulate(&mut self, degree: usize, parity: Parity, available: usize) -> bool {
        match step(self.baby, degree, available) {
            Step::Combine => {
                for k in (1..=degree).filter(|&k| parity.has(k)) {
                    self.need(k);
                    self.cost.multiples += 1;
                }
                false
            }
            Step::Split(g) => {
                self.need(g);
                let product = degree > g;
                if product {
                    self.node(degree - g, parity, available);
                    self.cost.products += 1;
                } else {
                    self.cost.multiples += 1;
                }
                self.accumulate(remainder_degree(g, parity), parity, available) || product
            }
        }
    }

    fn need(&mut self, k: usize) {
        if k < 2 || !self.powers.insert(k) {
            return;
        }
        let (a, b) = factors(k);
        self.need(a);
        self.need(b);
        // T_a·T_b = (T_(a+b) + T_(a−b))/2; the monomial basis does not need T_(a−b), but nearly always has it anyway.
        self.need(a - b);
    }
}

fn step(baby: usize, degree: usize, available: usize) -> Step {
    if degree < 2 || (degree < baby && log2_ceil(degree) <= available) {
        Step::Combine
    } else {
        Step::Split(1 << degree.ilog2())
    }
}

/// Degree of the remainder modulo the power `g`, which is even.
pub(crate) fn remainder_degree(g: usize, parity: Parity) -> usize {
    if parity == Parity::Even { g - 2 } else { g - 1 }
}

/// k = a + b with a ≥ b, a a power of two, and max(depth a, depth b) = depth(k) − 1.
pub(crate) fn factors(k: usize) -> (usize, usize) {
    let a = k.next_power_of_two() / 2;
    (a, k - a)
}

/// ⌈log2 k⌉: the depth of power k.
pub(crate) fn log2_ceil(k: usize) -> usize {
    k.next_power_of_two().trailing_zeros() as usize
}

/// Number of primes at each depth below an operand, and the divisor of each level.
#[derive(Debug, Clone, PartialEq)]
pub struct Ladder {
    limbs: Vec<usize>,
    divisors: Vec<f64>,
}

impl Ladder {
    /// The first `depth` levels below an operand of `limbs` primes.
    ///
    /// # Errors
    /// [`PolyError::LevelsTooFew`].
    pub fn new<A: Arithmetic>(ar: &A, limbs: usize, depth: usize) -> Result<Self, PolyError> {
        let mut ladder = Self { limbs: vec![limbs], divisors: Vec::with_capacity(depth) };
        let mut now = limbs;
        for available in 0..depth {
            let drop = ar.level_primes(now).max(1);
            if drop >= now {
                return Err(PolyError::LevelsTooFew { needed: depth, available, limbs });
            }
            let divisor = (now - drop..now).map(|i| ar.prime(i) as f64).product();
            ladder.divisors.push(divisor);
            now -= drop;
            ladder.limbs.push(now);
        }
        Ok(ladder)
    }

    /// Number of primes after `depth` rescales.
    pub fn limbs(&self, depth: usize) -> usize {
        self.limbs[depth]
    }

    /// The divisor of the rescale from `depth` to `depth` + 1.
    pub fn divisor(&self, depth: usize) -> f64 {
        self.divisors[depth]
    }

    /// Scales of powers at depth 0, 1, …, such that each square lands on the next and the last is `factor` times the
    /// last divisor. With equal divisors D all are `factor`·D, the scale that squaring with `factor` preserves.
    pub(crate) fn power_scales(&self, factor: f64) -> Vec<f64> {
        let mut scales = vec![factor * self.divisors.last().copied().unwrap_or(1.0)];
        for divisor in self.divisors.iter().rev() {
            let next = scales[scales.len() - 1];
            scales.push((next * factor * divisor).sqrt());
        }
        scales.reverse();
        scales
    }

    /// Number of levels.
    pub fn depth(&self) -> usize {
        self.divisors.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn dense(degree: usize) -> Polynomial {
        Polynomial::chebyshev(vec![1.0; degree + 1], -1.0, 1.0).unwrap()
    }

    fn with_parity(degree: usize, parity: Parity) -> Polynomial {
        let coeffs = (0..=degree).map(|k| f64::from(u8::from(parity.has(k)))).collect();
        let p = Polynomial::chebyshev(coeffs, -1.0, 1.0).unwrap();
        p.with_parity(parity).unwrap()
    }

    #[test]
    fn relinearisations_of_known_degrees() {
        // (degree, parity, relinearisations, products): EvalMod uses the even polynomial of degree 30.
        for (degree, parity, relinearisations, products) in [
            (1, Parity::None, 0, 0),
            (2, Parity::None, 1, 1),
            (3, Parity::None, 2, 2),
            (3, Parity::Odd, 2, 2),
            (7, Parity::None, 4, 5),
            (12, Parity::None, 5, 6),
            (15, Parity::None, 7, 8),
            (28, Parity::None, 8, 11),
            (30, Parity::Even, 8, 9),
            (31, Parity::None, 10, 13),
        ] {
            let p = with_parity(degree, parity);
            let cost = Schedule::new(&[&p]).cost();
            assert_eq!(
                (cost.relinearisations, cost.products),
                (relinearisations, products),
                "degree {degree} {parity:?}"
            );
        }
    }

    #[test]
    fn the_depth_is_optimal_and_powers_are_shared() {
        for degree in 1..=64 {
            let schedule = Schedule::new(&[&dense(degree)]);
            assert_eq!(schedule.cost().depth, log2_ceil(degree + 1));
        }
        let (p, q) = (dense(15), dense(15));
        let (one, two) = (Schedule::new(&[&p]), Schedule::new(&[&p, &q]));
        assert!(two.cost().relinearisations < 2 * one.cost().relinearisations);
        let odd = Schedule::new(&[&with_parity(31, Parity::Odd)]);
        assert!(odd.powers().iter().all(|k| k % 2 == 1 || k.is_power_of_two()));
        let even = Schedule::new(&[&with_parity(30, Parity::Even)]);
        assert!(even.powers().iter().all(|k| k % 2 == 0));
    }

    #[test]
    fn powers_come_after_what_they_are_made_of() {
        for degree in 2..=100 {
            let schedule = Schedule::new(&[&dense(degree)]);
            for (i, &k) in schedule.powers().iter().enumerate() {
                let (a, b) = factors(k);
                for part in [a, b, a - b] {
                    assert!(part < 2 || schedule.powers()[..i].contains(&part));
                }
                assert_eq!(log2_ceil(k), 1 + log2_ceil(a).max(log2_ceil(b)));
            }
        }
    }
}
