//! The lines of a batch: requests for embeddings as JSONL, and their answers as JSONL.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeSet;

use hushed_model::TextError;
use hushed_serve::ServeError;
use hushed_serve::fhe::{ClientModel, FheJobError};
use hushed_serve::{Category, TooLong};
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use crate::http::fields::Fields;
use crate::http::refusal::Refusal;
use crate::http::wanted::{Embeddings, Named, Wanted};

/// The only endpoint of batches.
pub const ENDPOINT: &str = "/v1/embeddings";
/// Most faults that are listed.
const FAULTS: usize = 100;
/// Longest `custom_id`.
const CUSTOM_ID: usize = 512;

/// The model that lines are checked against.
pub struct Model {
    /// Manifest and public model.
    pub client: ClientModel,
    /// Its name.
    pub named: Named,
    /// What to do with texts that are too long.
    pub too_long: TooLong,
}

/// A request of a batch, and its answers as they arrive.
pub struct Line {
    custom_id: String,
    base64: bool,
    /// Tokens of each text.
    pub(super) tokens: Vec<usize>,
    answers: Vec<Option<Zeroizing<Vec<f32>>>>,
    /// The reason, if it is not answered.
    refusal: Option<Refusal>,
}

/// A line that is not a request, for which the whole batch fails.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    code: &'static str,
    message: String,
    line: usize,
}

impl Fault {
    /// OpenAI's error object; lines count from 1.
    pub fn object(&self) -> Value {
        json!({ "code": self.code, "message": self.message, "line": self.line, "param": null })
    }
}

/// The lines, and the texts of each.
pub type Parsed = (Vec<Line>, Vec<Vec<Zeroizing<String>>>);

/// Reads the lines of a file. A line that is a request but asks for something unsupported, or has a text that cannot be
/// run, is refused alone.
///
/// # Errors
/// Lines that are not requests to this endpoint, and ids that occur twice.
pub fn parse(bytes: &[u8], model: &Model) -> Result<Parsed, Vec<Fault>> {
    let (mut lines, mut texts, mut faults) = (Vec::new(), Vec::new(), Vec::new());
    let mut ids = BTreeSet::new();
    for (number, line) in (1..).zip(bytes.split(|b| *b == b'\n')) {
        if line.trim_ascii().is_empty() {
            continue;
        }
        match request(line, &mut ids) {
            Ok((custom_id, body)) => {
                let (line, asked) = Line::of(custom_id, body, model);
                lines.push(line);
                texts.push(asked);
            }
            Err((code, message)) if faults.len() < FAULTS => faults.push(Fault { code, message, line: number }),
            Err(_) => {}
        }
    }
    if lines.is_empty() && faults.is_empty() {
        faults.push(Fault { code: "empty_file", message: "the file has no requests".to_owned(), line: 1 });
    }
    match faults.is_empty() {
        true => Ok((lines, texts)),
        false => Err(faults),
    }
}

type Wrong = (&'static str, String);

/// A line's id and body.
fn request(line: &[u8], ids: &mut BTreeSet<String>) -> Result<(String, Fields), Wrong> {
    let json = |refusal: Refusal| ("invalid_json_line", refusal.message);
    let mut fields = Fields::parse(line).map_err(json)?;
    let invalid = |message: &str| ("invalid_request", message.to_owned());
    let id = fields.text("custom_id").ok().flatten();
    let id = id.filter(|id| (1..=CUSTOM_ID).contains(&id.len()));
    let id = id.ok_or_else(|| invalid("`custom_id` must be a string of 1 to 512 bytes"))?;
    if fields.text("method").ok().flatten().as_deref() != Some("POST") {
        return Err(invalid("`method` must be \"POST\""));
    }
    if fields.text("url").ok().flatten().as_deref() != Some(ENDPOINT) {
        return Err(invalid("`url` must be \"/v1/embeddings\""));
    }
    let Some(Value::Object(body)) = fields.take("body") else {
        return Err(invalid("`body` must be an object"));
    };
    fields.finish().map_err(|refusal| ("invalid_request", refusal.message))?;
    match ids.insert(id.clone()) {
        true => Ok((id, Fields::of(body))),
        false => Err(("duplicate_custom_id", "this `custom_id` was used before".to_owned())),
    }
}

impl Line {
    fn of(custom_id: String, body: Fields, model: &Model) -> (Line, Vec<Zeroizing<String>>) {
        let width = model.client.plan().width;
        let mut body = body;
        let whole = body.only("dimensions", |given| given.as_u64() == Some(width as u64));
        let checked = whole.and_then(|()| Wanted::of(body, &model.named)).and_then(|wanted| {
            let counted = wanted.texts.iter().enumerate().map(|(index, text)| {
                let counted = model.client.count(index, text, model.too_long);
                counted.map_err(|error| refused(&error))
            });
            Ok((counted.collect::<Result<Vec<_>, _>>()?, wanted))
        });
        let line = Line { custom_id, base64: false, tokens: Vec::new(), answers: Vec::new(), refusal: None };
        match checked {
            Err(refusal) => {
                let refusal = Some(refusal);
                (Line { refusal, ..line }, Vec::new())
            }
            Ok((tokens, wanted)) => {
                let line =
                    Line { base64: wanted.base64, answers: tokens.iter().map(|_| None).collect(), tokens, ..line };
                (line, wanted.texts)
            }
        }
    }

    /// Stores the answer to a text.
    pub fn answer(&mut self, index: usize, values: Zeroizing<Vec<f32>>) {
        if let Some(place) = self.answers.get_mut(index) {
            *place = Some(values);
        }
    }

    /// Whether it was refused for its own content.
    pub fn is_refused(&self) -> bool {
        self.refusal.is_some()
    }

    /// Writes the line of its answer, once it has all answers, or of its refusal. `id` is one of this gateway's.
    pub fn write(&self, id: &str, model: &str, out: &mut Vec<u8>) {
        let written = match &self.refusal {
            Some(refusal) => self.answered(id, refusal.status.as_u16(), refusal.openai()),
            None => {
                let values = self.answers.iter().map(|a| a.as_ref().map_or(&[][..], |a| a));
                let answers: Vec<_> = values.zip(self.tokens.iter().copied()).collect();
                self.answered(id, 200, Embeddings::new(model, &answers, self.base64))
            }
        };
        out.extend_from_slice(&written);
        out.push(b'\n');
    }

    fn answered(&self, id: &str, status_code: u16, body: impl Serialize) -> Vec<u8> {
        let response = Response { status_code, request_id: id, body };
        let answered = Answered { id, custom_id: &self.custom_id, error: None, response };
        // Numbers and strings always have a JSON form.
        serde_json::to_vec(&answered).unwrap_or_default()
    }
}

#[derive(Serialize)]
struct Answered<'a, B> {
    id: &'a str,
    custom_id: &'a str,
    /// For OpenAI's own failures.
    error: Option<()>,
    response: Response<'a, B>,
}

#[derive(Serialize)]
struct Response<'a, B> {
    status_code: u16,
    request_id: &'a str,
    body: B,
}

/// 400 with the position of a text, never its words.
fn refused(error: &ServeError) -> Refusal {
    let name = match error {
        ServeError::Fhe(FheJobError::TextTooLong { .. })
        | ServeError::Text { source: TextError::TooManyBytes { .. }, .. } => "context_length_exceeded",
        error if error.category() == Category::Input => "text-refused",
        error => error.name(),
    };
    let status = axum::http::StatusCode::BAD_REQUEST;
    Refusal::new(status, name, error.to_string())
}
