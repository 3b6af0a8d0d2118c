//! An evaluation key as a plan lists it.

use hushed_rlwe::hybrid::{KeySpec, KeyUse};
use serde::{Deserialize, Serialize};

/// One evaluation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedKey {
    /// Its use.
    #[serde(rename = "use")]
    pub key: PlannedUse,
    /// The Galois element; 0 if there is none.
    pub element: usize,
    /// Maximum primes of the ciphertexts it serves.
    pub limbs: usize,
    /// Special primes.
    pub special: usize,
}

/// The use of an evaluation key; see [`KeyUse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedUse {
    /// Relinearisation of products.
    Relin,
    /// A rotation or a conjugation.
    Galois,
    /// To the sparse secret of bootstrapping.
    ToSparse,
    /// From the sparse secret.
    FromSparse,
    /// From the sparse secret, with a rotation.
    Raised,
}

impl PlannedKey {
    pub(super) fn key_use(&self) -> KeyUse {
        match self.key {
            PlannedUse::Relin => KeyUse::Relin,
            PlannedUse::Galois => KeyUse::Galois(self.element),
            PlannedUse::ToSparse => KeyUse::ToSparse,
            PlannedUse::FromSparse => KeyUse::FromSparse,
            PlannedUse::Raised => KeyUse::Raised(self.element),
        }
    }
}

impl From<&KeySpec> for PlannedKey {
    fn from(spec: &KeySpec) -> PlannedKey {
        let (key, element) = match spec.key {
            KeyUse::Relin => (PlannedUse::Relin, 0),
            KeyUse::Galois(element) => (PlannedUse::Galois, element),
            KeyUse::ToSparse => (PlannedUse::ToSparse, 0),
            KeyUse::FromSparse => (PlannedUse::FromSparse, 0),
            KeyUse::Raised(element) => (PlannedUse::Raised, element),
        };
        PlannedKey { key, element, limbs: spec.limbs, special: spec.special }
    }
}
