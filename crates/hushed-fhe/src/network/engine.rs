//! A client's keys at the server of a network: requests in, sealed replies out.

use std::io::{Read, Seek};
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, Evaluator, SeededCiphertext};
use rayon::prelude::*;

use super::Circuit;
use crate::error::FheError;
use crate::files::atomic::Target;
use crate::files::chunked::Hash;
use crate::files::exchange::{RequestHead, read_request_from};
use crate::files::keys::{KeyProgress, KeyReader};
use crate::run::encrypted::Encrypted;
use crate::run::reply::{ReplySecret, Sealing, covers};

/// A network's circuit with the keys of one client.
pub struct NetworkEngine {
    circuit: Arc<Circuit>,
    on: Encrypted,
    public: Arc<PublicKey>,
    keys: Hash,
}

/// A request that was read and checked in full.
pub struct NetworkRequest {
    /// Its head.
    pub head: RequestHead,
    /// The hash of its content.
    pub name: Hash,
    inputs: Vec<SeededCiphertext>,
}

impl NetworkEngine {
    /// Reads a client's keys.
    ///
    /// # Errors
    /// [`FheError::File`] for damaged keys; [`FheError::ReplyError`] for a plan that declares too small an error.
    pub fn load(
        circuit: Arc<Circuit>,
        keys: KeyReader<impl Read + Seek>,
        progress: KeyProgress<'_>,
    ) -> Result<NetworkEngine, FheError> {
        covers(&circuit.plan.reply, circuit.deviation)?;
        let id = keys.id();
        let (public, evaluation) = keys.read(progress)?;
        let evaluator = Evaluator::new(&circuit.params, Arc::new(evaluation))?;
        let on = circuit.on(evaluator)?;
        Ok(NetworkEngine { circuit, on, public: Arc::new(public), keys: id })
    }

    /// Reads a request from a source with its number of bytes; errors call it `path`.
    ///
    /// # Errors
    /// [`FheError::File`].
    pub fn request(&self, source: (impl Read, u64), path: &Path) -> Result<NetworkRequest, FheError> {
        let circuit = &self.circuit;
        let (head, name, inputs) = read_request_from(source, path, &circuit.plan, &circuit.params, &self.keys)?;
        Ok(NetworkRequest { head, name, inputs })
    }

    /// The answers to all inputs of a request.
    ///
    /// # Errors
    /// [`FheError::Ckks`].
    pub fn run(&self, request: &NetworkRequest) -> Result<Vec<Ciphertext>, FheError> {
        let each = request.inputs.par_iter().map(|ct| self.circuit.run(&self.on, ct.clone().expand()));
        let each: Vec<Vec<Ciphertext>> = each.collect::<Result<_, _>>()?;
        Ok(each.into_iter().flatten().collect())
    }

    /// Writes the reply to `out`, which errors call `path`: masked and re-randomised, and with the same bytes whenever
    /// it is made again.
    ///
    /// # Errors
    /// As [`Sealing::write`].
    pub fn reply(
        &self,
        out: impl Target,
        path: &Path,
        request: &NetworkRequest,
        answer: &[Ciphertext],
        secret: &ReplySecret,
    ) -> Result<Hash, FheError> {
        let Circuit { plan, params, deviation, .. } = &*self.circuit;
        let work = Sealing { plan, params, public: &self.public, keys: &self.keys };
        work.write(out, path, (&request.head, &request.name), answer, *deviation, secret)
    }
}
