//! OpenAI's `/v1/files` and `/v1/batches`, for a server that computes under encryption.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Multipart, Path, State};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json, Router, routing};
use serde_json::Value;

use super::fields::Fields;
use super::refusal::{Refusal, Shape};
use super::served::Edge;
use crate::batches::board::Board;
use crate::batches::lines::ENDPOINT;
use crate::sessions::share::Caller;

type Answered = Result<Json<Value>, Refusal>;

/// The routes.
pub fn routes(board: Arc<Board>) -> Router {
    Router::new()
        .route("/v1/files", routing::post(upload).get(files))
        .route("/v1/files/{id}", routing::get(file).delete(delete))
        .route("/v1/files/{id}/content", routing::get(content))
        .route("/v1/batches", routing::post(create).get(batches))
        .route("/v1/batches/{id}", routing::get(batch))
        .route("/v1/batches/{id}/cancel", routing::post(cancel))
        .route("/v1/models", routing::get(models))
        .route("/v1/models/{name}", routing::get(model))
        .route("/v1/embeddings", routing::post(synchronous))
        .route("/v1/completions", routing::post(synchronous))
        .route("/v1/chat/completions", routing::post(synchronous))
        .route("/embed", routing::post(synchronous))
        .route("/similarity", routing::post(synchronous))
        .route("/", routing::post(synchronous))
        .route("/health", routing::get(async || StatusCode::OK))
        .route("/ready", routing::get(async || StatusCode::OK))
        .with_state(board)
}

fn shaped(answered: Answered) -> Response {
    match answered {
        Ok(json) => json.into_response(),
        Err(refusal) => refusal.answer(Shape::OpenAi),
    }
}

/// `POST /v1/files`: a form with `purpose` and `file`.
async fn upload(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    form: Result<Multipart, axum::extract::multipart::MultipartRejection>,
) -> Response {
    let answered = async {
        let bad = |message: &str| Refusal::new(StatusCode::BAD_REQUEST, "form", message);
        let broken = "the form could not be read";
        let mut form = form.map_err(|_| bad("send a form (multipart/form-data) with `purpose` and `file`"))?;
        let (mut purpose, mut file) = (None, None);
        while let Some(field) = form.next_field().await.map_err(|_| bad(broken))? {
            match field.name() {
                Some("purpose") => purpose = Some(field.text().await.map_err(|_| bad(broken))?),
                Some("file") => {
                    let name: String = field.file_name().unwrap_or("file").chars().take(255).collect();
                    file = Some((name, field.bytes().await.map_err(|_| bad(broken))?));
                }
                _ => return Err(bad("the form has `purpose` and `file`, and nothing else")),
            }
        }
        if purpose.as_deref() != Some("batch") {
            return Err(Refusal::field("purpose", "unsupported", "`purpose` must be \"batch\""));
        }
        let (name, bytes) = file.ok_or_else(|| Refusal::field("file", "missing", "`file` is missing"))?;
        board.upload(caller, &name, &bytes).map(Json)
    };
    shaped(answered.await)
}

async fn files(State(board): State<Arc<Board>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    Json(board.files(caller))
}

async fn file(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    shaped(board.file(caller, &id).map(Json))
}

async fn delete(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    shaped(board.delete(caller, &id).map(Json))
}

async fn content(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    match board.content(caller, &id) {
        Ok(bytes) => {
            let kind = [(header::CONTENT_TYPE, "application/jsonl")];
            (kind, bytes.to_vec()).into_response()
        }
        Err(refusal) => refusal.answer(Shape::OpenAi),
    }
}

/// OpenAI's limits on `metadata`, which the gateway keeps as long as the batch.
fn small(metadata: &Value) -> bool {
    let pair = |(name, value): (&String, &Value)| {
        let text = value.as_str();
        name.chars().count() <= 64 && text.is_some_and(|text| text.chars().count() <= 512)
    };
    match metadata {
        Value::Null => true,
        Value::Object(pairs) => pairs.len() <= 16 && pairs.iter().all(pair),
        _ => false,
    }
}

/// `POST /v1/batches`
async fn create(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Extension(edge): Extension<Arc<Edge>>,
    body: Bytes,
) -> Response {
    let answered = async {
        let mut fields = Fields::parse(&body)?;
        let missing = |name| Refusal::field(name, "missing", format!("`{name}` is missing"));
        let input = fields.text("input_file_id")?;
        let input = input.ok_or_else(|| missing("input_file_id"))?;
        let endpoint = fields.text("endpoint")?.ok_or_else(|| missing("endpoint"))?;
        if endpoint != ENDPOINT {
            let message = format!("`endpoint` must be \"{ENDPOINT}\"");
            return Err(Refusal::field("endpoint", "unsupported", message));
        }
        fields.only("completion_window", |window| window == "24h")?;
        let metadata = fields.take("metadata").unwrap_or_default();
        if !small(&metadata) {
            let message = "`metadata` takes 16 texts of up to 512 characters under names of up to 64";
            return Err(Refusal::field("metadata", "wrong-type", message));
        }
        fields.finish()?;
        // Tokenizing takes a while, and the only HTTP thread has others to serve.
        let made = tokio::task::spawn_blocking(move || board.create(caller, &input, metadata, &edge.door));
        let made = made.await.map_err(|_| crate::sessions::failure::Failure::defect())?;
        made.map(Json)
    };
    shaped(answered.await)
}

async fn batches(State(board): State<Arc<Board>>, Extension(caller): Extension<Caller>) -> Json<Value> {
    Json(board.batches(caller))
}

async fn batch(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    shaped(board.batch(caller, &id).map(Json))
}

async fn cancel(
    State(board): State<Arc<Board>>,
    Extension(caller): Extension<Caller>,
    Path(id): Path<String>,
) -> Response {
    shaped(board.cancel(caller, &id).map(Json))
}

async fn models(State(board): State<Arc<Board>>) -> Json<Value> {
    board.model().named.list()
}

async fn model(State(board): State<Arc<Board>>, Path(name): Path<String>) -> Response {
    board.model().named.found(&name)
}

/// Refuses every route that would answer at once.
async fn synchronous(uri: axum::http::Uri) -> Response {
    let message = "this gateway's server computes under encryption (fhe), for minutes to hours: use /v1/files and \
                   /v1/batches, or a gateway with `--protocol 2pc`";
    let refusal = Refusal::new(StatusCode::BAD_REQUEST, "batches-only", message);
    refusal.answer(Shape::of(uri.path()))
}
