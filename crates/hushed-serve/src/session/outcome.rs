//! How a session ended and what it cost: counted and logged, not kept.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::net::SocketAddr;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

use hushed_net::{NetError, Stats};

use super::metrics::Metrics;
use super::owner::Owner;
use super::wire::Refusal;
use crate::error::ServeError;

/// Why a session ended.
pub(crate) enum Stop {
    /// This server refused.
    Refuse(Refusal),
    Fail(ServeError),
}

impl<E: Into<ServeError>> From<E> for Stop {
    fn from(error: E) -> Self {
        Self::Fail(error.into())
    }
}

/// The public facts of a session: the only one that depends on a text is its number of tokens.
#[derive(Default)]
pub(crate) struct Outcome {
    end: End,
    seconds: f64,
    pub(crate) stats: Stats,
    /// Who the client is, once that is known.
    pub(crate) client: Option<Owner>,
    /// The texts that were run; `None` for a session that only transfers files.
    pub(crate) embedded: Option<Embedded>,
}

/// Texts that a session ran, and their tokens.
#[derive(Clone, Copy, Default)]
pub(crate) struct Embedded {
    pub(crate) texts: usize,
    pub(crate) tokens: usize,
}

#[derive(Default)]
enum End {
    #[default]
    Well,
    Refused(Refusal),
    Failed(ServeError),
    Panicked,
}

impl Outcome {
    /// Runs a session to its end. A session that panics ends alone: its state dies with it, and what it shares with
    /// others is atomic, on disk or behind locks.
    pub(crate) fn of(session: impl FnOnce(&mut Outcome) -> Result<(), Stop>) -> Outcome {
        let began = Instant::now();
        let mut outcome = Outcome::default();
        let ended = catch_unwind(AssertUnwindSafe(|| session(&mut outcome)));
        outcome.end = match ended {
            Ok(Ok(())) => End::Well,
            Ok(Err(Stop::Refuse(refusal))) => End::Refused(refusal),
            Ok(Err(Stop::Fail(error))) => End::Failed(error),
            Err(_) => End::Panicked,
        };
        outcome.seconds = began.elapsed().as_secs_f64();
        outcome
    }

    /// Counts and logs it.
    pub(crate) fn report(&self, metrics: &Metrics, session: u64, peer: SocketAddr) {
        let texts = self.embedded.map(|embedded| embedded.texts);
        let tokens = self.embedded.map(|embedded| embedded.tokens);
        let seconds = self.seconds;
        let client = self.client.as_ref().map(Owner::name);
        let (sent, received) = (self.stats.bytes_sent, self.stats.bytes_received);
        match &self.end {
            End::Well => {
                metrics.ended("ended");
                // A client of fhe comes often, to see how far its job is.
                match texts {
                    Some(_) => tracing::info!(
                        session, client, %peer, texts, tokens, seconds, sent, received, "session ended"
                    ),
                    None => {
                        tracing::debug!(session, client, %peer, seconds, sent, received, "session ended");
                    }
                }
            }
            End::Refused(refusal) => {
                metrics.refused(refusal.name());
                tracing::info!(session, client, %peer, reason = refusal.name(), detail = %refusal, texts, "session refused");
            }
            // A client that ends without a word (Ctrl-C, a text that it refuses itself) is nothing to be woken for.
            End::Failed(error @ ServeError::Net(NetError::PeerGone)) => {
                metrics.ended(error.name());
                tracing::info!(session, client, %peer, reason = error.name(), texts, tokens, seconds, sent, received, "client gone");
            }
            End::Failed(error) => {
                metrics.ended(error.name());
                tracing::warn!(
                    session, client, %peer, reason = error.name(), detail = %error, texts, tokens, seconds, sent, received, "session failed"
                );
            }
            End::Panicked => {
                metrics.ended("panic");
                tracing::error!(session, client, %peer, detail = "a defect of this program", "session failed");
            }
        }
    }
}
