//! A local endpoint with the APIs that embedding clients already speak, over private sessions with a server.
//!
//! The gateway runs on the client's machine. It tokenizes, acts as the client of protocol `2pc` in each pass, and
//! answers in the JSON of OpenAI and of text-embeddings-inference, so that a program only has to change its base URL.
//! See docs/gateway.md for what it does; [`http`] has the routes, [`sessions`] the queue and the workers.
//!
//! With a server of protocol `fhe` it takes OpenAI's batches instead: [`batches`].
//!
//! HTTP is async, on one thread. Everything behind the queue blocks, with one thread per session.
#![forbid(unsafe_code)]

pub mod batches;
pub mod config;
pub mod error;
mod half_closed;
mod http;
mod listen;
mod sessions;
mod waiting;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use hushed_serve::{Digest, Task};

pub use batches::{BatchConfig, BatchGateway};
pub use config::{GatewayConfig, Listen};
pub use error::GatewayError;
use http::{Door, Edge, Served};
use listen::Bound;
use sessions::Sessions;

/// A listening gateway.
pub struct Gateway {
    bound: Bound,
    served: Arc<Served>,
    sessions: Sessions,
}

impl Gateway {
    /// Starts listening and looks at the server, again and again where another attempt may succeed
    /// ([`ServeError::may_pass`](hushed_serve::ServeError::may_pass)): meanwhile `/ready` says why not. Requests that
    /// come later wait until [`Gateway::run`].
    ///
    /// # Errors
    /// [`GatewayError`]: the listening side is checked before the server, so that cheap refusals come first; an error
    /// named `stopped` once the flag in [`GatewayConfig::client`] is raised.
    pub fn bind(config: &GatewayConfig) -> Result<Self, GatewayError> {
        let (bound, edge) = front(config)?;
        let sessions = waiting::until_seen(config, &bound, &edge, || Sessions::open(config, edge.door.keys()))?;
        let served = Served::new(config, edge, &sessions);
        Ok(Self { bound, served: Arc::new(served), sessions })
    }

    /// The address it listens on; `None` for a Unix socket.
    #[must_use]
    pub fn address(&self) -> Option<SocketAddr> {
        self.bound.address()
    }

    /// Whether it speaks TLS.
    #[must_use]
    pub fn has_tls(&self) -> bool {
        self.bound.has_tls()
    }

    /// The task of the server's model.
    #[must_use]
    pub fn task(&self) -> Task {
        self.sessions.shared.public.task()
    }

    /// Whether programs may send conversations, which the server's chat template makes texts of.
    #[must_use]
    pub fn chats(&self) -> bool {
        self.sessions.shared.public.check_chat().is_ok()
    }

    /// The hash of the server's bundle.
    #[must_use]
    pub fn bundle_hash(&self) -> Digest {
        self.sessions.shared.bundle
    }

    /// The model's name in the APIs.
    #[must_use]
    pub fn model_name(&self) -> &str {
        &self.served.named.model
    }

    /// Answers requests until `stop` is raised, and those under way then, for as long as the configuration says. What
    /// is left ends at its next step, and its clients are told.
    ///
    /// # Errors
    /// [`GatewayError::Runtime`] if the system refuses what the loop needs.
    pub fn run(self, stop: &AtomicBool) -> Result<(), GatewayError> {
        let router = http::router(Arc::clone(&self.served));
        let edge = Arc::clone(&self.served.edge);
        listen::run(self.bound, router, stop, self.sessions, || edge.door.reload())
    }
}

/// Opens the listening socket and loads the rules of admission.
fn front(config: &GatewayConfig) -> Result<(Bound, Arc<Edge>), GatewayError> {
    config.check()?;
    let bound = Bound::open(config)?;
    let door = Door::new(config, &bound)?;
    Ok((bound, Arc::new(Edge::new(door))))
}
