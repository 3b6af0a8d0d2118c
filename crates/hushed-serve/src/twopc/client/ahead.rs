//! Products by weights that a client has made before the texts that use them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::{Duration, Instant};

use super::Client;
use crate::error::ServeError;
use crate::session::wire::Refusal;
use crate::twopc::wire::{MAX_AHEAD, Request};

/// Products that were made ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// For how many passes.
    pub passes: usize,
    /// How long it took.
    pub time: Duration,
    /// Bytes sent and received.
    pub bytes: (u64, u64),
}

impl Client {
    /// Has products by weights made for this many later passes of texts to come, at most as many as the server holds.
    /// Each counts as a text. They are of this session: what it leaves is wiped.
    ///
    /// # Errors
    /// [`Refusal::TooFarAhead`] of a server that makes none; [`ServeError::TooManyTexts`] for more than the session has
    /// left; else as a pass.
    pub fn make_ahead(&mut self, passes: u16) -> Result<Made, ServeError> {
        if self.welcome.max_ahead == 0 {
            return Err(none_ahead());
        }
        let held = u16::try_from(self.passes_ahead()).unwrap_or(u16::MAX);
        let room = self.welcome.max_ahead.min(MAX_AHEAD).saturating_sub(held);
        let passes = passes.min(room);
        if passes == 0 {
            return Ok(Made::default());
        }
        let (texts, limit) = (usize::from(passes), self.texts_left());
        if texts > limit {
            return Err(ServeError::TooManyTexts { texts, limit });
        }
        let (began, before) = (Instant::now(), self.stats());
        self.ask(&Request::Ahead(passes))?;
        let passes = usize::from(passes);
        self.backend.make_ahead(&self.program, passes)?;
        self.texts += passes * self.charge();
        self.used = Instant::now();
        self.backend.forget_costs();
        let stats = self.stats().since(&before);
        Ok(Made {
            passes,
            time: began.elapsed(),
            bytes: (stats.bytes_sent, stats.bytes_received),
        })
    }

    /// Passes for which products are held.
    #[must_use]
    pub fn passes_ahead(&self) -> usize {
        self.backend.passes_ahead()
    }
}

/// Of a server that makes nothing ahead.
pub(super) fn none_ahead() -> ServeError {
    ServeError::Refused(Refusal::TooFarAhead { limit: 0 })
}
