//! Plain TCP: for loopback, for tests, and underneath TLS. It gives no protection.

use std::io::{self, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpListener, TcpStream, ToSocketAddrs};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use super::Limits;
use super::stream::{Halves, Meter, Sink, StreamChannel};
use crate::NetError;

/// How often a listener checks whether to stop.
const POLL: Duration = Duration::from_millis(10);

/// Connects to `address` (`host:port`), trying each address that the name resolves to.
///
/// # Errors
/// [`NetError::Connect`] with the last failure.
pub fn connect(address: &str, within: Duration) -> Result<TcpStream, NetError> {
    let failed = |reason: String| NetError::Connect { address: address.to_owned(), reason };
    let give_up = Instant::now() + within;
    let mut last = failed("the host has no address".to_owned());
    for resolved in address.to_socket_addrs().map_err(|e| failed(unresolved(&e)))? {
        // The system rejects a zero timeout; one millisecond ends as quickly.
        let left = give_up.saturating_duration_since(Instant::now()).max(Duration::from_millis(1));
        match TcpStream::connect_timeout(&resolved, left) {
            Ok(stream) => return Ok(stream),
            Err(e) => last = failed(e.kind().to_string()),
        }
    }
    Err(last)
}

/// What the resolver says, or that the text is no address.
fn unresolved(error: &io::Error) -> String {
    let words = error.to_string();
    match words.strip_prefix("failed to lookup address information: ") {
        Some(reason) => format!("its host was not found ({reason})"),
        None => words,
    }
}

/// A channel over a connected socket.
///
/// # Errors
/// [`NetError::Io`] if the system refuses the socket options or the two threads.
pub fn channel(socket: TcpStream, limits: Limits) -> Result<StreamChannel, NetError> {
    prepare(&socket)?;
    let socket = Arc::new(socket);
    StreamChannel::start(limits, |meter| Halves {
        source: TcpSource { socket: Arc::clone(&socket), meter: meter.clone() },
        sink: TcpSink { socket: Arc::clone(&socket), meter },
        socket,
        security: None,
        handshake: (0, 0),
    })
}

/// Rounds are many and small, so nothing may wait for more bytes.
pub(super) fn prepare(socket: &TcpStream) -> Result<(), NetError> {
    let set = || {
        socket.set_nonblocking(false)?;
        socket.set_read_timeout(None)?;
        socket.set_write_timeout(None)?;
        socket.set_nodelay(true)
    };
    set().map_err(|e| NetError::Io { operation: "set up the socket", kind: e.kind() })
}

struct TcpSource {
    socket: Arc<TcpStream>,
    meter: Meter,
}

impl Read for TcpSource {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let got = (&*self.socket).read(into)?;
        self.meter.received(got);
        Ok(got)
    }
}

struct TcpSink {
    socket: Arc<TcpStream>,
    meter: Meter,
}

impl Sink for TcpSink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        // Counted first: once the peer has answered, its cause is counted.
        self.meter.sent(bytes.len());
        (&*self.socket).write_all(bytes)
    }

    fn close(&mut self) {
        // Fails only if the connection is gone, which the reader reports.
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

/// A server's listening socket.
pub struct Listener {
    inner: TcpListener,
    address: SocketAddr,
}

impl Listener {
    /// Listens on `address` (`host:port`; port 0 lets the system choose).
    ///
    /// # Errors
    /// [`NetError::Listen`], for instance if the port is in use.
    pub fn bind(address: &str) -> Result<Self, NetError> {
        let failed = |e: io::Error| NetError::Listen { address: address.to_owned(), kind: e.kind() };
        let inner = TcpListener::bind(address).map_err(failed)?;
        inner.set_nonblocking(true).map_err(failed)?;
        let address = inner.local_addr().map_err(failed)?;
        Ok(Self { inner, address })
    }

    /// The bound address, with the port that the system chose.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.address
    }

    /// The next connection, or `None` soon after `stop` returns true.
    ///
    /// # Errors
    /// [`NetError::Io`] if the system cannot give a connection now, for instance because this process has too many
    /// open. The listener itself continues.
    pub fn accept(&self, stop: impl Fn() -> bool) -> Result<Option<(TcpStream, SocketAddr)>, NetError> {
        use io::ErrorKind as K;
        while !stop() {
            match self.inner.accept() {
                Ok(connection) => return Ok(Some(connection)),
                Err(e) if e.kind() == K::WouldBlock => thread::sleep(POLL),
                // The peer left between the system's accept and ours.
                Err(e) if matches!(e.kind(), K::ConnectionAborted | K::ConnectionReset | K::Interrupted) => {}
                Err(e) => {
                    return Err(NetError::Io { operation: "accept a connection", kind: e.kind() });
                }
            }
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_words_of_the_resolver_are_kept() {
        let failed = |address| connect(address, Duration::from_secs(5)).err().unwrap().to_string();
        for (address, says) in [("no.such.host.invalid:1", "not found"), ("nowhere", "address"), ("a:port", "")] {
            let message = failed(address);
            assert!(message.contains(says) && !message.contains("uncategorized"), "{message}");
        }
    }
}
