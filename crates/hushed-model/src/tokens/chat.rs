//! A conversation as the one text that a model was trained on: its folder's chat template, a Jinja program, rendered at
//! the client by minijinja with the settings of `transformers`.
//!
//! The template comes from a server, so it is a stranger's program: it has no files, no clock and no other templates.
//! Its *fuel* pays for every instruction and for every byte that it makes, so that time and memory are bounded by what
//! it was given; its recursion is bounded, and it runs on a stack of its own.
//!
//! Special tokens count in what was rendered. Those are the template's: a message that holds one (`<|im_end|>`) could
//! pretend to be another's, and is refused. A template can also make one of a message that holds none, by what it takes
//! out, and so can a tokenizer that folds characters: the same conversation with every word blanked must give the same
//! special tokens. No error holds words of a message.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::thread;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use super::{MAX_TEXT_BYTES, TokenIds, Tokenizer, TooLong};
use crate::error::TextError;

/// Instructions of a template, beside those for its messages and for bytes (64 to a unit).
const FUEL: usize = 20_000;
const FUEL_A_MESSAGE: usize = 500;
/// How often a template may copy what it was given.
const COPIES: usize = 16;
/// The engine's own measure, in which a call of a macro counts for several.
const DEPTH: usize = 200;
/// Values of values of values are dropped recursively, and fuel alone bounds how deep they are.
const STACK_BYTES: usize = 128 << 20;
/// Most messages of a conversation.
pub const MAX_MESSAGES: usize = 2048;

/// Who says something.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions before a conversation.
    #[serde(alias = "developer")]
    System,
    /// The one who asks.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// By its name in the API of OpenAI, where `developer` is a newer word for `system`.
    #[must_use]
    pub fn named(name: &str) -> Option<Self> {
        match name {
            "system" | "developer" => Some(Self::System),
            "user" => Some(Self::User),
            "assistant" => Some(Self::Assistant),
            _ => None,
        }
    }

    fn name(self) -> &'static str {
        match self {
            Self::System => "system",
            Self::User => "user",
            Self::Assistant => "assistant",
        }
    }
}

/// One of a conversation. No `Debug`: it is private.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Whose.
    pub role: Role,
    /// What it says.
    pub content: String,
}

impl Message {
    /// The same with an `x` for everything but white space.
    fn blanked(&self) -> Self {
        let blank = |c: char| if c.is_whitespace() { c } else { 'x' };
        Self {
            role: self.role,
            content: self.content.chars().map(blank).collect(),
        }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.content.zeroize();
    }
}

/// A text to be continued. No `Debug`: it is private.
#[derive(Clone)]
pub struct Prompt {
    text: Zeroizing<String>,
    /// By a chat template, so that special tokens in it are such.
    rendered: bool,
}

/// Why a conversation was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The folder has none.
    #[error("this model has no chat template: give it a text to continue instead")]
    NoTemplate,
    /// It does not work, or takes more than it may.
    #[error("the model's chat template cannot be used: {reason}")]
    Template {
        /// As the engine says it, without values.
        reason: String,
    },
    /// The template takes no such conversation.
    #[error("the model's chat template refuses these messages: {reason}")]
    Refused {
        /// In the template's words.
        reason: String,
    },
    /// Something in a message that is not text to the model.
    #[error(
        "message {index} (the first is 0) holds one of the model's special tokens, or makes one together with the message before: take it out"
    )]
    Special {
        /// Which message.
        index: usize,
    },
    /// The same, but only once the template or the tokenizer has changed a message.
    #[error(
        "one of the messages becomes one of the model's special tokens in its chat template: take out what looks like one"
    )]
    Becomes,
    /// Nothing to answer, or too much.
    #[error("{messages} messages were given, and a conversation has from 1 to {MAX_MESSAGES}")]
    Messages {
        /// How many.
        messages: usize,
    },
    /// What was rendered.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A model's chat template and the special tokens that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
    /// `bos_token` and the like, by these names.
    tokens: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Prompt {
    /// A text as it is.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self {
            text: Zeroizing::new(text.into()),
            rendered: false,
        }
    }

    /// What will be continued.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its ids, at most `limit`.
    ///
    /// # Errors
    /// As [`Tokenizer::encode`]; a prompt is never cut.
    pub fn encode(&self, tokenizer: &Tokenizer, limit: usize) -> Result<TokenIds, TextError> {
        match self.rendered {
            true => tokenizer.encode_rendered(&self.text, limit),
            false => tokenizer.encode(&self.text, limit, TooLong::Refuse),
        }
    }

    /// Its ids behind another text, at most `limit`: without the special token that begins a text.
    ///
    /// # Errors
    /// As [`Prompt::encode`].
    pub fn encode_behind(
        &self,
        tokenizer: &Tokenizer,
        limit: usize,
    ) -> Result<TokenIds, TextError> {
        if !self.rendered {
            return tokenizer.encode_behind(&self.text, limit, TooLong::Refuse);
        }
        let all = tokenizer.encode_rendered(&self.text, limit)?;
        let begins = all.ids().first().copied() == tokenizer.around[0] && all.ids().len() > 1;
        let skipped = usize::from(begins);
        Ok(TokenIds::new(
            all.ids().iter().skip(skipped).copied().collect(),
        ))
    }
}

impl ChatTemplate {
    pub(crate) fn new(source: String, tokens: BTreeMap<String, String>) -> Self {
        Self { source, tokens }
    }

    /// The conversation as a text, at whose end the model's answer begins.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn render(&self, messages: &[Message], tokenizer: &Tokenizer) -> Result<Prompt, ChatError> {
        let count = messages.len();
        if count == 0 || count > MAX_MESSAGES {
            return Err(ChatError::Messages { messages: count });
        }
        let bytes = messages.iter().map(|message| message.content.len()).sum();
        if bytes > MAX_TEXT_BYTES {
            let limit = MAX_TEXT_BYTES;
            return Err(TextError::TooManyBytes { bytes, limit }.into());
        }
        no_special(messages, tokenizer)?;
        let text = Zeroizing::new(self.on_a_stack(messages, bytes)?);
        let blank: Vec<Message> = messages.iter().map(Message::blanked).collect();
        let blank = self.on_a_stack(&blank, bytes)?;
        if tokenizer.specials_in(&text)? != tokenizer.specials_in(&blank)? {
            return Err(ChatError::Becomes);
        }
        Ok(Prompt {
            text,
            rendered: true,
        })
    }

    /// Whether it renders a question at all.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<(), ChatError> {
        let question = Message {
            role: Role::User,
            content: "a question".to_owned(),
        };
        self.render(&[question], tokenizer).map(|_| ())
    }

    fn on_a_stack(&self, messages: &[Message], bytes: usize) -> Result<String, ChatError> {
        let unusable = |reason: &str| ChatError::Template {
            reason: reason.to_owned(),
        };
        thread::scope(|scope| {
            let stack = thread::Builder::new().stack_size(STACK_BYTES);
            let work = || self.rendered(messages, bytes);
            let started = stack.spawn_scoped(scope, work);
            let started = started.map_err(|_| unusable("the system gives no thread for it"))?;
            let ended = started.join();
            ended.unwrap_or_else(|_| Err(unusable("the engine panicked")))
        })
    }

    fn rendered(&self, messages: &[Message], bytes: usize) -> Result<String, ChatError> {
        let fuel = FUEL + FUEL_A_MESSAGE * messages.len() + bytes * COPIES / 64;
        let failed = |error: Error| self.failed(&error);
        let env = environment(fuel as u64).map_err(failed)?;
        let said = messages.iter().map(|message| {
            let role = ("role", message.role.name());
            Value::from_pairs([role, ("content", &message.content)])
        });
        let given = [
            ("messages", Value::from(said.collect::<Vec<_>>())),
            ("add_generation_prompt", Value::from(true)),
            ("tools", Value::from(())),
            ("documents", Value::from(())),
        ];
        let tokens = self.tokens.iter();
        let tokens = tokens.map(|(name, token)| (name.as_str(), Value::from(token.as_str())));
        let context = Value::from_pairs(given.into_iter().chain(tokens));
        let template = env.template_from_named_str("chat", &self.source);
        let text = template.and_then(|template| template.render(context));
        text.map_err(failed)
    }

    /// What an error may say: the engine's messages can hold values, and so may what a template raises. Only words that
    /// the template has itself are shown.
    fn failed(&self, error: &Error) -> ChatError {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(this) = cause {
            if let Some(Raised(reason)) = this.downcast_ref() {
                let own = reason.len() <= 300 && self.source.contains(reason);
                let reason = match own {
                    true => reason.clone(),
                    false => {
                        "for a reason that is not shown, because it may hold their words".to_owned()
                    }
                };
                return ChatError::Refused { reason };
            }
            cause = this.source();
        }
        let line = error.line().map(|line| format!(", line {line}"));
        let reason = format!("{}{}", error.kind(), line.unwrap_or_default());
        ChatError::Template { reason }
    }
}

/// As `transformers` sets Jinja up, within bounds.
fn environment(fuel: u64) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    env.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(unknown_method_callback);
    env.set_fuel(Some(fuel));
    env.set_recursion_limit(DEPTH);
    env.add_function(
        "raise_exception",
        |reason: String| -> Result<Value, Error> {
            Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(reason)))
        },
    );
    Ok(env)
}

/// That no special token comes from a message, nor from several that a template puts next to each other.
fn no_special(messages: &[Message], tokenizer: &Tokenizer) -> Result<(), ChatError> {
    let mut joined = Zeroizing::new(String::new());
    let mut ends = Vec::with_capacity(messages.len());
    for message in messages {
        joined.push_str(message.content.trim());
        ends.push(joined.len());
    }
    let words = tokenizer.special_words();
    let first = words
        .iter()
        .filter_map(|word| Some(joined.find(word)? + word.len()));
    match first.min() {
        None => Ok(()),
        Some(end) => Err(ChatError::Special {
            index: ends.partition_point(|&its| its < end),
        }),
    }
}
