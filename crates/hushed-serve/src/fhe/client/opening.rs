//! What is done before and after a reply is decrypted, whatever it answers: it is read and belongs to a request of
//! these keys, the decryption is counted, and the keys count as retired until the answer is found right.

use std::io::{self, Read};
use std::path::Path;
use std::sync::Arc;

use hushed_fhe::files::exchange::Ciphertext;
use hushed_fhe::files::owner::SecretKey;
use hushed_fhe::files::{FileError, exchange};
use hushed_fhe::plan::public_plan::{Manifest, Params, hex};
use sha2::{Digest as _, Sha256};

use super::held::{RequestRecord, retired};
use super::keyring::Keyring;
use crate::digest::Digest;
use crate::error::ServeError;
use crate::fhe::FheJobError;
use crate::fhe::record::NotRight;

/// A reply to a request that was made with these keys, still encrypted.
pub(super) struct Closed {
    pub ciphertexts: Vec<Ciphertext>,
    pub request: RequestRecord,
    opening: NotRight,
}

impl Closed {
    /// Reads a reply from a source and its size in bytes; errors call it `path`.
    ///
    /// # Errors
    /// As [`super::decrypt`]; nothing was decrypted.
    pub fn read(
        (plan, params): (&dyn Manifest, &Params),
        keys: &impl Keyring,
        (source, bytes): (impl Read, u64),
        path: &Path,
    ) -> Result<Closed, ServeError> {
        // Hashes exactly the bytes that are decrypted.
        let mut source = Hashed { source, hash: Sha256::new() };
        let set = keys.record().hash();
        let read = exchange::read_reply_from((&mut source, bytes), path, plan, params, &set);
        let (head, ciphertexts) = read.map_err(FheJobError::from)?;
        let Some(request) = keys.request(&head.id)? else {
            return Err(FheJobError::UnknownRequest { id: hex(&head.id), path: keys.path().to_owned() }.into());
        };
        let theirs = Digest(head.request).to_string();
        if theirs != request.content {
            return Err(FheJobError::File(FileError::Other {
                path: path.to_owned(),
                what: "request",
                theirs,
                ours: request.content,
            })
            .into());
        }
        let reply = Digest(source.hash.finalize().into()).to_string();
        let opening = NotRight { request: request.content.clone(), reply };
        Ok(Closed { ciphertexts, request, opening })
    }

    /// Counts the decryptions, retires the keys, and returns the secret key.
    ///
    /// # Errors
    /// [`FheJobError::RetiredKeys`] after another reply to this request; those of the record.
    pub fn counted(&self, params: &Params, keys: &mut impl Keyring) -> Result<Arc<SecretKey>, ServeError> {
        let mut record = keys.record().clone();
        let other = |open: &NotRight| open.request == self.opening.request && *open != self.opening;
        if record.not_right.iter().any(other) {
            return Err(retired(&record, keys.path()));
        }
        let before = record.decryptions;
        record.decryptions = before.saturating_add(self.ciphertexts.len() as u64);
        if !record.not_right.contains(&self.opening) {
            record.not_right.push(self.opening.clone());
        }
        keys.keep(record)?;
        keys.secret(params, before)
    }

    /// The answer is right as far as a client can see: the keys are in use again.
    ///
    /// # Errors
    /// Those of the record.
    pub fn right(&self, keys: &mut impl Keyring) -> Result<(), ServeError> {
        let mut record = keys.record().clone();
        record.not_right.retain(|open| *open != self.opening);
        keys.keep(record)
    }
}

/// [`FheJobError::KeysOfOtherPlan`] unless the keys were made for this manifest.
pub(super) fn check_keys(plan: &dyn Manifest, keys: &impl Keyring) -> Result<(), ServeError> {
    let (ours, theirs) = (Digest(plan.hash()).to_string(), &keys.record().plan);
    if *theirs == ours {
        return Ok(());
    }
    Err(FheJobError::KeysOfOtherPlan { path: keys.path().to_owned(), theirs: theirs.clone(), ours }.into())
}

/// Refuses to encrypt for keys of another manifest, expired or retired ones.
pub(super) fn check_usable(plan: &dyn Manifest, keys: &impl Keyring) -> Result<(), ServeError> {
    check_keys(plan, keys)?;
    keys.record().check_time()?;
    match keys.record().is_retired() {
        true => Err(retired(keys.record(), keys.path())),
        false => Ok(()),
    }
}

/// A source whose bytes are hashed as they are read.
struct Hashed<R> {
    source: R,
    hash: Sha256,
}

impl<R: Read> Read for Hashed<R> {
    fn read(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        let count = self.source.read(bytes)?;
        self.hash.update(bytes.get(..count).unwrap_or_default());
        Ok(count)
    }
}
