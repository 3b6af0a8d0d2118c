//! Encryption under the secret key (seeded, half the bytes) or the public key, and decryption.
//!
//! A decrypted CKKS message contains its error, and error and ciphertext together leak information about the key (Li
//! and Micciancio, EUROCRYPT 2021). Therefore:
//!
//! * [`Decryptor::decrypt`] rounds to the certified bits of the ciphertext, by the estimate of its error and by the
//!   bound that holds for every circuit, if it carries one. This hides most of the error, but guarantees nothing;
//! * [`Opening::Flooded`] adds noise after Li, Micciancio, Schultz and Sorrell (CRYPTO 2022), √(12·τ)·2^(s/2) times as
//!   wide as the whole error can be (s bits of security, τ decryptions; see `flood`), after which results may be
//!   published. It relies on the bound that ciphertexts carry through every operation ([`Noise::norm`]), not on the
//!   error estimate; without a bound, as after a bootstrap or from a file, it is refused;
//! * [`Opening::Raw`] and the functions named `raw` return everything, for results that stay with the key owner.
//!   Nothing else keeps more than the certified bits;
//! * the key counts every decryption, by whichever [`Decryptor`], and each key has a limit.

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, Eval, RnsPoly, SecretPoly};
use hushed_rlwe::{PublicKey, SecretKey};
use num_complex::Complex64;

use crate::ciphertext::Ciphertext;
use crate::encoding::Encoder;
use crate::error::CkksError;
use crate::flood::{self, Flood};
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::plaintext::Plaintext;
use crate::scale::Scale;

/// Default limit on the decryptions under one key.
pub const DECRYPTION_LIMIT: u64 = 1 << 20;

/// Bits that a coefficient may have above the scale; decryption keeps enough primes for this many.
const HEADROOM_BITS: f64 = 44.0;

/// Encryption under the secret key.
pub struct Encryptor {
    params: Arc<CkksParams>,
    key: Arc<SecretKey>,
}

/// A fresh ciphertext whose uniform part is a seed.
#[derive(Clone)]
pub struct SeededCiphertext {
    pub(crate) inner: hushed_rlwe::SeededCiphertext,
    pub(crate) scale: Scale,
    pub(crate) noise: Noise,
}

impl SeededCiphertext {
    /// Expands the uniform part.
    pub fn expand(self) -> Ciphertext {
        let hushed_rlwe::Ciphertext { b, a } = self.inner.expand();
        Ciphertext { b, a, scale: self.scale, noise: self.noise }
    }

    /// Number of primes.
    pub fn limbs(&self) -> usize {
        self.inner.b.ids().len()
    }

    /// The factor between the message and the integers.
    pub fn scale(&self) -> Scale {
        self.scale
    }

    /// The RLWE sample that sending this ciphertext publishes, for the key audit.
    pub fn published(&self) -> hushed_rlwe::audit::PublishedSample {
        self.inner.published()
    }
}

impl Encryptor {
    /// Encryption under `key`.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the key was made under another parameter set.
    pub fn new(params: &Arc<CkksParams>, key: &Arc<SecretKey>) -> Result<Self, CkksError> {
        check_basis(params, key.params().basis(), "encryptor")?;
        Ok(Self { params: params.clone(), key: key.clone() })
    }

    /// Encrypts to half the bytes of a whole ciphertext.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the message was encoded under another parameter set.
    pub fn encrypt_seeded(&self, plain: &Plaintext, rng: &mut SecretRng) -> Result<SeededCiphertext, CkksError> {
        check_basis(&self.params, plain.poly.basis(), "encrypt")?;
        Ok(SeededCiphertext {
            inner: self.key.encrypt_seeded_eval(&plain.poly, rng)?,
            scale: plain.scale,
            noise: plain.noise.encrypted(self.params.n(), plain.scale),
        })
    }

    /// Encrypts.
    ///
    /// # Errors
    /// As [`Encryptor::encrypt_seeded`].
    pub fn encrypt(&self, plain: &Plaintext, rng: &mut SecretRng) -> Result<Ciphertext, CkksError> {
        Ok(self.encrypt_seeded(plain, rng)?.expand())
    }
}

/// Encryption under the public key.
pub struct PublicEncryptor {
    params: Arc<CkksParams>,
    key: Arc<PublicKey>,
}

impl PublicEncryptor {
    /// Encryption under `key`.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the key was made under another parameter set.
    pub fn new(params: &Arc<CkksParams>, key: &Arc<PublicKey>) -> Result<Self, CkksError> {
        check_basis(params, key.params().basis(), "encryptor")?;
        Ok(Self { params: params.clone(), key: key.clone() })
    }

    /// Encrypts: adds the message to a fresh encryption of zero.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the message was encoded under another parameter set.
    pub fn encrypt(&self, plain: &Plaintext, rng: &mut SecretRng) -> Result<Ciphertext, CkksError> {
        check_basis(&self.params, plain.poly.basis(), "encrypt")?;
        let hushed_rlwe::Ciphertext { mut b, a } = self.key.encrypt_zero(rng, plain.limbs())?;
        b.add_assign(&plain.poly);
        Ok(Ciphertext { b, a, scale: plain.scale, noise: plain.noise.encrypted_publicly(self.params.n(), plain.scale) })
    }

    /// Adds a fresh encryption of zero under this key to `ct`, and noise of standard deviation `deviation` in each part
    /// of a slot, in units of the message, for a ciphertext that goes back to the key owner. The same generator state
    /// gives the same bytes.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`]; [`CkksError::FloodingTooLarge`] if it is 2^55 or more in a coefficient.
    pub fn rerandomise(&self, ct: &Ciphertext, deviation: f64, rng: &mut SecretRng) -> Result<Ciphertext, CkksError> {
        check_basis(&self.params, ct.basis(), "rerandomise")?;
        let hushed_rlwe::Ciphertext { mut b, mut a } = self.key.encrypt_zero(rng, ct.limbs())?;
        let noise = flood::noise(rng, &self.params, deviation * ct.scale.value())
            .ok_or(CkksError::FloodingTooLarge { cost_bits: deviation.log2() + ct.scale.log2(), left_bits: 0.0 })?;
        let basis = self.params.rlwe().basis();
        let noise: SecretPoly<Eval> =
            SecretPoly::new(RnsPoly::<Coeff>::from_signed(basis, b.ids(), &noise).into_eval());
        b.add_assign(noise.expose());
        b.add_assign(&ct.b);
        a.add_assign(&ct.a);
        let zero = Noise::exact(0.0).encrypted_publicly(self.params.n(), ct.scale);
        let added = flood::noise_norm(&self.params, deviation * ct.scale.value());
        Ok(Ciphertext { b, a, scale: ct.scale, noise: ct.noise.sum(zero).plus(deviation, added / ct.scale.value()) })
    }
}

/// How a decrypted message is rounded or hidden.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Opening {
    /// Rounded to the bits that the ciphertext's noise certifies ([`Noise::kept_bits`]), or else to those of the
    /// parameter set.
    Certified,
    /// Rounded to this many bits after the binary point, but no more than [`Opening::Certified`] keeps.
    Bits(u32),
    /// Unrounded, including the error. Must not be published.
    Raw,
    /// With noise that hides the error to `security` bits over `decryptions` openings, then rounded to what is left.
    Flooded {
        /// s, at least 20.
        security: u32,
        /// τ: the most decryptions of the key, of any kind. Refused once that many are made; state the same number
        /// every time.
        decryptions: u64,
    },
}

/// The result of a decryption.
#[derive(Clone)]
pub struct Opened {
    /// The slots.
    pub values: Vec<Complex64>,
    /// Bits after the binary point that the values were rounded to; `None` if raw.
    pub bits: Option<i32>,
    /// Bits of precision that flooding cost.
    pub flooding_bits: f64,
}

/// Decryption. Holds the secret key, which counts its decryptions.
pub struct Decryptor {
    encoder: Arc<Encoder>,
    key: Arc<SecretKey>,
    limit: u64,
}

impl Decryptor {
    /// Decryption under `key`, which may decrypt at most [`DECRYPTION_LIMIT`] times across all its decryptors.
    ///
    /// # Errors
    /// [`CkksError::OtherParameters`] if the key was made under another parameter set.
    pub fn new(encoder: &Arc<Encoder>, key: &Arc<SecretKey>) -> Result<Self, CkksError> {
        Self::with_limit(encoder, key, DECRYPTION_LIMIT)
    }

    /// As [`Decryptor::new`], but at most `limit` times.
    pub fn with_limit(encoder: &Arc<Encoder>, key: &Arc<SecretKey>, limit: u64) -> Result<Self, CkksError> {
        check_basis(encoder.params(), key.params().basis(), "decryptor")?;
        Ok(Self { encoder: encoder.clone(), key: key.clone(), limit })
    }

    /// Decryptions under the key so far, by all decryptors.
    pub fn opened(&self) -> u64 {
        self.key.decryptions()
    }

    /// The slots, rounded to the certified bits.
    ///
    /// # Errors
    /// [`CkksError::DecryptionsSpent`], [`CkksError::OtherParameters`].
    pub fn decrypt(&self, ct: &Ciphertext) -> Result<Vec<Complex64>, CkksError> {
        Ok(self.open(ct, Opening::Certified)?.values)
    }

    /// The unrounded slots, including the error: for results that stay with the key owner, and for tests.
    ///
    /// # Errors
    /// As [`Decryptor::decrypt`].
    pub fn decrypt_raw(&self, ct: &Ciphertext) -> Result<Vec<Complex64>, CkksError> {
        Ok(self.open(ct, Opening::Raw)?.values)
    }

    /// The slots, opened as `opening` says.
    ///
    /// # Errors
    /// As [`Decryptor::decrypt`]; for flooding also [`CkksError::FloodingSpent`] if the key has already made the number
    /// of decryptions stated, [`CkksError::FloodingTooWeak`], [`CkksError::UnknownError`] if the ciphertext carries no
    /// bound on its error ([`Noise::norm`]), [`CkksError::ErrorOutgrown`] if the bound has reached the modulus, and
    /// [`CkksError::FloodingTooLarge`].
    pub fn open(&self, ct: &Ciphertext, opening: Opening) -> Result<Opened, CkksError> {
        let mut phase = match opening {
            Opening::Flooded { decryptions, .. } if decryptions < self.limit => {
                self.phase(ct, decryptions).map_err(|error| spent(error, decryptions))?
            }
            _ => self.phase(ct, self.limit)?,
        };
        let params = self.encoder.params();
        let kept = ct.noise.kept_bits(params.slots());
        let kept = whole_bits(kept.unwrap_or(f64::from(params.certified_bits())));
        let (bits, flooding_bits) = match opening {
            Opening::Certified => (Some(kept), 0.0),
            Opening::Bits(bits) => (Some(kept.min(whole_bits(f64::from(bits)))), 0.0),
            Opening::Raw => (None, 0.0),
            Opening::Flooded { security, decryptions } => {
                let flood = Flood::new(params, ct, security, decryptions)?;
                let (cost, left) = (flood.cost, flood.left);
                let noise =
                    flood.sample(params).ok_or(CkksError::FloodingTooLarge { cost_bits: cost, left_bits: left })?;
                let ids = phase.expose().ids().to_vec();
                let noise = SecretPoly::new(RnsPoly::from_signed(params.rlwe().basis(), &ids, &noise));
                phase.expose_mut().add_assign(noise.expose());
                // The noise already hides the error; rounding only removes meaningless digits.
                (Some(whole_bits(left.ceil() + 1.0)), cost)
            }
        };
        let mut values = self.encoder.decode(phase.expose(), ct.scale);
        if let Some(bits) = bits {
            round_to(&mut values, bits);
        }
        Ok(Opened { values, bits, flooding_bits })
    }

    /// The coefficients of the message, including the error, as in [`Decryptor::decrypt_raw`].
    #[cfg(test)]
    pub(crate) fn decrypt_coefficients_raw(&self, ct: &Ciphertext) -> Result<Vec<f64>, CkksError> {
        let phase = self.phase(ct, self.limit)?;
        Ok(self.encoder.decode_coefficients(phase.expose(), ct.scale))
    }

    /// b + a·s over as few primes as the scale and [`HEADROOM_BITS`] need, two for a rescaled ciphertext. Counts the
    /// decryption; refused if the key has already made `limit`.
    fn phase(&self, ct: &Ciphertext, limit: u64) -> Result<SecretPoly<Coeff>, CkksError> {
        let params = self.encoder.params();
        check_basis(params, ct.basis(), "decrypt")?;
        // A copy of the key in a forked process would count separately.
        self.key.check_process()?;
        // Counted before anything is computed: a later refusal still costs a decryption, and no decryption is free.
        if !self.key.count_decryption(limit) {
            return Err(CkksError::DecryptionsSpent { limit });
        }
        let wanted = ct.scale.log2() + HEADROOM_BITS;
        let limbs = (1..ct.limbs()).find(|&limbs| params.rlwe().log2_q(limbs) >= wanted).unwrap_or(ct.limbs());
        let ids: Vec<usize> = (0..limbs).collect();
        let short = |poly: &RnsPoly<Eval>| poly.keep_limbs(&ids);
        let ct = hushed_rlwe::Ciphertext { b: short(&ct.b), a: short(&ct.a) };
        Ok(SecretPoly::new(self.key.decrypt_phase(&ct)?))
    }
}

/// Turns a spent decryption limit into a spent flooding limit.
fn spent(error: CkksError, decryptions: u64) -> CkksError {
    match error {
        CkksError::DecryptionsSpent { .. } => CkksError::FloodingSpent { decryptions },
        other => other,
    }
}

/// Bits to round to. No message is finer than 2^-200 or coarser than 2^1000; an error of zero gives infinitely many
/// bits.
fn whole_bits(bits: f64) -> i32 {
    bits.clamp(-1000.0, 200.0) as i32
}

/// Rounds both parts of each value to multiples of 2^-bits, with `bits` from [`whole_bits`].
fn round_to(values: &mut [Complex64], bits: i32) {
    let unit = 2f64.powi(bits);
    for value in values {
        value.re = (value.re * unit).round() / unit;
        value.im = (value.im * unit).round() / unit;
    }
}

fn check_basis(
    params: &CkksParams,
    basis: &Arc<hushed_math::RnsBasis>,
    operation: &'static str,
) -> Result<(), CkksError> {
    if params.same_ring(basis) {
        return Ok(());
    }
    Err(CkksError::OtherParameters { operation })
}

#[cfg(test)]
mod tests;
#[cfg(test)]
mod worst_tests;
