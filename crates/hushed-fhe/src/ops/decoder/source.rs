//! Queries, keys and values of a decoder's heads: projected from the columns when a head needs them, or all at once and
//! spilled.

use std::collections::BTreeMap;

use super::attention::Run;
use crate::error::FheError;
use crate::packing::PackingError;
use crate::slots::Slots;

/// What is projected from the columns, in pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// Queries of a head.
    Query(usize),
    /// Conjugate keys, of a head of keys.
    Key(usize),
    /// Values of the same.
    Value(usize),
}

impl Part {
    /// The part of the attention's step that plans and counters name.
    pub fn site(self) -> &'static str {
        match self {
            Part::Query(_) | Part::Key(_) => "query_key",
            Part::Value(_) => "value",
        }
    }
}

/// Where queries, keys and values come from.
pub(super) enum Source<'a, S: Slots> {
    /// The columns: each is projected when its head needs it.
    Columns(&'a [S::Value]),
    /// Projected before the heads.
    Spilled(BTreeMap<Part, S::Stored>),
}

impl<S: Slots> Source<'_, S> {
    /// Queries, keys and values of all heads, spilled.
    pub fn spilled(run: &Run<'_, S>, x: &[S::Value]) -> Result<Self, FheError> {
        let heads = &run.layer.block.heads;
        let queries = (0..heads.count).map(Part::Query);
        let keys = (0..heads.keys).flat_map(|group| [Part::Key(group), Part::Value(group)]);
        let store = |part| Ok((part, run.on.store(run.project(part, x)?)?));
        let parts = queries.chain(keys).map(store);
        Ok(Source::Spilled(parts.collect::<Result<_, FheError>>()?))
    }

    /// Each part can be taken once.
    pub fn take(&mut self, run: &Run<'_, S>, part: Part) -> Result<Vec<S::Value>, FheError> {
        match self {
            Source::Columns(x) => run.project(part, x),
            Source::Spilled(parts) => {
                run.site(part.site());
                let stored = parts.remove(&part).ok_or(PackingError::Mismatch)?;
                run.on.load(stored)
            }
        }
    }
}
