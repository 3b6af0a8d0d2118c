//! What the routes share, and what they count.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use hushed_serve::{LATENCIES, ServerTrust};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::histogram::Histogram;

use super::door::Door;
use super::wanted::Named;
use crate::config::GatewayConfig;
use crate::sessions::texts::Ticket;
use crate::sessions::{Queue, Sessions, Shared};

/// What every request passes, whatever comes behind it.
pub struct Edge {
    pub(crate) door: Door,
    pub(super) metrics: Metrics,
}

impl Edge {
    /// An edge with these rules.
    pub fn new(door: Door) -> Self {
        let metrics = Metrics::default();
        Self { door, metrics }
    }
}

/// State shared by the routes.
pub struct Served {
    pub(crate) edge: Arc<Edge>,
    pub(super) shared: Arc<Shared>,
    pub(super) queue: Arc<Queue>,
    /// The model's name.
    pub named: Named,
    /// `HOST:PORT` of the server.
    pub(super) server: String,
    /// SHA-256 of its certificate, if it is known by that.
    pub(super) pin: Option<String>,
    pub(super) patience: Duration,
    /// The longest work for one request whose client can be kept waiting.
    pub(super) longest: Duration,
    pub(super) truncate: bool,
    pub(super) answers: AtomicU64,
}

impl Served {
    /// The state of a gateway whose sessions are open.
    pub fn new(config: &GatewayConfig, edge: Arc<Edge>, sessions: &Sessions) -> Self {
        let shared = Arc::clone(&sessions.shared);
        Self {
            edge,
            named: Named::new(config, shared.bundle),
            queue: Arc::clone(&sessions.queue),
            server: config.client.server.clone(),
            pin: match &config.client.trust {
                ServerTrust::Pin(pin) => Some(pin.replace(':', "").to_ascii_lowercase()),
                ServerTrust::Pins(_) | ServerTrust::CaFile(_) => None,
            },
            patience: config.patience,
            longest: config.longest,
            truncate: config.truncate,
            answers: AtomicU64::new(0),
            shared,
        }
    }

    /// A number that no other answer of this gateway has.
    pub(super) fn number(&self) -> u64 {
        self.answers.fetch_add(1, Ordering::Relaxed)
    }

    pub(super) fn count_texts(&self, tickets: &[Ticket]) {
        for ticket in tickets {
            let source = match ticket {
                Ticket::Ready(_) => "kept",
                Ticket::Coming(_) => "pass",
            };
            let counted = &self.edge.metrics.texts;
            counted.get_or_create(&From { source }).inc();
        }
    }
}

/// Counts of HTTP requests. Those of passes are in the ledger.
pub struct Metrics {
    /// Number of answered requests.
    pub requests: Family<Request, Counter>,
    /// Texts of requests, by the source of their answers.
    pub texts: Family<From, Counter>,
    /// Time until the head of an answer, by route.
    pub seconds: Family<Route, Histogram, fn() -> Histogram>,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            texts: Family::default(),
            seconds: Family::new_with_constructor(|| Histogram::new(LATENCIES)),
        }
    }
}

/// The label of times.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Route {
    /// One of the gateway's routes, or `other`.
    pub route: &'static str,
}

/// The labels of a request.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct Request {
    /// One of the gateway's routes, or `other`.
    pub route: &'static str,
    /// The status.
    pub status: u16,
}

/// The source of an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, EncodeLabelSet)]
pub struct From {
    /// `kept` or `pass`.
    pub source: &'static str,
}
