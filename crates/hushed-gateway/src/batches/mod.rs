//! A gateway to a server that computes under encryption: OpenAI's batches, gathered into encrypted ones.
//!
//! ```text
//! POST /v1/files, /v1/batches → board: lines checked, texts queued ─ gathered → worker: one encrypted batch at a time
//! GET /v1/batches/{id}, /v1/files/{id}/content ← board: answers as JSONL ←──────────┘
//! ```
//!
//! Nothing that was decrypted goes back to the server: a batch whose canary is wrong fails here, and so do all later
//! ones, without a word to the server.

pub mod board;
pub mod lines;
mod work;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use hushed_serve::fhe::{Remote, RemoteEvent, RemoteOptions};
use hushed_serve::{Digest, ServeError, Task};

use crate::config::GatewayConfig;
use crate::error::GatewayError;
use crate::http::{self, Edge};
use crate::listen::{self, Behind, Bound};
use crate::sessions::share::Share;
use crate::waiting;
use board::{Board, Limits};
use lines::Model;

/// The settings of a batch gateway. No `Debug`: it holds the server's token.
pub struct BatchConfig {
    /// Where it listens, who may come in, the model's name, the length of the queue. Its server settings are not used.
    pub gateway: GatewayConfig,
    /// The server and the key folder.
    pub remote: RemoteOptions,
    /// How long a run's first text waits for others.
    pub gather: Duration,
}

/// A listening batch gateway.
pub struct BatchGateway {
    bound: Bound,
    edge: Arc<Edge>,
    worker: Worker,
}

struct Worker {
    board: Arc<Board>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

impl BatchGateway {
    /// Starts listening, and fetches manifest, public model and keys. Keys may have to be made first, which takes
    /// hours; requests wait meanwhile.
    ///
    /// # Errors
    /// [`GatewayError`]; [`GatewayError::NoRoute`] for a model that does not embed.
    pub fn bind(config: BatchConfig) -> Result<Self, GatewayError> {
        let BatchConfig { gateway, remote, gather } = config;
        let (bound, edge) = crate::front(&gateway)?;
        let too_long = remote.too_long;
        let remote = Remote::new(remote);
        let mut watch = |event| {
            if let RemoteEvent::Ordered(order) = event {
                let (keys, bytes) = (order.keys, order.bytes);
                tracing::info!(keys, bytes, "keys are being made");
            }
        };
        waiting::until_seen(&gateway, &bound, &edge, || Ok(remote.ready(&mut watch)?))?;
        let client = remote.model()?;
        if client.task() != Task::Embed {
            return Err(GatewayError::NoRoute);
        }
        let limits =
            Limits { places: client.places()?, gather, share: Share::new(gateway.max_waiting, edge.door.keys()) };
        let hash = Digest(client.plan().hash());
        let named = http::wanted::Named::new(&gateway, hash);
        let model = Model { client, named, too_long };
        let board = Arc::new(Board::new(model, limits));
        let stop = Arc::new(AtomicBool::new(false));
        let (worked, raised) = (Arc::clone(&board), Arc::clone(&stop));
        let thread = thread::Builder::new().name("hushed batches".to_owned());
        let thread = thread.spawn(move || work::work(&worked, &remote, &raised));
        Ok(Self { bound, edge, worker: Worker { thread: thread.map_err(ServeError::Thread)?, board, stop } })
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

    /// The model's name in the APIs.
    #[must_use]
    pub fn model_name(&self) -> &str {
        &self.worker.board.model().named.model
    }

    /// The hash of the manifest.
    #[must_use]
    pub fn manifest(&self) -> Digest {
        self.worker.board.model().named.hash
    }

    /// Answers requests until `stop` is raised. A run under way continues at the server.
    ///
    /// # Errors
    /// [`GatewayError::Runtime`] if the system refuses what the loop needs.
    pub fn run(self, stop: &AtomicBool) -> Result<(), GatewayError> {
        let routes = http::batches::routes(Arc::clone(&self.worker.board));
        let router = http::entered(routes.layer(axum::Extension(Arc::clone(&self.edge))), Arc::clone(&self.edge));
        listen::run(self.bound, router, stop, self.worker, || self.edge.door.reload())
    }
}

impl Behind for Worker {
    fn close(self) {
        self.stop.store(true, Ordering::SeqCst);
        self.board.close();
        // A worker's panic has been reported already.
        let _ = self.thread.join();
    }
}
