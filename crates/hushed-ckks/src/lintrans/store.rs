//! Blocks of encoded diagonals in a file: their layout, and how a block is read and checked. The rest of the file
//! format is in [`super::stored`].
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{Read, Seek, SeekFrom};
use std::sync::{Mutex, PoisonError};

use hushed_math::bits::{packed_len, unpack_bits};
use hushed_rlwe::error::CodecError;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::lintrans::LinTransError;

/// Bytes of a SHA-256 digest.
pub(super) const DIGEST: usize = 32;

/// A source of stored diagonals.
pub(super) trait Bytes: Read + Seek + Send {}
impl<F: Read + Seek + Send> Bytes for F {}

/// The blocks of a file.
pub(super) struct Store {
    file: Mutex<Box<dyn Bytes>>,
    layout: Layout,
    digest: [u8; DIGEST],
}

/// One block in memory, and the bytes it was read from.
#[derive(Default)]
pub(super) struct Block {
    bytes: Zeroizing<Vec<u8>>,
    words: Zeroizing<Vec<u64>>,
    /// Index of the block in `words`.
    number: Option<usize>,
}

/// The layout of blocks.
pub(super) struct Layout {
    /// Modulus and its bit length, for each prime of the diagonals.
    primes: Vec<(u64, u32)>,
    /// Words of a diagonal in a block, and (`packed`) the bytes they take under each prime.
    words: usize,
    packed: Vec<usize>,
    /// Strips of a limb.
    strips: usize,
    /// For each giant, the number of diagonals and the position of its first block.
    giants: Vec<(usize, u64)>,
    end: u64,
}

impl Layout {
    /// The layout for maps with `terms` diagonals per giant, after `lists` bytes; `None` if the file would be too long.
    pub(super) fn new(
        primes: Vec<(u64, u32)>,
        words: usize,
        strips: usize,
        terms: impl Iterator<Item = usize>,
        lists: u64,
    ) -> Option<Self> {
        let packed = primes.iter().map(|&(_, bits)| packed_len(words, bits));
        let packed: Vec<_> = packed.collect::<Option<_>>()?;
        let (mut giants, mut end) = (Vec::new(), lists);
        for terms in terms {
            giants.push((terms, end));
            for &packed in &packed {
                let block = terms.checked_mul(packed)?.checked_add(DIGEST)?;
                end = end.checked_add(block.checked_mul(strips)? as u64)?;
            }
        }
        Some(Self { primes, words, packed, strips, giants, end })
    }

    /// Modulus and its bit length, for each prime of the diagonals.
    pub(super) fn primes(&self) -> &[(u64, u32)] {
        &self.primes
    }

    /// Bytes of the file.
    pub(super) fn end(&self) -> u64 {
        self.end
    }

    /// Index, position and length (without the digest) of a block.
    fn find(&self, giant: usize, limb: usize, strip: usize) -> Option<(usize, u64, usize)> {
        let &(terms, first) = self.giants.get(giant)?;
        let size = |packed: &usize| terms * packed + DIGEST;
        let before: usize = self.packed.get(..limb)?.iter().map(size).sum();
        let here = size(self.packed.get(limb)?);
        let number = (giant * self.primes.len() + limb) * self.strips + strip;
        let at = first + (before * self.strips + strip * here) as u64;
        Some((number, at, here - DIGEST))
    }
}

/// SHA-256 of the file's digest, the block's number and its bytes.
pub(super) fn block_digest(file: &[u8; DIGEST], number: usize, bytes: &[u8]) -> [u8; DIGEST] {
    let mut digest = Sha256::new();
    digest.update(file);
    digest.update((number as u64).to_le_bytes());
    digest.update(bytes);
    digest.finalize().into()
}

impl Store {
    /// The blocks of `file`, whose head has the given digest.
    pub(super) fn new(file: Box<dyn Bytes>, layout: Layout, digest: [u8; DIGEST]) -> Self {
        Self { file: Mutex::new(file), layout, digest }
    }

    /// Words of the longest block.
    pub(super) fn block_words(&self) -> usize {
        let terms = self.layout.giants.iter().map(|&(terms, _)| terms);
        terms.max().unwrap_or(0) * self.layout.words
    }

    /// The words of one giant's diagonals for one strip of values under one prime.
    pub(super) fn read<'b>(
        &self,
        (giant, limb, strip): (usize, usize, usize),
        block: &'b mut Block,
    ) -> Result<Vec<&'b [u64]>, LinTransError> {
        let absent = CodecError::Keys;
        let (number, at, length) = self.layout.find(giant, limb, strip).ok_or(absent)?;
        if block.number != Some(number) {
            self.load((number, at, length), limb, block)?;
        }
        Ok(block.words.chunks_exact(self.layout.words.max(1)).collect())
    }

    fn load(
        &self,
        (number, at, length): (usize, u64, usize),
        limb: usize,
        block: &mut Block,
    ) -> Result<(), LinTransError> {
        block.number = None;
        block.words.clear();
        block.bytes.resize(length + DIGEST, 0);
        {
            // Each read seeks first, so the position after a panic does not matter.
            let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
            file.seek(SeekFrom::Start(at))?;
            file.read_exact(&mut block.bytes)?;
        }
        let damaged = CodecError::Damaged { chunk: number };
        let (bytes, digest) = block.bytes.split_at_checked(length).ok_or(damaged.clone())?;
        if block_digest(&self.digest, number, bytes) != digest {
            return Err(damaged.into());
        }
        let (Some(&(q, bits)), Some(&packed)) = (self.layout.primes.get(limb), self.layout.packed.get(limb)) else {
            return Err(damaged.into());
        };
        for bytes in bytes.chunks_exact(packed) {
            let words = unpack_bits(bytes, bits, self.layout.words).ok_or(CodecError::Padding)?;
            let words = Zeroizing::new(words);
            if words.iter().any(|&word| word >= q) {
                return Err(CodecError::Residue { limb }.into());
            }
            block.words.extend_from_slice(&words);
        }
        block.number = Some(number);
        Ok(())
    }
}
