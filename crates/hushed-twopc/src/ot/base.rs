//! Base oblivious transfers: random 1-of-2 OTs of keys from Diffie–Hellman on ristretto255 (Chou, Orlandi, LATINCRYPT
//! 2015; semi-honest, random oracle).
//!
//! Sender: `A = a·G`. Receiver with choice c: `B = b·G + c·A`. Keys: `k_0 = KDF(a·B)`, `k_1 = KDF(a·(B − A))`; the
//! receiver's `KDF(b·A)` is `k_c`. The KDF is SHA-256 over a domain, the session, the index and both points, cut to one
//! block. Choices select points by masks.
//!
//! Bytes: 32 for A, and 32 per transfer for B.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::TwopcError;
use curve25519_dalek::constants::RISTRETTO_BASEPOINT_TABLE;
use curve25519_dalek::ristretto::{CompressedRistretto, RistrettoPoint};
use curve25519_dalek::scalar::Scalar;
use curve25519_dalek::traits::Identity;
use hushed_math::bits::Block;
use hushed_math::rng::SecretRng;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConditionallySelectable};
use zeroize::{Zeroize, ZeroizeOnDrop, Zeroizing};

/// Bytes of a group element.
pub const POINT_BYTES: usize = 32;

/// Identifies the session, the direction and the use; the same at both parties.
pub type SessionId = [u8; 32];

/// The sender between its message and the receiver's.
#[derive(ZeroizeOnDrop)]
pub struct BaseSender {
    a: Scalar,
    #[zeroize(skip)]
    id: SessionId,
    #[zeroize(skip)]
    message: [u8; POINT_BYTES],
}

impl BaseSender {
    /// Draws the sender's secret; send [`BaseSender::message`] to the receiver.
    pub fn new(id: SessionId, rng: &mut SecretRng) -> Self {
        let a = random_scalar(rng);
        let message = (RISTRETTO_BASEPOINT_TABLE * &a).compress().to_bytes();
        BaseSender { a, id, message }
    }

    /// The 32 bytes for the receiver.
    pub fn message(&self) -> &[u8; POINT_BYTES] {
        &self.message
    }

    /// Both keys of each transfer, from the receiver's points.
    ///
    /// # Errors
    /// [`TwopcError::PeerMisbehaved`] unless `points` is a list of canonical group elements.
    pub fn finish(self, points: &[u8]) -> Result<Zeroizing<Vec<[Block; 2]>>, TwopcError> {
        let (points, rest) = points.as_chunks::<POINT_BYTES>();
        if !rest.is_empty() {
            return Err(BAD_POINT);
        }
        let a_a = RISTRETTO_BASEPOINT_TABLE * &(self.a * self.a);
        let mut keys = Zeroizing::new(Vec::with_capacity(points.len()));
        for (index, bytes) in points.iter().enumerate() {
            let shared = decode(bytes)? * self.a;
            let kdf = |point: RistrettoPoint| key(&self.id, index, &self.message, bytes, point);
            keys.push([kdf(shared), kdf(shared - a_a)]);
        }
        Ok(keys)
    }
}

/// The receiver's whole part. Takes `count` choices, one after the other so that no list of them stays in memory;
/// returns one key per transfer and the message, 32 bytes per transfer.
///
/// # Errors
/// [`TwopcError::PeerMisbehaved`] unless `sender_message` is a canonical group element other than the identity (which
/// would make both keys equal to one known to anyone).
pub fn receive(
    id: SessionId,
    sender_message: &[u8],
    choices: impl Iterator<Item = Choice>,
    count: usize,
    rng: &mut SecretRng,
) -> Result<(Zeroizing<Vec<Block>>, Vec<u8>), TwopcError> {
    let sender_message: [u8; POINT_BYTES] = sender_message.try_into().map_err(|_| BAD_POINT)?;
    let a = decode(&sender_message)?;
    if a == RistrettoPoint::identity() {
        return Err(BAD_POINT);
    }
    let mut keys = Zeroizing::new(Vec::with_capacity(count));
    let mut message = Vec::with_capacity(count * POINT_BYTES);
    for (index, choice) in choices.take(count).enumerate() {
        let mut b = random_scalar(rng);
        let shift = RistrettoPoint::conditional_select(&RistrettoPoint::identity(), &a, choice);
        let point = (RISTRETTO_BASEPOINT_TABLE * &b + shift)
            .compress()
            .to_bytes();
        keys.push(key(&id, index, &sender_message, &point, a * b));
        message.extend_from_slice(&point);
        b.zeroize();
    }
    Ok((keys, message))
}

const BAD_POINT: TwopcError = TwopcError::PeerMisbehaved {
    what: "group element",
};

fn decode(bytes: &[u8; POINT_BYTES]) -> Result<RistrettoPoint, TwopcError> {
    CompressedRistretto(*bytes).decompress().ok_or(BAD_POINT)
}

fn random_scalar(rng: &mut SecretRng) -> Scalar {
    let mut wide = Zeroizing::new([0u8; 64]);
    rng.fill_bytes(wide.as_mut_slice());
    Scalar::from_bytes_mod_order_wide(&wide)
}

fn key(
    id: &SessionId,
    index: usize,
    a: &[u8; POINT_BYTES],
    b: &[u8; POINT_BYTES],
    shared: RistrettoPoint,
) -> Block {
    let digest: [u8; 32] = Sha256::new()
        .chain_update(b"hushed base OT 1")
        .chain_update(id)
        .chain_update((index as u64).to_le_bytes())
        .chain_update(a)
        .chain_update(b)
        .chain_update(shared.compress().as_bytes())
        .finalize()
        .into();
    let mut first = [0; 16];
    first.iter_mut().zip(digest).for_each(|(f, d)| *f = d);
    Block::from_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(id_s: SessionId, id_r: SessionId) -> (Vec<[Block; 2]>, Vec<Block>, Vec<bool>) {
        let mut rng = SecretRng::insecure_from_seed(5);
        let mut rng_r = SecretRng::insecure_from_seed(6);
        let choices: Vec<bool> = (0..20).map(|i| i * 7 % 3 == 1).collect();
        let bits = choices.iter().map(|c| Choice::from(*c as u8));
        let sender = BaseSender::new(id_s, &mut rng);
        let (got, message) = receive(id_r, sender.message(), bits, 20, &mut rng_r).unwrap();
        assert_eq!(message.len(), 20 * POINT_BYTES);
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

    #[test]
    fn foreign_points_are_checked() {
        let mut rng = SecretRng::insecure_from_seed(7);
        for bad in [&[0xff; 32][..], &[0; 32], &[1; 31], &[]] {
            assert!(receive([0; 32], bad, [Choice::from(0)].into_iter(), 1, &mut rng).is_err());
        }
        for bad in [&[0xff; 32][..], &[0; 33]] {
            assert!(BaseSender::new([0; 32], &mut rng).finish(bad).is_err());
        }
    }
}
