//! Grids of linear maps on ciphertexts.

use hushed_ckks::maps::{GridOptions, GridSplit, MapGrid, PreparedGrid};
use hushed_ckks::{Ciphertext, CkksError, Scale};

use super::Encrypted;
use crate::error::FheError;
use crate::packing::PackingError;

impl Encrypted {
    /// [`crate::Slots::maps`]: encoded at every call, which takes part of the time of a small map and a small fraction
    /// of that of a large one.
    pub(super) fn mapped(
        &self,
        grid: &MapGrid,
        split: &GridSplit,
        x: &[Ciphertext],
        target: Scale,
    ) -> Result<Vec<Ciphertext>, FheError> {
        let shortest = x.iter().min_by_key(|ct| ct.limbs());
        let shortest = shortest.ok_or(PackingError::Mismatch)?;
        let options = GridOptions {
            split: Some(split.clone()),
            plain_scale: Some(self.factor_scale(shortest, target)?),
            ..GridOptions::default()
        };
        let params = self.evaluator.params();
        let map = PreparedGrid::new(params, grid, shortest.limbs(), options);
        let map = map.map_err(CkksError::from)?;
        let inputs: Vec<&Ciphertext> = x.iter().collect();
        Ok(map.apply(&self.evaluator, &inputs)?)
    }
}
