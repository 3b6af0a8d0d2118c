//! The operations that polynomial evaluation needs: products, multiples, and sums that are rescaled once.

use super::error::PolyError;
use crate::scale::Scale;

/// A factor of a product, in two parts: the integers are multiplied by `integer`, and the message is read as `value`
/// times itself. The latter is free: a message m at scale s is also the message c·m at scale s/c.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Weight {
    /// Factor on the integers, not 0.
    pub integer: i64,
    /// Factor on the message, with the same sign as `integer`.
    pub value: f64,
}

impl Weight {
    /// The unweighted product.
    pub const ONE: Self = Self { integer: 1, value: 1.0 };

    /// The weight for `value` times a product of scale `product`, with the integer that brings the result closest to
    /// the scale `wanted`. Integers only multiply, so a scale above the wanted one stays above it.
    pub fn towards(value: f64, product: Scale, wanted: Scale) -> Self {
        let factor = wanted.over(product).value() * value.abs();
        // With primes below 2^50 and operands that carry a message at all, more than 2^40 is never needed.
        let integer = factor.round().clamp(1.0, (1u64 << 40) as f64) as i64;
        Self { integer: if value < 0.0 { -integer } else { integer }, value }
    }

    /// The scale of a product of scale `product` after this weight is applied.
    ///
    /// # Errors
    /// [`PolyError::InvalidScale`] if it is not a valid scale.
    pub fn scale(self, product: Scale) -> Result<Scale, PolyError> {
        scale(product.value() * self.integer as f64 / self.value)
    }
}

/// Arithmetic on vectors, encrypted or not, each of which has a number of primes and a scale.
///
/// A level is one rescale. The implementation says how many primes it drops, so a chain may give some levels two small
/// primes instead of one.
pub trait Arithmetic {
    /// A vector.
    type Value: Clone;
    /// A sum of products and multiples at one level and scale, not yet relinearised or rescaled.
    type Sum;
    /// The error type.
    type Error: From<PolyError>;

    /// Number of primes of a vector.
    fn limbs(&self, x: &Self::Value) -> usize;

    /// Scale of a vector.
    fn scale(&self, x: &Self::Value) -> Scale;

    /// The prime at position `index` of the chain.
    fn prime(&self, index: usize) -> u64;

    /// Number of primes that a rescale drops from a vector of `limbs` primes.
    fn level_primes(&self, limbs: usize) -> usize {
        let _ = limbs;
        1
    }

    /// The empty sum, over the first `limbs` primes, at `scale`.
    ///
    /// # Errors
    /// If a message of size 1 at this scale wraps around those primes, meaning that scales have drifted off the primes.
    fn sum(&self, limbs: usize, scale: Scale) -> Result<Self::Sum, Self::Error>;

    /// Adds a·b with a weight; operands with more primes are truncated to those of the sum.
    ///
    /// # Errors
    /// Unless scale(a)·scale(b)·integer/value is the scale of the sum, or if an operand has fewer primes.
    fn add_product(
        &self,
        sum: &mut Self::Sum,
        a: &Self::Value,
        b: &Self::Value,
        weight: Weight,
    ) -> Result<(), Self::Error>;

    /// Adds `factor`·x, with the factor encoded at the ratio of the scales of sum and x.
    ///
    /// # Errors
    /// If `x` has fewer primes than the sum.
    fn add_multiple(&self, sum: &mut Self::Sum, x: &Self::Value, factor: f64) -> Result<(), Self::Error>;

    /// Adds Σ factor·x: [`Arithmetic::add_multiple`] for each of `terms`.
    ///
    /// # Errors
    /// As [`Arithmetic::add_multiple`].
    fn add_combination(&self, sum: &mut Self::Sum, terms: &[(f64, &Self::Value)]) -> Result<(), Self::Error> {
        let mut terms = terms.iter();
        terms.try_for_each(|(factor, x)| self.add_multiple(sum, x, *factor))
    }

    /// Relinearises if there were products, then rescales by one level.
    ///
    /// # Errors
    /// If there are not enough primes to drop.
    fn finish(&self, sum: Self::Sum) -> Result<Self::Value, Self::Error>;

    /// x + c in every slot.
    fn add_constant(&self, x: Self::Value, c: f64) -> Result<Self::Value, Self::Error>;

    /// The same integers, read as the message `factor`·x; the scale is divided by `factor`.
    ///
    /// # Errors
    /// If `factor` is not positive and finite.
    fn read_as(&self, x: Self::Value, factor: f64) -> Result<Self::Value, Self::Error>;

    /// The same vector, for which the caller knows that no slot exceeds `bound`. This improves error estimates, which
    /// otherwise multiply bounds.
    fn within(&self, x: Self::Value, bound: f64) -> Self::Value {
        let _ = bound;
        x
    }

    /// The same vector as if it were exact, and the deviation of its error. Iterations contract errors in a way that
    /// the product rules do not see. So a step runs on an exact operand, which estimates only the step's own errors,
    /// and then [`Arithmetic::with_error`] adds the step's slope times the deviation taken here.
    fn take_error(&self, x: Self::Value) -> (Self::Value, f64) {
        (x, 0.0)
    }

    /// The same vector with another error of this deviation, in units of the message.
    fn with_error(&self, x: Self::Value, deviation: f64) -> Self::Value {
        let _ = deviation;
        x
    }
}

/// [`Arithmetic`] with numbers that differ between slots. A list of numbers repeats with its length, which divides the
/// number of slots; it is empty where only shapes matter.
pub trait SlotArithmetic: Arithmetic {
    /// Adds `factors` ⊗ x, with the factors encoded at the ratio of the scales of sum and x. Does not rescale.
    ///
    /// # Errors
    /// If `x` has fewer primes than the sum, or the number of factors is wrong.
    fn add_multiples(&self, sum: &mut Self::Sum, x: &Self::Value, factors: &[f64]) -> Result<(), Self::Error>;

    /// x + `numbers`.
    ///
    /// # Errors
    /// If their number is wrong.
    fn add_numbers(&self, x: Self::Value, numbers: &[f64]) -> Result<Self::Value, Self::Error>;
}

/// A scale from a computed value.
pub(crate) fn scale(value: f64) -> Result<Scale, PolyError> {
    Scale::new(value).map_err(|_| PolyError::InvalidScale { value })
}

/// A factor with fewer bits than this would lose the message; no function here needs one coarser than 2^-20.
const LEAST_FACTOR_BITS: f64 = 20.0;

/// The scale at which to encode a factor that takes a message from scale `from` to scale `to`.
pub(crate) fn factor_scale(to: Scale, from: Scale) -> Result<f64, PolyError> {
    let factor = to.over(from);
    if factor.log2() < LEAST_FACTOR_BITS {
        return Err(PolyError::ScaleTooSmall { log2: factor.log2() });
    }
    Ok(factor.value())
}
