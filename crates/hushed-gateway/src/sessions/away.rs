//! While the server has no free place, has no allowance left for this client or cannot be reached, every request is
//! told so at once instead of trying a set-up each time.

use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;

/// The reason for staying away, and until when.
#[derive(Default)]
pub struct Away(Mutex<Option<(Failure, Instant)>>);

impl Away {
    /// Stays away for as long as the failure says; a failure that says nothing has no effect.
    pub fn set(&self, failure: &Failure) {
        let until = failure.retry_after.and_then(|after| Instant::now().checked_add(after));
        if let Some(until) = until {
            *self.lock() = Some((failure.clone(), until));
        }
    }

    /// The reason for staying away now, with the time that is left.
    pub fn now(&self) -> Option<Failure> {
        let mut why = self.lock();
        let (failure, until) = why.as_ref()?;
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            *why = None;
            return None;
        }
        Some(Failure {
            // In whole seconds, rounded up, so that nobody is asked to come too early.
            retry_after: Some(Duration::from_secs(left.as_secs() + 1)),
            ..failure.clone()
        })
    }

    /// The server can be reached, or has accepted a session.
    pub fn end(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<(Failure, Instant)>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn as_long_as_the_failure_says() {
        let away = Away::default();
        away.set(&Failure::defect());
        assert!(away.now().is_none());
        let later = |after| Failure { retry_after: Some(after), ..Failure::stopping() };
        away.set(&later(Duration::ZERO));
        assert!(away.now().is_none());
        away.set(&later(Duration::from_secs(100)));
        let now = away.now().unwrap();
        assert_eq!(now.name, "stopping");
        assert_eq!(now.retry_after, Some(Duration::from_secs(100)));
        away.end();
        assert!(away.now().is_none());
    }
}
