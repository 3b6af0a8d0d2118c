//! Typed frames in lock-step over any channel, for use by protocols.
//!
//! Both parties know what is due at each step, so every frame is checked for its kind, number and length before a
//! protocol sees it, and parties that are out of step stop at once. After an error the session answers every call with
//! that error: a step is never run twice on the same randomness.
//!
//! Rounds: a receive that directly follows a send closes one round. In [`Session::exchange`] both parties send and
//! then receive: one round.
//!
//! Two parts of a protocol that do not depend on each other may run side by side, in two threads: the session then has
//! a branch ([`Session::branch`]) until both are done ([`Session::join`]).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::channel::Noted;
use crate::channel::memory::{self, MemoryChannel};
use crate::channel::streams::{self, Shared};
use crate::frame::{Frame, HEADER_BYTES, MAX_PAYLOAD};
use crate::process::Origin;
use crate::{Channel, Kind, Limits, NetError, Party, PeerFault, Shape, Stats};

/// Payloads up to this length enter the transcript in full; for longer ones only the header does. Whatever the parties
/// negotiate is short; ciphertexts and masked shares are long and fresh, and TLS protects every byte anyway.
const HASHED_PAYLOAD: usize = 4096;

/// How many payload bytes a step may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Exactly this many.
    Exactly(usize),
    /// Any number up to this one.
    AtMost(usize),
}

impl Expect {
    fn max(self) -> u64 {
        match self {
            Self::Exactly(n) | Self::AtMost(n) => n as u64,
        }
    }
}

/// One party's end of a session.
///
/// Dropping it over a socket waits up to one second for outgoing data to be sent and for the peer to end too, so a
/// thread that holds both ends waits that second. [`Session::close`] is the proper end.
///
/// A session belongs to the process that made it: in a forked process every call is refused with [`NetError::Forked`],
/// and dropping it does nothing.
pub struct Session {
    origin: Origin,
    party: Party,
    channel: Arc<dyn Channel>,
    /// While this is one of two: what they share, and the rounds when the second began.
    divided: Option<(Arc<Shared>, u64)>,
    next_sent: u32,
    next_received: u32,
    counted: Stats,
    last_was_send: bool,
    sent: Sha256,
    received: Sha256,
    failure: Option<NetError>,
}

/// Two sessions connected in memory: (client, server). For tests, and for commands that play both parties.
#[must_use]
pub fn memory_pair() -> (Session, Session) {
    let (a, b): (MemoryChannel, MemoryChannel) = memory::pair();
    (Session::new(Party::Client, Box::new(a)), Session::new(Party::Server, Box::new(b)))
}

impl Session {
    /// A session over a fresh channel.
    #[must_use]
    pub fn new(party: Party, channel: Box<dyn Channel>) -> Self {
        Self {
            origin: Origin::here(),
            party,
            channel: channel.into(),
            divided: None,
            next_sent: 0,
            next_received: 0,
            counted: Stats::default(),
            last_was_send: false,
            sent: Sha256::new(),
            received: Sha256::new(),
            failure: None,
        }
    }

    /// Which party this end is.
    #[must_use]
    pub fn party(&self) -> Party {
        self.party
    }

    /// Checks that this process made the session, as every other call does.
    ///
    /// # Errors
    /// [`NetError::Forked`].
    pub fn check_process(&self) -> Result<(), NetError> {
        self.origin.check()
    }

    /// Sends one step.
    ///
    /// # Errors
    /// As [`Channel::send`]; [`NetError::PayloadTooLong`] beyond [`MAX_PAYLOAD`].
    pub fn send(&mut self, kind: Kind, payload: &[u8]) -> Result<(), NetError> {
        self.send_vec(kind, payload.to_vec())
    }

    /// [`Session::send`] without a copy.
    pub fn send_vec(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), NetError> {
        self.guard(|this| this.send_step(kind, payload))
    }

    /// Receives one step, which must be of this kind and length.
    ///
    /// # Errors
    /// [`NetError::PeerMisbehaved`] if it is not; otherwise as [`Channel::recv`].
    pub fn recv(&mut self, kind: Kind, expect: Expect) -> Result<Vec<u8>, NetError> {
        self.guard(|this| this.recv_step(kind, expect))
    }

    /// Waits for at most `within` for the peer's next step, without taking it; returns whether it has come.
    ///
    /// # Errors
    /// As [`Channel::arrived`].
    pub fn arrived(&mut self, within: Duration) -> Result<bool, NetError> {
        self.guard(|this| Ok(this.channel.arrived(within)?.is_some()))
    }

    /// Both parties send, then both receive: one round.
    ///
    /// # Errors
    /// As [`Session::send`] and [`Session::recv`].
    pub fn exchange(&mut self, kind: Kind, payload: &[u8], expect: Expect) -> Result<Vec<u8>, NetError> {
        self.send(kind, payload)?;
        self.recv(kind, expect)
    }

    /// Waits until everything sent has been handed to the transport.
    ///
    /// # Errors
    /// As [`Channel::flush`].
    pub fn flush(&mut self) -> Result<(), NetError> {
        self.guard(|this| this.channel.flush())
    }

    /// Tells the peer that this side stops; the code is all it learns. Later calls return [`NetError::Closed`].
    pub fn abort(&mut self, code: u16) {
        use NetError as E;
        let over = matches!(self.failure, Some(E::PeerGone | E::PeerAborted { .. } | E::Closed));
        if !over && self.origin.is_here() {
            // Queued at best: if the channel is broken, nobody is left to tell.
            let _ = self.channel.abort(code);
        }
        self.failure.get_or_insert(NetError::Closed);
    }

    /// Ends the session properly; the peer must call this too (or drop its end).
    ///
    /// # Errors
    /// As [`Channel::close`].
    pub fn close(mut self) -> Result<(), NetError> {
        self.guard(|this| this.channel.close())
    }

    /// Replaces the limits, from those before authentication to those after it.
    pub fn set_limits(&mut self, limits: Limits) {
        if self.origin.is_here() {
            self.channel.set_limits(limits);
        }
    }

    /// Shapes what this end sends; see [`crate::channel::shaped`].
    pub fn shape(&mut self, shape: Option<Shape>) {
        if self.origin.is_here() {
            self.channel.shape(shape);
        }
    }

    /// The counters so far. To measure a part, subtract two snapshots ([`Stats::since`]).
    #[must_use]
    pub fn stats(&self) -> Stats {
        let o = self.channel.overhead();
        Stats {
            heartbeat_bytes_sent: o.heartbeat_bytes_sent,
            heartbeat_bytes_received: o.heartbeat_bytes_received,
            wire_bytes_sent: o.wire_bytes_sent,
            wire_bytes_received: o.wire_bytes_received,
            ..self.counted
        }
    }

    /// SHA-256 over what client and server have sent so far: every header, and every payload of at most 4 KiB. Equal at
    /// both ends whenever each has received everything the other sent.
    #[must_use]
    pub fn transcript_hash(&self) -> [u8; 32] {
        let (client, server) = match self.party {
            Party::Client => (&self.sent, &self.received),
            Party::Server => (&self.received, &self.sent),
        };
        Sha256::new()
            .chain_update(b"hushed transcript 1")
            .chain_update(client.clone().finalize())
            .chain_update(server.clone().finalize())
            .finalize()
            .into()
    }

    /// 32 bytes bound to this session's secure channel; `None` if it is not secure, or belongs to another process.
    #[must_use]
    pub fn exporter(&self, label: &[u8]) -> Option<[u8; 32]> {
        self.origin.is_here().then(|| self.channel.exporter(label))?
    }

    /// A second session over the same channel, for a part of the protocol that another thread runs. The peer must do
    /// the same at the same place. Both have their own step numbers and transcripts, so that neither takes a frame of
    /// the other's. What they send in a row may arrive in any order. If one fails or is dropped, so does the other.
    ///
    /// # Errors
    /// [`NetError::Divided`] for a session that is one of two already.
    pub fn branch(&mut self) -> Result<Session, NetError> {
        self.guard(|this| {
            if this.divided.is_some() {
                return Err(NetError::Divided);
            }
            let ([main, branch], shared) = streams::divide(Arc::clone(&this.channel));
            this.channel = Arc::new(main);
            this.divided = Some((Arc::clone(&shared), this.counted.rounds));
            let branch = Session::new(this.party, Box::new(branch));
            Ok(Session { divided: Some((shared, 0)), ..branch })
        })
    }

    /// Ends a branch that has done its part, as this session has its own. The branch's counters and transcript are
    /// added to this session's; waits side by side count once.
    ///
    /// # Errors
    /// What ended either of them; [`PeerFault::Unasked`] for a frame that neither asked for; [`NetError::Divided`] for
    /// a session that is no branch of this one.
    pub fn join(&mut self, branch: Session) -> Result<(), NetError> {
        self.guard(|this| {
            let (Some((shared, before)), Some((theirs, _))) = (&this.divided, &branch.divided) else {
                return Err(NetError::Divided);
            };
            if !Arc::ptr_eq(shared, theirs) {
                return Err(NetError::Divided);
            }
            let channel = shared.rejoined()?;
            let rounds = this.counted.rounds.max(before + branch.counted.rounds);
            this.counted += branch.counted;
            this.counted.rounds = rounds;
            this.sent.update(branch.sent.clone().finalize());
            this.received.update(branch.received.clone().finalize());
            this.last_was_send = false;
            (this.channel, this.divided) = (channel, None);
            Ok(())
        })
    }

    /// Says that this session, which is one of two, has done its part: it takes no more before the two are joined, and
    /// a frame for it is a fault.
    pub fn done(&mut self) {
        self.channel.note(Noted::Done);
    }

    /// Ends the branch too, because this session's part has failed.
    pub fn abandon_branch(&mut self) {
        if let Some((shared, _)) = &self.divided {
            shared.end(NetError::Closed);
        }
    }

    fn guard<T>(&mut self, act: impl FnOnce(&mut Self) -> Result<T, NetError>) -> Result<T, NetError> {
        self.origin.check()?;
        if let Some(why) = &self.failure {
            return Err(why.clone());
        }
        act(self).inspect_err(|why| self.failure = Some(why.clone()))
    }

    fn send_step(&mut self, kind: Kind, payload: Vec<u8>) -> Result<(), NetError> {
        if kind.is_of_branch() {
            return Err(NetError::Divided);
        }
        let length = payload.len() as u64;
        if length > MAX_PAYLOAD {
            return Err(NetError::PayloadTooLong { length, limit: MAX_PAYLOAD });
        }
        let frame = Frame { kind, step: self.next_sent, payload };
        self.next_sent = self.next_sent.checked_add(1).ok_or(NetError::StepsExhausted)?;
        absorb(&mut self.sent, &frame);
        self.channel.send(frame)?;
        self.counted.frames_sent += 1;
        self.counted.bytes_sent += HEADER_BYTES as u64 + length;
        self.last_was_send = true;
        Ok(())
    }

    fn recv_step(&mut self, kind: Kind, expect: Expect) -> Result<Vec<u8>, NetError> {
        let frame = self.channel.recv(expect.max())?;
        let step = self.next_received;
        self.next_received = step.checked_add(1).ok_or(NetError::StepsExhausted)?;
        if frame.step != step {
            return Err(PeerFault::UnexpectedStep { expected: step, got: frame.step }.into());
        }
        if frame.kind != kind {
            return Err(PeerFault::UnexpectedKind { step, expected: kind, got: frame.kind }.into());
        }
        let got = frame.payload.len() as u64;
        if let Expect::Exactly(n) = expect
            && got != n as u64
        {
            return Err(PeerFault::WrongLength { step, expected: n as u64, got }.into());
        }
        absorb(&mut self.received, &frame);
        self.channel.note(Noted::Received { kind, payload: &frame.payload });
        self.counted.frames_received += 1;
        self.counted.bytes_received += frame.wire_bytes();
        self.counted.rounds += u64::from(std::mem::take(&mut self.last_was_send));
        Ok(frame.payload)
    }
}

fn absorb(hash: &mut Sha256, frame: &Frame) {
    hash.update(frame.header().encode());
    if frame.payload.len() <= HASHED_PAYLOAD {
        hash.update(&frame.payload);
    }
}
