//! Continues a text token by token. Each token takes one pass, whose answer the client feeds into the next; with drafts
//! a pass may give several.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::time::Instant;

use hushed_model::generate::drafts::{right, runnable};
use hushed_model::{Decoder, TokenIds, prompt_lookup};
use hushed_mpc::{Adds, Input, Penalties, Terms, TextCache, next_tokens, tokens_of_rows};
use zeroize::Zeroizing;

use super::answer::{Made, Sent, Work};
use super::stop::Stops;
use super::{Client, Cost, after_whole_passes};
use crate::error::ServeError;
use crate::twopc::wire::{Next, Request};

/// One token of an answer. No `Debug`: it is private.
#[derive(Clone)]
pub struct Generated {
    /// Its id.
    pub id: u32,
    /// The likeliest tokens of its pass, this one first: as many as the server's operator opens, at least one.
    pub top: Vec<u32>,
    /// What it adds to the text, in whole characters: it may be empty, and the next token's longer.
    pub text: String,
    /// Why it is the last one, if it is.
    pub last: Option<Finish>,
    /// What its pass cost; zero if another token of the pass came before it.
    pub cost: Cost,
}

/// Why a text ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Finish {
    /// The model ended it.
    End,
    /// A stop string came.
    Stop,
    /// It has the requested number of tokens.
    Length,
}

/// The likeliest tokens after a pass, and its cost.
type Pass = (Vec<u32>, Cost);

/// Guesses tokens that may follow the given ones, at most the given number.
type Guess<'a> = dyn FnMut(&[u32], usize) -> Vec<u32> + Send + 'a;

/// What became of drafts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Drafted {
    /// Passes of the text.
    pub passes: usize,
    /// Drafts that they had.
    pub drafts: usize,
    /// Those of them that were right.
    pub right: usize,
}

/// A text that is being continued: an iterator of tokens. If dropped before its end, it leaves the session ready for
/// another text; after an error, which [`Generation::end`] may return, the session is over.
pub struct Generation<'a> {
    pub(super) client: &'a mut Client,
    pub(super) text: TextCache,
    /// Whether the text may become so long that its formats are wider.
    pub(super) long: bool,
    /// Present until the text ends.
    pub(super) decoder: Option<Decoder>,
    pub(super) stops: Stops,
    /// The rows of the next pass.
    pub(super) new: TokenIds,
    /// Tokens that may still be handed out.
    pub(super) left: usize,
    /// Tokens that passes may still give.
    pub(super) passes: usize,
    /// The number of passes whose products are made ahead at a time.
    pub(super) ahead: u16,
    pub(super) made: Made,
    /// What has been sent since it was last asked for.
    pub(super) sent: Vec<Sent>,
    /// Results of passes that are not handed out yet.
    pub(super) ready: VecDeque<Result<Pass, ServeError>>,
    pub(super) temperature: u16,
    pub(super) seed: u64,
    pub(super) penalties: Penalties,
    /// The ids of the text so far; with drafts also those of the public prefix before it, if known.
    pub(super) history: Zeroizing<Vec<u32>>,
    /// Where the answer begins in it.
    pub(super) begins: usize,
    /// Maximum drafts per pass.
    pub(super) drafts: usize,
    /// Rows of the last pass that the server should drop.
    pub(super) dropped: u16,
    /// Guesses the next tokens, in place of a look-up of what followed before.
    pub(super) guess: Option<&'a mut Guess<'a>>,
    pub(super) verified: Drafted,
    pub(super) terms: Terms,
    pub(super) pad_output: bool,
    /// Why an answer was impossible.
    pub(super) fault: Option<ServeError>,
    pub(super) ended: bool,
}

impl<'a> Generation<'a> {
    /// Tokens of the text so far, prompt included.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.text.tokens() + self.new.rows().real
    }

    /// Rows of the text so far, padding included: what the server learns of its length.
    #[must_use]
    pub fn rows(&self) -> usize {
        self.text.rows() + self.new.rows().total
    }

    /// Tokens of the server's public prefix, which precede the text.
    #[must_use]
    pub fn prefix_tokens(&self) -> usize {
        self.text.public()
    }

    /// The seed on which the draws depend, besides the server's secret.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// What has been made ahead for this text's passes.
    #[must_use]
    pub fn made_ahead(&self) -> Made {
        self.made
    }

    /// What became of drafts so far.
    #[must_use]
    pub fn drafted(&self) -> Drafted {
        self.verified
    }

    /// What has been sent since this was last called, in order, including passes that gave several tokens and those
    /// after the end of the text.
    pub fn take_sent(&mut self) -> Vec<Sent> {
        std::mem::take(&mut self.sent)
    }

    /// Guesses with this function, such as a small local model, in place of what occurred before. It is given the ids
    /// of the text so far (and of the public prefix, if [`GenerateOptions::public_prefix`] has it) and the maximum
    /// number of useful ids. Whatever it returns, the text is the same. The server sees how long it takes.
    ///
    /// [`GenerateOptions::public_prefix`]: super::generate::GenerateOptions::public_prefix
    #[must_use]
    pub fn guessing(mut self, guess: &'a mut (dyn FnMut(&[u32], usize) -> Vec<u32> + Send + 'a)) -> Self {
        self.guess = Some(guess);
        self
    }

    /// Ends the text here, as dropping it does, and reports whether a pass beyond the tokens handed out so far has
    /// failed: with [`GenerateOptions::pad_output`] all passes are run before the first token is handed out. An error
    /// that the iterator has given is not reported again.
    ///
    /// # Errors
    /// The error of that pass; the session is over.
    ///
    /// [`GenerateOptions::pad_output`]: super::generate::GenerateOptions::pad_output
    pub fn end(mut self) -> Result<(), ServeError> {
        self.failure().map_or(Ok(()), Err)
    }

    /// The error of a pass that gave no token, which is always the last.
    fn failure(&mut self) -> Option<ServeError> {
        let last = self.ready.pop_back();
        self.ready.clear();
        last.and_then(Result::err)
    }

    /// Has products made for later passes, if fewer than for `rows` rows are held.
    fn make_ahead(&mut self, rows: usize) -> Result<(), ServeError> {
        let first = usize::from(self.text.rows() == 0);
        let later = self.passes.saturating_sub(first);
        let (most, held) = (usize::from(self.ahead), self.client.passes_ahead());
        if held >= rows.min(most) || later == 0 {
            return Ok(());
        }
        let lacking = later.max(rows).min(most).saturating_sub(held);
        let passes = lacking.min(self.client.texts_left());
        let made = self.client.make_ahead(passes, self.terms)?;
        let Made { passes, cost } = made;
        if passes > 0 {
            self.sent.push(Sent {
                work: Work::Ahead,
                rows: passes,
                counted: passes * self.client.charge(),
                cost,
                after: self.client.stats(),
            });
        }
        self.made += made;
        Ok(())
    }

    /// Drafts for the next pass, none for the first one. Each takes a row that may be wasted, so as many rows are kept
    /// back as the answer may need without drafts.
    fn drafts(&mut self) -> Vec<u32> {
        if self.drafts == 0 || self.text.rows() == 0 {
            return Vec::new();
        }
        let rows = self.client.texts_left() + self.client.passes_ahead();
        let spare = rows.saturating_sub(self.passes);
        let most = self.drafts.min(self.passes.saturating_sub(1)).min(spare);
        if most == 0 {
            return Vec::new();
        }
        let guessed = match &mut self.guess {
            Some(guess) => guess(&self.history, most),
            None => prompt_lookup(&self.history, most),
        };
        runnable(guessed, most, self.client.public().config.vocabulary)
    }

    /// Runs one pass. For each token that it gives, returns the ids of the likeliest, of which the first follows.
    fn pass(&mut self) -> Result<Vec<Pass>, ServeError> {
        let mut drafts = self.drafts();
        if self.ahead > 0 {
            self.make_ahead(1 + drafts.len())?;
        }
        let held = self.client.passes_ahead();
        if held > 0 {
            drafts.truncate(held - 1);
        }
        let began = Instant::now();
        let before = self.client.stats();
        let begins = self.text.rows() == 0;
        let new = std::mem::replace(&mut self.new, TokenIds::new(Vec::new()));
        let new = match drafts.is_empty() {
            true => new,
            false => TokenIds::new([new.ids(), &drafts].concat()),
        };
        let (rows, opened) = (new.rows().total, 1 + drafts.len());
        let ahead = !begins && rows == opened && held > 0;
        let request = Request::Next(Next {
            begins,
            rows: u32::try_from(rows).unwrap_or(u32::MAX),
            padded: self.terms.padded,
            public_table: self.terms.public_table,
            ahead,
            drafts: opened > 1,
            dropped: std::mem::take(&mut self.dropped),
            temperature: self.temperature,
            seed: self.seed,
            public: if begins { u32::try_from(self.text.public()).unwrap_or(u32::MAX) } else { 0 },
            long: begins && self.long,
        });
        self.client.ask(&request)?;
        let client = &mut *self.client;
        let input = Input::Texts(vec![new], self.terms);
        self.history.extend(&drafts);
        let answer = self.history.get(self.begins..).unwrap_or_default();
        let adds = Adds { penalties: Some((&self.penalties, answer)), ..Adds::default() };
        let top = client.offer.welcome.answers.top().unwrap_or(1);
        let (program, text) = (&client.program, &mut self.text);
        let mut run = |on: &mut _| match opened {
            1 => Ok(next_tokens(on, program, text, &input, adds, top)?.map(|one| vec![one])),
            _ => tokens_of_rows(on, program, text, &input, adds, top),
        };
        let said = match ahead {
            true => client.backend.spending_ahead(&vec![1; opened], run),
            false => run(&mut client.backend),
        };
        let said = said.map_err(|error| client.failed(error));
        // After an impossible answer the same passes follow as after token 0, and the error comes after the last.
        let said = match after_whole_passes(said, &mut self.fault)? {
            Some(said) => said.ok_or(ServeError::NoAnswer)?,
            None => vec![vec![0]; opened],
        };
        // With products made ahead, they were counted when those were made.
        let counted = if ahead { 0 } else { opened * client.charge() };
        client.texts += counted;
        client.used = Instant::now();
        client.backend.forget_costs();
        let after = client.stats();
        let cost = Cost { time: began.elapsed(), stats: after.since(&before) };
        self.sent.push(Sent { work: Work::Pass { begins, drafts: drafts.len(), ahead }, rows, counted, cost, after });
        self.follow(&drafts, said, cost)
    }

    /// Adds the tokens of a pass to the text, and drops the rows of drafts that were wrong.
    fn follow(&mut self, drafts: &[u32], said: Vec<Vec<u32>>, cost: Cost) -> Result<Vec<Pass>, ServeError> {
        let first = |top: &Vec<u32>| top.first().copied().ok_or(ServeError::NoAnswer);
        let ids: Vec<u32> = said.iter().map(first).collect::<Result<_, _>>()?;
        let right = right(drafts, &ids);
        let last = *ids.get(right).ok_or(ServeError::NoAnswer)?;
        let wrong = drafts.len() - right;
        self.verified.passes += 1;
        self.verified.drafts += drafts.len();
        self.verified.right += right;
        self.text.keep(self.text.rows() - wrong)?;
        // At most MAX_DRAFTS.
        self.dropped = wrong as u16;
        let known = self.history.len() - wrong;
        self.history.truncate(known);
        self.history.push(last);
        self.new = TokenIds::new(vec![last]);
        self.passes = self.passes.saturating_sub(1 + right);
        // The first of them has the whole cost.
        let costs = std::iter::once(cost).chain(std::iter::repeat_with(Cost::default));
        Ok(said.into_iter().take(1 + right).zip(costs).collect())
    }

    /// The next token, ahead of the less likely ones: from a pass that is run now, or an earlier one.
    fn ids(&mut self) -> Result<Pass, ServeError> {
        while self.ready.is_empty() || (self.pad_output || self.fault.is_some()) && self.passes > 0 {
            match self.pass() {
                Ok(tokens) => self.ready.extend(tokens.into_iter().map(Ok)),
                Err(error) => {
                    self.passes = 0;
                    self.ready.push_back(Err(error));
                }
            }
        }
        if let Some(fault) = self.fault.take() {
            self.ready.clear();
            return Err(self.client.left_after(fault));
        }
        self.ready.pop_front().unwrap_or(Err(ServeError::NoAnswer))
    }

    fn token(&mut self) -> Result<Generated, ServeError> {
        let (top, cost) = self.ids()?;
        let id = *top.first().ok_or(ServeError::NoAnswer)?;
        self.left -= 1;
        let ends = self.client.public().end_tokens.contains(&id);
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
        Ok(Generated { id, top, text, last, cost })
    }
}

impl Iterator for Generation<'_> {
    type Item = Result<Generated, ServeError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.ended || self.left == 0 {
            // A pass after the end has failed: the session is over.
            return self.failure().map(Err);
        }
        let token = self.token();
        self.ended |= token.is_err();
        Some(token)
    }
}
