//! `POST /tokenize` and `/decode`, on this machine: nothing is sent.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::response::{IntoResponse, Response};
use hushed_model::{Piece, Tokenizer};
use serde_json::{Value, json};

use super::request::{TOKEN_IDS, harmless, shaped};
use crate::http::fields::{Fields, wrong};
use crate::http::prepare::how::How;
use crate::http::prepare::{MOST_TEXTS, text_refused};
use crate::http::refusal::Refusal;
use crate::http::served::Served;
use crate::sessions::failure::Failure;

/// Most ids in a request.
const MOST_IDS: usize = 1 << 20;

/// `POST /tokenize`
pub async fn tokenize(State(served): State<Arc<Served>>, body: Bytes) -> Response {
    shaped(apart(move || pieces(&served, &body)).await)
}

/// `POST /decode`
pub async fn decode(State(served): State<Arc<Served>>, body: Bytes) -> Response {
    shaped(apart(move || texts(&served, &body)).await)
}

/// Runs work that takes a while beside the only HTTP thread.
async fn apart(work: impl FnOnce() -> Result<Value, Refusal> + Send + 'static) -> Result<Response, Refusal> {
    let done = tokio::task::spawn_blocking(work).await;
    Ok(Json(done.map_err(|_| Failure::defect())??).into_response())
}

fn tokenizer(served: &Served) -> Result<&Tokenizer, Refusal> {
    served.shared.public.tokenizer().map_err(|error| text_refused(&error, "the model"))
}

fn pieces(served: &Served, body: &[u8]) -> Result<Value, Refusal> {
    let mut fields = Fields::parse(body)?;
    let around = fields.flag("add_special_tokens")?.unwrap_or(true);
    harmless(&mut fields)?;
    let texts = fields.texts("inputs", TOKEN_IDS)?;
    let how = How::of(served, &mut fields)?;
    fields.finish()?;
    if texts.len() > MOST_TEXTS {
        return Err(wrong("inputs", &format!("at most {MOST_TEXTS} strings")));
    }
    let tokenizer = tokenizer(served)?;
    let piece = |piece: Piece| {
        json!({
            "id": piece.id, "text": piece.text, "special": piece.span.is_none(),
            "start": piece.span.map(|(start, _)| start), "stop": piece.span.map(|(_, stop)| stop),
        })
    };
    let one = |(index, text): (usize, &_)| {
        let found = tokenizer.pieces(text, around);
        let found = found.map_err(|error| text_refused(&error, &format!("text {index} (the first is 0)")))?;
        Ok(found.into_iter().map(piece).collect::<Value>())
    };
    let texts = how.texts(texts);
    texts.iter().map(|text| text.as_str()).enumerate().map(|(index, text)| one((index, text))).collect()
}

fn texts(served: &Served, body: &[u8]) -> Result<Value, Refusal> {
    let expected = || wrong("ids", "a list of token ids, or a list of such lists");
    let mut fields = Fields::parse(body)?;
    let skip = fields.flag("skip_special_tokens")?.unwrap_or(true);
    harmless(&mut fields)?;
    let lists = match fields.take("ids") {
        Some(Value::Array(list)) if list.iter().all(Value::is_array) && !list.is_empty() => list,
        Some(list @ Value::Array(_)) => vec![list],
        Some(id @ Value::Number(_)) => vec![json!([id])],
        None => return Err(Refusal::field("ids", "missing", "`ids` is missing")),
        Some(_) => return Err(expected()),
    };
    fields.finish()?;
    let id = |id: &Value| id.as_u64().and_then(|id| u32::try_from(id).ok()).ok_or_else(expected);
    let ids = |list: &Value| list.as_array().ok_or_else(expected)?.iter().map(id).collect::<Result<Vec<u32>, _>>();
    let lists = lists.iter().map(ids).collect::<Result<Vec<_>, _>>()?;
    if lists.iter().map(Vec::len).sum::<usize>() > MOST_IDS {
        return Err(wrong("ids", &format!("at most {MOST_IDS} in all")));
    }
    let tokenizer = tokenizer(served)?;
    Ok(lists.iter().map(|ids| tokenizer.decode(ids, skip)).collect())
}
