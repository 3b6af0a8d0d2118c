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

use std::collections::HashMap;
use std::io;
use std::net::{IpAddr, Ipv6Addr, Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::owner::Owner;

/// Places for strangers that have not said hello.
const ROOM: usize = 128;
/// Places for addresses from which a client has authenticated.
const RESERVE: usize = 32;
/// Places per address. A client takes one, for a few hundred milliseconds.
const SHARE: usize = 16;
/// Maximum number of closed connections whose threads have not noticed yet.
const ENDING: usize = 128;
/// How long an address stays known after a client has authenticated, and how many are remembered.
const KNOWN_FOR: Duration = Duration::from_secs(86_400);
const MOST_KNOWN: usize = 4096;

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
        };
        state.connections.insert(number, connection);
        Ok(Entered::In { entry: Entry { registry: self, number }, evicted: victim.is_some() })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// Lets nothing new begin from now on, and closes idle connections.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        end(state.connections.values().filter(|c| !c.working));
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

    /// Counts this connection as one of at most `limit` sessions; if there are that many already, returns the limit
    /// that was reached. `client`: who has authenticated. Its address is known from now on, whether or not there is
    /// room, and it leaves the last session to others, if `limit` is more than one.
    pub(crate) fn admit(&self, limit: usize, client: Option<&Owner>) -> Result<(), usize> {
        let mut state = self.registry.lock();
        let Some(connection) = state.connections.get(&self.number) else {
            return Err(limit);
        };
        let (origin, place) = (connection.origin, connection.place);
        if client.is_some() {
            state.remember(origin);
        }
        if state.admitted >= limit || !matches!(place, Place::Waits { .. }) {
            return Err(limit);
        }
        let own = limit.saturating_sub(1).max(1);
        let is_its = |connection: &&Connection| client.is_some() && connection.client.as_ref() == client;
        if state.connections.values().filter(is_its).count() >= own {
            return Err(own);
        }
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.place = Place::Admitted;
            connection.client = client.cloned();
            state.admitted += 1;
        }
        Ok(())
    }

    /// Records that a text begins; false if the server is stopping.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.registry.lock();
        let stopping = state.stopping;
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.working = !stopping;
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
}

impl Drop for Entry<'_> {
    fn drop(&mut self) {
        let mut state = self.registry.lock();
        if let Some(connection) = state.connections.remove(&self.number) {
            state.admitted -= usize::from(connection.place == Place::Admitted);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::{Ipv4Addr, TcpListener};

    use super::*;

    fn address(n: usize) -> IpAddr {
        let [.., high, low] = u32::try_from(n).unwrap().to_be_bytes();
        Ipv4Addr::new(192, 0, high, low).into()
    }

    /// One socket stands for all: these tests do not look at whether it is closed.
    fn socket() -> TcpStream {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        TcpStream::connect(listener.local_addr().unwrap()).unwrap()
    }

    fn enter<'a>(registry: &'a Registry, socket: &TcpStream, from: IpAddr) -> Entry<'a> {
        match registry.enter(socket, from, false).unwrap() {
            Entered::In { entry, .. } => entry,
            Entered::Full => panic!("there are not so many"),
        }
    }

    #[test]
    fn f4_an_address_is_a_network_of_64_bits() {
        let origin = |text: &str| Origin::of(text.parse().unwrap());
        assert_eq!(origin("2001:db8:1:2::1"), origin("2001:db8:1:2:ffff:1::9"));
        assert_ne!(origin("2001:db8:1:2::1"), origin("2001:db8:1:3::1"));
        assert_eq!(origin("::ffff:192.0.2.1"), origin("192.0.2.1"));
        assert_ne!(origin("192.0.2.1"), origin("192.0.2.2"));
    }

    #[test]
    fn f4_an_address_has_its_share_and_the_oldest_silent_one_goes_first() {
        let (registry, socket) = (Registry::default(), socket());
        let mut all: Vec<_> = (0..SHARE).map(|_| enter(&registry, &socket, address(1))).collect();
        all[0].spoke();
        let other = enter(&registry, &socket, address(2));
        all.push(enter(&registry, &socket, address(1)));
        let lost = |all: &[Entry<'_>]| -> Vec<usize> {
            let lost = all.iter().enumerate();
            lost.filter(|(_, e)| e.was_evicted()).map(|(i, _)| i).collect()
        };
        // The oldest has sent something: a client at that address still gets through.
        assert_eq!(lost(&all), [1]);
        assert!(!other.was_evicted());
        assert!(all[0].admit(4, None).is_ok() && all[1].admit(4, None).is_err());
        // An admitted connection has left the room.
        all.push(enter(&registry, &socket, address(1)));
        assert_eq!(lost(&all), [1]);
        drop((all, other));
        assert_eq!(registry.len(), 0);
    }

    #[test]
    fn f4_a_full_room_takes_from_the_address_with_the_most() {
        let (registry, socket) = (Registry::default(), socket());
        let alone = enter(&registry, &socket, address(0));
        alone.spoke();
        let mut flood = Vec::new();
        // 63 addresses with two connections each fill the room except for one place. 60 more come from them and evict
        // each other.
        for n in (0..126).chain(0..60) {
            flood.push(enter(&registry, &socket, address(1 + n % 63)));
        }
        assert!(!alone.was_evicted());
        let late = enter(&registry, &socket, address(500));
        assert!(!late.was_evicted());
        // Only if every place belongs to a different address does the oldest go, and silent ones still go first.
        for n in 0..2 * ROOM {
            flood.push(enter(&registry, &socket, address(1000 + n)));
            // Their threads notice.
            flood.retain(|entry| !entry.was_evicted());
        }
        assert!(late.was_evicted() && !alone.was_evicted());
        assert_eq!(flood.len(), ROOM - 1);
    }

    #[test]
    fn f4_strangers_do_not_fill_the_reserve() {
        let (registry, socket) = (Registry::default(), socket());
        let first = enter(&registry, &socket, address(7));
        // There is no room for a session, but the address is known all the same.
        assert!(first.admit(0, Some(&Owner::named("ann"))).is_err());
        let known = enter(&registry, &socket, address(7));
        let mut flood = Vec::new();
        for n in 0..4 * ROOM {
            flood.push(enter(&registry, &socket, address(1000 + n)));
            flood.retain(|entry| !entry.was_evicted());
        }
        assert!(first.was_evicted() && !known.was_evicted());
        assert_eq!(flood.len(), ROOM);
    }

    #[test]
    fn l3_a_client_leaves_the_last_session_to_others() {
        let (registry, socket) = (Registry::default(), socket());
        let (ann, bob) = (Owner::named("ann"), Owner::named("bob"));
        let mut open = Vec::new();
        let mut admitted = |client: Option<&Owner>, limit| {
            let entry = enter(&registry, &socket, address(open.len()));
            let admitted = entry.admit(limit, client);
            open.push(entry);
            admitted
        };
        assert_eq!(admitted(Some(&ann), 3), Ok(()));
        assert_eq!(admitted(Some(&ann), 3), Ok(()));
        // From any address.
        assert_eq!(admitted(Some(&ann), 3), Err(2));
        assert_eq!(admitted(Some(&bob), 3), Ok(()));
        assert_eq!(admitted(Some(&bob), 3), Err(3));
        open.clear();
        // With one session in all, anyone may have it; without authentication, all may be one client's.
        let entry = enter(&registry, &socket, address(0));
        assert_eq!(entry.admit(1, Some(&ann)), Ok(()));
        drop(entry);
        let all = [(); 3].map(|()| enter(&registry, &socket, address(0)));
        assert!(all.iter().all(|entry| entry.admit(3, None).is_ok()));
    }

    #[test]
    fn f4_what_is_remembered_is_bounded() {
        let mut state = State::default();
        for n in 0..2 * MOST_KNOWN {
            state.remember(Origin::of(address(n)));
        }
        assert_eq!(state.known.len(), MOST_KNOWN);
        assert!(state.is_known(Origin::of(address(2 * MOST_KNOWN - 1))));
        assert!(!state.is_known(Origin::of(address(0))));
    }

    #[test]
    fn f4_those_that_end_are_bounded_too() {
        let (registry, socket) = (Registry::default(), socket());
        let mut all = Vec::new();
        let full = (0..4 * ENDING).find(|_| match registry.enter(&socket, address(1), false) {
            Ok(Entered::In { entry, .. }) => {
                all.push(entry);
                false
            }
            _ => true,
        });
        assert_eq!(full, Some(SHARE + ENDING));
        all.clear();
        enter(&registry, &socket, address(1));
    }
}
