//! Products with weights and tables that a client has made before the texts that use them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Instant;

use hushed_mpc::Terms;

use super::offer::none_ahead;
use super::{Client, Cost};
use crate::error::ServeError;
use crate::session::wire::Refusal;
use crate::twopc::wire::{Ahead, Request};

/// Products that were made ahead.
#[derive(Clone, Copy, Debug, Default)]
pub struct Made {
    /// For how many passes.
    pub passes: usize,
    /// What they cost.
    pub cost: Cost,
}

impl Client {
    /// Has products made for this many later passes on these terms, at most as many as the server holds. Each counts as
    /// a text. They belong to this session; those left unused are wiped. A text on other terms uses them too, and
    /// lookups for which these terms made nothing cost the same as without.
    ///
    /// # Errors
    /// [`Refusal::TooFarAhead`] if the server makes none; [`Refusal::PrivateTable`] if its table is private but the
    /// terms say that it is public; [`ServeError::TooManyTexts`] if the session has too few left; else as for a pass.
    pub fn make_ahead(&mut self, passes: u16, terms: Terms) -> Result<Made, ServeError> {
        if self.offer.welcome.max_ahead == 0 {
            return Err(none_ahead());
        }
        if terms.public_table && self.offer.welcome.table.is_none() {
            return Err(ServeError::Refused(Refusal::PrivateTable));
        }
        let held = u16::try_from(self.passes_ahead()).unwrap_or(u16::MAX);
        let room = self.max_ahead().saturating_sub(held);
        let passes = passes.min(room);
        if passes == 0 {
            return Ok(Made::default());
        }
        let (texts, limit) = (usize::from(passes), self.texts_left());
        if texts > limit {
            return Err(ServeError::TooManyTexts { texts, limit });
        }
        let (began, before) = (Instant::now(), self.stats());
        self.ask(&Request::Ahead(Ahead { passes, padded: terms.padded, public_table: terms.public_table }))?;
        let passes = usize::from(passes);
        let made = self.backend.make_ahead(&self.program, passes, terms);
        made.map_err(|error| self.failed(error))?;
        self.texts += passes * self.charge();
        self.used = Instant::now();
        self.backend.forget_costs();
        Ok(Made { passes, cost: Cost { time: began.elapsed(), stats: self.stats().since(&before) } })
    }

    /// Passes for which products are held.
    #[must_use]
    pub fn passes_ahead(&self) -> usize {
        self.backend.passes_ahead()
    }
}
