//! A conversation as the single text that a model was trained on: the folder's chat template, a Jinja program, is
//! rendered at the client by minijinja with the settings of `transformers`.
//!
//! The template comes from a server, so it is an untrusted program: it has no files and no other templates, and of a
//! clock only the time at which the conversation is rendered, in UTC.
//! Every instruction and every byte that it produces costs *fuel*, which bounds its time and memory by its input. Its
//! recursion is bounded, and it runs on its own stack.
//!
//! Special tokens count as such in the rendered text. They must come from the template: a message that contains one
//! (`<|im_end|>`) could impersonate another speaker, and is refused. A template may also create one from a message
//! without any, by removing text, and so may a tokenizer that folds characters. So the same conversation with every
//! word blanked must give the same special tokens. Errors contain no words of a message.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod clock;
mod json;
mod source;

use std::collections::BTreeMap;
use std::thread;
use std::time::SystemTime;

use minijinja::syntax::SyntaxConfig;
use minijinja::{AutoEscape, Environment, Error, ErrorKind, State, Value};
use minijinja_contrib::pycompat::unknown_method_callback;
use serde::Deserialize;
use zeroize::{Zeroize, Zeroizing};

use self::clock::Clock;
use super::{MAX_TEXT_BYTES, TokenIds, Tokenizer, TooLong};
use crate::error::TextError;

/// Fuel for the instructions of a template, besides that for its messages and for bytes (64 per unit).
const FUEL: usize = 20_000;
const FUEL_A_MESSAGE: usize = 500;
/// How many times a template may copy its input.
const COPIES: usize = 16;
/// In the engine's own measure, in which a macro call counts several times.
const DEPTH: usize = 200;
/// Nested values are dropped recursively, and only fuel bounds their depth.
const STACK_BYTES: usize = 128 << 20;
/// The most messages in a conversation.
pub const MAX_MESSAGES: usize = 2048;

/// Who wrote a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// Instructions before a conversation.
    #[serde(alias = "developer")]
    System,
    /// The person who asks.
    User,
    /// The model.
    Assistant,
}

impl Role {
    /// The role with this name in OpenAI's API, where `developer` is a newer word for `system`.
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

/// One message of a conversation. No `Debug`: it is private.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Message {
    /// Its author.
    pub role: Role,
    /// Its text.
    pub content: String,
    /// The author's own name, which few templates write.
    #[serde(default)]
    pub name: Option<String>,
}

impl Message {
    /// The same with everything but white space replaced by `x`.
    fn blanked(&self) -> Self {
        let blank = |c: char| if c.is_whitespace() { c } else { 'x' };
        let blanked = |text: &String| text.chars().map(blank).collect();
        Self { role: self.role, content: blanked(&self.content), name: self.name.as_ref().map(blanked) }
    }
}

impl Drop for Message {
    fn drop(&mut self) {
        self.content.zeroize();
        self.name.zeroize();
    }
}

/// A text to be continued. No `Debug`: it is private.
#[derive(Clone)]
pub struct Prompt {
    text: Zeroizing<String>,
    /// Rendered by a chat template, so that special tokens in it count as such.
    rendered: bool,
}

/// Why a conversation was refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ChatError {
    /// The folder has no template.
    #[error("this model has no chat template: give it a text to continue instead")]
    NoTemplate,
    /// The template does not work, or exceeds its bounds.
    #[error("the model's chat template cannot be used: {reason}")]
    Template {
        /// The engine's message, without values.
        reason: String,
    },
    /// The template does not accept this conversation.
    #[error("the model's chat template refuses these messages: {reason}")]
    Refused {
        /// In the template's words.
        reason: String,
    },
    /// A message contains something that is not text to the model.
    #[error(
        "message {index} (the first is 0) holds one of the model's special tokens, or makes one together with the message before: take it out"
    )]
    Special {
        /// The index of the message.
        index: usize,
    },
    /// The same, but only after the template or the tokenizer has changed a message.
    #[error(
        "one of the messages becomes one of the model's special tokens in its chat template: take out what looks like one"
    )]
    Becomes,
    /// No message to answer, or too many.
    #[error("{messages} messages were given, and a conversation has from 1 to {MAX_MESSAGES}")]
    Messages {
        /// The number of messages.
        messages: usize,
    },
    /// The rendered text was refused.
    #[error(transparent)]
    Text(#[from] TextError),
}

/// A model's chat template and the special tokens that it names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ChatTemplate {
    source: String,
    /// The special tokens by template name, such as `bos_token`.
    tokens: BTreeMap<String, String>,
}

#[derive(Debug, thiserror::Error)]
#[error("{0}")]
struct Raised(String);

impl Prompt {
    /// A plain text.
    #[must_use]
    pub fn text(text: impl Into<String>) -> Self {
        Self { text: Zeroizing::new(text.into()), rendered: false }
    }

    /// The text to continue.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Its ids, at most `limit` of them.
    ///
    /// # Errors
    /// Those of [`Tokenizer::encode`]; a prompt is never truncated.
    pub fn encode(&self, tokenizer: &Tokenizer, limit: usize) -> Result<TokenIds, TextError> {
        match self.rendered {
            true => tokenizer.encode_rendered(&self.text, limit),
            false => tokenizer.encode(&self.text, limit, TooLong::Refuse),
        }
    }

    /// Its ids after another text, at most `limit` of them: without the special token that begins a text.
    ///
    /// # Errors
    /// Those of [`Prompt::encode`].
    pub fn encode_behind(&self, tokenizer: &Tokenizer, limit: usize) -> Result<TokenIds, TextError> {
        if !self.rendered {
            return tokenizer.encode_behind(&self.text, limit, TooLong::Refuse);
        }
        let all = tokenizer.encode_rendered(&self.text, limit)?;
        let begins = all.ids().first().copied() == tokenizer.around[0] && all.ids().len() > 1;
        let skipped = usize::from(begins);
        Ok(TokenIds::new(all.ids().iter().skip(skipped).copied().collect()))
    }
}

impl ChatTemplate {
    pub(crate) fn new(source: String, tokens: BTreeMap<String, String>) -> Self {
        Self { source, tokens }
    }

    /// The conversation as a text, at the end of which the model's answer begins.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn render(&self, messages: &[Message], tokenizer: &Tokenizer) -> Result<Prompt, ChatError> {
        self.render_at(messages, tokenizer, SystemTime::now())
    }

    /// The same at another time, which a template may write (`strftime_now`).
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn render_at(&self, messages: &[Message], tokenizer: &Tokenizer, now: SystemTime) -> Result<Prompt, ChatError> {
        let now = Clock::new(now);
        let count = messages.len();
        if count == 0 || count > MAX_MESSAGES {
            return Err(ChatError::Messages { messages: count });
        }
        let bytes = messages.iter().map(|message| message.content.len() + message.name.as_ref().map_or(0, String::len));
        let bytes = bytes.sum();
        if bytes > MAX_TEXT_BYTES {
            let limit = MAX_TEXT_BYTES;
            return Err(TextError::TooManyBytes { bytes, limit }.into());
        }
        no_special(messages, tokenizer)?;
        let text = Zeroizing::new(self.on_a_stack(messages, bytes, now)?);
        let blank: Vec<Message> = messages.iter().map(Message::blanked).collect();
        let blank = self.on_a_stack(&blank, bytes, now)?;
        if tokenizer.specials_in(&text)? != tokenizer.specials_in(&blank)? {
            return Err(ChatError::Becomes);
        }
        Ok(Prompt { text, rendered: true })
    }

    /// Checks that the template can render a question.
    ///
    /// # Errors
    /// [`ChatError`].
    pub fn check(&self, tokenizer: &Tokenizer) -> Result<(), ChatError> {
        let question = Message { role: Role::User, content: "a question".to_owned(), name: None };
        self.render(&[question], tokenizer).map(|_| ())
    }

    fn on_a_stack(&self, messages: &[Message], bytes: usize, now: Clock) -> Result<String, ChatError> {
        let unusable = |reason: &str| ChatError::Template { reason: reason.to_owned() };
        thread::scope(|scope| {
            let stack = thread::Builder::new().stack_size(STACK_BYTES);
            let work = || self.rendered(messages, bytes, now);
            let started = stack.spawn_scoped(scope, work);
            let started = started.map_err(|_| unusable("the system gives no thread for it"))?;
            let ended = started.join();
            ended.unwrap_or_else(|_| Err(unusable("the engine panicked")))
        })
    }

    fn rendered(&self, messages: &[Message], bytes: usize, now: Clock) -> Result<String, ChatError> {
        let fuel = FUEL + FUEL_A_MESSAGE * messages.len() + bytes * COPIES / 64;
        let failed = |error: Error| self.failed(&error);
        let env = environment(fuel as u64, now).map_err(failed)?;
        let said = messages.iter().map(|message| {
            let role = ("role", message.role.name());
            let name = message.name.as_ref().map(|name| ("name", name.as_str()));
            Value::from_pairs([role, ("content", &message.content)].into_iter().chain(name))
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
        let source = source::translated(&self.source);
        let template = env.template_from_named_str("chat", &source);
        let text = template.and_then(|template| template.render(context));
        text.map_err(failed)
    }

    /// The error to report. Messages of the engine may contain values, and so may those that a template raises; only
    /// words that occur in the template itself are shown.
    fn failed(&self, error: &Error) -> ChatError {
        let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(error);
        while let Some(this) = cause {
            if let Some(Raised(reason)) = this.downcast_ref() {
                let own = reason.len() <= 300 && self.source.contains(reason);
                let reason = match own {
                    true => reason.clone(),
                    false => "for a reason that is not shown, because it may hold their words".to_owned(),
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

/// Jinja set up as in `transformers`, within bounds.
fn environment(fuel: u64, now: Clock) -> Result<Environment<'static>, Error> {
    let mut env = Environment::new();
    let mut syntax = SyntaxConfig::builder();
    env.set_syntax(syntax.trim_blocks(true).lstrip_blocks(true).build()?);
    env.set_auto_escape_callback(|_| AutoEscape::None);
    env.set_unknown_method_callback(unknown_method_callback);
    env.set_fuel(Some(fuel));
    env.set_recursion_limit(DEPTH);
    env.add_function("raise_exception", |reason: String| -> Result<Value, Error> {
        Err(Error::new(ErrorKind::InvalidOperation, "raised").with_source(Raised(reason)))
    });
    env.add_filter("tojson", json::tojson);
    env.add_filter(source::FORMAT, percent);
    env.add_function("strftime_now", move |state: &State<'_, '_>, format: String| -> Result<String, Error> {
        let most = format.len().saturating_mul(clock::LONGEST);
        state.consume_fuel(most.div_ceil(64) as u64)?;
        Ok(now.format(&format))
    });
    Ok(env)
}

/// Python's `format % values`: a tuple has a value for every directive, and anything else is one value.
fn percent(state: &mut State<'_, '_>, format: &Value, values: &Value) -> Result<Value, Error> {
    let mut arguments = vec![format.clone()];
    match values.is_tuple() {
        true => arguments.extend(values.try_iter()?),
        false => arguments.push(values.clone()),
    }
    state.apply_filter("format", &arguments)
}

/// Checks that no special token comes from a message, or from several that a template joins.
fn no_special(messages: &[Message], tokenizer: &Tokenizer) -> Result<(), ChatError> {
    let mut joined = Zeroizing::new(String::new());
    let mut ends = Vec::with_capacity(messages.len());
    for message in messages {
        joined.push_str(message.name.as_deref().unwrap_or_default());
        joined.push_str(message.content.trim());
        ends.push(joined.len());
    }
    let words = tokenizer.special_words();
    let first = words.iter().filter_map(|word| Some(joined.find(word)? + word.len()));
    match first.min() {
        None => Ok(()),
        Some(end) => Err(ChatError::Special { index: ends.partition_point(|&its| its < end) }),
    }
}
