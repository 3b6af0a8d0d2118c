//! What a session has sent and received on the channel.

use std::ops::{AddAssign, Sub};

/// Counters of one session, or the difference of two snapshots.
///
/// `bytes_*` count whole frames, header and payload, of protocol steps only. Heartbeats and the transport's own bytes
/// (TLS records and handshake) are counted separately.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Bytes of frames sent.
    pub bytes_sent: u64,
    /// Bytes of frames received by a protocol step.
    pub bytes_received: u64,
    /// Frames sent.
    pub frames_sent: u64,
    /// Frames received by a protocol step.
    pub frames_received: u64,
    /// How often a receive followed a send: this party's own waits. Messages that cross count as one, as do a request
    /// and its response for the party that asks; a party that only responds counts none.
    pub rounds: u64,
    /// Bytes of heartbeat frames sent.
    pub heartbeat_bytes_sent: u64,
    /// Bytes of heartbeat frames received.
    pub heartbeat_bytes_received: u64,
    /// Bytes given to the socket, everything included; 0 in memory. A frame that is still queued is not counted.
    pub wire_bytes_sent: u64,
    /// Bytes read from the socket, everything included (also frames not yet received by a step); 0 in memory.
    pub wire_bytes_received: u64,
}

impl Stats {
    /// What was added since an earlier snapshot of the same session.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Self {
        let d = u64::saturating_sub;
        Self {
            bytes_sent: d(self.bytes_sent, earlier.bytes_sent),
            bytes_received: d(self.bytes_received, earlier.bytes_received),
            frames_sent: d(self.frames_sent, earlier.frames_sent),
            frames_received: d(self.frames_received, earlier.frames_received),
            rounds: d(self.rounds, earlier.rounds),
            heartbeat_bytes_sent: d(self.heartbeat_bytes_sent, earlier.heartbeat_bytes_sent),
            heartbeat_bytes_received: d(self.heartbeat_bytes_received, earlier.heartbeat_bytes_received),
            wire_bytes_sent: d(self.wire_bytes_sent, earlier.wire_bytes_sent),
            wire_bytes_received: d(self.wire_bytes_received, earlier.wire_bytes_received),
        }
    }
}

impl AddAssign for Stats {
    fn add_assign(&mut self, other: Self) {
        let pairs = [
            (&mut self.bytes_sent, other.bytes_sent),
            (&mut self.bytes_received, other.bytes_received),
            (&mut self.frames_sent, other.frames_sent),
            (&mut self.frames_received, other.frames_received),
            (&mut self.rounds, other.rounds),
            (&mut self.heartbeat_bytes_sent, other.heartbeat_bytes_sent),
            (&mut self.heartbeat_bytes_received, other.heartbeat_bytes_received),
            (&mut self.wire_bytes_sent, other.wire_bytes_sent),
            (&mut self.wire_bytes_received, other.wire_bytes_received),
        ];
        for (sum, more) in pairs {
            *sum += more;
        }
    }
}

impl Sub for Stats {
    type Output = Self;

    fn sub(self, earlier: Self) -> Self {
        self.since(&earlier)
    }
}
