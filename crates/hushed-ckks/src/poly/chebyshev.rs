//! Polynomials as coefficients in a basis, with a declared parity.

use hushed_math::fit::Fit;

use super::error::PolyError;

/// Highest degree: beyond it f64 coefficients lose more than further terms gain.
pub const MAX_DEGREE: usize = 1023;

/// The basis of the coefficients.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Basis {
    /// 1, x, x², …: for |x| ≤ 1 or low degrees.
    Monomial,
    /// T_0(t), T_1(t), … with t = (2x − low − high)/(high − low) in [−1, 1].
    Chebyshev {
        /// Lower end of the interval.
        low: f64,
        /// Upper end of the interval.
        high: f64,
    },
}

/// Which coefficients are present. Only a declared parity saves operations, never a coefficient that happens to be
/// zero: coefficients may be calibrated from weights, and the computation must not depend on those.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Parity {
    /// All.
    None,
    /// Those of even index.
    Even,
    /// Those of odd index.
    Odd,
}

impl Parity {
    /// Whether a polynomial of this parity has a term of this index.
    pub fn has(self, index: usize) -> bool {
        match self {
            Parity::None => true,
            Parity::Even => index.is_multiple_of(2),
            Parity::Odd => !index.is_multiple_of(2),
        }
    }
}

/// A polynomial with real coefficients, the same in every slot.
#[derive(Debug, Clone, PartialEq)]
pub struct Polynomial {
    basis: Basis,
    coeffs: Vec<f64>,
    parity: Parity,
}

impl Polynomial {
    /// Σ c_k·x^k.
    ///
    /// # Errors
    /// [`PolyError::Degree`] for fewer than 2 or more than [`MAX_DEGREE`] + 1 coefficients, [`PolyError::Coefficient`].
    pub fn monomial(coeffs: Vec<f64>) -> Result<Self, PolyError> {
        Self::new(Basis::Monomial, coeffs)
    }

    /// Σ c_k·T_k(t), t in [−1, 1] for x in [`low`, `high`].
    ///
    /// # Errors
    /// As [`Polynomial::monomial`], or [`PolyError::Range`].
    pub fn chebyshev(coeffs: Vec<f64>, low: f64, high: f64) -> Result<Self, PolyError> {
        if !(low.is_finite() && high.is_finite() && low < high) {
            return Err(PolyError::Range { low, high });
        }
        Self::new(Basis::Chebyshev { low, high }, coeffs)
    }

    /// The Chebyshev form of a fit.
    ///
    /// # Errors
    /// As [`Polynomial::chebyshev`].
    pub fn from_fit(fit: &Fit) -> Result<Self, PolyError> {
        Self::chebyshev(fit.chebyshev.clone(), fit.low, fit.high)
    }

    /// The same polynomial, declared even or odd (in t, for the Chebyshev basis).
    ///
    /// # Errors
    /// [`PolyError::Coefficient`] if a coefficient of the other parity is not 0, [`PolyError::Degree`] if too few
    /// remain.
    pub fn with_parity(mut self, parity: Parity) -> Result<Self, PolyError> {
        let excluded = |&(index, &value): &(usize, &f64)| !parity.has(index) && value != 0.0;
        if let Some((index, &value)) = self.coeffs.iter().enumerate().find(excluded) {
            return Err(PolyError::Coefficient { index, value });
        }
        while !self.coeffs.is_empty() && !parity.has(self.coeffs.len() - 1) {
            self.coeffs.pop();
        }
        self.parity = parity;
        Self::check_degree(&self.coeffs)?;
        Ok(self)
    }

    fn new(basis: Basis, coeffs: Vec<f64>) -> Result<Self, PolyError> {
        Self::check_degree(&coeffs)?;
        if let Some((index, &value)) = coeffs.iter().enumerate().find(|(_, c)| !c.is_finite()) {
            return Err(PolyError::Coefficient { index, value });
        }
        Ok(Self { basis, coeffs, parity: Parity::None })
    }

    fn check_degree(coeffs: &[f64]) -> Result<(), PolyError> {
        let degree = coeffs.len().saturating_sub(1);
        if degree == 0 || degree > MAX_DEGREE {
            return Err(PolyError::Degree { degree, limit: MAX_DEGREE });
        }
        Ok(())
    }

    /// The basis of the coefficients.
    pub fn basis(&self) -> Basis {
        self.basis
    }

    /// All coefficients, from index 0; those excluded by the parity are 0.
    pub fn coeffs(&self) -> &[f64] {
        &self.coeffs
    }

    /// The declared parity.
    pub fn parity(&self) -> Parity {
        self.parity
    }

    /// The declared degree; the last coefficient may be 0.
    pub fn degree(&self) -> usize {
        self.coeffs.len() - 1
    }

    /// Levels that [`super::evaluate`] uses: ⌈log2(degree + 1)⌉, and one more for an interval other than [−1, 1].
    pub fn depth(&self) -> usize {
        let products = self.coeffs.len().next_power_of_two().trailing_zeros() as usize;
        products + usize::from(self.interval_map().is_some())
    }

    /// (factor, offset) with t = factor·x + offset in [−1, 1], if x is not already t. A caller that computes x by a
    /// linear map can fold both into it and evaluate [`Polynomial::on_unit`], saving one level.
    pub fn interval_map(&self) -> Option<(f64, f64)> {
        match self.basis {
            Basis::Monomial => None,
            Basis::Chebyshev { low, high } if (low, high) == (-1.0, 1.0) => None,
            Basis::Chebyshev { low, high } => Some((2.0 / (high - low), -(low + high) / (high - low))),
        }
    }

    /// The same coefficients on [−1, 1]: the polynomial in t instead of x. A monomial polynomial stays as it is.
    #[must_use]
    pub fn on_unit(&self) -> Self {
        let basis = match self.basis {
            Basis::Monomial => Basis::Monomial,
            Basis::Chebyshev { .. } => Basis::Chebyshev { low: -1.0, high: 1.0 },
        };
        Self { basis, ..self.clone() }
    }

    /// p(x) in f64, by Horner's or Clenshaw's rule.
    pub fn eval(&self, x: f64) -> f64 {
        match self.basis {
            Basis::Monomial => {
                let horner = |value: f64, c: &f64| value.mul_add(x, *c);
                self.coeffs.iter().rev().fold(0.0, horner)
            }
            Basis::Chebyshev { .. } => {
                let t = self.interval_map().map_or(x, |(factor, offset)| factor * x + offset);
                let (mut b1, mut b2) = (0.0, 0.0);
                for &c in self.coeffs.iter().skip(1).rev() {
                    (b1, b2) = (2.0 * t * b1 - b2 + c, b1);
                }
                t * b1 - b2 + self.coeffs[0]
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_bases_evaluate() {
        let monomial = Polynomial::monomial(vec![1.0, -2.0, 0.5]).unwrap();
        assert!((monomial.eval(3.0) + 0.5).abs() < 1e-12);
        // T_2((x − 3)/2) on [1, 5].
        let chebyshev = Polynomial::chebyshev(vec![0.0, 0.0, 1.0], 1.0, 5.0).unwrap();
        assert!((chebyshev.eval(4.0) - (2.0 * 0.25 - 1.0)).abs() < 1e-12);
        assert_eq!((monomial.depth(), chebyshev.depth()), (2, 3));
        assert_eq!(chebyshev.interval_map(), Some((0.5, -1.5)));
        assert!((chebyshev.on_unit().eval(0.5) - chebyshev.eval(4.0)).abs() < 1e-12);
    }

    #[test]
    fn parity_is_declared_and_checked() {
        let p = Polynomial::monomial(vec![0.0, 1.0, 0.0, 2.0, 0.0]).unwrap();
        let odd = p.clone().with_parity(Parity::Odd).unwrap();
        assert_eq!((odd.degree(), odd.parity()), (3, Parity::Odd));
        assert!(matches!(p.with_parity(Parity::Even), Err(PolyError::Coefficient { index: 1, .. })));
    }

    #[test]
    fn refusals() {
        assert!(Polynomial::monomial(vec![1.0]).is_err());
        assert!(Polynomial::monomial(vec![]).is_err());
        assert!(Polynomial::monomial(vec![0.0, f64::NAN]).is_err());
        assert!(Polynomial::chebyshev(vec![0.0, 1.0], 1.0, 1.0).is_err());
        assert!(Polynomial::monomial(vec![0.0; MAX_DEGREE + 2]).is_err());
        let constant = Polynomial::monomial(vec![1.0, 0.0]).unwrap();
        assert!(constant.with_parity(Parity::Even).is_err());
    }
}
