//! The columns between two layers, so that an interrupted run resumes there, with identical bytes.
//!
//! | bytes | head |
//! |---|---|
//! | 32 | SHA-256 of the program's name: its version, and that of its circuit |
//! | 32 | hash of the plan |
//! | 32 | id of the key set |
//! | 32 | hash of the request's content |
//! | 4 | the next layer |
//! | 4, 4 | columns; primes of each |
//! | 8 | their scale, an f64 |
//!
//! A column is its error estimate (two f64) and the ciphertext. Gains and offsets are not stored: they follow from the
//! weights, which stay where they are.
//!
//! Another program may compute another circuit from the same plan: what is left by one is not continued, and the run
//! begins again.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::path::Path;

use hushed_ckks::{Ciphertext, CkksParams, Noise, Scale};
use hushed_rlwe::codec::{Kind, Reader};
use hushed_rlwe::error::CodecError;
use sha2::{Digest as _, Sha256};

use super::FileError;
use super::chunked::{ChunkReader, ChunkWriter, DIGEST, Hash, Pieces, open_file};
use super::fault::same;

const HEAD: usize = 4 * DIGEST + 20;
const NOISE: usize = 16;

/// The name of the program. The number goes up with every change of a circuit that changes replies (`golden.rs`).
const PROGRAM: &str = concat!("hushed ", env!("CARGO_PKG_VERSION"), ", circuit 3");

/// The kind of checkpoints before they named their program.
const UNNAMED: u16 = 11;

fn program() -> Hash {
    Sha256::digest(PROGRAM).into()
}

/// Identifies a run: a checkpoint of another run is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Run {
    /// Hash of the plan.
    pub plan: Hash,
    /// Id of the key set.
    pub keys: Hash,
    /// Hash of the request's content.
    pub request: Hash,
}

impl Run {
    /// The name of everything that decides the run's values, the program included.
    #[must_use]
    pub fn name(&self) -> Hash {
        let hash = Sha256::new().chain_update(b"hushed run on machines 1").chain_update(program());
        hash.chain_update(self.plan).chain_update(self.keys).chain_update(self.request).finalize().into()
    }
}

/// Where a run resumes.
pub struct Checkpoint {
    /// The next layer, counted from 0.
    pub layer: usize,
    /// The columns that it reads.
    pub columns: Vec<Ciphertext>,
}

/// Bytes of a checkpoint of `width` columns of `limbs` primes.
#[must_use]
pub fn bytes(params: &CkksParams, width: usize, limbs: usize) -> u64 {
    pieces(params, width, limbs).total()
}

/// Writes a checkpoint; the previous one stays until this one is whole.
///
/// # Errors
/// [`FileError::Unusable`] without columns or with columns that differ in scale, [`FileError::Content`],
/// [`FileError::Io`].
pub fn write(
    path: &Path,
    params: &CkksParams,
    run: &Run,
    layer: usize,
    columns: &[Ciphertext],
) -> Result<(), FileError> {
    write_as(&program(), path, params, run, layer, columns)
}

pub(super) fn write_as(
    program: &Hash,
    path: &Path,
    params: &CkksParams,
    run: &Run,
    layer: usize,
    columns: &[Ciphertext],
) -> Result<(), FileError> {
    let unusable = |what| FileError::Unusable { path: path.to_owned(), what };
    let first = columns.first().ok_or_else(|| unusable("columns"))?;
    let (limbs, scale) = (first.limbs(), first.scale());
    let numbers = [layer, columns.len(), limbs].map(|n| n as u32);
    let head: Vec<u8> = [&program[..], &run.plan, &run.keys, &run.request]
        .concat()
        .into_iter()
        .chain(numbers.iter().flat_map(|n| n.to_le_bytes()))
        .chain(scale.value().to_le_bytes())
        .collect();
    let pieces = pieces(params, columns.len(), limbs);
    let mut file = ChunkWriter::create(path, Kind::FheCheckpoint, params.rlwe(), &head, pieces)?;
    for ct in columns {
        if ct.scale() != scale {
            return Err(unusable("scale"));
        }
        let noise = ct.noise();
        let mut piece = Vec::with_capacity(pieces.bytes);
        piece.extend_from_slice(&noise.magnitude().to_le_bytes());
        piece.extend_from_slice(&noise.deviation().to_le_bytes());
        let list = Ciphertext::list_to_bytes(params, limbs, std::slice::from_ref(ct));
        piece.append(&mut list.map_err(|error| FileError::content(path, error))?);
        file.push(&piece)?;
    }
    file.finish()?;
    Ok(())
}

/// Reads a checkpoint; `None` if there is no file, or one of another program. It must be of this run, for a model of
/// this many columns and layers.
///
/// # Errors
/// [`FileError::Other`], [`FileError::Codec`], [`FileError::Content`], [`FileError::Unusable`], [`FileError::Io`].
pub fn read(
    path: &Path,
    params: &CkksParams,
    run: &Run,
    width: usize,
    layers: usize,
) -> Result<Option<Checkpoint>, FileError> {
    if !path.exists() {
        return Ok(None);
    }
    let (opened, kind) = (open_file(path)?, Kind::FheCheckpoint);
    let begun = ChunkReader::begin(opened, path, kind, params.rlwe(), HEAD);
    if let Err(FileError::Codec { fault, .. }) = &begun
        && matches!(fault, CodecError::Kind { given: UNNAMED, .. })
    {
        return Ok(None);
    }
    let (mut file, head) = begun?;
    let head = Head::decode(&head).map_err(|fault| FileError::codec(path, fault))?;
    if head.program != program() {
        return Ok(None);
    }
    same(path, "plan", &head.run.plan, &run.plan)?;
    same(path, "key set", &head.run.keys, &run.keys)?;
    same(path, "request", &head.run.request, &run.request)?;
    let unusable = |what| FileError::Unusable { path: path.to_owned(), what };
    if head.width != width {
        return Err(unusable("columns"));
    }
    if head.layer > layers {
        return Err(unusable("layer"));
    }
    if head.limbs == 0 || head.limbs > params.max_limbs() {
        return Err(unusable("primes"));
    }
    let scale = Scale::new(head.scale).map_err(|_| unusable("scale"))?;
    file.expect(width, pieces(params, width, head.limbs).bytes)?;
    let mut columns = Vec::with_capacity(width);
    for _ in 0..width {
        let mut reader = Reader::new(file.next_piece()?);
        let codec = |fault: CodecError| FileError::codec(path, fault);
        let mut number = || -> Result<f64, FileError> { Ok(f64::from_le_bytes(reader.array().map_err(codec)?)) };
        let noise = Noise::new(number()?, number()?);
        let bytes = Ciphertext::list_bytes(params, head.limbs, 1);
        let list = reader.take(bytes).map_err(codec)?;
        let list = Ciphertext::list_from_bytes(params, head.limbs, 1, scale, noise, list);
        columns.extend(list.map_err(|error| FileError::content(path, error))?);
    }
    file.finish()?;
    Ok(Some(Checkpoint { layer: head.layer, columns }))
}

struct Head {
    program: Hash,
    run: Run,
    layer: usize,
    width: usize,
    limbs: usize,
    scale: f64,
}

impl Head {
    fn decode(bytes: &[u8]) -> Result<Head, CodecError> {
        let mut reader = Reader::new(bytes);
        let program = reader.array()?;
        let run = Run { plan: reader.array()?, keys: reader.array()?, request: reader.array()? };
        let mut number = || -> Result<usize, CodecError> { Ok(u32::from_le_bytes(reader.array()?) as usize) };
        let (layer, width, limbs) = (number()?, number()?, number()?);
        let scale = f64::from_le_bytes(reader.array()?);
        reader.finish()?;
        Ok(Head { program, run, layer, width, limbs, scale })
    }
}

fn pieces(params: &CkksParams, width: usize, limbs: usize) -> Pieces {
    Pieces { head: HEAD, count: width, bytes: NOISE + Ciphertext::list_bytes(params, limbs, 1) }
}
