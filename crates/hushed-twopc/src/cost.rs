//! What an operation sends, how often it waits, and how many correlations it uses.
//!
//! Every gadget has a `…_cost` function beside it; tests compare it with a run. Payload bytes, frames and rounds are
//! exact. The OT source's own traffic (making the correlated OTs) is not included: the source declares it from the OT
//! counts.

use std::iter::Sum;
use std::ops::Add;

/// Declared cost of a protocol, for the pair.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Cost {
    /// Payload bytes that the client sends.
    pub bytes_client: u64,
    /// Payload bytes that the server sends.
    pub bytes_server: u64,
    /// Frames that the client sends.
    pub frames_client: u64,
    /// Frames that the server sends.
    pub frames_server: u64,
    /// Messages in sequence, with both parties going through the protocol side by side: two messages that cross count
    /// once, and so do several that one party sends in a row; a request and its response count as two. This is the
    /// number of one-way latencies if each step begins once both parties have finished the one before. A party may
    /// begin as soon as it has finished that step itself, so a run waits for at most this many.
    ///
    /// [`Stats::rounds`](hushed_net::Stats::rounds) is a different number: how often one party itself waits after
    /// sending, 1 both for messages that cross and for a request with its response. Tests count messages in sequence,
    /// which takes the events of both ends (`testing::Watch`).
    pub rounds: u64,
    /// Correlated OTs with the client as sender.
    pub cots_client: u64,
    /// Correlated OTs with the server as sender.
    pub cots_server: u64,
}

/// Header bytes of a frame on the wire.
pub const FRAME_BYTES: u64 = hushed_net::frame::HEADER_BYTES as u64;

impl Cost {
    /// Nothing.
    pub const ZERO: Cost = Cost {
        bytes_client: 0,
        bytes_server: 0,
        frames_client: 0,
        frames_server: 0,
        rounds: 0,
        cots_client: 0,
        cots_server: 0,
    };

    /// Both parties send at once; a party with nothing to send sends no frame.
    pub const fn exchange(bytes_client: u64, bytes_server: u64) -> Cost {
        Cost {
            bytes_client,
            bytes_server,
            frames_client: (bytes_client > 0) as u64,
            frames_server: (bytes_server > 0) as u64,
            rounds: (bytes_client > 0 || bytes_server > 0) as u64,
            ..Cost::ZERO
        }
    }

    /// The same with correlated OTs: `client` of them sent by the client, `server` by the server.
    pub const fn with_cots(self, client: u64, server: u64) -> Cost {
        Cost { cots_client: client, cots_server: server, ..self }
    }

    /// `times` runs one after the other.
    pub const fn repeated(self, times: u64) -> Cost {
        Cost {
            bytes_client: self.bytes_client * times,
            bytes_server: self.bytes_server * times,
            frames_client: self.frames_client * times,
            frames_server: self.frames_server * times,
            rounds: self.rounds * times,
            cots_client: self.cots_client * times,
            cots_server: self.cots_server * times,
        }
    }

    /// Payload bytes of both directions.
    pub const fn bytes(&self) -> u64 {
        self.bytes_client + self.bytes_server
    }

    /// Bytes of both directions with frame headers.
    pub const fn wire_bytes(&self) -> u64 {
        self.bytes() + FRAME_BYTES * (self.frames_client + self.frames_server)
    }
}

impl Add for Cost {
    type Output = Cost;

    /// One after the other.
    fn add(self, b: Cost) -> Cost {
        Cost {
            bytes_client: self.bytes_client + b.bytes_client,
            bytes_server: self.bytes_server + b.bytes_server,
            frames_client: self.frames_client + b.frames_client,
            frames_server: self.frames_server + b.frames_server,
            rounds: self.rounds + b.rounds,
            cots_client: self.cots_client + b.cots_client,
            cots_server: self.cots_server + b.cots_server,
        }
    }
}

impl Sum for Cost {
    fn sum<I: Iterator<Item = Cost>>(iter: I) -> Cost {
        iter.fold(Cost::ZERO, Add::add)
    }
}
