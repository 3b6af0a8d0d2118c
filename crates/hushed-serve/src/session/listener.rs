//! What every server has: an address, a certificate, a list of accepted clients, a limit on sessions, a way to stop.

mod gate;

use std::io;
use std::net::{SocketAddr, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::thread::{self, Scope};
use std::time::{Duration, Instant};

use hushed_net::{Party, PeerFault, Session};

use super::config::{ClientAccess, Entrance};
use super::outcome::{Outcome, Stop};
use super::registry::{Entered, Entry, Registry, Turn};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::session::allowance::rate::Rate;
use crate::session::allowance::{Charge, ClientCounts};
use crate::session::deadlines::Deadlines;
use crate::session::metrics::{self, Metrics};
use crate::session::owner::Owner;
use crate::session::token::Token;
use crate::session::token::list::Accepted;
use crate::session::wire::{REPLY, Refusal, Reply, Waiting};
use gate::Gate;

/// How often a draining server checks whether it is done.
const POLL: Duration = Duration::from_millis(20);
/// How long to wait when the system cannot accept a connection.
const NO_CONNECTION: Duration = Duration::from_millis(100);
/// How long, and how often, a newcomer waits for threads whose connections were closed to make room.
const ENDING: (Duration, u32) = (Duration::from_millis(2), 50);
/// How often a client that waits for a session looks whether it is its turn.
const TURN: Duration = Duration::from_millis(50);
/// Minimum time between two messages to a client that waits, if its place has changed, and if it has not.
const TELL: Duration = Duration::from_millis(500);
const TELL_AGAIN: Duration = Duration::from_secs(5);
/// Minimum time between two log lines about evicted connections, so that a flood does not fill the disk.
const BETWEEN_LINES: Duration = Duration::from_secs(10);

/// Accepts connections and gives each a session of its own.
pub struct Listener {
    socket: hushed_net::Listener,
    metrics_socket: Option<hushed_net::Listener>,
    gate: RwLock<Arc<Gate>>,
    entrance: Entrance,
    /// Whether accepted clients are authenticated.
    authenticates: bool,
    /// The clients' counts, if they are limited.
    counts: Option<ClientCounts>,
    pub(crate) max_sessions: usize,
    max_waiting: usize,
    pub(crate) deadlines: Deadlines,
    pub(crate) registry: Registry,
    pub(crate) metrics: Arc<Metrics>,
}

impl Listener {
    /// Listens. Connections wait until [`Listener::run`].
    pub(crate) fn open(entrance: &Entrance) -> Result<Listener, ServeError> {
        if entrance.max_sessions == 0 {
            return Err(ServeError::NothingAllowed { name: "the number of sessions" });
        }
        entrance.check_addresses()?;
        let socket = hushed_net::Listener::bind(&entrance.listen)?;
        let address = socket.local_addr();
        if entrance.access == ClientAccess::Anyone && !address.ip().is_loopback() {
            return Err(ServeError::OpenToStrangers { address });
        }
        let metrics_socket = match &entrance.metrics_listen {
            Some(address) => Some(hushed_net::Listener::bind(address)?),
            None => None,
        };
        Ok(Listener {
            socket,
            metrics_socket,
            gate: RwLock::new(Arc::new(Gate::open(entrance)?)),
            entrance: entrance.clone(),
            authenticates: entrance.access != ClientAccess::Anyone,
            counts: match &entrance.per_client {
                Some(limits) => Some(ClientCounts::open(limits)?),
                None => None,
            },
            max_sessions: entrance.max_sessions,
            max_waiting: entrance.max_waiting,
            deadlines: entrance.deadlines,
            registry: Registry::default(),
            metrics: Arc::default(),
        })
    }

    /// The address that was bound, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.socket.local_addr()
    }

    /// The address of the metrics, if there is one.
    #[must_use]
    pub fn metrics_addr(&self) -> Option<SocketAddr> {
        self.metrics_socket.as_ref().map(hushed_net::Listener::local_addr)
    }

    /// SHA-256 of the certificate: what clients pin.
    #[must_use]
    pub fn fingerprint(&self) -> Digest {
        self.gate().fingerprint
    }

    fn gate(&self) -> Arc<Gate> {
        Arc::clone(&self.gate.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Reads tokens, certificate and authorities again, for connections that come from now on. If one of them cannot be
    /// used, all stay as they were.
    fn reload(&self) {
        match Gate::open(&self.entrance) {
            Ok(gate) => {
                tracing::info!(
                    tokens = gate.accepted.as_ref().map(Accepted::len),
                    "read tokens and certificates again"
                );
                gate.tell();
                *self.gate.write().unwrap_or_else(PoisonError::into_inner) = Arc::new(gate);
            }
            Err(error) => {
                tracing::error!(name = error.name(), %error, "tokens and certificates stay as they were");
            }
        }
    }

    /// Starts a session on an accepted socket; everything before the client has authenticated is bounded in time and
    /// memory. Also returns the SHA-256 of the public key in the client's certificate, if it was asked for one.
    pub(crate) fn session(
        &self,
        entry: &Entry<'_>,
        socket: TcpStream,
    ) -> Result<(Session, Option<Digest>), ServeError> {
        let limits = self.deadlines.before_authentication();
        if speaks(&socket, Some(limits.silence)) {
            entry.spoke();
        }
        // If no byte came, the handshake finds out why, within the same limits.
        let channel = self.gate().tls.accept(socket, limits)?;
        let key = channel.peer_key().map(Digest);
        Ok((Session::new(Party::Server, Box::new(channel)), key))
    }

    /// Whether a client with this token may connect.
    pub(crate) fn check_token(&self, token: Option<&Token>) -> Result<(), Refusal> {
        match (&self.gate().accepted, token) {
            (None, _) => Ok(()),
            (Some(_), None) => Err(Refusal::NoToken),
            (Some(accepted), Some(token)) if !accepted.contains(token) => Err(Refusal::BadToken),
            (Some(_), Some(_)) => Ok(()),
        }
    }

    /// Who the client is. A token that is not required identifies nobody.
    pub(crate) fn owner(&self, token: Option<&Token>, key: Option<Digest>) -> Owner {
        Owner::of(token.filter(|_| self.gate().accepted.is_some()), key)
    }

    /// Counts what is about to run for a client, or returns why it may not.
    pub(crate) fn count(&self, owner: &Owner, charge: Charge) -> Result<(), Refusal> {
        let counts = self.counts.as_ref();
        counts.map_or(Ok(()), |counts| counts.count(owner, charge))
    }

    /// Why a client that wants this may not have it now; counts nothing.
    pub(crate) fn ask(&self, owner: &Owner, charge: Charge) -> Result<(), Refusal> {
        let counts = self.counts.as_ref();
        counts.map_or(Ok(()), |counts| counts.ask(owner, charge))
    }

    /// The limit on texts per client, if there is one.
    pub(crate) fn texts_per_client(&self) -> Option<Rate> {
        self.counts.as_ref().and_then(ClientCounts::texts)
    }

    /// Whether the bits opened to a client are limited.
    pub(crate) fn limits_bits(&self) -> bool {
        self.counts.as_ref().is_some_and(ClientCounts::limits_bits)
    }

    /// Counts a connection as one of the sessions, and as one of this client's. A client that shows who it is cannot
    /// have the last place: with one place only, it can. If there is no place, and the client has the `patience`, it
    /// waits for its turn, and is told how far it is.
    pub(crate) fn admit(
        &self,
        entry: &Entry<'_>,
        session: &mut Session,
        owner: &Owner,
        patience: Duration,
    ) -> Result<(), Stop> {
        let own = self.authenticates.then_some(owner);
        let Err(full) = entry.admit(self.max_sessions, own) else {
            return Ok(());
        };
        let refused = Stop::Refuse(Refusal::TooManySessions { limit: u32::try_from(full.limit).unwrap_or(u32::MAX) });
        if patience.is_zero() || !entry.queue(self.max_waiting, own) {
            return Err(refused);
        }
        let whole = patience.min(self.deadlines.queue);
        session.set_limits(self.deadlines.in_queue(whole));
        let began = Instant::now();
        let mut told: Option<(Waiting, Instant)> = None;
        loop {
            let waiting = match entry.turn(self.max_sessions, own, self.deadlines.rest) {
                Turn::Now => break,
                Turn::Stopping => return Err(Stop::Refuse(Refusal::Stopping)),
                Turn::Later(_) if began.elapsed() >= whole => return Err(refused),
                Turn::Later(waiting) => waiting,
            };
            if told.is_none_or(|(said, when)| match said == waiting {
                true => when.elapsed() >= TELL_AGAIN,
                false => when.elapsed() >= TELL,
            }) {
                session.send_vec(REPLY, Reply::Waiting(waiting).encode())?;
                told = Some((waiting, Instant::now()));
            }
            // A client that waits has nothing to say.
            if session.arrived(TURN)? {
                return Err(ServeError::Net(PeerFault::Unasked.into()).into());
            }
        }
        session.set_limits(self.deadlines.before_authentication());
        Ok(())
    }

    /// Serves until `stop` is raised, running `serve` in a thread per connection. Then lets active sessions finish
    /// (within [`Deadlines::drain`]), and cuts off the rest.
    pub(crate) fn run<F>(&self, stop: &AtomicBool, serve: &F) -> Result<(), ServeError>
    where
        F: Fn(&Entry<'_>, TcpStream, SocketAddr, &mut Outcome) -> Result<(), Stop> + Sync,
    {
        let done = AtomicBool::new(false);
        self.gate().tell();
        thread::scope(|scope| {
            if let Some(socket) = &self.metrics_socket {
                let (metrics, done) = (&*self.metrics, &done);
                let fresh = || {
                    let (sessions, waiting) = self.registry.sessions();
                    metrics.now([sessions, waiting, self.max_sessions], self.gate().validity.until);
                    if let Some(counts) = &self.counts {
                        metrics.left(counts.left());
                    }
                };
                let answer = move || metrics::serve(socket, metrics, &fresh, stop, done);
                let thread = thread::Builder::new().name("hushed-metrics".to_owned());
                thread.spawn_scoped(scope, answer).map_err(ServeError::Thread)?;
            }
            self.accept(scope, stop, serve);
            self.drain();
            done.store(true, Ordering::SeqCst);
            Ok(())
        })
    }

    fn accept<'scope, F>(&'scope self, scope: &'scope Scope<'scope, '_>, stop: &AtomicBool, serve: &'scope F)
    where
        F: Fn(&Entry<'_>, TcpStream, SocketAddr, &mut Outcome) -> Result<(), Stop> + Sync,
    {
        let mut evictions = Evictions::default();
        loop {
            let looks = || {
                if self.entrance.reload.swap(false, Ordering::SeqCst) {
                    self.reload();
                }
                stop.load(Ordering::SeqCst)
            };
            match self.socket.accept(looks) {
                Ok(None) => return,
                Ok(Some((socket, peer))) => self.start(scope, serve, socket, peer, &mut evictions),
                Err(error) => {
                    // Usually the limit on open files; it passes when a session ends.
                    tracing::warn!(%error, "no connection can be accepted");
                    thread::sleep(NO_CONNECTION);
                }
            }
        }
    }

    /// Starts a session's thread, in a place that is free or is freed for it.
    fn start<'scope, F>(
        &'scope self,
        scope: &'scope Scope<'scope, '_>,
        serve: &'scope F,
        socket: TcpStream,
        peer: SocketAddr,
        evictions: &mut Evictions,
    ) where
        F: Fn(&Entry<'_>, TcpStream, SocketAddr, &mut Outcome) -> Result<(), Stop> + Sync,
    {
        let entry = match self.enter(&socket, peer) {
            Ok(Entered::In { entry, evicted }) => {
                if evicted {
                    self.metrics.refused("evicted");
                    evictions.tell();
                }
                entry
            }
            Ok(Entered::Full) => {
                self.metrics.refused("too-many-connections");
                evictions.tell();
                return;
            }
            Err(error) => {
                tracing::warn!(%peer, %error, "refused: no descriptor left");
                return;
            }
        };
        let thread = thread::Builder::new().name(format!("session-{}", entry.number()));
        let started = thread.spawn_scoped(scope, move || {
            let running = self.metrics.running();
            let outcome = Outcome::of(|outcome| serve(&entry, socket, peer, outcome));
            drop(running);
            // A connection closed to make room was counted and logged when that happened.
            if !entry.was_evicted() {
                outcome.report(&self.metrics, entry.number(), peer);
            }
        });
        if let Err(error) = started {
            tracing::warn!(%peer, %error, "refused: no thread");
        }
    }

    /// Finds a place for a newcomer. While too many connections are still ending, the others wait in the system's
    /// queue.
    fn enter(&self, socket: &TcpStream, peer: SocketAddr) -> io::Result<Entered<'_>> {
        let (pause, most) = ENDING;
        // A client speaks first, and has usually spoken by now.
        let spoke = speaks(socket, None);
        for _ in 0..most {
            match self.registry.enter(socket, peer.ip(), spoke)? {
                Entered::Full => thread::sleep(pause),
                entered => return Ok(entered),
            }
        }
        self.registry.enter(socket, peer.ip(), spoke)
    }

    fn drain(&self) {
        let registry = &self.registry;
        tracing::info!(sessions = registry.len(), "stopping");
        registry.stop();
        let give_up = Instant::now() + self.deadlines.drain;
        while registry.len() > 0 && Instant::now() < give_up {
            thread::sleep(POLL);
        }
        let broken_off = registry.break_off();
        if broken_off > 0 {
            tracing::warn!(sessions = broken_off, "broke off sessions that did not end in time");
        }
        tracing::info!("stopped");
    }
}

/// Whether a byte has come, or comes within this time. It is not consumed.
fn speaks(socket: &TcpStream, within: Option<Duration>) -> bool {
    let waits = socket.set_nonblocking(within.is_none());
    let set = waits.and_then(|()| socket.set_read_timeout(within));
    set.is_ok() && matches!(socket.peek(&mut [0]), Ok(1..))
}

/// Evicted connections, for the log.
#[derive(Default)]
struct Evictions {
    told: Option<Instant>,
    since: u64,
}

impl Evictions {
    fn tell(&mut self) {
        self.since += 1;
        let now = Instant::now();
        if self.told.is_none_or(|told| now - told >= BETWEEN_LINES) {
            tracing::warn!(
                connections = self.since,
                "closed connections that had not said hello, to make room for others"
            );
            (self.told, self.since) = (Some(now), 0);
        }
    }
}
