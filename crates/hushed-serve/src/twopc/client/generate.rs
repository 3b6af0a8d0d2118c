//! How a text is continued, and what is checked before anything is sent.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::sync::Arc;

use hushed_model::{Decoder, Message, Prompt, Task, TokenIds, Tokenizer};
use hushed_mpc::formats::{is_long, longest};
use hushed_mpc::{Penalties, Prefix, Terms, TextCache};
use zeroize::Zeroizing;

use super::answer::Made;
use super::generation::{Drafted, Generation};
use super::stop::Stops;
use super::{Client, Offer};
use crate::bundle;
use crate::error::ServeError;
use crate::session::wire::{PrefixFacts, PrefixKind, Refusal};
use crate::twopc::wire::{MAX_DRAFTS, MAX_TEMPERATURE};

/// How to continue a text. No `Debug`: the stop strings may be private.
#[derive(Clone, PartialEq)]
pub struct GenerateOptions {
    /// Maximum number of tokens.
    pub max_tokens: usize,
    /// Pads the prompt to a multiple of this many tokens, which is then all that the server learns of its length.
    /// `None` pads nothing.
    pub bucket: Option<usize>,
    /// From 0, which takes the likeliest token, to 2; the server sees it, in thousandths.
    pub temperature: f64,
    /// With the same seed, the same server draws the same tokens for the same text, bucket and temperature, until it is
    /// restarted; the server sees it. `None` takes a fresh one.
    pub seed: Option<u64>,
    /// What is added to logits and subtracted from them on this side; the server learns nothing of it.
    pub penalties: Penalties,
    /// The text ends before the first of these strings.
    pub stop: Vec<String>,
    /// Runs as many passes as `max_tokens` says, one right after the other, before the first token is handed out:
    /// neither their number nor the pauses between them depend on where the text ends.
    pub pad_output: bool,
    /// The public prefix that the server must have; `None` takes what it has.
    pub public_prefix: Option<String>,
    /// Puts the token that begins a text before the prompt, if it is not there.
    pub begin: bool,
    /// Has products with weights and tables made ahead for at most this many later tokens at a time, before the prompt
    /// and whenever a pass needs more than are held; 0 makes none. The server sees how many.
    pub ahead: u16,
    /// Guesses the next tokens, at most this many and at most as many as the server accepts, and verifies them in one
    /// pass. The guesses are what followed the last tokens where they occurred before, or come from
    /// [`Generation::guessing`]. The text is the same; the server sees how many were guessed and how many were right,
    /// and each counts as a text. 0 guesses none.
    pub draft: u16,
    /// Fetches the public table; see [`Options::public_table`](super::Options::public_table).
    pub public_table: bool,
}

impl Default for GenerateOptions {
    fn default() -> Self {
        Self {
            max_tokens: 32,
            bucket: None,
            temperature: 0.0,
            seed: None,
            penalties: Penalties::default(),
            stop: Vec::new(),
            pad_output: false,
            public_prefix: None,
            begin: false,
            ahead: 0,
            draft: 0,
            public_table: false,
        }
    }
}

impl GenerateOptions {
    /// Checks the ranges of numbers, as far as they do not depend on a model or a server.
    ///
    /// # Errors
    /// [`ServeError::Temperature`], [`ServeError::Penalty`], [`ServeError::EmptyOption`].
    pub fn check(&self) -> Result<(), ServeError> {
        thousandths(self.temperature)?;
        self.penalties.check_ranges()?;
        if self.max_tokens == 0 {
            let name = "the number of tokens";
            return Err(ServeError::EmptyOption { name });
        }
        match self.bucket {
            Some(0) => Err(ServeError::EmptyOption { name: "the bucket" }),
            _ => Ok(()),
        }
    }
}

impl Client {
    /// Continues a text. Nothing is sent before the first token is asked for.
    ///
    /// # Errors
    /// [`ServeError`] if the model does not generate, the text is empty or too long for the request, a temperature or a
    /// penalty is out of range, or the session has too few tokens left.
    pub fn generate(&mut self, prompt: &str, options: &GenerateOptions) -> Result<Generation<'_>, ServeError> {
        self.generate_prompt(&Prompt::text(prompt), options)
    }

    /// Answers a conversation, rendered by the model's chat template.
    ///
    /// # Errors
    /// [`ServeError::Chat`] if the model has no template, or the template does not accept the messages; else as
    /// [`Client::generate`].
    pub fn chat(&mut self, messages: &[Message], options: &GenerateOptions) -> Result<Generation<'_>, ServeError> {
        let prompt = self.render(messages)?;
        self.generate_prompt(&prompt, options)
    }

    /// Like [`Client::generate`], for a prompt that may have been rendered.
    ///
    /// # Errors
    /// As [`Client::generate`].
    pub fn generate_prompt(
        &mut self,
        prompt: &Prompt,
        options: &GenerateOptions,
    ) -> Result<Generation<'_>, ServeError> {
        let Begun { public, ids: new, decoder, drafts } = self.begin(prompt, options)?;
        if !self.takes(options.max_tokens) {
            return Err(ServeError::TooManyTexts { texts: options.max_tokens, limit: self.texts_left() });
        }
        let temperature = thousandths(options.temperature)?;
        // The last token of the answer is not run, and the server ends a text at its own limit.
        let rows = new.rows().total + options.max_tokens - 1;
        let long = is_long(rows.min(self.offer.welcome.max_tokens as usize));
        let before = match &options.public_prefix {
            Some(text) if drafts > 0 => self.public().prefix(text)?.ids().to_vec(),
            None if self.offer.public_head().is_some() => self.public().head().iter().take(public).copied().collect(),
            _ => Vec::new(),
        };
        // Room for all that follows: growing would leave a copy of the text behind.
        let prompt = new.ids().iter().take(new.rows().real);
        let room = before.len() + prompt.len() + options.max_tokens;
        let mut history = Zeroizing::new(Vec::with_capacity(room));
        history.extend(before);
        history.extend(prompt);
        let seed = match options.seed {
            Some(seed) => seed,
            None => fresh_seed()?,
        };
        if options.public_table {
            self.need_table()?;
        }
        Ok(Generation {
            text: TextCache::after(Arc::new(Prefix::of_rows(public)?)).long(long),
            long,
            decoder: Some(decoder),
            stops: Stops::new(&options.stop),
            new,
            left: options.max_tokens,
            passes: options.max_tokens,
            ahead: options.ahead,
            made: Made::default(),
            sent: Vec::new(),
            ready: VecDeque::new(),
            temperature,
            seed,
            penalties: options.penalties.clone(),
            begins: history.len(),
            history,
            drafts,
            dropped: 0,
            guess: None,
            verified: Drafted::default(),
            terms: Terms { padded: options.bucket.is_some(), public_table: options.public_table },
            pad_output: options.pad_output,
            fault: None,
            ended: false,
            client: self,
        })
    }
}

impl Offer {
    /// Renders a conversation with the chat template.
    ///
    /// # Errors
    /// As [`Client::chat`].
    pub fn render(&self, messages: &[Message]) -> Result<Prompt, ServeError> {
        match self.public().task() {
            Task::Generate => Ok(self.public().chat(messages)?),
            _ => Err(self.other_task()),
        }
    }

    /// Checks that a session would continue this prompt.
    ///
    /// # Errors
    /// As [`Client::generate`].
    pub fn check_prompt(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<(), ServeError> {
        match (self.begin(prompt, options)?, self.max_texts()) {
            (_, limit) if options.max_tokens > limit => {
                Err(ServeError::TooManyTexts { texts: options.max_tokens, limit })
            }
            _ => Ok(()),
        }
    }

    fn begin(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<Begun, ServeError> {
        let tokenizer = self.public().tokenizer().ok();
        let Some(decoder) = tokenizer.and_then(Tokenizer::decoder) else {
            return Err(self.other_task());
        };
        options.check()?;
        options.penalties.check(self.public().config.vocabulary)?;
        let (public, ids) = self.prompt(prompt, options)?;
        self.allows(options.ahead, options.draft)?;
        Ok(Begun { public, ids, decoder, drafts: self.drafts(options)? })
    }

    /// Maximum drafts per pass.
    fn drafts(&self, options: &GenerateOptions) -> Result<usize, ServeError> {
        match options.draft.min(self.welcome.max_drafts).min(MAX_DRAFTS) {
            0 => Ok(0),
            _ if options.pad_output => Err(ServeError::DraftsShow),
            drafts => Ok(drafts.into()),
        }
    }

    /// Checks that the server's public prefix is the expected one.
    fn check_prefix(&self, options: &GenerateOptions) -> Result<(), ServeError> {
        let theirs = self.public_prefix().map(|prefix| prefix.text);
        let expected = options.public_prefix.as_ref().map(|text| bundle::hash(text.as_bytes()));
        match expected.is_some() && expected != theirs {
            true => Err(ServeError::OtherPrefix { offered: theirs }),
            false => Ok(()),
        }
    }

    /// The prompt as it will be run, and how many public tokens are before it.
    fn prompt(&self, prompt: &Prompt, options: &GenerateOptions) -> Result<(usize, TokenIds), ServeError> {
        self.check_prefix(options)?;
        let public = self.public();
        let text = |source| ServeError::Text { index: 0, source };
        let (most, limit) = (public.max_tokens, self.max_tokens());
        let tokenizer = public.tokenizer().map_err(text)?;
        let (rows, ids) = match self.public_prefix() {
            Some(prefix) => (prefix.tokens as usize, prompt.encode_behind(tokenizer, most).map_err(text)?),
            None => {
                let ids = prompt.encode(tokenizer, most).map_err(text)?;
                let ids = match options.begin {
                    true => public.begun(ids).map_err(text)?,
                    false => ids,
                };
                let rows = self.offered_head()?.map_or(0, |head| ids.public_rows(head));
                (rows, ids.without_first(rows))
            }
        };
        let needed = self.public_head().is_some_and(|head| head.kind == PrefixKind::NeededHead);
        if needed && rows == 0 {
            return Err(ServeError::Refused(Refusal::NoHead));
        }
        // The last token of the answer is not run.
        let most = most.min(longest(true)).saturating_sub(rows);
        let room = limit.min(most).saturating_sub(options.max_tokens - 1);
        let tokens = ids.rows().total;
        if tokens > room {
            return Err(ServeError::NoRoomForAnswer { prompt: tokens, tokens: options.max_tokens, limit });
        }
        let bucket = options.bucket.unwrap_or(1);
        let padded = tokens.div_ceil(bucket).saturating_mul(bucket).min(room);
        Ok((rows, ids.pad_to(padded, tokenizer.padding_id())))
    }

    /// The public head that the server offers, which has to be the folder's own.
    fn offered_head(&self) -> Result<Option<&[u32]>, ServeError> {
        let Some(offered) = self.public_head() else {
            return Ok(None);
        };
        let head = self.public().head().get(..offered.tokens as usize).unwrap_or_default();
        match PrefixFacts::of_head(head).text == offered.text {
            true => Ok(Some(head)),
            false => Err(ServeError::OtherPrefix { offered: Some(offered.text) }),
        }
    }
}

/// A prompt whose first tokens are public.
struct Begun {
    /// The number of these.
    public: usize,
    /// The others, which are not.
    ids: TokenIds,
    decoder: Decoder,
    /// Maximum drafts per pass.
    drafts: usize,
}

/// A temperature as it is sent.
fn thousandths(temperature: f64) -> Result<u16, ServeError> {
    let most = f64::from(MAX_TEMPERATURE) / 1000.0;
    match (0.0..=most).contains(&temperature) {
        // At most 2000; a non-zero temperature stays non-zero.
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
        assert_eq!((sent(0.0), sent(-0.0), sent(2.0)), (Some(0), Some(0), Some(2000)));
        assert_eq!((sent(1e-9), sent(0.7)), (Some(1), Some(700)));
        for wrong in [-0.1, 2.1, f64::NAN, f64::INFINITY] {
            assert_eq!(sent(wrong), None, "{wrong}");
        }
    }
}
