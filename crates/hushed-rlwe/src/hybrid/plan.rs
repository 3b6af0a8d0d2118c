//! Which evaluation keys there shall be.

use std::collections::BTreeSet;

use super::gadget::Gadget;
use crate::error::RlweError;
use crate::params::RlweParams;

/// What a key is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum KeyUse {
    /// From s² to s, after a product.
    Relin,
    /// For X → X^g: from s to s(X^(1/g)), the result to be permuted.
    Galois(usize),
    /// From s to the ephemeral sparse secret of bootstrapping, modulo q_0·p_0 only.
    ToSparse,
    /// From the ephemeral sparse secret to s.
    FromSparse,
    /// From the ephemeral sparse secret to s(X^(1/g)), the result to be permuted, for polynomials raised from q_0
    /// ([`Gadget::raised`]): a rotation and the way back to s in one, with one digit.
    Raised(usize),
}

/// One key: its use and its gadget.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeySpec {
    /// What it is for.
    pub key: KeyUse,
    /// Most primes of the ciphertexts that it serves.
    pub limbs: usize,
    /// Special primes.
    pub special: usize,
}

/// A set of keys to be made, in the order in which they are written.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EvalKeyPlan {
    keys: BTreeSet<KeySpec>,
}

impl EvalKeyPlan {
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

    /// Adds the key to the sparse secret, modulo q_0·p_0, and keys from it for X → X^g of raised polynomials, g in `elements`.
    pub fn encapsulation_raised(
        &mut self,
        elements: impl IntoIterator<Item = usize>,
        limbs: usize,
        special: usize,
    ) -> &mut Self {
        self.insert(KeyUse::ToSparse, 1, 1);
        for element in elements {
            self.insert(KeyUse::Raised(element), limbs, special);
        }
        self
    }

    /// Adds a key; once is enough.
    pub fn insert(&mut self, key: KeyUse, limbs: usize, special: usize) -> &mut Self {
        self.keys.insert(KeySpec {
            key,
            limbs,
            special,
        });
        self
    }

    /// Adds all keys of another plan.
    pub fn merge(&mut self, other: &Self) -> &mut Self {
        self.keys.extend(&other.keys);
        self
    }

    /// The keys, in order.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &KeySpec> {
        self.keys.iter()
    }

    /// Number of keys.
    pub fn len(&self) -> usize {
        self.keys.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// Bytes of all keys in memory, uniform halves not expanded.
    ///
    /// # Errors
    /// As [`EvalKeyPlan::gadgets`].
    pub fn memory_bytes(&self, params: &RlweParams) -> Result<usize, RlweError> {
        let words = |g: &Gadget| g.digits().len() * (g.limbs() + g.special()) * params.n();
        Ok(self.gadgets(params)?.iter().map(|g| 8 * words(g)).sum())
    }

    /// The gadget of each key, in order, after a check of the whole plan.
    ///
    /// # Errors
    /// [`RlweError::NotAGaloisElement`]; [`RlweError::Encapsulation`] if one of the keys of the sparse secret lacks the
    /// other, or the key to it is for more than q_0·p_0; else as [`Gadget::new`].
    pub fn gadgets(&self, params: &RlweParams) -> Result<Vec<Gadget>, RlweError> {
        let (mut to_sparse, mut from_sparse) = (false, false);
        for spec in &self.keys {
            match spec.key {
                KeyUse::Galois(element) | KeyUse::Raised(element)
                    if element % 2 == 0 || element >= 2 * params.n() =>
                {
                    let n = params.n();
                    return Err(RlweError::NotAGaloisElement { element, n });
                }
                KeyUse::ToSparse if (spec.limbs, spec.special) != (1, 1) => {
                    return Err(RlweError::Encapsulation);
                }
                KeyUse::ToSparse => to_sparse = true,
                KeyUse::FromSparse | KeyUse::Raised(_) => from_sparse = true,
                KeyUse::Galois(_) | KeyUse::Relin => {}
            }
        }
        if to_sparse != from_sparse {
            return Err(RlweError::Encapsulation);
        }
        let gadget = |spec: &KeySpec| match spec.key {
            KeyUse::Raised(_) => Gadget::raised(params, spec.limbs, spec.special),
            _ => Gadget::new(params, spec.limbs, spec.special),
        };
        self.keys.iter().map(gadget).collect()
    }
}
