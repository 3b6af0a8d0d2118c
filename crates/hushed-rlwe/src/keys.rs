//! Keys: the secret s, the public key for encryptions of zero, and Galois keys for hybrid key switching.
//!
//! * s is dense ternary, kept in evaluation form over all primes.
//! * Public key: (b, a) with b = −a·s + e modulo Q.
//! * Galois key of g: for every digit, a few consecutive ciphertext primes, a pair modulo Q·P with b_i = −a_i·s + e_i +
//!   w_i·s(X^g), where w_i is P modulo the primes of the digit and 0 modulo every other ([`crate::galois`]). Restricted
//!   to a prefix of the q primes (and P) it is a key for that prefix, so one key serves ciphertexts of every length.
//!
//! Uniform parts are seeds on the wire and expanded in memory. In the Galois keys s encrypts functions of itself, the
//! usual circular-security assumption.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod proof;
mod stored;

pub use proof::{KeyEquation, WITNESS_BITS};

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hushed_math::process::Origin;
use hushed_math::rng::{PublicSeed, SecretRng};
use hushed_math::{Coeff, Eval, MathError, RnsPoly, SecretPoly, sample};

use crate::ciphertext::{StreamDomain, small, uniform};
use crate::codec::{Kind, Reader, SEED_BYTES, open_artefact, poly_bytes, write_header, write_poly};
use crate::error::{CodecError, RlweError};
use crate::galois::{GaloisKey, KeyDigit, KeyShape};
use crate::interleave::{PreparedSwitches, Workspace};
use crate::params::RlweParams;

/// The secret key. Neither `Debug` nor `Clone`; erased on drop. Its bytes ([`SecretKey::to_bytes`]) are only for its
/// owner's file.
///
/// It works only in the process that made or read it, because a forked process would count its decryptions separately.
/// There, operations return [`hushed_math::MathError::Forked`], and those that return no error panic.
pub struct SecretKey {
    origin: Origin,
    params: Arc<RlweParams>,
    s: SecretPoly<Eval>,
    /// Decryptions that reveal something about the key, as counted by the caller.
    decryptions: AtomicU64,
}

impl SecretKey {
    /// A fresh dense ternary secret.
    ///
    /// # Panics
    /// If `rng` was made in another process, from which this one was forked.
    pub fn generate(params: &Arc<RlweParams>, rng: &mut SecretRng) -> Self {
        let coefficients = sample::ternary(rng, params.n());
        let ids: Vec<usize> = (0..params.basis().len()).collect();
        let s = small(params.basis(), &ids, &coefficients).into_eval();
        Self { origin: Origin::here(), params: params.clone(), s: SecretPoly::new(s), decryptions: AtomicU64::new(0) }
    }

    /// The number of decryptions counted so far.
    pub fn decryptions(&self) -> u64 {
        self.decryptions.load(Ordering::Relaxed)
    }

    /// Counts a decryption and returns true, or returns false if there were already `limit` or more. For schemes whose
    /// results reveal something about the key (CKKS); exact messages do not, and are not counted.
    #[must_use]
    pub fn count_decryption(&self, limit: u64) -> bool {
        let more = |count: u64| (count < limit).then(|| count + 1);
        self.decryptions.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// The parameters of this key.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// Checks that this process made the key.
    ///
    /// # Errors
    /// [`hushed_math::MathError::Forked`].
    pub fn check_process(&self) -> Result<(), RlweError> {
        Ok(self.origin.check()?)
    }

    /// s in evaluation form over all primes.
    pub(crate) fn s(&self) -> &RnsPoly<Eval> {
        self.origin.insist("secret key");
        self.s.expose()
    }

    /// e − a·s over the primes of `a`, with fresh e: the masked part of every sample under this key.
    pub(crate) fn mask(&self, a: &RnsPoly<Eval>, rng: &mut SecretRng) -> RnsPoly<Eval> {
        self.hide(self.error(a.ids(), rng), a)
    }

    /// A fresh error.
    pub(crate) fn error(&self, ids: &[usize], rng: &mut SecretRng) -> RnsPoly<Coeff> {
        let e = sample::centred_binomial(rng, self.params.n());
        small(self.params.basis(), ids, &e)
    }

    /// `message` − a·s.
    pub(crate) fn hide(&self, message: RnsPoly<Coeff>, a: &RnsPoly<Eval>) -> RnsPoly<Eval> {
        let mut b = message.into_eval();
        for (j, &id) in a.ids().iter().enumerate() {
            let pointwise = self.params.basis().ntt(id).pointwise();
            // Negates before and after the fused step instead of holding a copy of a.
            let b = b.limb_mut(j);
            pointwise.neg_assign(b);
            pointwise.mul_add_assign(b, a.limb(j), self.s().limb(id));
            pointwise.neg_assign(b);
        }
        b
    }
}

/// The public key: an encryption of zero modulo Q whose uniform part is given by a seed.
pub struct PublicKey {
    params: Arc<RlweParams>,
    seed: PublicSeed,
    pub(crate) b: RnsPoly<Eval>,
    pub(crate) a: RnsPoly<Eval>,
}

impl PublicKey {
    /// The public key of `sk`.
    ///
    /// # Panics
    /// If `sk` or `rng` was made in another process, from which this one was forked.
    pub fn generate(sk: &SecretKey, rng: &mut SecretRng) -> Self {
        let params = sk.params().clone();
        let seed = rng.public_seed();
        let a = Self::uniform_part(&params, &seed);
        let b = sk.mask(&a, rng);
        Self { params, seed, b, a }
    }

    /// The parameters of this key.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    fn uniform_part(params: &RlweParams, seed: &PublicSeed) -> RnsPoly<Eval> {
        let ids = params.ciphertext_ids(params.q_len());
        uniform(seed, StreamDomain::PublicKey, params.basis(), &ids)
    }

    fn payload_bytes(params: &RlweParams) -> usize {
        SEED_BYTES + poly_bytes(params.basis(), &params.ciphertext_ids(params.q_len()))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.0);
        write_poly(out, &self.b);
    }

    fn read(params: &Arc<RlweParams>, reader: &mut Reader<'_>) -> Result<Self, CodecError> {
        let seed = reader.seed()?;
        let ids = params.ciphertext_ids(params.q_len());
        let b = reader.poly(params.basis(), &ids)?;
        let a = Self::uniform_part(params, &seed);
        Ok(Self { params: params.clone(), seed, b, a })
    }
}

/// Expanded Galois keys, by element.
pub struct GaloisKeys {
    params: Arc<RlweParams>,
    shape: KeyShape,
    seed: PublicSeed,
    keys: BTreeMap<usize, GaloisKey>,
    /// For ciphertexts of 1, 2, … primes.
    switches: Vec<PreparedSwitches>,
    /// Memory of idle nodes.
    idle: Mutex<Vec<Workspace>>,
}

impl GaloisKeys {
    /// Keys for the automorphisms X → X^g, g in `elements` (duplicates are ignored), for ciphertexts of at most `limbs`
    /// primes: any other primes serve as special primes, and digits are longer.
    ///
    /// # Errors
    /// [`RlweError::NoSpecialPrime`], [`RlweError::NotAGaloisElement`], [`RlweError::LimbCount`].
    pub fn generate(sk: &SecretKey, elements: &[usize], limbs: usize, rng: &mut SecretRng) -> Result<Self, RlweError> {
        sk.check_process()?;
        rng.check()?;
        let params = sk.params().clone();
        check_elements(&params, elements)?;
        check_count(&params, limbs)?;
        let shape = KeyShape::new(&params, limbs);
        let seed = rng.public_seed();
        let mut keys = BTreeMap::new();
        for &g in elements {
            if keys.contains_key(&g) {
                continue;
            }
            let turned = SecretPoly::new(sk.s().automorphism(g));
            let digits = shape.digits(limbs).into_iter().enumerate();
            let digits = digits.map(|(digit, own)| {
                let a = digit_uniform(&params, &shape, &seed, g, digit);
                let mut b = sk.mask(&a, rng);
                // Limb i is prime q_i.
                for i in own {
                    let weight = params.product_modulo(shape.special().iter().copied(), i);
                    let pointwise = params.basis().ntt(i).pointwise();
                    let mut gadget = SecretPoly::new(turned.expose().keep_limbs(&[i]));
                    pointwise.mul_scalar_assign(gadget.expose_mut().limb_mut(0), weight);
                    pointwise.add_assign(b.limb_mut(i), gadget.expose().limb(0));
                }
                KeyDigit { b, a }
            });
            let key = GaloisKey { permutation: params.basis().automorphism(g), digits: digits.collect() };
            keys.insert(g, key);
        }
        Ok(Self::new(params, shape, seed, keys)?)
    }

    fn new(
        params: Arc<RlweParams>,
        shape: KeyShape,
        seed: PublicSeed,
        keys: BTreeMap<usize, GaloisKey>,
    ) -> Result<Self, MathError> {
        // Without a special prime there are no keys.
        let lengths = match keys.is_empty() {
            true => 0..0,
            false => 0..shape.limbs(),
        };
        let switches = lengths.map(|limbs| PreparedSwitches::new(&params, &shape, limbs + 1));
        Ok(Self { switches: switches.collect::<Result<_, _>>()?, params, shape, seed, keys, idle: Mutex::default() })
    }

    /// The parameters of these keys.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    /// The most primes of a ciphertext that these keys serve.
    pub fn limbs(&self) -> usize {
        self.shape.limbs()
    }

    /// The elements, ascending.
    pub fn elements(&self) -> Vec<usize> {
        self.keys.keys().copied().collect()
    }

    pub(crate) fn shape(&self) -> &KeyShape {
        &self.shape
    }

    pub(crate) fn get(&self, element: usize) -> Result<&GaloisKey, RlweError> {
        self.keys.get(&element).ok_or(RlweError::MissingGaloisKey { element })
    }

    /// The key switches for ciphertexts of `limbs` primes.
    pub(crate) fn switches(&self, limbs: usize) -> Result<&PreparedSwitches, RlweError> {
        let switches = limbs.checked_sub(1).and_then(|place| self.switches.get(place));
        switches.ok_or(RlweError::LimbCount { given: limbs, available: self.switches.len() })
    }

    /// Runs `f` with the memory of one node.
    pub(crate) fn with_workspace<T>(&self, f: impl FnOnce(&mut Workspace) -> T) -> Result<T, RlweError> {
        // Its contents do not outlive a call, so leftovers of a panicked thread do no harm.
        let idle = || self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = idle().pop();
        let mut workspace = match kept {
            Some(workspace) => workspace,
            None => Workspace::new(&self.params, self.switches(self.switches.len())?),
        };
        let done = f(&mut workspace);
        idle().push(workspace);
        Ok(done)
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = (usize, &GaloisKey)> {
        self.keys.iter().map(|(&g, key)| (g, key))
    }

    fn payload_bytes(params: &RlweParams, elements: usize, limbs: usize) -> usize {
        let shape = KeyShape::new(params, limbs);
        let digit = poly_bytes(params.basis(), &shape.ids(limbs));
        let digits = elements.saturating_mul(shape.digits(limbs).len());
        SEED_BYTES.saturating_add(digits.saturating_mul(digit))
    }

    fn write(&self, out: &mut Vec<u8>) {
        out.extend_from_slice(&self.seed.0);
        for digit in self.keys.values().flat_map(|key| &key.digits) {
            write_poly(out, &digit.b);
        }
    }

    fn read(
        params: &Arc<RlweParams>,
        elements: &[usize],
        limbs: usize,
        reader: &mut Reader<'_>,
    ) -> Result<Self, RlweError> {
        let seed = reader.seed()?;
        let shape = KeyShape::new(params, limbs);
        let ids = shape.ids(limbs);
        let mut keys = BTreeMap::new();
        for &g in elements {
            let digits = (0..shape.digits(limbs).len())
                .map(|digit| {
                    let b = reader.poly(params.basis(), &ids)?;
                    Ok(KeyDigit { b, a: digit_uniform(params, &shape, &seed, g, digit) })
                })
                .collect::<Result<_, CodecError>>()?;
            keys.insert(g, GaloisKey { permutation: params.basis().automorphism(g), digits });
        }
        Ok(Self::new(params.clone(), shape, seed, keys)?)
    }
}

/// Everything that the owner of a secret key publishes, once per session.
pub struct KeySet {
    /// For fresh encryptions of zero by the response's sender.
    pub public: PublicKey,
    /// For packing.
    pub galois: GaloisKeys,
}

impl KeySet {
    /// The public key and the Galois keys for `elements` (empty if the parameters have no special prime), for
    /// ciphertexts of at most `limbs` primes.
    ///
    /// # Errors
    /// As [`GaloisKeys::generate`].
    pub fn generate(sk: &SecretKey, elements: &[usize], limbs: usize, rng: &mut SecretRng) -> Result<Self, RlweError> {
        sk.check_process()?;
        rng.check()?;
        let public = PublicKey::generate(sk, rng);
        Ok(Self { public, galois: GaloisKeys::generate(sk, elements, limbs, rng)? })
    }

    /// Bytes of a key set for this many distinct elements and ciphertexts of at most `limbs` primes.
    pub fn bytes(params: &RlweParams, elements: usize, limbs: usize) -> usize {
        let galois = GaloisKeys::payload_bytes(params, elements, limbs);
        crate::codec::HEADER_BYTES.saturating_add(PublicKey::payload_bytes(params)).saturating_add(galois)
    }

    /// Encodes the key set.
    pub fn to_bytes(&self) -> Vec<u8> {
        let params = self.public.params();
        let total = Self::bytes(params, self.galois.keys.len(), self.galois.limbs());
        let mut out = Vec::with_capacity(total);
        write_header(&mut out, Kind::KeySet, params, total - crate::codec::HEADER_BYTES);
        self.public.write(&mut out);
        self.galois.write(&mut out);
        out
    }

    /// Decodes a key set for exactly these elements, in any order, each once, and ciphertexts of at most `limbs`
    /// primes.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for any other bytes, [`RlweError::NotAGaloisElement`], [`RlweError::NoSpecialPrime`],
    /// [`RlweError::LimbCount`].
    pub fn from_bytes(
        params: &Arc<RlweParams>,
        elements: &[usize],
        limbs: usize,
        bytes: &[u8],
    ) -> Result<Self, RlweError> {
        check_elements(params, elements)?;
        check_count(params, limbs)?;
        let mut sorted = elements.to_vec();
        sorted.sort_unstable();
        sorted.dedup();
        let payload =
            PublicKey::payload_bytes(params).saturating_add(GaloisKeys::payload_bytes(params, sorted.len(), limbs));
        let mut reader = open_artefact(bytes, Kind::KeySet, params, payload)?;
        let public = PublicKey::read(params, &mut reader)?;
        let galois = GaloisKeys::read(params, &sorted, limbs, &mut reader)?;
        reader.finish()?;
        Ok(Self { public, galois })
    }
}

fn digit_uniform(
    params: &RlweParams,
    shape: &KeyShape,
    seed: &PublicSeed,
    element: usize,
    digit: usize,
) -> RnsPoly<Eval> {
    let ids = shape.ids(shape.limbs());
    uniform(seed, StreamDomain::Galois { element, digit }, params.basis(), &ids)
}

fn check_elements(params: &RlweParams, elements: &[usize]) -> Result<(), RlweError> {
    if params.special_prime().is_none() && !elements.is_empty() {
        return Err(RlweError::NoSpecialPrime);
    }
    let n = params.n();
    let bad = elements.iter().find(|&&g| g % 2 == 0 || g >= 2 * n);
    bad.map_or(Ok(()), |&element| Err(RlweError::NotAGaloisElement { element, n }))
}

fn check_count(params: &RlweParams, limbs: usize) -> Result<(), RlweError> {
    let available = params.q_len();
    if (1..=available).contains(&limbs) {
        return Ok(());
    }
    Err(RlweError::LimbCount { given: limbs, available })
}
