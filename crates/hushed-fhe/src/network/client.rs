//! The client of a network: inputs to ciphertexts, and a reply to answers. It has the plan and the only key.
//!
//! Nothing derived from the decrypted reply goes back to the server.

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Opening, SeededCiphertext};
use hushed_math::rng::SecretRng;
use hushed_model::{Port, Tensor};

use super::plan::NetworkPlan;
use crate::error::FheError;
use crate::files::atomic::Target;
use crate::files::chunked::Hash;
use crate::files::exchange::{REQUEST_ID, RequestHead, RequestWriter};
use crate::files::owner::{Encrypted, SecretKey};
use crate::packing::PackingError;
use crate::plan::public_plan::Manifest;
use crate::run::client::REACH;

/// A client's view of a network: a plan and its parameters.
pub struct NetworkClient {
    plan: NetworkPlan,
    params: Arc<CkksParams>,
    encoder: Arc<Encoder>,
}

impl NetworkClient {
    /// A client of a plan that was checked ([`NetworkPlan::from_json`]).
    pub fn new(plan: NetworkPlan, params: &Arc<CkksParams>) -> NetworkClient {
        NetworkClient { plan, params: Arc::clone(params), encoder: Arc::new(Encoder::new(params)) }
    }

    /// The plan.
    pub fn plan(&self) -> &NetworkPlan {
        &self.plan
    }

    /// The parameters of the plan.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// Checks inputs, before a key is used: their number, their shapes and the plan's bound. An error names the input,
    /// and none of its numbers.
    ///
    /// # Errors
    /// [`FheError::Unsupported`].
    pub fn check(&self, inputs: &[Tensor]) -> Result<(), FheError> {
        let refused = |what: String, remedy| Err(FheError::Unsupported { what, remedy });
        let plan = &self.plan;
        if inputs.is_empty() || inputs.len() > plan.inputs {
            let what = format!("a request of {} inputs, where the plan has {},", inputs.len(), plan.inputs);
            return refused(what, "send fewer, or ask the server's operator for a plan of more");
        }
        for (index, input) in inputs.iter().enumerate() {
            if input.shape() != plan.input.shape {
                let what = format!("input {index} of shape {:?}", input.shape());
                return refused(what, "give one of the shape that the plan has");
            }
            // Also false for NaN.
            if !input.data().iter().all(|v| v.abs() <= plan.input_bound) {
                let what = format!("input {index}, which has a number beyond ±{},", plan.input_bound);
                return refused(what, "scale it as the samples of the calibration were");
            }
        }
        Ok(())
    }

    /// Encrypts one input, or zeros.
    fn encrypted(
        &self,
        encryptor: &Encryptor,
        rng: &mut SecretRng,
        input: Option<&Tensor>,
    ) -> Result<SeededCiphertext, FheError> {
        let plan = &self.plan;
        let numbers = input.map(Tensor::data).unwrap_or_default().iter().map(|v| v / plan.input_bound);
        let packed = super::packed(numbers, plan.period, self.params.slots());
        let plain = self.encoder.encode_real(&packed, plan.upload, self.params.default_scale())?;
        Ok(encryptor.encrypt_seeded(&plain, rng)?)
    }

    /// Encrypts inputs to `out`, which errors call `path`. Places that they leave free are filled with zeros.
    ///
    /// # Errors
    /// Those of [`NetworkClient::check`]; [`FheError::File`], [`FheError::Ckks`].
    pub fn encrypt<W: Target>(
        &self,
        out: W,
        path: &Path,
        sk: &Arc<SecretKey>,
        keys: Hash,
        inputs: &[Tensor],
    ) -> Result<Encrypted<W>, FheError> {
        self.check(inputs)?;
        let encryptor = Encryptor::new(&self.params, sk)?;
        let mut rng = SecretRng::from_os("request of a client");
        let mut id = [0; REQUEST_ID];
        rng.fill_bytes(&mut id);
        let head = RequestHead { plan: self.plan.hash(), keys, id, lengths: Vec::new() };
        let mut out = RequestWriter::begin(out, path, &self.plan, &self.params, &head)?;
        for index in 0..self.plan.inputs {
            out.push(&self.encrypted(&encryptor, &mut rng, inputs.get(index))?)?;
        }
        let (content, whole) = out.sealed()?;
        Ok(Encrypted { id, content, whole })
    }

    /// The answers to the first `inputs` inputs of a request, rounded to the bits that the plan certifies: for each
    /// input one tensor per output.
    ///
    /// # Errors
    /// [`FheError::Ckks`], also if the key was used too often; [`FheError::Packing`] if the reply is not as in the
    /// plan; [`FheError::ReplyShape`] if a number is not as in an honest reply: then nothing of it, and not that it was
    /// refused, may reach the server.
    pub fn open(&self, sk: &Arc<SecretKey>, reply: &[Ciphertext], inputs: usize) -> Result<Vec<Vec<Tensor>>, FheError> {
        let decryptor = Decryptor::new(&self.encoder, sk)?;
        let plan = &self.plan;
        let bits = plan.reply.bits(&self.params);
        let opened = reply.iter().map(|ct| Ok(decryptor.open(ct, Opening::Bits(bits))?.values));
        let opened: Vec<Vec<Complex64>> = opened.collect::<Result<_, FheError>>()?;
        if opened.len() != plan.inputs * plan.outputs.len() || inputs > plan.inputs {
            return Err(PackingError::Mismatch.into());
        }
        opened.iter().enumerate().try_for_each(|(vector, slots)| self.check_shape(bits, vector, slots))?;
        let answers = opened.chunks_exact(plan.outputs.len().max(1)).take(inputs);
        let tensor = |(port, slots): (&Port, &Vec<Complex64>)| {
            let numbers = slots.iter().take(port.size().unwrap_or(0)).map(|z| z.re).collect();
            Tensor::new(port.shape.clone(), numbers).ok_or(FheError::Packing(PackingError::Mismatch))
        };
        answers.map(|answer| plan.outputs.iter().zip(answer).map(tensor).collect()).collect()
    }

    /// A reply's numbers are real, within the plan's magnitude, and repeat. What wraps around its modulus takes all
    /// slots with it.
    fn check_shape(&self, bits: u32, vector: usize, slots: &[Complex64]) -> Result<(), FheError> {
        let plan = &self.plan;
        let nothing = REACH * plan.reply.deviation + 0.5 * (-f64::from(bits)).exp2();
        let first = slots.iter().cycle().skip(plan.period);
        for (z, next) in slots.iter().zip(first) {
            // Also false for NaN.
            let used = z.re.abs() <= plan.reply.magnitude + nothing;
            let good = used && (z.re - next.re).abs() <= 2.0 * nothing && z.im.abs() <= nothing;
            if !good {
                return Err(FheError::ReplyShape { vector, used: !used });
            }
        }
        Ok(())
    }
}
