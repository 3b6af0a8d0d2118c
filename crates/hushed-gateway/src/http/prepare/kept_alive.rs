//! A response that is long in the making: its head is sent at once, and a space now and then, which JSON allows before
//! its first value. So no client and no proxy between gives up for want of a byte.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::future::Future;
use std::io;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::body::{Body, Bytes, to_bytes};
use axum::http::header;
use axum::response::{IntoResponse, Response};
use futures_core::Stream;
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::http::refusal::Refusal;
use crate::sessions::failure::MISBEHAVED;

/// Longest interval between two bytes.
const ALIVE: Duration = Duration::from_secs(10);

/// A response of JSON that is sent as soon as `answered` has it, to a client that waits at most `patience` for a byte.
///
/// The status is sent before the outcome is known. If there is no answer, the connection is cut: a client that tries
/// again gets what is done already and the rest, or the reason with its status. Only where it must not try again, the
/// reason is sent in place of the answer.
pub fn kept_alive(
    answered: impl Future<Output = Result<Response, Refusal>> + Send + 'static,
    patience: Duration,
) -> Response {
    let (bytes, coming) = mpsc::channel(1);
    tokio::spawn(async move {
        let mut tick = interval(ALIVE.min(patience / 4));
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let mut answered = Box::pin(answered);
        let outcome = loop {
            tokio::select! {
                outcome = &mut answered => break outcome,
                // With what waits for it, the work leaves the queue.
                () = bytes.closed() => return,
                _ = tick.tick() => {
                    // A client that reads nothing has spaces enough.
                    let _ = bytes.try_send(Ok(Bytes::from_static(b" ")));
                }
            }
        };
        let last = match outcome {
            Ok(response) => to_bytes(response.into_body(), usize::MAX).await.map_err(io::Error::other),
            Err(refusal) if refusal.name == MISBEHAVED => Ok(Bytes::from(refusal.openai().to_string())),
            Err(refusal) => Err(io::Error::other(refusal.message)),
        };
        // A client that has gone needs no answer.
        let _ = bytes.send(last).await;
    });
    ([(header::CONTENT_TYPE, "application/json")], Body::from_stream(Pieces(coming))).into_response()
}

/// The body.
struct Pieces(mpsc::Receiver<io::Result<Bytes>>);

impl Stream for Pieces {
    type Item = io::Result<Bytes>;

    fn poll_next(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Self::Item>> {
        self.0.poll_recv(cx)
    }
}

#[cfg(test)]
mod tests {
    use axum::Json;
    use axum::http::StatusCode;

    use super::*;

    fn body(answered: impl Future<Output = Result<Response, Refusal>> + Send + 'static) -> Result<String, axum::Error> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
        runtime.block_on(async {
            let response = kept_alive(answered, Duration::from_millis(4));
            assert_eq!(response.status(), 200);
            let bytes = to_bytes(response.into_body(), usize::MAX).await?;
            Ok(String::from_utf8(bytes.to_vec()).unwrap())
        })
    }

    #[test]
    fn spaces_until_the_answer() {
        let text = body(async {
            tokio::time::sleep(Duration::from_millis(40)).await;
            Ok(Json([1, 2]).into_response())
        });
        let text = text.unwrap();
        assert!(text.starts_with("  ") && text.trim_start() == "[1,2]", "{text:?}");
    }

    #[test]
    fn a_failure_cuts_the_connection_unless_nobody_may_try_again() {
        let failed = |name| async move { Err(Refusal::new(StatusCode::SERVICE_UNAVAILABLE, name, "gone")) };
        assert!(body(failed("unreachable")).is_err());
        assert!(body(failed(MISBEHAVED)).unwrap().contains("\"message\":\"gone\""));
    }
}
