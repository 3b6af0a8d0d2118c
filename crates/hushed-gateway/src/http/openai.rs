//! OpenAI's `/v1/embeddings` and `/v1/models`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use serde_json::Value;

use super::fields::Fields;
use super::prepare::{Asker, embed};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use super::wanted::{Embeddings, Wanted};

/// `POST /v1/embeddings`
pub async fn embeddings(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = answer(&served, asker, &body).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

async fn answer(served: &Arc<Served>, asker: Asker, body: &[u8]) -> Result<Response, Refusal> {
    let width = served.shared.public.config.width;
    let wanted = Wanted::of(Fields::parse(body)?, &served.named, width)?;
    let answers = embed(served, wanted.texts, served.truncate, asker).await?;
    let answers = answers.iter().map(|a| (a.values.as_slice(), a.tokens));
    let answers: Vec<_> = answers.collect();
    let embeddings = Embeddings::new(&served.named.model, &answers, wanted.base64);
    Ok(Json(embeddings).into_response())
}

/// `GET /v1/models`
pub async fn models(State(served): State<Arc<Served>>) -> Json<Value> {
    served.named.list()
}

/// `GET /v1/models/{name}`
pub async fn model(State(served): State<Arc<Served>>, Path(name): Path<String>) -> Response {
    served.named.found(&name)
}
