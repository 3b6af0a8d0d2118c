//! Requests and replies: lists of ciphertexts with what they belong to.
//!
//! | bytes | head of a request | head of a reply |
//! |---|---|---|
//! | 32 | hash of the plan | hash of the plan |
//! | 32 | id of the key set | id of the key set |
//! | 16 | id of the request, random | id of the request |
//! | 2 a place | the length that is declared of the text there; 0 if none is | – |
//! | 32 | – | what names the request's content |
//!
//! A request has a seeded ciphertext a column, after them the vector of real rows if lengths are encrypted; a reply has
//! what the plan says.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use hushed_ckks::{Ciphertext, CkksParams, SeededCiphertext};
use hushed_rlwe::codec::{Kind, Reader};
use hushed_rlwe::error::CodecError;

use super::FileError;
use super::chunked::{ChunkReader, ChunkWriter, DIGEST, Hash, Pieces};
use super::fault::same;
use crate::plan::public_plan::{FhePlan, Lengths, PlanFileError};

/// Bytes of the id of a request.
pub const REQUEST_ID: usize = 16;

/// What a request belongs to, and what it declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Hash of the plan.
    pub plan: Hash,
    /// Id of the key set.
    pub keys: Hash,
    /// Random, drawn by the client.
    pub id: [u8; REQUEST_ID],
    /// Of each place of the batch the length that is declared; 0 where none is.
    pub lengths: Vec<u16>,
}

/// What a reply belongs to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReplyHead {
    /// Hash of the plan.
    pub plan: Hash,
    /// Id of the key set.
    pub keys: Hash,
    /// Id of the request.
    pub id: [u8; REQUEST_ID],
    /// What names the request's content.
    pub request: Hash,
}

impl RequestHead {
    fn encode(&self) -> Vec<u8> {
        let lengths = self.lengths.iter().flat_map(|length| length.to_le_bytes());
        let ids = [&self.plan[..], &self.keys, &self.id].concat();
        ids.into_iter().chain(lengths).collect()
    }

    fn decode(bytes: &[u8]) -> Result<RequestHead, CodecError> {
        let mut reader = Reader::new(bytes);
        let (plan, keys, id) = (reader.array()?, reader.array()?, reader.array()?);
        let count = bytes.len().saturating_sub(2 * DIGEST + REQUEST_ID) / 2;
        let (lengths, _) = reader.take(2 * count)?.as_chunks::<2>();
        let lengths = lengths.iter().map(|b| u16::from_le_bytes(*b)).collect();
        reader.finish()?;
        Ok(RequestHead {
            plan,
            keys,
            id,
            lengths,
        })
    }

    /// The lengths that this plan lets a client declare.
    fn check(&self, path: &Path, plan: &FhePlan) -> Result<(), FileError> {
        let good = |&length: &u16| {
            let length = usize::from(length);
            match plan.lengths {
                Lengths::Public => length <= plan.rows,
                Lengths::Bucket(multiple) => {
                    length <= plan.rows && (length % multiple == 0 || length == plan.rows)
                }
                Lengths::Private => length == 0,
            }
        };
        if self.lengths.iter().all(good) {
            return Ok(());
        }
        Err(FileError::Unusable {
            path: path.to_owned(),
            what: "lengths",
        })
    }
}

/// Bytes of a request's file.
///
/// # Errors
/// [`PlanFileError`].
pub fn request_bytes(plan: &FhePlan, params: &CkksParams) -> Result<u64, PlanFileError> {
    Ok(request_pieces(plan, params)?.total())
}

/// Bytes of a reply's file.
#[must_use]
pub fn reply_bytes(plan: &FhePlan, params: &CkksParams) -> u64 {
    reply_pieces(plan, params).total()
}

fn request_pieces(plan: &FhePlan, params: &CkksParams) -> Result<Pieces, PlanFileError> {
    Ok(Pieces {
        head: 2 * DIGEST + REQUEST_ID + 2 * plan.places(params)?,
        count: plan.request_ciphertexts(),
        bytes: SeededCiphertext::list_bytes(params, plan.placement.upload, 1),
    })
}

fn reply_pieces(plan: &FhePlan, params: &CkksParams) -> Pieces {
    Pieces {
        head: 3 * DIGEST + REQUEST_ID,
        count: plan.reply.ciphertexts,
        bytes: Ciphertext::list_bytes(params, plan.reply.limbs, 1),
    }
}

/// Writes a request, ciphertext by ciphertext.
pub struct RequestWriter<'a> {
    params: &'a CkksParams,
    limbs: usize,
    file: ChunkWriter,
}

impl<'a> RequestWriter<'a> {
    /// Begins the file.
    ///
    /// # Errors
    /// [`FileError::Unusable`] for a head that is none of this plan; [`FileError::Io`].
    pub fn create(
        path: &Path,
        plan: &FhePlan,
        params: &'a CkksParams,
        head: &RequestHead,
    ) -> Result<Self, FileError> {
        head.check(path, plan)?;
        let pieces = pieces_of(path, plan, params)?;
        Ok(Self {
            params,
            limbs: plan.placement.upload,
            file: ChunkWriter::create(
                path,
                Kind::FheRequest,
                params.rlwe(),
                &head.encode(),
                pieces,
            )?,
        })
    }

    /// Writes the next ciphertext.
    ///
    /// # Errors
    /// [`FileError::Content`] for one of another length; [`FileError::Io`].
    pub fn push(&mut self, path: &Path, ct: &SeededCiphertext) -> Result<(), FileError> {
        let list = std::slice::from_ref(ct);
        let bytes = SeededCiphertext::list_to_bytes(self.params, self.limbs, list)
            .map_err(|error| FileError::content(path, error))?;
        self.file.push(&bytes)
    }

    /// Ends the file, and says what names its content.
    ///
    /// # Errors
    /// [`FileError::Unusable`] if ciphertexts are missing; [`FileError::Io`].
    pub fn finish(self) -> Result<Hash, FileError> {
        self.file.finish()
    }
}

/// Reads a request, ciphertext by ciphertext.
pub struct RequestReader<'a> {
    params: &'a CkksParams,
    limbs: usize,
    left: usize,
    head: RequestHead,
    file: ChunkReader,
}

impl<'a> RequestReader<'a> {
    /// Opens a request, which must be for this plan and of these keys.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Other`], [`FileError::Unusable`], [`FileError::Io`].
    pub fn open(
        path: &Path,
        plan: &FhePlan,
        params: &'a CkksParams,
        keys: Option<&Hash>,
    ) -> Result<Self, FileError> {
        let pieces = pieces_of(path, plan, params)?;
        let (mut file, head) =
            ChunkReader::open(path, Kind::FheRequest, params.rlwe(), pieces.head)?;
        let head = RequestHead::decode(&head).map_err(|fault| FileError::codec(path, fault))?;
        same(path, "plan", &head.plan, &plan.hash())?;
        if let Some(keys) = keys {
            same(path, "key set", &head.keys, keys)?;
        }
        head.check(path, plan)?;
        file.expect(pieces.count, pieces.bytes)?;
        Ok(Self {
            params,
            limbs: plan.placement.upload,
            left: pieces.count,
            head,
            file,
        })
    }

    /// What it belongs to.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The next ciphertext, none after the last.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Content`], [`FileError::Io`].
    pub fn next_ciphertext(&mut self) -> Result<Option<SeededCiphertext>, FileError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let path = self.file.path().to_owned();
        let scale = self.params.default_scale();
        let piece = self.file.next_piece()?;
        let list = SeededCiphertext::list_from_bytes(self.params, self.limbs, 1, scale, 1.0, piece);
        let list = list.map_err(|error| FileError::content(&path, error))?;
        Ok(list.into_iter().next())
    }

    /// What names its content, when all has been read.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Io`].
    pub fn finish(self) -> Result<Hash, FileError> {
        self.file.finish()
    }
}

fn pieces_of(path: &Path, plan: &FhePlan, params: &CkksParams) -> Result<Pieces, FileError> {
    request_pieces(plan, params).map_err(|_| FileError::Unusable {
        path: path.to_owned(),
        what: "plan",
    })
}

/// Writes a reply whole.
///
/// # Errors
/// [`FileError::Content`] for ciphertexts that are not the plan's; [`FileError::Unusable`] for another number of them;
/// [`FileError::Io`].
pub fn write_reply(
    path: &Path,
    plan: &FhePlan,
    params: &CkksParams,
    head: &ReplyHead,
    list: &[Ciphertext],
) -> Result<Hash, FileError> {
    let bytes = [&head.plan[..], &head.keys, &head.id, &head.request].concat();
    let pieces = reply_pieces(plan, params);
    let mut file = ChunkWriter::create(path, Kind::FheReply, params.rlwe(), &bytes, pieces)?;
    for ct in list {
        let one = std::slice::from_ref(ct);
        let piece = Ciphertext::list_to_bytes(params, plan.reply.limbs, one)
            .map_err(|error| FileError::content(path, error))?;
        file.push(&piece)?;
    }
    file.finish()
}

/// Reads a reply, which must be for this plan and these keys.
///
/// # Errors
/// [`FileError`].
pub fn read_reply(
    path: &Path,
    plan: &FhePlan,
    params: &CkksParams,
    keys: &Hash,
) -> Result<(ReplyHead, Vec<Ciphertext>), FileError> {
    let pieces = reply_pieces(plan, params);
    let (mut file, head) = ChunkReader::open(path, Kind::FheReply, params.rlwe(), pieces.head)?;
    let head = decode_reply(&head).map_err(|fault| FileError::codec(path, fault))?;
    same(path, "plan", &head.plan, &plan.hash())?;
    same(path, "key set", &head.keys, keys)?;
    file.expect(pieces.count, pieces.bytes)?;
    let scale = plan.reply_scale().map_err(|_| FileError::Unusable {
        path: path.to_owned(),
        what: "scale",
    })?;
    let mut list = Vec::new();
    for _ in 0..pieces.count {
        let piece = file.next_piece()?;
        let noise = plan.reply_noise();
        let read = Ciphertext::list_from_bytes(params, plan.reply.limbs, 1, scale, noise, piece);
        list.extend(read.map_err(|error| FileError::content(path, error))?);
    }
    file.finish()?;
    Ok((head, list))
}

fn decode_reply(bytes: &[u8]) -> Result<ReplyHead, CodecError> {
    let mut reader = Reader::new(bytes);
    let head = ReplyHead {
        plan: reader.array()?,
        keys: reader.array()?,
        id: reader.array()?,
        request: reader.array()?,
    };
    reader.finish()?;
    Ok(head)
}
