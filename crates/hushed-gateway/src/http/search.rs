//! `/v1/search`: searches the server's documents by a private query, in the JSON of `hushed search`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use axum::Json;
use axum::body::Bytes;
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use hushed_model::counted;
use hushed_mpc::Index;
use hushed_serve::{Found, Record, ServeError, TooLong, Wanted};
use serde_json::{Map, Value, json};
use tokio::sync::oneshot;
use zeroize::Zeroizing;

use super::fields::{Fields, wrong};
use super::prepare::{Asker, other_task, tokens};
use super::refusal::{Refusal, Shape};
use super::served::Served;
use crate::sessions::Queue;
use crate::sessions::failure::Failure;
use crate::sessions::search::Job;

/// Number of documents if the client does not say.
const TOP: u64 = 5;
/// Most documents per search.
const MOST: u64 = 100;

/// What a request asks for. No `Debug`: it is private.
struct Asked {
    query: Zeroizing<String>,
    top: usize,
    texts: Option<bool>,
    scores: bool,
    too_long: TooLong,
}

type Coming = oneshot::Receiver<Result<Found, Failure>>;

/// `POST /v1/search`
pub async fn search(State(served): State<Arc<Served>>, asker: Asker, body: Bytes) -> Response {
    let answered = answer(&served, asker, &body).await;
    answered.unwrap_or_else(|refusal| refusal.answer(Shape::OpenAi))
}

async fn answer(served: &Arc<Served>, asker: Asker, body: &[u8]) -> Result<Response, Refusal> {
    let mut fields = Fields::parse(body)?;
    served.named.check(&mut fields)?;
    let asked = asked(served, fields)?;
    let submitting = Arc::clone(served);
    let submitted = tokio::task::spawn_blocking(move || submit(&submitting, asked, asker));
    let coming = submitted.await.map_err(|_| Failure::defect())??;
    let found = coming.await.map_err(|_| Failure::stopping())??;
    let hits = found.hits.iter().zip(1..);
    let hits = hits.map(|(hit, rank)| {
        let record = hit.record.as_deref().map(Record::parse);
        let mut object = Map::new();
        object.insert("rank".to_owned(), json!(rank));
        object.insert("place".to_owned(), json!(hit.place));
        object.insert("text".to_owned(), json!(record.as_ref().map(|record| &record.text)));
        let (id, metadata) = record.map(|record| (record.id, record.metadata)).unwrap_or_default();
        let more = [("id", id.map(Value::from)), ("metadata", metadata), ("score", hit.score.map(Value::from))];
        for (name, value) in more {
            if let Some(value) = value {
                object.insert(name.to_owned(), value);
            }
        }
        Value::from(object)
    });
    let body = json!({
        "object": "list",
        "model": served.named.model,
        "hits": hits.collect::<Vec<_>>(),
        "found": found.hits.len(),
        "documents": served.shared.documents,
        "tokens": found.tokens,
        "padded_tokens": found.rows,
        "seconds": found.cost.time.as_secs_f64(),
    });
    Ok(Json(body).into_response())
}

fn asked(served: &Served, mut fields: Fields) -> Result<Asked, Refusal> {
    let query = fields.text("query")?;
    let query = query.ok_or_else(|| Refusal::field("query", "missing", "`query` is missing"))?;
    let query = Zeroizing::new(query);
    let top = fields.whole("top")?.unwrap_or(TOP);
    if !(1..=MOST).contains(&top) {
        return Err(wrong("top", "a whole number from 1 to 100"));
    }
    let texts = fields.flag("texts")?;
    let scores = fields.flag("scores")?.unwrap_or(false);
    let truncate = fields.flag("truncate")?.unwrap_or(served.truncate);
    fields.finish()?;
    Ok(Asked {
        query,
        top: top as usize,
        texts,
        scores,
        too_long: match truncate {
            true => TooLong::Cut,
            false => TooLong::Refuse,
        },
    })
}

fn submit(served: &Served, asked: Asked, asker: Asker) -> Result<Coming, Refusal> {
    let Queue::Embed(queue) = &*served.queue else {
        return Err(other_task("this model generates text: use /v1/completions"));
    };
    let shared = &served.shared;
    let no_index = |message| Refusal::new(StatusCode::BAD_REQUEST, "no-index", message);
    if shared.documents == 0 {
        return Err(no_index("this server has no documents (`hushed serve --index`)"));
    }
    let records = asked.texts.unwrap_or(shared.record_bytes > 0);
    if records && shared.record_bytes == 0 {
        return Err(no_index("this server's documents have no texts: `\"texts\": false` finds their places"));
    }
    if asked.scores && !shared.scores {
        return Err(Refusal::field(
            "scores",
            "no-scores",
            "this server's operator gives no scores (`hushed serve --search-scores`)",
        ));
    }
    let wanted = Wanted { top: asked.top.min(shared.documents), records, scores: asked.scores };
    if wanted.charge() > shared.max_texts {
        let message = format!(
            "this search counts as {}, and this server takes {} a session: lower `top`",
            counted(wanted.charge(), "text"),
            shared.max_texts
        );
        return Err(Refusal::field("top", "too-many-texts", message));
    }
    let tokens = tokens(shared, 0, &asked.query.clone().into(), asked.too_long)?;
    let rows = shared.rows(tokens, shared.max_tokens);
    let index = Index::shape(shared.documents, shared.public.config.width, shared.record_bytes);
    let index = index.map_err(|error| Failure::from(&ServeError::from(error)))?;
    let (answer, coming) = oneshot::channel();
    let job = Job {
        caller: asker.caller,
        query: asked.query,
        too_long: asked.too_long,
        rows,
        planned: shared.pace.search(rows, &index, wanted),
        wanted,
        answer,
    };
    let submit = || Ok(queue.submit_search(job, &shared.admission(asker.patience))?);
    served.edge.door.charged(asker.caller, 1, submit)?;
    Ok(coming)
}
