//! A search in the server's documents with a query that stays private.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::{Arc, Mutex};
use std::time::Instant;

use hushed_model::TokenIds;
use hushed_mpc::{Hit, Index, Input, Wanted, search};

use super::{Client, Cost, Offer, OnProgress, Options};
use crate::error::ServeError;
use crate::session::wire::Refusal;
use crate::twopc::wire::{MAX_TOP, Request, Search};

/// What a search found. No `Debug`: it is private.
#[derive(Clone)]
pub struct Found {
    /// The documents found, nearest first.
    pub hits: Vec<Hit>,
    /// Tokens of the query.
    pub tokens: usize,
    /// What the server learned of that: tokens and padding.
    pub rows: usize,
    /// What it cost.
    pub cost: Cost,
}

impl Offer {
    /// The tokens of a query, and what a search for as many documents as there are asks for, if a session would run it.
    ///
    /// # Errors
    /// As [`Client::search`].
    pub fn query(&self, query: &str, wanted: Wanted, options: &Options) -> Result<(Wanted, Vec<TokenIds>), ServeError> {
        options.check()?;
        self.embeds()?;
        if wanted.top == 0 {
            let name = "the number of documents";
            return Err(ServeError::EmptyOption { name });
        }
        let limit = usize::from(MAX_TOP);
        if wanted.top > limit {
            return Err(ServeError::TooManyDocuments { limit });
        }
        let top = wanted.top.min(self.documents());
        if top == 0 || wanted.records && !self.has_records() {
            return Err(ServeError::Refused(Refusal::NoIndex));
        }
        if wanted.scores && !self.gives_scores() {
            return Err(ServeError::Refused(Refusal::NoScores));
        }
        let wanted = Wanted { top, ..wanted };
        if wanted.charge() > self.max_texts() {
            return Err(ServeError::TooManyTexts { texts: wanted.charge(), limit: self.max_texts() });
        }
        Ok((wanted, self.tokens(&[query], options)?))
    }
}

impl Client {
    /// Finds the documents nearest to a query, at most [`MAX_TOP`], or all if there are fewer than wanted. Each
    /// document counts as a text of this client, and so does each record and each score.
    ///
    /// # Errors
    /// [`Refusal::NoIndex`] if there are no documents, or none with records; [`Refusal::NoScores`]; else as
    /// [`Client::embed`].
    pub fn search(
        &mut self,
        query: &str,
        wanted: Wanted,
        options: &Options,
        progress: Option<OnProgress>,
    ) -> Result<Found, ServeError> {
        let (wanted, ids) = self.query(query, wanted, options)?;
        let top = wanted.top;
        if wanted.charge() > self.texts_left() {
            return Err(ServeError::TooManyTexts { texts: wanted.charge(), limit: self.texts_left() });
        }
        let rows = ids.first().ok_or(ServeError::NoAnswer)?.rows();
        if options.public_table {
            self.need_table()?;
        }
        let index = Index::shape(self.documents(), self.public().config.width, self.record_bytes())?;
        if let Some(progress) = progress {
            self.observe(0, 1, 1, Arc::new(Mutex::new(progress)));
        }
        let (began, before) = (Instant::now(), self.stats());
        let terms = options.terms();
        let request = Request::Search(Search {
            rows: u32::try_from(rows.total).unwrap_or(u32::MAX),
            padded: terms.padded,
            public_table: terms.public_table,
            top: top as u16,
            records: wanted.records,
            scores: wanted.scores,
        });
        self.ask(&request)?;
        let input = Input::Texts(ids, terms);
        let hits = search(&mut self.backend, &self.program, &index, &input, wanted);
        let hits = match hits.map_err(|error| self.failed(error)) {
            Err(fault) if fault.is_of_a_whole_pass() => Err(self.left_after(fault)),
            done => done,
        }?;
        let hits = hits.ok_or(ServeError::NoAnswer)?;
        self.backend.observe(|_| ());
        self.texts += wanted.charge();
        self.used = Instant::now();
        Ok(Found {
            hits,
            tokens: rows.real,
            rows: rows.total,
            cost: Cost { time: began.elapsed(), stats: self.stats().since(&before) },
        })
    }
}
