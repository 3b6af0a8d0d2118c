//! An answer under way: whole or as a stream, in the shape of its route.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::convert::Infallible;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::response::sse::{Event as Sse, KeepAlive};
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use hushed_serve::Finish;
use serde_json::{Value, json};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::super::clock::now;
use super::super::refusal::Refusal;
use super::super::served::Served;
use crate::sessions::failure::Failure;
use crate::sessions::generate::Event;

/// Interval of comments in a stream without tokens, so that the client does not give up.
const ALIVE: Duration = Duration::from_secs(5);

/// The route, which determines the shape.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Route {
    /// `/v1/completions`
    Completions,
    /// `/v1/chat/completions`
    Chat,
}

/// Waits for the next token.
///
/// # Errors
/// The reason why there is none.
pub async fn next(events: &mut mpsc::Receiver<Event>) -> Result<Token, Refusal> {
    match events.recv().await {
        Some(Event::Token { text, last }) => Ok(Token { text, last }),
        Some(Event::Failed(failure)) => Err(failure.into()),
        None => Err(Failure::unread().into()),
    }
}

/// A token as a pass gave it.
pub struct Token {
    text: Zeroizing<String>,
    last: Option<Finish>,
}

/// An answer under way.
pub struct Answer {
    route: Route,
    /// The fields that every chunk has.
    head: Value,
    prompt_tokens: usize,
    tokens: usize,
}

impl Answer {
    /// An answer to a prompt of `prompt_tokens` tokens.
    pub fn new(served: &Served, route: Route, stream: bool, prompt_tokens: usize) -> Self {
        let (prefix, object) = match (route, stream) {
            (Route::Completions, _) => ("cmpl", "text_completion"),
            (Route::Chat, false) => ("chatcmpl", "chat.completion"),
            (Route::Chat, true) => ("chatcmpl", "chat.completion.chunk"),
        };
        Self {
            route,
            head: json!({
                "id": format!("{prefix}-{}", served.number()),
                "object": object,
                "created": now(),
                "model": served.named.model,
            }),
            prompt_tokens,
            tokens: 0,
        }
    }

    /// The whole answer, once it is complete.
    ///
    /// # Errors
    /// The reason, if it ended early.
    pub async fn whole(mut self, first: Token, mut events: mpsc::Receiver<Event>) -> Result<Response, Refusal> {
        let mut text = Zeroizing::new(String::new());
        let mut token = first;
        loop {
            self.tokens += 1;
            text.push_str(&token.text);
            if let Some(last) = token.last {
                let usage = self.usage();
                let mut body = self.body(self.choice("message", &text, Some(last)));
                put(&mut body, "usage", usage);
                return Ok(Json(body).into_response());
            }
            token = next(&mut events).await?;
        }
    }

    /// Its tokens as they come.
    pub fn stream(self, first: Token, events: mpsc::Receiver<Event>, usage: bool) -> Response {
        let chunks = Chunks { answer: self, first: Some(first), events, usage, then: Then::Token };
        let alive = KeepAlive::new().interval(ALIVE);
        axum::response::Sse::new(chunks).keep_alive(alive).into_response()
    }

    /// A token or the whole text. In a conversation `part` is a message, or what is added to it.
    fn choice(&self, part: &str, text: &str, last: Option<Finish>) -> Value {
        let reason = last.map(|last| match last {
            Finish::End | Finish::Stop => "stop",
            Finish::Length => "length",
        });
        let mut choice = json!({ "index": 0, "logprobs": null, "finish_reason": reason });
        match self.route {
            Route::Completions => put(&mut choice, "text", text.into()),
            // The role is sent once.
            Route::Chat if self.tokens <= 1 || part == "message" => {
                let said = json!({ "role": "assistant", "content": text });
                put(&mut choice, part, said);
            }
            Route::Chat => put(&mut choice, part, json!({ "content": text })),
        }
        choice
    }

    fn body(&self, choice: Value) -> Value {
        let mut body = self.head.clone();
        put(&mut body, "choices", json!([choice]));
        body
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
                        Poll::Ready(Some(Event::Token { text, last })) => Some(Ok(Token { text, last })),
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
        let choice = self.answer.choice("delta", &token.text, token.last);
        self.answer.body(choice).to_string()
    }
}
