//! The open connections and their states, so that strangers cannot keep others out and a stopping server can close idle
//! connections.
//!
//! A connection that has not said hello takes a place in a *room*: that of the strangers or, if a client at its address
//! has lately shown a token or a certificate, a reserve that strangers cannot fill. A newcomer gets a place even if
//! none is free, unless `ENDING` evicted connections have not ended yet. If its address already has its share of
//! places, it takes one of those; if the room is full, it takes one from the address with the most places. Silent
//! connections are evicted before those that have sent something, the oldest first. To keep a stranger out, an attacker
//! needs as many addresses as the room has places; to keep a known client out, that client's address. Refusing
//! newcomers instead would let the first connections keep everybody out until their deadline, and then start over.
//!
//! A client whose hello is good waits for a session in the [`Queue`] if all are taken. While somebody waits, the
//! session that has been idle longest ends.

mod queue;

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::owner::Owner;
use super::wire::{Refusal, Waiting};
use queue::Queue;

/// Places for strangers that have not said hello.
const ROOM: usize = 128;
/// Places for addresses from which a client has authenticated.
const RESERVE: usize = 64;
/// Places per address. A client takes one, for a few hundred milliseconds.
const SHARE: usize = 64;
/// Maximum number of closed connections whose threads have not noticed yet.
const ENDING: usize = 128;
/// How long an address stays known after a client has authenticated, and how many are remembered.
const KNOWN_FOR: Duration = Duration::from_secs(86_400);
const MOST_KNOWN: usize = 4096;
/// How much longer a session may rest while it holds a text.
const WITH_TEXT: u32 = 10;
/// Weight of the last session in the mean duration of sessions.
const LAST: f64 = 0.3;
/// How long after its last pass a session still gets the client's next request once the server is stopping: the client
/// ends it, and is not told that it failed.
const PARTING: Duration = Duration::from_secs(1);

/// What counts as one address. For IPv6, its first 64 bits, as a host usually has all addresses that share them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Origin(IpAddr);

impl Origin {
    pub(crate) fn of(address: IpAddr) -> Origin {
        Origin(match address.to_canonical() {
            IpAddr::V6(v6) => {
                let network = u128::from(v6) & !u128::from(u64::MAX);
                IpAddr::V6(Ipv6Addr::from(network))
            }
            v4 => v4,
        })
    }
}

#[derive(Default)]
pub(crate) struct Registry(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    stopping: bool,
    /// Sessions: past their hello and counted against the limit.
    admitted: usize,
    /// Connections that wait for a session.
    queue: Queue,
    /// Mean duration of sessions in seconds, once one has ended.
    mean: Option<f64>,
    connections: HashMap<u64, Connection>,
    /// Addresses of authenticated clients, and when they were seen.
    known: HashMap<Origin, Instant>,
}

struct Connection {
    /// A second handle on the connection, to end it from outside its thread; `None` once it was evicted.
    socket: Option<TcpStream>,
    origin: Origin,
    place: Place,
    /// Who has authenticated, of a session.
    client: Option<Owner>,
    working: bool,
    /// When it became a session.
    admitted: Option<Instant>,
    /// Since when a session waits for its client's next request, and whether it holds a text.
    rests: Option<(Instant, bool)>,
    /// It is to end, for a client that waits.
    called_off: bool,
}

/// What a connection is counted as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Place {
    /// It has not said hello.
    Waits {
        /// In the reserve.
        known: bool,
        /// It has sent a byte.
        spoke: bool,
    },
    /// It waits for a session.
    Queued,
    Admitted,
    /// Evicted; its thread has not noticed yet.
    Evicted,
}

impl State {
    fn waiting(&self, known: bool) -> impl Iterator<Item = (u64, &Connection, bool)> {
        self.connections.iter().filter_map(move |(number, c)| match c.place {
            Place::Waits { known: k, spoke } if k == known => Some((*number, c, spoke)),
            _ => None,
        })
    }

    /// The connection whose place a newcomer takes; `None` if a place is free.
    fn victim(&self, origin: Origin, known: bool) -> Option<u64> {
        let mut places: HashMap<Origin, usize> = HashMap::new();
        let mut waiting = 0;
        for (_, connection, _) in self.waiting(known) {
            *places.entry(connection.origin).or_default() += 1;
            waiting += 1;
        }
        let of = |origin: &Origin| places.get(origin).copied().unwrap_or(0);
        let room = if known { RESERVE } else { ROOM };
        let own = of(&origin) >= SHARE;
        if !own && waiting < room {
            return None;
        }
        let candidates = self.waiting(known).filter(|(_, connection, _)| !own || connection.origin == origin);
        // Silent ones first; numbers grow, so the smallest is the oldest.
        let first = candidates.min_by_key(|(number, connection, spoke)| {
            let most = std::cmp::Reverse(of(&connection.origin));
            (most, *spoke, *number)
        });
        first.map(|(number, ..)| number)
    }

    /// Why this client cannot have a session now: the limit that was reached, in all or of its own.
    fn full(&self, limit: usize, client: Option<&Owner>) -> Result<(), Full> {
        if self.admitted >= limit {
            return Err(Full { limit, own: false });
        }
        let own = limit.saturating_sub(1).max(1);
        let is_its = |connection: &&Connection| client.is_some() && connection.client.as_ref() == client;
        match self.connections.values().filter(is_its).count() >= own {
            true => Err(Full { limit: own, own: true }),
            false => Ok(()),
        }
    }

    /// Makes a connection a session.
    fn admit(&mut self, number: u64, client: Option<&Owner>) {
        if let Some(connection) = self.connections.get_mut(&number) {
            connection.place = Place::Admitted;
            connection.client = client.cloned();
            connection.admitted = Some(Instant::now());
            self.admitted += 1;
        }
    }

    /// Calls off the session that has been idle longest, if one has rested for as long as `rest`, for the connection at
    /// this place of the queue: one for each. `of`: a client that has too many itself.
    fn call_off(&mut self, place: usize, of: Option<&Owner>, rest: Duration) {
        let called_off = self.connections.values().filter(|c| c.called_off).count();
        if called_off > place {
            return;
        }
        let idle = self.connections.values_mut().filter_map(|c| {
            let (since, holds) = c.rests.filter(|_| !c.called_off && (of.is_none() || c.client.as_ref() == of))?;
            let most = if holds { rest.saturating_mul(WITH_TEXT) } else { rest };
            (since.elapsed() >= most).then_some((since, c))
        });
        if let Some((_, connection)) = idle.min_by_key(|(since, _)| *since) {
            connection.called_off = true;
        }
    }

    fn is_known(&self, origin: Origin) -> bool {
        let since = self.known.get(&origin);
        since.is_some_and(|since| since.elapsed() < KNOWN_FOR)
    }

    fn remember(&mut self, origin: Origin) {
        if self.known.len() >= MOST_KNOWN && !self.known.contains_key(&origin) {
            self.known.retain(|_, since| since.elapsed() < KNOWN_FOR);
            let oldest = self.known.iter().min_by_key(|(_, since)| **since);
            if let Some(oldest) = oldest.map(|(origin, _)| *origin)
                && self.known.len() >= MOST_KNOWN
            {
                self.known.remove(&oldest);
            }
        }
        self.known.insert(origin, Instant::now());
    }
}

/// The outcome for a newcomer.
pub(crate) enum Entered<'a> {
    In {
        entry: Entry<'a>,
        /// Another connection was evicted for it.
        evicted: bool,
    },
    /// Too many evicted connections have not ended yet.
    Full,
}

/// The limit on sessions that was reached: in all, or of one client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Full {
    pub(crate) limit: usize,
    own: bool,
}

/// What a connection that waits for a session gets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// A session.
    Now,
    /// It goes on waiting.
    Later(Waiting),
    /// The server is stopping.
    Stopping,
}

impl Registry {
    /// Enters a connection from `address` until the entry is dropped. `spoke`: it has sent a byte.
    pub(crate) fn enter(&self, socket: &TcpStream, address: IpAddr, spoke: bool) -> io::Result<Entered<'_>> {
        let origin = Origin::of(address);
        let mut state = self.lock();
        let ending = state.connections.values();
        if ending.filter(|c| c.place == Place::Evicted).count() >= ENDING {
            return Ok(Entered::Full);
        }
        let known = state.is_known(origin);
        let victim = state.victim(origin, known);
        let socket = socket.try_clone()?;
        if let Some(evicted) = victim.and_then(|number| state.connections.get_mut(&number)) {
            evicted.place = Place::Evicted;
            end(std::iter::once(&*evicted));
            // Frees one descriptor before its thread finds out.
            evicted.socket = None;
        }
        let number = state.next;
        state.next += 1;
        let connection = Connection {
            socket: Some(socket),
            origin,
            place: Place::Waits { known, spoke },
            client: None,
            working: false,
            admitted: None,
            rests: None,
            called_off: false,
        };
        state.connections.insert(number, connection);
        Ok(Entered::In { entry: Entry { registry: self, number }, evicted: victim.is_some() })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// The numbers of sessions and of connections that wait for one.
    pub(crate) fn sessions(&self) -> (usize, usize) {
        let state = self.lock();
        (state.admitted, state.queue.len())
    }

    /// Lets nothing new begin from now on, and closes connections between which and a client nothing is under way.
    /// Sessions that rest and connections that wait find out themselves.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        end(state.connections.values().filter(|c| !c.working && c.rests.is_none() && c.place != Place::Queued));
    }

    /// Closes the remaining connections; returns their number.
    pub(crate) fn break_off(&self) -> usize {
        let state = self.lock();
        end(state.connections.values());
        state.connections.len()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Nothing in here panics half way through a change.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn end<'a>(connections: impl Iterator<Item = &'a Connection>) {
    for socket in connections.filter_map(|connection| connection.socket.as_ref()) {
        // Fails only if the connection is already gone.
        let _ = socket.shutdown(Shutdown::Both);
    }
}

/// One connection's place.
pub(crate) struct Entry<'a> {
    registry: &'a Registry,
    number: u64,
}

impl Entry<'_> {
    /// A number unique in this server's lifetime.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Records that it has sent a byte.
    pub(crate) fn spoke(&self) {
        let mut state = self.registry.lock();
        if let Some(connection) = state.connections.get_mut(&self.number)
            && let Place::Waits { spoke, .. } = &mut connection.place
        {
            *spoke = true;
        }
    }

    /// Whether it was evicted before its hello.
    pub(crate) fn was_evicted(&self) -> bool {
        let state = self.registry.lock();
        let connection = state.connections.get(&self.number);
        connection.is_some_and(|c| c.place == Place::Evicted)
    }

    /// Counts this connection as one of at most `limit` sessions; if there are that many already, or others wait for
    /// one, returns the limit that was reached. `client`: who has authenticated. Its address is known from now on,
    /// whether or not there is room, and it leaves the last session to others, if `limit` is more than one.
    pub(crate) fn admit(&self, limit: usize, client: Option<&Owner>) -> Result<(), Full> {
        let mut state = self.registry.lock();
        let none = Full { limit, own: false };
        let Some(connection) = state.connections.get(&self.number) else {
            return Err(none);
        };
        let (origin, place) = (connection.origin, connection.place);
        if client.is_some() {
            state.remember(origin);
        }
        if !matches!(place, Place::Waits { .. }) {
            return Err(none);
        }
        state.full(limit, client)?;
        if state.queue.order().into_iter().any(|(_, waits)| state.full(limit, waits).is_ok()) {
            return Err(none);
        }
        state.admit(self.number, client);
        Ok(())
    }

    /// Takes one of at most `places` places in the queue for a session; false if there is none for this client.
    pub(crate) fn queue(&self, places: usize, client: Option<&Owner>) -> bool {
        let mut state = self.registry.lock();
        let waits = state.connections.get(&self.number).is_some_and(|c| matches!(c.place, Place::Waits { .. }));
        if !waits || !state.queue.enter(self.number, client, places) {
            return false;
        }
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.place = Place::Queued;
        }
        true
    }

    /// Takes a session if it is this connection's turn for one of at most `limit`. Otherwise one that has been idle for
    /// as long as `rest` is called off.
    pub(crate) fn turn(&self, limit: usize, client: Option<&Owner>, rest: Duration) -> Turn {
        let mut state = self.registry.lock();
        if state.stopping {
            return Turn::Stopping;
        }
        let order = state.queue.order();
        let waiting = order.len();
        let next = order.iter().find(|(_, waits)| state.full(limit, *waits).is_ok());
        let is_next = next.is_some_and(|(number, _)| *number == self.number);
        let place = order.iter().position(|(number, _)| *number == self.number).unwrap_or(waiting);
        if is_next {
            state.queue.leave(self.number, true);
            state.admit(self.number, client);
            return Turn::Now;
        }
        if let Err(full) = state.full(limit, client) {
            state.call_off(place, client.filter(|_| full.own), rest);
        }
        let seconds = state.mean.map_or(0.0, |mean| (mean * (place + 1) as f64 / limit as f64).ceil().max(1.0));
        let narrow = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Turn::Later(Waiting { position: narrow(place + 1), waiting: narrow(waiting), seconds: seconds as u32 })
    }

    /// Records that a text begins; false if the server is stopping.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.registry.lock();
        let stopping = state.stopping;
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.working = !stopping;
            (connection.rests, connection.called_off) = (None, false);
        }
        !stopping
    }

    /// Records that the text has ended; false if the server is stopping.
    pub(crate) fn rest(&self) -> bool {
        let mut state = self.registry.lock();
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.working = false;
        }
        !state.stopping
    }

    /// Records that a session waits for its client's next request, from now until [`Entry::called_off`] is no longer
    /// asked. `holds`: it holds a text that may be continued.
    pub(crate) fn rests(&self, holds: bool) {
        let mut state = self.registry.lock();
        if let Some(connection) = state.connections.get_mut(&self.number) {
            (connection.working, connection.rests) = (false, Some((Instant::now(), holds)));
        }
    }

    /// Why a session that rests is to end now.
    pub(crate) fn called_off(&self) -> Option<Refusal> {
        let state = self.registry.lock();
        let connection = state.connections.get(&self.number)?;
        let rested = connection.rests.is_none_or(|(since, _)| since.elapsed() >= PARTING);
        match connection.called_off {
            true => Some(Refusal::Idle),
            false => (state.stopping && rested).then_some(Refusal::Stopping),
        }
    }
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        state.queue.leave(self.number, false);
        if let Some(connection) = state.connections.remove(&self.number) {
            state.admitted -= usize::from(connection.place == Place::Admitted);
            if let Some(since) = connection.admitted {
                let took = since.elapsed().as_secs_f64();
                state.mean = Some(state.mean.map_or(took, |mean| mean + LAST * (took - mean)));
            }
        }
    }
}

#[cfg(test)]
mod tests;
