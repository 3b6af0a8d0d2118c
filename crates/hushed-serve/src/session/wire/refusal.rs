//! Why a server refuses: a code, a number and a digest on the wire, alike in every version.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::{Task, counted};

use crate::digest::Digest;
use crate::session::codec::{Reader, VERSION, WireFault};

/// Why a server refuses. The client shows it; it says nothing about any text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The ends speak different versions of these messages.
    #[error("it speaks version {server} and this client version {VERSION}; use the same release on both sides")]
    OtherVersion {
        /// The server's.
        server: u16,
    },
    /// The ends disagree on formats or cryptographic parameters.
    #[error("its agreement hash is {server}, not this client's; use the same release on both sides")]
    OtherAgreement {
        /// The server's.
        server: Digest,
    },
    /// The client insists on another model.
    #[error(
        "it offers the bundle {server}, not the pinned one; fetch the new bundle from its operator if the change is intended"
    )]
    OtherBundle {
        /// The server's.
        server: Digest,
    },
    /// It accepts nobody without a token.
    #[error("it asks for a bearer token; give the one that its operator issued")]
    NoToken,
    /// The token is not on its list.
    #[error("it does not know this bearer token; check it with the server's operator")]
    BadToken,
    /// It has as many sessions as it may, or as many of this client.
    #[error("it already has as many sessions as it may ({limit}), in all or of one client; try again later")]
    TooManySessions {
        /// Its limit.
        limit: u32,
    },
    /// The text has more tokens than it accepts.
    #[error("it takes texts of at most {}; shorten the text or split it", counted(*limit, "token"))]
    TooLong {
        /// Its limit.
        limit: u32,
    },
    /// The texts of a pass together have more tokens than it accepts.
    #[error("it takes passes of at most {}; put fewer texts into one", counted(*limit, "token"))]
    PassTooLarge {
        /// Its limit.
        limit: u32,
    },
    /// Its operator has not made the table of token vectors public.
    #[error("its table of token vectors is private; leave out --public-table, or ask its operator")]
    PrivateTable,
    /// The session has used up its texts.
    #[error("it takes at most {} a session; start another session for the rest", counted(*limit, "text"))]
    TooManyTexts {
        /// Its limit.
        limit: u32,
    },
    /// Another client waited for a session, and this one was not in use.
    #[error("it gave this session, which was idle, to a client that waited; start another one")]
    Idle,
    /// It is shutting down.
    #[error("it is shutting down; try again later")]
    Stopping,
    /// It runs the model by the other protocol.
    #[error("it runs its model {}", match fhe { true => "under encryption: give --protocol fhe", false => "interactively: leave out --protocol fhe" })]
    OtherProtocol {
        /// Whether the server speaks `fhe`.
        fhe: bool,
    },
    /// A file whose size differs from that in its manifest.
    #[error("by its manifest the file has another size; is it for this manifest?")]
    WrongSize,
    /// A part that does not begin where the last one ended.
    #[error("it has another part of this file; try again, and the transfer continues where it was")]
    WrongOffset,
    /// Another session is sending the same file.
    #[error("the same file is being sent by another session; wait for that one")]
    Busy,
    /// The client's files would exceed its quota.
    #[error(
        "the file is above this client's quota, of which {left} MiB are left; wait for answers to expire, or ask its operator"
    )]
    Quota {
        /// MiB.
        left: u32,
    },
    /// Too many unfinished files.
    #[error("it keeps at most {limit} unfinished files of a client; finish one, or wait until they expire")]
    TooManyUploads {
        /// Its limit.
        limit: u32,
    },
    /// A complete file that is not what its name says: it was discarded.
    #[error("the file arrived damaged, or is not for its manifest, and was discarded; try again")]
    DamagedUpload,
    /// Expired keys.
    #[error("the keys have expired; make new ones with `hushed keygen`")]
    ExpiredKeys,
    /// Keys or a request that it does not have.
    #[error("it does not have these keys or this request; send them first")]
    NotThere,
    /// The disk is full.
    #[error("its disk is full; try again later, or tell its operator")]
    NoRoom,
    /// The client has as many waiting jobs as it may.
    #[error("{limit} jobs of this client wait already, its limit; try again later")]
    QueueFull {
        /// Its limit.
        limit: u32,
    },
    /// A request and keys that do not belong together.
    #[error("the request was encrypted for other keys")]
    OtherKeys,
    /// There is no reply to fetch: the job is unknown, not done, or its reply has expired.
    #[error("it has no reply of this job: it is not done, or its reply has expired")]
    NoReply,
    /// The client has used up its texts, or the bits that may be opened to it, for now.
    #[error("this client has used up its texts for now; come back in {}", spoken(*seconds))]
    Allowance {
        /// Seconds until the requested number of texts may run.
        seconds: u32,
    },
    /// More texts at once than the client may ever have.
    #[error("it takes at most {} of a client in its window of time; ask for fewer at once", counted(*limit, "text"))]
    AboveAllowance {
        /// Its limit.
        limit: u32,
    },
    /// More opened at once than the client may ever have.
    #[error("it opens at most {} to a client in its window of time; ask for fewer texts at once", counted(*limit, "bit"))]
    AboveOpenedBits {
        /// Its limit.
        limit: u32,
    },
    /// It cannot record clients' counts.
    #[error("it cannot record how many texts it has served, and serves none until it can; tell its operator")]
    Uncounted,
    /// Its model has another task.
    #[error("its model {}", purpose(*task))]
    OtherTask {
        /// Its task.
        task: Task,
    },
    /// It has no documents to search, or none of what was asked for.
    #[error("it has no documents to search, fewer than were asked for, or none with texts; ask its operator")]
    NoIndex,
    /// Its operator does not open scores.
    #[error("it gives no scores of documents; leave out --scores, or ask its operator")]
    NoScores,
    /// More products ahead than it holds.
    #[error(
        "it holds products made ahead for at most {} of a session; leave out --ahead, or ask its operator",
        counted(*limit, "pass")
    )]
    TooFarAhead {
        /// Its limit.
        limit: u32,
    },
    /// More drafts in a pass than it takes.
    #[error("it takes at most {} in a pass; leave out --draft, or ask its operator", counted(*limit, "draft token"))]
    TooManyDrafts {
        /// Its limit.
        limit: u32,
    },
    /// Its model takes only texts that begin with the public head.
    #[error(
        "its model takes only texts that begin with the token of its folder or chat template; add --begin, or ask in a chat"
    )]
    NoHead,
    /// A link that there is not.
    #[error("it takes links with a round trip of up to 1 s and 1 Mbit/s to 10 Gbit/s; give another --net")]
    NoLink,
    /// A reason that this release does not know.
    #[error("it gave the unknown reason {code}; is it of a later release?")]
    Unknown {
        /// The number.
        code: u16,
    },
}

/// The code with which a stopping server aborts a session between two texts.
pub(crate) const ABORT_STOPPING: u16 = 9;
/// The code of an abort for [`Refusal::Idle`].
pub(crate) const ABORT_IDLE: u16 = 34;
/// The code with which either side aborts when it cannot go on and the other need not know why.
pub(crate) const ABORT: u16 = 1;

impl Refusal {
    /// Bytes of a refusal.
    pub(crate) const BYTES: usize = 2 + 4 + 32;

    /// Code, number and digest; those that a reason does not use are zero.
    fn parts(&self) -> (u16, u32, Digest) {
        let none = Digest::ZERO;
        match *self {
            Self::OtherVersion { server } => (1, server.into(), none),
            Self::OtherAgreement { server } => (2, 0, server),
            Self::OtherBundle { server } => (3, 0, server),
            Self::NoToken => (4, 0, none),
            Self::BadToken => (5, 0, none),
            Self::TooManySessions { limit } => (6, limit, none),
            Self::TooLong { limit } => (7, limit, none),
            Self::TooManyTexts { limit } => (8, limit, none),
            Self::Stopping => (ABORT_STOPPING, 0, none),
            Self::PassTooLarge { limit } => (10, limit, none),
            Self::PrivateTable => (11, 0, none),
            Self::OtherProtocol { fhe } => (12, fhe.into(), none),
            Self::WrongSize => (13, 0, none),
            Self::WrongOffset => (14, 0, none),
            Self::Busy => (15, 0, none),
            Self::Quota { left } => (16, left, none),
            Self::TooManyUploads { limit } => (17, limit, none),
            Self::DamagedUpload => (18, 0, none),
            Self::ExpiredKeys => (19, 0, none),
            Self::NotThere => (20, 0, none),
            Self::NoRoom => (21, 0, none),
            Self::QueueFull { limit } => (22, limit, none),
            Self::NoReply => (23, 0, none),
            Self::OtherKeys => (24, 0, none),
            Self::Allowance { seconds } => (25, seconds, none),
            Self::AboveAllowance { limit } => (26, limit, none),
            Self::Uncounted => (27, 0, none),
            Self::OtherTask { task } => (28, task as u32, none),
            Self::NoIndex => (29, 0, none),
            Self::NoScores => (30, 0, none),
            Self::TooFarAhead { limit } => (31, limit, none),
            Self::TooManyDrafts { limit } => (32, limit, none),
            Self::AboveOpenedBits { limit } => (33, limit, none),
            Self::NoHead => (35, 0, none),
            Self::NoLink => (36, 0, none),
            Self::Idle => (ABORT_IDLE, 0, none),
            Self::Unknown { code } => (code, 0, none),
        }
    }

    fn from_parts(code: u16, number: u32, digest: Digest) -> Self {
        match code {
            1 => Self::OtherVersion { server: u16::try_from(number).unwrap_or(u16::MAX) },
            2 => Self::OtherAgreement { server: digest },
            3 => Self::OtherBundle { server: digest },
            4 => Self::NoToken,
            5 => Self::BadToken,
            6 => Self::TooManySessions { limit: number },
            7 => Self::TooLong { limit: number },
            8 => Self::TooManyTexts { limit: number },
            ABORT_STOPPING => Self::Stopping,
            10 => Self::PassTooLarge { limit: number },
            11 => Self::PrivateTable,
            12 => Self::OtherProtocol { fhe: number != 0 },
            13 => Self::WrongSize,
            14 => Self::WrongOffset,
            15 => Self::Busy,
            16 => Self::Quota { left: number },
            17 => Self::TooManyUploads { limit: number },
            18 => Self::DamagedUpload,
            19 => Self::ExpiredKeys,
            20 => Self::NotThere,
            21 => Self::NoRoom,
            22 => Self::QueueFull { limit: number },
            23 => Self::NoReply,
            24 => Self::OtherKeys,
            25 => Self::Allowance { seconds: number },
            26 => Self::AboveAllowance { limit: number },
            27 => Self::Uncounted,
            28 => match [Task::Embed, Task::Classify, Task::Generate].get(number as usize) {
                Some(&task) => Self::OtherTask { task },
                None => Self::Unknown { code },
            },
            29 => Self::NoIndex,
            30 => Self::NoScores,
            31 => Self::TooFarAhead { limit: number },
            32 => Self::TooManyDrafts { limit: number },
            33 => Self::AboveOpenedBits { limit: number },
            35 => Self::NoHead,
            36 => Self::NoLink,
            ABORT_IDLE => Self::Idle,
            code => Self::Unknown { code },
        }
    }

    pub(crate) fn write(&self, out: &mut Vec<u8>) {
        let (code, number, digest) = self.parts();
        out.extend_from_slice(&code.to_le_bytes());
        out.extend_from_slice(&number.to_le_bytes());
        out.extend_from_slice(&digest.0);
    }

    pub(crate) fn read(reader: &mut Reader<'_>) -> Result<Self, WireFault> {
        let code = u16::from_le_bytes(reader.array("code")?);
        let number = u32::from_le_bytes(reader.array("number")?);
        let digest = Digest(reader.array("digest")?);
        Ok(Self::from_parts(code, number, digest))
    }
}

/// What a model is for, and the verb to use.
fn purpose(task: Task) -> &'static str {
    match task {
        Task::Embed => "embeds texts: use `hushed embed`",
        Task::Classify => "classifies texts: use `hushed classify`",
        Task::Generate => "generates text: use `hushed generate`",
    }
}

/// A readable duration, rounded up.
fn spoken(seconds: u32) -> String {
    let (hours, minutes) = (seconds / 3600, seconds % 3600 / 60);
    match (hours, minutes) {
        (0, 0) => format!("{seconds} s"),
        (0, minutes) => format!("{} min", minutes + 1),
        (hours, minutes) => format!("{hours} h {} min", minutes + 1),
    }
}
