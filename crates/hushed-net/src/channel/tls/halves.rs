//! One `rustls` connection under a reader and a writer thread.
//!
//! The connection is a state machine over bytes. It is locked only while it seals or opens records in memory; the
//! socket is read and written outside the lock, so neither thread ever waits for the other's I/O.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{self, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use rustls::Connection;

use super::super::stream::{Halves, Meter, Security, Sink, StreamChannel};
use super::super::{Limits, tcp};
use super::key_fingerprint;
use crate::NetError;
use crate::frame::io_error;

/// Bytes read from the socket at once: a few records.
const READ_BYTES: usize = 64 << 10;

type Shared = Arc<Mutex<Connection>>;

fn lock(connection: &Shared) -> MutexGuard<'_, Connection> {
    // After a panic inside rustls, the connection at worst returns errors.
    connection.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs the handshake, then starts the threads.
pub(super) fn establish(
    mut connection: Connection,
    socket: TcpStream,
    limits: Limits,
) -> Result<StreamChannel, NetError> {
    tcp::prepare(&socket)?;
    // Each chunk is sealed and taken out at once, so the buffer that rustls would bound never exceeds a chunk.
    connection.set_buffer_limit(None);
    let handshake = handshake(&mut connection, &socket, limits)?;
    tcp::prepare(&socket)?;
    let socket = Arc::new(socket);
    let peer_key = match connection.peer_certificates().and_then(|chain| chain.first()) {
        Some(certificate) => Some(key_fingerprint(certificate)?),
        None => None,
    };
    let connection = Arc::new(Mutex::new(connection));
    StreamChannel::start(limits, |meter| Halves {
        source: TlsSource {
            connection: Arc::clone(&connection),
            socket: Arc::clone(&socket),
            meter: meter.clone(),
            sealed: vec![0; READ_BYTES],
            range: 0..0,
        },
        sink: TlsSink {
            connection: Arc::clone(&connection),
            socket: Arc::clone(&socket),
            meter,
            sealed: Vec::with_capacity(READ_BYTES + READ_BYTES / 8),
        },
        socket,
        security: Some(Box::new(TlsSecurity { connection, peer_key })),
        handshake,
    })
}

/// Runs the handshake to its end within the limits; returns its bytes (sent, received).
///
/// rustls itself bounds a handshake message (64 KiB) and what may arrive before the handshake is done.
fn handshake(connection: &mut Connection, socket: &TcpStream, limits: Limits) -> Result<(u64, u64), NetError> {
    let began = Instant::now();
    let (mut sent, mut received) = (0, 0);
    let mut timed = Timed { socket, began, limits };
    while connection.is_handshaking() || connection.wants_write() {
        if connection.wants_write() {
            sent += connection.write_tls(&mut timed).map_err(|e| handshake_error(&e, limits))? as u64;
            continue;
        }
        let got = connection.read_tls(&mut timed).map_err(|e| handshake_error(&e, limits))?;
        if got == 0 {
            return Err(NetError::PeerGone);
        }
        received += got as u64;
        if let Err(fault) = connection.process_new_packets() {
            // Tell the peer why (an alert), if it still listens.
            while connection.wants_write() && connection.write_tls(&mut timed).is_ok_and(|n| n > 0) {}
            return Err(fault.into());
        }
    }
    Ok((sent, received))
}

fn handshake_error(error: &io::Error, limits: Limits) -> NetError {
    match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => limits.late(),
        _ => io_error("shake hands with the peer", error),
    }
}

/// A socket whose every call ends when the limits do.
struct Timed<'a> {
    socket: &'a TcpStream,
    began: Instant,
    limits: Limits,
}

impl Timed<'_> {
    /// The whole handshake counts as one silence, so a peer cannot stretch it byte by byte.
    fn left(&self) -> io::Result<Duration> {
        self.limits.left(self.began).map_err(|_| io::ErrorKind::TimedOut.into())
    }
}

impl Read for Timed<'_> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.socket.set_read_timeout(Some(self.left()?))?;
        self.socket.read(into)
    }
}

impl Write for Timed<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.socket.set_write_timeout(Some(self.left()?))?;
        self.socket.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.socket.flush()
    }
}

struct TlsSource {
    connection: Shared,
    socket: Arc<TcpStream>,
    meter: Meter,
    sealed: Vec<u8>,
    /// The part of `sealed` that has been read but not opened.
    range: std::ops::Range<usize>,
}

impl Read for TlsSource {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(got) = self.open(into)? {
                return Ok(got);
            }
            let got = (&*self.socket).read(&mut self.sealed)?;
            self.meter.received(got);
            self.range = 0..got;
            if got == 0 {
                // The peer ended without close_notify: whatever it was sending is cut off.
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
    }
}

impl TlsSource {
    /// Opens what has arrived, up to the size of `into`; `None` if more must arrive first.
    fn open(&mut self, into: &mut [u8]) -> io::Result<Option<usize>> {
        let mut connection = lock(&self.connection);
        let mut filled = 0;
        loop {
            let rest = into.get_mut(filled..).unwrap_or_default();
            match connection.reader().read(rest) {
                // Either `into` is full, or the peer sent close_notify: the clean end of its direction.
                Ok(0) => return Ok(Some(filled)),
                Ok(got) => {
                    filled += got;
                    continue;
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {}
                Err(e) => return Err(e),
            }
            let mut fresh = self.sealed.get(self.range.clone()).unwrap_or_default();
            if fresh.is_empty() {
                return Ok((filled > 0).then_some(filled));
            }
            let taken = connection.read_tls(&mut fresh)?;
            self.range.start += taken;
            connection.process_new_packets().map_err(io::Error::other)?;
        }
    }
}

struct TlsSink {
    connection: Shared,
    socket: Arc<TcpStream>,
    meter: Meter,
    sealed: Vec<u8>,
}

impl TlsSink {
    fn seal(&mut self, act: impl FnOnce(&mut Connection) -> io::Result<()>) -> io::Result<()> {
        self.sealed.clear();
        {
            let mut connection = lock(&self.connection);
            act(&mut connection)?;
            // This also carries what the reader's side of TLS wants to send (key updates).
            while connection.wants_write() {
                connection.write_tls(&mut self.sealed)?;
            }
        }
        // Counted first: once the peer has answered, its cause is counted.
        self.meter.sent(self.sealed.len());
        (&*self.socket).write_all(&self.sealed)
    }
}

impl Sink for TlsSink {
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.seal(|connection| connection.writer().write_all(bytes))
    }

    fn close(&mut self) {
        // Fails only if the connection is gone, which the reader reports.
        let _ = self.seal(|connection| {
            connection.send_close_notify();
            Ok(())
        });
        let _ = self.socket.shutdown(Shutdown::Write);
    }
}

struct TlsSecurity {
    connection: Shared,
    peer_key: Option<[u8; 32]>,
}

impl Security for TlsSecurity {
    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        lock(&self.connection).export_keying_material([0; 32], label, None).ok()
    }

    fn peer_key(&self) -> Option<[u8; 32]> {
        self.peer_key
    }
}
