//! Requests and replies: lists of ciphertexts, with a head that says what they belong to. Their bytes are the same in
//! files and in memory.
//!
//! | bytes | head of a request | head of a reply |
//! |---|---|---|
//! | 32 | hash of the plan | hash of the plan |
//! | 32 | id of the key set | id of the key set |
//! | 16 | id of the request, random | id of the request |
//! | 2 per text that a place may have | the declared length of the text there; 0 if none is declared | – |
//! | 32 | – | hash of the request's content |
//!
//! A request has one seeded ciphertext per two columns or per vector of packed rows, followed by the vector of real
//! rows if the plan wants one; a reply has the ciphertexts stated in the plan.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::Path;

pub use hushed_ckks::Ciphertext;
use hushed_ckks::{CkksParams, SeededCiphertext};
use hushed_rlwe::codec::{Kind, Reader};
use hushed_rlwe::error::CodecError;

use super::FileError;
use super::atomic::{Access, AtomicFile, Target};
use super::chunked::{ChunkReader, ChunkWriter, DIGEST, Hash, Pieces, Whole, open_file};
use super::fault::same;
use crate::plan::public_plan::{Manifest, PlanFileError};

/// Bytes of a request's id.
pub const REQUEST_ID: usize = 16;

/// What a request belongs to, and the lengths it declares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RequestHead {
    /// Hash of the plan.
    pub plan: Hash,
    /// Id of the key set.
    pub keys: Hash,
    /// Chosen at random by the client.
    pub id: [u8; REQUEST_ID],
    /// The declared lengths of the texts of each place of the batch, [`crate::Placement::per_place`] a place; 0 if none
    /// is declared.
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
    /// Hash of the request's content.
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
        Ok(RequestHead { plan, keys, id, lengths })
    }

    /// Checks that the plan lets a client declare these lengths.
    fn check(&self, path: &Path, plan: &dyn Manifest) -> Result<(), FileError> {
        let lengths: Vec<usize> = self.lengths.iter().map(|&length| length.into()).collect();
        if plan.may_declare(&lengths) {
            return Ok(());
        }
        Err(FileError::Unusable { path: path.to_owned(), what: "lengths" })
    }
}

/// Bytes of a request.
///
/// # Errors
/// [`PlanFileError`].
pub fn request_bytes(plan: &dyn Manifest, params: &CkksParams) -> Result<u64, PlanFileError> {
    Ok(request_pieces(plan, params)?.total())
}

/// Bytes of a reply.
#[must_use]
pub fn reply_bytes(plan: &dyn Manifest, params: &CkksParams) -> u64 {
    reply_pieces(plan, params).total()
}

fn request_pieces(plan: &dyn Manifest, params: &CkksParams) -> Result<Pieces, PlanFileError> {
    Ok(Pieces {
        head: 2 * DIGEST + REQUEST_ID + 2 * plan.declared_lengths(params)?,
        count: plan.request_ciphertexts(),
        bytes: SeededCiphertext::list_bytes(params, plan.upload(), 1),
    })
}

fn reply_pieces(plan: &dyn Manifest, params: &CkksParams) -> Pieces {
    Pieces {
        head: 3 * DIGEST + REQUEST_ID,
        count: plan.reply().ciphertexts,
        bytes: Ciphertext::list_bytes(params, plan.reply().limbs, 1),
    }
}

/// Writes a request, ciphertext by ciphertext.
pub struct RequestWriter<'a, W> {
    params: &'a CkksParams,
    limbs: usize,
    out: ChunkWriter<W>,
}

impl<'a> RequestWriter<'a, AtomicFile> {
    /// Begins the file.
    ///
    /// # Errors
    /// [`FileError::Unusable`] for a head that does not belong to this plan; [`FileError::Io`].
    pub fn create(
        path: &Path,
        plan: &dyn Manifest,
        params: &'a CkksParams,
        head: &RequestHead,
    ) -> Result<Self, FileError> {
        let file = AtomicFile::create(path, Access::Usual)?;
        Self::begin(file, path, plan, params, head)
    }
}

impl<'a, W: Target> RequestWriter<'a, W> {
    /// Begins writing to `out`, which errors call `path`.
    ///
    /// # Errors
    /// As [`RequestWriter::create`].
    pub fn begin(
        out: W,
        path: &Path,
        plan: &dyn Manifest,
        params: &'a CkksParams,
        head: &RequestHead,
    ) -> Result<Self, FileError> {
        head.check(path, plan)?;
        let (pieces, kind) = (pieces_of(path, plan, params)?, Kind::FheRequest);
        Ok(Self {
            params,
            limbs: plan.upload(),
            out: ChunkWriter::begin(out, path, kind, params.rlwe(), &head.encode(), pieces)?,
        })
    }

    /// Writes the next ciphertext.
    ///
    /// # Errors
    /// [`FileError::Content`] for one of another length; [`FileError::Io`].
    pub fn push(&mut self, ct: &SeededCiphertext) -> Result<(), FileError> {
        let list = std::slice::from_ref(ct);
        let bytes = SeededCiphertext::list_to_bytes(self.params, self.limbs, list)
            .map_err(|error| FileError::content(self.out.path(), error))?;
        self.out.push(&bytes)
    }

    /// Ends the request and returns the hash of its content.
    ///
    /// # Errors
    /// [`FileError::Unusable`] if ciphertexts are missing; [`FileError::Io`].
    pub fn finish(self) -> Result<Hash, FileError> {
        self.out.finish()
    }

    /// The hash of the content, and the request, to be completed once it is recorded.
    ///
    /// # Errors
    /// As [`RequestWriter::finish`].
    pub fn sealed(self) -> Result<(Hash, Whole<W>), FileError> {
        self.out.sealed()
    }
}

/// Reads a request, ciphertext by ciphertext.
pub struct RequestReader<'a, R> {
    params: &'a CkksParams,
    limbs: usize,
    left: usize,
    head: RequestHead,
    source: ChunkReader<R>,
}

impl<'a> RequestReader<'a, BufReader<File>> {
    /// Opens a file, which must belong to this plan and these keys.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Other`], [`FileError::Unusable`], [`FileError::Io`].
    pub fn open(
        path: &Path,
        plan: &dyn Manifest,
        params: &'a CkksParams,
        keys: Option<&Hash>,
    ) -> Result<Self, FileError> {
        Self::begin(open_file(path)?, path, plan, params, keys)
    }
}

impl<'a, R: Read> RequestReader<'a, R> {
    /// Begins with a source and its number of bytes; errors call it `path`.
    ///
    /// # Errors
    /// As [`RequestReader::open`].
    pub fn begin(
        source: (R, u64),
        path: &Path,
        plan: &dyn Manifest,
        params: &'a CkksParams,
        keys: Option<&Hash>,
    ) -> Result<Self, FileError> {
        let pieces = pieces_of(path, plan, params)?;
        let kind = Kind::FheRequest;
        let (mut source, head) = ChunkReader::begin(source, path, kind, params.rlwe(), pieces.head)?;
        let head = RequestHead::decode(&head).map_err(|fault| FileError::codec(path, fault))?;
        same(path, "plan", &head.plan, &plan.hash())?;
        if let Some(keys) = keys {
            same(path, "key set", &head.keys, keys)?;
        }
        head.check(path, plan)?;
        source.expect(pieces.count, pieces.bytes)?;
        Ok(Self { params, limbs: plan.upload(), left: pieces.count, head, source })
    }

    /// The head of the request.
    pub fn head(&self) -> &RequestHead {
        &self.head
    }

    /// The next ciphertext; `None` after the last.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Content`], [`FileError::Io`].
    pub fn next_ciphertext(&mut self) -> Result<Option<SeededCiphertext>, FileError> {
        let Some(left) = self.left.checked_sub(1) else {
            return Ok(None);
        };
        self.left = left;
        let path = self.source.path().to_owned();
        let scale = self.params.default_scale();
        let piece = self.source.next_piece()?;
        let list = SeededCiphertext::list_from_bytes(self.params, self.limbs, 1, scale, 1.0, piece);
        let list = list.map_err(|error| FileError::content(&path, error))?;
        Ok(list.into_iter().next())
    }

    /// The hash of the content, once everything has been read.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Io`].
    pub fn finish(self) -> Result<Hash, FileError> {
        self.source.finish()
    }
}

/// Reads a whole request from a source with its number of bytes; errors call it `path`. Returns its head, the hash of
/// its content, and its ciphertexts.
///
/// # Errors
/// As [`RequestReader::open`], and [`FileError::Content`].
pub fn read_request_from(
    source: (impl Read, u64),
    path: &Path,
    plan: &dyn Manifest,
    params: &CkksParams,
    keys: &Hash,
) -> Result<(RequestHead, Hash, Vec<SeededCiphertext>), FileError> {
    let mut reader = RequestReader::begin(source, path, plan, params, Some(keys))?;
    let head = reader.head().clone();
    let mut list = Vec::with_capacity(plan.request_ciphertexts());
    while let Some(ct) = reader.next_ciphertext()? {
        list.push(ct);
    }
    Ok((head, reader.finish()?, list))
}

fn pieces_of(path: &Path, plan: &dyn Manifest, params: &CkksParams) -> Result<Pieces, FileError> {
    request_pieces(plan, params).map_err(|_| FileError::Unusable { path: path.to_owned(), what: "plan" })
}

/// Writes a whole reply to `out`, which errors call `path`.
///
/// # Errors
/// [`FileError::Content`] for ciphertexts that do not match the plan; [`FileError::Unusable`] for a wrong number of
/// them; [`FileError::Io`].
pub fn write_reply_to(
    out: impl Target,
    path: &Path,
    plan: &dyn Manifest,
    params: &CkksParams,
    head: &ReplyHead,
    list: &[Ciphertext],
) -> Result<Hash, FileError> {
    let bytes = [&head.plan[..], &head.keys, &head.id, &head.request].concat();
    let (pieces, kind) = (reply_pieces(plan, params), Kind::FheReply);
    let mut out = ChunkWriter::begin(out, path, kind, params.rlwe(), &bytes, pieces)?;
    for ct in list {
        let one = std::slice::from_ref(ct);
        let piece = Ciphertext::list_to_bytes(params, plan.reply().limbs, one)
            .map_err(|error| FileError::content(path, error))?;
        out.push(&piece)?;
    }
    out.finish()
}

/// Reads a reply from a file; it must belong to this plan and these keys.
///
/// # Errors
/// [`FileError`].
pub fn read_reply(
    path: &Path,
    plan: &dyn Manifest,
    params: &CkksParams,
    keys: &Hash,
) -> Result<(ReplyHead, Vec<Ciphertext>), FileError> {
    read_reply_from(open_file(path)?, path, plan, params, keys)
}

/// Reads a reply from a source with its number of bytes; errors call it `path`.
///
/// # Errors
/// As [`read_reply`].
pub fn read_reply_from(
    source: (impl Read, u64),
    path: &Path,
    plan: &dyn Manifest,
    params: &CkksParams,
    keys: &Hash,
) -> Result<(ReplyHead, Vec<Ciphertext>), FileError> {
    let (pieces, kind) = (reply_pieces(plan, params), Kind::FheReply);
    let (mut source, head) = ChunkReader::begin(source, path, kind, params.rlwe(), pieces.head)?;
    let head = decode_reply(&head).map_err(|fault| FileError::codec(path, fault))?;
    same(path, "plan", &head.plan, &plan.hash())?;
    same(path, "key set", &head.keys, keys)?;
    source.expect(pieces.count, pieces.bytes)?;
    let scale = plan.reply().scale().map_err(|_| FileError::Unusable { path: path.to_owned(), what: "scale" })?;
    let mut list = Vec::new();
    for _ in 0..pieces.count {
        let piece = source.next_piece()?;
        let noise = plan.reply().noise();
        let read = Ciphertext::list_from_bytes(params, plan.reply().limbs, 1, scale, noise, piece);
        list.extend(read.map_err(|error| FileError::content(path, error))?);
    }
    source.finish()?;
    Ok((head, list))
}

fn decode_reply(bytes: &[u8]) -> Result<ReplyHead, CodecError> {
    let mut reader = Reader::new(bytes);
    let head =
        ReplyHead { plan: reader.array()?, keys: reader.array()?, id: reader.array()?, request: reader.array()? };
    reader.finish()?;
    Ok(head)
}
