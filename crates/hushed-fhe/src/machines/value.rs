//! Values of nodes as bytes, between the processes of one run.
//!
//! | bytes | head |
//! |---|---|
//! | 32 | name of the run: whatever decides its values |
//! | 4 | the node |
//! | 4 | 0 for vectors, 1 for unfinished sums |
//! | 4, 4, 4 | rows; vectors in each; primes of each |
//!
//! A vector is its scale (an f64), its error estimate (two f64) and the ciphertext. The reader's schedule
//! determines every size.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams, Noise, Scale};
use hushed_rlwe::codec::{Kind, Reader};
use hushed_rlwe::error::CodecError;

use crate::files::FileError;
use crate::files::chunked::{ChunkReader, ChunkWriter, DIGEST, Hash, Pieces};
use crate::files::fault::same;
use crate::run::encrypted::{Encrypted, EncryptedPartial};
use crate::tape::values::Held;

const HEAD: usize = DIGEST + 20;
const NUMBERS: usize = 24;

/// A value, as both ends know it from the schedule.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Shape {
    pub node: usize,
    /// Rows, and vectors in each.
    pub rows: (usize, usize),
    pub limbs: usize,
    /// Unfinished sums have one that the schedule does not state.
    pub scale: Option<Scale>,
    pub sums: bool,
}

impl Shape {
    fn count(&self) -> usize {
        self.rows.0 * self.rows.1
    }

    /// Bytes of the value.
    pub fn bytes(&self, params: &CkksParams) -> u64 {
        self.pieces(params).total()
    }

    fn pieces(&self, params: &CkksParams) -> Pieces {
        Pieces { head: HEAD, count: self.count(), bytes: NUMBERS + Ciphertext::list_bytes(params, self.limbs, 1) }
    }

    /// Vectors of this shape as bytes.
    ///
    /// # Errors
    /// [`FileError::Unusable`], [`FileError::Content`] for vectors of another shape.
    pub fn write(&self, params: &CkksParams, run: &Hash, vectors: &[Ciphertext]) -> Result<Vec<u8>, FileError> {
        let path = Path::new(PATH);
        let numbers = [self.node, usize::from(self.sums), self.rows.0, self.rows.1, self.limbs].map(|n| n as u32);
        let head: Vec<u8> = run.iter().copied().chain(numbers.iter().flat_map(|n| n.to_le_bytes())).collect();
        let pieces = self.pieces(params);
        let mut out = Vec::with_capacity(usize::try_from(pieces.total()).unwrap_or(0));
        let mut file = ChunkWriter::begin(&mut out, path, Kind::FheValue, params.rlwe(), &head, pieces)?;
        for ct in vectors {
            let mut piece = Vec::with_capacity(pieces.bytes);
            for number in [ct.scale().value(), ct.noise().magnitude(), ct.noise().deviation()] {
                piece.extend_from_slice(&number.to_le_bytes());
            }
            let list = Ciphertext::list_to_bytes(params, self.limbs, std::slice::from_ref(ct));
            piece.append(&mut list.map_err(|error| FileError::content(path, error))?);
            file.push(&piece)?;
        }
        file.finish()?;
        Ok(out)
    }

    /// The vectors of a value of this run and this shape.
    ///
    /// # Errors
    /// [`FileError::Codec`], [`FileError::Content`], [`FileError::Other`] for a value of another run,
    /// [`FileError::Unusable`] for another shape or scale.
    pub fn read(&self, params: &CkksParams, run: &Hash, bytes: &[u8]) -> Result<Vec<Ciphertext>, FileError> {
        let path = Path::new(PATH);
        let unusable = |what| FileError::Unusable { path: path.to_owned(), what };
        let codec = |fault: CodecError| FileError::codec(path, fault);
        let source = (bytes, bytes.len() as u64);
        let (mut file, head) = ChunkReader::begin(source, path, Kind::FheValue, params.rlwe(), HEAD)?;
        let mut head = Reader::new(&head);
        same(path, "run", &head.array::<DIGEST>().map_err(codec)?, run)?;
        let mut number =
            || -> Result<usize, FileError> { Ok(u32::from_le_bytes(head.array().map_err(codec)?) as usize) };
        let found = [number()?, number()?, number()?, number()?, number()?];
        let ours = [self.node, usize::from(self.sums), self.rows.0, self.rows.1, self.limbs];
        let names = ["node", "kind", "rows", "vectors", "primes"];
        if let Some((_, what)) = found.iter().zip(ours).zip(names).find(|((found, ours), _)| *found != ours) {
            return Err(unusable(what));
        }
        let pieces = self.pieces(params);
        file.expect(pieces.count, pieces.bytes)?;
        let (mut vectors, mut expected) = (Vec::with_capacity(pieces.count), self.scale);
        for _ in 0..pieces.count {
            let mut reader = Reader::new(file.next_piece()?);
            let mut number = || -> Result<f64, FileError> { Ok(f64::from_le_bytes(reader.array().map_err(codec)?)) };
            let scale = Scale::new(number()?).map_err(|_| unusable("scale"))?;
            // As close as operands of a sum have to be: a placement rounds in another order than the arithmetic.
            if !scale.matches(*expected.get_or_insert(scale)) {
                return Err(unusable("scale"));
            }
            let noise = Noise::new(number()?, number()?);
            let list = reader.take(Ciphertext::list_bytes(params, self.limbs, 1)).map_err(codec)?;
            let list = Ciphertext::list_from_bytes(params, self.limbs, 1, scale, noise, list);
            vectors.extend(list.map_err(|error| FileError::content(path, error))?);
        }
        file.finish()?;
        Ok(vectors)
    }

    /// Vectors as the value of a node.
    pub fn held(&self, vectors: Vec<Ciphertext>) -> Held<Encrypted> {
        if self.sums {
            return Held::Sums(EncryptedPartial(vectors));
        }
        let (rows, columns) = self.rows;
        let mut rest = vectors.into_iter();
        Held::Block(Arc::new((0..rows).map(|_| rest.by_ref().take(columns).collect()).collect()))
    }
}

/// The name of a value in errors.
const PATH: &str = "<value>";
