//! A model's table of token vectors, if its operator has made it public: identified by its hash, sent in chunks, cached
//! by clients.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_model::Embedding;
use hushed_mpc::PublicTable;
#[cfg(feature = "client")]
use hushed_mpc::rows_in_chunk;
#[cfg(feature = "client")]
use hushed_net::Expect;
use hushed_net::Session;
use sha2::{Digest as _, Sha256};

use crate::digest::Digest;
use crate::error::ServeError;
use crate::twopc::wire::TABLE;

/// Maximum size of a public table in bytes: 256 million numbers.
pub(crate) const MAX_TABLE_BYTES: usize = 1 << 30;

/// The size of a model's table in bytes, if it may be public.
fn bytes(e: &Embedding) -> Result<usize, ServeError> {
    let bytes = e.table_rows().saturating_mul(e.width).saturating_mul(4);
    match bytes <= MAX_TABLE_BYTES {
        true => Ok(bytes),
        false => Err(ServeError::TableTooLarge { bytes, limit: MAX_TABLE_BYTES }),
    }
}

/// SHA-256("hushed table 1" ‖ rows ‖ width ‖ integers), the sizes as 8 bytes, little-endian.
struct Hasher(Sha256);

impl Hasher {
    fn new(e: &Embedding) -> Self {
        let hash = Sha256::new()
            .chain_update(b"hushed table 1")
            .chain_update((e.table_rows() as u64).to_le_bytes())
            .chain_update((e.width as u64).to_le_bytes());
        Self(hash)
    }

    fn finish(self) -> Digest {
        Digest(self.0.finalize().into())
    }
}

/// The hash of a server's table.
pub(crate) fn hash(e: &Embedding) -> Result<Digest, ServeError> {
    bytes(e)?;
    let mut hasher = Hasher::new(e);
    for chunk in PublicTable::chunks(e)? {
        hasher.0.update(chunk);
    }
    Ok(hasher.finish())
}

/// Sends a table chunk by chunk, without a second copy of it.
pub(crate) fn send(session: &mut Session, e: &Embedding) -> Result<(), ServeError> {
    for chunk in PublicTable::chunks(e)? {
        session.send_vec(TABLE, chunk)?;
    }
    Ok(())
}

/// Receives the table of a model with these sizes and this hash, as bytes.
#[cfg(feature = "client")]
pub(crate) fn receive(session: &mut Session, e: &Embedding, offered: Digest) -> Result<Vec<u8>, ServeError> {
    let mut bytes = Vec::with_capacity(bytes(e)?);
    let mut left = e.table_rows();
    while left > 0 {
        let rows = left.min(rows_in_chunk(e.width));
        let chunk = session.recv(TABLE, Expect::Exactly(4 * rows * e.width))?;
        bytes.extend_from_slice(&chunk);
        left -= rows;
    }
    match self::of_bytes(e, &bytes) == offered {
        true => Ok(bytes),
        false => Err(ServeError::TableNotAsOffered { offered }),
    }
}

/// The hash of a received or cached table.
#[cfg(feature = "client")]
pub(crate) fn of_bytes(e: &Embedding, bytes: &[u8]) -> Digest {
    let mut hasher = Hasher::new(e);
    hasher.0.update(bytes);
    hasher.finish()
}

/// Decodes a table.
#[cfg(feature = "client")]
pub(crate) fn decode(e: &Embedding, bytes: &[u8]) -> Result<PublicTable, ServeError> {
    let values = bytes.as_chunks::<4>().0.iter();
    let values = values.map(|b| i32::from_le_bytes(*b)).collect();
    Ok(PublicTable::new(e.table_rows(), e.width, values)?)
}
