//! One end of an in-memory session: it records what passes and vanishes before a chosen frame.

use hushed_math::taint;
use hushed_net::channel::memory::MemoryChannel;
use hushed_net::channel::{Channel, Limits, Overhead};
use hushed_net::frame::Frame;
use hushed_net::{NetError, Shape};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// What an end did with a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Event {
    Sent,
    Received,
}

pub(super) type Events = Arc<Mutex<Vec<Event>>>;

/// Payloads, concatenated.
pub(super) type Payloads = Arc<Mutex<Vec<u8>>>;

pub(super) struct End {
    channel: MemoryChannel,
    events: Events,
    /// What it has received, if anyone asked for it.
    heard: Option<Payloads>,
    /// Number of frames that it will still send.
    left: u64,
    gone: bool,
}

impl End {
    /// An end that sends `frames` frames and no more: everything it tries after that fails.
    pub(super) fn new(channel: MemoryChannel, events: &Events, frames: u64) -> End {
        End { channel, events: Arc::clone(events), heard: None, left: frames, gone: false }
    }

    /// The same end, keeping the payloads that it receives.
    pub(super) fn hearing(self, heard: &Payloads) -> End {
        End { heard: Some(Arc::clone(heard)), ..self }
    }

    fn here(&mut self) -> Result<&mut MemoryChannel, NetError> {
        if self.gone {
            return Err(NetError::PeerGone);
        }
        Ok(&mut self.channel)
    }

    fn note(&self, event: Event) {
        let events = self.events.lock();
        events.unwrap_or_else(PoisonError::into_inner).push(event);
    }
}

impl Channel for End {
    fn send(&mut self, frame: Frame) -> Result<(), NetError> {
        self.gone |= self.left == 0;
        self.left = self.left.saturating_sub(1);
        // What is sent is visible to the other party.
        taint::public(&frame.payload);
        self.here()?.send(frame)?;
        self.note(Event::Sent);
        Ok(())
    }

    fn recv(&mut self, max: u64) -> Result<Frame, NetError> {
        let frame = self.here()?.recv(max)?;
        if let Some(heard) = &self.heard {
            let mut heard = heard.lock().unwrap_or_else(PoisonError::into_inner);
            heard.extend_from_slice(&frame.payload);
        }
        self.note(Event::Received);
        Ok(frame)
    }

    fn arrived(&mut self, within: Duration) -> Result<bool, NetError> {
        self.here()?.arrived(within)
    }

    fn flush(&mut self) -> Result<(), NetError> {
        self.here()?.flush()
    }

    fn abort(&mut self, code: u16) -> Result<(), NetError> {
        self.here()?.abort(code)
    }

    fn close(&mut self) -> Result<(), NetError> {
        self.here()?.close()
    }

    fn set_limits(&mut self, limits: Limits) {
        self.channel.set_limits(limits);
    }

    fn shape(&mut self, shape: Option<Shape>) {
        self.channel.shape(shape);
    }

    fn overhead(&self) -> Overhead {
        self.channel.overhead()
    }

    fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.channel.exporter(label)
    }
}
