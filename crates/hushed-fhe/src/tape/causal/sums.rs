//! The last map of a block, scalar or ternary, and BitNet's norm of its operands, which is applied after it.
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
use std::ops::Range;
use std::sync::Arc;

use hushed_lower::LinearMap;
use hushed_model::{Attention, FeedForward, Linear, Matrix, Norm, StepId, same};
use serde::Serialize;

use super::norm::RmsNorm;
use crate::error::FheError;
use crate::packing::PackingError;
use crate::slots::Slots;
use crate::tape::NodeId;
use crate::tape::record::Recorder;

/// How a layer that is declared ternary is computed, and if not with weights −1, 0 and 1, why not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Form {
    /// With weights −1, 0 and 1: no level.
    Ternary,
    /// With scalar weights: the gains of the norm whose columns it reads are folded in.
    NormBefore,
    /// With scalar weights: the norm inside the block has gains other than 1.
    SubNorm,
    /// With scalar weights: its operands come at a given scale.
    GivenScale,
    /// With diagonals of packed rows.
    PackedRows,
}

impl Form {
    /// How a layer that reads the columns of a norm is computed; `None` if it is not declared ternary.
    #[must_use]
    pub fn first(w: &Linear) -> Option<Form> {
        w.ternary.then_some(Form::NormBefore)
    }

    /// How the last map of a block is computed, after the norm inside the block, if any; `None` if it is not declared
    /// ternary. `free` says whether the scale of its operands can be chosen.
    #[must_use]
    pub fn last(w: &Linear, norm: Option<&Norm>, free: bool) -> Option<Form> {
        let form = match free {
            false => Form::GivenScale,
            true if !norm.is_none_or(keeps_ternary) => Form::SubNorm,
            true => Form::Ternary,
        };
        w.ternary.then_some(form)
    }

    /// The last map of an attention block.
    #[must_use]
    pub fn output(a: &Attention) -> Option<Form> {
        Form::last(&a.output, a.sub_norm.as_ref(), true)
    }

    /// The last map of a feed-forward block: only the products of a gate come at a scale that can be chosen.
    #[must_use]
    pub fn down(f: &FeedForward) -> Option<Form> {
        Form::last(&f.down, f.sub_norm.as_ref(), f.gate.is_some())
    }

    /// The layers of an attention block, by part.
    #[must_use]
    pub fn of_attention(a: &Attention) -> [(&'static str, Option<Form>); 4] {
        let first = |part, w| (part, Form::first(w));
        [first("query", &a.query), first("key", &a.key), first("value", &a.value), ("output", Form::output(a))]
    }

    /// The layers of a feed-forward block, by part.
    #[must_use]
    pub fn of_feed_forward(f: &FeedForward) -> [(&'static str, Option<Form>); 3] {
        [("gate", f.gate.as_ref().and_then(Form::first)), ("up", Form::first(&f.up)), ("down", Form::down(f))]
    }
}

/// Whether the map after a norm inside a block may stay ternary.
fn keeps_ternary(norm: &Norm) -> bool {
    let gain = norm.gain.iter().flat_map(|gain| gain.iter());
    gain.into_iter().all(|&g| g == 1.0)
}

/// The last map of a block.
pub(crate) struct Last {
    pub map: Arc<LinearMap>,
    /// Of weights −b, 0 and b: the results are read as this factor times themselves. Their signs are multiplied, at no
    /// level.
    ternary: Option<f64>,
}

impl Last {
    /// With everything folded in.
    pub fn scalar(map: Arc<LinearMap>) -> Last {
        Last { map, ternary: None }
    }

    /// `w` without its bias, divided by `bound`, for operands z that `norm` divides by their root mean square.
    ///
    /// # Errors
    /// Layers without numbers; a norm that shifts rows, or of another width.
    pub fn divided<S: Slots>(
        on: &S,
        at: StepId,
        w: &Linear,
        (mut bound, norm): (f64, Option<&RmsNorm<'_>>),
        form: Option<Form>,
    ) -> Result<Last, FheError> {
        if let Some(norm) = norm {
            same(norm.at, "columns", w.inputs, norm.norm.width)?;
            bound /= norm.choice.scale * (norm.norm.width as f64).sqrt();
        }
        let ternary = form == Some(Form::Ternary);
        let map = on.map(at, || {
            if on.only_shapes() {
                let bound = if ternary { bound } else { 1.0 };
                return Ok(LinearMap { bound, bias: None, ..LinearMap::shape(w.outputs, w.inputs) });
            }
            let w = norm.map_or(Cow::Borrowed(w), |norm| gained(norm, w));
            let map = LinearMap { bias: None, ..LinearMap::of(at, &w)? };
            if !ternary {
                return Ok(map.times(1.0 / bound).bounded());
            }
            let size = map.weights.iter().fold(0.0_f64, |s, w| s.max(w.abs()));
            // A layer of zeros. Weights of other sizes are refused when they are added.
            Ok(LinearMap { bound: if size > 0.0 { size } else { bound }, ..map })
        })?;
        let ternary = ternary.then_some(map.bound / bound);
        Ok(Last { map, ternary })
    }
}

/// The layer with the gains of the norm before it.
fn gained<'w>(norm: &RmsNorm<'_>, w: &'w Linear) -> Cow<'w, Linear> {
    let (Some(gain), Some(weights), false) = (&norm.norm.gain, &w.weights, keeps_ternary(norm.norm)) else {
        return Cow::Borrowed(w);
    };
    let rows = weights.data().chunks_exact(w.inputs.max(1));
    let gained = rows.flat_map(|row| row.iter().zip(gain.iter()).map(|(w, g)| w * g));
    let gained = Matrix::new(w.outputs, w.inputs, gained.collect());
    Cow::Owned(Linear { weights: gained.map(Arc::new), stored: None, ternary: false, ..w.clone() })
}

/// The sums of a last map, some of its operands at a time.
pub(crate) struct Sums<'a> {
    map: usize,
    ternary: Option<f64>,
    norm: Option<RmsNorm<'a>>,
    partial: Option<NodeId>,
    squares: Option<NodeId>,
}

impl<'a> Sums<'a> {
    pub fn new(t: &mut Recorder, last: Last, norm: Option<RmsNorm<'a>>) -> Sums<'a> {
        Sums { map: t.map(last.map), ternary: last.ternary, norm, partial: None, squares: None }
    }

    /// Adds the products of some operands.
    pub fn add(&mut self, t: &mut Recorder, columns: Range<usize>, x: NodeId) {
        if self.norm.is_some() {
            self.squares = Some(t.square_sum(x, self.squares));
        }
        self.partial = Some(match self.ternary {
            None => t.linear_sum(self.map, columns, x, self.partial),
            Some(_) => t.ternary_sum(self.map, columns, x, self.partial),
        });
    }

    /// The results.
    ///
    /// # Errors
    /// No operands; a norm that shifts rows, a range without a fit.
    pub fn finish<S: Slots>(self, t: &mut Recorder, on: &S) -> Result<NodeId, FheError> {
        let partial = self.partial.ok_or(PackingError::Mismatch)?;
        let y = match self.ternary {
            None => t.finished(partial),
            Some(factor) => {
                let y = t.ternary_finished(partial);
                t.read_as(y, factor)
            }
        };
        let (Some(norm), Some(squares)) = (self.norm, self.squares) else {
            return Ok(y);
        };
        t.at(norm.at);
        let root = norm.root(t, on, squares, norm.choice.scale)?;
        let y = t.mul(y, root);
        Ok(t.within(y, 1.0))
    }
}
