//! Whether the server would take a session of this gateway: asked by a handshake, and while it
//! would, at most every few seconds.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use super::failure::Failure;

/// How long an answer holds.
const HOLDS: Duration = Duration::from_secs(2);

/// What the server said last, and when.
pub struct Ready(Mutex<(Instant, Option<Failure>)>);

impl Ready {
    /// It has just been asked, and was fine.
    pub fn now() -> Self {
        Self(Mutex::new((Instant::now(), None)))
    }

    /// The last answer, if it still holds; else that of `look`. Those who ask at the same time share one look.
    ///
    /// # Errors
    /// The failure with which a session would end.
    pub fn asked(&self, look: impl FnOnce() -> Option<Failure>) -> Result<(), Failure> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if known.1.is_some() || known.0.elapsed() >= HOLDS {
            *known = (Instant::now(), look());
        }
        known.1.clone().map_or(Ok(()), Err)
    }

    /// A session or a pass failed, or did not: the next one who asks looks again, or need not.
    pub(super) fn seen(&self, well: bool) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let now = Instant::now();
        *known = match well {
            true => (now, None),
            false => (now.checked_sub(HOLDS).unwrap_or(now), None),
        };
    }
}
