//! Where texts come from: the command line, a file, or standard input.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use hushed_model::folder::Public;
use hushed_model::{Message, ModelError, Role, TokenIds, TooLong, json_fault, without_mark};
use hushed_serve::ServeError;
use hushed_serve::fhe::Item;

use crate::error::CliError;
use crate::output::Output;

/// The maximum size of an input file, which is read whole.
const MAX_INPUT_BYTES: u64 = 64 << 20;

/// One text, or a file with one text per line.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Texts {
    /// The text
    text: Option<String>,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,
}

impl Texts {
    /// The texts that these arguments give.
    pub fn of(text: Option<String>, input: Option<PathBuf>) -> Texts {
        Texts { text, input }
    }

    /// Reads at least one text. Empty lines are texts too, and the tokenizer will refuse them: skipping them would
    /// shift the indices of the answers.
    pub fn read(&self) -> Result<Vec<String>, CliError> {
        match (&self.text, &self.input) {
            (Some(text), _) => Ok(vec![text.clone()]),
            (None, Some(path)) => read_lines(path),
            (None, None) => Ok(Vec::new()), // excluded by the group above
        }
    }
}

/// Texts, or items to choose from.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Scorable {
    /// The text
    text: Option<String>,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// A file with one item per line: {"prompt": "…", "endings": ["…", "…"], "label": 0}. The texts are each prompt
    /// with each of its endings
    #[arg(long, value_name = "FILE", env = "HUSHED_CHOICES")]
    choices: Option<PathBuf>,
}

/// What was given to [`Scorable`].
pub enum Given {
    Texts(Vec<String>),
    Items(Vec<Item>),
}

impl Scorable {
    /// The bytes of what a network reads; `None` for items.
    pub fn numbers(&self) -> Result<Option<Vec<u8>>, CliError> {
        match (&self.text, &self.input) {
            (Some(text), _) => Ok(Some(text.clone().into_bytes())),
            (None, Some(path)) => read(path).map(Some),
            (None, None) => Ok(None),
        }
    }

    pub fn read(&self) -> Result<Given, CliError> {
        let texts = || Texts::of(self.text.clone(), self.input.clone()).read();
        match &self.choices {
            Some(path) => Ok(Given::Items(items(path)?)),
            None => Ok(Given::Texts(texts()?)),
        }
    }
}

/// Reads the items of a file.
pub fn items(path: &Path) -> Result<Vec<Item>, CliError> {
    Ok(Item::parse(&read_lines(path)?)?)
}

/// One text: the argument, or a whole file.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Prompt {
    /// The text to continue; other users of this machine may see it in the list of processes
    prompt: Option<String>,

    /// A file with the text to continue, all of its lines without the end of the last, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,
}

impl Prompt {
    pub fn read(&self) -> Result<String, CliError> {
        match (&self.prompt, &self.input) {
            (Some(text), _) => Ok(text.clone()),
            (None, Some(path)) => whole(path),
            (None, None) => Ok(String::new()), // excluded by the group above
        }
    }
}

/// A text to search for: the argument, or a whole file.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Query {
    /// What to search for; other users of this machine may see it in the list of processes
    query: Option<String>,

    /// A file with the query, all of its lines without the end of the last, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,
}

/// The first text of every pair that a classifier reads.
#[derive(clap::Args)]
#[group(multiple = false)]
pub struct PairQuery {
    /// The query that is paired with every document; other users of this machine may see it in the list of processes
    #[arg(long, value_name = "TEXT")]
    query: Option<String>,

    /// A file with the query, all of its lines without the end of the last, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_QUERY_FILE")]
    query_file: Option<PathBuf>,
}

impl PairQuery {
    /// Reads the query, if there is one; the documents are in the file `documents`, if they are in one.
    pub fn read(&self, out: &Output, documents: Option<&Path>) -> Result<Option<String>, CliError> {
        note_shown(out, self.query.is_some());
        let Some(path) = &self.query_file else {
            return Ok(self.query.clone());
        };
        if path == Path::new("-") && documents == Some(path) {
            return Err(CliError::OneInput);
        }
        whole(path).map(Some)
    }
}

/// Says that a text on the command line is not private on this machine.
pub fn note_shown(out: &Output, given: bool) {
    if given {
        out.note(
            "note: other users of this machine can see a text on the command line while this runs, and the shell keeps \
             it: --input - reads it from standard input",
        );
    }
}

impl Query {
    pub fn read(&self, out: &Output) -> Result<String, CliError> {
        note_shown(out, self.query.is_some());
        Prompt { prompt: self.query.clone(), input: self.input.clone() }.read()
    }
}

/// A text to continue, or a conversation to answer.
#[derive(clap::Args)]
pub struct Said {
    #[command(flatten)]
    what: What,

    /// With --chat: instructions before the question
    #[arg(long, value_name = "TEXT", requires = "chat", conflicts_with_all = ["prompt", "input", "messages"])]
    system: Option<String>,
}

#[derive(clap::Args)]
#[group(required = true, multiple = false)]
struct What {
    /// The text to continue; other users of this machine may see it in the list of processes
    prompt: Option<String>,

    /// A file with the text to continue, all of its lines without the end of the last, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// Answer this question, using the model's chat template
    #[arg(long, value_name = "TEXT")]
    chat: Option<String>,

    /// Answer a conversation: a JSON file, `-` for standard input, [{"role": "user", "content": "…"}, …] with the roles
    /// system, user and assistant
    #[arg(long, value_name = "FILE")]
    messages: Option<PathBuf>,
}

/// What [`Said`] reads. No `Debug`: it is private.
pub enum Asking {
    Text(String),
    Chat(Vec<Message>),
}

impl Said {
    pub fn read(&self, out: &Output) -> Result<Asking, CliError> {
        note_shown(out, self.what.prompt.is_some() || self.what.chat.is_some());
        if let Some(path) = &self.what.messages {
            let messages = serde_json::from_slice(without_mark(&read(path)?));
            return messages.map(Asking::Chat).map_err(|error| CliError::Messages {
                path: path.clone(),
                line: error.line(),
                column: error.column(),
                why: json_fault(&error),
            });
        }
        let message = |role, content: &String| Message { role, content: content.clone(), name: None };
        if let Some(question) = &self.what.chat {
            let system = self.system.iter().map(|text| message(Role::System, text));
            let question = message(Role::User, question);
            return Ok(Asking::Chat(system.chain([question]).collect()));
        }
        let prompt = Prompt { prompt: self.what.prompt.clone(), input: self.what.input.clone() };
        prompt.read().map(Asking::Text)
    }
}

/// Texts, images, or a batch that was sent before.
#[derive(clap::Args)]
#[group(required = true, multiple = false)]
pub struct Asked {
    /// The text
    text: Option<String>,

    /// A file with one text per line, `-` for standard input
    #[arg(long, value_name = "FILE", env = "HUSHED_INPUT")]
    input: Option<PathBuf>,

    /// With a model of images: a PNG or JPEG file; may be given more than once
    #[arg(long, value_name = "FILE")]
    pub image: Vec<PathBuf>,

    /// With --protocol fhe: fetch the answers to a batch that was sent before, by its job's id or at least the first
    /// eight digits
    #[arg(long, value_name = "ID")]
    pub job: Option<String>,
}

impl Asked {
    /// Like [`Texts::read`]; none for a job.
    pub fn read(&self, out: &Output) -> Result<Vec<String>, CliError> {
        note_shown(out, self.text.is_some());
        let texts = Texts { text: self.text.clone(), input: self.input.clone() };
        texts.read()
    }
}

/// Whether the public head of a generator's texts is left out of private runs.
#[derive(clap::Args)]
pub struct PublicHead {
    /// With a model that generates: treat the first tokens of texts as private too, as `serve --no-public-head` does
    #[arg(long, env = "HUSHED_NO_PUBLIC_HEAD")]
    no_public_head: bool,
}

impl PublicHead {
    /// The tokens of a public head; none if there is none.
    pub fn of<'a>(&self, model: &'a Public) -> &'a [u32] {
        match self.no_public_head {
            true => &[],
            false => model.head(),
        }
    }

    /// Whether it is left out.
    pub fn is_on(&self) -> bool {
        !self.no_public_head
    }
}

/// Whether the token that begins a text is put before each.
#[derive(clap::Args, Default)]
pub struct Begin {
    /// With a model that generates: put the token that begins a text before each, as `generate --begin` does
    #[arg(long, env = "HUSHED_BEGIN")]
    begin: bool,

    /// With a model that generates: take each text as a question, in the model's chat template
    #[arg(long = "questions", conflicts_with = "begin")]
    chat: bool,
}

impl Begin {
    /// The tokens of texts, with what is put before them.
    pub fn tokens(&self, model: &Public, texts: &[String], too_long: &Truncate) -> Result<Vec<TokenIds>, CliError> {
        if !self.chat {
            return self.texts(model, too_long.tokens(model, texts)?);
        }
        let asked = texts.iter().map(|text| {
            let question = Message { role: Role::User, content: text.clone(), name: None };
            let prompt = model.chat(&[question]).map_err(ServeError::from)?;
            let ids = model.tokenizer().and_then(|tokenizer| prompt.encode(tokenizer, model.max_tokens));
            Ok(ids.map_err(ModelError::from)?)
        });
        asked.collect()
    }

    /// The same texts with the token before them.
    pub fn texts(&self, model: &Public, texts: Vec<TokenIds>) -> Result<Vec<TokenIds>, CliError> {
        if !self.begin {
            return Ok(texts);
        }
        let begun = texts
            .into_iter()
            .enumerate()
            .map(|(index, text)| model.begun(text).map_err(|source| CliError::Text { index, source: source.into() }));
        begun.collect()
    }
}

/// What to do with a text of more tokens than the model accepts.
#[derive(clap::Args)]
pub struct Truncate {
    /// Truncate a text that is too long for the model instead of refusing it
    #[arg(long, env = "HUSHED_TRUNCATE")]
    truncate: bool,
}

impl Truncate {
    pub fn choice(&self) -> TooLong {
        if self.truncate { TooLong::Cut } else { TooLong::Refuse }
    }

    /// Pairs of texts, each as the one input that a classifier reads.
    pub fn pairs(&self, model: &Public, pairs: &[[impl AsRef<str>; 2]]) -> Result<Vec<hushed_model::Item>, CliError> {
        let items = pairs.iter().enumerate().map(|(index, [first, second])| {
            let ids = model.pair([first.as_ref(), second.as_ref()], self.choice());
            ids.map(Into::into).map_err(|source| CliError::Text { index, source })
        });
        items.collect()
    }

    /// The token ids of every text. All are tokenised before any work begins, so that a bad line ends a run at once.
    pub fn tokens(&self, model: &Public, texts: &[String]) -> Result<Vec<TokenIds>, CliError> {
        self.tokens_within(model, texts, model.max_tokens, false)
    }

    /// The same for at most `rows` tokens per text, if the model accepts as many. `behind`: texts continue another one.
    pub fn tokens_within(
        &self,
        model: &Public,
        texts: &[String],
        rows: usize,
        behind: bool,
    ) -> Result<Vec<TokenIds>, CliError> {
        let (too_long, limit) = (self.choice(), rows.min(model.max_tokens));
        let tokens = texts.iter().enumerate().map(|(index, text)| {
            let tokenizer = model.tokenizer();
            let ids = tokenizer.and_then(|tokenizer| match behind {
                true => tokenizer.encode_behind(text, limit, too_long),
                false => tokenizer.encode(text, limit, too_long),
            });
            ids.map_err(|source| CliError::Text { index, source: source.into() })
        });
        tokens.collect()
    }
}

/// The lines of a UTF-8 file, without their ends.
pub fn read_lines(path: &Path) -> Result<Vec<String>, CliError> {
    lines(read(path)?, path)
}

/// The bytes of a file of texts, or of standard input.
pub fn read(path: &Path) -> Result<Vec<u8>, CliError> {
    let unreadable = |source| CliError::ReadInput { path: path.to_owned(), source };
    let mut bytes = Vec::new();
    let reader: &mut dyn Read =
        if path == Path::new("-") { &mut io::stdin() } else { &mut File::open(path).map_err(unreadable)? };
    reader.take(MAX_INPUT_BYTES + 1).read_to_end(&mut bytes).map_err(unreadable)?;
    if bytes.len() as u64 > MAX_INPUT_BYTES {
        return Err(CliError::InputTooLarge { path: path.to_owned(), limit: MAX_INPUT_BYTES >> 20 });
    }
    Ok(bytes)
}

/// Decodes what [`read`] gave as text.
fn text(bytes: Vec<u8>, path: &Path) -> Result<String, CliError> {
    let text = String::from_utf8(bytes).map_err(|error| {
        let good = error.utf8_error().valid_up_to();
        let line = 1 + error.as_bytes().iter().take(good).filter(|&&b| b == b'\n').count();
        CliError::NotText { path: path.to_owned(), line }
    })?;
    // Some editors begin a file with a byte order mark; it is not part of the first text.
    match text.strip_prefix('\u{feff}') {
        Some(rest) => Ok(rest.to_owned()),
        None => Ok(text),
    }
}

/// A file that is one text: all of its lines, without the end of the last.
fn whole(path: &Path) -> Result<String, CliError> {
    let mut text = text(read(path)?, path)?;
    let line = text.strip_suffix('\n').map(|rest| rest.strip_suffix('\r').unwrap_or(rest).len());
    text.truncate(line.unwrap_or(text.len()));
    Ok(text)
}

/// The lines of what [`read`] gave.
pub fn lines(bytes: Vec<u8>, path: &Path) -> Result<Vec<String>, CliError> {
    let text = text(bytes, path)?;
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    if lines.iter().all(|line| line.trim().is_empty()) {
        return Err(CliError::NoText { path: path.to_owned() });
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn split(bytes: &[u8]) -> Result<Vec<String>, CliError> {
        lines(bytes.to_vec(), Path::new("x"))
    }

    #[test]
    fn lines_keep_their_places() {
        assert_eq!(split(b"a\n\nb\r\n").unwrap(), ["a", "", "b"]);
        assert_eq!(split(b"\xef\xbb\xbfa").unwrap(), ["a"]);
    }

    #[test]
    fn what_is_not_text_is_refused_with_its_line() {
        assert!(matches!(split(b""), Err(CliError::NoText { .. })));
        assert!(matches!(split(b" \n\n"), Err(CliError::NoText { .. })));
        assert!(matches!(split(b"a\nb\xff\n"), Err(CliError::NotText { line: 2, .. })));
    }

    #[test]
    fn a_whole_file_is_one_text_without_its_last_lines_end() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("text");
        for (bytes, text) in [
            ("a\nb\n", "a\nb"),
            ("a\r\n", "a"),
            ("a\n\n", "a\n"),
            ("a ", "a "),
            ("a\r", "a\r"),
            ("\u{feff}a\n", "a"),
            ("", ""),
        ] {
            std::fs::write(&path, bytes).unwrap();
            assert_eq!(whole(&path).unwrap(), text, "{bytes:?}");
        }
    }

    #[test]
    fn a_missing_file_is_named() {
        let error = read_lines(Path::new("/no/such/file")).unwrap_err();
        assert_eq!(error.exit_code(), 3);
        assert!(error.to_string().contains("/no/such/file"));
    }
}
