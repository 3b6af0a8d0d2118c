//! Two parties in one process. Frames are moved, not copied.
//!
//! Each end belongs to one thread at a time, so if both wait for a frame and none is on its way, none will ever come.
//! That is reported at once as [`NetError::BothReceiving`], not after a deadline.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::shaped::{Link, Schedule};
use super::watched::Watched;
use super::{Channel, Limits, Overhead};
use crate::frame::{Frame, Header};
use crate::process::Origin;
use crate::{NetError, PeerFault, Shape};

/// One end of a pair.
pub struct MemoryChannel {
    lanes: Arc<Watched<Lanes>>,
    /// Which of the two lanes this end sends on.
    outgoing: Side,
    origin: Origin,
}

/// Two connected ends.
///
/// The limits are wide here: a party that computes for a long time sends no heartbeat, so only ten minutes of silence
/// count as silence.
#[must_use]
pub fn pair() -> (MemoryChannel, MemoryChannel) {
    let limits = Limits { silence: Duration::from_secs(600), ..Limits::session() };
    let lanes = Lanes { left: Lane::new(limits), right: Lane::new(limits) };
    let lanes = Arc::new(Watched::new(lanes));
    let end = |outgoing| MemoryChannel { lanes: Arc::clone(&lanes), outgoing, origin: Origin::here() };
    (end(Side::Left), end(Side::Right))
}

struct Lanes {
    left: Lane,
    right: Lane,
}

/// What one end sends.
struct Lane {
    frames: VecDeque<(Frame, Option<Schedule>)>,
    link: Link,
    /// Why nothing more will be sent, once that is so.
    end: Option<NetError>,
    /// The sender of this lane is itself waiting for a frame.
    sender_waits: bool,
    /// The limits of its sender.
    limits: Limits,
}

impl Lane {
    fn new(limits: Limits) -> Self {
        Self { frames: VecDeque::new(), link: Link::default(), end: None, sender_waits: false, limits }
    }
}

#[derive(Clone, Copy)]
enum Side {
    Left,
    Right,
}

impl Lanes {
    /// (the lane that `side` sends on, the one it receives from)
    fn of(&mut self, side: Side) -> (&mut Lane, &mut Lane) {
        match side {
            Side::Left => (&mut self.left, &mut self.right),
            Side::Right => (&mut self.right, &mut self.left),
        }
    }
}

impl MemoryChannel {
    fn end(&self, why: NetError) {
        let mut lanes = self.lanes.lock();
        let (mine, _) = lanes.of(self.outgoing);
        mine.end.get_or_insert(why);
        self.lanes.notify_all();
    }

    /// Waits for the next frame, or for the reason why there is none.
    fn next(&self, max: u64) -> Result<Frame, NetError> {
        let mut lanes = self.lanes.lock();
        let limits = lanes.of(self.outgoing).0.limits;
        let silent = Instant::now().checked_add(limits.silence);
        let deadline = sooner(silent, limits.until);
        loop {
            let now = Instant::now();
            let (mine, theirs) = lanes.of(self.outgoing);
            let ready_at = match theirs.frames.front() {
                Some((frame, schedule)) => {
                    let length = frame.payload.len() as u64;
                    if length > max {
                        return Err(PeerFault::FrameTooLong { length, limit: max }.into());
                    }
                    let arrives = schedule.map(|s| s.arrival(frame.wire_bytes()));
                    match arrives.filter(|at| *at > now) {
                        Some(at) => Some(at),
                        None => match theirs.frames.pop_front() {
                            Some((frame, _)) => return Ok(frame),
                            None => None,
                        },
                    }
                }
                None => {
                    if let Some(why) = &theirs.end {
                        return Err(why.clone());
                    }
                    if theirs.sender_waits && mine.frames.is_empty() {
                        return Err(NetError::BothReceiving);
                    }
                    None
                }
            };
            if deadline.is_some_and(|d| now >= d) {
                return Err(limits.late());
            }
            let wake = sooner(ready_at, deadline);
            mine.sender_waits = ready_at.is_none();
            if mine.sender_waits {
                // The peer may be waiting too, and must find out now.
                self.lanes.notify_all();
            }
            let wait = wake.map_or(Duration::from_secs(1), |at| at.saturating_duration_since(now));
            lanes = self.lanes.wait(lanes, wait);
            lanes.of(self.outgoing).0.sender_waits = false;
        }
    }
}

fn sooner(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    [a, b].into_iter().flatten().min()
}

impl Channel for MemoryChannel {
    fn send(&self, frame: Frame) -> Result<(), NetError> {
        let mut lanes = self.lanes.lock();
        let (mine, theirs) = lanes.of(self.outgoing);
        if let Some(why) = &theirs.end {
            return Err(why.clone());
        }
        let schedule = mine.link.schedule(frame.wire_bytes());
        mine.frames.push_back((frame, schedule));
        self.lanes.notify_all();
        Ok(())
    }

    fn recv(&self, max: u64) -> Result<Frame, NetError> {
        self.next(max)
    }

    fn arrived(&self, within: Duration) -> Result<Option<Header>, NetError> {
        let give_up = Instant::now() + within;
        let mut lanes = self.lanes.lock();
        loop {
            let (_, theirs) = lanes.of(self.outgoing);
            if let Some((frame, _)) = theirs.frames.front() {
                return Ok(Some(frame.header()));
            }
            if let Some(why) = &theirs.end {
                return Err(why.clone());
            }
            let left = give_up.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return Ok(None);
            }
            lanes = self.lanes.wait(lanes, left);
        }
    }

    fn flush(&self) -> Result<(), NetError> {
        Ok(())
    }

    fn abort(&self, code: u16) -> Result<(), NetError> {
        self.end(NetError::PeerAborted { code });
        Ok(())
    }

    fn close(&self) -> Result<(), NetError> {
        self.end(NetError::PeerGone);
        Ok(())
    }

    fn set_limits(&self, limits: Limits) {
        self.lanes.lock().of(self.outgoing).0.limits = limits;
    }

    fn shape(&self, shape: Option<Shape>) {
        self.lanes.lock().of(self.outgoing).0.link.set(shape);
    }

    fn overhead(&self) -> Overhead {
        Overhead::default()
    }

    fn exporter(&self, _label: &[u8]) -> Option<[u8; 32]> {
        None
    }
}

impl Drop for MemoryChannel {
    fn drop(&mut self) {
        if !self.origin.is_here() {
            // The other end is a copy too, and the lock may be held by a thread that was not copied.
            return;
        }
        self.end(NetError::PeerGone);
    }
}
