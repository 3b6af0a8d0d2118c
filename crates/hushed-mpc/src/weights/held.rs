//! A model's linear layers as a party holds them: at the server as integers, transformed in advance as far as memory
//! allows, or read from the model folder in every pass.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use hushed_model::{Embedding, StepId};
use hushed_rlwe::{RlweError, RlweParams};
use hushed_twopc::TwopcError;
use hushed_twopc::he::PreparedWeights;

use crate::RunError;
use crate::circuit::product::{Layer, Product};
use crate::formats::{MAIN, TABLE_BITS};
use crate::lookup::Table;
use crate::weights::{embed, ranges};

/// A model's products as a party needs them, by step: at the server with integer weights, made once and shared by its
/// sessions, or made again in every pass.
#[derive(Default)]
pub struct Layers {
    /// Products that are made in every pass, in pass order; if there are any, the other fields are empty.
    pub(crate) streamed: Vec<(StepId, Product)>,
    by_step: Mutex<HashMap<StepId, Arc<Layer>>>,
    table: Mutex<Option<Arc<PreparedWeights>>>,
    positions: Mutex<Option<Arc<PreparedWeights>>>,
}

/// The result of [`Layers::make_ready`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Ready {
    /// Matrices whose transforms are held.
    pub held: usize,
    /// All matrices.
    pub matrices: usize,
    /// Bytes of the held transforms.
    pub bytes: u64,
    /// Bytes that all transforms would take.
    pub bytes_of_all: u64,
}

impl Layers {
    pub(crate) fn get(&self, id: StepId, product: &Product) -> Result<Arc<Layer>, RunError> {
        // A panic elsewhere cannot leave the map half-written.
        let mut map = self.by_step.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(layer) = map.get(&id) {
            return Ok(layer.clone());
        }
        let layer = Arc::new(product.layer(id, None)?);
        map.insert(id, layer.clone());
        Ok(layer)
    }

    /// Transforms the weights of as many layers as fit in `budget` bytes, for texts of `rows` rows; the tables of
    /// positions and token vectors come last. Whatever a running session uses is left as it is.
    ///
    /// # Errors
    /// [`RunError::Protocol`] if the parameters or shapes are impossible, which is a defect.
    pub fn make_ready(&self, rows: usize, budget: u64) -> Result<Ready, RunError> {
        let params = RlweParams::olt_full().map_err(|e| TwopcError::from(RlweError::from(e)))?;
        let mut ready = Ready::default();
        let mut transform = |weights: &mut PreparedWeights| -> Result<(), RunError> {
            let bytes = weights.ready_bytes(&params, rows, MAIN)? as u64;
            ready.matrices += 1;
            ready.bytes_of_all += bytes;
            if ready.bytes + bytes <= budget {
                weights.make_ready(&params, rows, MAIN)?;
                ready.bytes += bytes;
                ready.held += 1;
            }
            Ok(())
        };
        let mut map = self.by_step.lock().unwrap_or_else(PoisonError::into_inner);
        let mut layers: Vec<_> = map.iter_mut().collect();
        layers.sort_by(|a, b| a.0.cmp(b.0));
        let owned = layers.into_iter().filter_map(|(_, layer)| Arc::get_mut(layer)?.numbers.as_mut());
        for (weights, _) in owned {
            transform(weights)?;
        }
        for table in [&self.positions, &self.table] {
            let mut table = table.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some(table) = table.as_mut().and_then(Arc::get_mut) {
                transform(table)?;
            }
        }
        Ok(ready)
    }

    /// The number of layers so far, without the table.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        let map = self.by_step.lock().unwrap_or_else(PoisonError::into_inner);
        map.len()
    }

    /// A table of the server's, as integers.
    pub(crate) fn table(&self, e: &Embedding, table: Table) -> Result<Arc<PreparedWeights>, RunError> {
        let slot = match table {
            Table::Tokens | Table::PublicTokens => &self.table,
            Table::Positions => &self.positions,
        };
        if !self.streamed.is_empty() {
            return Ok(Arc::new(integers(e, table)?));
        }
        let mut slot = slot.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(table) = slot.as_ref() {
            return Ok(table.clone());
        }
        if let Some(beyond) = ranges::embedding(e)?.pop() {
            return Err(beyond.into());
        }
        let table = Arc::new(integers(e, table)?);
        *slot = Some(table.clone());
        Ok(table)
    }
}

/// A table as integers, rows × width.
fn integers(e: &Embedding, table: Table) -> Result<PreparedWeights, RunError> {
    let integers = |parts: [&[f32]; 2]| parts.into_iter().flatten().map(embed::integer).collect();
    let values = embed::of_numbers(e, table, integers)?;
    let weights = PreparedWeights::new(table.rows(e), e.width, TABLE_BITS, values);
    Ok(weights.map_err(TwopcError::from)?)
}
