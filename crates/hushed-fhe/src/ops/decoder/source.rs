//! Queries, keys and values of a decoder's heads: projected from the columns when a head needs them, or all at once and
//! spilled.

use std::collections::BTreeMap;

use hushed_model::Heads;

use crate::error::FheError;
use crate::ops::paired::Inputs;
use crate::packing::PackingError;
use crate::slots::Slots;

/// A projection of the columns, in pairs.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Part {
    /// The queries of a head.
    Query(usize),
    /// The conjugate keys of a key head.
    Key(usize),
    /// The values of a key head.
    Value(usize),
}

impl Part {
    /// The part of the attention step, as named by plans and counters.
    pub fn site(self) -> &'static str {
        match self {
            Part::Query(_) | Part::Key(_) => "query_key",
            Part::Value(_) => "value",
        }
    }
}

/// The source of queries, keys and values.
pub(super) enum Source<'a, S: Slots> {
    /// The columns: each part is projected when a head needs it.
    Columns(Inputs<'a, S::Value>),
    /// Projected before the heads.
    Spilled(BTreeMap<Part, S::Stored>),
}

impl<S: Slots> Source<'_, S> {
    /// Projects and spills the queries, keys and values of all heads.
    pub fn spilled(
        on: &S,
        heads: &Heads,
        project: impl Fn(Part) -> Result<Vec<S::Value>, FheError>,
    ) -> Result<Self, FheError> {
        let queries = (0..heads.count).map(Part::Query);
        let keys = (0..heads.keys).map(Part::Key);
        let values = (0..heads.keys).map(Part::Value);
        let mut stored = BTreeMap::new();
        for part in queries.chain(keys).chain(values) {
            stored.insert(part, on.store(project(part)?)?);
        }
        Ok(Source::Spilled(stored))
    }

    /// Takes a part. A spilled part can be taken once.
    pub fn take(
        &mut self,
        on: &S,
        part: Part,
        project: impl FnOnce(Inputs<'_, S::Value>) -> Result<Vec<S::Value>, FheError>,
    ) -> Result<Vec<S::Value>, FheError> {
        match self {
            Source::Columns(x) => project(*x),
            Source::Spilled(parts) => on.load(parts.remove(&part).ok_or(PackingError::Mismatch)?),
        }
    }
}
