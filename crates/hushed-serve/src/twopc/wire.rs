//! What a client asks for between passes: the public shape of the next texts.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_net::Kind;

use crate::session::codec::{Reader, WireFault};
use crate::session::wire::Refusal;

/// The bytes of a [`crate::Bundle`], server to client.
pub const BUNDLE: Kind = Kind(0x0103);
/// [`Request`], client to server.
pub const REQUEST: Kind = Kind(0x0105);
/// [`Answer`], server to client.
pub const ANSWER: Kind = Kind(0x0106);
/// A chunk of the public table of token vectors, server to client.
pub const TABLE: Kind = Kind(0x0107);

/// Maximum size of an answer in bytes.
pub const MAX_ANSWER: usize = 1 + Refusal::BYTES;

/// Maximum texts per pass.
pub const MAX_PASS_TEXTS: usize = 256;
/// Maximum size of a request in bytes.
pub const MAX_REQUEST: usize = 4 + 4 * MAX_PASS_TEXTS;

/// Maximum documents per search.
pub use hushed_mpc::MAX_TOP;

const PADDED: u8 = 1;
const PUBLIC_TABLE: u8 = 2;
const BEGINS: u8 = 4;
const RECORDS: u8 = 8;
const SCORES: u8 = 16;
const AHEAD: u8 = 32;
const DRAFTS: u8 = 64;
const LONG: u8 = 128;

/// Maximum number of passes whose products are made ahead at once.
pub const MAX_AHEAD: u16 = 128;

/// Maximum drafts per pass.
pub const MAX_DRAFTS: u16 = 15;

/// Temperatures are in thousandths, from 0 to 2.
pub const MAX_TEMPERATURE: u16 = 2000;

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// The session is over.
    End,
    /// The public table of token vectors, which the server then sends.
    Table,
    /// One pass over some texts.
    Embed {
        /// Rows of each text: tokens, special ones included, and padding. From 1 to [`MAX_PASS_TEXTS`] numbers, none of
        /// them 0; public.
        rows: Vec<u32>,
        /// Whether some rows may be padding. The server never learns which.
        padded: bool,
        /// Whether the client looks up token vectors itself, in the public table.
        public_table: bool,
        /// Whether the pass uses products made ahead for texts of these lengths.
        ahead: bool,
    },
    /// The next rows of a text, for the token that follows them, or one after each of them.
    Next(Next),
    /// The documents nearest to a text.
    Search(Search),
    /// Products with the weights, and with the table if it is private, for passes to come.
    Ahead(Ahead),
}

/// What a client asks for with [`Request::Ahead`]; all of it is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ahead {
    /// Passes, from 1 to [`MAX_AHEAD`].
    pub passes: u16,
    /// Rows of the text of each, at least 1; 1 for later rows of a text that is continued.
    pub rows: u32,
    /// Whether some rows of their texts may be padding.
    pub padded: bool,
    /// Whether the client looks up token vectors itself, in the public table.
    pub public_table: bool,
}

/// What a client asks for with [`Request::Search`]; all of it is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Search {
    /// Rows of the text: tokens and padding, at least 1.
    pub rows: u32,
    /// Whether some rows may be padding.
    pub padded: bool,
    /// Whether the client looks up token vectors itself, in the public table.
    pub public_table: bool,
    /// Documents, from 1 to [`MAX_TOP`].
    pub top: u16,
    /// Whether their records are wanted as well.
    pub records: bool,
    /// Whether their scores are wanted as well.
    pub scores: bool,
}

/// What a client asks for with [`Request::Next`]; all of it is public.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Next {
    /// Whether a text begins; what is held of another one is then dropped.
    pub begins: bool,
    /// New rows: tokens, drafts and padding, at least 1.
    pub rows: u32,
    /// Whether some rows of the text may be padding.
    pub padded: bool,
    /// Whether the client looks up token vectors itself, in the public table.
    pub public_table: bool,
    /// Whether the pass uses products made ahead; it must be a later one whose rows all give a token.
    pub ahead: bool,
    /// Whether every row of a later pass gives a token: all but the first are drafts, at most [`MAX_DRAFTS`].
    pub drafts: bool,
    /// How many of the previous pass's last rows to drop before this one: drafts that were wrong.
    pub dropped: u16,
    /// In thousandths, at most [`MAX_TEMPERATURE`]; 0 takes the likeliest token.
    pub temperature: u16,
    /// The seed of the noise that draws a token.
    pub seed: u64,
    /// Of a text that begins: how many tokens of the server's prefix it begins with.
    pub public: u32,
    /// Of a text that begins: whether it may, with its answer, have so many rows of its own that its formats are wider.
    pub long: bool,
}

impl Request {
    /// Its bytes, at most [`MAX_REQUEST`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::End => vec![0],
            Self::Table => vec![2],
            Self::Embed { rows, padded, public_table, ahead } => {
                let count = u16::try_from(rows.len()).unwrap_or(u16::MAX);
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let flags = flag(*padded, PADDED) | flag(*public_table, PUBLIC_TABLE) | flag(*ahead, AHEAD);
                let mut out = vec![1, flags];
                out.extend_from_slice(&count.to_le_bytes());
                rows.iter().for_each(|r| out.extend(r.to_le_bytes()));
                out
            }
            Self::Next(next) => {
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let flags = flag(next.padded, PADDED)
                    | flag(next.public_table, PUBLIC_TABLE)
                    | flag(next.begins, BEGINS)
                    | flag(next.ahead, AHEAD)
                    | flag(next.drafts, DRAFTS)
                    | flag(next.long, LONG);
                let mut out = vec![3, flags];
                out.extend_from_slice(&next.rows.to_le_bytes());
                out.extend_from_slice(&next.dropped.to_le_bytes());
                out.extend_from_slice(&next.temperature.to_le_bytes());
                out.extend_from_slice(&next.seed.to_le_bytes());
                out.extend_from_slice(&next.public.to_le_bytes());
                out
            }
            Self::Search(search) => {
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let flags = flag(search.padded, PADDED)
                    | flag(search.public_table, PUBLIC_TABLE)
                    | flag(search.records, RECORDS)
                    | flag(search.scores, SCORES);
                let mut out = vec![4, flags];
                out.extend_from_slice(&search.rows.to_le_bytes());
                out.extend_from_slice(&search.top.to_le_bytes());
                out
            }
            Self::Ahead(ahead) => {
                let flag = |set: bool, flag: u8| if set { flag } else { 0 };
                let flags = flag(ahead.padded, PADDED) | flag(ahead.public_table, PUBLIC_TABLE);
                let mut out = vec![5, flags];
                out.extend_from_slice(&ahead.passes.to_le_bytes());
                out.extend_from_slice(&ahead.rows.to_le_bytes());
                out
            }
        }
    }

    /// Decodes a request.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let [tag] = reader.array("tag")?;
        let request = match tag {
            0 => Self::End,
            1 => embed(&mut reader)?,
            2 => Self::Table,
            3 => Self::Next(next(&mut reader)?),
            4 => Self::Search(search(&mut reader)?),
            5 => Self::Ahead(ahead(&mut reader)?),
            _ => return Err(WireFault::Undefined { field: "tag" }),
        };
        reader.finish()?;
        Ok(request)
    }
}

fn embed(reader: &mut Reader<'_>) -> Result<Request, WireFault> {
    let [flags] = reader.array("flags")?;
    if flags & !(PADDED | PUBLIC_TABLE | AHEAD) != 0 {
        return Err(WireFault::Undefined { field: "flags" });
    }
    let count = usize::from(u16::from_le_bytes(reader.array("number of texts")?));
    if !(1..=MAX_PASS_TEXTS).contains(&count) {
        let field = "number of texts";
        return Err(WireFault::Undefined { field });
    }
    let field = "number of tokens";
    let row = |_| match u32::from_le_bytes(reader.array(field)?) {
        0 => Err(WireFault::Undefined { field }),
        rows => Ok(rows),
    };
    Ok(Request::Embed {
        rows: (0..count).map(row).collect::<Result<_, _>>()?,
        padded: flags & PADDED != 0,
        public_table: flags & PUBLIC_TABLE != 0,
        ahead: flags & AHEAD != 0,
    })
}

fn next(reader: &mut Reader<'_>) -> Result<Next, WireFault> {
    let [flags] = reader.array("flags")?;
    let undefined = |field| Err(WireFault::Undefined { field });
    if flags & !(PADDED | PUBLIC_TABLE | BEGINS | AHEAD | DRAFTS | LONG) != 0 {
        return undefined("flags");
    }
    let rows = u32::from_le_bytes(reader.array("number of tokens")?);
    if rows == 0 {
        return undefined("number of tokens");
    }
    let flag = |flag| flags & flag != 0;
    let (begins, ahead, drafts) = (flag(BEGINS), flag(AHEAD), flag(DRAFTS));
    // Only a later pass has rows that all give a token; without drafts it has one row.
    if (ahead || drafts) && begins || ahead && !drafts && rows != 1 || flag(LONG) && !begins {
        return undefined("flags");
    }
    if drafts && rows > 1 + u32::from(MAX_DRAFTS) {
        return undefined("number of tokens");
    }
    let dropped = u16::from_le_bytes(reader.array("number of dropped tokens")?);
    if dropped > MAX_DRAFTS || begins && dropped > 0 {
        return undefined("number of dropped tokens");
    }
    let temperature = u16::from_le_bytes(reader.array("temperature")?);
    if temperature > MAX_TEMPERATURE {
        return undefined("temperature");
    }
    let seed = u64::from_le_bytes(reader.array("seed")?);
    let public = u32::from_le_bytes(reader.array("number of public tokens")?);
    if public > 0 && !begins {
        return undefined("number of public tokens");
    }
    Ok(Next {
        begins,
        rows,
        padded: flag(PADDED),
        public_table: flag(PUBLIC_TABLE),
        ahead,
        drafts,
        dropped,
        temperature,
        seed,
        public,
        long: flag(LONG),
    })
}

fn ahead(reader: &mut Reader<'_>) -> Result<Ahead, WireFault> {
    let [flags] = reader.array("flags")?;
    if flags & !(PADDED | PUBLIC_TABLE) != 0 {
        return Err(WireFault::Undefined { field: "flags" });
    }
    let field = "number of passes";
    let passes = u16::from_le_bytes(reader.array(field)?);
    if !(1..=MAX_AHEAD).contains(&passes) {
        return Err(WireFault::Undefined { field });
    }
    let field = "number of tokens";
    match u32::from_le_bytes(reader.array(field)?) {
        0 => Err(WireFault::Undefined { field }),
        rows => Ok(Ahead { passes, rows, padded: flags & PADDED != 0, public_table: flags & PUBLIC_TABLE != 0 }),
    }
}

fn search(reader: &mut Reader<'_>) -> Result<Search, WireFault> {
    let [flags] = reader.array("flags")?;
    let undefined = |field| Err(WireFault::Undefined { field });
    if flags & !(PADDED | PUBLIC_TABLE | RECORDS | SCORES) != 0 {
        return undefined("flags");
    }
    let rows = u32::from_le_bytes(reader.array("number of tokens")?);
    if rows == 0 {
        return undefined("number of tokens");
    }
    let top = u16::from_le_bytes(reader.array("number of documents")?);
    if !(1..=MAX_TOP).contains(&top) {
        return undefined("number of documents");
    }
    Ok(Search {
        rows,
        padded: flags & PADDED != 0,
        public_table: flags & PUBLIC_TABLE != 0,
        top,
        records: flags & RECORDS != 0,
        scores: flags & SCORES != 0,
    })
}

/// A server's answer to a request for a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answer {
    /// Both now run the protocols.
    Go,
    /// A refusal; the session is over.
    Refused(Refusal),
}

impl Answer {
    /// Its bytes, at most [`MAX_ANSWER`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Go => vec![1],
            Self::Refused(refusal) => {
                let mut out = vec![0];
                refusal.write(&mut out);
                out
            }
        }
    }

    /// Decodes an answer.
    pub fn decode(bytes: &[u8]) -> Result<Self, WireFault> {
        let mut reader = Reader(bytes);
        let answer = match reader.array("tag")? {
            [1] => Self::Go,
            [0] => Self::Refused(Refusal::read(&mut reader)?),
            _ => return Err(WireFault::Undefined { field: "tag" }),
        };
        reader.finish()?;
        Ok(answer)
    }
}
