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
    /// [`PlanFileError::Unusable`] for keys that are out of order, too many, or not of the parameter set.
    pub fn key_specs(&self, params: &CkksParams) -> Result<KeySpecs, PlanFileError> {
        let refused = |given: String| PlanFileError::Unusable { what: "evaluation keys", given };
        if self.keys.len() > MAX_KEYS {
            return Err(refused(format!("{} of at most {MAX_KEYS}", self.keys.len())));
        }
        let mut specs = KeySpecs::new();
        for key in &self.keys {
            specs.insert(key.key_use(), key.limbs, key.special);
        }
        // Sorted and without duplicates: a plan has one encoding.
        if !specs.iter().map(PlannedKey::from).eq(self.keys.iter().copied()) {
            return Err(refused("not in order, or twice".to_owned()));
        }
        specs.gadgets(params.rlwe()).map_err(|error| refused(error.to_string()))?;
        Ok(specs)
    }

    /// Sets the evaluation keys of a run.
    pub fn set_keys(&mut self, specs: &KeySpecs) {
        self.keys = specs.iter().map(PlannedKey::from).collect();
    }
}
