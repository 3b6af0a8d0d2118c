//! Everything that can go wrong between two parties. No variant holds a payload.

use std::io;

use crate::Kind;
use crate::channel::tls::TlsFault;

/// Why a channel or a session stopped. After any of these a session answers every call with the same error:
/// a step is never run twice.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum NetError {
    /// No byte, not even a heartbeat, arrived (or left) within the deadline.
    #[error("the peer was silent for {seconds} s; check that it still runs and that the network is up")]
    Timeout {
        /// The deadline that passed, in whole seconds, rounded up.
        seconds: u64,
    },
    /// The time for this part of the session is up, however active the peer is.
    #[error("the peer did not finish this part of the session in time")]
    OutOfTime,
    /// The peer closed the connection, or it broke.
    #[error("the peer closed the connection in the middle of the session")]
    PeerGone,
    /// The peer stopped on purpose. The code means nothing beyond its number.
    #[error("the peer stopped the session with code {code}")]
    PeerAborted {
        /// The number that the peer gave to [`crate::Session::abort`].
        code: u16,
    },
    /// The peer sent something that the protocol does not allow here.
    #[error("the peer broke the protocol: {0}")]
    PeerMisbehaved(#[from] PeerFault),
    /// Both ends of a memory pair wait for a frame, so none can ever come.
    #[error("both parties wait for the other's frame")]
    BothReceiving,
    /// This side tried to send more than a frame can hold.
    #[error("a payload of {length} bytes exceeds the limit of {limit} bytes a frame")]
    PayloadTooLong {
        /// Bytes asked for.
        length: u64,
        /// Bytes allowed.
        limit: u64,
    },
    /// More frames than the step counter can number.
    #[error("the session has used up its step numbers; start a new one")]
    StepsExhausted,
    /// This side already closed or aborted the session.
    #[error("the session is closed")]
    Closed,
    /// The session is one of two over one channel: it takes no other beside it, and is not the one to end.
    #[error("the session is one of two side by side")]
    Divided,
    /// The session belongs to another process, from which this one was forked. Nothing was sent or received.
    #[error("the session was made by another process, from which this one was forked: make sessions after the fork")]
    Forked,
    /// The secure channel could not be established, or broke.
    #[error("TLS: {0}")]
    Tls(#[from] TlsFault),
    /// The server cannot be reached.
    #[error("could not connect to {address}: {reason}; check the address and that the server runs")]
    Connect {
        /// The requested address.
        address: String,
        /// The answer of the system or of the resolver.
        reason: String,
    },
    /// Listening on the address failed.
    #[error("could not listen on {address}: {kind}; choose another port, or 0 for any free one")]
    Listen {
        /// The requested address.
        address: String,
        /// The system's answer.
        kind: io::ErrorKind,
    },
    /// The operating system returned an error.
    #[error("could not {operation}: {kind}")]
    Io {
        /// What was attempted.
        operation: &'static str,
        /// The system's answer.
        kind: io::ErrorKind,
    },
}

/// What the peer did wrong.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PeerFault {
    /// The bytes are not a frame of ours; perhaps the peer speaks another protocol.
    #[error("its bytes are not a Hushed frame (does it speak another protocol, or lack TLS?)")]
    BadMagic,
    /// Another version of the frame format.
    #[error("it speaks frame version {got}, this side {ours}")]
    FrameVersion {
        /// The peer's version.
        got: u8,
        /// Ours.
        ours: u8,
    },
    /// A header field with an undefined value.
    #[error("a frame header has an undefined {field}")]
    BadHeader {
        /// The field's name.
        field: &'static str,
    },
    /// A frame longer than this step allows.
    #[error("it announced a frame of {length} bytes where at most {limit} are allowed")]
    FrameTooLong {
        /// Announced payload bytes.
        length: u64,
        /// Allowed payload bytes.
        limit: u64,
    },
    /// A payload whose length differs from the one both parties can compute.
    #[error("step {step}: it sent {got} bytes where {expected} were due")]
    WrongLength {
        /// The step at which it happened.
        step: u32,
        /// Bytes due.
        expected: u64,
        /// Bytes sent.
        got: u64,
    },
    /// The parties run different steps.
    #[error("step {step}: it sent kind {got} where {expected} was due; the parties are out of step")]
    UnexpectedKind {
        /// The step at which it happened.
        step: u32,
        /// The kind due.
        expected: Kind,
        /// The kind sent.
        got: Kind,
    },
    /// A frame after the last step.
    #[error("it sent a frame after the last step")]
    Unasked,
    /// A frame was lost, repeated or reordered.
    #[error("it sent step {got} where {expected} was due; the parties are out of step")]
    UnexpectedStep {
        /// The step due.
        expected: u32,
        /// The step sent.
        got: u32,
    },
}
