//! One end of an in-memory session: it records what passes and vanishes before a chosen frame.

use hushed_math::taint;
use hushed_net::channel::memory::MemoryChannel;
use hushed_net::channel::{Channel, Limits, Noted, Overhead};
use hushed_net::frame::{Frame, Header};
use hushed_net::{Kind, NetError, Shape};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What an end did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Sent,
    Received,
}

/// An event, and where: sections begin and end with a branch of the session.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    pub event: Event,
    pub section: usize,
    pub branch: bool,
}

pub(super) type Events = Arc<Mutex<Vec<Seen>>>;

/// Payloads, concatenated.
pub(super) type Payloads = Arc<Mutex<Vec<u8>>>;

pub(super) struct End {
    channel: MemoryChannel,
    events: Events,
    section: AtomicUsize,
    /// What it has received, if anyone asked for it; then what the branch has received, which follows when it ends.
    heard: Option<[Payloads; 2]>,
    /// Number of frames that it will still send.
    left: AtomicU64,
    gone: AtomicBool,
}

impl End {
    /// An end that sends `frames` frames and no more: everything it tries after that fails.
    pub(super) fn new(channel: MemoryChannel, events: &Events, frames: u64) -> End {
        let (events, section) = (Arc::clone(events), AtomicUsize::new(0));
        End { channel, events, section, heard: None, left: AtomicU64::new(frames), gone: AtomicBool::new(false) }
    }

    /// The same end, keeping the payloads that it receives.
    pub(super) fn hearing(self, heard: &Payloads) -> End {
        End { heard: Some([Arc::clone(heard), Payloads::default()]), ..self }
    }

    fn here(&self) -> Result<&MemoryChannel, NetError> {
        match self.gone.load(Ordering::Relaxed) {
            true => Err(NetError::PeerGone),
            false => Ok(&self.channel),
        }
    }

    fn passed(&self, event: Event, kind: Kind) {
        let seen = Seen { event, section: self.section.load(Ordering::Relaxed), branch: kind.is_of_branch() };
        let events = self.events.lock();
        events.unwrap_or_else(PoisonError::into_inner).push(seen);
    }
}

impl Channel for End {
    fn send(&self, frame: Frame) -> Result<(), NetError> {
        let one_less = |left: u64| left.checked_sub(1);
        if self.left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less).is_err() {
            self.gone.store(true, Ordering::Relaxed);
        }
        // What is sent is visible to the other party.
        taint::public(&frame.payload);
        let kind = frame.kind;
        self.here()?.send(frame)?;
        self.passed(Event::Sent, kind);
        Ok(())
    }

    fn recv(&self, max: u64) -> Result<Frame, NetError> {
        self.here()?.recv(max)
    }

    fn arrived(&self, within: Duration) -> Result<Option<Header>, NetError> {
        self.here()?.arrived(within)
    }

    fn flush(&self) -> Result<(), NetError> {
        self.here()?.flush()
    }

    fn abort(&self, code: u16) -> Result<(), NetError> {
        self.here()?.abort(code)
    }

    fn close(&self) -> Result<(), NetError> {
        self.here()?.close()
    }

    fn set_limits(&self, limits: Limits) {
        self.channel.set_limits(limits);
    }

    fn shape(&self, shape: Option<Shape>) {
        self.channel.shape(shape);
    }

    fn overhead(&self) -> Overhead {
        self.channel.overhead()
    }

    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.channel.exporter(label)
    }

    fn note(&self, what: Noted<'_>) {
        if let Noted::Received { kind, payload } = what {
            if let Some(heard) = &self.heard {
                let heard = &heard[usize::from(kind.is_of_branch())];
                heard.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(payload);
            }
            return self.passed(Event::Received, kind);
        }
        self.section.fetch_add(1, Ordering::Relaxed);
        if let (Some([all, branch]), Noted::Rejoined) = (&self.heard, what) {
            let [mut all, mut branch] = [all, branch].map(|part| part.lock().unwrap_or_else(PoisonError::into_inner));
            all.append(&mut branch);
        }
    }
}
