//! Operations of the owner of a secret key: makes keys, encrypts a batch, opens a reply.
//!
//! A key may decrypt a limited number of times, and only its owner can count across processes: a store of a secret key
//! also stores its number of decryptions, incremented before each, and passes it when it reads the key. `hushed-serve`
//! does this for key folders and for keys in memory.

use std::path::Path;
use std::sync::Arc;

pub use hushed_ckks::keys::SecretKey;
use hushed_ckks::{Ciphertext, CkksParams, Decryptor, Encryptor};
use hushed_math::rng::SecretRng;

use super::atomic::Target;
use super::chunked::{Hash, Whole};
use super::exchange::{REQUEST_ID, RequestHead, RequestWriter};
use super::keys::{KeyProgress, KeyTimes};
use crate::FheError;
use crate::plan::public_plan::Manifest;
use crate::run::client::{FheClient, Upload};

/// Makes a secret key and the keys of a plan, each in a new file, and returns the id of the set. If a later step fails,
/// the files already written are removed.
///
/// # Errors
/// [`FheError::File`], [`FheError::Plan`].
pub fn make_keys(
    secret: &Path,
    keys: &Path,
    plan: &dyn Manifest,
    params: &Arc<CkksParams>,
    times: KeyTimes,
    progress: KeyProgress<'_>,
) -> Result<Hash, FheError> {
    let (sk, mut rng) = new_secret(params);
    super::secret::write(secret, &sk)?;
    let key_specs = plan.key_specs(params)?;
    let made = super::keys::write(keys, &sk, &key_specs, times, &mut rng, progress);
    if made.is_err() {
        // A secret key without its public part is useless.
        let _ = std::fs::remove_file(secret);
    }
    Ok(made?)
}

/// Makes a secret key and the keys of a plan, and returns the secret key and the id of the set. The keys of the plan go
/// to `out`; errors call it `path`.
///
/// # Errors
/// [`FheError::File`], [`FheError::Plan`].
pub fn make_keys_to(
    out: impl Target,
    path: &Path,
    plan: &dyn Manifest,
    params: &Arc<CkksParams>,
    times: KeyTimes,
    progress: KeyProgress<'_>,
) -> Result<(SecretKey, Hash), FheError> {
    let (sk, mut rng) = new_secret(params);
    let key_specs = plan.key_specs(params)?;
    let id = super::keys::write_to(out, path, &sk, &key_specs, times, &mut rng, progress)?;
    Ok((sk, id))
}

fn new_secret(params: &Arc<CkksParams>) -> (SecretKey, SecretRng) {
    let mut rng = SecretRng::from_os("keys of a client");
    (SecretKey::generate(params.rlwe(), &mut rng), rng)
}

/// An encrypted batch, whole and still to be completed: by then its owner must have recorded it, as a request without
/// its record is one whose reply cannot be decrypted.
pub struct Encrypted<W> {
    /// The request's id.
    pub id: [u8; REQUEST_ID],
    /// The hash of its content.
    pub content: Hash,
    /// The request.
    pub whole: Whole<W>,
}

/// Encrypts a packed batch to `out`, which errors call `path`. `progress` is called with the number of ciphertexts done
/// and the total.
///
/// # Errors
/// [`FheError::File`], [`FheError::Ckks`].
pub fn encrypt<W: Target>(
    out: W,
    path: &Path,
    sk: &Arc<SecretKey>,
    keys: Hash,
    upload: &Upload<'_>,
    progress: KeyProgress<'_>,
) -> Result<Encrypted<W>, FheError> {
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
        // At most the rows of a text: fits in 16 bits, or is refused by the writer.
        lengths: lengths.map(|l| u16::try_from(l).unwrap_or(u16::MAX)).collect(),
    };
    let mut out = RequestWriter::begin(out, path, plan, params, &head)?;
    for index in 0..upload.count() {
        progress(index, upload.count());
        out.push(&upload.encrypt(index, &encryptor, &mut rng)?)?;
    }
    let (content, whole) = out.sealed()?;
    Ok(Encrypted { id, content, whole })
}

/// Opens a reply that was read ([`super::exchange::read_reply`]): the pooled row of each place that has a text, rounded
/// to the certified bits. The key counts the decryptions.
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
