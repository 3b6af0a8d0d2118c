//! What key switching prepares once per shape; kept with the parameters.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use hushed_math::{BaseConverter, MathError, RnsBasis};

/// The conversions for all shapes used so far.
#[derive(Default)]
pub(crate) struct Tables {
    pub(super) up: Cache<(Range<usize>, usize, usize, usize), Lift>,
    pub(super) down: Cache<(usize, usize, usize, usize), Down>,
}

/// Converts from some primes to others, one tile of targets at a time.
pub(crate) struct Lift {
    /// Each tile's conversion to those of its primes that are not sources; `None` if there are none.
    pub(crate) tiles: Vec<Option<BaseConverter>>,
}

/// Division by some of the primes.
pub(crate) struct Down {
    pub(crate) lift: Lift,
    /// 1 over the product of the dropped primes, for each remaining prime.
    pub(crate) inverses: Vec<u64>,
}

impl Lift {
    pub(super) fn new(basis: &Arc<RnsBasis>, from: &[usize], tiles: Vec<Vec<usize>>) -> Result<Self, MathError> {
        let converter = |mut ids: Vec<usize>| {
            ids.retain(|id| !from.contains(id));
            let made = BaseConverter::new(basis, from, &ids);
            (!ids.is_empty()).then_some(made).transpose()
        };
        let tiles = tiles.into_iter().map(converter).collect::<Result<_, _>>()?;
        Ok(Self { tiles })
    }

    /// Computes the conversion terms in place; see [`BaseConverter::prepare`]. Strips may go to several threads.
    pub(super) fn prepare(&self, terms: &mut [&mut [u64]]) {
        if let Some(converter) = self.tiles.iter().flatten().next() {
            converter.prepare(terms);
        }
    }
}

pub(super) struct Cache<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    /// The value for a key, made at its first use.
    pub(super) fn get(&self, key: K, make: impl FnOnce() -> Result<V, MathError>) -> Result<Arc<V>, MathError> {
        // A panic while the lock is held leaves the map unchanged.
        let known = self.0.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(value) = known.get(&key) {
            return Ok(value.clone());
        }
        drop(known);
        let made = Arc::new(make()?);
        let mut known = self.0.write().unwrap_or_else(PoisonError::into_inner);
        Ok(known.entry(key).or_insert(made).clone())
    }
}
