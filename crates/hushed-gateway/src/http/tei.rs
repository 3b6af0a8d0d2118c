//! text-embeddings-inference's `/embed`, `/`, `/similarity`, `/info`, `/health` and `/ready`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::fields::{Fields, wrong};
use super::prepare::{Asker, MOST_TEXTS, embed};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use crate::sessions::Queue;
use crate::sessions::failure::Failure;

const TOKEN_IDS: &str = "lists of token ids are not supported: send strings";

/// Parameters of a request besides its texts.
struct Parameters {
    truncate: bool,
    /// Put before every text.
    prompt: String,
    /// Whether to scale the answers to length one here.
    normalise: bool,
}

/// `POST /embed`
pub async fn embed_route(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async {
        let mut fields = merged(Fields::parse(&body)?)?;
        vectors(&served, asker, &mut fields).await
    };
    shaped(answered.await)
}

/// `POST /`: embeddings or similarities, depending on `inputs`.
pub async fn root(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async {
        let mut fields = merged(Fields::parse(&body)?)?;
        match fields.take("inputs") {
            Some(Value::Object(sentences)) => cosines(&served, asker, fields, Fields::of(sentences)).await,
            inputs => {
                fields.put("inputs", inputs);
                vectors(&served, asker, &mut fields).await
            }
        }
    };
    shaped(answered.await)
}

/// `POST /similarity`
pub async fn similarity(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async {
        let mut fields = merged(Fields::parse(&body)?)?;
        match fields.take("inputs") {
            Some(Value::Object(sentences)) => cosines(&served, asker, fields, Fields::of(sentences)).await,
            _ => Err(wrong("inputs", "an object with `source_sentence` and `sentences`")),
        }
    };
    shaped(answered.await)
}

fn shaped(answered: Result<Response, Refusal>) -> Response {
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::Tei))
}

async fn vectors(served: &Arc<Served>, asker: Asker, fields: &mut Fields) -> Result<Response, Refusal> {
    let texts = fields.texts("inputs", TOKEN_IDS)?;
    let parameters = parameters(served, fields)?;
    std::mem::take(fields).finish()?;
    let vectors = run(served, asker, texts, &parameters).await?;
    let vectors: Vec<&[f32]> = vectors.iter().map(|vector| vector.as_slice()).collect();
    Ok(Json(vectors).into_response())
}

/// The cosines of a text with others.
async fn cosines(
    served: &Arc<Served>,
    asker: Asker,
    mut fields: Fields,
    mut sentences: Fields,
) -> Result<Response, Refusal> {
    let source = sentences.text("source_sentence")?;
    let source = source.ok_or_else(|| wrong("source_sentence", "a string"))?;
    let mut texts = sentences.texts("sentences", TOKEN_IDS)?;
    sentences.finish()?;
    let parameters = Parameters { normalise: true, ..parameters(served, &mut fields)? };
    fields.finish()?;
    texts.push(Zeroizing::new(source));
    let mut vectors = run(served, asker, texts, &parameters).await?;
    let source = vectors.pop().unwrap_or_default();
    let cosine = |vector: &Zeroizing<Vec<f32>>| -> f32 { vector.iter().zip(source.iter()).map(|(a, b)| a * b).sum() };
    let cosines: Vec<f32> = vectors.iter().map(cosine).collect();
    Ok(Json(cosines).into_response())
}

async fn run(
    served: &Arc<Served>,
    asker: Asker,
    texts: Vec<Zeroizing<String>>,
    parameters: &Parameters,
) -> Result<Vec<Zeroizing<Vec<f32>>>, Refusal> {
    if texts.is_empty() {
        return Err(Refusal::field("inputs", "missing", "there is no text"));
    }
    let texts = match parameters.prompt.as_str() {
        "" => texts,
        prompt => {
            let joined = texts.iter().map(|text| [prompt, text].concat());
            joined.map(Zeroizing::new).collect()
        }
    };
    let answers = embed(served, texts, parameters.truncate, asker).await?;
    let vectors = answers.iter().map(|answer| match parameters.normalise {
        true => unit(&answer.values),
        false => answer.values.clone(),
    });
    Ok(vectors.collect())
}

fn unit(vector: &[f32]) -> Zeroizing<Vec<f32>> {
    let length = vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>();
    let scale = length.sqrt().max(f64::MIN_POSITIVE).recip();
    let scaled = vector.iter().map(|&x| (f64::from(x) * scale) as f32);
    Zeroizing::new(scaled.collect())
}

/// The fields, with those of `parameters` merged in.
fn merged(mut fields: Fields) -> Result<Fields, Refusal> {
    match fields.take("parameters") {
        None => {}
        Some(Value::Object(inside)) => {
            for (name, value) in inside {
                fields.put(&name, Some(value));
            }
        }
        Some(_) => return Err(wrong("parameters", "an object")),
    }
    Ok(fields)
}

fn parameters(served: &Served, fields: &mut Fields) -> Result<Parameters, Refusal> {
    let public = &served.shared.public;
    let truncate = fields.flag("truncate")?.unwrap_or(served.truncate);
    fields.only("truncation_direction", |side| side.as_str().is_some_and(|side| side.eq_ignore_ascii_case("right")))?;
    let width = public.config.width as u64;
    fields.only("dimensions", |given| given.as_u64() == Some(width))?;
    let normalise = fields.flag("normalize")?.unwrap_or(true);
    if !normalise && public.normalise {
        let message = "this model returns only normalised embeddings";
        return Err(Refusal::field("normalize", "unsupported", message));
    }
    let prompt = match fields.text("prompt_name")? {
        None => String::new(),
        Some(name) => {
            let refused = |why: String| Refusal::field("prompt_name", "unsupported", why);
            if !public.pools_prompts {
                let why = "this model leaves prompts out of its pooling, which is not supported";
                return Err(refused(why.to_owned()));
            }
            let found = public.prompts.get(&name).cloned();
            let names: Vec<&str> = public.prompts.keys().map(String::as_str).collect();
            found.ok_or_else(|| refused(format!("this model's prompts are: {}", names.join(", "))))?
        }
    };
    Ok(Parameters { truncate, prompt, normalise: normalise && !public.normalise })
}

/// `GET /info`
pub async fn info(State(served): State<Arc<Served>>) -> Json<Value> {
    let shared = &served.shared;
    let held = served.queue.held();
    let most = shared.share.most();
    let kind = match &*served.queue {
        Queue::Embed(_) => json!({ "embedding": { "pooling": pooling(&served) } }),
        Queue::Generate(_) => json!({ "generation": {} }),
    };
    Json(json!({
        "model_id": served.named.model,
        "model_sha": shared.bundle.to_string(),
        "model_dtype": "float32",
        "model_type": kind,
        "max_input_length": shared.max_tokens,
        "max_batch_tokens": shared.max_pass_tokens,
        "max_client_batch_size": most.min(MOST_TEXTS),
        "max_concurrent_requests": most,
        "waiting": held.waiting,
        "running": held.running,
        "auto_truncate": served.truncate,
        "tokenization_workers": 1,
        "version": env!("CARGO_PKG_VERSION"),
    }))
}

fn pooling(served: &Served) -> &'static str {
    match served.shared.public.pool {
        hushed_model::Pool::Mean => "mean",
        hushed_model::Pool::First => "cls",
        _ => "last_token",
    }
}

/// `GET /health`: whether the gateway itself is up.
pub async fn health() -> StatusCode {
    StatusCode::OK
}

/// `GET /ready`: whether the server would take a session, as a handshake shows.
pub async fn ready(State(served): State<Arc<Served>>) -> Response {
    let looked = Arc::clone(&served);
    match tokio::task::spawn_blocking(move || looked.shared.look()).await {
        Ok(Ok(())) => StatusCode::OK.into_response(),
        Ok(Err(failure)) => {
            // Whatever it is, no request would be answered.
            Refusal { status: StatusCode::SERVICE_UNAVAILABLE, ..failure.into() }.answer(Shape::Tei)
        }
        Err(_) => Refusal::from(Failure::defect()).answer(Shape::Tei),
    }
}
