//! Frames on their way from a session to the thread that writes them.

use std::collections::VecDeque;
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use super::Limits;
use super::shaped::{Link, Schedule};
use crate::frame::Frame;
use crate::{NetError, Shape};

/// A queue bounded in bytes, with a session at its entry and a writer at its exit.
pub(super) struct Outbox {
    state: Mutex<State>,
    changed: Condvar,
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
            state: Mutex::new(State {
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
            changed: Condvar::new(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        // Every change below is complete before anything can panic, so a poisoned state is still whole.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn wait<'a>(&self, guard: MutexGuard<'a, State>, at_most: Duration) -> MutexGuard<'a, State> {
        self.changed
            .wait_timeout(guard, at_most)
            .unwrap_or_else(PoisonError::into_inner)
            .0
    }

    /// Queues a frame once there is room; a frame longer than the whole queue waits until the queue is empty.
    pub(super) fn push(&self, frame: Frame) -> Result<(), NetError> {
        let length = frame.wire_bytes();
        let mut state =
            self.wait_until(|s| s.bytes == 0 || s.bytes + length <= s.limits.send_queue as u64)?;
        state.bytes += length;
        let schedule = state.link.schedule(length);
        state.items.push_back(Item::Frame(frame, schedule));
        self.changed.notify_all();
        Ok(())
    }

    /// Queues an abort, which needs no room, and accepts nothing after it.
    pub(super) fn push_abort(&self, code: u16) {
        let mut state = self.lock();
        if !state.closing {
            state.items.push_back(Item::Abort(code));
            state.closing = true;
            self.changed.notify_all();
        }
    }

    /// Waits until the transport has everything.
    pub(super) fn flush(&self) -> Result<(), NetError> {
        self.wait_until(|s| s.items.is_empty() && !s.writing)
            .map(drop)
    }

    /// Accepts nothing more.
    pub(super) fn close(&self) {
        self.lock().closing = true;
        self.changed.notify_all();
    }

    /// Gives the writer some time to empty the queue of a channel being dropped, then gives up.
    pub(super) fn linger(&self, give_up: Instant) {
        let mut state = self.lock();
        state.closing = true;
        self.changed.notify_all();
        while !state.left {
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
        state.abandoned = true;
        self.changed.notify_all();
    }

    /// Waits for `ready` while the writer is alive and making progress.
    fn wait_until(
        &self,
        ready: impl Fn(&State) -> bool,
    ) -> Result<MutexGuard<'_, State>, NetError> {
        let began = Instant::now();
        let mut state = self.lock();
        loop {
            if let Some(why) = &state.end {
                return Err(why.clone());
            }
            if ready(&state) {
                return Ok(state);
            }
            let left = state.limits.left(state.moved.max(began))?;
            state = self.wait(state, left);
        }
    }

    pub(super) fn set_limits(&self, limits: Limits) {
        self.lock().limits = limits;
        self.changed.notify_all();
    }

    pub(super) fn shape(&self, shape: Option<Shape>) {
        self.lock().link.set(shape);
    }

    /// For the writer: the next item, or a heartbeat after a long idle time.
    pub(super) fn next(&self) -> Item {
        let idle_since = Instant::now();
        let mut state = self.lock();
        state.writing = false;
        state.moved = idle_since;
        self.changed.notify_all();
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
            let left = state
                .limits
                .heartbeat()
                .saturating_sub(idle_since.elapsed());
            if left.is_zero() {
                return Item::Heartbeat;
            }
            state = self.wait(state, left);
        }
    }

    /// For the writer: this many bytes of a frame have been written.
    pub(super) fn written(&self, bytes: u64) {
        let mut state = self.lock();
        state.bytes = state.bytes.saturating_sub(bytes);
        state.moved = Instant::now();
        self.changed.notify_all();
    }

    /// For the writer: sleeps until a shaped link has carried the next bytes.
    pub(super) fn sleep_until(&self, at: Instant) {
        let mut state = self.lock();
        while !state.abandoned {
            let left = at.saturating_duration_since(Instant::now());
            if left.is_zero() {
                break;
            }
            state = self.wait(state, left);
        }
    }

    /// For the reader: the peer has stopped and reads nothing more. A thread waiting for room learns it now, not when
    /// the transport notices.
    pub(super) fn refused(&self, why: NetError) {
        let mut state = self.lock();
        state.items.clear();
        state.closing = true;
        state.end.get_or_insert(why);
        self.changed.notify_all();
    }

    /// For the writer: it is leaving.
    pub(super) fn ended(&self, why: NetError) {
        let mut state = self.lock();
        state.items.clear();
        state.writing = false;
        state.left = true;
        state.end.get_or_insert(why);
        self.changed.notify_all();
    }
}
