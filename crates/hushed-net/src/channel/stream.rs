//! Frames over a byte stream: one thread writes what the session queues, one reads ahead of it.
//!
//! The peer's bytes are always being read (up to the read-ahead), so two parties that send at the same time do not wait
//! for each other. What remains is bounded: if both have queued and read ahead all that their limits allow, and neither
//! receives, both get [`NetError::Timeout`].
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{self, BufReader, Read};
use std::net::{Shutdown, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::inbox::Inbox;
use super::outbox::{Item, Outbox};
use super::shaped::Schedule;
use super::{Channel, Limits, Overhead};
use crate::frame::{Frame, HEADER_BYTES, Header, io_error, read_header, read_payload};
use crate::process::Origin;
use crate::{NetError, Shape};

/// Bytes passed to the transport at once: four TLS records, and small enough to pace a shaped link.
const CHUNK_BYTES: usize = 64 << 10;
/// How long a dropped channel keeps trying to write out what was sent, and to see the peer's end.
const LINGER: Duration = Duration::from_secs(1);
/// Reader and writer keep their buffers on the heap.
const STACK_BYTES: usize = 512 << 10;

/// The sending half of a transport.
pub(super) trait Sink: Send + 'static {
    /// Writes all bytes to the transport.
    fn write_all(&mut self, bytes: &[u8]) -> io::Result<()>;
    /// Ends the direction in the transport's own way.
    fn close(&mut self);
}

/// What a secure transport knows beyond bytes.
pub(super) trait Security: Send + Sync {
    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]>;
    fn peer_key(&self) -> Option<[u8; 32]>;
}

/// A channel over TCP or TLS.
pub struct StreamChannel {
    shared: Arc<Shared>,
    socket: Arc<TcpStream>,
    security: Option<Box<dyn Security>>,
    threads: Vec<JoinHandle<()>>,
    origin: Origin,
}

struct Shared {
    outbox: Outbox,
    inbox: Inbox,
    counters: Counters,
}

#[derive(Default)]
struct Counters {
    heartbeat_bytes_sent: AtomicU64,
    heartbeat_bytes_received: AtomicU64,
    wire_bytes_sent: AtomicU64,
    wire_bytes_received: AtomicU64,
}

/// The two halves of an established transport.
pub(super) struct Halves<R, W> {
    pub(super) socket: Arc<TcpStream>,
    pub(super) source: R,
    pub(super) sink: W,
    pub(super) security: Option<Box<dyn Security>>,
    /// Bytes of the transport's handshake: (sent, received).
    pub(super) handshake: (u64, u64),
}

/// Counts what a transport moves on the socket.
#[derive(Clone)]
pub(super) struct Meter(Arc<Shared>);

impl Meter {
    pub(super) fn sent(&self, bytes: usize) {
        self.0.counters.wire_bytes_sent.fetch_add(bytes as u64, Ordering::Relaxed);
    }

    pub(super) fn received(&self, bytes: usize) {
        self.0.counters.wire_bytes_received.fetch_add(bytes as u64, Ordering::Relaxed);
        self.0.inbox.hear();
    }
}

impl StreamChannel {
    /// Starts the two threads. `halves` gets the meter to report to.
    pub(super) fn start<R, W>(limits: Limits, halves: impl FnOnce(Meter) -> Halves<R, W>) -> Result<Self, NetError>
    where
        R: Read + Send + 'static,
        W: Sink,
    {
        let shared =
            Arc::new(Shared { outbox: Outbox::new(limits), inbox: Inbox::new(limits), counters: Counters::default() });
        let halves = halves(Meter(Arc::clone(&shared)));
        let (sent, received) = halves.handshake;
        shared.counters.wire_bytes_sent.store(sent, Ordering::Relaxed);
        shared.counters.wire_bytes_received.store(received, Ordering::Relaxed);
        // From here on `channel` shuts the socket down when dropped, which ends the threads.
        let mut channel = Self {
            shared,
            socket: halves.socket,
            security: halves.security,
            threads: Vec::with_capacity(2),
            origin: Origin::here(),
        };
        let (source, mut sink) = (halves.source, halves.sink);
        let shared = Arc::clone(&channel.shared);
        channel.spawn("hushed-write", move || {
            let why = write_loop(&shared, &mut sink);
            sink.close();
            shared.outbox.ended(why);
        })?;
        let shared = Arc::clone(&channel.shared);
        channel.spawn("hushed-read", move || {
            read_loop(&shared, source);
            shared.inbox.finished();
        })?;
        Ok(channel)
    }

    fn spawn(&mut self, name: &str, body: impl FnOnce() + Send + 'static) -> Result<(), NetError> {
        let thread = thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES).spawn(body);
        self.threads.push(thread.map_err(|e| NetError::Io { operation: "start a thread", kind: e.kind() })?);
        Ok(())
    }

    /// SHA-256 of the public key that the peer proved to hold the private half of, if it showed a certificate
    /// ([`tls::key_fingerprint`](super::tls::key_fingerprint)).
    #[must_use]
    pub fn peer_key(&self) -> Option<[u8; 32]> {
        self.security.as_ref()?.peer_key()
    }

    /// A broken connection often echoes the peer's abort or fault, which says more.
    fn explain(&self, why: NetError) -> NetError {
        if matches!(why, NetError::PeerGone | NetError::Closed) { self.shared.inbox.end().unwrap_or(why) } else { why }
    }
}

impl Channel for StreamChannel {
    fn send(&self, frame: Frame) -> Result<(), NetError> {
        self.shared.outbox.push(frame).map_err(|why| self.explain(why))
    }

    fn recv(&self, max: u64) -> Result<Frame, NetError> {
        self.shared.inbox.pop(max)
    }

    fn arrived(&self, within: Duration) -> Result<Option<Header>, NetError> {
        self.shared.inbox.arrived(within)
    }

    fn flush(&self) -> Result<(), NetError> {
        self.shared.outbox.flush().map_err(|why| self.explain(why))
    }

    fn abort(&self, code: u16) -> Result<(), NetError> {
        self.shared.outbox.push_abort(code);
        Ok(())
    }

    fn close(&self) -> Result<(), NetError> {
        self.flush()?;
        self.shared.outbox.close();
        self.shared.inbox.drained()
    }

    fn set_limits(&self, limits: Limits) {
        self.shared.outbox.set_limits(limits);
        self.shared.inbox.set_limits(limits);
    }

    fn shape(&self, shape: Option<Shape>) {
        self.shared.outbox.shape(shape);
    }

    fn overhead(&self) -> Overhead {
        let c = &self.shared.counters;
        let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Overhead {
            heartbeat_bytes_sent: read(&c.heartbeat_bytes_sent),
            heartbeat_bytes_received: read(&c.heartbeat_bytes_received),
            wire_bytes_sent: read(&c.wire_bytes_sent),
            wire_bytes_received: read(&c.wire_bytes_received),
        }
    }

    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.security.as_ref()?.exporter(label)
    }
}

impl Drop for StreamChannel {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // A forked process has no threads and must not touch the socket: the parent goes on using both.
            std::mem::forget(std::mem::take(&mut self.threads));
            return;
        }
        self.shared.inbox.abandon();
        // A thread that could not be started will not report its end.
        if self.threads.len() == 2 {
            let give_up = Instant::now() + LINGER;
            self.shared.outbox.linger(give_up);
            self.shared.inbox.linger(give_up);
        }
        self.shared.outbox.linger(Instant::now());
        // Ends a read or write that is still blocked; an error means that the connection is already gone.
        let _ = self.socket.shutdown(Shutdown::Both);
        for thread in self.threads.drain(..) {
            // A panic in the thread was reported by the panic hook; there is nobody to return it to.
            let _ = thread.join();
        }
    }
}

fn write_loop(shared: &Shared, sink: &mut impl Sink) -> NetError {
    let mut scratch = Vec::with_capacity(CHUNK_BYTES);
    loop {
        let done = match shared.outbox.next() {
            Item::Frame(frame, schedule) => write_frame(shared, sink, &mut scratch, &frame, schedule),
            Item::Abort(code) => sink.write_all(&Header::Abort { code }.encode()),
            Item::Heartbeat => {
                shared.counters.heartbeat_bytes_sent.fetch_add(HEADER_BYTES as u64, Ordering::Relaxed);
                sink.write_all(&Header::Heartbeat.encode())
            }
            Item::Close => return NetError::Closed,
        };
        if let Err(e) = done {
            return io_error("write to the peer", &e);
        }
    }
}

/// Sends the header and the first bytes together: a small frame is one packet.
fn write_frame(
    shared: &Shared,
    sink: &mut impl Sink,
    scratch: &mut Vec<u8>,
    frame: &Frame,
    schedule: Option<Schedule>,
) -> io::Result<()> {
    scratch.clear();
    scratch.extend_from_slice(&frame.header().encode());
    let (first, rest) = frame.payload.split_at(frame.payload.len().min(CHUNK_BYTES - HEADER_BYTES));
    scratch.extend_from_slice(first);
    let mut through = 0;
    for chunk in std::iter::once(scratch.as_slice()).chain(rest.chunks(CHUNK_BYTES)) {
        through += chunk.len() as u64;
        if let Some(schedule) = schedule {
            shared.outbox.sleep_until(schedule.arrival(through));
        }
        sink.write_all(chunk)?;
        shared.outbox.written(chunk.len() as u64);
    }
    Ok(())
}

fn read_loop(shared: &Shared, source: impl Read) {
    let mut source = BufReader::with_capacity(CHUNK_BYTES, source);
    let why = loop {
        if let Err(why) = read_frame(shared, &mut source) {
            break why;
        }
    };
    if matches!(why, NetError::PeerAborted { .. }) {
        shared.outbox.refused(why.clone());
    }
    shared.inbox.ended(why);
    // Discards whatever still comes, until the peer ends its direction or the socket is shut down.
    let _ = io::copy(&mut source, &mut io::sink());
}

fn read_frame(shared: &Shared, source: &mut impl Read) -> Result<(), NetError> {
    let header = read_header(source)?;
    match header {
        Header::Heartbeat => {
            shared.counters.heartbeat_bytes_received.fetch_add(HEADER_BYTES as u64, Ordering::Relaxed);
        }
        Header::Abort { code } => return Err(NetError::PeerAborted { code }),
        Header::Step { kind, step, length } => {
            shared.inbox.admit(header, length)?;
            let payload = read_payload(source, length)?;
            shared.inbox.push(Frame { kind, step, payload });
        }
    }
    Ok(())
}
