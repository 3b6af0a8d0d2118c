//! The texts of a request: checked, queued, and waited for.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod how;
mod kept_alive;

use std::sync::Arc;
use std::time::Duration;

use axum::Extension;
use axum::extract::FromRequestParts;
use axum::extract::rejection::ExtensionRejection;
use axum::http::request::Parts;
use axum::http::{HeaderMap, StatusCode};
use axum::response::Response;
use hushed_model::{Task, TextError};
use hushed_serve::TooLong;

use super::refusal::Refusal;
use super::served::Served;
use kept_alive::kept_alive;

use crate::sessions::admission::{Admission, Refused, Wait};
use crate::sessions::failure::Failure;
use crate::sessions::share::Caller;
use crate::sessions::texts::{Answer, Prepared, Reading, Ticket};
use crate::sessions::{Queue, Shared};

/// Most texts per request: OpenAI's limit.
pub const MOST_TEXTS: usize = 2048;
/// A client that waits no longer than this cannot be kept waiting by a byte now and then.
const LEAST: Duration = Duration::from_secs(1);
/// The longest patience that makes a difference.
const DAY: f64 = 86_400.0;

/// The caller, and how long it waits.
#[derive(Clone, Copy, Debug)]
pub struct Asker {
    /// The caller, by its key.
    pub caller: Caller,
    /// How long the client waits.
    pub patience: Duration,
}

/// The response that `give` makes of the answers to texts or pairs, in order, by a model for `task`. A request that its
/// client would not wait for is answered over a connection that is kept alive.
///
/// # Errors
/// A fault in a text, a refusal by the admission, or the reason why there is no answer.
pub async fn embed(
    served: &Arc<Served>,
    texts: Vec<impl Into<Reading>>,
    too_long: TooLong,
    (task, asker): (Task, Asker),
    give: impl FnOnce(Vec<Arc<Answer>>) -> Response + Send + 'static,
) -> Result<Response, Refusal> {
    let submitting = Arc::clone(served);
    let texts: Vec<Reading> = texts.into_iter().map(Into::into).collect();
    // Tokenising two megabytes takes a while, and the only HTTP thread has others to serve.
    let submitted = tokio::task::spawn_blocking(move || submit(&submitting, texts, too_long, (task, asker)));
    let (tickets, wait) = submitted.await.map_err(|_| Failure::defect())??;
    let answered = async move { answers(tickets).await.map(give) };
    match wait {
        Wait::Short => answered.await,
        Wait::Long => Ok(kept_alive(answered, asker.patience)),
    }
}

async fn answers(tickets: Vec<Ticket>) -> Result<Vec<Arc<Answer>>, Refusal> {
    let mut answers = Vec::with_capacity(tickets.len());
    for ticket in tickets {
        answers.push(match ticket {
            Ticket::Ready(answer) => answer,
            Ticket::Coming(coming) => match coming.await {
                Ok(Ok(answer)) => answer,
                Ok(Err(failure)) => return Err((*failure).clone().into()),
                Err(_) => return Err(Failure::stopping().into()),
            },
        });
    }
    Ok(answers)
}

fn submit(
    served: &Served,
    texts: Vec<Reading>,
    too_long: TooLong,
    (task, asker): (Task, Asker),
) -> Result<(Vec<Ticket>, Wait), Refusal> {
    let Queue::Embed(queue) = &*served.queue else {
        return Err(other_task("this model generates text: use /v1/completions"));
    };
    if served.shared.public.task() != task {
        return Err(other_task(match task {
            Task::Classify => "this model embeds texts: use /embed or /v1/embeddings",
            _ => "this model classifies texts: use /predict",
        }));
    }
    if texts.len() > MOST_TEXTS {
        let message = format!("{} texts were given, and a request takes at most {MOST_TEXTS}", texts.len());
        return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, "too-many-texts", message));
    }
    let (shared, count) = (&served.shared, texts.len());
    let mut prepared = Vec::with_capacity(count);
    for (index, text) in texts.into_iter().enumerate() {
        let tokens = tokens(shared, index, &text, too_long)?;
        let rows = shared.rows(tokens, shared.max_tokens);
        let planned = shared.pace.text(rows);
        prepared.push(Prepared { caller: asker.caller, text, too_long, rows, planned });
    }
    let bound = (asker.patience > LEAST).then_some(served.longest.as_secs_f64());
    let admission = Admission { bound, ..shared.admission(asker.patience) };
    let submit = || queue.submit(prepared, &admission).map_err(|refused| too_many(&refused));
    let (tickets, wait) = served.edge.door.charged(asker.caller, count, submit)?;
    served.count_texts(&tickets);
    Ok((tickets, wait))
}

/// The refusal of a list, with the setting of each client that makes it shorter or waits longer.
fn too_many(refused: &Refused) -> Refusal {
    let refusal = Refusal::from(refused.clone());
    let fits = match refused {
        Refused::TooSlow { fits, .. } => *fits,
        Refused::TooMany { limit, .. } => *limit,
        _ => return refusal,
    };
    let settings = match fits {
        0 => "raise the client's own limit: `timeout` in openai, LangChain, LlamaIndex and huggingface_hub".to_owned(),
        fits => format!(
            "set `chunk_size={fits}` in LangChain, `embed_batch_size={fits}` in LlamaIndex, `batch_size={fits}` in \
             Haystack, or a longer `timeout` in any of them"
        ),
    };
    Refusal { message: format!("{}; {settings}", refusal.message), ..refusal }
}

/// Number of tokens of a text or pair.
///
/// # Errors
/// 400 with the text's index, never its words.
pub fn tokens(shared: &Shared, index: usize, text: &Reading, too_long: TooLong) -> Result<usize, Refusal> {
    let limit = shared.max_tokens;
    let ids = shared.public.tokenizer().and_then(|tokenizer| match &text.second {
        None => tokenizer.encode(&text.text, limit, too_long),
        Some(second) => tokenizer.encode_pair([&text.text, second], limit, too_long),
    });
    let which = || format!("text {index} (the first is 0)");
    ids.map(|ids| ids.rows().total).map_err(|error| text_refused(&error, &which()))
}

/// 400 for a text that the model does not accept.
pub fn text_refused(error: &TextError, which: &str) -> Refusal {
    let name = match error {
        TextError::TooLong { .. } | TextError::TooManyBytes { .. } => "context_length_exceeded",
        _ => "text-refused",
    };
    Refusal::new(StatusCode::BAD_REQUEST, name, format!("{which}: {error}"))
}

/// The refusal for a route that the model does not serve.
pub fn other_task(message: &str) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, "other-task", message)
}

impl FromRequestParts<Arc<Served>> for Asker {
    type Rejection = ExtensionRejection;

    async fn from_request_parts(parts: &mut Parts, served: &Arc<Served>) -> Result<Asker, ExtensionRejection> {
        let Extension(caller) = Extension::from_request_parts(parts, served).await?;
        Ok(Asker { caller, patience: patience(&parts.headers, served.patience) })
    }
}

/// How long the client waits: as stated by OpenAI's clients, or the gateway's default.
fn patience(headers: &HeaderMap, otherwise: Duration) -> Duration {
    let stated = ["x-stainless-read-timeout", "x-stainless-timeout"]
        .into_iter()
        .filter_map(|name| headers.get(name)?.to_str().ok()?.trim().parse::<f64>().ok())
        .find(|seconds| *seconds > 0.0);
    stated.map_or(otherwise, |seconds| Duration::from_secs_f64(seconds.min(DAY)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patience_as_clients_state_it() {
        let of = |name: &'static str, value: &'static str| {
            let mut headers = HeaderMap::new();
            headers.insert(name, value.parse().unwrap());
            patience(&headers, Duration::from_secs(7)).as_secs_f64()
        };
        assert_eq!(of("x-stainless-read-timeout", "1.5"), 1.5);
        assert_eq!(of("x-stainless-timeout", "60"), 60.0);
        for strange in ["", "none", "-1", "0", "NaN", "-inf"] {
            assert_eq!(of("x-stainless-read-timeout", strange), 7.0, "{strange}");
        }
        assert_eq!(of("x-stainless-read-timeout", "inf"), DAY);
        assert_eq!(of("x-stainless-read-timeout", "1e300"), DAY);
    }
}
