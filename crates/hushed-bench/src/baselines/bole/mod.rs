//! Batched oblivious linear evaluation with error (BumbleBee, NDSS 2025, §IV, Algorithm 2): x ⊙ y modulo 2^ℓ from a
//! vector x of one party and a vector y of the other. [`shares`] builds products of shares on it.
//!
//! Vectors are carried in the slots of the ring modulo T = t_0·t_1·…, with 43-bit primes t_i ≡ 1 mod 2N. 2^ℓ is
//! *lifted* to T, Lift(x) = ⌊T/2^ℓ·x⌉, so that Lift(x)·y counts modulo 2^ℓ on top of modulo T, and a uniform mask
//! modulo T needs no statistical slack. With |y| ≤ 2^(ℓ−1) the rounding of Lift weighs 2^ℓ/T·2^(ℓ−1)/2 ≤ 1/8 if T >
//! 2^(2ℓ+1), and the roundings of both shares 1/2 each: the result is off by at most one unit.
//!
//! A slot must not be off by a unit modulo t, so responses are flooded instead of masked over the whole ciphertext
//! modulus ([`hushed_rlwe::FloodedFormat`]). The preset `ole` has four 41-bit primes: noise of 2^55 (the error of a
//! fresh ciphertext times N coefficients of 42 bits), [`HIDING_BITS`] more for the flood, and t fit below 2^164. Three
//! 50-bit primes would be 14 bits short.
//!
//! Messages: for every N elements a frame of seeded ciphertexts, one per t, and a frame of responses for each of these.
//! A ciphertext once sent can be multiplied again ([`Sent`]): an odd power of a polynomial costs responses only.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub mod shares;
#[cfg(test)]
mod tests;

use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, RnsPoly, SecretPoly};
use hushed_net::{Expect, Kind, Session};
use hushed_rlwe::{
    Ciphertext, FloodedFormat, KeySet, NoiseBound, PrimeScale, RingScale, RlweError, RlweLiteral, RlweParams,
    SecretKey, SeededCiphertext,
};
use hushed_twopc::he::HeError;
use hushed_twopc::{Ctx, Ring, Share, TwopcError};
use rayon::prelude::*;
use std::sync::Arc;
use zeroize::Zeroizing;

/// Bound on the statistical distance of an answered coefficient from one without noise, as −log2: 2^-40 remain for an
/// inference of 2^24 answered coefficients, 5.5 million products at ℓ = 64. The largest for which the preset has room.
pub const HIDING_BITS: u32 = 64;

const KEYS: Kind = Kind(0x0710);
const INPUT: Kind = Kind(0x0711);
const RESPONSE: Kind = Kind(0x0712);

/// The largest primes below 2^43 that are 1 modulo 2^14.
const T: [u64; 3] = [0x7ff_fffd_8001, 0x7ff_fffc_8001, 0x7ff_fffa_8001];

/// One party's keys for batched products.
pub struct OleContext {
    params: Arc<RlweParams>,
    own: SecretKey,
    peer: KeySet,
    /// The ring modulo T as a basis: slots, Lift and Down.
    plain: Arc<RlweParams>,
    channels: Vec<Channel>,
}

/// The data for one t.
struct Channel {
    scale: PrimeScale,
    format: FloodedFormat,
}

impl OleContext {
    /// Generates this party's key and exchanges public keys: one message each way, [`OleContext::exchange_bytes`]
    /// bytes.
    ///
    /// # Errors
    /// Those of the session; [`TwopcError::Rlwe`] if the peer's bytes are not a key.
    pub fn exchange(session: &mut Session, rng: &mut SecretRng) -> Result<Self, TwopcError> {
        rng.check().map_err(RlweError::from)?;
        let mut rng = rng.fork("ole keys");
        let params = RlweParams::ole().map_err(RlweError::from)?;
        let own = SecretKey::generate(&params, &mut rng);
        let published = KeySet::generate(&own, &[], params.q_len(), &mut rng)?;
        session.send_vec(KEYS, published.to_bytes())?;
        let received = session.recv(KEYS, Expect::Exactly(Self::exchange_bytes(&params)))?;
        let peer = KeySet::from_bytes(&params, &[], params.q_len(), &received)?;
        let plain = RlweLiteral { log_n: params.log_n(), q: T.to_vec(), p: Vec::new() };
        let plain = RlweParams::new(plain).map_err(RlweError::from)?;
        let channels = T.iter().map(|&t| Channel::new(&params, t)).collect::<Result<_, _>>()?;
        Ok(Self { params, own, peer, plain, channels })
    }

    /// Payload bytes that each party sends in the exchange.
    pub fn exchange_bytes(params: &RlweParams) -> usize {
        KeySet::bytes(params, 0, params.q_len())
    }

    /// The parameters of the ciphertexts.
    pub fn params(&self) -> &Arc<RlweParams> {
        &self.params
    }

    fn slots(&self) -> usize {
        self.params.n()
    }

    fn blocks(&self, n: usize) -> usize {
        n.div_ceil(self.slots())
    }

    fn input_bytes(&self, primes: usize) -> usize {
        SeededCiphertext::list_bytes(&self.params, self.params.q_len(), primes)
    }

    fn response_bytes(&self, primes: usize) -> usize {
        self.channels.iter().take(primes).map(|c| c.format.bytes()).sum()
    }

    fn lift(&self, ring: Ring) -> Result<RingScale, RlweError> {
        RingScale::new(&self.plain, primes(ring), ring.bits())
    }
}

impl Channel {
    fn new(params: &Arc<RlweParams>, t: u64) -> Result<Self, RlweError> {
        let magnitude = (t / 2) as f64;
        let noise = NoiseBound::fresh_secret().plain_product(magnitude, params.n());
        Ok(Self {
            scale: PrimeScale::new(params, params.q_len(), t)?,
            format: FloodedFormat::for_prime(params, t, noise.bits(), HIDING_BITS)?,
        })
    }
}

/// The number of primes t that products in `ring` need: T > 2^(2ℓ+1), with every t above 2^42.99.
fn primes(ring: Ring) -> usize {
    match ring.bits() {
        0..=20 => 1,
        21..=42 => 2,
        _ => 3,
    }
}

/// Ciphertexts of the peer's vector, which can be multiplied any number of times.
pub struct Sent {
    ring: Ring,
    len: usize,
    blocks: Vec<Vec<Ciphertext>>,
}

fn expect_words(words: &[u64], expected: usize) -> Result<(), HeError> {
    if words.len() == expected {
        return Ok(());
    }
    Err(HeError::Operand { expected, found: words.len() })
}

/// Sends an encryption of this party's `x`.
pub fn send_encrypted(ctx: &mut Ctx, ole: &OleContext, ring: Ring, x: &[u64]) -> Result<(), TwopcError> {
    ctx.check_process()?;
    let lift = ole.lift(ring)?;
    let all = ole.params.q_len();
    let encrypt = |chunk: &[u64], mut rng: SecretRng| -> Result<Vec<u8>, TwopcError> {
        let mut padded = Zeroizing::new(chunk.to_vec());
        padded.resize(ole.slots(), 0);
        let mut slots = SecretPoly::new(lift.scale_up(&padded)?);
        let list = ole.channels.iter().enumerate().take(primes(ring)).map(|(i, channel)| {
            let values = slots.expose_mut().limb_mut(i);
            ole.plain.basis().ntt(i).inverse(values);
            ole.own.encrypt_seeded(channel.scale.scale_up(values)?, &mut rng)
        });
        let list = list.collect::<Result<Vec<_>, RlweError>>()?;
        Ok(SeededCiphertext::list_to_bytes(&ole.params, all, &list)?)
    };
    let chunks: Vec<&[u64]> = x.chunks(ole.slots()).collect();
    for some in chunks.chunks(rayon::current_num_threads()) {
        let jobs: Vec<_> = some.iter().map(|&c| (c, ctx.rng.fork("ole input"))).collect();
        let frames: Vec<_> = jobs.into_par_iter().map(|(c, rng)| encrypt(c, rng)).collect();
        for frame in frames {
            ctx.session.send_vec(INPUT, frame?)?;
        }
    }
    Ok(())
}

/// Receives an encryption of the peer's vector of `n` elements.
///
/// # Errors
/// Those of the session; [`TwopcError::Rlwe`] if the bytes are not ciphertexts.
pub fn receive_encrypted(ctx: &mut Ctx, ole: &OleContext, ring: Ring, n: usize) -> Result<Sent, TwopcError> {
    let (all, primes) = (ole.params.q_len(), primes(ring));
    let expect = Expect::Exactly(ole.input_bytes(primes));
    let blocks = (0..ole.blocks(n)).map(|_| {
        let bytes = ctx.session.recv(INPUT, expect)?;
        let list = SeededCiphertext::list_from_bytes(&ole.params, all, primes, &bytes)?;
        Ok(list.into_iter().map(SeededCiphertext::expand).collect())
    });
    Ok(Sent { ring, len: n, blocks: blocks.collect::<Result<_, TwopcError>>()? })
}

/// Multiplies the peer's vector by this party's `y` and answers. Returns this party's share of x ⊙ y.
///
/// # Errors
/// [`HeError::Operand`] if `y` is not as long as the peer's vector; errors of the session.
pub fn answer_products(ctx: &mut Ctx, ole: &OleContext, sent: &Sent, y: &[u64]) -> Result<Share, TwopcError> {
    expect_words(y, sent.len)?;
    let lift = ole.lift(sent.ring)?;
    let mut words = Zeroizing::new(Vec::with_capacity(sent.len));
    let answer = |cts: &[Ciphertext], y: &[u64], mut rng: SecretRng| -> Result<_, TwopcError> {
        let mut frame = Vec::with_capacity(ole.response_bytes(cts.len()));
        let mut slots = ole.zero_slots(sent.ring);
        for (i, (ct, channel)) in cts.iter().zip(&ole.channels).enumerate() {
            let mut product = ct.clone();
            product.mul_plain_assign(ole.multiplier(i, sent.ring, y).expose());
            let share = channel.format.answer(&product, &ole.peer.public, &mut rng, &mut frame)?;
            let share = Zeroizing::new(share);
            slots.expose_mut().limb_mut(i).copy_from_slice(&share);
        }
        Ok((frame, ole.down(&lift, slots, y.len())?))
    };
    let blocks: Vec<_> = sent.blocks.iter().zip(y.chunks(ole.slots())).collect();
    for some in blocks.chunks(rayon::current_num_threads()) {
        let jobs: Vec<_> = some.iter().map(|&b| (b, ctx.rng.fork("ole answer"))).collect();
        let answers: Vec<_> = jobs.into_par_iter().map(|((c, y), rng)| answer(c, y, rng)).collect();
        for done in answers {
            let (frame, share) = done?;
            ctx.session.send_vec(RESPONSE, frame)?;
            words.extend_from_slice(&share);
        }
    }
    Ok(Share::new(sent.ring, std::mem::take(&mut *words)))
}

/// Decrypts the answers to this party's vector of `n` elements. Returns this party's share of x ⊙ y.
///
/// # Errors
/// Errors of the session; [`TwopcError::Rlwe`] if the bytes are not answers.
pub fn open_products(ctx: &mut Ctx, ole: &OleContext, ring: Ring, n: usize) -> Result<Share, TwopcError> {
    let lift = ole.lift(ring)?;
    let primes = primes(ring);
    let mut words = Zeroizing::new(Vec::with_capacity(n));
    for block in 0..ole.blocks(n) {
        let bytes = ctx.session.recv(RESPONSE, Expect::Exactly(ole.response_bytes(primes)))?;
        let mut rest = bytes.as_slice();
        let mut slots = ole.zero_slots(ring);
        for (i, channel) in ole.channels.iter().enumerate().take(primes) {
            let (part, tail) = rest
                .split_at_checked(channel.format.bytes())
                .ok_or(TwopcError::PeerMisbehaved { what: "message length" })?;
            rest = tail;
            slots.expose_mut().limb_mut(i).copy_from_slice(&Zeroizing::new(channel.format.open(part, &ole.own)?));
        }
        let count = ole.slots().min(n - block * ole.slots());
        words.extend_from_slice(&ole.down(&lift, slots, count)?);
    }
    Ok(Share::new(ring, std::mem::take(&mut *words)))
}

impl OleContext {
    fn zero_slots(&self, ring: Ring) -> SecretPoly<Coeff> {
        SecretPoly::new(RnsPoly::zero(self.plain.basis(), &self.plain.ciphertext_ids(primes(ring))))
    }

    /// Signed y in the slots of the polynomial that multiplies the ciphertext modulo t_i.
    fn multiplier(&self, i: usize, ring: Ring, y: &[u64]) -> SecretPoly<hushed_math::Eval> {
        let ntt = self.plain.basis().ntt(i);
        let mut signed: Zeroizing<Vec<i64>> = Zeroizing::new(y.iter().map(|&w| signed_share(w, ring.bits())).collect());
        signed.resize(self.slots(), 0);
        let mut values = Zeroizing::new(vec![0u64; self.slots()]);
        ntt.pointwise().reduce_signed(&mut values, &signed);
        ntt.inverse(&mut values);
        for (s, &v) in signed.iter_mut().zip(values.iter()) {
            *s = ntt.modulus().centre(v);
        }
        let ids = self.params.ciphertext_ids(self.params.q_len());
        let plain = RnsPoly::from_signed(self.params.basis(), &ids, &signed);
        SecretPoly::new(plain.into_eval())
    }

    /// Converts coefficients of a share modulo every t to `count` words modulo 2^ℓ.
    fn down(
        &self,
        lift: &RingScale,
        mut slots: SecretPoly<Coeff>,
        count: usize,
    ) -> Result<Zeroizing<Vec<u64>>, RlweError> {
        for i in 0..lift.limbs() {
            self.plain.basis().ntt(i).forward(slots.expose_mut().limb_mut(i));
        }
        let mut words = Zeroizing::new(lift.scale_down(slots.expose())?);
        words.truncate(count);
        Ok(words)
    }
}

/// The representative of a share in [-2^(ℓ-1), 2^(ℓ-1)), in constant time.
fn signed_share(x: u64, ell: u32) -> i64 {
    let shift = 64 - ell;
    ((x << shift) as i64) >> shift
}
