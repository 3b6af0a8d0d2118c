//! The evaluation keys that a computation needs.

use std::collections::{BTreeMap, BTreeSet};

use super::gadget::Gadget;
use super::key_use::KeyUse;
use crate::error::RlweError;
use crate::params::RlweParams;

/// One key: its use and its gadget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpec {
    /// What it is for.
    pub key: KeyUse,
    /// The most primes of the ciphertexts it serves.
    pub limbs: usize,
    /// The number of special primes.
    pub special: usize,
}

/// A set of keys to make, in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KeySpecs {
    keys: BTreeSet<KeySpec>,
}

impl KeySpecs {
    /// No keys.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a relinearisation key.
    pub fn relin(&mut self, limbs: usize, special: usize) -> &mut Self {
        self.insert(KeyUse::Relin, limbs, special)
    }

    /// Adds a key for X → X^`element`.
    pub fn galois(&mut self, element: usize, limbs: usize, special: usize) -> &mut Self {
        self.insert(KeyUse::Galois(element), limbs, special)
    }

    /// Adds the two keys of bootstrapping's ephemeral sparse secret: to it modulo q_0·p_0, from it with this gadget.
    pub fn encapsulation(&mut self, limbs: usize, special: usize) -> &mut Self {
        self.insert(KeyUse::ToSparse, 1, 1);
        self.insert(KeyUse::FromSparse, limbs, special)
    }

    /// Adds a key, unless it is already there.
    pub fn insert(&mut self, key: KeyUse, limbs: usize, special: usize) -> &mut Self {
        self.keys.insert(KeySpec { key, limbs, special });
        self
    }

    /// Adds all keys of others.
    pub fn merge(&mut self, other: &Self) -> &mut Self {
        self.keys.extend(&other.keys);
        self
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &KeySpec> {
        self.keys.iter()
    }

    /// The number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are no keys.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of all keys in memory, without expanding the uniform halves.
    ///
    /// # Errors
    /// As [`KeySpecs::gadgets`].
    pub fn memory_bytes(&self, params: &RlweParams) -> Result<usize, RlweError> {
        let words = |g: &Gadget| g.digits().len() * (g.limbs() + g.special()) * params.n();
        Ok(self.gadgets(params)?.iter().map(|g| 8 * words(g)).sum())
    }

    /// Checks all of them and returns the gadget of each key, in order.
    ///
    /// # Errors
    /// [`RlweError::NotAGaloisElement`]. [`RlweError::Encapsulation`] if only one direction of the sparse secret's keys
    /// is there, or the key to it is for more than q_0·p_0. [`RlweError::SparseModulus`] if q_0·p_0 is too large for it
    /// at this degree. Otherwise as [`Gadget::new`].
    pub fn gadgets(&self, params: &RlweParams) -> Result<Vec<Gadget>, RlweError> {
        let (mut to_sparse, mut from_sparse) = (false, false);
        for spec in &self.keys {
            match spec.key {
                KeyUse::Galois(element) | KeyUse::Raised(element) if element % 2 == 0 || element >= 2 * params.n() => {
                    let n = params.n();
                    return Err(RlweError::NotAGaloisElement { element, n });
                }
                KeyUse::ToSparse if (spec.limbs, spec.special) != (1, 1) => {
                    return Err(RlweError::Encapsulation);
                }
                KeyUse::ToSparse => {
                    params.check_sparse()?;
                    to_sparse = true;
                }
                KeyUse::FromSparse | KeyUse::Raised(_) => from_sparse = true,
                KeyUse::Galois(_) | KeyUse::Relin => {}
            }
        }
        if to_sparse != from_sparse {
            return Err(RlweError::Encapsulation);
        }
        // Made once per shape; there are few shapes whatever the number of keys, which may come from outside.
        let gadgets = self
            .shapes()
            .into_iter()
            .map(|shape @ (raised, limbs, special)| {
                let make = if raised { Gadget::raised } else { Gadget::new };
                Ok((shape, make(params, limbs, special)?))
            })
            .collect::<Result<BTreeMap<_, _>, RlweError>>()?;
        let found = self.keys.iter().filter_map(|spec| gadgets.get(&shape(spec)));
        Ok(found.cloned().collect())
    }

    /// The distinct gadgets that the keys need, in the form of [`shape`].
    fn shapes(&self) -> BTreeSet<(bool, usize, usize)> {
        self.keys.iter().map(shape).collect()
    }
}

/// Whether the key is raised, its primes and its special primes.
fn shape(spec: &KeySpec) -> (bool, usize, usize) {
    let raised = matches!(spec.key, KeyUse::Raised(_));
    (raised, spec.limbs, spec.special)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_keys_need_few_gadgets() {
        let params = RlweParams::olt_full().unwrap();
        let mut specs = KeySpecs::new();
        for i in 0..2000 {
            specs.galois(2 * i + 1, 3 - i % 2, 1);
        }
        assert_eq!(specs.shapes().len(), 2);
        let gadgets = specs.gadgets(&params).unwrap();
        assert_eq!(gadgets.len(), 2000);
        for (spec, gadget) in specs.iter().zip(gadgets) {
            assert_eq!(Gadget::new(&params, spec.limbs, spec.special), Ok(gadget));
        }
    }
}
