//! RMSNorm of the residual stream.
//!
//! The stream is u = x/B, |u| ≤ 1. With c = κ·x, which is u read at another scale, and v = Σ c² + κ²·d·ε in [low, 1]:
//!
//! | step | level of the columns | of the statistic |
//! |---|---|---|
//! | v = Σ c², relinearised and rescaled once | l | l − 1 |
//! | v at the scale a refresh takes | l | l − 2, then refreshed to the statistics' level s |
//! | √d/bound·v^{−1/2}: a polynomial and Newton steps | l | s − levels of the root |
//! | if fewer than are read: v^{−1/2}·√low/4, refreshed | l | l |
//! | × c | l − 1 | |
//!
//! The root is taken at the beginning of a half, where the columns are high, not at its end as in an encoder with norms
//! after its blocks: hence the second refresh, of one vector. ENSI, Algorithm 3, takes 9 levels for the root, a
//! bootstrap, 10 for its inverse and two products on the columns' own levels. There is no mask: padding rows are 0,
//! their v is κ²·d·ε, below `low`, where the root is bounded (see [`crate::ops::norm`]), and 0 times it is 0.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_model::{Norm, StepId, same};

use super::paired::Vectors;
use crate::choices::NormChoice;
use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::norm::{inverse_root, keeps_zeros};
use crate::packing::PackingError;
use crate::slots::Slots;
use crate::tape::functions::SlotFunction;
use crate::tape::levels::{Heights, Outputs};
use crate::tape::norm::{ROOT, largest_root};
use crate::tape::record::Recorder;
use crate::tape::run::computed;
use crate::tape::{Mark, Node, NodeId, Op};

/// The input of a norm alone.
const STREAM: &str = "stream";

/// A norm, and what was chosen for it.
#[derive(Clone, Copy)]
pub(crate) struct RmsNorm<'a> {
    pub at: StepId,
    pub norm: &'a Norm,
    pub choice: &'a NormChoice,
}

impl RmsNorm<'_> {
    /// x̂ divided by the bound of the choice, of columns x/`bound`.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for a LayerNorm or an offset, a range without a fit.
    pub fn record<S: Slots>(&self, t: &mut Recorder, on: &S, x: Vectors, bound: f64) -> Result<NodeId, FheError> {
        let RmsNorm { at, norm, choice } = *self;
        t.at(at);
        let kappa = choice.scale * bound;
        let mut sum = None;
        for vectors in x.blocks(t) {
            let columns = x.single(t, vectors);
            sum = Some(t.square_sum(columns, sum));
        }
        let inverse = self.root(t, on, sum.ok_or(PackingError::Mismatch)?, kappa)?;
        let most = largest_root(norm, choice);
        let inverse = t.read_as(inverse, 1.0 / most);
        t.within(inverse, 1.0);
        t.at(at.part(ROOT));
        let inverse = t.mark(inverse, 1.0);
        t.at(at);
        let factor = (norm.width as f64).sqrt() / choice.bound;
        let inverse = t.read_as(inverse, most * factor * kappa);
        Ok(x.times(t, inverse))
    }

    /// v^{−1/2}, from unfinished sums of the squares of numbers that are read as `factor` times themselves.
    ///
    /// # Errors
    /// As [`RmsNorm::record`].
    pub fn root<S: Slots>(&self, t: &mut Recorder, on: &S, sum: NodeId, factor: f64) -> Result<NodeId, FheError> {
        keeps_zeros(self.at, self.norm)?;
        let v = t.finished(sum);
        let v = t.read_as(v, factor * factor);
        t.within(v, 1.0);
        // The scale of v is above the one that a refresh takes.
        let v = t.scaled(v, vec![1.0]);
        let epsilon = self.choice.scale.powi(2) * self.norm.width as f64 * self.norm.epsilon;
        let v = t.add_numbers(v, vec![epsilon]);
        t.within(v, 1.0);
        let v = t.statistic(v, None, None);
        let root = t.function(SlotFunction::Root(Arc::new(inverse_root(on, self.choice)?)));
        Ok(t.apply(root, v))
    }
}

/// The norm of columns x/B, whose gains are all B: columns x̂/bound, one level below. The statistic is refreshed to
/// `statistics` primes.
///
/// # Errors
/// [`FheError::Unsupported`] for a LayerNorm or an offset; too few levels; where values are visible,
/// [`FheError::Range`] for a statistic outside its range.
pub fn rms_norm<S: Slots>(
    on: &S,
    at: StepId,
    x: Acts<S::Value>,
    norm: &Norm,
    choice: &NormChoice,
    statistics: usize,
) -> Result<Acts<S::Value>, FheError> {
    same(at, "columns", x.width(), norm.width)?;
    let mut t = Recorder::new();
    let columns = Vectors { node: t.input(STREAM, x.width()), paired: false };
    let bound = x.gain.first().copied().unwrap_or(1.0);
    let made = RmsNorm { at, norm, choice }.record(&mut t, on, columns, bound)?;
    t.output(made);
    let limbs = x.columns.first().map_or(0, |v| on.limbs(v));
    let height = |node: &Node, _: usize| match node.op {
        Op::Mark { mark: Mark::Statistic { .. } } => statistics,
        _ => limbs,
    };
    let place = (Heights::Given(&height), Outputs::AtLeast(on.floor()), Vec::new());
    let inputs = BTreeMap::from([(STREAM, x.columns)]);
    Acts::normed(at, computed(on, t.finish(), inputs, place, &mut |_, _| Ok(()))?, norm, choice)
}
