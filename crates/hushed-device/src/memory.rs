//! Device memory that is used again: what a run frees serves its next operations.

use std::collections::HashMap;
use std::mem::ManuallyDrop;
use std::sync::{Arc, Mutex, PoisonError};

use crate::error::DeviceError;
use crate::machine::Machine;

/// A machine, and the memory that is free on it, by its length.
pub(crate) struct Pool<M: Machine> {
    pub(crate) machine: M,
    free: Mutex<HashMap<usize, Vec<M::Memory>>>,
}

impl<M: Machine> Pool<M> {
    pub(crate) fn new(machine: M) -> Arc<Pool<M>> {
        Arc::new(Pool { machine, free: Mutex::default() })
    }

    /// `words` words with arbitrary content.
    pub(crate) fn room(self: &Arc<Self>, words: usize) -> Result<Words<M>, DeviceError> {
        let known = self.free.lock().unwrap_or_else(PoisonError::into_inner).get_mut(&words).and_then(Vec::pop);
        let memory = known.map_or_else(|| self.machine.room(words.max(1)), Ok)?;
        Ok(Words { memory: ManuallyDrop::new(memory), words, pool: Arc::clone(self) })
    }

    /// These words.
    pub(crate) fn words(self: &Arc<Self>, words: &[u64]) -> Result<Words<M>, DeviceError> {
        let room = self.room(words.len())?;
        if !words.is_empty() {
            self.machine.upload(room.memory(), words)?;
        }
        Ok(room)
    }
}

/// Some words on a device. They return to its pool, where only other operations on this ring can read them; the last
/// owner of the pool returns them to the driver, overwritten.
pub struct Words<M: Machine> {
    memory: ManuallyDrop<M::Memory>,
    words: usize,
    pool: Arc<Pool<M>>,
}

impl<M: Machine> Words<M> {
    pub(crate) fn memory(&self) -> &M::Memory {
        &self.memory
    }

    /// How many.
    #[expect(clippy::len_without_is_empty, reason = "nobody asks for none")]
    pub fn len(&self) -> usize {
        self.words
    }
}

impl<M: Machine> Drop for Words<M> {
    fn drop(&mut self) {
        // SAFETY: the memory is taken once, and the field not read again.
        let memory = unsafe { ManuallyDrop::take(&mut self.memory) };
        let mut free = self.pool.free.lock().unwrap_or_else(PoisonError::into_inner);
        free.entry(self.words).or_default().push(memory);
    }
}
