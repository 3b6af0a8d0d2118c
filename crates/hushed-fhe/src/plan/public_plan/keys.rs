//! The evaluation keys that a plan lists.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_rlwe::hybrid::{KeySpec, KeyUse, MAX_KEYS};
use serde::{Deserialize, Serialize};

use super::{FhePlan, PlanFileError};

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

impl FhePlan {
    /// The evaluation keys.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`] for keys that are out of order, too many, or not of the parameter set.
    pub fn key_specs(&self, params: &CkksParams) -> Result<KeySpecs, PlanFileError> {
        let refused = |given: String| PlanFileError::Unusable {
            what: "evaluation keys",
            given,
        };
        if self.keys.len() > MAX_KEYS {
            return Err(refused(format!(
                "{} of at most {MAX_KEYS}",
                self.keys.len()
            )));
        }
        let mut specs = KeySpecs::new();
        for key in &self.keys {
            specs.insert(key.key_use(), key.limbs, key.special);
        }
        // Sorted and without duplicates: a plan has one encoding.
        if !specs
            .iter()
            .map(PlannedKey::from)
            .eq(self.keys.iter().copied())
        {
            return Err(refused("not in order, or twice".to_owned()));
        }
        specs
            .gadgets(params.rlwe())
            .map_err(|error| refused(error.to_string()))?;
        Ok(specs)
    }

    /// Sets the evaluation keys of a run.
    pub fn set_keys(&mut self, specs: &KeySpecs) {
        self.keys = specs.iter().map(PlannedKey::from).collect();
    }
}

impl PlannedKey {
    fn key_use(&self) -> KeyUse {
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
        PlannedKey {
            key,
            element,
            limbs: spec.limbs,
            special: spec.special,
        }
    }
}
