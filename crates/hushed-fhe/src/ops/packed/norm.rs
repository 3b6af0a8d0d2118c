//! A decoder's RMSNorm in packed rows. The variance of a row is the sum of the squares of its columns over places,
//! spread over the row. If columns are refreshed before it, they are refreshed to enough levels that the variance and
//! its root need no refresh between them; the root, which is then low, is refreshed.
//!
//! v = Σ c² + κ²·d·ε for c = κ·x, x̂/bound = c·(√d/bound)·v^{−1/2}. In padding rows x is 0 and the root is bounded, so
//! the result is 0.

use hushed_ckks::Scale;
use hushed_ckks::poly::InverseSqrt;
use hushed_model::{Norm, StepId, same};

use super::reaching;
use super::rows::PackedRows;
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ledger::PACKED_VARIANCE;
use crate::ops::acts::Acts;
use crate::ops::levels::{above_by, below, divisor, scale_of};
use crate::ops::norm::{inverse_root, keeps_zeros, refreshed, root_levels};
use crate::packing::sums::squares;
use crate::packing::{PackingError, Spread};
use crate::slots::Slots;

/// Margin above the largest inverse root of a calibrated variance, for its refresh. In rows of padding a root is
/// largest, 3.5/√low.
const ROOM: f64 = 4.0;

/// A norm in packed rows.
pub struct PackedNorm<'a> {
    /// The step that plans, counters and progress name it by.
    pub at: StepId,
    /// Gain, offset, ε.
    pub norm: &'a Norm,
    /// κ, range of the variance, bound.
    pub choice: &'a NormChoice,
    /// The texts.
    pub rows: &'a PackedRows<()>,
    /// The places of the columns.
    pub columns: Spread,
    /// The primes of refreshed statistics.
    pub statistics: usize,
}

impl PackedNorm<'_> {
    /// RMSNorm of a decoder's `x`, which was refreshed to [`PackedNorm::refreshed_to`] of `limbs` primes: one level
    /// below `limbs`. Its inverse root is refreshed.
    ///
    /// # Errors
    /// As [`PackedNorm::after_refresh`]; [`FheError::Unsupported`] for a LayerNorm or an offset.
    pub fn of_stream<S: Slots>(&self, on: &S, x: &Acts<S::Value>, limbs: usize) -> Result<Acts<S::Value>, FheError> {
        self.of_refreshed(on, self.scaled(on, x)?, limbs)
    }

    /// The same for an `x` with few levels left: one level below it; it needs two.
    ///
    /// # Errors
    /// As [`PackedNorm::of_stream`].
    pub fn of_low_stream<S: Slots>(&self, on: &S, x: &Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        self.of_low(on, self.scaled(on, x)?)
    }

    /// The primes of columns whose norm is taken at `limbs`: enough that variance and root need no refresh between
    /// them, if statistics can have as many.
    pub fn refreshed_to<S: Slots>(&self, on: &S, limbs: usize) -> usize {
        limbs.max(self.deep(on).unwrap_or(limbs))
    }

    /// The primes needed for squares, the mask of their sums, the root and its mask to follow one another.
    fn deep<S: Slots>(&self, on: &S) -> Option<usize> {
        let needed = above_by(on, on.floor(), PACKED_VARIANCE + root_levels(self.choice).ok()? + 1);
        needed.ok().filter(|&needed| needed <= self.statistics)
    }

    fn of_refreshed<S: Slots>(&self, on: &S, centred: Vec<S::Value>, limbs: usize) -> Result<Acts<S::Value>, FheError> {
        on.at(self.at);
        let function = inverse_root(on, self.choice)?;
        let mut v = self.variance(on, &centred)?;
        if self.deep(on).is_none() {
            v = refreshed(on, self.at.part("variance"), v, self.statistics)?;
        }
        let short = centred.iter().map(|c| on.drop_to(c, limbs));
        let centred = short.collect::<Result<Vec<_>, FheError>>()?;
        // The largest root, and so the message of the refresh, is below 1.
        let most = ROOM / self.choice.low.sqrt();
        let root = self.root(on, &function, &v, (1.0 / most, on.default_scale()))?;
        let root = crate::ops::softmax::refreshed(on, self.at.part("root"), vec![root], limbs)?;
        let root = root.into_iter().next().ok_or(PackingError::Mismatch)?;
        self.times(on, centred, on.read_as(root, most * self.factor())?)
    }

    fn of_low<S: Slots>(&self, on: &S, centred: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        on.at(self.at);
        let (v, function) = (self.variance(on, &centred)?, inverse_root(on, self.choice)?);
        let first = centred.first().ok_or(PackingError::Mismatch)?;
        let (limbs, scale) = (on.limbs(first), on.scale(first));
        let primes = reaching(on, limbs, function.levels() + 1, self.statistics);
        let v = refreshed(on, self.at.part("variance"), v, primes)?;
        let wanted = on.default_scale().value() / 2.0 * divisor(on, limbs)?;
        let target = scale_of(wanted / scale.value())?;
        let root = self.root(on, &function, &v, (self.factor(), target))?;
        self.times(on, centred, root)
    }

    /// κ·x, for vectors x divided by the bound that is their gain.
    fn scaled<S: Slots>(&self, on: &S, x: &Acts<S::Value>) -> Result<Vec<S::Value>, FheError> {
        keeps_zeros(self.at, self.norm)?;
        let factor = self.choice.scale * x.gain.first().copied().unwrap_or(1.0);
        let scaled = x.columns.iter().map(|v| on.read_as(v.clone(), factor));
        scaled.collect()
    }

    fn factor(&self) -> f64 {
        (self.norm.width as f64).sqrt() / self.choice.bound
    }

    /// v, [`PACKED_VARIANCE`] levels below `centred`.
    fn variance<S: Slots>(&self, on: &S, centred: &[S::Value]) -> Result<S::Value, FheError> {
        same(self.at, "vectors", centred.len(), self.columns.vectors())?;
        let v = squares(on, self.rows.layout(), centred, |sum, first| {
            let mask = self.rows.numbers(on, |_, _, place| first(place));
            on.mul_vector(sum, &mask, on.default_scale())
        })?;
        let epsilon = self.choice.scale.powi(2) * self.norm.width as f64 * self.norm.epsilon;
        let v = on.add_vector(v, &self.rows.numbers(on, |_, _, _| epsilon))?;
        Ok(on.within(v, 1.0))
    }

    /// `factor`·v^{−1/2}, at scale `target`.
    fn root<S: Slots>(
        &self,
        on: &S,
        function: &InverseSqrt,
        v: &S::Value,
        (factor, target): (f64, Scale),
    ) -> Result<S::Value, FheError> {
        let y = function.evaluate(on, v, on.default_scale())?;
        on.mul_vector(&y, &self.rows.numbers(on, |_, _, _| factor), target)
    }

    fn times<S: Slots>(&self, on: &S, centred: Vec<S::Value>, root: S::Value) -> Result<Acts<S::Value>, FheError> {
        let first = centred.first().ok_or(PackingError::Mismatch)?;
        let limbs = on.limbs(first).min(on.limbs(&root));
        // Checks that there is a level.
        below(on, limbs, 1)?;
        let root = [vec![on.drop_to(&root, limbs)?]];
        let mut columns = Vec::with_capacity(centred.len());
        for c in centred {
            let product = on.dot_grid(&[vec![c]], &root)?;
            columns.extend(product.into_iter().flatten());
        }
        acts(self.at, columns, self.norm, self.choice)
    }
}

/// Vectors of pairs x̂/bound with the gain and offset of their norm, one number per column.
///
/// # Errors
/// [`hushed_model::ModelError::ShapesOnly`] if the norm has no numbers.
pub fn acts<V>(at: StepId, columns: Vec<V>, norm: &Norm, choice: &NormChoice) -> Result<Acts<V>, FheError> {
    let (gain, offset) = hushed_lower::affine(at, norm)?;
    Ok(Acts { columns, gain: gain.iter().map(|g| g * choice.bound).collect(), offset })
}
