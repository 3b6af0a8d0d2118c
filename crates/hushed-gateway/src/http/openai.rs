//! OpenAI's `/v1/embeddings` and `/v1/models`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::response::{IntoResponse, Response};
use hushed_model::Task;
use serde_json::Value;

use super::fields::Fields;
use super::prepare::how::How;
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
    let mut fields = Fields::parse(body)?;
    let how = How::of(served, &mut fields)?;
    let wanted = Wanted::of(fields, &served.named)?;
    let (named, base64) = (served.named.model.clone(), wanted.base64);
    let texts = how.texts(wanted.texts);
    embed(served, texts, how.too_long, (Task::Embed, asker), move |answers| {
        let vectors: Vec<_> = answers.iter().map(|answer| (how.vector(&answer.values), answer.tokens)).collect();
        let vectors: Vec<_> = vectors.iter().map(|(vector, tokens)| (vector.as_slice(), *tokens)).collect();
        Json(Embeddings::new(&named, &vectors, base64)).into_response()
    })
    .await
}

/// `GET /v1/models`
pub async fn models(State(served): State<Arc<Served>>) -> Json<Value> {
    served.named.list()
}

/// `GET /v1/models/{name}`
pub async fn model(State(served): State<Arc<Served>>, Path(name): Path<String>) -> Response {
    served.named.found(&name)
}
