//! Responses with exact shares: turns a ciphertext into additive shares modulo an odd t, with its noise flooded
//! (BumbleBee, NDSS 2025, Algorithm 4, "SIMD").
//!
//! An error of one unit in a coefficient, which [`crate::response`] allows, would spoil every slot of a batch-encoded
//! message. So here the mask is a multiple of Q/t, and a wide uniform noise hides the ciphertext's noise.
//!
//! Input: a ciphertext of phase Q/t·m + noise over all primes under the opener's key. Output: bytes from which the
//! opener gets u, and the answerer's share v, with u + v = m modulo t in every coefficient.
//!
//! # Steps, in this order
//! 1. add a fresh encryption of zero made under the opener's public key modulo Q, used for this ciphertext only;
//! 2. add ⌊Q/t·r⌉ to b, r uniform modulo t in all N coefficients, v = −r; add to b a flood, uniform in [−2^F, 2^F);
//! 3. switch to the first k primes, modulus Q', and send the top bits of both parts.
//!
//! # What the opener sees
//! Step 3 is a function of the pair after step 2 and of public sizes, so only that pair matters, and nothing is rounded
//! before it. Its a part is pseudo-random as in [`crate::response`]. Its phase is Q/t·(m + r) + noise + flood, where
//! m + r is uniform. The noise (that of the ciphertext, that of the zero, which correlates with the a part, and the
//! rounding of r's scaling) is bounded by some B: replacing it by zero changes the distribution of a coefficient by at
//! most B/2^(F+1). F is chosen so that this is 2^-hiding per coefficient; the caller adds log2 of the number of
//! coefficients ever answered to the 40 bits that should remain. Masking after the switch would need as many bits and
//! would also have to hide the switch's rounding from the secret key.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::sync::Arc;

use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, RnsPoly, SecretPoly, sample};
use zeroize::Zeroizing;

use crate::ciphertext::Ciphertext;
use crate::error::RlweError;
use crate::keys::{PublicKey, SecretKey};
use crate::message::PrimeScale;
use crate::noise::{NoiseBound, modulus};
use crate::params::RlweParams;
use crate::truncate::Truncation;

/// The widest flood that the sampler draws, in bits.
const MAX_FLOOD_BITS: u32 = 126;

/// The sizes of a flooded response, which both parties derive from public figures.
#[derive(Clone)]
pub struct FloodedFormat {
    params: Arc<RlweParams>,
    /// Modulo all primes, for adding the mask.
    masked: PrimeScale,
    /// Modulo the response's primes, for reading the share.
    opened: PrimeScale,
    flood_bits: u32,
    truncation: Truncation,
    used: Vec<usize>,
}

impl FloodedFormat {
    /// The smallest format for shares modulo `t` from ciphertexts over all primes whose noise is at most
    /// 2^`input_noise_bits`, hidden to a statistical distance of 2^-`hiding_bits` per coefficient.
    ///
    /// # Errors
    /// [`RlweError::NoRoomForFlood`] if noise and flood leave no room for t; otherwise as [`PrimeScale::new`].
    pub fn for_prime(
        params: &Arc<RlweParams>,
        t: u64,
        input_noise_bits: u32,
        hiding_bits: u32,
    ) -> Result<Self, RlweError> {
        let all = params.q_len();
        let masked = PrimeScale::new(params, all, t)?;
        let refused = RlweError::NoRoomForFlood { t, noise_bits: input_noise_bits, hiding_bits };
        let scale_rounding = NoiseBound { bounded: 0.5, variance: 0.0 };
        let hidden =
            NoiseBound::from_bits(input_noise_bits).add(&NoiseBound::fresh_public(params)).add(&scale_rounding);
        // 2^(bits of hidden)/2^(F+1) = 2^-hiding.
        let flood_bits = hidden.bits().saturating_add(hiding_bits).saturating_sub(1);
        if flood_bits > MAX_FLOOD_BITS {
            return Err(refused);
        }
        let total = hidden.add(&NoiseBound::from_bits(flood_bits));
        for limbs in 1..=all.min(Truncation::MAX_LIMBS) {
            // Rounding t/Q'·phase is exact while the noise is below Q'/(2t).
            let capacity = modulus(params, limbs) / (2.0 * t as f64);
            let arrived = total.modulus_switch(params, all, limbs);
            if let Some((truncation, _)) = Truncation::most(params, limbs, &arrived, capacity)? {
                let opened = PrimeScale::new(params, limbs, t)?;
                let (params, used) = (params.clone(), (0..params.n()).collect());
                return Ok(Self { params, masked, opened, flood_bits, truncation, used });
            }
        }
        Err(refused)
    }

    /// The number of primes in the response's modulus.
    pub fn limbs(&self) -> usize {
        self.opened.limbs()
    }

    /// Bits sent per coefficient of a and of b.
    pub fn coefficient_bits(&self) -> (u32, u32) {
        self.truncation.widths()
    }

    /// log2 of the flood's bound.
    pub fn flood_bits(&self) -> u32 {
        self.flood_bits
    }

    /// How the parts are truncated; the same for every response of this format.
    pub fn truncation(&self) -> &Truncation {
        &self.truncation
    }

    /// The bytes of one response.
    pub fn bytes(&self) -> usize {
        self.truncation.bytes(self.params.n())
    }

    /// Answers one ciphertext: appends [`FloodedFormat::bytes`] bytes for the opener to `out` and returns the
    /// answerer's share of all N coefficients, modulo t.
    ///
    /// # Errors
    /// [`RlweError::IncompatibleParameters`] or [`RlweError::Limbs`] if ciphertext, key and format do not match;
    /// `RlweError::LimbCount` unless `ct` has all primes.
    pub fn answer(
        &self,
        ct: &Ciphertext,
        key: &PublicKey,
        rng: &mut SecretRng,
        out: &mut Vec<u8>,
    ) -> Result<Vec<u64>, RlweError> {
        ct.check(&self.params)?;
        let all = self.params.q_len();
        if ct.limbs() != all {
            return Err(RlweError::LimbCount { given: ct.limbs(), available: all });
        }
        let (mut b, mut a) = key.add_zero(ct.clone(), rng)?;
        let t = self.masked.modulus();
        let mut share = Zeroizing::new(vec![0; self.params.n()]);
        sample::uniform(rng, t, &mut share);
        let mask = SecretPoly::new(self.masked.scale_up(&share)?);
        b.add_assign(mask.expose());
        b.add_assign(self.flood(rng).expose());
        share.iter_mut().for_each(|v| *v = t.neg(*v));
        while b.ids().len() > self.limbs() {
            b = b.divide_by_last_and_round();
            a = a.divide_by_last_and_round();
        }
        self.truncation.write(&b, &a, &self.used, out)?;
        Ok(std::mem::take(&mut *share))
    }

    /// Opens a response of exactly [`FloodedFormat::bytes`] bytes: the opener's share of all coefficients, modulo t.
    ///
    /// # Errors
    /// [`RlweError::Codec`] for another length or values out of range.
    pub fn open(&self, bytes: &[u8], key: &SecretKey) -> Result<Vec<u64>, RlweError> {
        let (b, a) = self.truncation.read(bytes, &self.used)?;
        let phase = SecretPoly::new(key.phase(b, a)?);
        self.opened.scale_down(phase.expose())
    }

    /// Uniform integers in [−2^F, 2^F), modulo all primes.
    pub(crate) fn flood(&self, rng: &mut SecretRng) -> SecretPoly<Coeff> {
        let n = self.params.n();
        let mut words = Zeroizing::new(vec![0; 2 * n]);
        rng.fill_words(&mut words);
        let ids = self.params.ciphertext_ids(self.params.q_len());
        let mut flood = SecretPoly::new(RnsPoly::zero(self.params.basis(), &ids));
        let below = 2u128 << self.flood_bits;
        for &id in &ids {
            let m = self.params.basis().modulus(id);
            let offset = m.reduce_u128(below >> 1);
            let limb = flood.expose_mut().limb_mut(id);
            for (out, pair) in limb.iter_mut().zip(words.chunks_exact(2)) {
                let wide = pair.iter().fold(0u128, |wide, &w| wide << 64 | u128::from(w));
                *out = m.sub(m.reduce_u128(wide & (below - 1)), offset);
            }
        }
        flood
    }
}
