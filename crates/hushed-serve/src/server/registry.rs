//! Which connections there are and what they are doing, so that a stopping server can end those that only wait.

use std::collections::HashMap;
use std::io;
use std::net::{Shutdown, TcpStream};
use std::sync::{Mutex, MutexGuard, PoisonError};

#[derive(Default)]
pub(crate) struct Registry(Mutex<State>);

#[derive(Default)]
struct State {
    next: u64,
    stopping: bool,
    /// Those let in: past their hello, and counted against the limit of sessions.
    admitted: usize,
    connections: HashMap<u64, Connection>,
}

struct Connection {
    /// A second handle on the connection, to end it from outside its thread.
    socket: TcpStream,
    working: bool,
    admitted: bool,
}

impl Registry {
    /// Enters a connection until the entry is dropped.
    pub(crate) fn enter(&self, socket: &TcpStream) -> io::Result<Entry<'_>> {
        let socket = socket.try_clone()?;
        let mut state = self.lock();
        let number = state.next;
        state.next += 1;
        let connection = Connection {
            socket,
            working: false,
            admitted: false,
        };
        state.connections.insert(number, connection);
        Ok(Entry {
            registry: self,
            number,
        })
    }

    pub(crate) fn len(&self) -> usize {
        self.lock().connections.len()
    }

    /// From now on nothing new begins, and connections that only wait are ended.
    pub(crate) fn stop(&self) {
        let mut state = self.lock();
        state.stopping = true;
        end(state.connections.values().filter(|c| !c.working));
    }

    /// Ends what is left; gives how many there were.
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
    for connection in connections {
        // Fails only where the connection is gone already.
        let _ = connection.socket.shutdown(Shutdown::Both);
    }
}

/// One connection's place.
pub(crate) struct Entry<'a> {
    registry: &'a Registry,
    number: u64,
}

impl Entry<'_> {
    /// Unique in this server's life.
    pub(crate) fn number(&self) -> u64 {
        self.number
    }

    /// Counts this connection as one of at most `limit` sessions; false if there are as many already.
    pub(crate) fn admit(&self, limit: usize) -> bool {
        let mut state = self.registry.lock();
        if state.admitted >= limit {
            return false;
        }
        let Some(connection) = state.connections.get_mut(&self.number) else {
            return false;
        };
        connection.admitted = true;
        state.admitted += 1;
        true
    }

    /// Says that a text begins; false if the server is stopping.
    pub(crate) fn begin(&self) -> bool {
        let mut state = self.registry.lock();
        let stopping = state.stopping;
        if let Some(connection) = state.connections.get_mut(&self.number) {
            connection.working = !stopping;
        }
        !stopping
    }

    /// Says that it has ended; false if the server is stopping.
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
            state.admitted -= usize::from(connection.admitted);
        }
    }
}
