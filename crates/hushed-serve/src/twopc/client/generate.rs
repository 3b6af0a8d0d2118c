//! A text continued token by token: each is one pass, whose answer the client puts into the next.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::time::Instant;

use hushed_model::{TextStream, TokenIds, TooLong};
use hushed_mpc::{Input, TextCache, next_token};

use super::stop::Stops;
use super::{Client, Cost};
use crate::error::ServeError;
use crate::twopc::wire::{MAX_TEMPERATURE, Next, Request};

/// How to continue a text.
#[derive(Clone, Debug, PartialEq)]
pub struct GenerateOptions {
    /// Most tokens.
    pub max_tokens: usize,
    /// From 0, which takes the likeliest token, to 2; the server sees it, in thousandths.
    pub temperature: f64,
    /// With the same seed the same server draws the same tokens for the same text; the server sees it. `None` takes a
    /// fresh one.
    pub seed: Option<u64>,
    /// The text ends before the first of these.
    pub stop: Vec<String>,
    /// Runs as many passes as `max_tokens` says also where the text ends before, so that the server does not learn where.
    pub pad_output: bool,
    /// Fetches the public table, as [`Options::public_table`](super::Options::public_table) says.
    pub public_table: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 64,
            temperature: 0.0,
            seed: None,
            stop: Vec::new(),
            pad_output: false,
            public_table: false,
        }
    }
}

/// One token of an answer. No `Debug`: it is private.
#[derive(Clone)]
pub struct Generated {
    /// Its id.
    pub id: u32,
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

/// A text that is being continued: an iterator of tokens. Dropped before its end it leaves the session ready for another
/// text; after an error the session is over.
pub struct Generation<'a> {
    client: &'a mut Client,
    text: TextCache,
    stream: TextStream,
    stops: Stops,
    /// The rows of the next pass.
    new: Vec<u32>,
    /// Passes that are left.
    left: usize,
    temperature: u16,
    seed: u64,
    pad_output: bool,
    public_table: bool,
    ended: bool,
}

impl Client {
    /// Continues a text. Nothing is sent before the first token is asked for.
    ///
    /// # Errors
    /// [`ServeError`] for a model that does not generate, a text that is empty or too long for what is asked, a
    /// temperature out of range, more tokens than the session has left.
    pub fn generate(
        &mut self,
        prompt: &str,
        options: &GenerateOptions,
    ) -> Result<Generation<'_>, ServeError> {
        let temperature = thousandths(options.temperature)?;
        if options.max_tokens == 0 {
            let name = "the number of tokens";
            return Err(ServeError::EmptyOption { name });
        }
        let limit = self.max_tokens();
        let public = self.public();
        let text = |source| ServeError::Text { index: 0, source };
        let new = public
            .tokenizer
            .encode(prompt, public.max_tokens, TooLong::Refuse);
        let new = new.map_err(text)?.ids().to_vec();
        // The last token that is answered is not run.
        let rows = new.len().saturating_add(options.max_tokens - 1);
        if rows > limit {
            return Err(ServeError::NoRoomForAnswer {
                prompt: new.len(),
                tokens: options.max_tokens,
                limit,
            });
        }
        if options.max_tokens > self.texts_left() {
            return Err(ServeError::TooManyTexts {
                texts: options.max_tokens,
                limit: self.texts_left(),
            });
        }
        let seed = match options.seed {
            Some(seed) => seed,
            None => fresh_seed()?,
        };
        let stream = public.tokenizer.stream();
        if options.public_table {
            self.need_table()?;
        }
        Ok(Generation {
            text: TextCache::default(),
            stream,
            stops: Stops::new(&options.stop),
            new,
            left: options.max_tokens,
            temperature,
            seed,
            pad_output: options.pad_output,
            public_table: options.public_table,
            ended: false,
            client: self,
        })
    }
}

impl Generation<'_> {
    /// Tokens of the text so far, the prompt's counted.
    #[must_use]
    pub fn tokens(&self) -> usize {
        self.text.rows() + self.new.len()
    }

    /// What the draws depend on beside the server's secret.
    #[must_use]
    pub fn seed(&self) -> u64 {
        self.seed
    }

    /// One pass: the id of the token that follows.
    fn pass(&mut self) -> Result<(u32, Cost), ServeError> {
        let began = Instant::now();
        let before = self.client.stats();
        let input = TokenIds::new(std::mem::take(&mut self.new));
        let request = Request::Next(Next {
            begins: self.text.rows() == 0,
            rows: u32::try_from(input.rows().total).unwrap_or(u32::MAX),
            padded: false,
            public_table: self.public_table,
            temperature: self.temperature,
            seed: self.seed,
        });
        self.client.ask(&request)?;
        let terms = hushed_mpc::Terms {
            padded: false,
            public_table: self.public_table,
        };
        let client = &mut *self.client;
        let input = Input::Texts(vec![input], terms);
        let id = next_token(
            &mut client.backend,
            &client.program,
            &mut self.text,
            &input,
            None,
        )?;
        let id = id.ok_or(ServeError::NoAnswer)?;
        client.texts += 1;
        self.left -= 1;
        self.new.push(id);
        let cost = Cost {
            time: began.elapsed(),
            stats: client.stats().since(&before),
        };
        Ok((id, cost))
    }

    fn token(&mut self) -> Result<Generated, ServeError> {
        let (id, cost) = self.pass()?;
        let ends = self.client.public().end_token == Some(id);
        let mut text = match ends {
            true => String::new(),
            false => self.stream.push(id),
        };
        let mut last = match (ends, self.left) {
            (true, _) => Some(Finish::End),
            (false, 0) => Some(Finish::Length),
            _ => None,
        };
        if last.is_some() {
            text.push_str(&self.stream.finish());
        }
        let (text, stopped) = self.stops.push(&text, last.is_some());
        if stopped {
            last = Some(Finish::Stop);
        }
        self.ended = last.is_some();
        while self.ended && self.pad_output && self.left > 0 {
            self.pass()?;
        }
        Ok(Generated {
            id,
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
            return None;
        }
        let token = self.token();
        self.ended |= token.is_err();
        Some(token)
    }
}

/// A temperature as it is sent.
fn thousandths(temperature: f64) -> Result<u16, ServeError> {
    let most = f64::from(MAX_TEMPERATURE) / 1000.0;
    match (0.0..=most).contains(&temperature) {
        // At most 2000; one that is not 0 stays so.
        true if temperature > 0.0 => Ok(((temperature * 1000.0).round() as u16).max(1)),
        true => Ok(0),
        false => Err(ServeError::Temperature { most }),
    }
}

fn fresh_seed() -> Result<u64, ServeError> {
    getrandom::u64().map_err(|_| ServeError::NoRandomness)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn temperatures() {
        let sent = |t| thousandths(t).ok();
        assert_eq!(
            (sent(0.0), sent(-0.0), sent(2.0)),
            (Some(0), Some(0), Some(2000))
        );
        assert_eq!((sent(1e-9), sent(0.7)), (Some(1), Some(700)));
        for wrong in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
            assert_eq!(sent(wrong), None, "{wrong}");
        }
    }
}
