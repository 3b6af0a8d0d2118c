//! A client and a server of a network in one process, on keys that are made for it: what passes between them are the
//! bytes of a real run.

use std::io::Cursor;
use std::path::Path;
use std::sync::Arc;
use std::time::Instant;

use hushed_model::Tensor;

use super::plan::NetworkPlan;
use super::{Circuit, NetworkClient, NetworkEngine};
use crate::error::FheError;
use crate::files::chunked::Hash;
use crate::files::exchange::read_reply_from;
use crate::files::keys::{KeyReader, KeyTimes};
use crate::files::owner::{SecretKey, make_keys_to};
use crate::plan::public_plan::Manifest as _;
use crate::run::reply::ReplySecret;

/// Both parties of a network.
pub struct Rehearsal {
    pub(super) client: NetworkClient,
    pub(super) secret: Arc<SecretKey>,
    pub(super) id: Hash,
    pub(super) engine: NetworkEngine,
}

/// The answers of a rehearsal.
pub struct Rehearsed {
    /// For each input one tensor per output.
    pub outputs: Vec<Vec<Tensor>>,
    /// Seconds of the circuit, for all inputs.
    pub seconds: f64,
}

/// What errors call bytes in memory.
fn memory() -> &'static Path {
    Path::new("<memory>")
}

impl Rehearsal {
    /// Makes keys for a circuit, and gives each party its part.
    ///
    /// # Errors
    /// [`FheError::Plan`], [`FheError::File`].
    pub fn new(circuit: Circuit) -> Result<Rehearsal, FheError> {
        let (plan, params) = NetworkPlan::from_json(&circuit.plan().to_json()?)?;
        let mut keys = Vec::new();
        let times = KeyTimes { created: 0, expires: u64::MAX };
        let (secret, id) = make_keys_to(&mut keys, memory(), &plan, &params, times, &mut |_, _| ())?;
        let specs = plan.key_specs(circuit.params())?;
        let keys = KeyReader::begin(Cursor::new(keys), memory(), circuit.params().rlwe(), &specs)?;
        let engine = NetworkEngine::load(Arc::new(circuit), keys, &mut |_, _| ())?;
        Ok(Rehearsal { client: NetworkClient::new(plan, &params), secret: Arc::new(secret), id, engine })
    }

    /// The answers to inputs, as many as the plan has in a request, or fewer.
    ///
    /// # Errors
    /// Those of client and server.
    pub fn answers(&self, inputs: &[Tensor]) -> Result<Rehearsed, FheError> {
        let request = self.request(inputs)?;
        let (reply, seconds) = self.reply(&request, &ReplySecret::from_os())?;
        Ok(Rehearsed { outputs: self.opened(&reply, inputs.len())?, seconds })
    }

    pub(super) fn request(&self, inputs: &[Tensor]) -> Result<Vec<u8>, FheError> {
        let mut bytes = Vec::new();
        let made = self.client.encrypt(&mut bytes, memory(), &self.secret, self.id, inputs)?;
        made.whole.complete()?;
        Ok(bytes)
    }

    pub(super) fn reply(&self, request: &[u8], secret: &ReplySecret) -> Result<(Vec<u8>, f64), FheError> {
        let request = self.engine.request((request, request.len() as u64), memory())?;
        let start = Instant::now();
        let answer = self.engine.run(&request)?;
        let seconds = start.elapsed().as_secs_f64();
        let mut bytes = Vec::new();
        self.engine.reply(&mut bytes, memory(), &request, &answer, secret)?;
        Ok((bytes, seconds))
    }

    pub(super) fn opened(&self, reply: &[u8], inputs: usize) -> Result<Vec<Vec<Tensor>>, FheError> {
        let (client, source) = (&self.client, (reply, reply.len() as u64));
        let (_, list) = read_reply_from(source, memory(), client.plan(), client.params(), &self.id)?;
        client.open(&self.secret, &list, inputs)
    }
}
