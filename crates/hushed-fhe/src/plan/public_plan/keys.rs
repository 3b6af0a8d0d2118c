//! The evaluation keys that a plan lists.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_rlwe::hybrid::MAX_KEYS;

use super::key::PlannedKey;
use super::{FhePlan, PlanFileError};

impl FhePlan {
    /// The evaluation keys.
    ///
    /// # Errors
    /// As [`super::Manifest::key_specs`].
    pub fn key_specs(&self, params: &CkksParams) -> Result<KeySpecs, PlanFileError> {
        key_specs(&self.keys, params)
    }

    /// Sets the evaluation keys of a run.
    pub fn set_keys(&mut self, specs: &KeySpecs) {
        self.keys = planned(specs);
    }
}

/// Keys as a plan lists them.
pub(crate) fn planned(specs: &KeySpecs) -> Vec<PlannedKey> {
    specs.iter().map(PlannedKey::from).collect()
}

/// The keys that a plan lists.
pub(super) fn key_specs(keys: &[PlannedKey], params: &CkksParams) -> Result<KeySpecs, PlanFileError> {
    let refused = |given: String| PlanFileError::Unusable { what: "evaluation keys", given };
    if keys.len() > MAX_KEYS {
        return Err(refused(format!("{} of at most {MAX_KEYS}", keys.len())));
    }
    let mut specs = KeySpecs::new();
    for key in keys {
        specs.insert(key.key_use(), key.limbs, key.special);
    }
    // Sorted and without duplicates: a plan has one encoding.
    if !specs.iter().map(PlannedKey::from).eq(keys.iter().copied()) {
        return Err(refused("not in order, or twice".to_owned()));
    }
    specs.gadgets(params.rlwe()).map_err(|error| refused(error.to_string()))?;
    Ok(specs)
}
