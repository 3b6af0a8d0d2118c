//! One channel for two sessions of the same party, which two threads use side by side.
//!
//! The frames of the second one, the branch, have [`Kind::BRANCH`] set in their kinds. Whichever thread waits takes the
//! next frame off the channel, and if it is the other's, hands it over. A frame for a thread that does not wait is
//! taken only while what waits for that thread takes no more than [`ROOM`]; else it stays in the channel until its
//! thread says how long it may be. So memory is bounded: by that of one session, and [`ROOM`]. A frame for a thread
//! that has done its part is a fault, whatever comes after it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::VecDeque;
use std::sync::{Arc, MutexGuard};
use std::time::Duration;

use super::watched::Watched;
use super::{Channel, Limits, Noted, Overhead};
use crate::frame::{Frame, Header};
use crate::process::Origin;
use crate::{Kind, NetError, PeerFault, Shape};

/// Memory for frames handed over before their thread asks for them.
const ROOM: u64 = 64 << 20;
/// The memory of a frame besides its payload.
const FRAME_COST: u64 = 128;
/// How long a thread waits before it looks whether the other one waits too.
const LOOK: Duration = Duration::from_millis(50);

/// One of the two sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Stream {
    Main,
    Branch,
}

impl Stream {
    fn of(kind: Kind) -> Self {
        if kind.is_of_branch() { Self::Branch } else { Self::Main }
    }
}

/// What the two ends share.
pub(crate) struct Shared {
    channel: Arc<dyn Channel>,
    state: Watched<State>,
}

#[derive(Default)]
struct State {
    main: Lane,
    branch: Lane,
    /// A thread takes frames off the channel.
    reading: bool,
    /// Why nothing more is sent or received, once that is so.
    end: Option<NetError>,
}

/// Frames for one of the sessions.
#[derive(Default)]
struct Lane {
    frames: VecDeque<Frame>,
    /// The memory that they take.
    bytes: u64,
    /// Its session waits for a frame of up to this many payload bytes.
    wanted: Option<u64>,
    /// Its session has done its part.
    done: bool,
}

impl Lane {
    fn push(&mut self, frame: Frame) {
        self.bytes = self.bytes.saturating_add(cost(frame.payload.len() as u64));
        self.frames.push_back(frame);
    }

    fn pop(&mut self) -> Option<Frame> {
        let frame = self.frames.pop_front()?;
        self.bytes = self.bytes.saturating_sub(cost(frame.payload.len() as u64));
        Some(frame)
    }

    /// What its session waits for, if no frame for it is here.
    fn waits(&self) -> Option<u64> {
        self.wanted.filter(|_| self.frames.is_empty())
    }

    /// The most payload bytes of the next frame for it, if one may be taken now.
    ///
    /// # Errors
    /// [`PeerFault::Unasked`] if its session takes no more. An honest peer sends such a frame only after it has joined
    /// its branch, and before that everything that the other session here waits for.
    fn admits(&self, length: u64) -> Result<Option<u64>, NetError> {
        if self.done {
            return Err(PeerFault::Unasked.into());
        }
        let room = self.bytes.saturating_add(cost(length)) <= ROOM;
        Ok(self.waits().or(room.then_some(length)))
    }
}

fn cost(length: u64) -> u64 {
    FRAME_COST.saturating_add(length)
}

impl State {
    fn of(&mut self, stream: Stream) -> &mut Lane {
        match stream {
            Stream::Main => &mut self.main,
            Stream::Branch => &mut self.branch,
        }
    }
}

/// The two ends of a channel divided, the main session's and the branch's, and what they share.
pub(crate) fn divide(channel: Arc<dyn Channel>) -> ([Part; 2], Arc<Shared>) {
    channel.note(Noted::Divided);
    let shared = Arc::new(Shared { channel, state: Watched::new(State::default()) });
    let part = |stream| Part { shared: Arc::clone(&shared), stream, origin: Origin::here() };
    let parts = [part(Stream::Main), part(Stream::Branch)];
    (parts, shared)
}

impl Shared {
    /// Ends both sessions.
    pub(crate) fn end(&self, why: NetError) {
        self.state.lock().end.get_or_insert(why);
        self.state.notify_all();
    }

    /// The channel, once both sessions have done their parts.
    ///
    /// # Errors
    /// What ended the sessions; [`PeerFault::Unasked`] for a frame that neither asked for.
    pub(crate) fn rejoined(&self) -> Result<Arc<dyn Channel>, NetError> {
        let state = self.state.lock();
        if let Some(why) = &state.end {
            return Err(why.clone());
        }
        if !state.main.frames.is_empty() || !state.branch.frames.is_empty() {
            return Err(PeerFault::Unasked.into());
        }
        self.channel.note(Noted::Rejoined);
        Ok(Arc::clone(&self.channel))
    }

    fn recv(&self, stream: Stream, max: u64) -> Result<Frame, NetError> {
        let mut state = self.state.lock();
        state.of(stream).wanted = Some(max);
        self.state.notify_all();
        let result = loop {
            if let Some(frame) = state.of(stream).pop() {
                let length = frame.payload.len() as u64;
                break if length > max {
                    Err(PeerFault::FrameTooLong { length, limit: max }.into())
                } else {
                    Ok(frame)
                };
            }
            if let Some(why) = &state.end {
                break Err(why.clone());
            }
            state = match state.reading {
                true => self.state.wait(state, Duration::from_secs(1)),
                false => self.read(state),
            };
        };
        state.of(stream).wanted = None;
        result
    }

    /// Takes the next frame off the channel, or waits for a moment, with the state unlocked meanwhile.
    fn read<'a>(&'a self, mut state: MutexGuard<'a, State>) -> MutexGuard<'a, State> {
        state.reading = true;
        // If both wait, nothing will be sent before a frame comes: a channel in memory then says if none can.
        let both = state.main.waits().zip(state.branch.waits());
        drop(state);
        let header = match both {
            Some(_) => self.channel.arrived(Duration::ZERO),
            None => self.channel.arrived(LOOK),
        };
        let mut state = self.state.lock();
        let next = header.and_then(|header| {
            let limit = match &header {
                Some(Header::Step { kind, length, .. }) => state.of(Stream::of(*kind)).admits(*length)?,
                _ => both.map(|(main, branch)| main.max(branch)),
            };
            Ok((header, limit))
        });
        match next {
            Err(why) => state = self.ended(state, why),
            Ok((_, Some(limit))) => {
                drop(state);
                let taken = self.channel.recv(limit);
                state = self.state.lock();
                match taken {
                    Ok(mut frame) => {
                        let stream = Stream::of(frame.kind);
                        frame.kind.0 &= !Kind::BRANCH;
                        state.of(stream).push(frame);
                    }
                    Err(why) => state = self.ended(state, why),
                }
            }
            // It is for the other session, which has to ask for it first.
            Ok((Some(_), None)) => state = self.state.wait(state, LOOK),
            Ok((None, None)) => {}
        }
        state.reading = false;
        self.state.notify_all();
        state
    }

    fn ended<'a>(&self, mut state: MutexGuard<'a, State>, why: NetError) -> MutexGuard<'a, State> {
        state.end.get_or_insert(why);
        state
    }
}

/// The channel as one of the two sessions sees it.
pub(crate) struct Part {
    shared: Arc<Shared>,
    stream: Stream,
    origin: Origin,
}

impl Part {
    fn alive(&self) -> Result<(), NetError> {
        match &self.shared.state.lock().end {
            Some(why) => Err(why.clone()),
            None => Ok(()),
        }
    }
}

impl Channel for Part {
    fn send(&self, mut frame: Frame) -> Result<(), NetError> {
        self.alive()?;
        if self.stream == Stream::Branch {
            frame.kind.0 |= Kind::BRANCH;
        }
        self.shared.channel.send(frame)
    }

    fn recv(&self, max: u64) -> Result<Frame, NetError> {
        self.shared.recv(self.stream, max)
    }

    fn arrived(&self, _within: Duration) -> Result<Option<Header>, NetError> {
        Err(NetError::Divided)
    }

    fn flush(&self) -> Result<(), NetError> {
        self.shared.channel.flush()
    }

    fn abort(&self, code: u16) -> Result<(), NetError> {
        self.shared.end(NetError::Closed);
        self.shared.channel.abort(code)
    }

    fn close(&self) -> Result<(), NetError> {
        Err(NetError::Divided)
    }

    fn set_limits(&self, limits: Limits) {
        self.shared.channel.set_limits(limits);
    }

    fn shape(&self, shape: Option<Shape>) {
        self.shared.channel.shape(shape);
    }

    fn overhead(&self) -> Overhead {
        match self.stream {
            Stream::Main => self.shared.channel.overhead(),
            // The main session counts it.
            Stream::Branch => Overhead::default(),
        }
    }

    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.shared.channel.exporter(label)
    }

    fn note(&self, what: Noted<'_>) {
        if matches!(what, Noted::Done) {
            self.shared.state.lock().of(self.stream).done = true;
            self.shared.state.notify_all();
            return;
        }
        self.shared.channel.note(match (self.stream, what) {
            (Stream::Branch, Noted::Received { kind, payload }) => {
                Noted::Received { kind: Kind(kind.0 | Kind::BRANCH), payload }
            }
            (_, what) => what,
        });
    }
}

impl Drop for Part {
    /// One that is dropped before they are rejoined ends the other.
    fn drop(&mut self) {
        // In a forked process the lock may be held by a thread that was not copied.
        if self.origin.is_here() {
            self.shared.end(NetError::Closed);
        }
    }
}
