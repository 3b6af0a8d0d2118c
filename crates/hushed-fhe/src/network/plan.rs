//! The public plan of a network: what its clients and its server agree on, in one file that has no weights.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::Port;
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::files::chunked::Hash;
use crate::hex::hex;
use crate::plan::public_plan::{
    Manifest, PlanFileError, PlannedKey, ReplyForm, digits, from_bytes, params_of, same_hash,
};

/// The version that this program writes and reads; it is that of a model's plan.
const VERSION: u32 = crate::plan::public_plan::PLAN_VERSION;

/// Most inputs of a request, and most outputs of a network.
const MOST: usize = 1 << 12;

/// The public plan of a network.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkPlan {
    /// That of plans.
    pub version: u32,
    /// Name of the parameter set.
    pub parameters: String,
    /// Its hash, in hexadecimal.
    pub parameters_hash: String,
    /// The input.
    pub input: Port,
    /// The outputs, in the order of the reply.
    pub outputs: Vec<Port>,
    /// Numbers of a value repeat in the slots at this distance.
    pub period: usize,
    /// Inputs of a request; a client may send fewer, and nobody sees how many.
    pub inputs: usize,
    /// No number of an input is larger; they are divided by it before they are encrypted.
    pub input_bound: f64,
    /// Primes of the ciphertexts of a request.
    pub upload: usize,
    /// The form of the reply: for each input one ciphertext per output.
    pub reply: ReplyForm,
    /// The evaluation keys, in order.
    pub keys: Vec<PlannedKey>,
    /// The declared error of a number of an answer: an estimate from samples, of polynomials, ciphertexts and the noise
    /// that covers a reply. An input unlike the samples may err by more.
    pub error: f64,
    /// SHA-256 of the server's calibration, which names the network's files, in hexadecimal.
    pub calibration_sha256: String,
    /// Who sees what, for human readers.
    pub exposures: Vec<String>,
}

/// A plan as stored in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    hash: String,
    network: NetworkPlan,
}

impl NetworkPlan {
    /// The bytes of a plan file: hash and plan.
    ///
    /// # Errors
    /// [`PlanFileError::NotJson`] for numbers that JSON cannot represent.
    pub fn to_json(&self) -> Result<Vec<u8>, PlanFileError> {
        let sealed = Sealed { hash: hex(&self.hash()), network: self.clone() };
        let mut bytes = serde_json::to_vec_pretty(&sealed)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a plan file and checks all of it: the plan and its parameter set.
    ///
    /// # Errors
    /// A [`PlanFileError`] for each way in which the file can be wrong.
    pub fn from_json(bytes: &[u8]) -> Result<(NetworkPlan, Arc<CkksParams>), PlanFileError> {
        let Sealed { hash, network: plan } = from_bytes(bytes)?;
        if plan.version != VERSION {
            let given = plan.version;
            return Err(PlanFileError::Version { given });
        }
        same_hash(&plan.hash(), &hash)?;
        let params = params_of(&plan.parameters, &plan.parameters_hash)?;
        plan.check(&params)?;
        Ok((plan, params))
    }

    /// Checks that every number is within what this program accepts.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn check(&self, params: &CkksParams) -> Result<(), PlanFileError> {
        let require = |good: bool, what: &'static str, given: String| match good {
            true => Ok(()),
            false => Err(PlanFileError::Unusable { what, given }),
        };
        let period = self.period;
        require(period.is_power_of_two() && period <= params.slots(), "period", period.to_string())?;
        let fits = |port: &Port| port.size().is_some_and(|size| (1..=period).contains(&size));
        for port in [&self.input].into_iter().chain(&self.outputs) {
            require(fits(port), "shape", format!("{:?}", port.shape.iter().take(8).collect::<Vec<_>>()))?;
        }
        require((1..=MOST).contains(&self.outputs.len()), "number of outputs", self.outputs.len().to_string())?;
        require((1..=MOST).contains(&self.inputs), "number of inputs", self.inputs.to_string())?;
        require(self.input_bound.is_normal() && self.input_bound > 0.0, "input bound", self.input_bound.to_string())?;
        require(self.error.is_finite() && self.error >= 0.0, "error", self.error.to_string())?;
        require((1..=params.max_limbs()).contains(&self.upload), "primes of the upload", self.upload.to_string())?;
        self.reply.check(params, self.inputs * self.outputs.len())?;
        digits("hash of the calibration", &self.calibration_sha256)?;
        self.key_specs(params)?;
        Ok(())
    }
}

impl Manifest for NetworkPlan {
    /// SHA-256("hushed network plan 1" ‖ the plan as JSON without spaces, fields in the order of this type).
    fn hash(&self) -> Hash {
        // As for a model's plan, serializing cannot fail.
        let text = serde_json::to_vec(self).unwrap_or_default();
        Sha256::new().chain_update(b"hushed network plan 1").chain_update(text).finalize().into()
    }

    fn parameters(&self) -> &str {
        &self.parameters
    }

    fn upload(&self) -> usize {
        self.upload
    }

    fn request_ciphertexts(&self) -> usize {
        self.inputs
    }

    /// None: all inputs of a network have the same length.
    fn declared_lengths(&self, _: &CkksParams) -> Result<usize, PlanFileError> {
        Ok(0)
    }

    fn may_declare(&self, lengths: &[usize]) -> bool {
        lengths.is_empty()
    }

    fn reply(&self) -> &ReplyForm {
        &self.reply
    }

    fn keys(&self) -> &[PlannedKey] {
        &self.keys
    }
}
