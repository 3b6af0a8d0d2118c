//! What the heads of a layer share: linear maps, levels and their softmaxes.

use std::sync::Arc;

use hushed_ckks::Scale;
use hushed_model::{Attention, Heads, Linear, StepId, same};

use crate::choices::{AttentionChoice, HeadChoice, NormChoice};
use crate::error::FheError;
use crate::ops::activation;
use crate::ops::acts::{Acts, centred_output, reading};
use crate::ops::key_mask::KeyMask;
use crate::ops::levels::{above, below, divisor, scale_of};
use crate::ops::mask::RowsKnown;
use crate::ops::softmax::{Softmax, weight_scale};
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::slots::Slots;
use hushed_lower::LinearMap;

/// An attention block of a run: the model's layer, its calibration, and its placement in the plan.
pub struct AttentionLayer<'a, V> {
    /// The step that plans, counters and progress show.
    pub at: StepId,
    /// Weights and shapes of the model.
    pub block: &'a Attention,
    /// Intervals and degrees of its heads.
    pub choice: &'a AttentionChoice,
    /// The norm after it, whose κ is in the output map.
    pub norm: &'a NormChoice,
    /// The token rows.
    pub rows: &'a RowsKnown<V>,
    /// Baby steps, heads at a time, primes of refreshed sums.
    pub placement: &'a Placement,
}

/// One layer over one batch.
pub struct Run<'a, S: Slots> {
    pub on: &'a S,
    pub layer: &'a AttentionLayer<'a, S::Value>,
    /// dh.
    pub width: usize,
    pub layout: Interleave,
    pub maps: Maps,
    pub keys: KeyMask<'a, S::Value>,
    pub softmaxes: Vec<Option<Softmax>>,
    /// The primes of the columns.
    pub columns: usize,
    pub limbs: Limbs,
}

impl<'a, S: Slots> Run<'a, S> {
    pub fn new(on: &'a S, x: &Acts<S::Value>, layer: &'a AttentionLayer<'a, S::Value>) -> Result<Self, FheError> {
        let AttentionLayer { at, block, choice, .. } = *layer;
        let maps = Maps::new(on, at, (&x.gain, &x.offset), block, layer.norm.scale)?;
        on.at(at.part("rows"));
        let keys = KeyMask::new(on, layer.rows)?;
        let columns = x.columns.first().map_or(on.top(), |v| on.limbs(v));
        let (found, count) = (choice.heads.len(), block.heads.count);
        same(at, "heads of the calibration", found, count)?;
        let mut softmaxes: Vec<Option<Softmax>> = Vec::with_capacity(count);
        for head in &choice.heads {
            let softmax = match head {
                HeadChoice::Previous => None,
                HeadChoice::Softmax { .. } => Some(Softmax::new(on, head, choice)?),
            };
            let number = softmaxes.len();
            softmaxes.push(softmax.map(|softmax| softmax.of_head(number)));
        }
        let any = softmaxes.iter().flatten().next();
        let statistics = layer.placement.statistics;
        let limbs = Limbs::new(on, columns, any, choice.degree, statistics)?;
        Ok(Run {
            on,
            layer,
            width: block.heads.width,
            layout: layer.rows.layout(),
            maps,
            keys,
            softmaxes,
            columns,
            limbs,
        })
    }

    pub fn site(&self, step: &'static str) {
        self.on.at(self.layer.at.part(step));
    }

    /// The number of heads computed at once: their sums share bootstraps.
    pub fn together(&self) -> usize {
        self.layer.placement.heads_together.max(1)
    }

    /// The heads with a softmax, and it.
    pub fn learned(&self) -> Vec<(usize, &Softmax)> {
        let heads = self.softmaxes.iter().enumerate();
        heads.filter_map(|(h, softmax)| Some((h, softmax.as_ref()?))).collect()
    }

    /// The heads with a fixed pattern.
    pub fn fixed(&self) -> Vec<usize> {
        let heads = self.softmaxes.iter().enumerate();
        heads.filter_map(|(h, softmax)| softmax.is_none().then_some(h)).collect()
    }

    /// The map of the queries and keys of head `h`, and the scale of its results.
    pub fn query_key_map(&self, h: usize, softmax: &Softmax) -> Result<(LinearMap, Scale), FheError> {
        let on = self.on;
        let map = self.maps.query_key(&self.layer.block.heads, h, softmax);
        let limbs = below(on, self.columns, 1)?;
        // Arguments are at twice the divisor of their first rescale; taking real parts already doubles the scale.
        let wanted = divisor(on, below(on, limbs, 1)?)? * divisor(on, limbs)?;
        Ok((map, scale_of(wanted.sqrt())?))
    }

    /// The scale of V that brings P·V to the default scale.
    pub fn value_scale(&self, heads: &[(usize, &Softmax)]) -> Result<Scale, FheError> {
        let on = self.on;
        let wanted = on.default_scale().value() * divisor(on, self.limbs.values)?;
        let softmaxes = heads.iter().map(|&(_, softmax)| softmax);
        scale_of(wanted / weight_scale(on, softmaxes)?.value())
    }
}

/// The primes of a layer's vectors.
pub struct Limbs {
    /// Of P and V when they are multiplied.
    pub values: usize,
    /// Of the columns that the output map reads.
    pub heads: usize,
}

impl Limbs {
    fn new<S: Slots>(
        on: &S,
        columns: usize,
        softmax: Option<&Softmax>,
        degree: usize,
        statistics: usize,
    ) -> Result<Limbs, FheError> {
        let diagonals = below(on, columns, 2)?;
        let Some(softmax) = softmax else {
            // Only fixed patterns: the level where exponentials would end.
            let heads = below(on, diagonals, activation::levels(degree))?;
            let values = above(on, heads)?;
            return Ok(Limbs { values, heads });
        };
        let p = below(on, diagonals, softmax.exponential_levels())?;
        let inverse = below(on, statistics, softmax.first().levels())?;
        let values = below(on, p.min(inverse), 2)?;
        let attended = below(on, values, 1)?;
        let inverse = below(on, statistics, softmax.second().levels())?;
        let heads = below(on, attended.min(inverse), 1)?;
        Ok(Limbs { values, heads })
    }
}

/// The maps of a layer, with gains and offsets folded in.
pub struct Maps {
    pub query: Arc<LinearMap>,
    /// Without its bias, which changes no softmax.
    pub key: Arc<LinearMap>,
    /// Without its bias, which is in the output's bias.
    pub value: Arc<LinearMap>,
    pub output: Arc<LinearMap>,
}

impl Maps {
    /// The maps for columns with these gains and offsets.
    pub fn new<S: Slots>(
        on: &S,
        at: StepId,
        columns: (&[f64], &[f64]),
        layer: &Attention,
        kappa: f64,
    ) -> Result<Maps, FheError> {
        let inner = layer.heads.count * layer.heads.width;
        let folded = |part: &'static str, w: &Linear| reading(on, at.part(part), w, columns);
        let unbiased =
            |part: &'static str, w: &Linear| on.map(at.part(part), || Ok(LinearMap { bias: None, ..folded(part, w)? }));
        let query = on.map(at.part("query"), || folded("query", &layer.query))?;
        let key = unbiased("key", &layer.key)?;
        let value = unbiased("value", &layer.value)?;
        let output = on.map(at.part("output"), || {
            let through = folded("value", &layer.value)?.bias.unwrap_or_default();
            centred_output(on, at.part("output"), &layer.output, kappa, &through)
        })?;
        let at = at.part("output");
        for map in [&query, &key, &value] {
            same(at, "columns of all heads", map.rows, inner)?;
        }
        same(at, "columns of all heads", layer.output.inputs, inner)?;
        Ok(Maps { query, key, value, output })
    }

    /// The map of the queries and keys of head `h`, 1/√dh and the argument of the exponential folded in.
    pub fn query_key(&self, heads: &Heads, h: usize, softmax: &Softmax) -> LinearMap {
        let (factor, _) = softmax.argument();
        let range = h * heads.width..(h + 1) * heads.width;
        // Each takes the square root of the factor, so that one bound holds for both.
        let half = (factor * heads.scale.abs()).sqrt();
        let query = self.query.rows(range.clone()).times(half.copysign(heads.scale));
        LinearMap::stacked(vec![query, self.key.rows(range).times(half)]).bounded()
    }

    /// The map of the values of some heads.
    pub fn values(&self, width: usize, heads: &[usize]) -> LinearMap {
        let maps = heads.iter().map(|&h| self.value.rows(h * width..(h + 1) * width));
        LinearMap::stacked(maps.collect()).bounded()
    }
}
