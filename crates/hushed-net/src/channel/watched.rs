//! A state that threads share, and whose changes they wait for.

use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

/// A state behind a lock. Who changes it completes the change before anything can panic, so that a poisoned state is
/// still whole, and then [notifies](Watched::notify_all) those who wait.
pub(super) struct Watched<T> {
    state: Mutex<T>,
    changed: Condvar,
}

impl<T> Watched<T> {
    pub(super) fn new(state: T) -> Self {
        Self { state: Mutex::new(state), changed: Condvar::new() }
    }

    pub(super) fn lock(&self) -> MutexGuard<'_, T> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Wakes all who wait.
    pub(super) fn notify_all(&self) {
        self.changed.notify_all();
    }

    /// Waits for a change, with the lock released.
    pub(super) fn wait<'a>(&self, guard: MutexGuard<'a, T>, at_most: Duration) -> MutexGuard<'a, T> {
        self.changed.wait_timeout(guard, at_most).unwrap_or_else(PoisonError::into_inner).0
    }

    /// Waits until the state is as wanted, or it is `give_up`.
    pub(super) fn wait_until<'a>(
        &self,
        mut guard: MutexGuard<'a, T>,
        give_up: Instant,
        wanted: impl Fn(&T) -> bool,
    ) -> MutexGuard<'a, T> {
        while !wanted(&guard) {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            guard = self.wait(guard, left);
        }
        guard
    }
}
