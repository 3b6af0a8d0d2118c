//! The owner of a secret key encrypts inputs of a network and decrypts replies, in a key folder or in memory. Nothing
//! derived from a decrypted reply leaves this module for a server.

use std::fs;
use std::io::Read;
use std::path::Path;

use hushed_fhe::files::atomic::{self, Access, AtomicFile, Target};
use hushed_fhe::files::chunked::open_file;
use hushed_fhe::files::{exchange, owner};
use hushed_fhe::network::NetworkClient;
use hushed_fhe::plan::public_plan::hex;
use hushed_model::Tensor;

use super::held::RequestRecord;
use super::keyring::{FolderKeys, Keyring};
use super::opening::{Closed, check_keys, check_usable};
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::record::VERSION;
use crate::fhe::{FheJobError, read_network_plan, system};

/// Encrypted inputs of a network.
#[derive(Clone, Debug)]
pub struct EncryptedInputs {
    /// The request's id, in hexadecimal.
    pub id: String,
    /// Size of the request in bytes.
    pub bytes: u64,
}

/// The answers of a network.
#[derive(Clone)]
pub struct NetworkAnswer {
    /// For each input one tensor per output.
    pub outputs: Vec<Vec<Tensor>>,
    /// Ciphertexts decrypted with this key so far.
    pub decryptions: u64,
}

/// A client of the network of the manifest in this file.
///
/// # Errors
/// [`FheJobError::Plan`]; [`ServeError::File`].
pub fn network_client(plan: &Path) -> Result<NetworkClient, ServeError> {
    let (plan, params) = read_network_plan(plan)?;
    Ok(NetworkClient::new(plan, &params))
}

/// Encrypts inputs into the file `out`, with the keys of a folder.
///
/// # Errors
/// [`FheJobError::Run`] for inputs that cannot be sent; if a file belongs to another manifest, keys are expired or
/// retired, or there is no room.
pub fn encrypt_inputs(plan: &Path, keys: &Path, inputs: &[Tensor], out: &Path) -> Result<EncryptedInputs, ServeError> {
    let mut keys = FolderKeys::open(keys, plan)?.released();
    let client = network_client(plan)?;
    check_usable(client.plan(), &keys)?;
    client.check(inputs).map_err(FheJobError::from)?;
    atomic::refuse_existing(out).map_err(FheJobError::from)?;
    let bytes = exchange::request_bytes(client.plan(), client.params()).map_err(FheJobError::from)?;
    system::check_room(out.parent().unwrap_or(Path::new(".")), bytes)?;
    let file = AtomicFile::create(out, Access::Usual).map_err(FheJobError::from)?;
    let made = encrypt_with(&client, &mut keys, inputs, file, out);
    if made.is_err() {
        // Leave no request whose reply could not be decrypted.
        let _ = fs::remove_file(out);
    }
    made
}

/// [`encrypt_inputs`] to a target, which errors call `path`.
pub(super) fn encrypt_with(
    client: &NetworkClient,
    keys: &mut impl Keyring,
    inputs: &[Tensor],
    out: impl Target,
    path: &Path,
) -> Result<EncryptedInputs, ServeError> {
    check_usable(client.plan(), keys)?;
    let (set, secret) = (keys.record().hash(), keys.secret(client.params(), keys.record().decryptions)?);
    let made = client.encrypt(out, path, &secret, set, inputs);
    let owner::Encrypted { id, content, whole } = made.map_err(FheJobError::from)?;
    // The inputs of a network have no tokens; each counts its numbers.
    let tokens = inputs.iter().map(|input| input.data().len()).collect();
    let record =
        RequestRecord { version: VERSION, content: Digest(content).to_string(), tokens, canary: None, texts: None };
    // Recorded first: a server must not run for a reply that nobody can decrypt.
    keys.remember(&id, record)?;
    whole.complete().map_err(FheJobError::from)?;
    let bytes = exchange::request_bytes(client.plan(), client.params()).map_err(FheJobError::from)?;
    Ok(EncryptedInputs { id: hex(&id), bytes })
}

/// Decrypts a reply with the keys of a folder. Decryptions are counted before the first. A reply that is not of the
/// shape of an honest one retires the keys, as [`super::decrypt`] says.
///
/// # Errors
/// As [`super::decrypt`].
pub fn decrypt_outputs(plan: &Path, keys: &Path, reply: &Path) -> Result<NetworkAnswer, ServeError> {
    let mut keys = FolderKeys::open(keys, plan)?;
    let client = network_client(plan)?;
    let source = open_file(reply).map_err(FheJobError::from)?;
    decrypt_with(&client, &mut keys, source, reply)
}

/// [`decrypt_outputs`] from a source and its size in bytes; errors call it `path`.
pub(super) fn decrypt_with(
    client: &NetworkClient,
    keys: &mut impl Keyring,
    source: (impl Read, u64),
    path: &Path,
) -> Result<NetworkAnswer, ServeError> {
    check_keys(client.plan(), keys)?;
    let closed = Closed::read((client.plan(), client.params()), keys, source, path)?;
    let secret = closed.counted(client.params(), keys)?;
    let outputs = client.open(&secret, &closed.ciphertexts, closed.request.tokens.len());
    let outputs = outputs.map_err(FheJobError::from)?;
    closed.right(keys)?;
    Ok(NetworkAnswer { outputs, decryptions: keys.record().decryptions })
}
