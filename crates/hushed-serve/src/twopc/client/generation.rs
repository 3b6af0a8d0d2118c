//! A text that is being continued token by token: each is one pass, whose answer the client puts into the next.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::time::Instant;

use hushed_model::{Decoder, TokenIds};
use hushed_mpc::{Adds, Input, Penalties, Terms, TextCache, next_tokens};

use super::ahead::Made;
use super::stop::Stops;
use super::{Client, Cost};
use crate::error::ServeError;
use crate::twopc::wire::{Next, Request};

/// One token of an answer. No `Debug`: it is private.
#[derive(Clone)]
pub struct Generated {
    /// Its id.
    pub id: u32,
    /// The likeliest tokens of its pass, itself first: as many as the server's operator has opened, at least one.
    pub top: Vec<u32>,
    /// What it adds to the text: whole characters, so that it may be empty, and the next one's longer.
    pub text: String,
    /// Why it is the last one, if it is.
    pub last: Option<Finish>,
    /// What its pass cost.
    pub cost: Cost,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// One of the stop strings came.
    Stop,
    /// It has as many tokens as were asked for.
    Length,
}

/// The likeliest tokens after a pass, and its cost.
type Pass = (Vec<u32>, Cost);

/// A text that is being continued: an iterator of tokens. Dropped before its end it leaves the session ready for
/// another text; after an error the session is over.
pub struct Generation<'a> {
    pub(super) client: &'a mut Client,
    pub(super) text: TextCache,
    /// Until the text ends.
    pub(super) decoder: Option<Decoder>,
    pub(super) stops: Stops,
    /// The rows of the next pass.
    pub(super) new: TokenIds,
    /// Tokens that may still be handed out.
    pub(super) left: usize,
    /// Passes that may still be run.
    pub(super) passes: usize,
    /// Passes whose products are made ahead at a time.
    pub(super) ahead: u16,
    pub(super) made: Made,
    /// With `pad_output`: what all passes gave, once they have been run.
    pub(super) ready: Option<VecDeque<Result<Pass, ServeError>>>,
    pub(super) temperature: u16,
    pub(super) seed: u64,
    pub(super) penalties: Penalties,
    /// The ids of the answer so far.
    pub(super) answer: Vec<u32>,
    pub(super) terms: Terms,
    pub(super) pad_output: bool,
    pub(super) ended: bool,
}

impl Generation<'_> {
    /// Tokens of the text so far, the prompt's counted.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.text.tokens() + self.new.rows().real
    }

    /// What the server learns of that: with padding.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.text.rows() + self.new.rows().total
    }

    /// Tokens of the server's public prefix, which stand before the text.
    #[must_use]
    pub fn prefix_tokens(&self) -> usize {
        self.text.public()
    }

    /// What the draws depend on beside the server's secret.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What has been made ahead of this text's passes.
    #[must_use]
    pub fn made_ahead(&self) -> Made {
        self.made
    }

    /// Has products made for the later passes, where none are left.
    fn make_ahead(&mut self) -> Result<(), ServeError> {
        let first = usize::from(self.text.rows() == 0);
        let later = self.passes.saturating_sub(first);
        if self.client.passes_ahead() > 0 || later == 0 {
            return Ok(());
        }
        let passes = u16::try_from(later).unwrap_or(u16::MAX).min(self.ahead);
        let made = self.client.make_ahead(passes, self.terms)?;
        self.made.passes += made.passes;
        self.made.time += made.time;
        self.made.bytes.0 += made.bytes.0;
        self.made.bytes.1 += made.bytes.1;
        Ok(())
    }

    /// One pass: the ids of the likeliest tokens, of which the first follows.
    fn pass(&mut self) -> Result<Pass, ServeError> {
        if self.ahead > 0 {
            self.make_ahead()?;
        }
        self.passes = self.passes.saturating_sub(1);
        let began = Instant::now();
        let before = self.client.stats();
        let new = std::mem::replace(&mut self.new, TokenIds::new(Vec::new()));
        let begins = self.text.rows() == 0;
        let ahead = !begins && new.rows().total == 1 && self.client.passes_ahead() > 0;
        let request = Request::Next(Next {
            begins,
            rows: u32::try_from(new.rows().total).unwrap_or(u32::MAX),
            padded: self.terms.padded,
            public_table: self.terms.public_table,
            ahead,
            temperature: self.temperature,
            seed: self.seed,
        });
        self.client.ask(&request)?;
        let client = &mut *self.client;
        let input = Input::Texts(vec![new], self.terms);
        let adds = Adds {
            penalties: Some((&self.penalties, &self.answer)),
            ..Adds::default()
        };
        let top = client.welcome.answers.top().unwrap_or(1);
        let text = &mut self.text;
        let mut run = |on: &mut _| next_tokens(on, &client.program, text, &input, adds, top);
        let top = match ahead {
            true => client.backend.spending_ahead(run),
            false => run(&mut client.backend),
        }?;
        let top = top.ok_or(ServeError::NoAnswer)?;
        let id = *top.first().ok_or(ServeError::NoAnswer)?;
        // Of a pass with products made ahead it was counted then.
        client.texts += if ahead { 0 } else { client.charge() };
        client.used = Instant::now();
        client.backend.forget_costs();
        self.new = TokenIds::new(vec![id]);
        self.answer.push(id);
        let cost = Cost {
            time: began.elapsed(),
            stats: client.stats().since(&before),
        };
        Ok((top, cost))
    }

    /// The next token, before those that it leads: of a pass that is run now, or of one that was.
    fn ids(&mut self) -> Result<Pass, ServeError> {
        if !self.pad_output {
            return self.pass();
        }
        if self.ready.is_none() {
            let mut all = VecDeque::with_capacity(self.left);
            while all.len() < self.left && all.back().is_none_or(Result::is_ok) {
                all.push_back(self.pass());
            }
            self.ready = Some(all);
        }
        let next = self.ready.as_mut().and_then(VecDeque::pop_front);
        next.unwrap_or(Err(ServeError::NoAnswer))
    }

    fn token(&mut self) -> Result<Generated, ServeError> {
        let (top, cost) = self.ids()?;
        let id = *top.first().ok_or(ServeError::NoAnswer)?;
        self.left -= 1;
        let ends = self.client.public().end_token == Some(id);
        let mut text = match &mut self.decoder {
            Some(decoder) if !ends => decoder.push(id),
            _ => String::new(),
        };
        let mut last = match (ends, self.left) {
            (true, _) => Some(Finish::End),
            (false, 0) => Some(Finish::Length),
            _ => None,
        };
        if last.is_some() {
            text.push_str(self.decoder.take().map_or("", Decoder::finish));
        }
        let (text, stopped) = self.stops.push(&text, last.is_some());
        if stopped {
            last = Some(Finish::Stop);
        }
        self.ended = last.is_some();
        Ok(Generated {
            id,
            top,
            text,
            last,
            cost,
        })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Generated, ServeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.left == 0 {
            // A pass after the end that failed: the session is over.
            let last = self.ready.as_mut().and_then(VecDeque::pop_back);
            self.ready = None;
            return last.and_then(Result::err).map(Err);
        }
        let token = self.token();
        self.ended |= token.is_err();
        Some(token)
    }
}
