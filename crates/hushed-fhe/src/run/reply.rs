//! Seals what leaves the server: it keeps as few primes as the answer needs, and reveals nothing of the computation
//! beyond what shows at the declared precision.
//!
//! A result's ciphertext reveals more than its message: its uniform part depends on the computation, and its error
//! depends on weights and intermediate values. So before a reply leaves
//!
//! 1. all primes that the answer does not need are dropped;
//! 2. a fresh encryption of zero under the client's public key is added, which makes the uniform part pseudo-random;
//! 3. noise is added, as wide as the error that the plan declares ([`ReplyForm::deviation`]).
//!
//! The reply is masked and re-randomised, not circuit-private: the third step hides what is well below the declared
//! precision, and no more.
//!
//! All randomness is a function of a secret of the server, of the names of the reply and of the data it covers, so that
//! a retry gives the same bytes, and two replies to one request can neither be averaged nor subtracted from each other.

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::keys::PublicKey;
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Evaluator, PublicEncryptor, Scale};
use hushed_math::rng::SecretRng;
use sha2::{Digest, Sha256};
use zeroize::Zeroizing;

use crate::error::FheError;
use crate::files::atomic::Target;
use crate::files::chunked::Hash;
use crate::files::exchange::{self, ReplyHead, RequestHead};
use crate::plan::public_plan::{Manifest, ReplyForm};

/// Bytes of a SHA-256 block.
const BLOCK: usize = 64;

/// Bits of a modulus above a message at its scale: a sign bit, and room for the error.
const ROOM_BITS: f64 = 2.0;

/// Tolerance: two machines simulating the same errors may differ in the last digits of functions like e^x.
const SAME: f64 = 1.0 + 1e-6;

/// The secret that the randomness of replies is derived from. Neither `Debug` nor `Clone`; erased on drop.
pub struct ReplySecret(Zeroizing<[u8; 32]>);

impl ReplySecret {
    /// A fresh secret from the system.
    #[must_use]
    pub fn from_os() -> ReplySecret {
        let mut secret = Zeroizing::new([0; 32]);
        SecretRng::from_os("secret of replies").fill_bytes(secret.as_mut_slice());
        ReplySecret(secret)
    }

    /// A stored secret.
    #[must_use]
    pub fn from_bytes(secret: Zeroizing<[u8; 32]>) -> ReplySecret {
        ReplySecret(secret)
    }

    /// The bytes to store.
    #[must_use]
    pub fn bytes(&self) -> &Zeroizing<[u8; 32]> {
        &self.0
    }

    /// The generator for the reply with these names (id of the request, hash of its bytes, hash of the plan, id of the
    /// keys, hash of the covered data), keyed with HMAC-SHA-256(secret, "hushed reply 1" ‖ each name after its length).
    #[must_use]
    pub fn rng(&self, names: &[&[u8]]) -> SecretRng {
        let pad = |byte: u8| {
            let mut block = Zeroizing::new([byte; BLOCK]);
            block.iter_mut().zip(self.0.iter()).for_each(|(b, s)| *b ^= s);
            block
        };
        let mut inner = Sha256::new().chain_update(pad(0x36).as_slice()).chain_update(b"hushed reply 1");
        for name in names {
            inner.update((name.len() as u64).to_le_bytes());
            inner.update(name);
        }
        let inner = Zeroizing::new(<[u8; 32]>::from(inner.finalize()));
        let outer = Sha256::new().chain_update(pad(0x5c).as_slice()).chain_update(inner.as_slice());
        let key = Zeroizing::new(<[u8; 32]>::from(outer.finalize()));
        SecretRng::from_secret(&key, "reply")
    }
}

/// The fewest primes for messages within `magnitude` at `scale`; all primes if even those are too few.
#[must_use]
pub fn fewest_limbs(params: &CkksParams, scale: Scale, magnitude: f64) -> usize {
    let bits = scale.log2() + magnitude.log2().max(0.0) + ROOM_BITS;
    let enough = |&limbs: &usize| params.rlwe().log2_q(limbs) >= bits;
    (1..params.max_limbs()).find(enough).unwrap_or(params.max_limbs())
}

/// Checks that the error a plan declares of its reply is at least the error of a run.
///
/// # Errors
/// [`FheError::ReplyError`], also for a NaN error.
pub fn covers(form: &ReplyForm, error: f64) -> Result<(), FheError> {
    match error <= form.deviation * SAME {
        true => Ok(()),
        false => Err(FheError::ReplyError { found: error, declared: form.deviation }),
    }
}

/// The ciphertexts of a reply as they leave: shortened, re-randomised under the client's public key, and covered with
/// noise. The randomness is derived from `secret`, `names` and all bytes of the covered data: two different
/// computations never share any, whatever their names, and repeating a computation repeats its randomness.
///
/// `error` is the error of the computation, a standard deviation of a slot, as simulated by [`crate::plan::declared`].
/// (The error that ciphertexts carry is a bound for each single step; over a model it says nothing.) A reply with a
/// larger error than `form` declares is not sealed.
///
/// The variance of a slot's error is then that of the computation plus that declared by `form`, so a plan that declares
/// twice the variance that it predicts declares what arrives.
///
/// # Errors
/// [`FheError::ReplyError`] for an error that is larger than declared or NaN; [`FheError::Ckks`] for ciphertexts of
/// other parameters, with too few primes, or with a scale or number other than in `form`.
pub fn seal_reply(
    params: &Arc<CkksParams>,
    key: &Arc<PublicKey>,
    form: &ReplyForm,
    reply: &[Ciphertext],
    error: f64,
    secret: &ReplySecret,
    names: &[&[u8]],
) -> Result<Vec<Ciphertext>, FheError> {
    covers(form, error)?;
    if reply.len() != form.ciphertexts {
        let (given, slots) = (reply.len(), form.ciphertexts);
        return Err(CkksError::TooManyValues { given, slots }.into());
    }
    let evaluator = Evaluator::without_keys(params);
    let encryptor = PublicEncryptor::new(params, key)?;
    let scale = Scale::new(form.scale)?;
    let shorten = |ct: &Ciphertext| -> Result<Ciphertext, FheError> {
        if !ct.scale().matches(scale) {
            return Err(
                CkksError::ScaleMismatch { operation: "reply", left: scale.log2(), right: ct.scale().log2() }.into()
            );
        }
        Ok(evaluator.drop_to(ct, form.limbs)?)
    };
    let short: Vec<Ciphertext> = reply.iter().map(shorten).collect::<Result<_, _>>()?;
    let bytes = Ciphertext::list_to_bytes(params, form.limbs, &short)?;
    let content = Sha256::digest(bytes);
    let names: Vec<&[u8]> = names.iter().copied().chain([content.as_slice()]).collect();
    let mut rng = secret.rng(&names);
    let seal = |ct: &Ciphertext| Ok(encryptor.rerandomise(ct, form.deviation, &mut rng)?);
    short.iter().map(seal).collect()
}

/// Whose reply is sealed: a plan, and the keys of a client.
pub struct Sealing<'a> {
    /// The plan of model or network.
    pub plan: &'a dyn Manifest,
    /// Its parameters.
    pub params: &'a Arc<CkksParams>,
    /// The client's public key.
    pub public: &'a Arc<PublicKey>,
    /// The id of the client's keys.
    pub keys: &'a Hash,
}

impl Sealing<'_> {
    /// Seals the answer to a request and writes the reply to `out`, which errors call `path`: it has the same bytes
    /// whenever it is made again. `request`: the head of the request, and the hash of its content.
    ///
    /// # Errors
    /// As [`seal_reply`]; [`FheError::File`].
    pub fn write(
        &self,
        out: impl Target,
        path: &Path,
        (head, name): (&RequestHead, &Hash),
        answer: &[Ciphertext],
        error: f64,
        secret: &ReplySecret,
    ) -> Result<Hash, FheError> {
        let (plan, keys) = (self.plan.hash(), *self.keys);
        let names: [&[u8]; 4] = [&head.id, name, &plan, &keys];
        let sealed = seal_reply(self.params, self.public, self.plan.reply(), answer, error, secret, &names)?;
        let head = ReplyHead { plan, keys, id: head.id, request: *name };
        Ok(exchange::write_reply_to(out, path, self.plan, self.params, &head, &sealed)?)
    }
}

#[cfg(test)]
mod tests {
    use hushed_ckks::keys::SecretKey;
    use hushed_ckks::{Decryptor, Encoder, Encryptor};

    use super::*;
    use crate::run::encrypted::testing::{distance, random, seeded};

    fn secret(byte: u8) -> ReplySecret {
        ReplySecret::from_bytes(Zeroizing::new([byte; 32]))
    }

    #[test]
    fn randomness_follows_from_all_names_and_the_secret() {
        let word = |secret: &ReplySecret, names: &[&[u8]]| secret.rng(names).next_u64();
        let one = word(&secret(1), &[b"id", b"hash"]);
        assert_eq!(one, word(&secret(1), &[b"id", b"hash"]));
        for other in [
            word(&secret(2), &[b"id", b"hash"]),
            word(&secret(1), &[b"idh", b"ash"]),
            word(&secret(1), &[b"id"]),
            word(&secret(1), &[b"id", b"hash", b""]),
        ] {
            assert_ne!(one, other);
        }
    }

    /// RFC 4231, case 2 has a short key; a key of 32 bytes is compared with the two hashes computed by hand.
    #[test]
    fn the_key_is_an_hmac() {
        let key = [7u8; 32];
        let mut message = b"hushed reply 1".to_vec();
        message.extend_from_slice(&2u64.to_le_bytes());
        message.extend_from_slice(b"ab");
        let block = |pad: u8| -> Vec<u8> { (0..64).map(|i| pad ^ key.get(i).copied().unwrap_or(0)).collect() };
        let inner = Sha256::digest([block(0x36), message].concat());
        let outer = Sha256::digest([block(0x5c), inner.to_vec()].concat());
        let expected = Zeroizing::new(<[u8; 32]>::from(outer));
        let mut expected = SecretRng::from_secret(&expected, "reply");
        assert_eq!(secret(7).rng(&[b"ab"]).next_u64(), expected.next_u64());
    }

    #[test]
    fn sealed_replies_open_to_the_same_numbers_and_retries_to_the_same_bytes() {
        let params = CkksParams::insecure_test(8, 4).unwrap();
        let mut rng = seeded(4);
        let sk = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let pk = Arc::new(PublicKey::generate(&sk, &mut rng));
        let encoder = Arc::new(Encoder::new(&params));
        let values = random(&mut rng, params.slots());
        let scale = params.default_scale();
        let plain = encoder.encode_real(&values, 5, scale).unwrap();
        let ct = Encryptor::new(&params, &sk).unwrap().encrypt(&plain, &mut rng).unwrap();
        let form = ReplyForm {
            ciphertexts: 1,
            limbs: fewest_limbs(&params, scale, 4.0),
            scale: scale.value(),
            magnitude: 4.0,
            deviation: 1e-4,
        };
        assert_eq!(form.limbs, 1);
        let sealed = |ct: &Ciphertext, name: &[u8]| {
            let list = std::slice::from_ref(ct);
            seal_reply(&params, &pk, &form, list, 0.0, &secret(3), &[name]).unwrap()
        };
        let seal = |name: &[u8]| sealed(&ct, name);
        let (once, again, other) = (seal(b"a"), seal(b"a"), seal(b"b"));
        // Another computation under the same name: with the same randomness, parts would differ by what was computed.
        let evaluator = Evaluator::without_keys(&params);
        let changed = evaluator.add(&ct, &ct).unwrap();
        let low = |ct: &Ciphertext| evaluator.drop_to(ct, 1).unwrap();
        let before = evaluator.sub(&low(&changed), &low(&ct)).unwrap();
        let after = evaluator.sub(&sealed(&changed, b"a")[0], &once[0]).unwrap();
        assert!(after.a() != before.a() && after.b() != before.b());
        assert!(once[0].a() == again[0].a() && once[0].b() == again[0].b());
        assert!(once[0].a() != other[0].a());
        let decryptor = Decryptor::new(&encoder, &sk).unwrap();
        let found: Vec<f64> = decryptor.decrypt_raw(&once[0]).unwrap().iter().map(|z| z.re).collect();
        // The noise is there, and no larger than declared.
        let error = distance(&found, &values);
        assert!((1e-4..1e-3).contains(&error), "{error:e}");
        let predicted = once[0].noise().deviation();
        assert!((1e-4..1.1e-4).contains(&predicted), "{predicted:e}");
        // Another number or scale does not match the plan.
        let refused = |list: &[Ciphertext]| seal_reply(&params, &pk, &form, list, 0.0, &secret(3), &[]).is_err();
        assert!(refused(&[]));
        let scaled = [ct.read_as(2.0).unwrap()];
        assert!(refused(&scaled));
    }

    /// The declared error covers that of the computation, or nothing leaves.
    #[test]
    fn c4_a_reply_that_errs_by_more_than_declared_is_not_sealed() {
        let params = CkksParams::insecure_test(8, 4).unwrap();
        let mut rng = seeded(4);
        let sk = Arc::new(SecretKey::generate(params.rlwe(), &mut rng));
        let pk = Arc::new(PublicKey::generate(&sk, &mut rng));
        let scale = params.default_scale();
        let form = ReplyForm { ciphertexts: 1, limbs: 1, scale: scale.value(), magnitude: 4.0, deviation: 1e-4 };
        let reply = [Ciphertext::zero(&params, 2, scale).unwrap()];
        let seal = |error| seal_reply(&params, &pk, &form, &reply, error, &secret(3), &[b"a"]);
        assert!(seal(0.0).is_ok() && seal(1e-4).is_ok());
        for error in [1.001e-4, 1.0, f64::INFINITY, f64::NAN] {
            match seal(error) {
                Err(FheError::ReplyError { declared, .. }) => assert_eq!(declared, 1e-4),
                _ => panic!("sealed at {error}"),
            }
        }
    }
}
