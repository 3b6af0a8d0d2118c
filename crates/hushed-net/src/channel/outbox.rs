//! Frames on their way from a session to the thread that writes them.

use std::collections::VecDeque;
use std::sync::MutexGuard;
use std::time::Instant;

use super::Limits;
use super::shaped::{Link, Schedule};
use super::watched::Watched;
use crate::frame::Frame;
use crate::{NetError, Shape};

/// A queue bounded in bytes, with a session at its entry and a writer at its exit.
pub(super) struct Outbox {
    state: Watched<State>,
}

struct State {
    items: VecDeque<Item>,
    /// Bytes of frames that are queued or being written.
    bytes: u64,
    /// The writer holds an unfinished item.
    writing: bool,
    /// When the writer last made progress.
    moved: Instant,
    limits: Limits,
    link: Link,
    /// No more items come; the writer ends its direction once the queue is empty.
    closing: bool,
    /// The queue is abandoned.
    abandoned: bool,
    /// Why nothing goes out any more, once that is so.
    end: Option<NetError>,
    /// The writer has left.
    left: bool,
}

/// The writer's next task.
pub(super) enum Item {
    Frame(Frame, Option<Schedule>),
    Abort(u16),
    Heartbeat,
    /// End the direction and leave.
    Close,
}

impl Outbox {
    pub(super) fn new(limits: Limits) -> Self {
        Self {
            state: Watched::new(State {
                items: VecDeque::new(),
                bytes: 0,
                writing: false,
                moved: Instant::now(),
                limits,
                link: Link::default(),
                closing: false,
                abandoned: false,
                end: None,
                left: false,
            }),
        }
    }

    /// Queues a frame once there is room; a frame longer than the whole queue waits until the queue is empty.
    pub(super) fn push(&self, frame: Frame) -> Result<(), NetError> {
        let length = frame.wire_bytes();
        let mut state = self.once(|s| s.bytes == 0 || s.bytes + length <= s.limits.send_queue as u64)?;
        state.bytes += length;
        let schedule = state.link.schedule(length);
        state.items.push_back(Item::Frame(frame, schedule));
        self.state.notify_all();
        Ok(())
    }

    /// Queues an abort, which needs no room, and accepts nothing after it.
    pub(super) fn push_abort(&self, code: u16) {
        let mut state = self.state.lock();
        if !state.closing {
            state.items.push_back(Item::Abort(code));
            state.closing = true;
            self.state.notify_all();
        }
    }

    /// Waits until the transport has everything.
    pub(super) fn flush(&self) -> Result<(), NetError> {
        self.once(|s| s.items.is_empty() && !s.writing).map(drop)
    }

    /// Accepts nothing more.
    pub(super) fn close(&self) {
        self.state.lock().closing = true;
        self.state.notify_all();
    }

    /// Gives the writer some time to empty the queue of a channel being dropped, then gives up.
    pub(super) fn linger(&self, give_up: Instant) {
        let mut state = self.state.lock();
        state.closing = true;
        self.state.notify_all();
        let mut state = self.state.wait_until(state, give_up, |s| s.left);
        state.abandoned = true;
        self.state.notify_all();
    }

    /// Waits for `ready` while the writer is alive and making progress.
    fn once(&self, ready: impl Fn(&State) -> bool) -> Result<MutexGuard<'_, State>, NetError> {
        let began = Instant::now();
        let mut state = self.state.lock();
        loop {
            if let Some(why) = &state.end {
                return Err(why.clone());
            }
            if ready(&state) {
                return Ok(state);
            }
            let left = state.limits.left(state.moved.max(began))?;
            state = self.state.wait(state, left);
        }
    }

    pub(super) fn set_limits(&self, limits: Limits) {
        self.state.lock().limits = limits;
        self.state.notify_all();
    }

    pub(super) fn shape(&self, shape: Option<Shape>) {
        self.state.lock().link.set(shape);
    }

    /// For the writer: the next item, or a heartbeat after a long idle time.
    pub(super) fn next(&self) -> Item {
        let idle_since = Instant::now();
        let mut state = self.state.lock();
        state.writing = false;
        state.moved = idle_since;
        self.state.notify_all();
        loop {
            if state.abandoned {
                return Item::Close;
            }
            if let Some(item) = state.items.pop_front() {
                state.writing = true;
                return item;
            }
            if state.closing {
                return Item::Close;
            }
            let left = state.limits.heartbeat().saturating_sub(idle_since.elapsed());
            if left.is_zero() {
                return Item::Heartbeat;
            }
            state = self.state.wait(state, left);
        }
    }

    /// For the writer: this many bytes of a frame have been written.
    pub(super) fn written(&self, bytes: u64) {
        let mut state = self.state.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        state.moved = Instant::now();
        self.state.notify_all();
    }

    /// For the writer: sleeps until a shaped link has carried the next bytes.
    pub(super) fn sleep_until(&self, at: Instant) {
        let state = self.state.lock();
        drop(self.state.wait_until(state, at, |s| s.abandoned));
    }

    /// For the reader: the peer has stopped and reads nothing more. A thread waiting for room learns it now, not when
    /// the transport notices.
    pub(super) fn refused(&self, why: NetError) {
        let mut state = self.state.lock();
        state.items.clear();
        state.closing = true;
        state.end.get_or_insert(why);
        self.state.notify_all();
    }

    /// For the writer: it is leaving.
    pub(super) fn ended(&self, why: NetError) {
        let mut state = self.state.lock();
        state.items.clear();
        state.writing = false;
        state.left = true;
        state.end.get_or_insert(why);
        self.state.notify_all();
    }
}
