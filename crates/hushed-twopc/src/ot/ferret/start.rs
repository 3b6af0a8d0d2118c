//! The first correlated OTs of a direction: 127 base OTs, stretched by subspace VOLE over small fields with the
//! repetition code (SoftSpokenOT: Roy, CRYPTO 2022, semi-honest part, fields of 16 elements).
//!
//! Bits 1..128 of `delta` are cut into 31 digits of four bits and one of three (bit 0 is 1 by convention and its column
//! is the choice vector itself). For each digit the receiver grows a GGM tree with one seed per field element; by base
//! OTs the sender learns every seed but the one at its digit Δ. With G the AES stream of a seed:
//!   receiver: u = ⨁_x G(s_x),  v_j = ⨁_x x_j·G(s_x);   sender: w_j = ⨁_x (x⊕Δ)_j·G(s_x) = v_j ⊕ Δ_j·u.
//! The choice vector is r = u of digit 0; for the other digits the receiver sends c = u ⊕ r and the sender adds Δ_j·c.
//! Rows of the transposed columns are then `q_i = t_i ⊕ r_i·delta`.
//!
//! Digits are secret to the sender: its passes touch all seeds and select by masks.
//!
//! Bytes: 32 (base), 127·32 (base), 127·32 + 31·n/8 (trees and columns).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::TwopcError;
use crate::ot::base::{self, BaseSender, POINT_BYTES, SessionId};
#[cfg(any(test, feature = "testing"))]
use crate::testing::case::Case;
use hushed_math::bits::{Block, Mask, PadHash, PrgAes, transpose_columns};
use hushed_math::rng::SecretRng;
#[cfg(any(test, feature = "testing"))]
use hushed_math::taint;
use subtle::Choice;
use zeroize::Zeroizing;

/// Bits per digit, and so levels per tree.
const WIDTH: usize = 4;
/// Number of digits; the last has three bits.
const DIGITS: usize = 32;
/// Number of base OTs: the bits of `delta` except its lsb.
const BASE: usize = 127;
/// Bytes of the tree messages: both sides of every level, masked by the base OTs' keys.
const TREE_BYTES: usize = BASE * 32;

/// Levels of digit `d`'s tree.
fn width(d: usize) -> usize {
    if d + 1 < DIGITS {
        WIDTH
    } else {
        BASE - WIDTH * (DIGITS - 1)
    }
}

/// Bit of `delta` that is bit 0 of digit `d`.
fn low_bit(d: usize) -> usize {
    1 + WIDTH * d
}

/// Blocks per column for `n` OTs.
fn stride(n: usize) -> usize {
    n.div_ceil(128)
}

/// Payload bytes of the receiver's second message for `n` OTs.
pub(super) fn columns_bytes(n: usize) -> usize {
    TREE_BYTES + (DIGITS - 1) * stride(n) * 16
}

/// Payload bytes of the sender's message.
pub(super) const POINTS_BYTES: usize = BASE * POINT_BYTES;

/// The COT sender after its only message, waiting for the columns.
pub(super) struct StartSender {
    delta: Zeroizing<Block>,
    keys: Zeroizing<Vec<Block>>,
    hash: PadHash,
}

impl StartSender {
    /// Answers the receiver's first message (32 bytes); returns the message to send.
    pub(super) fn new(
        id: SessionId,
        delta: Block,
        first: &[u8],
        rng: &mut SecretRng,
    ) -> Result<(Self, Vec<u8>), TwopcError> {
        // The key of the side *not* on the path to the punctured seed, level by level.
        let delta = Zeroizing::new(delta);
        let choices =
            levels().map(|(d, level)| Choice::from(u8::from(!delta_bit(*delta, d, level))));
        let (keys, message) = base::receive(id, first, choices, BASE, rng)?;
        let hash = tree_hash(&id);
        Ok((StartSender { delta, keys, hash }, message))
    }

    /// Computes the `n` OTs from the receiver's columns message.
    #[expect(
        clippy::indexing_slicing,
        reason = "columns of fixed places; the message's length is checked first"
    )]
    pub(super) fn finish(self, message: &[u8], n: usize) -> Result<Vec<Block>, TwopcError> {
        let (trees, columns) = message.split_at_checked(TREE_BYTES).ok_or(BAD_COLUMNS)?;
        let trees = Block::read_all(trees, 2 * BASE).ok_or(BAD_COLUMNS)?;
        let stride = stride(n);
        let columns = Block::read_all(columns, (DIGITS - 1) * stride).ok_or(BAD_COLUMNS)?;

        // Column 0, the sender's lsb, stays zero.
        let mut matrix = Zeroizing::new(vec![Block::ZERO; 128 * stride]);
        let mut stream = Zeroizing::new(vec![Block::ZERO; stride]);
        let (mut keys, mut trees) = (self.keys.as_slice(), trees.as_slice());
        for d in 0..DIGITS {
            let (h, digit) = (width(d), digit(*self.delta, d));
            let (own_keys, own_trees);
            (own_keys, keys) = keys.split_at(h);
            (own_trees, trees) = trees.split_at(2 * h);
            let seeds = punctured_seeds(&self.hash, d, own_keys, own_trees, digit);
            let out = &mut matrix[low_bit(d) * stride..][..h * stride];
            for (x, seed) in seeds.iter().enumerate() {
                PrgAes::new(*seed).fill(&mut stream);
                add_by_bits(out, &stream, x as u64 ^ digit);
            }
            if d > 0 {
                add_by_bits(out, &columns[(d - 1) * stride..][..stride], digit);
            }
        }
        Ok(rows(&matrix, n))
    }
}

/// The COT receiver after its first message.
pub(super) struct StartReceiver {
    base: BaseSender,
    hash: PadHash,
}

impl StartReceiver {
    /// Draws the base sender, whose message of 32 bytes goes first.
    pub(super) fn new(id: SessionId, rng: &mut SecretRng) -> Self {
        StartReceiver {
            base: BaseSender::new(id, rng),
            hash: tree_hash(&id),
        }
    }

    /// The first message.
    pub(super) fn message(&self) -> &[u8] {
        self.base.message()
    }

    /// Answers the sender's points: returns the `n` OTs and the columns message.
    #[expect(
        clippy::indexing_slicing,
        reason = "columns of fixed places in this party's own matrix"
    )]
    pub(super) fn finish(
        self,
        points: &[u8],
        n: usize,
        rng: &mut SecretRng,
    ) -> Result<(Vec<Block>, Vec<u8>), TwopcError> {
        let keys = self.base.finish(points)?;
        if keys.len() != BASE {
            return Err(TwopcError::PeerMisbehaved {
                what: "number of base transfers",
            });
        }
        let stride = stride(n);
        let mut message = Vec::with_capacity(columns_bytes(n));
        let mut columns = Vec::with_capacity((DIGITS - 1) * stride * 16);
        let mut matrix = Zeroizing::new(vec![Block::ZERO; 128 * stride]);
        let mut stream = Zeroizing::new(vec![Block::ZERO; stride]);
        let mut keys = keys.as_slice();
        for d in 0..DIGITS {
            let h = width(d);
            let own_keys;
            (own_keys, keys) = keys.split_at(h);
            let seeds = all_seeds(&self.hash, d, random_block(rng), own_keys, &mut message);
            let mut u = Zeroizing::new(vec![Block::ZERO; stride]);
            let (choices, rest) = matrix.split_at_mut(stride);
            let out = &mut rest[(low_bit(d) - 1) * stride..][..h * stride];
            for (x, seed) in seeds.iter().enumerate() {
                PrgAes::new(*seed).fill(&mut stream);
                u.iter_mut().zip(stream.iter()).for_each(|(u, s)| *u ^= *s);
                add_by_bits(out, &stream, x as u64);
            }
            if d == 0 {
                choices.copy_from_slice(&u);
            } else {
                u.iter_mut().zip(choices.iter()).for_each(|(u, r)| *u ^= *r);
                Block::write_all(&u, &mut columns);
            }
        }
        message.extend_from_slice(&columns);
        Ok((rows(&matrix, n), message))
    }
}

const BAD_COLUMNS: TwopcError = TwopcError::PeerMisbehaved {
    what: "columns message",
};

/// (digit, level) of every base OT in order; level 0 is just below the root.
fn levels() -> impl Iterator<Item = (usize, usize)> {
    (0..DIGITS).flat_map(|d| (0..width(d)).map(move |level| (d, level)))
}

/// The digit's value.
fn digit(delta: Block, d: usize) -> u64 {
    (delta.0 >> low_bit(d)) as u64 & ((1 << width(d)) - 1)
}

/// The digit's bit that decides at a level; level 0 takes the top bit.
fn delta_bit(delta: Block, d: usize, level: usize) -> bool {
    digit(delta, d) >> (width(d) - 1 - level) & 1 == 1
}

/// `out` holds consecutive columns; column j gets `stream` if bit j of `bits` is set (masked).
fn add_by_bits(out: &mut [Block], stream: &[Block], bits: u64) {
    for (j, column) in out.chunks_mut(stream.len()).enumerate() {
        let mask = Mask::from_bit(bits >> j);
        column
            .iter_mut()
            .zip(stream)
            .for_each(|(c, s)| *c ^= *s & mask);
    }
}

fn rows(matrix: &[Block], n: usize) -> Vec<Block> {
    let mut out = vec![Block::ZERO; matrix.len()];
    transpose_columns(matrix, &mut out);
    // The rows beyond n are just as secret, and truncation leaves them in memory.
    if let Some(beyond) = out.get_mut(n..) {
        Block::wipe(beyond);
    }
    out.truncate(n);
    out
}

fn random_block(rng: &mut SecretRng) -> Block {
    let mut bytes = Zeroizing::new([0u8; 16]);
    rng.fill_bytes(bytes.as_mut_slice());
    Block::from_bytes(*bytes)
}

/// The hash for a start's trees.
fn tree_hash(id: &SessionId) -> PadHash {
    let mut seed = [0; 16];
    seed.iter_mut().zip(id).for_each(|(s, i)| *s = *i);
    PadHash::new(seed)
}

/// The children of a level of digit `d`'s tree: child c of parent p is `H(c, p)`, with c numbered within the level.
/// Every level has sixteen indices of its own, and so its own key.
fn children(hash: &PadHash, d: usize, level: usize, parents: &[Block]) -> Zeroizing<Vec<Block>> {
    let twice: Zeroizing<Vec<Block>> =
        Zeroizing::new(parents.iter().flat_map(|p| [*p, *p]).collect());
    let mut out = Zeroizing::new(vec![Block::ZERO; twice.len()]);
    let first = (1 << WIDTH) * (WIDTH * d + level) as u64;
    hash.pads(first, [Block::ZERO], &twice, [&mut out]);
    out
}

/// The XOR of all left children and of all right children.
fn side_sums(nodes: &[Block]) -> [Block; 2] {
    nodes
        .as_chunks::<2>()
        .0
        .iter()
        .fold([Block::ZERO; 2], |[l, r], [a, b]| [l ^ *a, r ^ *b])
}

/// All seeds of the receiver's tree from its root; appends both masked sums of each level to `message`.
fn all_seeds(
    hash: &PadHash,
    d: usize,
    root: Block,
    keys: &[[Block; 2]],
    message: &mut Vec<u8>,
) -> Zeroizing<Vec<Block>> {
    let mut nodes = Zeroizing::new(vec![root]);
    for (level, [k0, k1]) in keys.iter().enumerate() {
        nodes = children(hash, d, level, &nodes);
        let [left, right] = side_sums(&nodes);
        Block::write_all(&[left ^ *k0, right ^ *k1], message);
    }
    nodes
}

/// The seeds of the sender's tree: right except for seed number `punctured`.
fn punctured_seeds(
    hash: &PadHash,
    d: usize,
    keys: &[Block],
    sums: &[Block],
    punctured: u64,
) -> Zeroizing<Vec<Block>> {
    // The root is unknown, so any value will do. In each level the sibling of the node on the path comes from the sum
    // of its side; the node on the path stays wrong.
    let mut nodes = Zeroizing::new(vec![Block::ZERO]);
    for (level, (key, sum)) in keys.iter().zip(sums.as_chunks::<2>().0).enumerate() {
        nodes = children(hash, d, level, &nodes);
        let path = punctured >> (keys.len() - 1 - level);
        let side = Mask::from_bit(!path);
        let select = |[left, right]: [Block; 2]| left ^ ((left ^ right) & side);
        let fix = select(side_sums(&nodes)) ^ select(*sum) ^ *key;
        for (j, node) in nodes.iter_mut().enumerate() {
            *node ^= fix & Mask::from_eq(j as u64, path ^ 1);
        }
    }
    nodes
}

/// Runs the readers of the points and of the columns on a peer's bytes, for `n` OTs: whether each accepts them. The
/// keys are not secret.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read(n: usize, message: &[u8], rng: &mut SecretRng) -> [bool; 2] {
    let sender = StartSender {
        delta: Zeroizing::new(Block::ONES),
        keys: Zeroizing::new(vec![Block(7); BASE]),
        hash: tree_hash(&[3; 32]),
    };
    let blocks = sender.finish(message, n);
    if let Ok(blocks) = &blocks {
        assert_eq!((blocks.len(), message.len()), (n, columns_bytes(n)));
        assert!(blocks.iter().all(|b| !b.lsb()));
    }
    let receiver = StartReceiver::new([3; 32], rng).finish(message, n, rng);
    if let Ok((blocks, columns)) = &receiver {
        assert_eq!((blocks.len(), message.len()), (n, POINTS_BYTES));
        assert_eq!(columns.len(), columns_bytes(n));
    }
    [receiver.is_ok(), blocks.is_ok()]
}

/// The functions that choose by secret digits, for the checks that they do not branch on them.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn cases() -> Vec<Case> {
    let hash = tree_hash(&[3; 32]);
    let (keys, sums) = ([Block(7); WIDTH], [Block(9); 2 * WIDTH]);
    let seeds = Case::new(
        "start, punctured seeds",
        [0u8],
        |digit, secret| secret.fill_bytes(digit, 15),
        move |[digit]| drop(punctured_seeds(&hash, 0, &keys, &sums, (*digit).into())),
    );
    let stream = vec![Block(5); 256];
    let columns = Case::new(
        "start, columns by bits",
        ([0u8], vec![Block::ZERO; WIDTH * 256]),
        |(digit, _), secret| secret.fill_bytes(digit, 15),
        move |([digit], out)| add_by_bits(out, &stream, (*digit).into()),
    );
    let first = BaseSender::new([1; 32], &mut SecretRng::from_os("secrets"));
    taint::public(first.message());
    let base = Case::new(
        "base OT, receiver",
        [0u8; 4],
        |bits, secret| secret.fill_bytes(bits, 1),
        move |bits| {
            let choices = bits.iter().map(|b| Choice::from(*b));
            let mut rng = SecretRng::from_os("secrets");
            let received = base::receive([1; 32], first.message(), choices, 4, &mut rng);
            assert!(received.is_ok());
        },
    );
    vec![seeds, columns, base]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::{CotRecv, CotSend, assert_cot};

    #[test]
    fn start_ots_are_correlated_and_as_long_as_declared() {
        for (seed, n) in [(1, 1usize), (2, 128), (3, 1000)] {
            let mut rng_s = SecretRng::insecure_from_seed(seed);
            let mut rng_r = SecretRng::insecure_from_seed(seed + 100);
            let delta = random_block(&mut rng_s).with_lsb();
            let receiver = StartReceiver::new([3; 32], &mut rng_r);
            let (sender, points) =
                StartSender::new([3; 32], delta, receiver.message(), &mut rng_s).unwrap();
            assert_eq!(points.len(), POINTS_BYTES);
            let (r, columns) = receiver.finish(&points, n, &mut rng_r).unwrap();
            assert_eq!(columns.len(), columns_bytes(n));
            let s = sender.finish(&columns, n).unwrap();
            assert_eq!(s.len(), n);
            let ones = r.iter().filter(|b| b.lsb()).count();
            assert!(
                n < 1000 || (400..600).contains(&ones),
                "choice bits are random"
            );
            assert_cot(
                &CotSend {
                    delta,
                    blocks: s,
                    first_index: 0,
                    hash: tree_hash(&[3; 32]),
                },
                &CotRecv {
                    blocks: r,
                    first_index: 0,
                    hash: tree_hash(&[3; 32]),
                },
            );
        }
    }

    #[test]
    fn foreign_messages_are_checked() {
        let mut rng = SecretRng::insecure_from_seed(9);
        let receiver = StartReceiver::new([3; 32], &mut rng);
        let (sender, points) =
            StartSender::new([3; 32], Block::ONES, receiver.message(), &mut rng).unwrap();
        assert!(receiver.finish(&points[32..], 5, &mut rng).is_err());
        assert!(
            sender
                .finish(&vec![0; columns_bytes(128) - 1], 128)
                .is_err()
        );
    }
}
