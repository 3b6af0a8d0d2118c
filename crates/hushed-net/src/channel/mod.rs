//! What carries frames between two parties.

mod inbox;
pub mod memory;
mod outbox;
pub mod shaped;
mod stream;
pub(crate) mod streams;
pub mod tcp;
pub mod tls;
mod watched;

use std::time::{Duration, Instant};

pub use stream::StreamChannel;

use crate::frame::{Frame, Header};
use crate::{Kind, NetError, Shape};

/// An ordered, reliable carrier of frames to one peer.
///
/// `send` puts the frame into a queue that is emptied in the background, so two parties that send at the same time
/// never wait for each other to read.
///
/// One thread receives while another may send.
pub trait Channel: Send + Sync {
    /// Queues a frame.
    ///
    /// # Errors
    /// [`NetError::PeerGone`], [`NetError::PeerAborted`], or [`NetError::Timeout`] if the queue is full and does not
    /// move within the deadline.
    fn send(&self, frame: Frame) -> Result<(), NetError>;

    /// Receives the next frame, whose payload may have at most `max` bytes.
    ///
    /// # Errors
    /// [`NetError::Timeout`] if nothing at all arrives within the deadline; [`NetError::PeerMisbehaved`] for a frame
    /// that is longer or malformed; [`NetError::PeerGone`], [`NetError::PeerAborted`].
    fn recv(&self, max: u64) -> Result<Frame, NetError>;

    /// Waits for at most `within` for a frame, without taking it; returns the header of the next one if there is one.
    ///
    /// # Errors
    /// Those with which [`Channel::recv`] would fail, other than those of the frame itself.
    fn arrived(&self, within: Duration) -> Result<Option<Header>, NetError>;

    /// Waits until everything queued has been handed to the transport.
    ///
    /// # Errors
    /// As [`Channel::send`].
    fn flush(&self) -> Result<(), NetError>;

    /// Queues an abort, the last frame of this end.
    ///
    /// # Errors
    /// As [`Channel::send`].
    fn abort(&self, code: u16) -> Result<(), NetError>;

    /// Ends the sending direction and waits (within the deadline) for the peer to end its own.
    ///
    /// # Errors
    /// As [`Channel::flush`] and [`Channel::recv`]; a frame that was not asked for is a fault.
    fn close(&self) -> Result<(), NetError>;

    /// Replaces the limits from now on.
    fn set_limits(&self, limits: Limits);

    /// Delays what this end sends as on a slower network; `None` ends that.
    fn shape(&self, shape: Option<Shape>);

    /// Bytes that the channel itself added to the frames of protocol steps.
    fn overhead(&self) -> Overhead;

    /// 32 bytes known only to the two ends of this secure channel (RFC 8446, §7.5); `None` if the channel is not
    /// secure.
    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]>;

    /// For channels that keep a record of what a session does.
    fn note(&self, _what: Noted<'_>) {}
}

/// What a session has done, at the moment that it has.
#[derive(Clone, Copy, Debug)]
pub enum Noted<'a> {
    /// It has received a frame.
    Received {
        /// The kind on the channel, which shows a branch.
        kind: Kind,
        /// The payload.
        payload: &'a [u8],
    },
    /// It has done its part of a protocol beside its branch, or is a branch that has.
    Done,
    /// It has begun a branch.
    Divided,
    /// It has joined the branch.
    Rejoined,
}

/// Bytes besides those of protocol steps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Overhead {
    /// Bytes of heartbeat frames sent.
    pub heartbeat_bytes_sent: u64,
    /// Bytes of heartbeat frames received.
    pub heartbeat_bytes_received: u64,
    /// Bytes written to the socket, everything included.
    pub wire_bytes_sent: u64,
    /// Bytes read from the socket, everything included.
    pub wire_bytes_received: u64,
}

/// How long and how much a channel tolerates.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// The longest silence of the peer before [`NetError::Timeout`]. Heartbeats break the silence.
    pub silence: Duration,
    /// When a receive fails ([`NetError::OutOfTime`]) however active the peer is; this bounds everything before
    /// authentication.
    pub until: Option<Instant>,
    /// Bytes of frames that may wait to be written. A single frame is admitted whatever its length.
    pub send_queue: usize,
    /// Memory for frames that may be read before a step asks for them; an empty one counts as 128 bytes. A longer frame
    /// waits for its step, which says how long it may be.
    pub read_ahead: usize,
}

impl Limits {
    /// For an authenticated peer: 60 s of silence, queues of 64 MiB.
    #[must_use]
    pub fn session() -> Self {
        Self { silence: Duration::from_secs(60), until: None, send_queue: 64 << 20, read_ahead: 64 << 20 }
    }

    /// For a peer not yet authenticated: 10 s in total, queues of 64 KiB.
    #[must_use]
    pub fn before_authentication() -> Self {
        let whole = Duration::from_secs(10);
        Self { silence: whole, until: Instant::now().checked_add(whole), send_queue: 64 << 10, read_ahead: 64 << 10 }
    }

    /// How often an idle writer sends a heartbeat: often enough that the loss of one or two goes unnoticed.
    #[must_use]
    pub fn heartbeat(&self) -> Duration {
        self.silence / 4
    }

    /// The remaining wait if nothing has moved since `since`.
    pub(crate) fn left(&self, since: Instant) -> Result<Duration, NetError> {
        let now = Instant::now();
        let silent = self.silence.saturating_sub(now.saturating_duration_since(since));
        let left = self.until.map_or(silent, |until| silent.min(until.saturating_duration_since(now)));
        if left.is_zero() { Err(self.late()) } else { Ok(left) }
    }

    /// Whether the session's time is over.
    pub(crate) fn expired(&self) -> bool {
        self.until.is_some_and(|until| Instant::now() >= until)
    }

    /// The error for a wait that took too long.
    pub(crate) fn late(&self) -> NetError {
        if self.expired() {
            return NetError::OutOfTime;
        }
        let seconds = self.silence.as_millis().div_ceil(1000);
        NetError::Timeout { seconds: seconds.try_into().unwrap_or(u64::MAX) }
    }
}
