//! What the owner of a secret key does with files: make keys, encrypt a batch, open a reply.

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::keys::SecretKey;
use hushed_ckks::{Ciphertext, CkksParams, Decryptor, Encryptor};
use hushed_math::rng::SecretRng;

use super::chunked::Hash;
use super::exchange::{REQUEST_ID, RequestHead, RequestWriter};
use super::keys::{KeyProgress, KeyTimes};
use crate::FheError;
use crate::plan::public_plan::FhePlan;
use crate::run::client::{FheClient, Upload};

/// Makes a secret key and the keys of a plan, each in a new file, and returns the id of the set. What was written is
/// removed if the rest fails.
///
/// # Errors
/// [`FheError::File`], [`FheError::Plan`].
pub fn make_keys(
    secret: &Path,
    keys: &Path,
    plan: &FhePlan,
    params: &Arc<CkksParams>,
    times: KeyTimes,
    progress: KeyProgress<'_>,
) -> Result<Hash, FheError> {
    let mut rng = SecretRng::from_os("keys of a client");
    let sk = SecretKey::generate(params.rlwe(), &mut rng);
    super::secret::write(secret, &sk)?;
    let key_plan = plan.key_plan(params)?;
    let made = super::keys::write(keys, &sk, &key_plan, times, &mut rng, progress);
    if made.is_err() {
        // A secret key without its public part is of no use.
        let _ = std::fs::remove_file(secret);
    }
    Ok(made?)
}

/// Encrypts a packed batch into a file, and returns the request's id and what names its content. `progress` is called
/// with ciphertexts done and in all.
///
/// # Errors
/// [`FheError::File`], [`FheError::Ckks`].
pub fn encrypt(
    path: &Path,
    client: &FheClient,
    params: &Arc<CkksParams>,
    secret: &Path,
    keys: Hash,
    upload: &Upload<'_>,
    progress: KeyProgress<'_>,
) -> Result<([u8; REQUEST_ID], Hash), FheError> {
    let sk = Arc::new(super::secret::read(secret, params.rlwe(), 0)?);
    let encryptor = Encryptor::new(params, &sk)?;
    let mut rng = SecretRng::from_os("request of a client");
    let mut id = [0; REQUEST_ID];
    rng.fill_bytes(&mut id);
    let lengths = upload.declared().into_iter();
    let head = RequestHead {
        plan: client.plan().hash(),
        keys,
        id,
        // At most as many rows as a text has: within 16 bits, or refused by the writer.
        lengths: lengths
            .map(|l| u16::try_from(l).unwrap_or(u16::MAX))
            .collect(),
    };
    let mut file = RequestWriter::create(path, client.plan(), params, &head)?;
    for index in 0..upload.count() {
        progress(index, upload.count());
        file.push(path, &upload.encrypt(index, &encryptor, &mut rng)?)?;
    }
    Ok((id, file.finish()?))
}

/// Opens a reply that was read ([`super::exchange::read_reply`]): the pooled row of each place that has a text, rounded
/// to what is certified. The key was opened `decryptions` times.
///
/// # Errors
/// [`FheError::File`], [`FheError::Ckks`] if the key was opened too often.
pub fn open(
    reply: &[Ciphertext],
    client: &FheClient,
    params: &Arc<CkksParams>,
    secret: &Path,
    decryptions: u64,
    lengths: &[usize],
) -> Result<Vec<Option<Vec<f64>>>, FheError> {
    let sk = Arc::new(super::secret::read(secret, params.rlwe(), decryptions)?);
    let decryptor = Decryptor::new(client.encoder(), &sk)?;
    client.open(&decryptor, reply, lengths)
}
