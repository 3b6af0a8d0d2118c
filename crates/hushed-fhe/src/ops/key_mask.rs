//! Masks the keys of padding in a softmax: padding gets the least exponential, and its share is subtracted from the
//! sums. So it has no weight at all, and a text's answer does not depend on its padding.
//!
//! A key of padding is zero (its columns are, and keys have no bias), so its scores are 0 for every query: the client
//! fills padding rows with zeros (one that does not spoils its own text), and norms mask those of every later layer.
//! With t = s + c the argument of the exponential on [−1, 1], and R_j the rows i for which key i + j is a token:
//!
//! ```text
//! diagonal j of t  =  s − 1 + (1 + c)·R_j        −1 for padding
//! Σp               =  Σ p − n·p(−1)              n rows of padding in the text
//! Σe               =  Σ e − n·p(−1)²·(1/Σp)²     e = (p/Σp)²
//! ```
//!
//! With public lengths, R_j and n are plaintext vectors. With private lengths, R_j is one more column of Q (the
//! constant 1 + c) and of K (the token rows), which costs each head b rotations of a column and no level; n takes
//! log2(m) rotations, once per layer.
//!
//! The first sum of a place without a text is set to 1 if lengths are public. With private lengths it is 0, where
//! inverses stay bounded. The values of such places are 0 in both cases.

use hushed_ckks::Scale;

use crate::error::FheError;
use crate::ops::levels::{below, divisor, scale_of};
use crate::ops::mask::RowsKnown;
use crate::ops::norm::product;
use crate::packing::Interleave;
use crate::slots::Slots;

/// The smallest fraction of its scale at which an inverse is computed: below it, its factors would lose too many bits.
const LEAST_SCALE: f64 = 1.0 / (1 << 16) as f64;

/// The least value assumed for p(−1). Inverses are at most about 2^16, so with n = 128 a share is off by 2^-21 at most.
const LEAST_SHARE: f64 = 1.0 / (1 << 30) as f64;

/// The token rows, as the softmaxes of a layer use them.
pub enum KeyMask<'a, V> {
    /// With public lengths.
    Public {
        /// The packing.
        layout: Interleave,
        /// The number of tokens of each text.
        lengths: &'a [usize],
    },
    /// With private lengths.
    Private {
        /// The packing.
        layout: Interleave,
        /// Token rows.
        real: &'a V,
        /// The number of tokens of the slot's text, divided by m.
        part: V,
    },
}

impl<'a, V: Clone> KeyMask<'a, V> {
    /// Computes the mask, once per layer; with private lengths, by log2(m) rotations.
    ///
    /// # Errors
    /// If a rotation key is missing.
    pub fn new<S: Slots<Value = V>>(on: &S, rows: &'a RowsKnown<V>) -> Result<Self, FheError> {
        match rows {
            RowsKnown::Public { layout, packing } => Ok(Self::Public { layout: *layout, lengths: packing.lengths() }),
            RowsKnown::Private { layout, real } => {
                let m = layout.rows();
                let mut part = on.read_as(real.clone(), 1.0 / m as f64)?;
                let mut by = 1;
                while by < m {
                    let rotated = on.rotate(&part, layout.rotation(by))?;
                    on.add_assign(&mut part, &rotated)?;
                    by *= 2;
                }
                Ok(Self::Private { layout: *layout, real, part: on.within(part, 1.0) })
            }
        }
    }

    /// `sum` − n·`each`: a head's first sum without padding. Places without a text get 1 if lengths are public.
    ///
    /// # Errors
    /// If `sum` has no level above it.
    pub fn subtract_padding<S: Slots<Value = V>>(&self, on: &S, sum: V, each: f64) -> Result<V, FheError> {
        match self {
            Self::Public { layout, .. } => {
                let padding = |padded: usize| match padded {
                    all if all == layout.rows() => 1.0 - each * all as f64,
                    padded => -each * padded as f64,
                };
                on.add_vector(sum, &on.plain(|| self.by_text(padding)))
            }
            Self::Private { layout, part, .. } => {
                let m = layout.rows() as f64;
                let mut sum = on.add_constant(sum, -each * m)?;
                let real = multiple(on, part, on.limbs(&sum), each * m, on.scale(&sum))?;
                on.add_assign(&mut sum, &real)?;
                Ok(sum)
            }
        }
    }

    /// `sum` − n·(`each`·`inverse`)²: a head's second sum without padding. `inverse` is that of the first sum, which
    /// `again` computes at another scale. Places without a text are unchanged if lengths are public.
    ///
    /// The inverse of a short text's sum is large and `each` is small, so their product, which is neither, is squared:
    /// an error of n·`each`² would be multiplied by the square of the inverse. With public lengths √n is included in
    /// the product. With private lengths the inverse is computed at a scale that is smaller by the factor `each` and
    /// read as the product: a product with a constant would take one level too many.
    ///
    /// # Errors
    /// If the inverse has fewer than two levels.
    pub fn subtract_padding_squares<S: Slots<Value = V>>(
        &self,
        on: &S,
        mut sum: V,
        inverse: &V,
        again: impl FnOnce(Scale) -> Result<V, FheError>,
        each: f64,
    ) -> Result<V, FheError> {
        let share = match self {
            Self::Public { layout, .. } => {
                let root = |padded: usize| match padded {
                    all if all == layout.rows() => 0.0,
                    padded => each * (padded as f64).sqrt(),
                };
                let limbs = below(on, on.limbs(inverse), 1)?;
                let target = (on.scale(&sum).value() * divisor(on, limbs)?).sqrt();
                let numbers = on.plain(|| self.by_text(root));
                let roots = on.mul_vector(inverse, &numbers, scale_of(target)?)?;
                product(on, &roots, &roots)?
            }
            Self::Private { layout, part, .. } => {
                let each = each.abs();
                let lower = on.scale(inverse).value() * each.max(LEAST_SCALE);
                let inverse = on.drop_to(&again(scale_of(lower)?)?, on.limbs(inverse))?;
                let root = on.within(on.read_as(inverse, each.max(LEAST_SHARE))?, 1.0);
                let square = on.within(product(on, &root, &root)?, 1.0);
                // m·(1 − part), at the scale that brings the product to the scale of the sum.
                let limbs = on.limbs(&square);
                let wanted = on.scale(&sum).value() * divisor(on, limbs)? / on.scale(&square).value();
                let all = layout.rows() as f64;
                let real = multiple(on, part, limbs, -all, scale_of(wanted)?)?;
                product(on, &on.add_constant(real, all)?, &square)?
            }
        };
        on.sub_assign(&mut sum, &share)?;
        Ok(sum)
    }

    /// `f` of each text's number of padding rows, in all rows of the text.
    fn by_text(&self, f: impl Fn(usize) -> f64) -> Vec<f64> {
        let Self::Public { layout, lengths } = self else {
            return Vec::new();
        };
        let padded = |text: usize| layout.rows() - lengths.get(text).map_or(0, |&l| l);
        layout.vector(layout.texts(), |text, _| f(padded(text)))
    }
}

/// Sums each row over the diagonals.
///
/// # Errors
/// If primes or scales differ.
pub(crate) fn total<S: Slots>(on: &S, vectors: &[S::Value]) -> Result<S::Value, FheError> {
    let Some((first, rest)) = vectors.split_first() else {
        let limbs = on.floor();
        let wide = on.default_scale().value() * divisor(on, limbs)?;
        return on.finish(on.sum(limbs, scale_of(wide)?)?);
    };
    let mut sum = first.clone();
    for v in rest {
        on.add_assign(&mut sum, v)?;
    }
    Ok(sum)
}

/// `factor`·x at scale `target` with `limbs` primes; x may have more.
fn multiple<S: Slots>(on: &S, x: &S::Value, limbs: usize, factor: f64, target: Scale) -> Result<S::Value, FheError> {
    let from = crate::ops::levels::above(on, limbs)?;
    let wide = scale_of(target.value() * divisor(on, from)?)?;
    let mut sum = on.sum(from, wide)?;
    on.add_multiple(&mut sum, x, factor)?;
    on.finish(sum)
}
