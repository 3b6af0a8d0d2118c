//! A secret key, in a file that only its owner can read, or in memory.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::keys::SecretKey;
use hushed_rlwe::RlweParams;
use zeroize::Zeroizing;

use super::FileError;
use super::atomic::{Access, check_private, refuse_existing, write as write_whole};
use super::chunked::{lengths, truncated};

/// Writes a secret key into a new file that nobody else can read.
///
/// # Errors
/// [`FileError::Exists`], [`FileError::Io`].
pub fn write(path: &Path, sk: &SecretKey) -> Result<(), FileError> {
    refuse_existing(path)?;
    write_whole(path, Access::Private, &sk.to_bytes())
}

/// Reads a secret key that was opened `decryptions` times.
///
/// # Errors
/// [`FileError::NotPrivate`] if others can read the file; [`FileError::Codec`], [`FileError::Io`].
pub fn read(path: &Path, params: &Arc<RlweParams>, decryptions: u64) -> Result<SecretKey, FileError> {
    let failed = || FileError::io("read", path);
    let mut file = File::open(path).map_err(failed())?;
    let metadata = file.metadata().map_err(failed())?;
    check_private(path, &metadata)?;
    check_length(path, metadata.len(), params)?;
    let mut bytes = Zeroizing::new(vec![0; SecretKey::stored_bytes(params)]);
    file.read_exact(&mut bytes).map_err(failed())?;
    from_bytes(&bytes, path, params, decryptions)
}

/// The secret key of these bytes ([`SecretKey::to_bytes`]), which was opened `decryptions` times: this number must be
/// kept with the bytes. Errors call them `path`.
///
/// # Errors
/// [`FileError::Codec`].
pub fn from_bytes(
    bytes: &[u8],
    path: &Path,
    params: &Arc<RlweParams>,
    decryptions: u64,
) -> Result<SecretKey, FileError> {
    check_length(path, bytes.len() as u64, params)?;
    SecretKey::from_bytes(params, bytes, decryptions).map_err(|e| FileError::content(path, e))
}

fn check_length(path: &Path, given: u64, params: &RlweParams) -> Result<(), FileError> {
    let expected = SecretKey::stored_bytes(params) as u64;
    match given.cmp(&expected) {
        std::cmp::Ordering::Less => Err(truncated(path, given, expected)),
        std::cmp::Ordering::Greater => Err(FileError::codec(path, lengths(given, expected))),
        std::cmp::Ordering::Equal => Ok(()),
    }
}
