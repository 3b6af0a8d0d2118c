//! OpenAI's `/v1/completions`, whole or as a stream.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::{HeaderMap, StatusCode};
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use hushed_serve::{Finish, GenerateOptions, TooLong};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::Served;
use super::fields::{Fields, wrong};
use super::prepare::{other_task, patience, tokens};
use super::refusal::{Refusal, Shape};
use crate::sessions::Queue;
use crate::sessions::failure::Failure;
use crate::sessions::generate::{Event, Job};

/// OpenAI's defaults.
const MAX_TOKENS: u64 = 16;
const TEMPERATURE: f64 = 1.0;
const MOST_STOPS: usize = 4;
/// Tokens that may be ready before the client has read the earlier ones.
const AHEAD: usize = 16;
/// A comment in a stream without tokens keeps the client's patience.
const ALIVE: Duration = Duration::from_secs(5);

/// What a request asks for. No `Debug`: it is private.
struct Asked {
    prompt: Zeroizing<String>,
    options: GenerateOptions,
    stream: bool,
    usage: bool,
}

/// `POST /v1/completions`
pub async fn completions(
    State(served): State<Arc<Served>>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let answered = answer(&served, &headers, &body).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

/// `POST /v1/chat/completions`: bundles carry no chat templates.
pub async fn chat() -> Response {
    let message = "this model has no chat template: send a prompt to /v1/completions";
    let status = StatusCode::BAD_REQUEST;
    Refusal::new(status, "no-chat-template", message).answer(Shape::OpenAi)
}

async fn answer(
    served: &Arc<Served>,
    headers: &HeaderMap,
    body: &[u8],
) -> Result<Response, Refusal> {
    let mut fields = Fields::parse(body)?;
    served.named.check(&mut fields)?;
    let asked = asked(served, fields)?;
    let (stream, with_usage) = (asked.stream, asked.usage);
    let patience = patience(headers, served.patience);
    let submitting = Arc::clone(served);
    let submitted = tokio::task::spawn_blocking(move || submit(&submitting, asked, patience));
    let (prompt_tokens, mut events) = submitted.await.map_err(|_| Failure::defect())??;
    // An error before the first token is a status, not an event.
    let first = next(&mut events).await?;
    let head = json!({
        "id": format!("cmpl-{}", served.number()),
        "object": "text_completion",
        "created": super::now(),
        "model": served.named.model,
    });
    let answer = Answer {
        head,
        prompt_tokens,
        tokens: 0,
    };
    match stream {
        true => Ok(answer.stream(first, events, with_usage)),
        false => answer.whole(first, events).await,
    }
}

fn asked(served: &Served, mut fields: Fields) -> Result<Asked, Refusal> {
    let mut prompts = fields.texts(
        "prompt",
        "prompts of token ids are not supported: send text",
    )?;
    let (Some(prompt), true) = (prompts.pop(), prompts.is_empty()) else {
        return Err(wrong("prompt", "one string"));
    };
    let stops = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(stops)) if stops.len() <= MOST_STOPS => {
            let strings: Option<Vec<String>> = stops
                .iter()
                .map(|s| s.as_str().map(str::to_owned))
                .collect();
            strings.ok_or_else(|| wrong("stop", "a string or up to 4 of them"))?
        }
        Some(_) => return Err(wrong("stop", "a string or up to 4 of them")),
    };
    let max_tokens = fields.whole("max_tokens")?.unwrap_or(MAX_TOKENS);
    let temperature = fields.number("temperature")?.unwrap_or(TEMPERATURE);
    if max_tokens == 0 {
        return Err(wrong("max_tokens", "a whole number from 1"));
    }
    if !(0.0..=2.0).contains(&temperature) {
        return Err(wrong("temperature", "a number from 0 to 2"));
    }
    let options = GenerateOptions {
        max_tokens: usize::try_from(max_tokens).unwrap_or(usize::MAX),
        bucket: served.shared.how.bucket,
        temperature,
        // The API's seeds may be negative; any 64 bits do.
        seed: match fields.take("seed") {
            None => None,
            Some(seed) => Some(
                seed.as_u64()
                    .or_else(|| seed.as_i64().map(|s| s as u64))
                    .ok_or_else(|| wrong("seed", "a whole number"))?,
            ),
        },
        stop: stops,
        pad_output: served.shared.how.pad_output,
        public_table: served.shared.how.public_table,
    };
    let stream = fields.flag("stream")?.unwrap_or(false);
    let usage = match fields.take("stream_options") {
        None => false,
        Some(Value::Object(inside)) => {
            let mut inside = Fields::of(inside);
            let usage = inside.flag("include_usage")?.unwrap_or(false);
            // Padding of chunks against their sizes: the way is loopback or TLS to the client itself.
            inside.take("include_obfuscation");
            inside.finish()?;
            usage
        }
        Some(_) => return Err(wrong("stream_options", "an object")),
    };
    refuse_others(&mut fields)?;
    fields.finish()?;
    Ok(Asked {
        prompt,
        options,
        stream,
        usage,
    })
}

/// What would change which token is drawn: the server draws it from shares, so nobody here has probabilities.
fn refuse_others(fields: &mut Fields) -> Result<(), Refusal> {
    let number = |only: f64| move |value: &Value| value.as_f64() == Some(only);
    fields.only("top_p", number(1.0))?;
    fields.only("n", number(1.0))?;
    fields.only("best_of", number(1.0))?;
    for penalty in ["presence_penalty", "frequency_penalty"] {
        fields.only(penalty, number(0.0))?;
    }
    fields.only("repetition_penalty", number(1.0))?;
    fields.only("logit_bias", |value| {
        value.as_object().is_some_and(serde_json::Map::is_empty)
    })?;
    fields.only("echo", |value| value == &Value::Bool(false))?;
    for name in ["top_k", "min_p", "logprobs", "suffix"] {
        fields.only(name, |_| false)?;
    }
    // Whose end user it is: nobody here asks.
    fields.take("user");
    Ok(())
}

fn submit(
    served: &Served,
    asked: Asked,
    patience: Duration,
) -> Result<(usize, mpsc::Receiver<Event>), Refusal> {
    let Queue::Generate(queue) = &*served.queue else {
        return Err(other_task("this model embeds texts: use /v1/embeddings"));
    };
    let shared = &served.shared;
    let prompt_tokens = tokens(shared, 0, &asked.prompt, TooLong::Refuse)?;
    let most = asked.options.max_tokens;
    // The last token is not run.
    let room = (shared.max_tokens + 1).saturating_sub(most);
    if prompt_tokens > room {
        let message = format!(
            "a prompt of {prompt_tokens} tokens and {most} tokens of answer do not fit {}, the most that this server takes",
            shared.max_tokens
        );
        let name = "context_length_exceeded";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, name, message));
    }
    if most > shared.max_texts {
        let message = format!(
            "this server takes at most {} tokens a session: lower `max_tokens`",
            shared.max_texts
        );
        return Err(Refusal::field("max_tokens", "too-many-texts", message));
    }
    let rows = shared.rows(prompt_tokens, room);
    let planned = shared.pace.answer(rows, most);
    // A stream is patient as long as something comes; what is padded comes all at once.
    let counted = match asked.stream && !asked.options.pad_output {
        true => 1,
        false => planned.len(),
    };
    let (events, coming) = mpsc::channel(AHEAD);
    let job = Job {
        prompt: asked.prompt,
        rows,
        options: asked.options,
        planned,
        events,
    };
    queue.submit(job, counted, &shared.admission(patience))?;
    Ok((prompt_tokens, coming))
}

async fn next(events: &mut mpsc::Receiver<Event>) -> Result<Token, Refusal> {
    match events.recv().await {
        Some(Event::Token { text, last }) => Ok(Token { text, last }),
        Some(Event::Failed(failure)) => Err(failure.into()),
        None => Err(Failure::unread().into()),
    }
}

struct Token {
    text: Zeroizing<String>,
    last: Option<Finish>,
}

/// An answer under way.
struct Answer {
    /// What every chunk has.
    head: Value,
    prompt_tokens: usize,
    tokens: usize,
}

impl Answer {
    async fn whole(
        mut self,
        first: Token,
        mut events: mpsc::Receiver<Event>,
    ) -> Result<Response, Refusal> {
        let mut text = Zeroizing::new(String::new());
        let mut token = first;
        loop {
            self.tokens += 1;
            text.push_str(&token.text);
            if let Some(last) = token.last {
                let usage = self.usage();
                let mut body = self.chunk(&text, Some(last));
                put(&mut body, "usage", usage);
                return Ok(Json(body).into_response());
            }
            token = next(&mut events).await?;
        }
    }

    fn stream(self, first: Token, events: mpsc::Receiver<Event>, usage: bool) -> Response {
        let chunks = Chunks {
            answer: self,
            first: Some(first),
            events,
            usage,
            then: Then::Token,
        };
        let alive = KeepAlive::new().interval(ALIVE);
        axum::response::Sse::new(chunks)
            .keep_alive(alive)
            .into_response()
    }

    fn chunk(&self, text: &str, last: Option<Finish>) -> Value {
        let reason = last.map(|last| match last {
            Finish::End | Finish::Stop => "stop",
            Finish::Length => "length",
        });
        let mut chunk = self.head.clone();
        let choice = json!({ "index": 0, "text": text, "logprobs": null, "finish_reason": reason });
        put(&mut chunk, "choices", json!([choice]));
        chunk
    }

    fn usage(&self) -> Value {
        json!({
            "prompt_tokens": self.prompt_tokens,
            "completion_tokens": self.tokens,
            "total_tokens": self.prompt_tokens + self.tokens,
        })
    }
}

fn put(object: &mut Value, name: &str, value: Value) {
    if let Some(object) = object.as_object_mut() {
        object.insert(name.to_owned(), value);
    }
}

/// The events of a stream.
struct Chunks {
    answer: Answer,
    first: Option<Token>,
    events: mpsc::Receiver<Event>,
    usage: bool,
    then: Then,
}

/// What comes next in a stream.
enum Then {
    Token,
    Usage,
    Done,
    Nothing,
}

impl Stream for Chunks {
    type Item = Result<Sse, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let data = match this.then {
            Then::Nothing => return Poll::Ready(None),
            Then::Done => {
                this.then = Then::Nothing;
                "[DONE]".to_owned()
            }
            Then::Usage => {
                this.then = Then::Done;
                let mut chunk = this.answer.head.clone();
                put(&mut chunk, "choices", json!([]));
                put(&mut chunk, "usage", this.answer.usage());
                chunk.to_string()
            }
            Then::Token => {
                let event = match this.first.take() {
                    Some(token) => Some(Ok(token)),
                    None => match this.events.poll_recv(cx) {
                        Poll::Pending => return Poll::Pending,
                        Poll::Ready(Some(Event::Token { text, last })) => {
                            Some(Ok(Token { text, last }))
                        }
                        Poll::Ready(Some(Event::Failed(failure))) => Some(Err(failure)),
                        Poll::Ready(None) => None,
                    },
                };
                match event.unwrap_or_else(|| Err(Failure::unread())) {
                    Ok(token) => this.token(&token),
                    Err(failure) => {
                        this.then = Then::Nothing;
                        Refusal::from(failure).openai().to_string()
                    }
                }
            }
        };
        Poll::Ready(Some(Ok(Sse::default().data(data))))
    }
}

impl Chunks {
    fn token(&mut self, token: &Token) -> String {
        self.answer.tokens += 1;
        if token.last.is_some() {
            self.then = match self.usage {
                true => Then::Usage,
                false => Then::Done,
            };
        }
        self.answer.chunk(&token.text, token.last).to_string()
    }
}
