//! The messages between a client and a server for encrypted runs, after the handshake ([`crate::session::wire`]).
//!
//! The client sends a [`Request`] and the server a [`Response`], in turn. File contents travel in parts of at most
//! [`PART`] bytes, in separate frames of at most [`CHUNK`] bytes. Both sides name the offset at which a part begins:
//! after an interruption the next session continues where the last whole part ended. Both know every length before a
//! frame is read; integers are little-endian; decoding is total.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_net::Kind;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::session::codec::{Reader, WireFault};
use crate::session::wire::Refusal;

/// [`Request`], client to server.
pub const REQUEST: Kind = Kind(0x0180);
/// [`Response`], server to client.
pub const RESPONSE: Kind = Kind(0x0181);
/// File contents, in either direction.
pub const DATA: Kind = Kind(0x0182);

/// Maximum size of a data frame in bytes.
pub const CHUNK: usize = 4 << 20;
/// Maximum size of a part in bytes: the most that is lost if a connection breaks.
pub const PART: u64 = 32 << 20;
/// Maximum size of a [`Request`] in bytes.
pub const MAX_REQUEST: usize = 65;
/// Maximum size of a [`Response`] in bytes.
pub const MAX_RESPONSE: usize = 64;

/// The version of these messages and their meaning.
const AGREEMENT: &[u8] = b"hushed fhe over a connection 1";

/// Sent in a hello in place of the agreement hash of `2pc`; marks a session of this kind and version.
#[must_use]
pub fn agreement() -> Digest {
    Digest(Sha256::digest(AGREEMENT).into())
}

/// The id of a job: SHA-256("hushed job 1" ‖ manifest ‖ key set ‖ name of the request's content). The same request
/// again is the same job; as the request is encrypted, nobody can guess its id.
#[must_use]
pub fn job_id(plan: &Digest, keys: &Digest, request: &Digest) -> Digest {
    let hash =
        Sha256::new().chain_update(b"hushed job 1").chain_update(plan.0).chain_update(keys.0).chain_update(request.0);
    Digest(hash.finalize().into())
}

/// The lengths of the frames of a part.
pub fn frames(part: u64) -> impl Iterator<Item = usize> {
    let chunk = CHUNK as u64;
    (0..part.div_ceil(chunk)).map(move |i| (part - i * chunk).min(chunk) as usize)
}

/// A file of the client.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Upload {
    /// Evaluation keys, by their id.
    Keys(Digest),
    /// A request, by the name of its content.
    Request(Digest),
}

/// A file of the server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Download {
    /// The run manifest.
    Plan,
    /// The public model.
    Public,
    /// The reply of a job.
    Reply(Digest),
}

/// A client's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// Ends the session.
    End,
    /// Asks how much of a file of `bytes` bytes the server has.
    Offer {
        /// Which file.
        file: Upload,
        /// The size of the whole file.
        bytes: u64,
    },
    /// A part of an offered file; its frames follow.
    Put {
        /// Which file.
        file: Upload,
        /// Where the part begins: the bytes that the server already has.
        offset: u64,
        /// Bytes of the part, from 1 to [`PART`].
        bytes: u32,
    },
    /// Asks for a part of a file of the server.
    Get {
        /// Which file.
        file: Download,
        /// Where the part should begin.
        offset: u64,
    },
    /// Asks for a run of this request with these keys. Asked again it is the same job; a failed job is started again.
    Submit {
        /// The keys.
        keys: Digest,
        /// The request.
        request: Digest,
    },
    /// Asks for the state of a job.
    Status {
        /// Its id.
        job: Digest,
    },
}

/// A server's response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Response {
    /// The server refuses, and the session is over.
    Refused(Refusal),
    /// The server has this many bytes of the file; all of them if it is complete and checked.
    Have {
        /// How many.
        bytes: u64,
    },
    /// A part of a file; its frames follow.
    Part {
        /// Bytes of the whole file.
        total: u64,
        /// Bytes of the part, at most [`PART`]; 0 at the file's end.
        bytes: u32,
    },
    /// A job.
    Job(JobState),
}

/// The state of a job.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobState {
    /// Unknown or expired.
    Unknown,
    /// It waits for its turn.
    Queued {
        /// Jobs ahead of it, including the running one.
        ahead: u32,
        /// Estimated seconds until its answer; 0 if unknown.
        left: u32,
    },
    /// It runs.
    Running {
        /// Layers done.
        layer: u32,
        /// Layers in all.
        of: u32,
        /// Progress of the current layer, in thousandths.
        part: u16,
        /// Estimated seconds left; 0 if unknown.
        left: u32,
    },
    /// Its reply can be fetched.
    Done {
        /// Bytes of the reply.
        bytes: u64,
    },
    /// It ended without a reply.
    Failed(Failure),
}

/// Why a job failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// Its keys have expired or were deleted.
    #[error("its keys have expired or were deleted: make new ones with `hushed keygen`")]
    Keys,
    /// The request is missing, damaged, or for other keys.
    #[error("its request cannot be used: encrypt the texts again")]
    Request,
    /// The server's model is not what its manifest was made for.
    #[error("the server's files do not match its manifest: tell its operator")]
    Model,
    /// Too little memory.
    #[error("the server has too little memory for a run: tell its operator")]
    Memory,
    /// Too little disk space.
    #[error("the server's disk is full: try again later")]
    Disk,
    /// The server exited during it several times.
    #[error("the server exited several times during this run: tell its operator")]
    Crashed,
    /// Anything else.
    #[error("the run failed: tell the server's operator")]
    Other,
}

impl Failure {
    const ALL: [(u8, Failure); 7] = [
        (1, Failure::Keys),
        (2, Failure::Request),
        (3, Failure::Model),
        (4, Failure::Memory),
        (5, Failure::Disk),
        (6, Failure::Crashed),
        (7, Failure::Other),
    ];

    /// The stable name, for logs, metrics and records.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Keys => "keys",
            Self::Request => "request",
            Self::Model => "model",
            Self::Memory => "memory",
            Self::Disk => "disk",
            Self::Crashed => "crashed",
            Self::Other => "other",
        }
    }

    /// Looks up a failure by its name; any other name is [`Failure::Other`].
    #[must_use]
    pub fn named(name: &str) -> Failure {
        let mut all = Self::ALL.into_iter().map(|(_, failure)| failure);
        all.find(|failure| failure.name() == name).unwrap_or(Self::Other)
    }

    fn code(self) -> u8 {
        let mut all = Self::ALL.into_iter();
        all.find(|(_, failure)| *failure == self).map_or(7, |c| c.0)
    }

    fn from_code(code: u8) -> Result<Failure, WireFault> {
        let mut all = Self::ALL.into_iter();
        let found = all.find(|(known, _)| *known == code);
        found.map(|(_, failure)| failure).ok_or(WireFault::Undefined { field: "failure" })
    }
}

impl Upload {
    /// The name of the file's content.
    #[must_use]
    pub fn id(&self) -> &Digest {
        match self {
            Self::Keys(id) | Self::Request(id) => id,
        }
    }

    fn write(&self, out: &mut Vec<u8>) {
        let (tag, id) = match self {
            Self::Keys(id) => (1, id),
            Self::Request(id) => (2, id),
        };
        out.push(tag);
        out.extend_from_slice(&id.0);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireFault> {
        let [tag] = reader.array("file")?;
        let id = Digest(reader.array("id")?);
        match tag {
            1 => Ok(Self::Keys(id)),
            2 => Ok(Self::Request(id)),
            _ => Err(WireFault::Undefined { field: "file" }),
        }
    }
}

impl Download {
    fn write(&self, out: &mut Vec<u8>) {
        match self {
            Self::Plan => out.push(1),
            Self::Public => out.push(2),
            Self::Reply(job) => {
                out.push(3);
                out.extend_from_slice(&job.0);
            }
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireFault> {
        match reader.array("file")? {
            [1] => Ok(Self::Plan),
            [2] => Ok(Self::Public),
            [3] => Ok(Self::Reply(Digest(reader.array("job")?))),
            _ => Err(WireFault::Undefined { field: "file" }),
        }
    }
}

impl Request {
    /// Its bytes, at most [`MAX_REQUEST`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_REQUEST);
        match self {
            Self::End => out.push(0),
            Self::Offer { file, bytes } => {
                out.push(1);
                file.write(&mut out);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Put { file, offset, bytes } => {
                out.push(2);
                file.write(&mut out);
                out.extend_from_slice(&offset.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Get { file, offset } => {
                out.push(3);
                file.write(&mut out);
                out.extend_from_slice(&offset.to_le_bytes());
            }
            Self::Submit { keys, request } => {
                out.push(4);
                out.extend_from_slice(&keys.0);
                out.extend_from_slice(&request.0);
            }
            Self::Status { job } => {
                out.push(5);
                out.extend_from_slice(&job.0);
            }
        }
        out
    }

    /// Decodes a request.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let request = match reader.array("tag")? {
            [0] => Self::End,
            [1] => Self::Offer { file: Upload::read(&mut reader)?, bytes: u64::from_le_bytes(reader.array("length")?) },
            [2] => Self::Put {
                file: Upload::read(&mut reader)?,
                offset: u64::from_le_bytes(reader.array("offset")?),
                bytes: part(u32::from_le_bytes(reader.array("length")?), 1)?,
            },
            [3] => {
                Self::Get { file: Download::read(&mut reader)?, offset: u64::from_le_bytes(reader.array("offset")?) }
            }
            [4] => Self::Submit { keys: Digest(reader.array("keys")?), request: Digest(reader.array("request")?) },
            [5] => Self::Status { job: Digest(reader.array("job")?) },
            _ => return Err(WireFault::Undefined { field: "tag" }),
        };
        reader.finish()?;
        Ok(request)
    }
}

/// Checks the length of a part.
fn part(bytes: u32, least: u32) -> Result<u32, WireFault> {
    match bytes >= least && u64::from(bytes) <= PART {
        true => Ok(bytes),
        false => Err(WireFault::Undefined { field: "length" }),
    }
}

impl Response {
    /// Its bytes, at most [`MAX_RESPONSE`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(MAX_RESPONSE);
        match self {
            Self::Refused(refusal) => {
                out.push(0);
                refusal.write(&mut out);
            }
            Self::Have { bytes } => {
                out.push(1);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Part { total, bytes } => {
                out.push(2);
                out.extend_from_slice(&total.to_le_bytes());
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Job(state) => {
                out.push(3);
                state.write(&mut out);
            }
        }
        out
    }

    /// Decodes a response.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let response = match reader.array("tag")? {
            [0] => Self::Refused(Refusal::read(&mut reader)?),
            [1] => Self::Have { bytes: u64::from_le_bytes(reader.array("length")?) },
            [2] => Self::Part {
                total: u64::from_le_bytes(reader.array("length")?),
                bytes: part(u32::from_le_bytes(reader.array("length")?), 0)?,
            },
            [3] => Self::Job(JobState::read(&mut reader)?),
            _ => return Err(WireFault::Undefined { field: "tag" }),
        };
        reader.finish()?;
        Ok(response)
    }
}

impl JobState {
    fn write(&self, out: &mut Vec<u8>) {
        match *self {
            Self::Unknown => out.push(0),
            Self::Queued { ahead, left } => {
                out.push(1);
                out.extend_from_slice(&ahead.to_le_bytes());
                out.extend_from_slice(&left.to_le_bytes());
            }
            Self::Running { layer, of, part, left } => {
                out.push(2);
                out.extend_from_slice(&layer.to_le_bytes());
                out.extend_from_slice(&of.to_le_bytes());
                out.extend_from_slice(&part.to_le_bytes());
                out.extend_from_slice(&left.to_le_bytes());
            }
            Self::Done { bytes } => {
                out.push(3);
                out.extend_from_slice(&bytes.to_le_bytes());
            }
            Self::Failed(failure) => out.extend_from_slice(&[4, failure.code()]),
        }
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, WireFault> {
        let state = match reader.array("state")? {
            [0] => Self::Unknown,
            [1] => Self::Queued {
                ahead: u32::from_le_bytes(reader.array("place")?),
                left: u32::from_le_bytes(reader.array("estimate")?),
            },
            [2] => Self::Running {
                layer: u32::from_le_bytes(reader.array("layer")?),
                of: u32::from_le_bytes(reader.array("layers")?),
                part: u16::from_le_bytes(reader.array("part")?),
                left: u32::from_le_bytes(reader.array("estimate")?),
            },
            [3] => Self::Done { bytes: u64::from_le_bytes(reader.array("length")?) },
            [4] => {
                let [code] = reader.array("failure")?;
                Self::Failed(Failure::from_code(code)?)
            }
            _ => return Err(WireFault::Undefined { field: "state" }),
        };
        match state {
            Self::Running { layer, of, part, .. } if layer > of || part > 1000 => {
                Err(WireFault::Undefined { field: "progress" })
            }
            state => Ok(state),
        }
    }
}
