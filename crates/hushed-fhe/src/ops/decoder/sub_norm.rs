//! The norm inside a block of BitNet: an RMSNorm of the inputs of the block's last map, applied after the map.
//!
//! With v = Σ (κ·z)² + κ²·d·ε over the d columns z that the map W reads, and gains γ,
//!
//! ```text
//! W·(γ∘z)/√(mean z² + ε) / bound = v^{−1/2} · (W∘γ)·z / bound',   bound' = bound/(κ·√d)
//! ```
//!
//! so the root multiplies the results, not the columns: one level, whichever are more. Squares are added up as the
//! columns come, head by head or block by block; v loses two levels, is refreshed, and its root comes in above the
//! results. As v ≤ 1, (W∘γ)·z/bound' is within 1. The map stays ternary if all gains are 1.

use std::borrow::Cow;
use std::sync::Arc;

use hushed_model::{Linear, Matrix, Norm, StepId, same};
use rayon::prelude::*;

use super::rms::{arrives, root, squares, statistic};
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::after::{After, keeps_ternary};
use crate::ops::levels::{below, divisor, scale_of};
use crate::ops::norm::{keeps_zeros, product};
use crate::slots::Slots;

/// A norm inside a block.
#[derive(Clone, Copy)]
pub struct SubNorm<'a> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// The model's norm.
    pub norm: &'a Norm,
    /// Its calibration.
    pub choice: &'a NormChoice,
    /// The primes of its refreshed statistic.
    pub statistics: usize,
}

impl<'a> SubNorm<'a> {
    /// The reader of the map's results, and the map with the gains in it.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a LayerNorm or an offset; a width other than the map's.
    pub fn last<'b>(&self, after: After<'b>, w: &'b Linear) -> Result<(After<'b>, Cow<'b, Linear>), FheError> {
        let norm = self.norm;
        keeps_zeros(self.at, norm)?;
        same(self.at, "columns", w.inputs, norm.width)?;
        let factor = self.choice.scale * (norm.width as f64).sqrt();
        let after = match after {
            After::Sum(bound) => After::Sum(bound / factor),
            norm @ After::Norm(_) => norm,
        };
        let (Some(gain), Some(weights)) = (&norm.gain, &w.weights) else {
            return Ok((after, Cow::Borrowed(w)));
        };
        if keeps_ternary(norm) {
            return Ok((after, Cow::Borrowed(w)));
        }
        let rows = weights.data().chunks_exact(w.inputs.max(1));
        let gained = rows.flat_map(|row| row.iter().zip(gain.iter()).map(|(w, g)| w * g));
        let gained = Matrix::new(w.outputs, w.inputs, gained.collect());
        let gained = Linear { weights: gained.map(Arc::new), stored: None, ternary: false, ..w.clone() };
        Ok((after, Cow::Owned(gained)))
    }

    /// Adds the squares of some of the map's input columns.
    ///
    /// # Errors
    /// Columns of different scales or primes.
    pub fn add<S: Slots>(&self, on: &S, sum: Option<S::Sum>, z: &[S::Value]) -> Result<S::Sum, FheError> {
        let c = z.iter().map(|z| on.read_as(z.clone(), self.choice.scale));
        squares(on, sum, &c.collect::<Result<Vec<_>, _>>()?)
    }

    /// The primes of the results, if the map's have `limbs`.
    ///
    /// # Errors
    /// Too few levels.
    pub fn limbs<S: Slots>(&self, on: &S, limbs: usize) -> Result<usize, FheError> {
        let root = arrives(on, self.choice, self.statistics)?;
        below(on, limbs.min(root), 1)
    }

    /// The map's results times the root, at the default scale.
    ///
    /// # Errors
    /// No squares, too few levels; where values are visible, [`FheError::Range`] for a statistic outside its range.
    pub fn finish<S: Slots>(&self, on: &S, sum: Option<S::Sum>, y: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let (Some(sum), Some(first)) = (sum, y.first()) else {
            return Ok(y);
        };
        on.at(self.at);
        let (choice, statistics) = (self.choice, self.statistics);
        let v = statistic(on, self.at, sum, self.norm, choice, statistics)?;
        let limbs = on.limbs(first).min(arrives(on, choice, statistics)?);
        let wide = on.default_scale().value() * divisor(on, limbs)?;
        let inverse = root(on, &v, choice, scale_of(wide / on.scale(first).value())?)?;
        let inverse = on.drop_to(&inverse, limbs)?;
        let times = |y: S::Value| {
            let y = product(on, &on.drop_to(&y, limbs)?, &inverse)?;
            Ok(on.within(y, 1.0))
        };
        y.into_par_iter().map(times).collect()
    }
}
