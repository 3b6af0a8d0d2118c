//! LayerNorm in packed rows. The variance of a row is the sum of the squares of its centred columns over places, spread
//! over the row. If columns are refreshed before it, they are refreshed to enough levels that the variance and its root
//! need no refresh between them; the root, which is then low, is refreshed.
//!
//! v = Σ c² in rows that are kept and 1 in others, x̂/bound = c·(√d/bound)·v^{−1/2}, 0 in rows that are not kept. If
//! only an encrypted vector says which rows are kept, v is the least of its range in the others: adding 1 there through
//! that vector would add the error of its refresh everywhere; adding the least v adds little of it.
//!
//! A decoder's RMSNorm is the same with c = κ·x and all rows kept: in padding rows x is 0 and v is κ²·d·ε, where the
//! root is bounded, so the result is 0.

use hushed_ckks::Scale;
use hushed_ckks::poly::InverseSqrt;
use hushed_model::{Norm, StepId, same};

use super::rows::{Kept, PackedRows};
use super::{reaching, refreshed_pairs};
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ledger::PACKED_VARIANCE;
use crate::ops::acts::Acts;
use crate::ops::decoder::rms::root_levels;
use crate::ops::levels::{above_by, below, divisor, scale_of};
use crate::ops::norm::{has_means, inverse_root, keeps_zeros, refreshed};
use crate::packing::sums::squares;
use crate::packing::{PackingError, Spread};
use crate::slots::Slots;

/// Margin above the largest inverse root of a calibrated variance, for its refresh.
const ROOM: f64 = 1.5;

/// The same if padding rows are kept: a root is largest at 0, 3.5/√low.
const PADDING_ROOM: f64 = 4.0;

/// A norm in packed rows.
pub struct PackedNorm<'a, V> {
    /// The step that plans, counters and progress name it by.
    pub at: StepId,
    /// Gain, offset, ε.
    pub norm: &'a Norm,
    /// κ, range of the variance, bound.
    pub choice: &'a NormChoice,
    /// The texts.
    pub rows: &'a PackedRows<V>,
    /// Rows that get a result.
    pub kept: Kept,
    /// The places of the columns.
    pub columns: Spread,
    /// The primes of refreshed statistics.
    pub statistics: usize,
}

impl<V: Clone + Send + Sync> PackedNorm<'_, V> {
    /// The norm of `centred` pairs that have no level left: they are first refreshed to `limbs` primes, and the inverse
    /// root is refreshed too. One level below `limbs`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a norm without means; too few levels; where values are visible,
    /// [`FheError::Range`] for columns or a variance outside their range.
    pub fn after_refresh<S: Slots<Value = V>>(
        &self,
        on: &S,
        centred: &[S::Value],
        limbs: usize,
    ) -> Result<Acts<S::Value>, FheError> {
        has_means(self.at, self.norm)?;
        let at = self.at.part("refresh");
        on.at(at);
        let centred = refreshed_pairs(on, at, centred, self.refreshed_to(on, limbs))?;
        self.of_refreshed(on, centred, limbs)
    }

    /// The norm of `centred` pairs, one level below them; at half of [`Slots::default_scale`].
    ///
    /// # Errors
    /// As [`PackedNorm::after_refresh`].
    pub fn at_level<S: Slots<Value = V>>(&self, on: &S, centred: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
        has_means(self.at, self.norm)?;
        self.of_low(on, centred)
    }

    /// RMSNorm of a decoder's `x`, which was refreshed to [`PackedNorm::refreshed_to`] of `limbs` primes: one level
    /// below `limbs`. Its inverse root is refreshed.
    ///
    /// # Errors
    /// As [`PackedNorm::after_refresh`]; [`FheError::Unsupported`] for a LayerNorm or an offset.
    pub fn of_stream<S: Slots<Value = V>>(
        &self,
        on: &S,
        x: &Acts<S::Value>,
        limbs: usize,
    ) -> Result<Acts<S::Value>, FheError> {
        self.of_refreshed(on, self.scaled(on, x)?, limbs)
    }

    /// The same for an `x` with few levels left: one level below it; it needs two.
    ///
    /// # Errors
    /// As [`PackedNorm::of_stream`].
    pub fn of_low_stream<S: Slots<Value = V>>(&self, on: &S, x: &Acts<S::Value>) -> Result<Acts<S::Value>, FheError> {
        self.of_low(on, self.scaled(on, x)?)
    }

    /// The primes of columns whose norm is taken at `limbs`: enough that variance and root need no refresh between
    /// them, if statistics can have as many.
    pub fn refreshed_to<S: Slots<Value = V>>(&self, on: &S, limbs: usize) -> usize {
        limbs.max(self.deep(on).unwrap_or(limbs))
    }

    /// The primes needed for squares, the mask of their sums, the root and its mask to follow one another.
    fn deep<S: Slots<Value = V>>(&self, on: &S) -> Option<usize> {
        let needed = above_by(on, on.floor(), PACKED_VARIANCE + root_levels(self.choice).ok()? + 1);
        needed.ok().filter(|&needed| needed <= self.statistics)
    }

    fn of_refreshed<S: Slots<Value = V>>(
        &self,
        on: &S,
        centred: Vec<S::Value>,
        limbs: usize,
    ) -> Result<Acts<S::Value>, FheError> {
        on.at(self.at);
        let function = inverse_root(on, self.choice)?;
        let mut v = self.variance(on, &centred)?;
        if self.deep(on).is_none() {
            v = refreshed(on, self.at.part("variance"), v, self.statistics)?;
        }
        let short = centred.iter().map(|c| on.drop_to(c, limbs));
        let centred = short.collect::<Result<Vec<_>, FheError>>()?;
        // The largest root, and so the message of the refresh, is below 1.
        let room = match self.kept {
            Kept::All => PADDING_ROOM,
            _ => ROOM,
        };
        let most = room / self.choice.low.sqrt();
        let root = self.root(on, &function, &v, (1.0 / most, on.default_scale()))?;
        let root = crate::ops::softmax::refreshed(on, self.at.part("root"), vec![root], limbs)?;
        let root = root.into_iter().next().ok_or(PackingError::Mismatch)?;
        self.times(on, centred, on.read_as(root, most * self.factor())?)
    }

    fn of_low<S: Slots<Value = V>>(&self, on: &S, centred: Vec<S::Value>) -> Result<Acts<S::Value>, FheError> {
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
    fn scaled<S: Slots<Value = V>>(&self, on: &S, x: &Acts<S::Value>) -> Result<Vec<S::Value>, FheError> {
        keeps_zeros(self.at, self.norm)?;
        let factor = self.choice.scale * x.gain.first().copied().unwrap_or(1.0);
        let scaled = x.columns.iter().map(|v| on.read_as(v.clone(), factor));
        scaled.collect()
    }

    fn factor(&self) -> f64 {
        (self.norm.width as f64).sqrt() / self.choice.bound
    }

    /// v, [`PACKED_VARIANCE`] levels below `centred`.
    fn variance<S: Slots<Value = V>>(&self, on: &S, centred: &[S::Value]) -> Result<S::Value, FheError> {
        same(self.at, "vectors", centred.len(), self.columns.vectors())?;
        let v = squares(on, self.rows.layout(), centred, |sum, first| {
            self.rows.times(on, sum, (self.kept, first), on.default_scale())
        })?;
        let epsilon = self.choice.scale.powi(2) * self.norm.width as f64 * self.norm.epsilon;
        // Both in rows that may be padding; then the second is subtracted where they are tokens.
        let low = match self.rows.hides(self.kept) {
            true => self.choice.low,
            false => 0.0,
        };
        let added = self.rows.numbers(on, |text, row, _| match self.rows.holds(self.kept, text, row) {
            true => epsilon + low,
            false => 1.0,
        });
        let v = on.add_vector(v, &added)?;
        let v = self.rows.less_where_hidden(on, v, (self.kept, low))?;
        Ok(on.within(v, 1.0))
    }

    /// `factor`·v^{−1/2} in rows that are kept, 0 in others, at scale `target`.
    fn root<S: Slots<Value = V>>(
        &self,
        on: &S,
        function: &InverseSqrt,
        v: &S::Value,
        (factor, target): (f64, Scale),
    ) -> Result<S::Value, FheError> {
        let y = function.evaluate(on, v, on.default_scale())?;
        self.rows.times(on, &y, (self.kept, |_| factor), target)
    }

    fn times<S: Slots<Value = V>>(
        &self,
        on: &S,
        centred: Vec<S::Value>,
        root: S::Value,
    ) -> Result<Acts<S::Value>, FheError> {
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
