//! The client's half: makes the file of its keys.

use std::io::Write;
use std::path::Path;

use hushed_ckks::keys::{EvalKeyPlan, PublicKey, SecretKey};
use hushed_math::rng::SecretRng;
use hushed_rlwe::codec::{HEADER_BYTES, Kind, write_header};
use hushed_rlwe::hybrid::{EvalKeysWriter, KeyGenerator};
use sha2::{Digest, Sha256};

use super::{KeyProgress, KeyTimes, file_bytes, first_bytes, id};
use crate::ckks::files::FileError;
use crate::ckks::files::atomic::{Access, AtomicFile, refuse_existing};
use crate::ckks::files::chunked::Hash;

/// Makes the keys of a plan, one by one, and the public key, and returns the id of the set. The file must not be there yet.
///
/// # Errors
/// [`FileError`].
pub fn write(
    path: &Path,
    sk: &SecretKey,
    plan: &EvalKeyPlan,
    times: KeyTimes,
    rng: &mut SecretRng,
    progress: KeyProgress<'_>,
) -> Result<Hash, FileError> {
    refuse_existing(path)?;
    let params = sk.params();
    let refused = |error| FileError::content(path, error);
    let total = usize::try_from(file_bytes(path, params, plan)?).unwrap_or(usize::MAX);
    let mut file = AtomicFile::create(path, Access::Usual)?;
    let mut put = |bytes: &[u8]| file.write_all(bytes).map_err(FileError::io("write", path));

    let mut first = Vec::with_capacity(first_bytes(params));
    write_header(&mut first, Kind::FheKeys, params, total - HEADER_BYTES);
    first.extend_from_slice(&times.created.to_le_bytes());
    first.extend_from_slice(&times.expires.to_le_bytes());
    first.extend_from_slice(&PublicKey::generate(sk, rng).to_bytes());
    let digest: Hash = Sha256::digest(&first).into();
    put(&first)?;
    put(&digest)?;

    let (mut writer, list) = EvalKeysWriter::new(params, plan).map_err(refused)?;
    put(&list)?;
    let generator = KeyGenerator::new(sk, plan, rng).map_err(refused)?;
    for (done, key) in generator.enumerate() {
        progress(done, plan.len());
        put(&key.and_then(|key| writer.push(&key)).map_err(refused)?)?;
    }
    progress(plan.len(), plan.len());
    let name = writer.finish().map_err(refused)?;
    put(&name)?;
    let id = id(&digest, &name);
    put(&id)?;
    file.commit()?;
    Ok(id)
}
