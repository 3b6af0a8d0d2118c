//! Products with weights and tables that a client has made before the texts that use them.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::time::Instant;

use hushed_model::Task;
use hushed_mpc::{Later, Terms};

use super::Client;
use super::answer::{Cost, Made};
use super::offer::none_ahead;
use crate::error::ServeError;
use crate::session::wire::Refusal;
use crate::twopc::wire::{Ahead, Request};

impl Client {
    /// Has products made for passes to come on these terms: over texts or images of as many rows, or, of a model that
    /// continues texts, for later tokens; at most as many as the server holds. Each counts as a text. They belong to
    /// this session; those left unused are wiped. A pass on other terms uses them too, and lookups for which these
    /// terms made nothing cost the same as without.
    ///
    /// # Errors
    /// [`Refusal::TooFarAhead`] if the server makes none; [`Refusal::PrivateTable`] if its table is private but the
    /// terms say that it is public; [`Refusal::TooLong`] for longer texts than it takes; [`ServeError::TooManyTexts`]
    /// if the session has too few left; else as for a pass.
    pub fn make_ahead(&mut self, later: impl Into<Later>, terms: Terms) -> Result<Made, ServeError> {
        let Later { passes, rows } = later.into();
        if self.offer.welcome.max_ahead == 0 {
            return Err(none_ahead());
        }
        if terms.public_table && self.offer.welcome.table.is_none() {
            return Err(ServeError::Refused(Refusal::PrivateTable));
        }
        let longest = self.max_tokens();
        if rows == 0 || rows > longest {
            let limit = u32::try_from(longest).unwrap_or(u32::MAX);
            return Err(ServeError::Refused(Refusal::TooLong { limit }));
        }
        let passes = passes.min(self.room_ahead());
        let (texts, limit) = (passes, self.texts_left());
        if texts > limit {
            return Err(ServeError::TooManyTexts { texts, limit });
        }
        // As many texts at a time as may share a pass.
        let together = match self.public().task() {
            Task::Generate => passes,
            Task::Embed | Task::Classify => self.max_pass_tokens() / rows,
        };
        let (mut made, mut left) = (Made::default(), passes);
        while left > 0 {
            let passes = left.min(together.max(1));
            made += self.make_together(Later { passes, rows }, terms)?;
            left -= passes;
        }
        Ok(made)
    }

    fn make_together(&mut self, later: Later, terms: Terms) -> Result<Made, ServeError> {
        let (began, before) = (Instant::now(), self.stats());
        let Later { passes, rows } = later;
        self.ask(&Request::Ahead(Ahead {
            passes: u16::try_from(passes).unwrap_or(u16::MAX),
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            padded: terms.padded,
            public_table: terms.public_table,
        }))?;
        let made = self.backend.make_ahead(&self.program, later, terms);
        made.map_err(|error| self.failed(error))?;
        self.texts += passes * self.charge();
        self.used = Instant::now();
        self.backend.forget_costs();
        let made = Made { passes, cost: Cost { time: began.elapsed(), stats: self.stats().since(&before) } };
        self.made += made;
        Ok(made)
    }

    /// Passes for which products are held.
    #[must_use]
    pub fn passes_ahead(&self) -> usize {
        self.backend.passes_ahead()
    }

    /// What has been made ahead in this session.
    #[must_use]
    pub fn made_ahead(&self) -> Made {
        self.made
    }

    /// Passes for which the server would make products now.
    fn room_ahead(&self) -> usize {
        usize::from(self.max_ahead()).saturating_sub(self.passes_ahead())
    }

    /// Has products made for the first of these texts, by their rows, if none are held for the very first.
    pub(super) fn stock(&mut self, texts: &[usize], terms: Terms) -> Result<(), ServeError> {
        if texts.first().is_none_or(|rows| self.backend.texts_ahead(*rows) > 0) {
            return Ok(());
        }
        let mut lacking = BTreeMap::new();
        for rows in texts.iter().take(self.room_ahead()) {
            *lacking.entry(*rows).or_insert(0) += 1;
        }
        // The progress of the pass before it.
        self.backend.observe(|_| ());
        for (rows, wanted) in lacking {
            let passes = usize::saturating_sub(wanted, self.backend.texts_ahead(rows));
            self.make_ahead(Later { passes, rows }, terms)?;
        }
        Ok(())
    }

    /// How many of these texts, by their rows, share the next pass, and whether it takes products made ahead: no text
    /// for which some are held runs without.
    pub(super) fn share_ahead(&self, texts: &[usize]) -> (usize, bool) {
        let all = |count: &usize| texts.get(..*count).is_some_and(|texts| self.backend.holds_ahead(texts));
        match (1..=texts.len()).rev().find(all) {
            Some(count) => (count, true),
            None => {
                let next = texts.iter().position(|rows| self.backend.texts_ahead(*rows) > 0);
                (next.unwrap_or(texts.len()), false)
            }
        }
    }

    /// How many of these texts were counted when products were made for them.
    pub(super) fn counted_ahead(&self, texts: &[usize]) -> usize {
        let mut wanted = BTreeMap::new();
        texts.iter().for_each(|rows| *wanted.entry(*rows).or_insert(0) += 1);
        wanted.into_iter().map(|(rows, wanted)| self.backend.texts_ahead(rows).min(wanted)).sum()
    }
}
