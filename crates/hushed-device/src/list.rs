//! Short lists that launches read: positions of limbs, factors. Each content is uploaded once.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::DeviceError;
use crate::machine::Machine;
use crate::memory::{Pool, Words};

/// The lists so far. They depend on shapes alone, of which a run has few.
pub(crate) struct Lists<M: Machine>(Mutex<HashMap<Vec<u64>, Arc<Words<M>>>>);

impl<M: Machine> Lists<M> {
    pub(crate) fn new() -> Lists<M> {
        Lists(Mutex::default())
    }

    /// A list of 64-bit words.
    pub(crate) fn long(&self, pool: &Arc<Pool<M>>, words: Vec<u64>) -> Result<Arc<Words<M>>, DeviceError> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(list) = known.get(&words) {
            return Ok(Arc::clone(list));
        }
        let list = Arc::new(pool.words(&words)?);
        known.insert(words, Arc::clone(&list));
        Ok(list)
    }

    /// A list of 32-bit words.
    pub(crate) fn short(&self, pool: &Arc<Pool<M>>, words: &[u32]) -> Result<Arc<Words<M>>, DeviceError> {
        let pair = |pair: &[u32]| pair.iter().rev().fold(0, |word, &half| word << 32 | u64::from(half));
        self.long(pool, words.chunks(2).map(pair).collect())
    }
}
