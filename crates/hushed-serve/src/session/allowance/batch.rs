//! Writes counts in batches: those that come while a write is under way share the next one (group commit). Each waits
//! for the write that includes it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};

use crate::error::ServeError;

/// Writes a file as a whole or not at all; it survives a crash on return.
pub(super) type Disk = Box<dyn Fn(&Path, &[u8]) -> Result<(), ServeError> + Send + Sync>;

/// What is written.
pub(super) trait Ledger {
    /// What is added to it.
    type Added;
    /// The bytes of the file.
    fn sealed(&self, path: &Path) -> Result<Vec<u8>, ServeError>;
    /// Takes back what could not be written.
    fn take_back(&mut self, added: &Self::Added);
}

/// The counts, and their file.
pub(super) struct Batches<L: Ledger> {
    state: Mutex<State<L>>,
    written: Condvar,
    path: PathBuf,
    disk: Disk,
}

pub(super) struct State<L: Ledger> {
    /// Including what is not on disk yet.
    pub(super) counts: L,
    /// What the next write will be the first to include.
    next: Vec<L::Added>,
    /// How the next write went, once it is done.
    outcome: Arc<OnceLock<Result<(), Unwritten>>>,
    /// Whether a write is under way.
    writing: bool,
}

/// The batch could not be written.
#[derive(Clone, Copy)]
pub(super) struct Unwritten;

#[cfg(test)]
impl<L: Ledger> State<L> {
    /// How many wait for the next write.
    pub(super) fn waiting(&self) -> usize {
        self.next.len()
    }
}

impl<L: Ledger> Batches<L> {
    pub(super) fn new(counts: L, path: PathBuf, disk: Disk) -> Batches<L> {
        Batches {
            state: Mutex::new(State { counts, next: Vec::new(), outcome: Arc::default(), writing: false }),
            written: Condvar::new(),
            path,
            disk,
        }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, State<L>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns once the counts, which include `added`, are on disk. If they cannot be written, everything that was
    /// added since the last write is taken back.
    pub(super) fn save<'a>(
        &'a self,
        mut state: MutexGuard<'a, State<L>>,
        added: Option<L::Added>,
    ) -> Result<(), Unwritten> {
        state.next.extend(added);
        let outcome = Arc::clone(&state.outcome);
        loop {
            if let Some(outcome) = outcome.get() {
                return *outcome;
            }
            if state.writing {
                let woken = self.written.wait(state);
                state = woken.unwrap_or_else(PoisonError::into_inner);
            } else {
                state = self.write(state);
            }
        }
    }

    /// Writes a batch. Others may add to the next one meanwhile.
    fn write<'a>(&'a self, mut state: MutexGuard<'a, State<L>>) -> MutexGuard<'a, State<L>> {
        let batch = std::mem::take(&mut state.next);
        let outcome = std::mem::take(&mut state.outcome);
        state.writing = true;
        let bytes = state.counts.sealed(&self.path);
        drop(state);
        let done = bytes.and_then(|bytes| (self.disk)(&self.path, &bytes));
        let mut state = self.lock();
        state.writing = false;
        let done = done.map_err(|error| {
            tracing::error!(%error, "texts could not be counted: none are served");
            for added in &batch {
                state.counts.take_back(added);
            }
            Unwritten
        });
        // Set once: this thread took it out of the state.
        let _ = outcome.set(done);
        self.written.notify_all();
        state
    }
}
