//! The control messages: messages outside the protocols. Each travels as one frame of its own kind.
//!
//! Integers are little-endian. Every message has a maximum length, and decoding is total: any byte string yields a
//! message or a [`WireFault`]. A hello and a refusal begin alike in every version (magic, version), so that two
//! versions can recognise each other.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod refusal;

use std::fmt;

use hushed_mpc::{ANSWER_BITS, Answers, MAX_TOP, THRESHOLDS};
use hushed_net::Kind;

use crate::digest::Digest;
use crate::session::codec::Reader;
use crate::session::token::{MAX_TOKEN_BYTES, Token};

pub use super::codec::{VERSION, WireFault};
pub use refusal::Refusal;
pub(crate) use refusal::{ABORT, ABORT_IDLE, ABORT_STOPPING};

const MAGIC: [u8; 4] = *b"HSHC";

/// [`Hello`], client to server.
pub const HELLO: Kind = Kind(0x0100);
/// [`Reply`], server to client.
pub const REPLY: Kind = Kind(0x0101);
/// [`Confirm`], client to server.
pub const CONFIRM: Kind = Kind(0x0102);
/// The server's 32 bytes of confirmation.
pub const READY: Kind = Kind(0x0104);
/// Maximum size in bytes of any hello or reply, of this version or a later one.
pub const MAX_GREETING: usize = 1024;
/// Size of a client's confirmation in bytes.
pub const CONFIRM_BYTES: usize = 33;

/// The client's first message. No `Debug`: it carries the token.
#[derive(Clone, PartialEq, Eq)]
pub struct Hello {
    /// Fresh randomness, so that no two transcripts are alike.
    pub nonce: [u8; 32],
    /// Hash of what both parties must agree on outside the model.
    pub agreement: Digest,
    /// The only bundle that the client accepts, if it insists on one.
    pub pinned: Option<Digest>,
    /// The bearer token, if it has one.
    pub token: Option<Token>,
    /// How long it waits for a session, in seconds; 0 does not wait.
    pub patience: u16,
    /// Whether it only looks: it takes no session, and leaves after the handshake. `2pc` only.
    pub looks: bool,
    /// The [`Link`](hushed_mpc::Link) that it proposes, unchecked: microseconds of a round trip, and kbit/s. `2pc`
    /// only.
    pub link: [u32; 2],
}

impl Hello {
    /// Its bytes, at most [`MAX_GREETING`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = greeting();
        out.extend_from_slice(&self.nonce);
        out.extend_from_slice(&self.agreement.0);
        out.push(u8::from(self.pinned.is_some()) | u8::from(self.token.is_some()) << 1 | u8::from(self.looks) << 2);
        out.extend_from_slice(&self.patience.to_le_bytes());
        self.link.iter().for_each(|figure| out.extend_from_slice(&figure.to_le_bytes()));
        if let Some(pinned) = &self.pinned {
            out.extend_from_slice(&pinned.0);
        }
        if let Some(token) = &self.token {
            let bytes = token.as_bytes();
            // A token is at most MAX_TOKEN_BYTES long.
            out.extend_from_slice(&(bytes.len() as u16).to_le_bytes());
            out.extend_from_slice(bytes);
        }
        out
    }

    /// Decodes a hello.
    ///
    /// # Errors
    /// A [`WireFault`]; [`WireFault::Version`] for any other version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = greeted(bytes)?;
        let nonce = reader.array("nonce")?;
        let agreement = Digest(reader.array("agreement")?);
        let [flags] = reader.array("flags")?;
        if flags > 7 {
            return Err(WireFault::Undefined { field: "flags" });
        }
        let patience = u16::from_le_bytes(reader.array("patience")?);
        let round_trip = u32::from_le_bytes(reader.array("round trip")?);
        let link = [round_trip, u32::from_le_bytes(reader.array("bandwidth")?)];
        let pinned = match flags & 1 {
            1 => Some(Digest(reader.array("bundle")?)),
            _ => None,
        };
        let token = match flags & 2 {
            2 => {
                let length = usize::from(u16::from_le_bytes(reader.array("token")?));
                if length > MAX_TOKEN_BYTES {
                    return Err(WireFault::Undefined { field: "token" });
                }
                let token = Token::from_bytes(reader.take(length, "token")?);
                Some(token.ok_or(WireFault::Undefined { field: "token" })?)
            }
            _ => None,
        };
        reader.finish()?;
        Ok(Self { nonce, agreement, pinned, token, patience, looks: flags & 4 == 4, link })
    }
}

/// What the server offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Welcome {
    /// Fresh randomness.
    pub nonce: [u8; 32],
    /// Hash of what both parties must agree on outside the model.
    pub agreement: Digest,
    /// Hash of the bundle.
    pub bundle: Digest,
    /// Size of the bundle in bytes.
    pub bundle_bytes: u32,
    /// Maximum rows per text, padding included.
    pub max_tokens: u32,
    /// Maximum rows per pass, over all its texts.
    pub max_pass_tokens: u32,
    /// Maximum texts per session.
    pub max_texts: u32,
    /// Hash of the table of token vectors, if the operator has made it public.
    pub table: Option<Digest>,
    /// The documents that may be searched, if any.
    pub index: Option<IndexFacts>,
    /// What is opened for a text that is classified or continued.
    pub answers: Answers,
    /// The public prefix of every text that is continued, if any.
    pub prefix: Option<PrefixFacts>,
    /// Maximum number of passes for which the server holds products made ahead; 0 makes none.
    pub max_ahead: u16,
    /// Maximum drafts per pass; 0 accepts none.
    pub max_drafts: u16,
}

/// What a client knows of a server's public prefix.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrefixFacts {
    /// Its number of tokens, at least 1.
    pub tokens: u32,
    /// SHA-256 of its text, or of the ids of a head, four bytes each.
    pub text: Digest,
    /// What it is.
    pub kind: PrefixKind,
}

/// What precedes the texts that a server continues.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PrefixKind {
    /// A text of the operator's, before every text.
    Text,
    /// The public head of the model's folder: texts begin with some of its tokens, or with none.
    Head,
    /// The same for a model that takes only texts that begin with at least its first token.
    NeededHead,
}

/// What a client knows of a server's documents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct IndexFacts {
    /// How many there are.
    pub documents: u32,
    /// Size of each record in bytes; 0 if there are none.
    pub record_bytes: u32,
    /// Whether the operator opens the scores of the documents found.
    pub scores: bool,
}

/// What a server that runs under encryption offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FheWelcome {
    /// Fresh randomness.
    pub nonce: [u8; 32],
    /// Hash of the run manifest.
    pub plan: Digest,
    /// Size of its file in bytes.
    pub plan_bytes: u32,
    /// Hash of the public model, which the manifest also holds.
    pub public: Digest,
    /// Size of its file in bytes.
    pub public_bytes: u64,
}

/// A client's place among those that wait for a session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its place, from 1: the next to have a session is the first.
    pub position: u32,
    /// How many wait.
    pub waiting: u32,
    /// About how many seconds until its turn; 0 if the server does not know yet.
    pub seconds: u32,
}

impl fmt::Display for Waiting {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "all sessions are taken: place {} of {} in the queue", self.position, self.waiting)?;
        match self.seconds {
            0 => Ok(()),
            seconds => write!(f, ", about {seconds} s"),
        }
    }
}

/// The server's first message; before it, any number of [`Reply::Waiting`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reply {
    /// The client waits for a session, and another reply follows.
    Waiting(Waiting),
    /// The session continues.
    Welcome(Welcome),
    /// The session continues, and runs are under encryption ([`crate::fhe`]).
    Fhe(FheWelcome),
    /// The session does not continue.
    Refused(Refusal),
}

impl Reply {
    /// Its bytes, at most [`MAX_GREETING`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = greeting();
        match self {
            Self::Refused(refusal) => {
                out.push(0);
                refusal.write(&mut out);
            }
            Self::Welcome(w) => {
                out.push(1);
                out.extend_from_slice(&w.nonce);
                out.extend_from_slice(&w.agreement.0);
                out.extend_from_slice(&w.bundle.0);
                let limits = [w.max_tokens, w.max_pass_tokens, w.max_texts];
                for number in std::iter::once(w.bundle_bytes).chain(limits) {
                    out.extend_from_slice(&number.to_le_bytes());
                }
                out.push(u8::from(w.table.is_some()));
                if let Some(table) = &w.table {
                    out.extend_from_slice(&table.0);
                }
                out.push(u8::from(w.index.is_some()));
                if let Some(index) = &w.index {
                    out.extend_from_slice(&index.documents.to_le_bytes());
                    out.extend_from_slice(&index.record_bytes.to_le_bytes());
                    out.push(u8::from(index.scores));
                }
                match w.answers {
                    Answers::Label => out.push(0),
                    Answers::Logits => out.push(1),
                    Answers::Bits(bits) => out.extend_from_slice(&[3, bits]),
                    Answers::Above(thousandths) => {
                        out.push(4);
                        out.extend_from_slice(&thousandths.to_le_bytes());
                    }
                    Answers::Top(top) => {
                        out.push(2);
                        out.extend_from_slice(&top.to_le_bytes());
                    }
                }
                out.push(match w.prefix.map(|prefix| prefix.kind) {
                    None => 0,
                    Some(PrefixKind::Text) => 1,
                    Some(PrefixKind::Head) => 2,
                    Some(PrefixKind::NeededHead) => 3,
                });
                if let Some(prefix) = &w.prefix {
                    out.extend_from_slice(&prefix.tokens.to_le_bytes());
                    out.extend_from_slice(&prefix.text.0);
                }
                out.extend_from_slice(&w.max_ahead.to_le_bytes());
                out.extend_from_slice(&w.max_drafts.to_le_bytes());
            }
            Self::Waiting(w) => {
                out.push(3);
                for number in [w.position, w.waiting, w.seconds] {
                    out.extend_from_slice(&number.to_le_bytes());
                }
            }
            Self::Fhe(w) => {
                out.push(2);
                out.extend_from_slice(&w.nonce);
                out.extend_from_slice(&w.plan.0);
                out.extend_from_slice(&w.plan_bytes.to_le_bytes());
                out.extend_from_slice(&w.public.0);
                out.extend_from_slice(&w.public_bytes.to_le_bytes());
            }
        }
        out
    }

    /// Decodes a reply. A refusal is understood in every version.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let version = version(&mut reader)?;
        let reply = match reader.array("tag")? {
            [0] => Self::Refused(Refusal::read(&mut reader)?),
            [1] if version == VERSION => Self::Welcome(Welcome {
                nonce: reader.array("nonce")?,
                agreement: Digest(reader.array("agreement")?),
                bundle: Digest(reader.array("bundle")?),
                bundle_bytes: u32::from_le_bytes(reader.array("length of the bundle")?),
                max_tokens: u32::from_le_bytes(reader.array("limit of tokens")?),
                max_pass_tokens: u32::from_le_bytes(reader.array("limit of tokens of a pass")?),
                max_texts: u32::from_le_bytes(reader.array("limit of texts")?),
                table: match reader.array("table")? {
                    [0] => None,
                    [1] => Some(Digest(reader.array("table")?)),
                    _ => return Err(WireFault::Undefined { field: "table" }),
                },
                index: match reader.array("index")? {
                    [0] => None,
                    [1] => Some(IndexFacts {
                        documents: u32::from_le_bytes(reader.array("number of documents")?),
                        record_bytes: u32::from_le_bytes(reader.array("bytes of a record")?),
                        scores: match reader.array("scores")? {
                            [0] => false,
                            [1] => true,
                            _ => return Err(WireFault::Undefined { field: "scores" }),
                        },
                    }),
                    _ => return Err(WireFault::Undefined { field: "index" }),
                },
                answers: answers(&mut reader)?,
                prefix: match reader.array("prefix")? {
                    [0] => None,
                    [1] => Some(prefix(&mut reader, PrefixKind::Text)?),
                    [2] => Some(prefix(&mut reader, PrefixKind::Head)?),
                    [3] => Some(prefix(&mut reader, PrefixKind::NeededHead)?),
                    _ => return Err(WireFault::Undefined { field: "prefix" }),
                },
                max_ahead: u16::from_le_bytes(reader.array("limit of passes ahead")?),
                max_drafts: u16::from_le_bytes(reader.array("limit of drafts")?),
            }),
            [2] if version == VERSION => Self::Fhe(FheWelcome {
                nonce: reader.array("nonce")?,
                plan: Digest(reader.array("plan")?),
                plan_bytes: u32::from_le_bytes(reader.array("length of the plan")?),
                public: Digest(reader.array("public model")?),
                public_bytes: u64::from_le_bytes(reader.array("length of the public model")?),
            }),
            [3] if version == VERSION => Self::Waiting(Waiting {
                position: u32::from_le_bytes(reader.array("position")?),
                waiting: u32::from_le_bytes(reader.array("number of waiting clients")?),
                seconds: u32::from_le_bytes(reader.array("time of waiting")?),
            }),
            [1..=3] => return Err(WireFault::Version { got: version }),
            _ => return Err(WireFault::Undefined { field: "tag" }),
        };
        reader.finish()?;
        Ok(reply)
    }
}

/// The client's confirmation.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Confirm {
    /// The client's tag of the session's identity.
    pub tag: [u8; 32],
    /// Whether the server should send the bundle.
    pub wants_bundle: bool,
}

impl Confirm {
    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = self.tag.to_vec();
        out.push(u8::from(self.wants_bundle));
        out
    }

    /// Decodes a confirmation.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let tag = reader.array("tag")?;
        let wants_bundle = match reader.array("wish")? {
            [0] => false,
            [1] => true,
            _ => return Err(WireFault::Undefined { field: "wish" }),
        };
        reader.finish()?;
        Ok(Self { tag, wants_bundle })
    }
}

fn answers(reader: &mut Reader<'_>) -> Result<Answers, WireFault> {
    let field = "answers";
    Ok(match reader.array(field)? {
        [0] => Answers::Label,
        [1] => Answers::Logits,
        [2] => match u16::from_le_bytes(reader.array(field)?) {
            top @ 1..=MAX_TOP => Answers::Top(top),
            _ => return Err(WireFault::Undefined { field }),
        },
        [3] => match reader.array(field)? {
            [bits] if ANSWER_BITS.contains(&bits) => Answers::Bits(bits),
            _ => return Err(WireFault::Undefined { field }),
        },
        [4] => match u16::from_le_bytes(reader.array(field)?) {
            thousandths if THRESHOLDS.contains(&thousandths) => Answers::Above(thousandths),
            _ => return Err(WireFault::Undefined { field }),
        },
        _ => return Err(WireFault::Undefined { field }),
    })
}

fn prefix(reader: &mut Reader<'_>, kind: PrefixKind) -> Result<PrefixFacts, WireFault> {
    let field = "number of tokens of the prefix";
    match u32::from_le_bytes(reader.array(field)?) {
        0 => Err(WireFault::Undefined { field }),
        tokens => Ok(PrefixFacts { tokens, text: Digest(reader.array("hash of the prefix")?), kind }),
    }
}

fn greeting() -> Vec<u8> {
    let mut out = Vec::with_capacity(MAX_GREETING);
    out.extend_from_slice(&MAGIC);
    out.extend_from_slice(&VERSION.to_le_bytes());
    out
}

fn version(reader: &mut Reader<'_>) -> Result<u16, WireFault> {
    if reader.array("magic")? != MAGIC {
        return Err(WireFault::Magic);
    }
    Ok(u16::from_le_bytes(reader.array("version")?))
}

fn greeted(bytes: &[u8]) -> Result<Reader<'_>, WireFault> {
    let mut reader = Reader(bytes);
    match version(&mut reader)? {
        VERSION => Ok(reader),
        got => Err(WireFault::Version { got }),
    }
}
