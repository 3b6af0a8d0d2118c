//! Scalar matrices as integers with a scale.

use std::ops::Range;

use hushed_math::digits_limit;
use zeroize::Zeroize;

use super::error::GemmError;
use crate::params::CkksParams;
use crate::scale::Scale;

/// Largest integer weight.
const MAX_LIMIT: f64 = (1u64 << 62) as f64;

/// rows × columns weights in row-major order: row o makes output o from inputs 0, 1, …
///
/// Weight w is the integer `factor`·v with |v| ≤ `limit`, near scale·w. All of these numbers except v are declared, not
/// measured: they follow from the bound, the scale and the number of digits, and reveal no single weight.
pub struct GemmWeights {
    rows: usize,
    columns: usize,
    /// v, secret.
    values: Vec<i64>,
    limit: u64,
    factor: u64,
    scale: Scale,
    bound: f64,
}

/// What brings integers up to `whole` down to `most`.
fn factor(whole: f64, most: u64) -> f64 {
    (whole / most as f64).ceil().max(1.0)
}

impl GemmWeights {
    /// The integers nearest to `scale`·w, for weights of magnitude at most `bound`. With the prime that a later rescale
    /// drops as the scale, the rescaled product has the scale of its inputs.
    ///
    /// # Errors
    /// [`GemmError::Shape`], [`GemmError::Bound`].
    pub fn from_f64(values: &[f64], rows: usize, columns: usize, bound: f64, scale: Scale) -> Result<Self, GemmError> {
        Self::rounded(values, rows, columns, bound, scale, u64::MAX)
    }

    /// As [`GemmWeights::from_f64`], but rounded to `digits` digits in base 256. An integer factor f is taken out of
    /// the scale, so that the integers are at most 127·(256^digits − 1)/255 in magnitude. The scale stays exactly the
    /// same; a weight is off by at most bound·2^(1 − 8·digits) plus half a unit of the scale. Three digits are as
    /// precise as an f32 for a weight near the bound, and cost less than half as much as 40-bit weights where the
    /// processor multiplies bytes.
    ///
    /// # Errors
    /// As [`GemmWeights::from_f64`], and [`GemmError::Digits`].
    pub fn with_digits(
        values: &[f64],
        rows: usize,
        columns: usize,
        bound: f64,
        scale: Scale,
        digits: u32,
    ) -> Result<Self, GemmError> {
        if !(1..=7).contains(&digits) {
            return Err(GemmError::Digits { digits });
        }
        Self::rounded(values, rows, columns, bound, scale, digits_limit(digits))
    }

    /// The digits that are enough for a model's weights: three, as precise as an f32, or two where the primes of levels
    /// are so short that a term of narrow weights takes one multiply-add.
    pub fn usual_digits(params: &CkksParams) -> u32 {
        if params.literal().levels.bits <= 36 { 2 } else { 3 }
    }

    /// The factor f that [`GemmWeights::with_digits`] takes out of the scale: weights are rounded to multiples of f
    /// over the scale.
    pub fn common_factor(bound: f64, scale: f64, digits: u32) -> f64 {
        factor((bound * scale).ceil(), digits_limit(digits))
    }

    fn rounded(
        values: &[f64],
        rows: usize,
        columns: usize,
        bound: f64,
        scale: Scale,
        most: u64,
    ) -> Result<Self, GemmError> {
        check_shape(rows, columns, values.len())?;
        let whole = (bound * scale.value()).ceil();
        let refused = GemmError::Bound { bound, limit_bits: whole.log2() };
        if !(1.0..=MAX_LIMIT).contains(&whole) {
            return Err(refused);
        }
        let factor = factor(whole, most);
        let limit = ((whole / factor).ceil() as u64).min(most);
        let step = scale.value() / factor;
        let mut beyond = false;
        let values = values
            .iter()
            .map(|&w| {
                beyond |= w.is_nan() | (w.abs() > bound);
                // Only f64 rounding is ever clamped.
                ((w * step).round() as i64).clamp(-(limit as i64), limit as i64)
            })
            .collect();
        let weights = Self { rows, columns, values, limit, factor: factor as u64, scale, bound };
        if beyond { Err(refused) } else { Ok(weights) }
    }

    /// Weights −1, 0 and 1, exact at scale 1, so a product costs no level and adds no rounding.
    ///
    /// # Errors
    /// [`GemmError::Shape`]; [`GemmError::Bound`] for any other weight.
    pub fn ternary(values: &[i8], rows: usize, columns: usize) -> Result<Self, GemmError> {
        let values: Vec<i64> = values.iter().map(|&v| v.into()).collect();
        Self::integers(values, rows, columns, 1)
    }

    /// Integers of magnitude at most `limit`, at scale 1.
    ///
    /// # Errors
    /// [`GemmError::Shape`], [`GemmError::Bound`].
    pub fn integers(values: Vec<i64>, rows: usize, columns: usize, limit: u64) -> Result<Self, GemmError> {
        check_shape(rows, columns, values.len())?;
        let weights = Self { rows, columns, values, limit, factor: 1, scale: Scale::ONE, bound: limit as f64 };
        let beyond = |bad: bool, v: &i64| bad | (v.unsigned_abs() > limit);
        if limit == 0 || limit as f64 > MAX_LIMIT || weights.values.iter().fold(false, beyond) {
            return Err(GemmError::Bound { bound: limit as f64, limit_bits: (limit as f64).log2() });
        }
        Ok(weights)
    }

    /// Number of outputs.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Number of inputs.
    pub fn columns(&self) -> usize {
        self.columns
    }

    /// The factor between weights and integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The declared bound on a weight.
    pub fn bound(&self) -> f64 {
        self.bound
    }

    /// Largest error of a weight from rounding to an integer.
    pub fn rounding(&self) -> f64 {
        let exact = self.scale == Scale::ONE && self.factor == 1;
        if exact { 0.0 } else { 0.5 * self.factor as f64 / self.scale.value() }
    }

    /// The weights of some rows, to compute a few outputs at a time.
    ///
    /// # Errors
    /// [`GemmError::Block`].
    pub fn row_block(&self, range: Range<usize>) -> Result<Self, GemmError> {
        if range.is_empty() || range.end > self.rows {
            return Err(GemmError::Block { start: range.start, end: range.end, available: self.rows });
        }
        let values = &self.values[range.start * self.columns..range.end * self.columns];
        Ok(Self { rows: range.len(), values: values.to_vec(), ..*self })
    }

    pub(super) fn values(&self) -> &[i64] {
        &self.values
    }

    pub(super) fn limit(&self) -> u64 {
        self.limit
    }

    pub(super) fn factor(&self) -> u64 {
        self.factor
    }
}

impl Drop for GemmWeights {
    fn drop(&mut self) {
        self.values.zeroize();
    }
}

fn check_shape(rows: usize, columns: usize, found: usize) -> Result<(), GemmError> {
    if rows > 0 && columns > 0 && rows.checked_mul(columns) == Some(found) {
        return Ok(());
    }
    Err(GemmError::Shape { rows, columns, found })
}
