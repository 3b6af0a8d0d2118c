//! Polynomials whose coefficients differ between slots: packed rows hold columns or heads, each with its own interval.
//! A coefficient is then a plaintext vector; operations and levels are those of a single polynomial.

use super::arithmetic::{Arithmetic, SlotArithmetic};
use super::chebyshev::{Basis, MAX_DEGREE, Polynomial};
use super::error::PolyError;
use super::schedule::log2_ceil;

/// One polynomial per slot in T_k(t), t in [−1, 1], all of the same degree. They repeat after a period.
#[derive(Clone, PartialEq)]
pub struct SlotPolynomial {
    /// Coefficient k for all slots of a period, from k = 0.
    coeffs: Vec<Vec<f64>>,
}

impl SlotPolynomial {
    /// `polynomials[s]` in slot s, all on [−1, 1] in the Chebyshev basis; 0 where it is `None`.
    ///
    /// # Errors
    /// [`PolyError::Degree`] if `degree` is 0, above [`MAX_DEGREE`], or below that of a polynomial;
    /// [`PolyError::MixedBases`] for another basis or interval.
    pub fn new(degree: usize, polynomials: &[Option<&Polynomial>]) -> Result<Self, PolyError> {
        let limit = MAX_DEGREE;
        if degree == 0 || degree > limit {
            return Err(PolyError::Degree { degree, limit });
        }
        let unit = Basis::Chebyshev { low: -1.0, high: 1.0 };
        let mut coeffs = vec![vec![0.0; polynomials.len()]; degree + 1];
        for (slot, p) in polynomials.iter().enumerate() {
            let Some(p) = p else { continue };
            if p.basis() != unit {
                return Err(PolyError::MixedBases);
            }
            if p.degree() > degree {
                let limit = degree;
                let degree = p.degree();
                return Err(PolyError::Degree { degree, limit });
            }
            for (all, &c) in coeffs.iter_mut().zip(p.coeffs()) {
                all[slot] = c;
            }
        }
        Ok(Self { coeffs })
    }

    /// Coefficients, starting with that of T_0.
    pub fn coeffs(&self) -> &[Vec<f64>] {
        &self.coeffs
    }

    /// Levels that an evaluation uses.
    pub fn depth(&self) -> usize {
        log2_ceil(self.coeffs.len())
    }

    /// A polynomial that needs the same operations.
    pub(super) fn shape(&self) -> Result<Polynomial, PolyError> {
        Polynomial::chebyshev(vec![1.0; self.coeffs.len()], -1.0, 1.0)
    }
}

/// A coefficient: one for all slots, or one per slot.
pub(super) trait Coefficient<A: Arithmetic>: Clone {
    /// Adds this coefficient times x to a sum.
    fn add_multiple(&self, ar: &A, sum: &mut A::Sum, x: &A::Value) -> Result<(), A::Error>;

    /// Adds several coefficients, each times its x, to a sum.
    fn add_combination(ar: &A, sum: &mut A::Sum, terms: &[(&Self, &A::Value)]) -> Result<(), A::Error> {
        let mut terms = terms.iter();
        terms.try_for_each(|(c, x)| c.add_multiple(ar, sum, x))
    }

    /// x plus this coefficient.
    fn add_to(&self, ar: &A, x: A::Value) -> Result<A::Value, A::Error>;

    /// Subtracts another coefficient.
    fn subtract(&mut self, other: &Self);

    /// Doubles the coefficient.
    fn double(&mut self);

    /// The sum of the magnitudes of `all`, in the slot where it is largest.
    fn sizes(all: &[Self]) -> f64;
}

impl<A: Arithmetic> Coefficient<A> for f64 {
    fn add_multiple(&self, ar: &A, sum: &mut A::Sum, x: &A::Value) -> Result<(), A::Error> {
        ar.add_multiple(sum, x, *self)
    }

    fn add_combination(ar: &A, sum: &mut A::Sum, terms: &[(&Self, &A::Value)]) -> Result<(), A::Error> {
        let terms: Vec<_> = terms.iter().map(|&(&c, x)| (c, x)).collect();
        ar.add_combination(sum, &terms)
    }

    fn add_to(&self, ar: &A, x: A::Value) -> Result<A::Value, A::Error> {
        ar.add_constant(x, *self)
    }

    fn subtract(&mut self, other: &Self) {
        *self -= other;
    }

    fn double(&mut self) {
        *self *= 2.0;
    }

    fn sizes(all: &[Self]) -> f64 {
        all.iter().map(|c| c.abs()).sum()
    }
}

/// One number per slot of a period.
#[derive(Clone)]
pub(super) struct Numbers(pub Vec<f64>);

impl<A: SlotArithmetic> Coefficient<A> for Numbers {
    fn add_multiple(&self, ar: &A, sum: &mut A::Sum, x: &A::Value) -> Result<(), A::Error> {
        ar.add_multiples(sum, x, &self.0)
    }

    fn add_to(&self, ar: &A, x: A::Value) -> Result<A::Value, A::Error> {
        ar.add_numbers(x, &self.0)
    }

    fn subtract(&mut self, other: &Self) {
        let pairs = self.0.iter_mut().zip(&other.0);
        pairs.for_each(|(a, b)| *a -= b);
    }

    fn double(&mut self) {
        self.0.iter_mut().for_each(|c| *c *= 2.0);
    }

    fn sizes(all: &[Self]) -> f64 {
        let slots = all.first().map_or(0, |c| c.0.len());
        let size = |slot: usize| all.iter().map(|c| c.0[slot].abs()).sum::<f64>();
        (0..slots).map(size).fold(0.0, f64::max)
    }
}
