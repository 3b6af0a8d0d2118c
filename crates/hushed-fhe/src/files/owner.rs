//! What the owner of a secret key does: make keys, encrypt a batch, open a reply.
//!
//! A key is opened a limited number of times, and nobody but its owner counts across processes: what stores a secret
//! key stores its count of decryptions with it, raised before each, and reads the key with that count. `hushed-serve`
//! does so for key folders and for keys in memory.

use std::path::Path;
use std::sync::Arc;

pub use hushed_ckks::keys::SecretKey;
use hushed_ckks::{Ciphertext, CkksParams, Decryptor, Encryptor};
use hushed_math::rng::SecretRng;

use super::atomic::Target;
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
    let (sk, mut rng) = new_secret(params);
    super::secret::write(secret, &sk)?;
    let key_plan = plan.key_plan(params)?;
    let made = super::keys::write(keys, &sk, &key_plan, times, &mut rng, progress);
    if made.is_err() {
        // A secret key without its public part is of no use.
        let _ = std::fs::remove_file(secret);
    }
    Ok(made?)
}

/// Makes a secret key, which is returned with the id of the set, and the keys of a plan, which go to `out`; errors call
/// them `path`.
///
/// # Errors
/// [`FheError::File`], [`FheError::Plan`].
pub fn make_keys_to(
    out: impl Target,
    path: &Path,
    plan: &FhePlan,
    params: &Arc<CkksParams>,
    times: KeyTimes,
    progress: KeyProgress<'_>,
) -> Result<(SecretKey, Hash), FheError> {
    let (sk, mut rng) = new_secret(params);
    let key_plan = plan.key_plan(params)?;
    let id = super::keys::write_to(out, path, &sk, &key_plan, times, &mut rng, progress)?;
    Ok((sk, id))
}

fn new_secret(params: &Arc<CkksParams>) -> (SecretKey, SecretRng) {
    let mut rng = SecretRng::from_os("keys of a client");
    (SecretKey::generate(params.rlwe(), &mut rng), rng)
}

/// Encrypts a packed batch to `out`, which errors call `path`, and returns the request's id and what names its content.
/// `progress` is called with ciphertexts done and in all.
///
/// # Errors
/// [`FheError::File`], [`FheError::Ckks`].
pub fn encrypt(
    out: impl Target,
    path: &Path,
    sk: &Arc<SecretKey>,
    keys: Hash,
    upload: &Upload<'_>,
    progress: KeyProgress<'_>,
) -> Result<([u8; REQUEST_ID], Hash), FheError> {
    let client = upload.client();
    let (plan, params) = (client.plan(), client.params());
    let encryptor = Encryptor::new(params, sk)?;
    let mut rng = SecretRng::from_os("request of a client");
    let mut id = [0; REQUEST_ID];
    rng.fill_bytes(&mut id);
    let lengths = upload.declared().into_iter();
    let head = RequestHead {
        plan: plan.hash(),
        keys,
        id,
        // At most as many rows as a text has: within 16 bits, or refused by the writer.
        lengths: lengths
            .map(|l| u16::try_from(l).unwrap_or(u16::MAX))
            .collect(),
    };
    let mut out = RequestWriter::begin(out, path, plan, params, &head)?;
    for index in 0..upload.count() {
        progress(index, upload.count());
        out.push(&upload.encrypt(index, &encryptor, &mut rng)?)?;
    }
    Ok((id, out.finish()?))
}

/// Opens a reply that was read ([`super::exchange::read_reply`]): the pooled row of each place that has a text, rounded
/// to what is certified. The key counts it.
///
/// # Errors
/// [`FheError::Ckks`], also if the key was opened too often.
pub fn open(
    reply: &[Ciphertext],
    client: &FheClient,
    sk: &Arc<SecretKey>,
    lengths: &[usize],
) -> Result<Vec<Option<Vec<f64>>>, FheError> {
    let decryptor = Decryptor::new(client.encoder(), sk)?;
    client.open(&decryptor, reply, lengths)
}
