//! OpenAI's `/v1/completions` and `/v1/chat/completions`, whole or as a stream.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod answer;
mod chat;
mod likeliest;
mod route;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::Response;
use hushed_model::counted;
use hushed_serve::{GenerateOptions, Message, Penalties, Prompt, Task};
use serde_json::Value;
use tokio::sync::mpsc;
use zeroize::Zeroizing;

use super::fields::harmless::{CALLER, CHAT, COMPLETIONS, GENERATE, STREAM};
use super::fields::{Fields, wrong};
use super::prepare::{Asker, other_task, text_refused};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use crate::sessions::failure::Failure;
use crate::sessions::generate::{Event, Job};
use crate::sessions::{Queue, Shared};
use answer::{Answer, Coming};
use route::Route;

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
    /// How many of the likeliest tokens to show with each token.
    likeliest: Option<usize>,
}

/// The text or texts to continue.
enum Text {
    Plain(Vec<Zeroizing<String>>),
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
    let (stream, with_usage, likeliest) = (asked.stream, asked.usage, asked.likeliest);
    let submitting = Arc::clone(served);
    let submitted = tokio::task::spawn_blocking(move || submit(&submitting, asked, asker));
    let (prompt_tokens, events) = submitted.await.map_err(|_| Failure::defect())??;
    let answer = Answer::new(served, route, stream, prompt_tokens, likeliest);
    match stream {
        true => Ok(answer.stream(Coming::new(events), with_usage)),
        false => answer.whole(Coming::new(events)).await,
    }
}

fn asked(served: &Served, mut fields: Fields, route: Route) -> Result<Asked, Refusal> {
    let text = match route {
        Route::Completions => Text::Plain(prompts(&mut fields)?),
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
    for name in ["max_tokens", "max_completion_tokens"] {
        let from_one = || wrong(name, "a whole number from 1");
        let given = fields.whole(name).map_err(|_| from_one())?;
        if given == Some(0) {
            return Err(from_one());
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
            Some(seed) => Some(any_64_bits(&seed).ok_or_else(|| wrong("seed", "a whole number"))?),
        },
        penalties: penalties(&mut fields, served.shared.public.config.vocabulary)?,
        stop: stops,
        pad_output: served.shared.how.pad_output,
        public_prefix: None,
        begin: false,
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
            inside.harmless(&[STREAM], false)?;
            inside.finish()?;
            usage
        }
        Some(_) => return Err(wrong("stream_options", "an object")),
    };
    let own = match route {
        Route::Completions => COMPLETIONS,
        Route::Chat => CHAT,
    };
    let likeliest = likeliest::asked(&mut fields, route, &served.shared)?;
    fields.harmless(&[CALLER, GENERATE, own], temperature == 0.0)?;
    fields.finish()?;
    let max_tokens = max_tokens.map(|n| usize::try_from(n).unwrap_or(usize::MAX));
    Ok(Asked { text, max_tokens, options, stream, usage, likeliest })
}

/// A whole number, however it is written.
fn any_64_bits(seed: &Value) -> Option<u64> {
    let whole = || seed.as_f64().filter(|x| x.fract() == 0.0).map(|x| x as i64 as u64);
    seed.as_u64().or_else(|| seed.as_i64().map(|s| s as u64)).or_else(whole)
}

fn prompts(fields: &mut Fields) -> Result<Vec<Zeroizing<String>>, Refusal> {
    let ids = "prompts of token ids are not supported: send text";
    let prompts = fields.texts("prompt", ids)?;
    match prompts.is_empty() {
        true => Err(wrong("prompt", "a string or a list of strings")),
        false => Ok(prompts),
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

type Submitted = (usize, Vec<mpsc::Receiver<Event>>);

/// Queues a job per prompt; the tokens of all prompts, and where those of the answers come.
fn submit(served: &Served, asked: Asked, asker: Asker) -> Result<Submitted, Refusal> {
    let Queue::Generate(queue) = &*served.queue else {
        return Err(other_task(match served.shared.public.task() {
            Task::Classify => "this model classifies texts: use /predict",
            _ => "this model embeds texts: use /v1/embeddings",
        }));
    };
    let shared = &served.shared;
    let prompts = match &asked.text {
        Text::Plain(texts) => texts.iter().map(|text| Prompt::text(text.as_str())).collect(),
        Text::Chat(messages) => vec![shared.public.chat(messages)?],
    };
    let (mut jobs, mut coming, mut tokens) = (Vec::new(), Vec::new(), 0);
    for prompt in prompts {
        let (rows, most) = room(shared, &prompt, &asked)?;
        tokens += rows;
        let rows = shared.rows(rows, shared.max_tokens + 1 - most);
        let (events, answer) = mpsc::channel(AHEAD);
        let options = GenerateOptions { max_tokens: most, ..asked.options.clone() };
        let planned = shared.pace.answer(rows, most);
        jobs.push(Job { caller: asker.caller, prompt, rows, options, planned, events });
        coming.push(answer);
    }
    // A stream's client waits as long as something comes; padded output comes all at once.
    let counted = match asked.stream && !asked.options.pad_output {
        true => 1,
        false => usize::MAX,
    };
    let texts = jobs.len();
    let submit = || Ok(queue.submit(jobs, counted, &shared.admission(asker.patience))?);
    served.edge.door.charged(asker.caller, texts, submit)?;
    Ok((tokens, coming))
}

/// The tokens of a prompt, and the most of its answer.
fn room(shared: &Shared, prompt: &Prompt, asked: &Asked) -> Result<(usize, usize), Refusal> {
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
    if prompt_tokens > all.saturating_sub(most) {
        let message = format!(
            "a prompt of {} and {} of answer do not fit {}, the most that this server takes",
            counted(prompt_tokens, "token"),
            counted(most, "token"),
            shared.max_tokens
        );
        let name = "context_length_exceeded";
        return Err(Refusal::new(StatusCode::BAD_REQUEST, name, message));
    }
    if most > shared.max_texts {
        let message =
            format!("this server takes at most {} a session: lower `max_tokens`", counted(shared.max_texts, "token"));
        return Err(Refusal::field("max_tokens", "too-many-texts", message));
    }
    Ok((prompt_tokens, most))
}
