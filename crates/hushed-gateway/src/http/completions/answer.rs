//! An answer under way: whole or as a stream, in the shape of its route.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::convert::Infallible;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
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
use super::likeliest;
use super::route::Route;
use crate::sessions::failure::Failure;
use crate::sessions::generate::Event;

/// Interval of comments in a stream without tokens, so that the client does not give up.
const ALIVE: Duration = Duration::from_secs(5);

/// The tokens of a request's answers, one answer per prompt, as they come.
pub struct Coming {
    /// `None` once an answer is complete.
    answers: Vec<Option<mpsc::Receiver<Event>>>,
    /// Which is looked at first.
    turn: usize,
}

/// A token as a pass gave it, and the place of its answer.
pub struct Token {
    index: usize,
    id: u32,
    top: Vec<u32>,
    text: Zeroizing<String>,
    last: Option<Finish>,
}

impl Coming {
    /// One receiver per prompt, in their order.
    pub fn new(answers: Vec<mpsc::Receiver<Event>>) -> Self {
        Self { answers: answers.into_iter().map(Some).collect(), turn: 0 }
    }

    /// The next token of any answer; `None` once all are complete.
    fn poll_next(&mut self, cx: &mut Context<'_>) -> Poll<Option<Result<Token, Failure>>> {
        let of = self.answers.len();
        for place in 0..of {
            let index = (self.turn + place) % of;
            let Some(answer) = self.answers.get_mut(index) else { continue };
            let Some(events) = answer else { continue };
            let token = match events.poll_recv(cx) {
                Poll::Pending => continue,
                Poll::Ready(Some(Event::Token { id, top, text, last })) => Token { index, id, top, text, last },
                Poll::Ready(Some(Event::Failed(failure))) => return Poll::Ready(Some(Err(failure))),
                Poll::Ready(None) => return Poll::Ready(Some(Err(Failure::unread()))),
            };
            if token.last.is_some() {
                *answer = None;
            }
            self.turn = index + 1;
            return Poll::Ready(Some(Ok(token)));
        }
        match self.answers.iter().all(Option::is_none) {
            true => Poll::Ready(None),
            false => Poll::Pending,
        }
    }
}

/// An answer under way.
pub struct Answer {
    route: Route,
    /// The fields that every chunk has.
    head: Value,
    prompt_tokens: usize,
    tokens: usize,
    served: Arc<Served>,
    /// How many of the likeliest tokens to show with each token.
    likeliest: Option<usize>,
}

/// A token's id, and the likeliest ones of its pass.
type Likeliest = (u32, Vec<u32>);

/// What has come of one answer.
#[derive(Default)]
struct Text {
    text: Zeroizing<String>,
    tokens: Vec<Likeliest>,
    last: Option<Finish>,
}

impl Answer {
    /// An answer to a prompt of `prompt_tokens` tokens.
    pub fn new(
        served: &Arc<Served>,
        route: Route,
        stream: bool,
        prompt_tokens: usize,
        likeliest: Option<usize>,
    ) -> Self {
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
            served: Arc::clone(served),
            likeliest,
        }
    }

    /// The whole answers, once they are complete.
    ///
    /// # Errors
    /// The reason, if one ended early.
    pub async fn whole(mut self, mut coming: Coming) -> Result<Response, Refusal> {
        let mut texts: Vec<Text> = coming.answers.iter().map(|_| Text::default()).collect();
        while let Some(token) = poll_fn(|cx| coming.poll_next(cx)).await {
            let token = token?;
            self.tokens += 1;
            if let Some(text) = texts.get_mut(token.index) {
                text.text.push_str(&token.text);
                text.last = token.last;
                if self.likeliest.is_some() {
                    text.tokens.push((token.id, token.top));
                }
            }
        }
        let choices = texts.iter().enumerate().map(|(index, text)| self.choice("message", index, text));
        let mut body = self.body(choices.collect());
        put(&mut body, "usage", self.usage());
        Ok(Json(body).into_response())
    }

    /// The tokens as they come: first of all a comment, so that the client sees that it is heard.
    pub fn stream(self, coming: Coming, usage: bool) -> Response {
        let chunks = Chunks { answer: self, coming, usage, then: Then::Comment };
        let alive = KeepAlive::new().interval(ALIVE);
        axum::response::Sse::new(chunks).keep_alive(alive).into_response()
    }

    /// A token or the whole text. In a conversation `part` is a message, or what is added to it.
    fn choice(&self, part: &str, index: usize, Text { text, tokens, last }: &Text) -> Value {
        let text = text.as_str();
        let reason = last.map(|last| match last {
            Finish::End | Finish::Stop => "stop",
            Finish::Length => "length",
        });
        let logprobs = self.likeliest.map(|most| {
            let tokens = tokens.iter().map(|(id, top)| (*id, top.as_slice()));
            likeliest::shown(self.route, &self.served.shared.public, tokens, most)
        });
        let mut choice = json!({ "index": index, "logprobs": logprobs, "finish_reason": reason });
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

    fn body(&self, choices: Value) -> Value {
        let mut body = self.head.clone();
        put(&mut body, "choices", choices);
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
    coming: Coming,
    usage: bool,
    then: Then,
}

/// What comes next in a stream.
enum Then {
    Comment,
    Token,
    Usage,
    Done,
    Nothing,
}

impl Stream for Chunks {
    type Item = Result<Sse, Infallible>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        let this = &mut *self;
        let data = loop {
            break match this.then {
                Then::Nothing => return Poll::Ready(None),
                Then::Comment => {
                    this.then = Then::Token;
                    return Poll::Ready(Some(Ok(Sse::default().comment(""))));
                }
                Then::Done => {
                    this.then = Then::Nothing;
                    "[DONE]".to_owned()
                }
                Then::Usage => {
                    this.then = Then::Done;
                    let mut chunk = this.answer.body(json!([]));
                    put(&mut chunk, "usage", this.answer.usage());
                    chunk.to_string()
                }
                Then::Token => match this.coming.poll_next(cx) {
                    Poll::Pending => return Poll::Pending,
                    Poll::Ready(Some(Ok(token))) => this.token(token),
                    Poll::Ready(Some(Err(failure))) => {
                        this.then = Then::Nothing;
                        Refusal::from(failure).openai().to_string()
                    }
                    Poll::Ready(None) => {
                        this.then = match this.usage {
                            true => Then::Usage,
                            false => Then::Done,
                        };
                        continue;
                    }
                },
            };
        };
        Poll::Ready(Some(Ok(Sse::default().data(data))))
    }
}

impl Chunks {
    fn token(&mut self, token: Token) -> String {
        self.answer.tokens += 1;
        let Token { index, id, top, text, last } = token;
        let choice = self.answer.choice("delta", index, &Text { text, tokens: vec![(id, top)], last });
        self.answer.body(json!([choice])).to_string()
    }
}
