//! A client's keys in memory: the bytes that would be in a key folder's files, without a folder.

use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

use hushed_fhe::files::owner::{self, SecretKey};
use hushed_fhe::files::{FileError, secret};
use hushed_fhe::plan::public_plan::{Params, hex};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use super::held::RequestRecord;
use super::keygen::{KeyOrder, KeygenOptions, new_record, times};
use super::keyring::{Keyring, RequestId};
use super::model::ClientModel;
use super::texts::{Answer, Encrypted, Texts, decrypt_with};
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::{KeyRecord, VERSION};

/// The paths that errors give for data in memory.
const KEYS: &str = "<keys>";
const SECRET: &str = "<secret key>";
const STATE: &str = "<state of the keys>";
const REQUEST: &str = "<request>";
const REPLY: &str = "<reply>";

/// Separates the hash of a secret key from every other use of its bytes.
const SECRET_TAG: &[u8] = b"hushed: the secret key of a state\0";

/// The secret key and the state of keys, as bytes ([`MemoryKeys::into_stored`]).
pub struct StoredParts {
    /// The secret key, for a place that only its owner can read.
    pub secret: Zeroizing<Vec<u8>>,
    /// Its state: how often it was used, which replies were not right, which requests it made. Not secret, but private:
    /// it holds the number of tokens of each text.
    pub state: Vec<u8>,
}

/// Stores a state where the secret key is stored.
pub type SaveState = Box<dyn FnMut(&[u8]) -> io::Result<()> + Send>;

/// A client's keys in memory. Neither `Debug` nor `Clone`; the secret key is erased on drop.
///
/// What a key folder guarantees holds here as well: decryptions are counted and capped, and a canary that is not right
/// retires the keys, from before the decryption until that very reply is seen to be right.
///
/// **Keys that are not stored** ([`MemoryKeys::generate`]) are the easy case: the state lives exactly as long as the
/// secret key, and there is nothing to do.
///
/// **Keys that are stored** must outlive this process together with their state, or the guarantees are lost: a count
/// that goes back lets a key be used too often, and a forgotten canary lets a server that spoils answers learn the key
/// bit by bit. So stored keys come back only with a callback that saves their state before each use of the secret key
/// ([`MemoryKeys::restore`]); if it fails, nothing is decrypted. The caller must ensure three things:
///
/// * when `save` returns, the state is as durable as the secret key, and replaces the previous one;
/// * no backup brings an older state back beside the same secret key: delete both, or neither;
/// * one [`MemoryKeys`] at a time is made from them, also across machines. ([`MemoryKeys::into_stored`] takes `self`.)
///
/// Nothing derived from a decrypted reply, not even whether it could be decrypted, may reach the server. Retired keys
/// are replaced only if a person decides so, as with `hushed embed --new-keys`.
pub struct MemoryKeys {
    secret: Arc<SecretKey>,
    state: State,
    save: Option<SaveState>,
}

#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct State {
    version: u32,
    /// SHA-256 of the secret key's bytes after [`SECRET_TAG`], in hexadecimal, which ties the state to its secret key.
    secret: String,
    record: KeyRecord,
    /// By their ids, in hexadecimal.
    requests: BTreeMap<String, RequestRecord>,
}

impl MemoryKeys {
    /// Makes keys that last as long as this value. The evaluation keys, for the server, go to `out` in the format of a
    /// key folder's `evaluation.keys`. `progress` is called with the number of keys done and their total.
    ///
    /// # Errors
    /// [`FheJobError::TooManyKeys`]; [`FheJobError::File`] if writing to `out` fails; what it holds by then is useless.
    pub fn generate(
        model: &ClientModel,
        options: KeygenOptions,
        out: &mut impl io::Write,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<MemoryKeys, ServeError> {
        let (plan, params, path) = (model.plan(), model.params(), Path::new(KEYS));
        let order = KeyOrder::of(plan, params, path)?;
        order.check(options)?;
        let times = times(options);
        let made = owner::make_keys_to(out, path, plan, params, times, progress);
        let (secret, id) = made.map_err(FheJobError::from)?;
        Ok(MemoryKeys {
            state: State {
                version: VERSION,
                secret: tag(&secret),
                record: new_record(plan, &id, times, order.bytes),
                requests: BTreeMap::new(),
            },
            secret: Arc::new(secret),
            save: None,
        })
    }

    /// Restores stored keys. `save` is called with each new state before the secret key is used.
    ///
    /// # Errors
    /// [`FheJobError::File`] if the bytes are not a secret key of the model's parameters, [`FheJobError::Record`] if
    /// they are not a state of this version, [`FheJobError::StateOfOtherKeys`], [`FheJobError::KeysOfOtherPlan`].
    pub fn restore(
        model: &ClientModel,
        secret: &[u8],
        state: &[u8],
        save: SaveState,
    ) -> Result<MemoryKeys, ServeError> {
        let record = |source| FheJobError::Record { path: STATE.into(), source };
        let state: State = serde_json::from_slice(state).map_err(record)?;
        if state.version != VERSION {
            let version = format!("version {}, and this program reads {VERSION}", state.version);
            return Err(record(serde::de::Error::custom(version)).into());
        }
        let (params, done) = (model.params().rlwe(), state.record.decryptions);
        let secret = secret::from_bytes(secret, Path::new(SECRET), params, done);
        let secret = secret.map_err(FheJobError::from)?;
        if tag(&secret) != state.secret {
            return Err(FheJobError::StateOfOtherKeys.into());
        }
        let keys = MemoryKeys { secret: Arc::new(secret), state, save: Some(save) };
        model.check_keys(&keys)?;
        Ok(keys)
    }

    /// The parts to store, in place of these keys.
    ///
    /// # Errors
    /// [`FheJobError::Record`], which does not happen.
    pub fn into_stored(self) -> Result<StoredParts, ServeError> {
        Ok(StoredParts { state: self.state.to_json()?, secret: self.secret.to_bytes() })
    }

    /// The record of the keys: their id, when they expire, how often they were used, whether they are retired.
    #[must_use]
    pub fn record(&self) -> &KeyRecord {
        &self.state.record
    }

    /// Encrypts texts to `out`, as in a request's file. `progress` is called with the ciphertexts done and their total.
    ///
    /// # Errors
    /// As [`super::encrypt`]. What `out` holds by then is not a request.
    pub fn encrypt(
        &mut self,
        model: &ClientModel,
        texts: Texts<'_>,
        out: &mut impl io::Write,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Encrypted, ServeError> {
        let prepared = texts.prepare(model, self)?;
        prepared.encrypt(out, Path::new(REQUEST), self, progress)
    }

    /// Decrypts the bytes of a reply's file.
    ///
    /// # Errors
    /// As [`super::decrypt`]; [`FheJobError::File`] if the state could not be saved; then nothing was decrypted.
    pub fn decrypt(&mut self, model: &ClientModel, reply: &[u8]) -> Result<Answer, ServeError> {
        let source = (reply, reply.len() as u64);
        decrypt_with(model, self, source, Path::new(REPLY))
    }

    /// Forgets a request by its id ([`Encrypted::id`]) once its answers have been read: its reply cannot be decrypted
    /// again. Without this the state, which is saved with each use, grows with every request.
    ///
    /// # Errors
    /// [`FheJobError::File`] if the state could not be saved.
    pub fn forget(&mut self, request: &str) -> Result<(), ServeError> {
        let mut state = self.state.clone();
        match state.requests.remove(request) {
            Some(_) => self.become_state(state),
            None => Ok(()),
        }
    }

    /// Saves a state, then adopts it as the state of these keys.
    fn become_state(&mut self, state: State) -> Result<(), ServeError> {
        if let Some(save) = &mut self.save {
            let bytes = state.to_json()?;
            let saved = save(&bytes).map_err(FileError::io("save", Path::new(STATE)));
            saved.map_err(FheJobError::from)?;
        }
        self.state = state;
        Ok(())
    }
}

impl Keyring for MemoryKeys {
    fn path(&self) -> &Path {
        Path::new(KEYS)
    }

    fn record(&self) -> &KeyRecord {
        &self.state.record
    }

    fn keep(&mut self, record: KeyRecord) -> Result<(), ServeError> {
        let state = State { record, ..self.state.clone() };
        self.become_state(state)
    }

    /// The key in memory counts its own decryptions.
    fn secret(&self, _: &Params, _: u64) -> Result<Arc<SecretKey>, ServeError> {
        Ok(Arc::clone(&self.secret))
    }

    fn request(&self, id: &RequestId) -> Result<Option<RequestRecord>, ServeError> {
        Ok(self.state.requests.get(&hex(id)).cloned())
    }

    fn remember(&mut self, id: &RequestId, request: RequestRecord) -> Result<(), ServeError> {
        let mut state = self.state.clone();
        state.requests.insert(hex(id), request);
        self.become_state(state)
    }
}

impl State {
    fn to_json(&self) -> Result<Vec<u8>, ServeError> {
        let bytes =
            serde_json::to_vec_pretty(self).map_err(|source| FheJobError::Record { path: STATE.into(), source });
        Ok(bytes?)
    }
}

/// The hash by which a state names its secret key. The key has far more entropy than the hash is long, so nothing can
/// be guessed from it.
fn tag(secret: &SecretKey) -> String {
    let hash = Sha256::new_with_prefix(SECRET_TAG);
    hex(&hash.chain_update(secret.to_bytes()).finalize())
}
