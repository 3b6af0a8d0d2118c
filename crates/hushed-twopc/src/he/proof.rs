//! The client proves that its public key is well formed, in zero knowledge, once a session.
//!
//! Every response is hidden by an encryption of zero under this key. With a key of another form the server's share of
//! the response would depend on the randomness of that encryption, and words opened later could undo the hiding.
//!
//! # Steps
//! The key is well formed if its bits x_i fulfil one random linear equation modulo each ciphertext prime q
//! ([`hushed_rlwe::KeyEquation`]). Correlated OTs commit to the bits and authenticate them: with a global Δ modulo q
//! that only the server knows, the parties get shares of x_i·Δ, the same way as shares modulo 2^w in
//! [`crate::ot::additive`].
//! 1. Client: x_i ⊕ c_i for all bits, with the choice bits c_i of OTs that it receives. From now on the bits are fixed.
//! 2. Server: for each bit and prime Δ − (p_1 − p_0), with the OT's two pads stretched to numbers modulo q; and the
//!    seed of the equations.
//! 3. Client: a commitment to the sums of its shares, weighted as the equations say: SHA-256 of a nonce and the sums.
//! 4. Server: what these sums are for a well-formed key, constant·Δ minus the sums of its own shares.
//! 5. Client: the nonce, if they are.
//!
//! # What it gives
//! A client with bits that break the equation modulo q must guess Δ, or have the random equation hold by chance: 2^-48
//! for the primes of 50 bits. The server learns nothing that it cannot compute, since the client compares before it
//! opens. A server that sends a wrong number in step 2 makes the client's sum depend on a bit of its key, and can
//! predict it only by guessing the bit: it passes with probability 2^-c if it is to learn c bits, as in the checks of
//! OTs, and otherwise the session ends.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::ot::additive::{low_bits, stretch};
use crate::ot::{CHEATED, CotRecv, CotSend, SecretBlocks};
use crate::share::{SecretWords, wipe};
use crate::wire;
use hushed_math::Modulus;
use hushed_math::bits::{Block, Mask};
use hushed_math::rng::PublicSeed;
use hushed_math::taint;
use hushed_net::Kind;
use hushed_rlwe::{KeyEquation, PublicKey, RlweParams, SecretKey, WITNESS_BITS};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

const BITS: Kind = Kind(0x0440);
const OFFERS: Kind = Kind(0x0441);
const COMMITMENT: Kind = Kind(0x0442);
const SUMS: Kind = Kind(0x0443);
const NONCE: Kind = Kind(0x0444);

const SEED_BYTES: usize = 16;
const NONCE_BYTES: usize = 32;
const DIGEST_BYTES: usize = 32;

/// OTs that are turned into numbers at once.
const CHUNK: usize = 448;

const MALFORMED: TwopcError = TwopcError::PeerMisbehaved { what: "public key: the proof that it is well formed" };

/// Cost of the proof, once OTs from server to client run.
pub(super) fn cost(params: &RlweParams) -> Cost {
    let bits = bits(params);
    let client = Cost::exchange(bits.div_ceil(8) as u64, 0)
        + Cost::exchange(DIGEST_BYTES as u64, 0)
        + Cost::exchange(NONCE_BYTES as u64, 0);
    let server = Cost::exchange(0, offers_bytes(params) as u64) + Cost::exchange(0, 8 * moduli(params).count() as u64);
    (client + server).with_cots(0, bits as u64)
}

fn bits(params: &RlweParams) -> usize {
    WITNESS_BITS * params.n()
}

fn moduli(params: &RlweParams) -> impl Iterator<Item = Modulus> + '_ {
    (0..params.q_len()).map(|id| *params.basis().modulus(id))
}

/// The client's side.
///
/// # Errors
/// Those of the session; [`TwopcError::PeerMisbehaved`] if the server cheats.
pub(super) fn prove(ctx: &mut Ctx, secret: &SecretKey, public: &PublicKey) -> Result<(), TwopcError> {
    let (sums, nonce) = commit_to_sums(ctx, public, &secret.witness(public)?)?;
    let expected = wire::recv_exactly(&mut ctx.session, SUMS, 8 * sums.len())?;
    if !bool::from(taint::opened(wire::pack(&sums, 64).ct_eq(&expected))) {
        return Err(CHEATED);
    }
    taint::public(&nonce);
    ctx.session.send(NONCE, &nonce)?;
    Ok(())
}

/// Steps 1 to 3: the client's sums, to which it is committed, and the nonce.
fn commit_to_sums(
    ctx: &mut Ctx,
    public: &PublicKey,
    witness: &[u64],
) -> Result<(SecretWords, [u8; NONCE_BYTES]), TwopcError> {
    let count = bits(public.params());
    let cot = ctx.ot.recv(&mut ctx.session, count)?;
    let choices = low_bits(&cot.blocks);
    let masked: Vec<u64> = choices.iter().zip(witness).map(|(c, x)| c ^ x).collect();
    let mut message = Vec::with_capacity(count / 8 + 8);
    wire::bits_into(&masked, count, &mut message);
    taint::public(&message);
    ctx.session.send_vec(BITS, message)?;

    let message = wire::recv_exactly(&mut ctx.session, OFFERS, offers_bytes(public.params()))?;
    let (equations, offers) = read_offers(&message, public)?;
    let sums = chosen_sums(&cot, &choices, &masked, &equations, &offers);
    let mut nonce = [0u8; NONCE_BYTES];
    ctx.rng.fill_bytes(&mut nonce);
    let commitment = commit(&nonce, &sums);
    taint::public(&commitment);
    ctx.session.send(COMMITMENT, &commitment)?;
    Ok((sums, nonce))
}

/// The server's side.
///
/// # Errors
/// Those of the session; [`TwopcError::PeerMisbehaved`] if the key is malformed, or the client cheats.
pub(super) fn verify(ctx: &mut Ctx, public: &PublicKey) -> Result<(), TwopcError> {
    let count = bits(public.params());
    let cot = ctx.ot.send(&mut ctx.session, count)?;
    let masked = wire::recv_exactly(&mut ctx.session, BITS, count.div_ceil(8))?;
    let masked = wire::bits_from(&masked, count);

    let seed = ctx.rng.public_seed();
    let equations = public.equations(&seed);
    let mut deltas = SecretWords::from(vec![0; equations.len()]);
    for (delta, equation) in deltas.iter_mut().zip(&equations) {
        hushed_math::sample::uniform(&mut ctx.rng, &equation.modulus, std::slice::from_mut(delta));
    }
    let (offers, expected) = offered_sums(&cot, &masked, &equations, &deltas);
    send_offers(ctx, &seed, &equations, &offers)?;

    let commitment = wire::recv_exactly(&mut ctx.session, COMMITMENT, DIGEST_BYTES)?;
    let bytes = wire::pack(&expected, 64);
    taint::public(&bytes);
    ctx.session.send(SUMS, &bytes)?;
    let nonce = wire::recv_exactly(&mut ctx.session, NONCE, NONCE_BYTES)?;
    match bool::from(taint::opened(commit(&nonce, &expected).ct_eq(&commitment))) {
        true => Ok(()),
        false => Err(MALFORMED),
    }
}

fn offers_bytes(params: &RlweParams) -> usize {
    SEED_BYTES + moduli(params).map(|q| wire::packed_len(bits(params), q.bits())).sum::<usize>()
}

fn send_offers(
    ctx: &mut Ctx,
    seed: &PublicSeed,
    equations: &[KeyEquation],
    offers: &[Vec<u64>],
) -> Result<(), TwopcError> {
    let mut message = seed.0.to_vec();
    for (offer, equation) in offers.iter().zip(equations) {
        wire::pack_into(offer, equation.modulus.bits(), &mut message);
    }
    taint::public(&message);
    Ok(ctx.session.send_vec(OFFERS, message)?)
}

fn commit(nonce: &[u8], sums: &[u64]) -> [u8; DIGEST_BYTES] {
    let hash = Sha256::new().chain_update(b"hushed public key proof").chain_update(nonce);
    hash.chain_update(wire::pack(sums, 64)).finalize().into()
}

/// The equations and, for each prime, the server's numbers.
///
/// # Errors
/// [`TwopcError::PeerMisbehaved`] on another length, and on a number that is not a residue.
fn read_offers(message: &[u8], public: &PublicKey) -> Result<(Vec<KeyEquation>, Vec<Vec<u64>>), TwopcError> {
    let count = bits(public.params());
    let mut rest = message;
    let mut seed = PublicSeed([0; SEED_BYTES]);
    seed.0.iter_mut().zip(wire::take(&mut rest, SEED_BYTES)?).for_each(|(to, from)| *to = *from);
    let offers = moduli(public.params()).map(|q| {
        let bytes = wire::take(&mut rest, wire::packed_len(count, q.bits()))?;
        let offer = wire::unpack(bytes, q.bits(), count)?;
        match offer.iter().all(|&f| f < q.value()) {
            true => Ok(offer),
            false => Err(TwopcError::PeerMisbehaved { what: "public key proof: a number is not a residue" }),
        }
    });
    let offers = offers.collect::<Result<_, _>>()?;
    Ok((public.equations(&seed), offers))
}

/// For each equation, the weighted sum of the client's shares (1 − 2e)·(p_c + c·f).
fn chosen_sums(
    cot: &CotRecv,
    choices: &[u64],
    masked: &[u64],
    equations: &[KeyEquation],
    offers: &[Vec<u64>],
) -> SecretWords {
    let mut shares = Numbers::with_room(equations.len(), cot.len());
    let mut pads = SecretBlocks::zero(CHUNK);
    for at in (0..cot.len()).step_by(CHUNK) {
        let (pads, _) = pads.split_at_mut(CHUNK.min(cot.len() - at));
        cot.pads(at, pads);
        shares.append(equations, cot.first_index + at as u64, pads);
    }
    for ((shares, offer), equation) in shares.0.iter_mut().zip(offers).zip(equations) {
        let q = &equation.modulus;
        let rows = shares.chunks_mut(64).zip(offer.chunks(64));
        for ((shares, offer), (&c, &e)) in rows.zip(choices.iter().zip(masked)) {
            let masks = Mask::from_word(c).into_iter().zip(Mask::from_public_word(e));
            for ((share, &f), (c, e)) in shares.iter_mut().zip(offer).zip(masks) {
                let sum = q.add(*share, f & c);
                *share = e.select(q.neg(sum), sum);
            }
        }
    }
    shares.sums(equations)
}

/// For each prime the numbers f, and what the client's weighted sum must be; this party's shares are e·Δ − (1 −
/// 2e)·p_0.
fn offered_sums(
    cot: &CotSend,
    masked: &[u64],
    equations: &[KeyEquation],
    deltas: &[u64],
) -> (Vec<Vec<u64>>, SecretWords) {
    let [mut shares, mut offers] = [(); 2].map(|()| Numbers::with_room(equations.len(), cot.len()));
    let [mut zero, mut one] = [(); 2].map(|()| SecretBlocks::zero(CHUNK));
    for at in (0..cot.len()).step_by(CHUNK) {
        let [zero, one] = [&mut zero, &mut one].map(|pads| pads.split_at_mut(CHUNK.min(cot.len() - at)).0);
        cot.pads(at, zero, one);
        shares.append(equations, cot.first_index + at as u64, zero);
        offers.append(equations, cot.first_index + at as u64, one);
    }
    let primes = equations.iter().zip(deltas).zip(offers.0.iter_mut().zip(&mut shares.0));
    for ((equation, &delta), (offers, shares)) in primes {
        let q = &equation.modulus;
        for ((offers, shares), &e) in offers.chunks_mut(64).zip(shares.chunks_mut(64)).zip(masked) {
            for ((offer, share), e) in offers.iter_mut().zip(shares).zip(Mask::from_public_word(e)) {
                *offer = q.add(q.sub(delta, *offer), *share);
                *share = e.select(q.add(delta, *share), q.neg(*share));
            }
        }
    }
    let own = shares.sums(equations);
    let expected = equations.iter().zip(deltas).zip(own.iter());
    let expected =
        expected.map(|((KeyEquation { modulus: q, constant, .. }, &delta), &own)| q.sub(q.mul(delta, *constant), own));
    (std::mem::take(&mut offers.0), expected.collect())
}

/// For each prime a number per OT.
struct Numbers(Vec<Vec<u64>>);

impl Numbers {
    /// Allocated at once: growing would leave numbers behind.
    fn with_room(primes: usize, count: usize) -> Numbers {
        Numbers((0..primes).map(|_| Vec::with_capacity(count)).collect())
    }

    /// Appends the numbers of these pads, whose OTs have the indices from `first` on: for every prime two words of the
    /// pad's stream as a residue, which is within 2^-78 of uniform.
    fn append(&mut self, equations: &[KeyEquation], first: u64, pads: &[Block]) {
        let messages = 2 * equations.len();
        let mut words = SecretWords::from(vec![0; pads.len() * messages]);
        stretch(first, pads, messages, &mut words);
        for row in words.chunks(messages) {
            let pairs = row.as_chunks::<2>().0;
            for ((numbers, equation), [low, high]) in self.0.iter_mut().zip(equations).zip(pairs) {
                numbers.push(equation.modulus.reduce_u128(u128::from(*low) | u128::from(*high) << 64));
            }
        }
    }

    fn sums(&self, equations: &[KeyEquation]) -> SecretWords {
        let sum = |(numbers, equation): (&Vec<u64>, &KeyEquation)| {
            equation.sum(numbers.chunks(numbers.len().div_ceil(WITNESS_BITS).max(1)))
        };
        self.0.iter().zip(equations).map(sum).collect()
    }
}

impl Drop for Numbers {
    fn drop(&mut self) {
        self.0.iter_mut().for_each(|numbers| wipe(numbers));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cost::Cost;
    use crate::testing::{assert_cost, run_after, run_pair, run_pair_over_ferret};
    use hushed_math::rng::SecretRng;
    use std::sync::Arc;

    fn key(seed: u64) -> (Arc<RlweParams>, SecretKey, PublicKey) {
        let params = RlweParams::olt_full().unwrap();
        let mut rng = SecretRng::insecure_from_seed(seed);
        let secret = SecretKey::generate(&params, &mut rng);
        let public = PublicKey::generate(&secret, &mut rng);
        (params, secret, public)
    }

    fn is(result: &Result<(), TwopcError>, expected: &TwopcError) -> bool {
        result.as_ref().is_err_and(|error| error.to_string() == expected.to_string())
    }

    #[test]
    fn an_honest_proof_passes_at_its_declared_cost() {
        let (params, secret, public) = key(1);
        let (client, server, counted) =
            run_after(|_| (), |ctx, ()| prove(ctx, &secret, &public), |ctx, ()| verify(ctx, &public));
        client.unwrap();
        server.unwrap();
        assert_cost(&counted, Cost { cots_server: 0, ..cost(&params) });
        assert_eq!(cost(&params).cots_server, 65_536);
        let (client, server) = run_pair_over_ferret(|ctx| prove(ctx, &secret, &public), |ctx| verify(ctx, &public));
        client.unwrap();
        server.unwrap();
    }

    /// A client that opens whatever the server says. The keys: of another secret; b = 0; an error of 2^40 at one
    /// coefficient, which would make a word of the server's share depend on the randomness of its response, modulo all
    /// primes and modulo each alone; one wrong bit of a right key.
    #[test]
    fn malformed_keys_are_refused() {
        let (params, secret, right) = key(2);
        let bent = |primes: &[usize], change: fn(&Modulus, u64) -> u64| {
            let mut bytes = right.to_bytes();
            let n = params.n();
            let values = bytes.split_off(bytes.len() - wire::packed_len(3 * n, 50));
            let mut values = wire::unpack(&values, 50, 3 * n).unwrap();
            for &prime in primes {
                let q = params.basis().modulus(prime);
                // In evaluation form the constant coefficient is in every value.
                values[prime * n..][..n].iter_mut().for_each(|value| *value = change(q, *value));
            }
            wire::pack_into(&values, 50, &mut bytes);
            PublicKey::from_bytes(&params, &bytes).unwrap()
        };
        let add: fn(&Modulus, u64) -> u64 = |q, value| q.add(value, 1 << 40);
        let mut rng = SecretRng::insecure_from_seed(3);
        let other = PublicKey::generate(&SecretKey::generate(&params, &mut rng), &mut rng);
        let keys = [&[0, 1, 2][..], &[0], &[1], &[2]].map(|primes| bent(primes, add));
        let zero = bent(&[0, 1, 2], |_, _| 0);
        let wrong_keys = keys.iter().chain([&zero, &other]).map(|key| (key, None));
        let cases = wrong_keys.chain([(&right, Some(5)), (&right, Some(65_535))]);
        for (public, wrong) in cases {
            let mut witness = secret.witness(public).unwrap();
            if let Some(bit) = wrong {
                witness[bit / 64] ^= 1 << (bit % 64);
            }
            let (_, server) = run_pair(
                |ctx| {
                    let (_, nonce) = commit_to_sums(ctx, public, &witness).unwrap();
                    wire::recv_exactly(&mut ctx.session, SUMS, 24).unwrap();
                    ctx.session.send(NONCE, &nonce).unwrap();
                },
                |ctx| verify(ctx, public),
            );
            assert!(is(&server, &MALFORMED), "{wrong:?}");
        }
    }

    /// A client that waits for the server's sums before it chooses its own cannot open them.
    #[test]
    fn sums_are_fixed_before_the_server_tells_them() {
        let (_, _, public) = key(4);
        let (_, server) = run_pair(
            |ctx| {
                let (_, nonce) = commit_to_sums(ctx, &public, &vec![0; bits(public.params()) / 64]).unwrap();
                let sums = wire::recv_exactly(&mut ctx.session, SUMS, 24).unwrap();
                assert_eq!(sums.len(), 24);
                ctx.session.send(NONCE, &nonce).unwrap();
            },
            |ctx| verify(ctx, &public),
        );
        assert!(is(&server, &MALFORMED));
    }

    /// A server that offers another number for one bit: the client either notices, and opens nothing, or the bit's
    /// random choice did not take the number.
    #[test]
    fn a_server_that_offers_a_wrong_number_is_found_if_it_matters() {
        let (_, secret, public) = key(5);
        let mut found = 0;
        let bits_tried = 12;
        for bit in 0..bits_tried {
            let (client, server) = run_pair(
                |ctx| prove(ctx, &secret, &public),
                |ctx| {
                    let count = bits(public.params());
                    let cot = ctx.ot.send(&mut ctx.session, count).unwrap();
                    let masked = wire::recv_exactly(&mut ctx.session, BITS, count / 8).unwrap();
                    let seed = ctx.rng.public_seed();
                    let equations = public.equations(&seed);
                    let (mut offers, expected) =
                        offered_sums(&cot, &wire::bits_from(&masked, count), &equations, &[1, 2, 3]);
                    let number = &mut offers[0][bit];
                    *number = equations[0].modulus.add(*number, 1);
                    send_offers(ctx, &seed, &equations, &offers).unwrap();
                    wire::recv_exactly(&mut ctx.session, COMMITMENT, DIGEST_BYTES).unwrap();
                    ctx.session.send(SUMS, &wire::pack(&expected, 64)).unwrap();
                    wire::recv_exactly(&mut ctx.session, NONCE, NONCE_BYTES).map(drop)
                },
            );
            match client {
                Ok(()) => server.unwrap(),
                Err(_) => {
                    assert!(is(&client, &CHEATED));
                    assert!(server.is_err(), "nothing was opened");
                    found += 1;
                }
            }
        }
        // Half of the choices take the number.
        assert!((1..bits_tried).contains(&found), "{found} of {bits_tried}");
    }

    #[test]
    fn foreign_offers_are_checked() {
        let (params, _, public) = key(6);
        let length = offers_bytes(&params);
        assert!(read_offers(&vec![0; length], &public).is_ok());
        assert!(read_offers(&vec![0; length - 1], &public).is_err());
        assert!(read_offers(&vec![0xff; length], &public).is_err(), "not residues");
    }
}
