//! OpenAI's `/v1/completions` and `/v1/chat/completions`, whole or as a stream.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod answer;
mod chat;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hushed_serve::{GenerateOptions, Message, Penalties, Prompt};
use serde_json::{Value, json};
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::fields::{Fields, wrong};
use super::prepare::{Asker, other_task, text_refused};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use crate::sessions::Queue;
use crate::sessions::failure::Failure;
use crate::sessions::generate::{Event, Job};
use answer::{Answer, Route, next};

/// OpenAI's defaults.
const MAX_TOKENS: usize = 16;
const TEMPERATURE: f64 = 1.0;
const MOST_STOPS: usize = 4;
/// Most tokens of an answer in a conversation, if there is room and the client does not say.
const CHAT_TOKENS: usize = 64;
/// Number of tokens that may be ready before the client has read the earlier ones.
const AHEAD: usize = 16;

/// What a request asks for. No `Debug`: it is private.
struct Asked {
    text: Text,
    /// As given by the client.
    max_tokens: Option<usize>,
    options: GenerateOptions,
    stream: bool,
    usage: bool,
}

/// The text to continue.
enum Text {
    Plain(Zeroizing<String>),
    Chat(Vec<Message>),
}

/// `POST /v1/completions`
pub async fn completions(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = answer(&served, asker, &body, Route::Completions).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

/// `POST /v1/chat/completions`
pub async fn chat(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = answer(&served, asker, &body, Route::Chat).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

async fn answer(served: &Arc<Served>, asker: Asker, body: &[u8], route: Route) -> Result<Response, Refusal> {
    let mut fields = Fields::parse(body)?;
    served.named.check(&mut fields)?;
    let asked = asked(served, fields, route)?;
    let (stream, with_usage) = (asked.stream, asked.usage);
    let submitting = Arc::clone(served);
    let submitted = tokio::task::spawn_blocking(move || submit(&submitting, asked, asker));
    let (prompt_tokens, mut events) = submitted.await.map_err(|_| Failure::defect())??;
    // An error before the first token becomes a status, not an event.
    let first = next(&mut events).await?;
    let answer = Answer::new(served, route, stream, prompt_tokens);
    match stream {
        true => Ok(answer.stream(first, events, with_usage)),
        false => answer.whole(first, events).await,
    }
}

fn asked(served: &Served, mut fields: Fields, route: Route) -> Result<Asked, Refusal> {
    let text = match route {
        Route::Completions => Text::Plain(prompt(&mut fields)?),
        Route::Chat => Text::Chat(chat::messages(&mut fields)?),
    };
    let stops = match fields.take("stop") {
        None => Vec::new(),
        Some(Value::String(stop)) => vec![stop],
        Some(Value::Array(stops)) if stops.len() <= MOST_STOPS => {
            let strings: Option<Vec<String>> = stops.iter().map(|s| s.as_str().map(str::to_owned)).collect();
            strings.ok_or_else(|| wrong("stop", "a string or up to 4 of them"))?
        }
        Some(_) => return Err(wrong("stop", "a string or up to 4 of them")),
    };
    let mut max_tokens = None;
    // The second is the newer name.
    let names: &[&str] = match route {
        Route::Completions => &["max_tokens"],
        Route::Chat => &["max_tokens", "max_completion_tokens"],
    };
    for name in names {
        let given = fields.whole(name)?;
        if given == Some(0) {
            return Err(wrong(name, "a whole number from 1"));
        }
        max_tokens = given.or(max_tokens);
    }
    let temperature = fields.number("temperature")?.unwrap_or(TEMPERATURE);
    if !(0.0..=2.0).contains(&temperature) {
        return Err(wrong("temperature", "a number from 0 to 2"));
    }
    let options = GenerateOptions {
        // Set once the room is known.
        max_tokens: 0,
        bucket: served.shared.how.bucket,
        temperature,
        // The API's seeds may be negative; any 64 bits will do.
        seed: match fields.take("seed") {
            None => None,
            Some(seed) => Some(
                seed.as_u64()
                    .or_else(|| seed.as_i64().map(|s| s as u64))
                    .ok_or_else(|| wrong("seed", "a whole number"))?,
            ),
        },
        penalties: penalties(&mut fields, served.shared.public.config.vocabulary)?,
        stop: stops,
        pad_output: served.shared.how.pad_output,
        public_prefix: None,
        ahead: served.shared.how.ahead,
        draft: served.shared.how.draft,
        public_table: served.shared.how.public_table,
    };
    let stream = fields.flag("stream")?.unwrap_or(false);
    let usage = match fields.take("stream_options") {
        None => false,
        Some(Value::Object(inside)) => {
            let mut inside = Fields::of(inside);
            let usage = inside.flag("include_usage")?.unwrap_or(false);
            // Padding that hides the sizes of chunks: the connection is loopback or TLS to the client itself.
            inside.take("include_obfuscation");
            inside.finish()?;
            usage
        }
        Some(_) => return Err(wrong("stream_options", "an object")),
    };
    refuse_others(&mut fields)?;
    fields.finish()?;
    Ok(Asked { text, max_tokens: max_tokens.map(|n| usize::try_from(n).unwrap_or(usize::MAX)), options, stream, usage })
}

fn prompt(fields: &mut Fields) -> Result<Zeroizing<String>, Refusal> {
    let ids = "prompts of token ids are not supported: send text";
    let mut prompts = fields.texts("prompt", ids)?;
    match (prompts.pop(), prompts.is_empty()) {
        (Some(prompt), true) => Ok(prompt),
        _ => Err(wrong("prompt", "one string")),
    }
}

/// The terms added to logits on this machine.
fn penalties(fields: &mut Fields, tokens: usize) -> Result<Penalties, Refusal> {
    let logit_bias = match fields.take("logit_bias") {
        None => BTreeMap::new(),
        Some(biases) => {
            serde_json::from_value(biases).map_err(|_| wrong("logit_bias", "an object of token ids and numbers"))?
        }
    };
    let penalties = Penalties {
        presence: fields.number("presence_penalty")?.unwrap_or(0.0),
        frequency: fields.number("frequency_penalty")?.unwrap_or(0.0),
        logit_bias,
    };
    penalties.check(tokens).map_err(|error| Refusal::field(error.field(), "invalid", error.to_string()))?;
    Ok(penalties)
}

/// Refuses what would change which token is drawn: the server draws it from shares, so nobody here has probabilities.
fn refuse_others(fields: &mut Fields) -> Result<(), Refusal> {
    let number = |only: f64| move |value: &Value| value.as_f64() == Some(only);
    fields.only("top_p", number(1.0))?;
    fields.only("n", number(1.0))?;
    fields.only("best_of", number(1.0))?;
    // A factor; shares only take sums.
    fields.only("repetition_penalty", number(1.0))?;
    fields.only("echo", |value| value == &Value::Bool(false))?;
    fields.only("logprobs", |value| value == &Value::Bool(false))?;
    for name in ["top_k", "min_p", "top_logprobs", "suffix"] {
        fields.only(name, |_| false)?;
    }
    let none = |value: &Value| value.as_array().is_some_and(Vec::is_empty);
    for name in ["tools", "functions"] {
        fields.only(name, none)?;
    }
    for name in ["tool_choice", "function_call"] {
        fields.only(name, |value| value == "none")?;
    }
    fields.only("response_format", |value| value == &json!({ "type": "text" }))?;
    // The end user's name: not used here.
    fields.take("user");
    Ok(())
}

fn submit(served: &Served, asked: Asked, asker: Asker) -> Result<(usize, mpsc::Receiver<Event>), Refusal> {
    let Queue::Generate(queue) = &*served.queue else {
        return Err(other_task("this model embeds texts: use /v1/embeddings"));
    };
    let shared = &served.shared;
    let prompt = match &asked.text {
        Text::Plain(text) => Prompt::text(text.as_str()),
        Text::Chat(messages) => shared.public.chat(messages)?,
    };
    let tokenizer = shared.public.tokenizer();
    let ids = tokenizer.and_then(|tokenizer| prompt.encode(tokenizer, shared.max_tokens));
    let prompt_tokens = match ids {
        Ok(ids) => ids.rows().total,
        Err(error) => return Err(text_refused(&error, "the prompt")),
    };
    // The last token is not run.
    let all = shared.max_tokens + 1;
    let most = asked.max_tokens.unwrap_or_else(|| match &asked.text {
        Text::Plain(_) => MAX_TOKENS,
        Text::Chat(_) => {
            let room = all.saturating_sub(prompt_tokens).min(shared.max_texts);
            CHAT_TOKENS.min(room).max(1)
        }
    });
    let room = all.saturating_sub(most);
    if prompt_tokens > room {
        let message = format!(
            "a prompt of {prompt_tokens} tokens and {most} tokens of answer do not fit {}, the most that this server takes",
            shared.max_tokens
        );
        let name = "context_length_exceeded";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, name, message));
    }
    if most > shared.max_texts {
        let message = format!("this server takes at most {} tokens a session: lower `max_tokens`", shared.max_texts);
        return Err(Refusal::field("max_tokens", "too-many-texts", message));
    }
    let rows = shared.rows(prompt_tokens, room);
    let planned = shared.pace.answer(rows, most);
    // A stream's client waits as long as something comes; padded output comes all at once.
    let counted = match asked.stream && !asked.options.pad_output {
        true => 1,
        false => planned.tokens.len(),
    };
    let (events, coming) = mpsc::channel(AHEAD);
    let job = Job {
        caller: asker.caller,
        prompt,
        rows,
        options: GenerateOptions { max_tokens: most, ..asked.options },
        planned,
        events,
    };
    queue.submit(job, counted, &shared.admission(asker.patience))?;
    Ok((prompt_tokens, coming))
}
