//! What key switching prepares once a shape, kept with the parameters.

use std::collections::HashMap;
use std::hash::Hash;
use std::ops::Range;
use std::sync::{Arc, PoisonError, RwLock};

use hushed_math::{BaseConverter, MathError};

use crate::params::RlweParams;

/// Targets converted at a time: enough for the sources, read once a tile, not to be what is waited for, and few enough
/// for the tile to stay in the second-level cache until its transforms.
pub(crate) const TILE: usize = 4;

/// The conversions of all shapes used so far.
#[derive(Default)]
pub(crate) struct Tables {
    up: Cache<(Range<usize>, usize, usize), Lift>,
    down: Cache<(usize, usize, usize), Down>,
}

/// From the primes of one digit to all others of an extended ciphertext, or from the dropped primes to those that stay.
pub(crate) struct Lift {
    /// Basis indices of the targets, a tile at a time.
    pub(crate) tiles: Vec<(Vec<usize>, BaseConverter)>,
}

/// Division by some primes.
pub(crate) struct Down {
    pub(crate) lift: Lift,
    /// −1 over the product of the dropped primes, for each prime that stays.
    pub(crate) negated_inverses: Vec<u64>,
}

impl Tables {
    /// For the digit of the primes `digit` of a ciphertext of `limbs` primes, extended by `special` special primes.
    pub(crate) fn up(
        &self,
        params: &RlweParams,
        digit: &Range<usize>,
        limbs: usize,
        special: usize,
    ) -> Result<Arc<Lift>, MathError> {
        self.up.get((digit.clone(), limbs, special), || {
            let from: Vec<usize> = digit.clone().collect();
            let mut to = params.extended_ids_with(limbs, special);
            to.retain(|id| !digit.contains(id));
            Lift::new(params, &from, &to)
        })
    }

    /// For dividing by the first `special` special primes and the last `rescaled` of `limbs` primes.
    pub(crate) fn down(
        &self,
        params: &RlweParams,
        limbs: usize,
        special: usize,
        rescaled: usize,
    ) -> Result<Arc<Down>, MathError> {
        self.down.get((limbs, special, rescaled), || {
            let stay = limbs - rescaled;
            let mut from = params.extended_ids_with(limbs, special);
            let to: Vec<usize> = from.drain(..stay).collect();
            let basis = params.basis();
            let negated_inverse = |&id: &usize| {
                let q = basis.modulus(id);
                let product = from.iter().fold(1, |product, &p| {
                    q.mul(product, q.reduce(basis.modulus(p).value()))
                });
                // By Fermat: the primes are distinct.
                q.neg(q.pow(product, q.value() - 2))
            };
            Ok(Down {
                lift: Lift::new(params, &from, &to)?,
                negated_inverses: to.iter().map(negated_inverse).collect(),
            })
        })
    }
}

impl Lift {
    fn new(params: &RlweParams, from: &[usize], to: &[usize]) -> Result<Self, MathError> {
        let tile =
            |ids: &[usize]| Ok((ids.to_vec(), BaseConverter::new(params.basis(), from, ids)?));
        let tiles = to
            .chunks(TILE)
            .map(tile)
            .collect::<Result<_, MathError>>()?;
        Ok(Self { tiles })
    }
}

struct Cache<K, V>(RwLock<HashMap<K, Arc<V>>>);

impl<K, V> Default for Cache<K, V> {
    fn default() -> Self {
        Self(RwLock::default())
    }
}

impl<K: Eq + Hash, V> Cache<K, V> {
    fn get(
        &self,
        key: K,
        make: impl FnOnce() -> Result<V, MathError>,
    ) -> Result<Arc<V>, MathError> {
        // A panic while the lock is held leaves the map as it was.
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
