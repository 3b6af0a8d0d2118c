//! Base oblivious transfers, secure against a party that cheats: random 1-of-2 OTs of keys from Diffie–Hellman on
//! ristretto255 (Masny, Rindal, Endemic Oblivious Transfer, CCS 2019, Fig. 8; computational Diffie–Hellman in the
//! random-oracle model).
//!
//! Sender, per transfer: `A = a·G`. Receiver with choice c: `R_{1−c}` uniform, `R_c = b·G − H(c, R_{1−c})`. Keys:
//! `k_j = KDF(j, a·(R_j + H(j, R_{1−j})))`; the receiver's is `KDF(c, b·A)`. A receiver knows the discrete logarithm of
//! at most one of `R_j + H(j, R_{1−j})`, because the hash that it asks for last is uniform and fixed after the other
//! point. Both points are uniform whatever c is. "Endemic" means that a party that cheats may choose its own keys,
//! which the extension allows (Roy, CRYPTO 2022, §6).
//!
//! Every transfer has an `a` of its own: the proof then needs no oracle that decides Diffie–Hellman. H maps to the
//! group by 64 bytes of SHA-512 (RFC 9496, one-way map); the KDF is SHA-256 over a domain, the session, the index, j
//! and all points, cut to one block. Choices select points by masks.
//!
//! Bytes per transfer: 32 for A, and 64 for both R.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::TwopcError;
use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use hushed_math::bits::Block;
use hushed_math::rng::SecretRng;
use sha2::{Digest, Sha256, Sha512};
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, Zeroizing};

/// Bytes of a group element.
pub const POINT_BYTES: usize = 32;

/// Bytes of the receiver's message per transfer.
pub const PAIR_BYTES: usize = 2 * POINT_BYTES;

/// Identifies the session, the direction and the use; the same at both parties.
pub type SessionId = [u8; 32];

type Point = [u8; POINT_BYTES];

/// The sender between its message and the receiver's.
pub struct BaseSender {
    secrets: Zeroizing<Vec<Scalar>>,
    id: SessionId,
    message: Vec<u8>,
}

impl BaseSender {
    /// Draws the sender's secrets for `count` transfers; send [`BaseSender::message`] to the receiver.
    pub fn new(id: SessionId, count: usize, rng: &mut SecretRng) -> Self {
        let secrets: Vec<Scalar> = (0..count).map(|_| random_scalar(rng)).collect();
        let secrets = Zeroizing::new(secrets);
        let points = secrets.iter().map(|a| RISTRETTO_BASEPOINT_TABLE * a);
        let message = points.flat_map(|p| p.compress().to_bytes()).collect();
        BaseSender { secrets, id, message }
    }

    /// 32 bytes per transfer for the receiver.
    pub fn message(&self) -> &[u8] {
        &self.message
    }

    /// Both keys of each transfer, from the receiver's points.
    ///
    /// # Errors
    /// [`TwopcError::PeerMisbehaved`] unless `points` holds two canonical group elements per transfer.
    pub fn finish(self, points: &[u8]) -> Result<Zeroizing<Vec<[Block; 2]>>, TwopcError> {
        let pairs = pairs(points, self.secrets.len())?;
        let own = self.message.as_chunks::<POINT_BYTES>().0;
        let mut keys = Zeroizing::new(Vec::with_capacity(pairs.len()));
        for (index, ((a, own), pair)) in self.secrets.iter().zip(own).zip(pairs).enumerate() {
            let transfer = Transfer { id: &self.id, index };
            let [r0, r1] = *pair;
            let shared = |j: u8, own: &Point, other: &Point| -> Result<RistrettoPoint, TwopcError> {
                Ok((decode(own)? + transfer.hash(j, other)) * a)
            };
            let (s0, s1) = (shared(0, &r0, &r1)?, shared(1, &r1, &r0)?);
            keys.push([transfer.key(0, own, pair, s0), transfer.key(1, own, pair, s1)]);
        }
        Ok(keys)
    }
}

/// The receiver's whole part. Takes `count` choices, one after the other so that no list of them stays in memory;
/// returns one key per transfer and the message, 64 bytes per transfer.
///
/// # Errors
/// [`TwopcError::PeerMisbehaved`] unless `sender_message` holds `count` canonical group elements other than the
/// identity (which would make the key one known to anyone).
pub fn receive(
    id: SessionId,
    sender_message: &[u8],
    choices: impl Iterator<Item = Choice>,
    count: usize,
    rng: &mut SecretRng,
) -> Result<(Zeroizing<Vec<Block>>, Vec<u8>), TwopcError> {
    let (points, rest) = sender_message.as_chunks::<POINT_BYTES>();
    if points.len() != count || !rest.is_empty() {
        return Err(BAD_POINT);
    }
    let mut keys = Zeroizing::new(Vec::with_capacity(count));
    let mut message = Vec::with_capacity(count * PAIR_BYTES);
    for (index, (own, choice)) in points.iter().zip(choices).enumerate() {
        let a = decode(own)?;
        if a == RistrettoPoint::identity() {
            return Err(BAD_POINT);
        }
        let transfer = Transfer { id: &id, index };
        let mut b = random_scalar(rng);
        let mut seed = Zeroizing::new([0u8; 64]);
        rng.fill_bytes(seed.as_mut_slice());
        let other = RistrettoPoint::from_uniform_bytes(&seed);
        let j = choice.unwrap_u8();
        let hash = transfer.hash(j, &other.compress().to_bytes());
        let chosen = RISTRETTO_BASEPOINT_TABLE * &b - hash;
        let first = RistrettoPoint::conditional_select(&chosen, &other, choice);
        let second = RistrettoPoint::conditional_select(&other, &chosen, choice);
        let pair = [first, second].map(|p| p.compress().to_bytes());
        keys.push(transfer.key(j, own, &pair, a * b));
        message.extend_from_slice(pair.as_flattened());
        b.zeroize();
    }
    if keys.len() != count {
        return Err(BAD_POINT);
    }
    Ok((keys, message))
}

const BAD_POINT: TwopcError = TwopcError::PeerMisbehaved { what: "group element" };

/// `count` pairs of points.
fn pairs(bytes: &[u8], count: usize) -> Result<&[[Point; 2]], TwopcError> {
    let (points, rest) = bytes.as_chunks::<POINT_BYTES>();
    let (pairs, odd) = points.as_chunks::<2>();
    match rest.is_empty() && odd.is_empty() && pairs.len() == count {
        true => Ok(pairs),
        false => Err(BAD_POINT),
    }
}

fn decode(bytes: &Point) -> Result<RistrettoPoint, TwopcError> {
    CompressedRistretto(*bytes).decompress().ok_or(BAD_POINT)
}

fn random_scalar(rng: &mut SecretRng) -> Scalar {
    let mut wide = Zeroizing::new([0u8; 64]);
    rng.fill_bytes(wide.as_mut_slice());
    Scalar::from_bytes_mod_order_wide(&wide)
}

/// The random oracles of one transfer.
struct Transfer<'a> {
    id: &'a SessionId,
    index: usize,
}

impl Transfer<'_> {
    /// H(j, the point of the other place). `j` may be secret: it is only hashed.
    fn hash(&self, j: u8, other: &Point) -> RistrettoPoint {
        let digest: [u8; 64] = Sha512::new()
            .chain_update(b"hushed base OT 2, point")
            .chain_update(self.id)
            .chain_update((self.index as u64).to_le_bytes())
            .chain_update([j])
            .chain_update(other)
            .finalize()
            .into();
        RistrettoPoint::from_uniform_bytes(&digest)
    }

    fn key(&self, j: u8, a: &Point, pair: &[Point; 2], shared: RistrettoPoint) -> Block {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"hushed base OT 2, key")
            .chain_update(self.id)
            .chain_update((self.index as u64).to_le_bytes())
            .chain_update([j])
            .chain_update(a)
            .chain_update(pair.as_flattened())
            .chain_update(shared.compress().as_bytes())
            .finalize()
            .into();
        let mut first = [0; 16];
        first.iter_mut().zip(digest).for_each(|(f, d)| *f = d);
        Block::from_bytes(first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id_s: SessionId, id_r: SessionId) -> (Vec<[Block; 2]>, Vec<Block>, Vec<bool>) {
        let mut rng = SecretRng::insecure_from_seed(5);
        let mut rng_r = SecretRng::insecure_from_seed(6);
        let choices: Vec<bool> = (0..20).map(|i| i * 7 % 3 == 1).collect();
        let bits = choices.iter().map(|c| Choice::from(*c as u8));
        let sender = BaseSender::new(id_s, 20, &mut rng);
        assert_eq!(sender.message().len(), 20 * POINT_BYTES);
        let (got, message) = receive(id_r, sender.message(), bits, 20, &mut rng_r).unwrap();
        assert_eq!(message.len(), 20 * PAIR_BYTES);
        let keys = sender.finish(&message).unwrap();
        (keys.to_vec(), got.to_vec(), choices)
    }

    #[test]
    fn the_receiver_gets_its_key_and_not_the_other() {
        let (keys, got, choices) = run([1; 32], [1; 32]);
        for ((pair, got), c) in keys.iter().zip(&got).zip(choices) {
            assert!(pair[usize::from(c)] == *got);
            assert!(pair[usize::from(!c)] != *got);
        }
        let mut all: Vec<u128> = keys.iter().flatten().map(|b| b.0).collect();
        all.sort();
        all.dedup();
        assert_eq!(all.len(), 40, "every key is its own");
    }

    #[test]
    fn another_session_gives_other_keys() {
        let (keys, got, choices) = run([1; 32], [2; 32]);
        for ((pair, got), c) in keys.iter().zip(&got).zip(choices) {
            assert!(pair[usize::from(c)] != *got);
        }
    }

    /// With points that do not pass through the hash, a receiver could know both logarithms and so both keys.
    #[test]
    fn a_receiver_that_knows_both_logarithms_knows_at_most_one_key() {
        let mut rng = SecretRng::insecure_from_seed(8);
        let sender = BaseSender::new([3; 32], 1, &mut rng);
        let a = decode(&sender.message().try_into().unwrap()).unwrap();
        let logs = [random_scalar(&mut rng), random_scalar(&mut rng)];
        let pair = logs.map(|b| (RISTRETTO_BASEPOINT_TABLE * &b).compress().to_bytes());
        let own: Point = sender.message().try_into().unwrap();
        let keys = sender.finish(pair.as_flattened()).unwrap();
        let transfer = Transfer { id: &[3; 32], index: 0 };
        for (j, b) in logs.iter().enumerate() {
            let guess = transfer.key(j as u8, &own, &pair, a * b);
            assert!(guess != keys[0][j]);
        }
    }

    #[test]
    fn foreign_points_are_checked() {
        let mut rng = SecretRng::insecure_from_seed(7);
        for bad in [&[0xff; 32][..], &[0; 32], &[1; 31], &[]] {
            assert!(receive([0; 32], bad, [Choice::from(0)].into_iter(), 1, &mut rng).is_err());
        }
        for bad in [&[0xff; 64][..], &[0; 65], &[0; 32], &[0; 128]] {
            let sender = BaseSender::new([0; 32], 1, &mut rng);
            assert!(sender.finish(bad).is_err());
        }
    }
}
