//! Encoded diagonals in a file opened by the caller, read block by block as a product uses them.
//!
//! A block holds the diagonals of one giant step under one prime for one strip of values, so each thread of a product
//! holds only one block, however many diagonals the matrix has. The file has the header of every artefact
//! ([`hushed_rlwe::codec`]), then:
//!
//! | bytes | content |
//! |---|---|
//! | 8 × 9 | ciphertext primes, special primes, 1 if raised, rows, repeat, strip values, babies, giants, diagonals |
//! | 8 × 4 | f64: diagonal scale, largest row sums of moduli and their squares, sum of the diagonals' largest moduli |
//! | 8 × … | rotations of the babies; per giant its rotation, number of diagonals, and the baby index of each |
//! | 32 | SHA-256 of all before it |
//! | … | blocks by giant, prime, strip: each diagonal's stored words, packed byte-aligned; then a 32-byte digest |
//!
//! The digest of a block is the SHA-256 of the digest above, the block's number and its words, so a misplaced block or
//! one from another file counts as damage. Digests detect damage, not forgery: the file belongs to the owner of the
//! matrix, and is as secret as the matrix.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::io::{Read, Seek, SeekFrom, Write};
use std::sync::Arc;

use hushed_math::bits::pack_bits;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, Reader, read_header, write_header};
use hushed_rlwe::error::CodecError;
use hushed_rlwe::hybrid::Gadget;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::lintrans::store::{Bytes, DIGEST, Layout, Store, block_digest};
use crate::lintrans::transform::{EncodedGiant, Shape};
use crate::lintrans::{LinTransError, LinearTransform};
use crate::params::CkksParams;
use crate::scale::Scale;

const WORD: usize = 8;
/// Count of numbers in the shape before the lists of rotations.
const FIXED: usize = 13;

impl LinearTransform {
    /// Writes the map with its encoded diagonals, for [`LinearTransform::open`]. The diagonals need to be in memory
    /// only for writing.
    ///
    /// # Errors
    /// [`LinTransError::File`] if `out` cannot be written, [`LinTransError::Stored`] for a map that was itself opened
    /// from a file.
    pub fn write(&self, out: &mut impl Write) -> Result<(), LinTransError> {
        if self.store.is_some() {
            return Err(LinTransError::Stored);
        }
        let numbers = self.shape_numbers();
        let lists = HEADER_BYTES + WORD * numbers.len() + DIGEST;
        let layout = self.layout(lists as u64).ok_or(LinTransError::Stored)?;
        let mut head = Vec::with_capacity(lists);
        let payload = layout.end() as usize - HEADER_BYTES;
        write_header(&mut head, Kind::LinearTransform, self.common.params.rlwe(), payload);
        head.extend(numbers.iter().flat_map(|number| number.to_le_bytes()));
        let digest: [u8; DIGEST] = Sha256::digest(&head).into();
        head.extend_from_slice(&digest);
        out.write_all(&head)?;
        let strip = self.strip_values();
        let (mut number, mut bytes) = (0, Zeroizing::new(Vec::new()));
        for giant in &self.giants {
            for (limb, &(_, bits)) in layout.primes().iter().enumerate() {
                for start in (0..self.common.params.n()).step_by(strip) {
                    bytes.clear();
                    for plain in &giant.plains {
                        pack_bits(plain.strip(limb, start, strip), bits, &mut bytes);
                    }
                    out.write_all(&bytes)?;
                    out.write_all(&block_digest(&digest, number, &bytes))?;
                    number += 1;
                }
            }
        }
        Ok(out.flush()?)
    }

    /// Opens a map from a file that [`LinearTransform::write`] made under the same parameters. Products give the same
    /// words as those of the map in memory. They read the diagonals from the file each time, once for all ciphertexts
    /// of a call; only [`LinearTransform::block_bytes`] per thread are in memory.
    ///
    /// # Errors
    /// [`LinTransError::Codec`] for a file of another kind, version, parameter set or length, or with a damaged head;
    /// [`LinTransError::Stored`] for an impossible shape; [`LinTransError::File`] if it cannot be read. A damaged block
    /// is reported by the product that reads it.
    pub fn open(params: &Arc<CkksParams>, file: impl Read + Seek + Send + 'static) -> Result<Self, LinTransError> {
        let mut file: Box<dyn Bytes> = Box::new(file);
        let length = file.seek(SeekFrom::End(0))?;
        file.seek(SeekFrom::Start(0))?;
        let mut head = Head { file: &mut *file, left: length, bytes: Vec::new() };
        head.more(HEADER_BYTES)?;
        let claimed = read_header(&head.bytes, Kind::LinearTransform, params.rlwe())?;
        let expected = claimed.saturating_add(HEADER_BYTES as u64);
        if length != expected {
            let size = |bytes| usize::try_from(bytes).unwrap_or(usize::MAX);
            let (given, short) = (size(length), length < expected);
            let expected = size(expected);
            return Err(if short {
                CodecError::Truncated { given, expected }
            } else {
                CodecError::Length { given, expected }
            }
            .into());
        }
        let shape = head.shape(params)?;
        let read = head.bytes.len() as u64;
        let digest: [u8; DIGEST] = Sha256::digest(&head.bytes).into();
        if head.more(DIGEST)? != digest {
            return Err(CodecError::Damaged { chunk: 0 }.into());
        }
        let mut map = Self::from_shape(params, shape)?;
        let layout = map.layout(read + DIGEST as u64);
        let layout = layout.filter(|layout| layout.end() == length);
        let layout = layout.ok_or(LinTransError::Stored)?;
        map.store = Some(Arc::new(Store::new(file, layout, digest)));
        Ok(map)
    }

    /// Largest number of bytes of diagonals that a thread of a product holds at a time: all of them for a map in
    /// memory, one block for an opened one.
    pub fn block_bytes(&self) -> usize {
        match &self.store {
            None => self.plaintext_bytes(),
            Some(store) => WORD * store.block_words(),
        }
    }

    /// The layout of its blocks, which start after `lists` bytes.
    fn layout(&self, lists: u64) -> Option<Layout> {
        let (rlwe, strip) = (self.common.params.rlwe(), self.strip_values());
        let ids = self.common.ids();
        let moduli = ids.iter().map(|&id| rlwe.basis().modulus(id));
        let primes = moduli.map(|m| (m.value(), m.bits())).collect();
        let terms = self.giants.iter().map(|giant| giant.babies.len());
        let (words, strips) = (strip.div_ceil(self.repeat), self.common.params.n() / strip);
        Layout::new(primes, words, strips, terms, lists)
    }

    fn shape_numbers(&self) -> Vec<u64> {
        let [l1, l2, diagonals] = self.sums;
        let babies = self.babies.len();
        let counts = [
            self.limbs(),
            self.common.gadget.special(),
            usize::from(self.common.gadget.is_raised()),
            self.dim(),
            self.repeat,
            self.strip_values(),
            babies,
            self.giants.len(),
            self.products(),
        ];
        let mut numbers: Vec<u64> = counts.iter().map(|&count| count as u64).collect();
        numbers.extend([self.common.plain_scale.value(), l1, l2, diagonals].map(f64::to_bits));
        numbers.extend(self.babies.iter().map(|&rotation| rotation as u64));
        for giant in &self.giants {
            numbers.extend([giant.rotation as u64, giant.babies.len() as u64]);
            numbers.extend(giant.babies.iter().map(|&baby| baby as u64));
        }
        numbers
    }
}

/// The head of a file, read piece by piece, so that no more is allocated than the file contains.
struct Head<'f> {
    file: &'f mut dyn Bytes,
    left: u64,
    bytes: Vec<u8>,
}

impl Head<'_> {
    fn more(&mut self, count: usize) -> Result<&[u8], LinTransError> {
        let truncated =
            CodecError::Truncated { given: usize::try_from(self.left).unwrap_or(usize::MAX), expected: count };
        self.left = self.left.checked_sub(count as u64).ok_or(truncated)?;
        let at = self.bytes.len();
        self.bytes.resize(at + count, 0);
        let new = self.bytes.get_mut(at..).unwrap_or_default();
        self.file.read_exact(new)?;
        Ok(new)
    }

    fn numbers(&mut self, count: usize) -> Result<Vec<u64>, LinTransError> {
        let bytes = self.more(count.saturating_mul(WORD))?;
        let mut reader = Reader::new(bytes);
        let number = |_| Ok(u64::from_le_bytes(reader.array()?));
        (0..count).map(number).collect()
    }

    /// `count` numbers below `limit`.
    fn below(&mut self, count: usize, limit: usize) -> Result<Vec<usize>, LinTransError> {
        let small = |number: u64| {
            let number = usize::try_from(number).ok();
            number.filter(|&n| n < limit).ok_or(LinTransError::Stored)
        };
        self.numbers(count)?.into_iter().map(small).collect()
    }

    /// Reads a shape and checks that it is possible under these parameters.
    fn shape(&mut self, params: &CkksParams) -> Result<Shape, LinTransError> {
        let (n, slots) = (params.n(), params.slots());
        let counts = self.below(FIXED - 4, n + 1)?;
        let [limbs, special, raised, dim, repeat, strip, babies, giants, terms] = *counts.as_slice() else {
            return Err(LinTransError::Stored);
        };
        let reals = self.numbers(4)?;
        let [scale, l1, l2, diagonals] = *reals.as_slice() else {
            return Err(LinTransError::Stored);
        };
        let [scale, l1, l2, diagonals] = [scale, l1, l2, diagonals].map(f64::from_bits);
        let sums = [l1, l2, diagonals];
        let fits = (2..=params.max_limbs()).contains(&limbs)
            && (1..=params.rlwe().p_len()).contains(&special)
            && [dim, repeat, strip].iter().all(|n| n.is_power_of_two())
            && [dim, babies, giants, terms].iter().all(|&n| n <= slots)
            && raised < 2
            && sums.iter().all(|sum| sum.is_finite() && *sum >= 0.0);
        let plain_scale = Scale::new(scale).ok().filter(|_| fits);
        let plain_scale = plain_scale.ok_or(LinTransError::Stored)?;
        let gadget = match raised {
            0 => Gadget::new(params.rlwe(), limbs, special)?,
            _ => Gadget::raised(params.rlwe(), limbs, special)?,
        };
        let rotations = self.below(babies, slots)?;
        let (mut list, mut left) = (Vec::new(), terms);
        for number in 0..giants {
            let pair = self.below(2, slots + 1)?;
            let [rotation, count] = *pair.as_slice() else {
                return Err(LinTransError::Stored);
            };
            // The sum without a rotation must come first, as products expect.
            if rotation == slots || count == 0 || (rotation == 0 && number > 0) {
                return Err(LinTransError::Stored);
            }
            left = left.checked_sub(count).ok_or(LinTransError::Stored)?;
            list.push(EncodedGiant { rotation, babies: self.below(count, babies)?, plains: Vec::new() });
        }
        if left != 0 {
            return Err(LinTransError::Stored);
        }
        Ok(Shape { gadget, plain_scale, dim, repeat, strip, babies: rotations, giants: list, sums })
    }
}
