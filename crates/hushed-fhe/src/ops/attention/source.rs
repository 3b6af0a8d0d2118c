//! Queries, keys and values of the heads: projected from the columns when a head needs them, or all at once and
//! spilled.

use hushed_ckks::Scale;

use super::layer::Run;
use crate::error::FheError;
use crate::ops::levels::above;
use crate::ops::softmax::Softmax;
use crate::packing::{Columns, PackingError, Pairs};
use crate::slots::Slots;

/// Rows of the query and key maps applied at a time: an even number, as their results are paired.
pub(crate) const PROJECTED: usize = 32;

/// The source of queries, keys and values.
pub enum Source<'a, S: Slots> {
    /// The columns: queries, keys and values are projected when a head needs them.
    Columns(&'a [S::Value]),
    /// Projected before the heads and spilled in pairs.
    Stored {
        /// Queries, then keys, in the blocks they were projected in.
        query_key: Vec<Vec<S::Stored>>,
        values: Vec<Option<S::Stored>>,
    },
}

impl<S: Slots> Source<'_, S> {
    /// Projects and spills queries, keys and values of all heads, in the order and groups of [`Run::all`].
    pub fn stored(run: &Run<'_, S>, x: &[S::Value]) -> Result<Self, FheError> {
        let count = run.softmaxes.len();
        let mut query_key: Vec<Vec<S::Stored>> = (0..count).map(|_| Vec::new()).collect();
        let mut values: Vec<Option<S::Stored>> = (0..count).map(|_| None).collect();
        let learned = run.learned();
        for &(h, softmax) in &learned {
            let mut blocks = Vec::new();
            run.queries_and_keys(h, softmax, x, |_, pairs| {
                blocks.push(run.on.store(pairs)?);
                Ok(())
            })?;
            if let Some(place) = query_key.get_mut(h) {
                *place = blocks;
            }
        }
        let together = run.together();
        let unit = run.on.default_scale();
        let mut put = |heads: &[usize], limbs: usize, target: Scale| -> Result<(), FheError> {
            let made = run.project(heads, x, limbs, target)?;
            for (&h, made) in heads.iter().zip(made) {
                if let Some(value) = values.get_mut(h) {
                    *value = Some(run.on.store(made.into_vectors())?);
                }
            }
            Ok(())
        };
        for heads in learned.chunks(together) {
            let target = run.value_scale(heads)?;
            let heads: Vec<usize> = heads.iter().map(|&(h, _)| h).collect();
            put(&heads, run.limbs.values, target)?;
        }
        for heads in run.fixed().chunks(together) {
            put(heads, above(run.on, run.limbs.heads)?, unit)?;
        }
        Ok(Source::Stored { query_key, values })
    }

    /// Q and K of head `h`, in pairs.
    pub fn query_key(
        &mut self,
        run: &Run<'_, S>,
        h: usize,
        softmax: &Softmax,
    ) -> Result<[Pairs<S::Value>; 2], FheError> {
        let (mut q, mut k) = (Vec::new(), Vec::new());
        match self {
            Source::Columns(x) => run.queries_and_keys(h, softmax, x, |side, pairs| {
                match side {
                    Side::Queries => q.extend(pairs),
                    Side::Keys => k.extend(pairs),
                }
                Ok(())
            })?,
            Source::Stored { query_key, .. } => {
                run.site("query_key");
                let blocks = query_key.get_mut(h).map(std::mem::take).unwrap_or_default();
                for block in blocks {
                    q.extend(run.on.load(block)?);
                }
                k = q.split_off(q.len() / 2);
            }
        }
        Ok([q, k].map(|x| Pairs::from_vectors(run.layout, x, run.width)))
    }

    /// V of some heads: projected from the columns together, or read from disk.
    pub fn values(
        &mut self,
        run: &Run<'_, S>,
        heads: &[usize],
        limbs: usize,
        target: Scale,
    ) -> Result<Values<'_, S>, FheError> {
        Ok(match self {
            Source::Columns(x) => Values::Made(run.project(heads, x, limbs, target)?.into_iter()),
            Source::Stored { values, .. } => Values::Stored(values),
        })
    }
}

/// V of a group of heads.
pub enum Values<'a, S: Slots> {
    Made(std::vec::IntoIter<Pairs<S::Value>>),
    Stored(&'a mut [Option<S::Stored>]),
}

impl<S: Slots> Values<'_, S> {
    /// V of head `h`, the next of its group.
    pub fn next(&mut self, run: &Run<'_, S>, h: usize) -> Result<Pairs<S::Value>, FheError> {
        let found = match self {
            Values::Made(values) => values.next(),
            Values::Stored(values) => {
                run.site("value");
                let stored = values.get_mut(h).and_then(Option::take);
                let pairs = stored.map(|v| run.on.load(v)).transpose()?;
                pairs.map(|v| Pairs::from_vectors(run.layout, v, run.width))
            }
        };
        Ok(found.ok_or(PackingError::Mismatch)?)
    }
}

impl<S: Slots> Run<'_, S> {
    /// Projects the queries of head `h` in pairs, then its keys in conjugate pairs, [`PROJECTED`] columns at a time.
    fn queries_and_keys(
        &self,
        h: usize,
        softmax: &Softmax,
        x: &[S::Value],
        mut put: impl FnMut(Side, Vec<S::Value>) -> Result<(), FheError>,
    ) -> Result<(), FheError> {
        let (map, scale) = self.query_key_map(h, softmax)?;
        let (queries, keys) = (0..self.width, self.width..map.rows);
        for (range, side) in [(queries, Side::Queries), (keys, Side::Keys)] {
            for from in range.clone().step_by(PROJECTED) {
                let to = range.end.min(from + PROJECTED);
                self.site("query_key");
                let made = self.on.linear(&map.rows(from..to), x, scale)?;
                put(side, self.paired(made, side)?.into_vectors())?;
            }
        }
        Ok(())
    }

    /// Projects V of some heads, without biases, with `limbs` primes at scale `target`.
    fn project(
        &self,
        heads: &[usize],
        x: &[S::Value],
        limbs: usize,
        target: Scale,
    ) -> Result<Vec<Pairs<S::Value>>, FheError> {
        let (on, dh) = (self.on, self.width);
        self.site("value");
        let map = self.maps.values(dh, heads);
        let mut all = on.linear_at(&map, x, (above(on, limbs)?, target))?.into_iter();
        let head = |_| self.paired(all.by_ref().take(dh).collect(), Side::Queries);
        heads.iter().map(head).collect()
    }

    /// Packs the columns of a head in pairs.
    fn paired(&self, columns: Vec<S::Value>, side: Side) -> Result<Pairs<S::Value>, FheError> {
        let columns = Columns::from_vectors(self.layout, columns);
        match side {
            Side::Queries => Pairs::new(self.on, columns),
            Side::Keys => Pairs::conjugate(self.on, columns),
        }
    }
}

/// The side of a product that pairs are for.
#[derive(Clone, Copy)]
enum Side {
    /// The left side, and values.
    Queries,
    /// The right side.
    Keys,
}
