//! A request for embeddings and its answer in OpenAI's JSON, alone or as a line of a batch.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use axum::Json;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hushed_serve::Digest;
use serde::Serialize;
use serde_json::{Value, json};
use zeroize::Zeroizing;

use super::clock::now;
use super::fields::harmless::{CALLER, EMBEDDINGS};
use super::fields::{Fields, wrong};
use super::refusal::{Refusal, Shape};
use crate::config::GatewayConfig;

const TOKEN_IDS: &str = "lists of token ids are not supported: they are of another model's vocabulary. Send strings \
                         (LangChain: OpenAIEmbeddings(check_embedding_ctx_length=False))";

/// The only model, as requests name it.
#[derive(Clone, Debug)]
pub struct Named {
    /// Its name.
    pub model: String,
    /// Another name that is accepted: the hash of its bundle or of its manifest.
    pub hash: Digest,
    /// Further names, which programs already use.
    aliases: Vec<String>,
    /// Whether every other name is accepted too.
    any: bool,
    /// When the gateway started, in seconds since 1970.
    began: u64,
}

/// A request for embeddings.
pub struct Wanted {
    /// The texts, at least one.
    pub texts: Vec<Zeroizing<String>>,
    /// Whether to send the numbers as little-endian float32 in base64.
    pub base64: bool,
}

#[derive(Serialize)]
pub struct Embeddings<'a> {
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

impl Wanted {
    /// Reads the fields of a body, but those that say [how](super::prepare::how::How) its texts are run.
    ///
    /// # Errors
    /// 400 for a field, 404 for another model.
    pub fn of(mut fields: Fields, named: &Named) -> Result<Wanted, Refusal> {
        named.check(&mut fields)?;
        let texts = fields.texts("input", TOKEN_IDS)?;
        let base64 = match fields.text("encoding_format")?.as_deref() {
            None | Some("float") => false,
            Some("base64") => true,
            Some(_) => return Err(wrong("encoding_format", "\"float\" or \"base64\"")),
        };
        fields.harmless(&[CALLER, EMBEDDINGS], false)?;
        fields.finish()?;
        match texts.is_empty() {
            true => Err(Refusal::field("input", "missing", "`input` is empty")),
            false => Ok(Wanted { texts, base64 }),
        }
    }
}

impl<'a> Embeddings<'a> {
    /// The answers with their texts' token counts, in order.
    pub fn new(model: &'a str, answers: &[(&'a [f32], usize)], base64: bool) -> Embeddings<'a> {
        let tokens = answers.iter().map(|(_, tokens)| tokens).sum();
        let data = answers.iter().zip(0..).map(|((values, _), index)| Embedding {
            object: "embedding",
            index,
            embedding: match base64 {
                false => Numbers::Float(values),
                true => {
                    let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
                    Numbers::Base64(STANDARD.encode(bytes))
                }
            },
        });
        Embeddings {
            object: "list",
            data: data.collect(),
            model,
            usage: Usage { prompt_tokens: tokens, total_tokens: tokens },
        }
    }
}

impl Named {
    /// The name that is configured, or one derived from the hash.
    pub fn new(config: &GatewayConfig, hash: Digest) -> Named {
        let digits: String = hash.to_string().chars().take(12).collect();
        let model = config.model_name.clone().unwrap_or_else(|| format!("hushed-{digits}"));
        Named { model, hash, aliases: config.aliases.clone(), any: config.any_model, began: now() }
    }

    /// Checks that a request is for this model. Without a name it is for the only one there is.
    pub fn check(&self, fields: &mut Fields) -> Result<(), Refusal> {
        match fields.text("model")? {
            Some(name) if !self.is(&name) => Err(self.unknown()),
            _ => Ok(()),
        }
    }

    /// Whether this is one of its names.
    pub fn is(&self, name: &str) -> bool {
        let known = name == self.model || name == self.hash.to_string() || self.aliases.iter().any(|a| a == name);
        known || self.any
    }

    /// OpenAI's list of models.
    pub fn list(&self) -> Json<Value> {
        let names = std::iter::once(&self.model).chain(&self.aliases);
        let all: Vec<Value> = names.map(|name| self.object(name)).collect();
        Json(json!({ "object": "list", "data": all }))
    }

    /// The model of this name, in OpenAI's JSON.
    pub fn found(&self, name: &str) -> Response {
        match self.is(name) {
            true => Json(self.object(name)).into_response(),
            false => self.unknown().answer(Shape::OpenAi),
        }
    }

    fn object(&self, name: &str) -> Value {
        json!({
            "id": name, "object": "model", "created": self.began, "owned_by": "hushed",
            "root": self.hash.to_string(),
        })
    }

    /// The 404 refusal.
    pub fn unknown(&self) -> Refusal {
        let message = format!(
            "there is no such model; this gateway has `{}` (--model-name renames it, --model-alias adds a name, and \
             --any-model takes every name)",
            self.model
        );
        Refusal { param: Some("model".to_owned()), ..Refusal::new(StatusCode::NOT_FOUND, "model_not_found", message) }
    }
}
