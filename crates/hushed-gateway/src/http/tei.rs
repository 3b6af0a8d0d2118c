//! text-embeddings-inference's routes.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod predict;
mod request;
pub mod rerank;
pub mod tokens;

use std::collections::BTreeMap;
use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hushed_model::Task;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::fields::{Fields, wrong};
use super::prepare::how::{How, unit};
use super::prepare::{Asker, MOST_TEXTS, embed, other_task};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use crate::sessions::Queue;
use crate::sessions::failure::Failure;
use request::{TOKEN_IDS, harmless, merged, shaped};

/// `POST /embed`
pub async fn embed_route(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async {
        let mut fields = merged(Fields::parse(&body)?)?;
        vectors(&served, asker, &mut fields).await
    };
    shaped(answered.await)
}

/// `POST /`: embeddings, similarities or classes, depending on `inputs` and the model.
pub async fn root(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = async {
        let mut fields = merged(Fields::parse(&body)?)?;
        match fields.take("inputs") {
            Some(Value::Object(sentences)) => cosines(&served, asker, fields, Fields::of(sentences)).await,
            inputs if served.shared.public.task() == Task::Classify => {
                fields.put("inputs", inputs);
                predict::classes(&served, asker, fields, true).await
            }
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

async fn vectors(served: &Arc<Served>, asker: Asker, fields: &mut Fields) -> Result<Response, Refusal> {
    let texts = fields.texts("inputs", TOKEN_IDS)?;
    let how = parameters(served, fields)?;
    std::mem::take(fields).finish()?;
    if texts.is_empty() {
        return Err(Refusal::field("inputs", "missing", "there is no text"));
    }
    let texts = how.texts(texts);
    embed(served, texts, how.too_long, (Task::Embed, asker), move |answers| {
        let vectors: Vec<_> = answers.iter().map(|answer| how.vector(&answer.values)).collect();
        let vectors: Vec<&[f32]> = vectors.iter().map(|vector| vector.as_slice()).collect();
        Json(vectors).into_response()
    })
    .await
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
    let how = parameters(served, &mut fields)?;
    fields.finish()?;
    texts.push(Zeroizing::new(source));
    let texts = how.texts(texts);
    embed(served, texts, how.too_long, (Task::Embed, asker), move |answers| {
        let mut vectors: Vec<_> = answers.iter().map(|answer| unit(&how.vector(&answer.values))).collect();
        let source = vectors.pop().unwrap_or_default();
        let cosine =
            |vector: &Zeroizing<Vec<f32>>| -> f32 { vector.iter().zip(source.iter()).map(|(a, b)| a * b).sum() };
        let cosines: Vec<f32> = vectors.iter().map(cosine).collect();
        Json(cosines).into_response()
    })
    .await
}

/// `POST /embed_all` and `/embed_sparse`
pub async fn pooled_only() -> Response {
    let message = "a private run opens one embedding per text, not one per token: use /embed";
    other_task(message).answer(Shape::Tei)
}

/// Reads the fields besides the texts. These routes scale embeddings to length one unless they are asked not to.
fn parameters(served: &Served, fields: &mut Fields) -> Result<How, Refusal> {
    harmless(fields)?;
    let normalise = fields.take("normalize").unwrap_or(Value::Bool(true));
    fields.put("normalize", Some(normalise));
    How::of(served, fields)
}

/// `GET /info`
pub async fn info(State(served): State<Arc<Served>>) -> Json<Value> {
    let shared = &served.shared;
    let held = served.queue.held();
    let most = shared.share.most();
    let kind = match &*served.queue {
        Queue::Embed(_) => match shared.public.labels() {
            Some(names) if shared.public.task() == Task::Classify => {
                let by_id: BTreeMap<String, &String> = names.iter().zip(0..).map(|(n, i)| (i.to_string(), n)).collect();
                let by_name: BTreeMap<&String, usize> = names.iter().zip(0..).collect();
                json!({ "classifier": { "id2label": by_id, "label2id": by_name } })
            }
            _ => json!({ "embedding": { "pooling": pooling(&served) } }),
        },
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
        Ok(Err(failure)) => Refusal::unready(failure).answer(Shape::Tei),
        Err(_) => Refusal::from(Failure::defect()).answer(Shape::Tei),
    }
}
