//! Artefacts of many pieces of one size, written and read piece by piece, to and from files or other targets and
//! sources ([`Target`], [`Read`]).
//!
//! | bytes | content |
//! |---|---|
//! | 32 | header of [`hushed_rlwe::codec`] |
//! | given by the kind | head |
//! | 32 | digest of header and head |
//! | per piece: given, 32 | the piece, its digest |
//! | 32 | digest of all earlier digests: the content hash |
//!
//! A digest is SHA-256 over the previous digest and the data, so that neither order nor origin can be mixed up.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fs::File;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use hushed_rlwe::RlweParams;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, read_header, write_header};
use hushed_rlwe::error::CodecError;
use sha2::{Digest, Sha256};

use super::FileError;
use super::atomic::{Access, AtomicFile, Target};

/// Bytes of a digest.
pub const DIGEST: usize = 32;

/// A SHA-256 digest.
pub type Hash = [u8; DIGEST];

/// Sizes of a file's parts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pieces {
    /// Bytes of the head.
    pub head: usize,
    /// Number of pieces.
    pub count: usize,
    /// Bytes per piece.
    pub bytes: usize,
}

impl Pieces {
    /// Bytes of the whole file.
    pub fn total(&self) -> u64 {
        let piece = self.bytes as u64 + DIGEST as u64;
        let pieces = (self.count as u64).saturating_mul(piece);
        pieces.saturating_add((HEADER_BYTES + self.head + 2 * DIGEST) as u64)
    }
}

/// Writes pieces to a target.
pub struct ChunkWriter<W> {
    path: PathBuf,
    out: W,
    pieces: Pieces,
    written: usize,
    seal: Seal,
}

impl ChunkWriter<AtomicFile> {
    /// Begins a file.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Unusable`] for a head of another size.
    pub fn create(
        path: &Path,
        kind: Kind,
        params: &RlweParams,
        head: &[u8],
        pieces: Pieces,
    ) -> Result<Self, FileError> {
        let file = AtomicFile::create(path, Access::Usual)?;
        Self::begin(file, path, kind, params, head, pieces)
    }
}

impl<W: Target> ChunkWriter<W> {
    /// Begins writing to `out`, which errors call `path`.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Unusable`] for a head of another size.
    pub fn begin(
        out: W,
        path: &Path,
        kind: Kind,
        params: &RlweParams,
        head: &[u8],
        pieces: Pieces,
    ) -> Result<Self, FileError> {
        let mut writer = ChunkWriter { path: path.to_owned(), out, pieces, written: 0, seal: Seal::new() };
        if head.len() != pieces.head {
            return Err(writer.unusable("head"));
        }
        let mut first = Vec::with_capacity(HEADER_BYTES + head.len());
        let length = usize::try_from(pieces.total()).unwrap_or(usize::MAX) - HEADER_BYTES;
        write_header(&mut first, kind, params, length);
        first.extend_from_slice(head);
        writer.put(&first)?;
        Ok(writer)
    }

    /// Writes the next piece.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Unusable`] for a piece of another size, or one too many.
    pub fn push(&mut self, piece: &[u8]) -> Result<(), FileError> {
        if piece.len() != self.pieces.bytes || self.written == self.pieces.count {
            return Err(self.unusable("piece"));
        }
        self.written += 1;
        self.put(piece)
    }

    /// Ends the artefact (a file gets its name only now) and returns the content hash.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Unusable`] if pieces are missing.
    pub fn finish(self) -> Result<Hash, FileError> {
        let (name, whole) = self.sealed()?;
        whole.complete()?;
        Ok(name)
    }

    /// The content hash, and the artefact, which is whole but has no name yet.
    ///
    /// # Errors
    /// As [`ChunkWriter::finish`].
    pub fn sealed(mut self) -> Result<(Hash, Whole<W>), FileError> {
        if self.written != self.pieces.count {
            return Err(self.unusable("number of pieces"));
        }
        let name = self.seal.name();
        self.out.write_all(&name).map_err(FileError::io("write", &self.path))?;
        let (out, path) = (self.out, self.path);
        Ok((name, Whole { out, path }))
    }

    fn put(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let digest = self.seal.next(bytes);
        self.out.write_all(bytes).and_then(|()| self.out.write_all(&digest)).map_err(FileError::io("write", &self.path))
    }

    /// The name used in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn unusable(&self, what: &'static str) -> FileError {
        FileError::Unusable { path: self.path.clone(), what }
    }
}

/// An artefact that is whole and still to be completed: a file, to get its name.
#[must_use]
pub struct Whole<W> {
    out: W,
    path: PathBuf,
}

impl<W: Target> Whole<W> {
    /// Completes it.
    ///
    /// # Errors
    /// [`FileError::Io`].
    pub fn complete(self) -> Result<(), FileError> {
        self.out.complete(&self.path)
    }
}

/// Reads pieces from a source.
pub struct ChunkReader<R> {
    path: PathBuf,
    source: R,
    /// Stated in the header and equal to that of the source.
    length: u64,
    head: usize,
    left: usize,
    read: usize,
    buffer: Vec<u8>,
    seal: Seal,
}

/// A file and its length.
pub type Opened = (BufReader<File>, u64);

/// Opens a regular file.
///
/// # Errors
/// [`FileError::Io`].
pub fn open_file(path: &Path) -> Result<Opened, FileError> {
    let failed = || FileError::io("read", path);
    let file = File::open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    if !metadata.is_file() {
        return Err(failed()(std::io::Error::other("not a regular file")));
    }
    Ok((BufReader::with_capacity(1 << 16, file), metadata.len()))
}

impl<R: Read> ChunkReader<R> {
    /// Begins with `source`, which has `given` bytes, must be of this kind, and is called `path` in errors. Reads its
    /// head of `head` bytes.
    ///
    /// # Errors
    /// [`FileError::Io`], [`FileError::Codec`].
    pub fn begin(
        (source, given): (R, u64),
        path: &Path,
        kind: Kind,
        params: &RlweParams,
        head: usize,
    ) -> Result<(Self, Vec<u8>), FileError> {
        let least = HEADER_BYTES + head + 2 * DIGEST;
        if given < least as u64 {
            return Err(truncated(path, given, least as u64));
        }
        let mut reader = ChunkReader {
            path: path.to_owned(),
            source,
            length: given,
            head,
            left: 0,
            read: 0,
            buffer: Vec::new(),
            seal: Seal::new(),
        };
        let mut first = vec![0; HEADER_BYTES + head];
        reader.fill(&mut first)?;
        let claimed = read_header(&first, kind, params)
            .map_err(|fault| FileError::codec(path, fault))?
            .saturating_add(HEADER_BYTES as u64);
        if claimed > given {
            return Err(truncated(path, given, claimed));
        }
        if claimed < given {
            return Err(FileError::codec(path, lengths(given, claimed)));
        }
        reader.check(&first)?;
        Ok((reader, first.split_off(HEADER_BYTES)))
    }

    /// Sets which pieces must follow; they can be read afterwards.
    ///
    /// # Errors
    /// [`FileError::Codec`] if the source has another length.
    pub fn expect(&mut self, count: usize, bytes: usize) -> Result<(), FileError> {
        let pieces = Pieces { head: self.head, count, bytes };
        if pieces.total() != self.length {
            let fault = lengths(self.length, pieces.total());
            return Err(FileError::codec(&self.path, fault));
        }
        self.left = count;
        self.buffer = vec![0; bytes];
        Ok(())
    }

    /// The next piece.
    ///
    /// # Errors
    /// [`FileError::Io`]; [`FileError::Codec`] with [`CodecError::Damaged`] if it is not what was written, or with
    /// [`CodecError::Length`] if there is none.
    pub fn next_piece(&mut self) -> Result<&[u8], FileError> {
        if self.left == 0 {
            return Err(FileError::codec(&self.path, lengths(0, 1)));
        }
        self.left -= 1;
        let mut buffer = std::mem::take(&mut self.buffer);
        self.fill(&mut buffer)?;
        self.check(&buffer)?;
        self.buffer = buffer;
        Ok(&self.buffer)
    }

    /// The content hash, once all pieces have been read.
    ///
    /// # Errors
    /// As [`ChunkReader::next_piece`]; also fails if pieces are left.
    pub fn finish(mut self) -> Result<Hash, FileError> {
        if self.left != 0 {
            return Err(FileError::codec(&self.path, lengths(self.left as u64, 0)));
        }
        let mut stated = [0; DIGEST];
        self.fill(&mut stated)?;
        let name = self.seal.name();
        match stated == name {
            true => Ok(name),
            false => Err(self.damaged()),
        }
    }

    /// The name used in errors.
    pub fn path(&self) -> &Path {
        &self.path
    }

    fn fill(&mut self, bytes: &mut [u8]) -> Result<(), FileError> {
        self.source.read_exact(bytes).map_err(FileError::io("read", &self.path))
    }

    fn check(&mut self, bytes: &[u8]) -> Result<(), FileError> {
        let mut stated = [0; DIGEST];
        self.fill(&mut stated)?;
        if stated != self.seal.next(bytes) {
            return Err(self.damaged());
        }
        self.read += 1;
        Ok(())
    }

    fn damaged(&self) -> FileError {
        FileError::codec(&self.path, CodecError::Damaged { chunk: self.read })
    }
}

/// The chain of digests.
pub(crate) struct Seal {
    chain: Hash,
    all: Sha256,
}

impl Seal {
    pub(crate) fn new() -> Seal {
        Seal { chain: [0; DIGEST], all: Sha256::new() }
    }

    pub(crate) fn next(&mut self, bytes: &[u8]) -> Hash {
        let hash = Sha256::new().chain_update(self.chain).chain_update(bytes);
        self.chain = hash.finalize().into();
        self.all.update(self.chain);
        self.chain
    }

    pub(crate) fn name(&self) -> Hash {
        self.all.clone().finalize().into()
    }
}

pub(super) fn truncated(path: &Path, given: u64, expected: u64) -> FileError {
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (given, expected) = (size(given), size(expected));
    FileError::codec(path, CodecError::Truncated { given, expected })
}

pub(super) fn lengths(given: u64, expected: u64) -> CodecError {
    let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
    let (given, expected) = (size(given), size(expected));
    CodecError::Length { given, expected }
}
