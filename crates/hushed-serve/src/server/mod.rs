//! The server: one model, many sessions, each in a thread of its own.

mod config;
mod registry;
mod session;

use std::net::{SocketAddr, TcpStream};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use hushed_infer::memory::Memory;
use hushed_infer::twopc::Layers;
use hushed_model::Model;
use hushed_net::channel::tls;
use hushed_net::{Identity, Listener, TlsServer};

pub use config::{ClientAccess, ServerConfig, ServerIdentity};

use crate::bundle::{self, Bundle, Digest};
use crate::deadlines::Deadlines;
use crate::error::ServeError;
use crate::metrics::{self, Metrics};
use crate::table;
use crate::token::Accepted;
use registry::Registry;
use session::Ended;

/// Connections beyond the sessions that may be in their first seconds at once.
const GREETING: usize = 32;
/// How often a server that drains looks whether it is done.
const POLL: Duration = Duration::from_millis(20);
/// How long to wait when the system has no connection to give.
const NO_CONNECTION: Duration = Duration::from_millis(100);

/// A server that listens.
pub struct Server {
    listener: Listener,
    metrics_listener: Option<Listener>,
    fingerprint: [u8; 32],
    shared: Shared,
}

/// What all sessions read.
struct Shared {
    tls: TlsServer,
    accepted: Option<Accepted>,
    model: Model,
    layers: Arc<Layers>,
    bundle: Bundle,
    plan: Digest,
    max_sessions: usize,
    max_tokens: usize,
    max_pass_tokens: usize,
    max_texts: usize,
    /// Its hash, if the table is public.
    table: Option<Digest>,
    deadlines: Deadlines,
    registry: Registry,
    metrics: Metrics,
}

impl Server {
    /// Reads the model, prepares its weights and listens. Connections wait until [`Server::run`].
    ///
    /// # Errors
    /// [`ServeError`]: the folder, the certificate, the token file, a port in use, or [`ServeError::OpenToStrangers`].
    pub fn bind(config: &ServerConfig) -> Result<Self, ServeError> {
        config.check()?;
        // The cheap refusals first: a large model takes seconds to read.
        let listener = Listener::bind(&config.listen)?;
        config.check_access(listener.local_addr())?;
        let metrics_listener = match &config.metrics_listen {
            Some(address) => Some(Listener::bind(address)?),
            None => None,
        };
        let (accepted, authorities) = match &config.access {
            ClientAccess::Anyone => (None, None),
            ClientAccess::Tokens(path) => (Some(Accepted::from_file(path)?), None),
            ClientAccess::Certificates(path) => (None, Some(tls::read_authorities(path)?)),
            ClientAccess::TokensAndCertificates {
                tokens,
                authorities,
            } => (
                Some(Accepted::from_file(tokens)?),
                Some(tls::read_authorities(authorities)?),
            ),
        };
        let identity = match &config.identity {
            ServerIdentity::Development(dir) => tls::load_or_create_dev_certificate(dir)?,
            ServerIdentity::Files { chain, key } => Identity::from_files(chain, key)?,
        };
        let fingerprint = identity.fingerprint();
        let tls = TlsServer::new(identity, authorities)?;
        let bundle = Bundle::from_folder(&config.model)?;
        let model = Model::load(&config.model)?;
        let layers = Layers::default();
        layers.prepare(&model)?;
        let max_tokens = config.max_tokens.unwrap_or(usize::MAX);
        let max_tokens = max_tokens.min(model.public.max_tokens);
        if let Some(memory) = config.max_memory {
            hold_ready(&layers, &model, config, max_tokens, memory)?;
        }
        let table = match config.public_table {
            true => Some(table::hash(&model.bert.embedding)?),
            false => None,
        };
        Ok(Self {
            listener,
            metrics_listener,
            fingerprint,
            shared: Shared {
                tls,
                accepted,
                max_tokens,
                max_pass_tokens: config.max_pass_tokens.max(max_tokens),
                model,
                layers: Arc::new(layers),
                bundle,
                plan: bundle::plan()?,
                max_sessions: config.max_sessions,
                max_texts: config.max_texts,
                table,
                deadlines: config.deadlines,
                registry: Registry::default(),
                metrics: Metrics::default(),
            },
        })
    }

    /// The address that was bound, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// The address of the metrics, if there is one.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_listener.as_ref().map(Listener::local_addr)
    }

    /// SHA-256 of the certificate: what clients pin.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        Digest(self.fingerprint)
    }

    /// Hash of the bundle: what clients pin to insist on this model.
    #[must_use]
    pub fn bundle_hash(&self) -> Digest {
        self.shared.bundle.hash()
    }

    /// Most tokens of a text.
    #[must_use]
    pub fn max_tokens(&self) -> usize {
        self.shared.max_tokens
    }

    /// Serves until `stop` is raised, then lets texts under way come to their end (within [`Deadlines::drain`]) and breaks off the rest.
    /// A session that fails, however it fails, ends alone.
    ///
    /// # Errors
    /// [`ServeError::Thread`] if the metrics' thread cannot be started.
    pub fn run(&self, stop: &AtomicBool) -> Result<(), ServeError> {
        let done = AtomicBool::new(false);
        tracing::info!(
            address = %self.local_addr(),
            certificate = %self.fingerprint(),
            bundle = %self.bundle_hash(),
            max_sessions = self.shared.max_sessions,
            max_tokens = self.shared.max_tokens,
            "serving"
        );
        thread::scope(|scope| {
            if let Some(listener) = &self.metrics_listener {
                let (shared, done) = (&self.shared, &done);
                let serve = move || metrics::serve(listener, &shared.metrics, stop, done);
                let thread = thread::Builder::new().name("hushed-metrics".to_owned());
                thread
                    .spawn_scoped(scope, serve)
                    .map_err(ServeError::Thread)?;
            }
            self.accept(scope, stop);
            self.drain();
            done.store(true, Ordering::SeqCst);
            Ok(())
        })
    }

    fn accept<'scope>(&'scope self, scope: &'scope Scope<'scope, '_>, stop: &AtomicBool) {
        let shared = &self.shared;
        loop {
            match self.listener.accept(|| stop.load(Ordering::SeqCst)) {
                Ok(None) => return,
                Ok(Some((socket, peer))) => shared.start(scope, socket, peer),
                Err(error) => {
                    // Usually the limit of open files: it passes when a session ends.
                    tracing::warn!(%error, "no connection can be accepted");
                    thread::sleep(NO_CONNECTION);
                }
            }
        }
    }

    fn drain(&self) {
        let registry = &self.shared.registry;
        tracing::info!(sessions = registry.len(), "stopping");
        registry.stop();
        let give_up = Instant::now() + self.shared.deadlines.drain;
        while registry.len() > 0 && Instant::now() < give_up {
            thread::sleep(POLL);
        }
        let broken_off = registry.break_off();
        if broken_off > 0 {
            tracing::warn!(
                sessions = broken_off,
                "broke off sessions that did not end in time"
            );
        }
        tracing::info!("stopped");
    }
}

/// Transforms weights in what the sessions leave of `memory`.
fn hold_ready(
    layers: &Layers,
    model: &Model,
    config: &ServerConfig,
    max_tokens: usize,
    memory: u64,
) -> Result<(), ServeError> {
    let pass = config.max_pass_tokens.max(max_tokens);
    let shape = Memory::largest(&model.bert, max_tokens, pass)?;
    let sessions = shape.server(config.max_sessions);
    let rows = config.ready_tokens.min(max_tokens);
    let ready = layers.make_ready(rows, memory.saturating_sub(sessions))?;
    if sessions > memory {
        tracing::warn!(
            needed = sessions,
            allowed = memory,
            "sessions may need more memory than allowed: lower --max-sessions, --max-tokens or --max-pass-tokens"
        );
    }
    tracing::info!(
        matrices = ready.held,
        of = ready.matrices,
        bytes = ready.bytes,
        kept_free = sessions,
        "weights transformed"
    );
    Ok(())
}

impl Shared {
    /// Starts a session's thread, if there is room for one.
    fn start<'scope>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        socket: TcpStream,
        peer: SocketAddr,
    ) {
        if self.registry.len() >= self.max_sessions + GREETING {
            // Not even a handshake: this is the answer to a flood.
            self.metrics.refused("too-many-connections");
            tracing::warn!(%peer, "refused: too many connections");
            return;
        }
        let entry = match self.registry.enter(&socket) {
            Ok(entry) => entry,
            Err(error) => {
                tracing::warn!(%peer, %error, "refused: no descriptor left");
                return;
            }
        };
        let thread = thread::Builder::new().name(format!("session-{}", entry.number()));
        let started = thread.spawn_scoped(scope, move || {
            let session = AssertUnwindSafe(|| session::serve(self, &entry, socket, peer));
            // The entry's state is simple, the session's dies with it, and the shared rest is atomic or behind locks.
            let ended = catch_unwind(session).unwrap_or_else(|_| Ended::panicked());
            ended.report(&self.metrics, entry.number(), peer);
        });
        if let Err(error) = started {
            tracing::warn!(%peer, %error, "refused: no thread");
        }
    }
}

#[cfg(all(test, feature = "client"))]
mod tests {
    use hushed_model::Matrix;
    use hushed_model::testing::tiny_folder;

    use super::*;
    use crate::{Client, ClientConfig, ServerTrust, TooLong};

    /// A defect is imitated by a matrix that is smaller than its layer says.
    #[test]
    fn a_panic_ends_one_session_and_not_the_server() {
        let folder = tempfile::tempdir().unwrap();
        tiny_folder(folder.path()).unwrap();
        let config = ServerConfig::local(folder.path(), folder.path().join("certificates"));
        let mut server = Server::bind(&config).unwrap();
        let wrong = Arc::new(Matrix::zero(1, 32));
        server.shared.layers = Arc::default();
        server.shared.model.bert.layers[0].attention.query.weights = Some(wrong);
        let pin = ServerTrust::Pin(server.fingerprint().to_string());
        let client = ClientConfig::new(server.local_addr().to_string(), pin);
        let stop = AtomicBool::new(false);
        thread::scope(|scope| {
            scope.spawn(|| server.run(&stop).unwrap());
            for _ in 0..2 {
                let mut client = Client::connect(&client).unwrap();
                let error = client.embed(&["hello"], TooLong::Refuse, None).err();
                assert_eq!(error.unwrap().name(), "peer-gone");
            }
            while server.shared.registry.len() > 0 {
                thread::sleep(POLL);
            }
            stop.store(true, Ordering::SeqCst);
        });
        let metrics = server.shared.metrics.render();
        assert!(
            metrics.contains("hushed_sessions_total{end=\"panic\"} 2"),
            "{metrics}"
        );
    }
}
