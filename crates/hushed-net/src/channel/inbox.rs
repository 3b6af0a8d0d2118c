//! Frames on their way from the thread that reads them to a session.
//!
//! The reader runs ahead of the session by up to a number of bytes, so that the peer's sending overlaps with our
//! computing. Beyond that, a frame waits until a step asks for it and says how long it may be. Memory is thus bounded
//! by the read-ahead plus what the session itself expects.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use super::Limits;
use super::watched::Watched;
use crate::frame::{Frame, Header};
use crate::{NetError, PeerFault};

/// The memory of a queued frame besides its payload: its entry, in a queue that may be half empty after growing, and
/// the allocator's overhead for a small payload. More than a header takes on the wire, so that a peer's many empty
/// frames are bounded by memory, not by traffic.
const FRAME_COST: u64 = 128;
const _: () = assert!(FRAME_COST >= 2 * size_of::<Frame>() as u64 + 32);

/// The memory charged for a frame with `length` payload bytes.
fn cost(length: u64) -> u64 {
    FRAME_COST.saturating_add(length)
}

/// A queue bounded in bytes, with a reader at its entry and a session at its exit.
pub(super) struct Inbox {
    state: Watched<State>,
    began: Instant,
    /// Microseconds after `began` at which bytes last arrived.
    heard: AtomicU64,
}

struct State {
    frames: VecDeque<Frame>,
    /// What the queued frames and the one being read cost.
    bytes: u64,
    /// The session is waiting for a frame of up to this many payload bytes.
    wanted: Option<u64>,
    /// The frame for which the reader waits for room, so silence is not the peer's fault.
    paused: Option<Header>,
    limits: Limits,
    /// The session is gone, or accepts nothing more.
    abandoned: bool,
    /// Why no more frames come, once that is so.
    end: Option<NetError>,
    /// The reader has seen the peer's end.
    finished: bool,
}

impl Inbox {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            state: Watched::new(State {
                frames: VecDeque::new(),
                bytes: 0,
                wanted: None,
                paused: None,
                limits,
                abandoned: false,
                end: None,
                finished: false,
            }),
            began: Instant::now(),
            heard: AtomicU64::new(0),
        }
    }

    /// Takes the next frame, of at most `max` payload bytes.
    pub(super) fn pop(&self, max: u64) -> Result<Frame, NetError> {
        let mut state = self.state.lock();
        let result = loop {
            if let Some(frame) = state.frames.pop_front() {
                let length = frame.payload.len() as u64;
                state.bytes = state.bytes.saturating_sub(cost(length));
                break if length > max {
                    Err(PeerFault::FrameTooLong { length, limit: max }.into())
                } else {
                    Ok(frame)
                };
            }
            if let Some(why) = &state.end {
                break Err(why.clone());
            }
            if state.wanted.replace(max) != Some(max) {
                self.state.notify_all();
            }
            let left = match state.limits.left(self.last_heard()) {
                Ok(left) => left,
                Err(_) if state.paused.is_some() && !state.limits.expired() => state.limits.heartbeat(),
                Err(late) => break Err(late),
            };
            state = self.state.wait(state, left);
        };
        state.wanted = None;
        self.state.notify_all();
        result
    }

    /// Waits for at most `within` for a frame; returns the header of the next one if there is one.
    pub(super) fn arrived(&self, within: Duration) -> Result<Option<Header>, NetError> {
        let give_up = Instant::now() + within;
        let mut state = self.state.lock();
        loop {
            if state.limits.expired() {
                return Err(state.limits.late());
            }
            // A frame too long to be read ahead has arrived too.
            let next = state.frames.front().map(Frame::header).or(state.paused);
            if next.is_some() {
                return Ok(next);
            }
            if let Some(why) = &state.end {
                return Err(why.clone());
            }
            let left = state.limits.left(self.last_heard())?;
            let now = give_up.saturating_duration_since(Instant::now());
            if now.is_zero() {
                return Ok(None);
            }
            state = self.state.wait(state, left.min(now));
        }
    }

    /// Waits for the reader to leave, at the end of a session: `Ok` if the peer ended its direction without sending
    /// anything that was not asked for.
    pub(super) fn drained(&self) -> Result<(), NetError> {
        let mut state = self.state.lock();
        loop {
            if !state.frames.is_empty() || state.paused.is_some() {
                return Err(PeerFault::Unasked.into());
            }
            match &state.end {
                Some(NetError::PeerGone) => return Ok(()),
                Some(why) => return Err(why.clone()),
                None => {}
            }
            let left = state.limits.left(self.last_heard())?;
            state = self.state.wait(state, left);
        }
    }

    /// Why no more frames come, if the reader has left.
    pub(super) fn end(&self) -> Option<NetError> {
        self.state.lock().end.clone()
    }

    pub(super) fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
        self.state.notify_all();
    }

    /// Gives the peer until `give_up` to end its direction, after this side has ended its own.
    ///
    /// If a socket is closed with unread bytes, the system cuts the connection, and the last data sent by this side
    /// could be lost.
    pub(super) fn linger(&self, give_up: Instant) {
        let state = self.state.lock();
        drop(self.state.wait_until(state, give_up, |s| s.finished));
    }

    /// Accepts no more frames.
    pub(super) fn abandon(&self) {
        self.state.lock().abandoned = true;
        self.state.notify_all();
    }

    fn last_heard(&self) -> Instant {
        self.began + Duration::from_micros(self.heard.load(Ordering::Relaxed))
    }

    /// For the reader: bytes have arrived.
    pub(super) fn hear(&self) {
        let micros = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX / 2);
        self.heard.store(micros, Ordering::Relaxed);
    }

    /// For the reader: waits until the frame of this header, with `length` payload bytes, may be read, and reserves
    /// what it costs.
    pub(super) fn admit(&self, header: Header, length: u64) -> Result<(), NetError> {
        let mut state = self.state.lock();
        loop {
            if state.abandoned {
                return Err(NetError::Closed);
            }
            let bytes = state.bytes.saturating_add(cost(length));
            let asked = state.wanted.filter(|_| state.frames.is_empty());
            match asked {
                Some(limit) if length > limit => {
                    return Err(PeerFault::FrameTooLong { length, limit }.into());
                }
                Some(_) => break,
                None if bytes <= state.limits.read_ahead as u64 => break,
                None => {}
            }
            state.paused = Some(header);
            state = self.state.wait(state, Duration::from_secs(1));
        }
        if state.paused.take().is_some() {
            self.hear();
        }
        state.bytes = state.bytes.saturating_add(cost(length));
        Ok(())
    }

    /// For the reader: adds an admitted frame.
    pub(super) fn push(&self, frame: Frame) {
        let mut state = self.state.lock();
        state.frames.push_back(frame);
        self.state.notify_all();
    }

    /// For the reader: no more frames come. Returns once the session has released the channel.
    pub(super) fn ended(&self, why: NetError) {
        let mut state = self.state.lock();
        state.end = Some(why);
        self.state.notify_all();
        while !state.abandoned {
            state = self.state.wait(state, Duration::from_secs(60));
        }
    }

    /// For the reader: it is leaving.
    pub(super) fn finished(&self) {
        self.state.lock().finished = true;
        self.state.notify_all();
    }
}
