//! Shared by encrypted tests: keys of a small insecure ring, vectors in and out, plans and replies in packed rows.

use std::sync::Arc;

use hushed_ckks::bootstrap::{BootstrapLiteral, Bootstrapper};
use hushed_ckks::keys::{EvalKeys, KeySpecs, PublicKey, SecretKey};
use hushed_ckks::{Ciphertext, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator, Scale};
use hushed_math::rng::SecretRng;
use hushed_model::{Program, StepId, TokenIds};
use zeroize::Zeroizing;

use super::Encrypted;
use crate::FheError;
use crate::choices::Choices;
use crate::plan::offer::Offer;
use crate::plan::public_plan::{FhePlan, named};
use crate::plan::{FheOptions, packed_placement};
use crate::run::job::bootstrap;
use crate::run::reply::{ReplySecret, seal_reply};
use crate::simulate::Simulator;
use crate::slots::Slots;

/// A generator derived from a number.
pub(crate) fn seeded(seed: u64) -> SecretRng {
    let mut key = Zeroizing::new([0; 32]);
    key[..8].copy_from_slice(&seed.to_le_bytes());
    SecretRng::from_secret(&key, "tests")
}

/// Numbers within 1.
pub(crate) fn random(rng: &mut SecretRng, count: usize) -> Vec<f64> {
    let mut one = || (rng.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
    (0..count).map(|_| one()).collect()
}

/// Keys, and everything made from them.
pub(crate) struct Keys {
    pub(crate) params: Arc<CkksParams>,
    pub(crate) key: Arc<SecretKey>,
    pub(crate) encoder: Arc<Encoder>,
    pub(crate) on: Encrypted,
    decryptor: Decryptor,
    pub(crate) encryptor: Encryptor,
    rng: SecretRng,
}

impl Keys {
    /// The keys of a bootstrap, and those that `specs` adds.
    pub(crate) fn new(params: &Arc<CkksParams>, specs: impl FnOnce(&KeySpecs) -> KeySpecs) -> Keys {
        let mut rng = seeded(1);
        let bootstrapper = Arc::new(Bootstrapper::new(params, BootstrapLiteral::default()).unwrap());
        let specs = specs(&bootstrapper.key_specs());
        let key = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let keys = Arc::new(EvalKeys::generate(&key, &specs, &mut rng).unwrap());
        let evaluator = Evaluator::new(params, keys).unwrap();
        let encoder = Arc::new(Encoder::new(params));
        Keys {
            on: Encrypted::new(evaluator, bootstrapper).unwrap(),
            decryptor: Decryptor::new(&encoder, &key).unwrap(),
            encryptor: Encryptor::new(params, &key).unwrap(),
            params: Arc::clone(params),
            key,
            encoder,
            rng,
        }
    }

    /// It counts decryptions of the key.
    pub(crate) fn decryptor(&self) -> &Decryptor {
        &self.decryptor
    }

    /// At the default scale.
    pub(crate) fn encrypt(&mut self, values: &[f64], limbs: usize) -> Ciphertext {
        self.encrypt_at(values, limbs, self.params.default_scale())
    }

    pub(crate) fn encrypt_at(&mut self, values: &[f64], limbs: usize, scale: Scale) -> Ciphertext {
        let plain = self.encoder.encode_real(values, limbs, scale).unwrap();
        self.encryptor.encrypt(&plain, &mut self.rng).unwrap()
    }

    /// The deviation of the bootstraps of these keys, as [`Simulator::with_refresh_deviation`] takes it: the default is
    /// that of N = 2^16.
    pub(crate) fn refresh_deviation(&mut self) -> f64 {
        let (params, id) = (Arc::clone(&self.params), StepId::outside("measured"));
        let bent = Simulator::new(&params, params.slots()).unwrap();
        let bent = bent.with_errors(1).with_refresh_deviation(0.0);
        let (floor, top) = (self.on.floor(), self.on.top());
        let (mut sum, mut count, mut rng) = (0.0, 0.0, seeded(11));
        for _ in 0..8 {
            let sent = random(&mut rng, params.slots());
            let ct = self.encrypt(&sent, floor);
            let expected = bent.vector(self.open(&ct), floor).unwrap();
            let expected = bent.refresh(id, vec![expected], top).unwrap();
            let found = self.on.refresh(id, vec![ct], top).unwrap();
            let pairs = self.open(&found[0]).into_iter().zip(expected[0].values());
            sum += pairs.map(|(a, b)| (a - b) * (a - b)).sum::<f64>();
            count += params.slots() as f64;
        }
        (sum / count).sqrt()
    }

    /// Real parts.
    pub(crate) fn open(&self, ct: &Ciphertext) -> Vec<f64> {
        let slots: Vec<Complex64> = self.decryptor.decrypt_raw(ct).unwrap();
        slots.iter().map(|z| z.re).collect()
    }
}

/// The largest difference.
pub(crate) fn distance(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).fold(0.0, |most, (a, b)| most.max((a - b).abs()))
}

/// The plan that a server offers for a program in packed rows with named parameters.
pub(crate) fn planned(
    program: &Program,
    choices: &Choices,
    parameters: &str,
    options: &FheOptions,
    texts: &[TokenIds],
) -> FhePlan {
    let params = named(parameters).unwrap();
    let (_, keys) = bootstrap(&params).unwrap();
    let placement = packed_placement(program, choices, &params, options);
    let offer = Offer {
        program,
        choices,
        parameters,
        params: &params,
        bootstrap: &keys,
        options,
        placement: &placement.unwrap().unwrap(),
        public_sha256: [0; 32],
        calibration_sha256: [1; 32],
        texts,
        canary: None,
        exposures: Vec::new(),
    };
    offer.plan().unwrap()
}

/// The ciphertexts of an answer as a client receives them.
pub(crate) fn received(
    plan: &FhePlan,
    params: &Arc<CkksParams>,
    public: &Arc<PublicKey>,
    answer: &[Ciphertext],
) -> Vec<Ciphertext> {
    let secret = ReplySecret::from_bytes(Zeroizing::new([9; 32]));
    let sealed = seal_reply(params, public, &plan.reply, answer, 0.0, &secret, &[b"a"]);
    let noise = plan.reply.noise();
    let sealed = sealed.unwrap();
    sealed.iter().map(|ct| ct.clone().with_noise(noise)).collect()
}

/// Asserts that a plan was refused as step `at` has too few levels, and that the remedy is named.
pub(crate) fn assert_too_deep(refused: FheError, at: &str) {
    let told = refused.to_string();
    let FheError::Levels { step, .. } = refused else {
        panic!("{told}");
    };
    assert_eq!(step.to_string(), at);
    assert!(told.contains("choose lower degrees or fewer steps"), "{told}");
}
