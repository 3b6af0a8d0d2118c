//! Which of a decoder's ternary layers are computed with weights −1, 0 and 1.

use hushed_model::{Attention, FeedForward, Linear, Norm};
use serde::Serialize;

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
#[must_use]
pub fn keeps_ternary(norm: &Norm) -> bool {
    let gain = norm.gain.iter().flat_map(|gain| gain.iter());
    gain.into_iter().all(|&g| g == 1.0)
}
