//! OpenAI's `/v1/embeddings` and `/v1/models`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::body::Bytes;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, StatusCode};
use axum::response::{IntoResponse, Response};
use axum::{Extension, Json};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::Serialize;
use serde_json::{Value, json};

use super::Served;
use super::fields::{Fields, wrong};
use super::prepare::{Asker, embed, patience};
use super::refusal::{Refusal, Shape};
use crate::sessions::texts::Caller;

const TOKEN_IDS: &str = "lists of token ids are not supported: they are of another model's vocabulary. Send strings \
                         (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))";

#[derive(Serialize)]
struct Embeddings<'a> {
    object: &'static str,
    data: Vec<Embedding<'a>>,
    model: &'a str,
    usage: Usage,
}

#[derive(Serialize)]
struct Embedding<'a> {
    object: &'static str,
    index: usize,
    embedding: Numbers<'a>,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Numbers<'a> {
    Float(&'a [f32]),
    /// Little-endian float32.
    Base64(String),
}

#[derive(Serialize)]
struct Usage {
    prompt_tokens: usize,
    total_tokens: usize,
}

/// `POST /v1/embeddings`
pub async fn embeddings(
    State(served): State<Arc<Served>>,
    Extension(caller): Extension<Caller>,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let asker = Asker {
        caller,
        patience: patience(&headers, served.patience),
    };
    let answered = answer(&served, asker, &body).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

async fn answer(served: &Arc<Served>, asker: Asker, body: &[u8]) -> Result<Response, Refusal> {
    let mut fields = Fields::parse(body)?;
    served.check_model(&mut fields)?;
    let texts = fields.texts("input", TOKEN_IDS)?;
    let base64 = match fields.text("encoding_format")?.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(wrong("encoding_format", "\"float\" or \"base64\"")),
    };
    let width = served.shared.public.config.width;
    if let Some(dimensions) = fields.whole("dimensions")?
        && dimensions != width as u64
    {
        let message = format!("this model has {width} dimensions, and no others");
        return Err(Refusal::field("dimensions", "unsupported", message));
    }
    // Whose end user it is: nobody here asks.
    fields.take("user");
    fields.finish()?;
    if texts.is_empty() {
        return Err(Refusal::field("input", "missing", "`input` is empty"));
    }
    let answers = embed(served, texts, served.truncate, asker).await?;
    let tokens = answers.iter().map(|answer| answer.tokens).sum();
    let data = answers.iter().enumerate().map(|(index, answer)| Embedding {
        object: "embedding",
        index,
        embedding: match base64 {
            false => Numbers::Float(&answer.values),
            true => {
                let bytes: Vec<u8> = answer.values.iter().flat_map(|x| x.to_le_bytes()).collect();
                Numbers::Base64(STANDARD.encode(bytes))
            }
        },
    });
    let embeddings = Embeddings {
        object: "list",
        data: data.collect(),
        model: &served.model,
        usage: Usage {
            prompt_tokens: tokens,
            total_tokens: tokens,
        },
    };
    Ok(Json(embeddings).into_response())
}

/// `GET /v1/models`
pub async fn models(State(served): State<Arc<Served>>) -> Json<Value> {
    Json(json!({ "object": "list", "data": [model_object(&served)] }))
}

/// `GET /v1/models/{name}`
pub async fn model(State(served): State<Arc<Served>>, Path(name): Path<String>) -> Response {
    match served.has_model(&name) {
        true => Json(model_object(&served)).into_response(),
        false => served.unknown_model().answer(Shape::OpenAi),
    }
}

fn model_object(served: &Served) -> Value {
    json!({
        "id": served.model, "object": "model", "created": served.began, "owned_by": "hushed",
        "root": served.shared.bundle.to_string(),
    })
}

impl Served {
    /// That the request is for this model. Without a name it is for the only one there is.
    pub fn check_model(&self, fields: &mut Fields) -> Result<(), Refusal> {
        match fields.text("model")? {
            Some(name) if !self.has_model(&name) => Err(self.unknown_model()),
            _ => Ok(()),
        }
    }

    fn has_model(&self, name: &str) -> bool {
        name == self.model || name == self.shared.bundle.to_string()
    }

    fn unknown_model(&self) -> Refusal {
        let message = format!(
            "there is no such model; this gateway has `{}` (--model-name renames it)",
            self.model
        );
        Refusal {
            param: Some("model".to_owned()),
            ..Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message)
        }
    }
}
