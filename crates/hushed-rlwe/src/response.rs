//! A server's response: a ciphertext turned into additive shares, one for each party (BumbleBee, NDSS 2025, Algorithm
//! 4, "Coeff").
//!
//! Input: a ciphertext of phase ⌊Q/2^ℓ·m⌉ + noise under the opener's key. Output: bytes from which the opener gets u,
//! and the answerer's share v, with u + v = m + e modulo 2^ℓ and |e| ≤ 1.
//!
//! # Steps, in this order
//! 1. switch to the first k primes, modulus Q', the fewest that keep the bound below;
//! 2. add a fresh encryption of zero made under the opener's public key modulo Q', used for this ciphertext only;
//! 3. add r, uniform on all N coefficients modulo Q', to b; v = −⌊2^ℓ·r/Q'⌉;
//! 4. keep the requested b coefficients, and only the top bits of b and of a.
//!
//! # What the opener sees
//! Let (a', b') be the pair after step 3. What is sent is a function of (a', b') and of public sizes only: the
//! truncations of step 4 round a' and b' and nothing else, and step 1 happens before any masking, so its rounding is
//! part of the pair that gets masked.
//! * b' = … + r with r uniform on R_Q', independent of everything and used nowhere else: b' is uniform given a' and all
//!   inputs of the answerer. Coefficients that are not requested are dropped after masking.
//! * a' = a + (u·pk_a + e_2) with u, e_2 fresh. The only other use of u is in b', which r hides. So (pk_a, u·pk_a +
//!   e_2) is one RLWE sample with a dense ternary secret modulo Q', and a' is pseudo-random given the opener's own
//!   secret key. Two responses that shared one zero would reveal a_1 − a_2, a linear function of the answerer's
//!   plaintexts; therefore the zero is made inside [`ResponseFormat::answer_parts`] and cannot be passed in. An
//!   encryption of zero supplied by the key's owner would hide nothing.
//!
//! A simulator sends truncations of uniform polynomials. The error e is a function of b' and of the noise; it enters
//! the shares as part of the functionality (H2A with an error of one unit) and is sent to no one.
//!
//! # The bound
//! With t = 2^ℓ·r/Q' and δ = 2^ℓ·noise'/Q', u + v − m = ⌊t + δ⌉ − ⌊t⌉, which is −1, 0 or 1 if |δ| ≤ 1. noise' collects
//! the switched input noise, the rounding of the switch, the fresh zero and both truncations, and is kept below Q'/2^ℓ;
//! a coefficient exceeds it with probability at most 2^-70 (plus what the caller's bound on the input noise allows).
//! The bound assumes that the rounding errors of pseudo-random `a` parts are independent and uniform, a heuristic (see
//! [`crate::noise`]).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, RnsPoly, SecretPoly};
use zeroize::Zeroizing;

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::keys::{PublicKey, SecretKey};
use crate::message::{RingScale, check_limbs};
use crate::noise::{NoiseBound, modulus, power_of_two};
use crate::params::RlweParams;
use crate::truncate::Truncation;

/// The requested coefficients of a response; both parties know them from the shapes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Positions(Vec<usize>);

impl Positions {
    /// All N coefficients.
    pub fn all(params: &RlweParams) -> Self {
        Self((0..params.n()).collect())
    }

    /// Strictly increasing positions below N.
    ///
    /// # Errors
    /// [`RlweError::Positions`].
    pub fn new(params: &RlweParams, positions: Vec<usize>) -> Result<Self, RlweError> {
        let n = params.n();
        let increasing = positions.windows(2).all(|w| w.first() < w.last());
        if !increasing || positions.last().is_some_and(|&last| last >= n) {
            return Err(RlweError::Positions { n });
        }
        Ok(Self(positions))
    }

    /// The positions, ascending.
    pub fn as_slice(&self) -> &[usize] {
        &self.0
    }

    /// The number of positions.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no positions.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

/// The sizes of a response, which both parties derive from public figures.
#[derive(Clone)]
pub struct ResponseFormat {
    params: Arc<RlweParams>,
    input_limbs: usize,
    scale: RingScale,
    truncation: Truncation,
    noise: NoiseBound,
}

impl ResponseFormat {
    /// The smallest format for `ell`-bit shares from ciphertexts over all primes whose noise is at most
    /// 2^`input_noise_bits`.
    ///
    /// # Errors
    /// [`RlweError::NoRoomForResponse`] if even two primes leave no room; [`RlweError::RingBits`].
    pub fn for_ring(params: &Arc<RlweParams>, ell: u32, input_noise_bits: u32) -> Result<Self, RlweError> {
        Self::for_ring_at(params, params.q_len(), ell, input_noise_bits)
    }

    /// As [`ResponseFormat::for_ring`], from ciphertexts over the first `input_limbs` primes.
    ///
    /// # Errors
    /// As [`ResponseFormat::for_ring`]; [`RlweError::LimbCount`].
    pub fn for_ring_at(
        params: &Arc<RlweParams>,
        input_limbs: usize,
        ell: u32,
        input_noise_bits: u32,
    ) -> Result<Self, RlweError> {
        if input_limbs == 0 || input_limbs > params.q_len() {
            return Err(RlweError::LimbCount { given: input_limbs, available: params.q_len() });
        }
        let input = NoiseBound::from_bits(input_noise_bits);
        for limbs in 1..=input_limbs.min(Truncation::MAX_LIMBS) {
            let scale = RingScale::new(params, limbs, ell)?;
            let capacity = modulus(params, limbs) / power_of_two(ell);
            let arrived = input.modulus_switch(params, input_limbs, limbs).add(&NoiseBound::fresh_public(params));
            if let Some((truncation, noise)) = Truncation::most(params, limbs, &arrived, capacity)? {
                return Ok(Self { params: params.clone(), input_limbs, scale, truncation, noise });
            }
        }
        Err(RlweError::NoRoomForResponse { ell, noise_bits: input_noise_bits, limbs: input_limbs })
    }

    /// The bits of a share.
    pub fn ell(&self) -> u32 {
        self.scale.ell()
    }

    /// The number of primes in the response's modulus.
    pub fn limbs(&self) -> usize {
        self.scale.limbs()
    }

    /// Bits sent per coefficient of a and of b.
    pub fn coefficient_bits(&self) -> (u32, u32) {
        self.truncation.widths()
    }

    /// The noise of the opened response, at most Q'/2^ℓ.
    pub fn noise(&self) -> NoiseBound {
        self.noise
    }

    /// How the parts are truncated; the same for every response of this format.
    pub fn truncation(&self) -> &Truncation {
        &self.truncation
    }

    /// The bytes of one response with `used` coefficients.
    pub fn bytes(&self, used: usize) -> usize {
        self.truncation.bytes(used)
    }

    /// Answers one ciphertext: appends [`ResponseFormat::bytes`] bytes for the opener to `out` and returns
    /// the answerer's share of the coefficients at `used`.
    ///
    /// # Errors
    /// [`RlweError::IncompatibleParameters`] or [`RlweError::Limbs`] if ciphertext, key and format do not match.
    pub fn answer(
        &self,
        ct: &Ciphertext,
        key: &PublicKey,
        used: &Positions,
        rng: &mut SecretRng,
        out: &mut Vec<u8>,
    ) -> Result<Vec<u64>, RlweError> {
        let parts = [&ct.b, &ct.a].map(|part| part.clone().into_coeff());
        self.answer_parts(parts, key, used, rng, out)
    }

    /// As [`ResponseFormat::answer`], for the parts b and a in coefficient form, as interleaving returns them.
    ///
    /// # Errors
    /// As [`ResponseFormat::answer`].
    pub fn answer_parts(
        &self,
        parts: [RnsPoly<Coeff>; 2],
        key: &PublicKey,
        used: &Positions,
        rng: &mut SecretRng,
        out: &mut Vec<u8>,
    ) -> Result<Vec<u64>, RlweError> {
        for part in &parts {
            check_limbs(&self.params, part, self.input_limbs)?;
        }
        // Both parts are switched, hidden and masked in place: no memory keeps them unmasked.
        let [mut b, mut a] = parts.map(|mut part| {
            while part.ids().len() > self.limbs() {
                part = part.divide_by_last_and_round();
            }
            part
        });
        let (zero_b, zero_a) = key.add_zero(Ciphertext::zero(&self.params, self.limbs()), rng)?;
        b.add_assign(SecretPoly::new(zero_b).expose());
        a.add_assign(SecretPoly::new(zero_a).expose());
        let mask = self.mask(rng);
        b.add_assign(mask.expose());
        let mut share = Zeroizing::new(self.scale.scale_down_at(mask.expose(), used.as_slice())?);
        let ring = u64::MAX >> (64 - self.ell());
        share.iter_mut().for_each(|v| *v = v.wrapping_neg() & ring);
        self.truncation.write(&b, &a, used.as_slice(), out)?;
        Ok(std::mem::take(&mut *share))
    }

    /// Opens a response of exactly [`ResponseFormat::bytes`] bytes: the opener's share of the coefficients at `used`.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for another length or values out of range.
    pub fn open(&self, bytes: &[u8], key: &SecretKey, used: &Positions) -> Result<Vec<u64>, RlweError> {
        let (b, a) = self.truncation.read(bytes, used.as_slice())?;
        let phase = SecretPoly::new(key.phase(b, a)?);
        self.scale.scale_down_at(phase.expose(), used.as_slice())
    }

    /// Uniform on R_Q'.
    fn mask(&self, rng: &mut SecretRng) -> SecretPoly<Coeff> {
        let ids = self.params.ciphertext_ids(self.limbs());
        let mut mask = SecretPoly::new(RnsPoly::scratch(self.params.basis(), &ids));
        for &id in &ids {
            let limb = mask.expose_mut().limb_mut(id);
            hushed_math::sample::uniform(rng, self.params.basis().modulus(id), limb);
        }
        mask
    }
}
