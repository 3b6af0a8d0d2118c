//! The bytes of a frame: a header of 20 bytes, then the payload.
//!
//! | offset | bytes | field |
//! |---|---|---|
//! | 0 | 4 | magic `HSHD` |
//! | 4 | 1 | version of this format |
//! | 5 | 1 | class: 0 step, 1 heartbeat, 2 abort |
//! | 6 | 2 | kind of a step, with bit 15 for a step of a branch; code of an abort; otherwise 0 |
//! | 8 | 4 | number of the step in its direction, otherwise 0 |
//! | 12 | 8 | payload bytes, at most [`MAX_PAYLOAD`]; nonzero only for a step |
//!
//! Integers are little-endian. Decoding is total: any bytes give a frame or a [`PeerFault`], and memory grows only with
//! bytes that have arrived, never with a claimed length.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{self, Read};

use crate::{Kind, NetError, PeerFault};

/// Bytes of a header.
pub const HEADER_BYTES: usize = 20;
/// The most bytes of a payload, whatever a step expects: 1 GiB.
pub const MAX_PAYLOAD: u64 = 1 << 30;
/// The version of this format.
pub const VERSION: u8 = 1;
const MAGIC: [u8; 4] = *b"HSHD";
/// A payload is read in pieces: the first has only this many bytes, and each later one may double what has arrived. A
/// false length costs no more memory than that.
const FIRST_PIECE_BYTES: u64 = 1 << 20;

/// The header of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Header {
    /// A protocol step with a payload of `length` bytes.
    Step {
        /// What it carries.
        kind: Kind,
        /// Its number among the steps in its direction, from 0.
        step: u32,
        /// Payload bytes.
        length: u64,
    },
    /// A sign of life, sent when there is nothing else to send and never seen by a protocol.
    Heartbeat,
    /// An abort, the last frame in its direction.
    Abort {
        /// A number defined by the crates above.
        code: u16,
    },
}

impl Header {
    /// The header's bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; HEADER_BYTES] {
        let (class, kind, step, length) = match *self {
            Self::Step { kind, step, length } => (0, kind.0, step, length),
            Self::Heartbeat => (1, 0, 0, 0),
            Self::Abort { code } => (2, code, 0, 0),
        };
        let mut out = [0; HEADER_BYTES];
        let mut rest = out.as_mut_slice();
        for field in [&MAGIC[..], &[VERSION, class], &kind.to_le_bytes(), &step.to_le_bytes(), &length.to_le_bytes()] {
            let (head, tail) = rest.split_at_mut(field.len());
            head.copy_from_slice(field);
            rest = tail;
        }
        out
    }

    /// Decodes a header.
    ///
    /// # Errors
    /// A [`PeerFault`] for anything that [`Header::encode`] cannot produce.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<Self, PeerFault> {
        let [m0, m1, m2, m3, version, class, k0, k1, s0, s1, s2, s3, length @ ..] = *bytes;
        if [m0, m1, m2, m3] != MAGIC {
            return Err(PeerFault::BadMagic);
        }
        if version != VERSION {
            return Err(PeerFault::FrameVersion { got: version, ours: VERSION });
        }
        let kind = u16::from_le_bytes([k0, k1]);
        let step = u32::from_le_bytes([s0, s1, s2, s3]);
        let length = u64::from_le_bytes(length);
        let zero = |holds: bool, field| {
            if holds { Ok(()) } else { Err(PeerFault::BadHeader { field }) }
        };
        match class {
            0 => {
                if length > MAX_PAYLOAD {
                    return Err(PeerFault::FrameTooLong { length, limit: MAX_PAYLOAD });
                }
                Ok(Self::Step { kind: Kind(kind), step, length })
            }
            1 => {
                zero(kind == 0, "kind")?;
                zero(step == 0, "step")?;
                zero(length == 0, "length")?;
                Ok(Self::Heartbeat)
            }
            2 => {
                zero(step == 0, "step")?;
                zero(length == 0, "length")?;
                Ok(Self::Abort { code: kind })
            }
            _ => Err(PeerFault::BadHeader { field: "class" }),
        }
    }
}

/// A protocol step, as carried by a [`crate::Channel`].
#[derive(Clone, PartialEq, Eq)]
pub struct Frame {
    /// What it carries.
    pub kind: Kind,
    /// Its number among the steps in its direction, from 0.
    pub step: u32,
    /// The payload.
    pub payload: Vec<u8>,
}

impl Frame {
    /// Bytes on the channel: header and payload.
    #[must_use]
    pub fn wire_bytes(&self) -> u64 {
        HEADER_BYTES as u64 + self.payload.len() as u64
    }

    /// The frame's header.
    #[must_use]
    pub fn header(&self) -> Header {
        Header::Step { kind: self.kind, step: self.step, length: self.payload.len() as u64 }
    }
}

/// Reads one header.
///
/// # Errors
/// [`NetError::PeerGone`] at the end of the stream, an I/O error, or a [`PeerFault`].
pub fn read_header(source: &mut impl Read) -> Result<Header, NetError> {
    let mut bytes = [0; HEADER_BYTES];
    source.read_exact(&mut bytes).map_err(|e| read_error(&e))?;
    Ok(Header::decode(&bytes)?)
}

/// Reads `length` payload bytes.
///
/// `length` must have been checked against what the step allows; even so, the buffer never exceeds 1 MiB or twice the
/// bytes that have arrived.
///
/// # Errors
/// [`NetError::PeerGone`] if the stream ends early, or an I/O error.
pub fn read_payload(source: &mut impl Read, length: u64) -> Result<Vec<u8>, NetError> {
    let mut payload = Vec::new();
    let mut left = length;
    while left > 0 {
        let piece = left.min(FIRST_PIECE_BYTES.max(payload.len() as u64));
        payload.reserve_exact(usize::try_from(piece).unwrap_or(usize::MAX));
        let got = source.by_ref().take(piece).read_to_end(&mut payload).map_err(|e| read_error(&e))?;
        if got as u64 != piece {
            return Err(NetError::PeerGone);
        }
        left -= piece;
    }
    Ok(payload)
}

/// A read that ends early or on a broken connection means that the peer is gone; other errors are the system's.
pub(crate) fn read_error(error: &io::Error) -> NetError {
    io_error("read from the peer", error)
}

pub(crate) fn io_error(operation: &'static str, error: &io::Error) -> NetError {
    use io::ErrorKind as K;
    if let Some(fault) = error.get_ref().and_then(|e| e.downcast_ref::<rustls::Error>()) {
        return fault.clone().into();
    }
    match error.kind() {
        K::UnexpectedEof | K::ConnectionReset | K::ConnectionAborted | K::BrokenPipe | K::NotConnected => {
            NetError::PeerGone
        }
        kind => NetError::Io { operation, kind },
    }
}
