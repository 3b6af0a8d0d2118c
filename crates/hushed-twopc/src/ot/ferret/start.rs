//! The first correlated OTs of a direction: 127 base OTs, stretched by subspace VOLE over small fields with the
//! repetition code (SoftSpokenOT: Roy, CRYPTO 2022, with both checks against cheating; fields of 16 elements).
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
//! A receiver that sends columns of more than one u, or sums that fit no tree, would get OTs that are wrong in a way
//! that depends on Δ, and learn Δ from what they do later. Two checks, in the same message:
//! * trees (Roy, Fig. 14): each seed has a tag of 32 bytes. The receiver sends the XOR of a tree's tags, which gives
//!   the sender the tag it lacks, and one hash of all tags.
//! * columns (Roy, Fig. 7): every column has 128 rows more than are used. With χ drawn from a hash of the message (in
//!   place of a coin toss) and h(x) the polynomial hash of a column's blocks in χ, whose first block, of the rows not
//!   used, has coefficient 1 and masks the others, the receiver sends h(u) and a hash of all h(v_j); the sender's
//!   h(w_j) ⊕ Δ_j·h(u) must have the same.
//!
//! What remains is a guess: a receiver that bends a digit's column or tree passes if it guessed that digit or a set
//! that contains it, so with probability 2^-c for c bits learned, and the direction ends otherwise. Different columns
//! have equal hashes for at most n/128 + 1 of 2^128 points χ.
//!
//! Bytes: 127·32 (base), 127·64 (base), 127·32 + 31·(n/8 + 16) + 33·32 + 16 + 32 (trees, columns, checks).
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::TwopcError;
use crate::ot::CHEATED;
use crate::ot::base::{self, BaseSender, PAIR_BYTES, POINT_BYTES, SessionId};
#[cfg(any(test, feature = "testing"))]
use crate::testing::case::Case;
use hushed_math::bits::{Block, Mask, PadHash, Powers, PrgAes, transpose_columns};
use hushed_math::rng::SecretRng;
use hushed_math::taint;
use sha2::{Digest, Sha256};
use subtle::{Choice, ConstantTimeEq};
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
    if d + 1 < DIGITS { WIDTH } else { BASE - WIDTH * (DIGITS - 1) }
}

/// Bit of `delta` that is bit 0 of digit `d`.
fn low_bit(d: usize) -> usize {
    1 + WIDTH * d
}

/// A tag of a seed, and any other hash of the checks.
type Tag = [u8; TAG_BYTES];
const TAG_BYTES: usize = 32;

/// Bytes of the check of the trees: the sum of tags of each, and a hash of all tags.
const TREE_CHECK_BYTES: usize = (DIGITS + 1) * TAG_BYTES;
/// Bytes of the check of the columns: h(u), and a hash of all h(v).
const COLUMN_CHECK_BYTES: usize = 16 + TAG_BYTES;

/// Rows of a column's first block, which is not used for OTs: it masks the hash of the others.
const MASKING_ROWS: usize = 128;

/// Blocks per column for `n` OTs.
fn stride(n: usize) -> usize {
    (MASKING_ROWS + n).div_ceil(128)
}

/// Payload bytes of the receiver's second message for `n` OTs.
pub(super) fn columns_bytes(n: usize) -> usize {
    let columns = (DIGITS - 1) * stride(n) * 16;
    TREE_BYTES + TREE_CHECK_BYTES + columns + COLUMN_CHECK_BYTES
}

/// Payload bytes of the receiver's first message.
pub(super) const FIRST_BYTES: usize = BASE * POINT_BYTES;

/// Payload bytes of the sender's message.
pub(super) const POINTS_BYTES: usize = BASE * PAIR_BYTES;

/// The COT sender after its only message, waiting for the columns.
pub(super) struct StartSender {
    id: SessionId,
    delta: Zeroizing<Block>,
    keys: Zeroizing<Vec<Block>>,
    hash: PadHash,
}

impl StartSender {
    /// Answers the receiver's first message ([`FIRST_BYTES`]); returns the message to send.
    pub(super) fn new(
        id: SessionId,
        delta: Block,
        first: &[u8],
        rng: &mut SecretRng,
    ) -> Result<(Self, Vec<u8>), TwopcError> {
        // The key of the side *not* on the path to the punctured seed, level by level.
        let delta = Zeroizing::new(delta);
        let choices = levels().map(|(d, level)| Choice::from(u8::from(!delta_bit(*delta, d, level))));
        let (keys, message) = base::receive(id, first, choices, BASE, rng)?;
        let hash = tree_hash(&id);
        let sender = StartSender { id, delta, keys, hash };
        Ok((sender, message))
    }

    /// Computes the `n` OTs from the receiver's columns message.
    ///
    /// # Errors
    /// [`TwopcError::PeerMisbehaved`] if the message has another length; [`CHEATED`] if a check fails.
    #[expect(clippy::indexing_slicing, reason = "columns of fixed places; the message's length is checked first")]
    pub(super) fn finish(self, message: &[u8], n: usize) -> Result<Vec<Block>, TwopcError> {
        let (rest, column_check) = message.split_last_chunk::<COLUMN_CHECK_BYTES>().ok_or(BAD_COLUMNS)?;
        let point = challenge(&self.id, rest);
        let (trees, rest) = rest.split_at_checked(TREE_BYTES).ok_or(BAD_COLUMNS)?;
        let (tree_check, columns) = rest.split_at_checked(TREE_CHECK_BYTES).ok_or(BAD_COLUMNS)?;
        let trees = Block::read_all(trees, 2 * BASE).ok_or(BAD_COLUMNS)?;
        let (tag_sums, _) = tree_check.as_chunks::<TAG_BYTES>();
        let (all_tags, tag_sums) = tag_sums.split_last().ok_or(BAD_COLUMNS)?;
        let stride = stride(n);
        let columns = Block::read_all(columns, (DIGITS - 1) * stride).ok_or(BAD_COLUMNS)?;

        // Column 0, the sender's lsb, stays zero.
        let mut matrix = Zeroizing::new(vec![Block::ZERO; 128 * stride]);
        let mut stream = Zeroizing::new(vec![Block::ZERO; stride]);
        let (mut keys, mut trees) = (self.keys.as_slice(), trees.as_slice());
        let mut tags = Sha256::new();
        for (d, tag_sum) in tag_sums.iter().enumerate() {
            let (h, digit) = (width(d), digit(*self.delta, d));
            let (own_keys, own_trees);
            (own_keys, keys) = keys.split_at(h);
            (own_trees, trees) = trees.split_at(2 * h);
            let seeds = punctured_seeds(&self.hash, d, own_keys, own_trees, digit);
            let mut own_tags = seed_tags(&self.id, d, &seeds);
            complete(&mut own_tags, tag_sum, digit);
            tags.update(own_tags.as_flattened());
            let out = &mut matrix[low_bit(d) * stride..][..h * stride];
            for (x, seed) in seeds.iter().enumerate() {
                PrgAes::new(*seed).fill(&mut stream);
                add_by_bits(out, &stream, x as u64 ^ digit);
            }
            if d > 0 {
                add_by_bits(out, &columns[(d - 1) * stride..][..stride], digit);
            }
        }
        let check = ColumnCheck::new(point, stride);
        let (hash_u, hash_v) = column_check.split_first_chunk().ok_or(BAD_COLUMNS)?;
        let hash_u = Block::from_bytes(*hash_u);
        let own = check.of_columns(&matrix, hash_u, *self.delta);
        let honest = tags.finalize().ct_eq(all_tags) & own.ct_eq(hash_v);
        match bool::from(taint::opened(honest)) {
            true => Ok(rows(&matrix, n)),
            false => Err(CHEATED),
        }
    }
}

/// The COT receiver after its first message.
pub(super) struct StartReceiver {
    id: SessionId,
    base: BaseSender,
    hash: PadHash,
}

impl StartReceiver {
    /// Draws the base sender, whose message of [`FIRST_BYTES`] goes first.
    pub(super) fn new(id: SessionId, rng: &mut SecretRng) -> Self {
        StartReceiver { id, base: BaseSender::new(id, BASE, rng), hash: tree_hash(&id) }
    }

    /// The first message.
    pub(super) fn message(&self) -> &[u8] {
        self.base.message()
    }

    /// Answers the sender's points: returns the `n` OTs and the columns message.
    pub(super) fn finish(
        self,
        points: &[u8],
        n: usize,
        rng: &mut SecretRng,
    ) -> Result<(Vec<Block>, Vec<u8>), TwopcError> {
        let (matrix, message) = self.columns(points, n, rng)?;
        Ok((rows(&matrix, n), message))
    }

    /// The columns of t, with those of the choices first, and the message.
    #[expect(clippy::indexing_slicing, reason = "columns of fixed places in this party's own matrix")]
    fn columns(
        self,
        points: &[u8],
        n: usize,
        rng: &mut SecretRng,
    ) -> Result<(Zeroizing<Vec<Block>>, Vec<u8>), TwopcError> {
        let keys = self.base.finish(points)?;
        let stride = stride(n);
        let mut message = Vec::with_capacity(columns_bytes(n));
        let mut columns = Vec::with_capacity((DIGITS - 1) * stride * 16);
        let (mut tag_sums, mut tags) = (Vec::with_capacity(DIGITS * TAG_BYTES), Sha256::new());
        let mut matrix = Zeroizing::new(vec![Block::ZERO; 128 * stride]);
        let mut stream = Zeroizing::new(vec![Block::ZERO; stride]);
        let mut keys = keys.as_slice();
        for d in 0..DIGITS {
            let h = width(d);
            let own_keys;
            (own_keys, keys) = keys.split_at(h);
            let seeds = all_seeds(&self.hash, d, random_block(rng), own_keys, &mut message);
            let own_tags = seed_tags(&self.id, d, &seeds);
            tags.update(own_tags.as_flattened());
            tag_sums.extend_from_slice(&sum_of_tags(&own_tags));
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
        message.extend_from_slice(&tag_sums);
        message.extend_from_slice(&tags.finalize());
        message.extend_from_slice(&columns);
        let check = ColumnCheck::new(challenge(&self.id, &message), stride);
        let hash_u = check.powers.hash(&matrix[..stride]);
        Block::write_all(&[hash_u], &mut message);
        message.extend_from_slice(&check.of_columns(&matrix, Block::ZERO, Block::ZERO));
        Ok((matrix, message))
    }
}

/// The point of the columns' check, from everything that the receiver has said before.
fn challenge(id: &SessionId, message: &[u8]) -> Block {
    let digest: Tag =
        Sha256::new().chain_update(b"hushed start, challenge").chain_update(id).chain_update(message).finalize().into();
    let mut point = [0; 16];
    point.iter_mut().zip(digest).for_each(|(p, d)| *p = d);
    Block::from_bytes(point)
}

/// h of columns of a fixed length.
struct ColumnCheck {
    powers: Powers,
    stride: usize,
}

impl ColumnCheck {
    fn new(point: Block, stride: usize) -> ColumnCheck {
        ColumnCheck { powers: Powers::new(point, stride), stride }
    }

    /// The hash of all h(column j) ⊕ bit j of `delta`·h(u), for the columns of the bits of delta but its lsb.
    fn of_columns(&self, matrix: &[Block], hash_u: Block, delta: Block) -> Tag {
        let mut all = Sha256::new();
        for (j, column) in matrix.chunks(self.stride).enumerate().skip(1) {
            let bit = Mask::from_bit((delta.0 >> j) as u64);
            let hash = self.powers.hash(column) ^ (hash_u & bit);
            all.update(hash.to_bytes());
        }
        all.finalize().into()
    }
}

/// The tags of a tree's seeds.
fn seed_tags(id: &SessionId, d: usize, seeds: &[Block]) -> Zeroizing<Vec<Tag>> {
    let tag = |(x, seed): (usize, &Block)| -> Tag {
        Sha256::new()
            .chain_update(b"hushed start, tag")
            .chain_update(id)
            .chain_update([d as u8, x as u8])
            .chain_update(seed.to_bytes())
            .finalize()
            .into()
    };
    Zeroizing::new(seeds.iter().enumerate().map(tag).collect())
}

fn sum_of_tags(tags: &[Tag]) -> Tag {
    tags.iter().fold([0; TAG_BYTES], |mut sum, tag| {
        sum.iter_mut().zip(tag).for_each(|(s, t)| *s ^= t);
        sum
    })
}

/// Replaces the tag of the punctured seed with the one that makes the sum right.
fn complete(tags: &mut [Tag], sum: &Tag, punctured: u64) {
    // The sum of all as they stand, so that the error at the punctured place is this sum plus the right one.
    let mut error = sum_of_tags(tags);
    error.iter_mut().zip(sum).for_each(|(e, s)| *e ^= s);
    for (x, tag) in tags.iter_mut().enumerate() {
        let here = (u64::from(u8::MAX) & Mask::from_eq(x as u64, punctured)) as u8;
        tag.iter_mut().zip(error).for_each(|(t, e)| *t ^= e & here);
    }
}

const BAD_COLUMNS: TwopcError = TwopcError::PeerMisbehaved { what: "columns message" };

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
        column.iter_mut().zip(stream).for_each(|(c, s)| *c ^= *s & mask);
    }
}

/// The rows of `n` OTs, which follow those of the masking block.
fn rows(matrix: &[Block], n: usize) -> Vec<Block> {
    let mut all = Zeroizing::new(vec![Block::ZERO; matrix.len()]);
    transpose_columns(matrix, &mut all);
    all.iter().skip(MASKING_ROWS).take(n).copied().collect()
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
    let twice: Zeroizing<Vec<Block>> = Zeroizing::new(parents.iter().flat_map(|p| [*p, *p]).collect());
    let mut out = Zeroizing::new(vec![Block::ZERO; twice.len()]);
    let first = (1 << WIDTH) * (WIDTH * d + level) as u64;
    hash.pads(first, [Block::ZERO], &twice, [&mut out]);
    out
}

/// The XOR of all left children and of all right children.
fn side_sums(nodes: &[Block]) -> [Block; 2] {
    nodes.as_chunks::<2>().0.iter().fold([Block::ZERO; 2], |[l, r], [a, b]| [l ^ *a, r ^ *b])
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
fn punctured_seeds(hash: &PadHash, d: usize, keys: &[Block], sums: &[Block], punctured: u64) -> Zeroizing<Vec<Block>> {
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

/// Runs the readers of the points and of the columns on a peer's bytes, for `n` OTs: whether each accepts their form,
/// and gets to its checks. The keys are not secret.
#[cfg(any(test, feature = "testing"))]
pub(crate) fn read(n: usize, message: &[u8], rng: &mut SecretRng) -> [bool; 2] {
    let sender = StartSender {
        id: [3; 32],
        delta: Zeroizing::new(Block::ONES),
        keys: Zeroizing::new(vec![Block(7); BASE]),
        hash: tree_hash(&[3; 32]),
    };
    let columns = match sender.finish(message, n) {
        Ok(_) => panic!("columns of no tree pass the checks"),
        Err(error) => crate::ot::is_cheated(&error),
    };
    assert_eq!(columns, message.len() == columns_bytes(n));
    let receiver = StartReceiver::new([3; 32], rng).finish(message, n, rng);
    if let Ok((blocks, columns)) = &receiver {
        assert_eq!((blocks.len(), message.len()), (n, POINTS_BYTES));
        assert_eq!(columns.len(), columns_bytes(n));
    }
    [receiver.is_ok(), columns]
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
    let first = BaseSender::new([1; 32], 4, &mut SecretRng::from_os("secrets"));
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
            let (sender, points) = StartSender::new([3; 32], delta, receiver.message(), &mut rng_s).unwrap();
            assert_eq!(points.len(), POINTS_BYTES);
            let (r, columns) = receiver.finish(&points, n, &mut rng_r).unwrap();
            assert_eq!(columns.len(), columns_bytes(n));
            let s = sender.finish(&columns, n).unwrap();
            assert_eq!(s.len(), n);
            let ones = r.iter().filter(|b| b.lsb()).count();
            assert!(n < 1000 || (400..600).contains(&ones), "choice bits are random");
            assert_cot(
                &CotSend { delta, blocks: s, first_index: 0, hash: tree_hash(&[3; 32]) },
                &CotRecv { blocks: r, first_index: 0, hash: tree_hash(&[3; 32]) },
            );
        }
    }

    #[test]
    fn foreign_messages_are_checked() {
        let mut rng = SecretRng::insecure_from_seed(9);
        let receiver = StartReceiver::new([3; 32], &mut rng);
        let (sender, points) = StartSender::new([3; 32], Block::ONES, receiver.message(), &mut rng).unwrap();
        assert!(receiver.finish(&points[64..], 5, &mut rng).is_err());
        assert!(sender.finish(&vec![0; columns_bytes(128) - 1], 128).is_err());
    }

    /// A receiver that changes its columns, as its matrix and the message without the checks of columns, and then
    /// answers the challenge as well as it can; the sender's result.
    fn bent(n: usize, delta: Block, bend: impl FnOnce(&mut [Block], &mut Vec<u8>)) -> Result<Vec<Block>, TwopcError> {
        let mut rng = SecretRng::insecure_from_seed(4);
        let receiver = StartReceiver::new([3; 32], &mut rng);
        let (sender, points) = StartSender::new([3; 32], delta, receiver.message(), &mut rng)?;
        let (mut matrix, mut message) = receiver.columns(&points, n, &mut rng)?;
        message.truncate(columns_bytes(n) - COLUMN_CHECK_BYTES);
        let hash_u = matrix[..stride(n)].to_vec();
        bend(&mut matrix, &mut message);
        let check = ColumnCheck::new(challenge(&[3; 32], &message), stride(n));
        Block::write_all(&[check.powers.hash(&hash_u)], &mut message);
        message.extend_from_slice(&check.of_columns(&matrix, Block::ZERO, Block::ZERO));
        sender.finish(&message, n)
    }

    fn cheated<T>(result: &Result<T, TwopcError>) -> bool {
        result.as_ref().err().is_some_and(crate::ot::is_cheated)
    }

    /// Flips a row of the column that digit `d` is sent with.
    fn flip(message: &mut [u8], n: usize, d: usize, row: usize) {
        let bit = 8 * (TREE_BYTES + TREE_CHECK_BYTES) + (d - 1) * stride(n) * 128 + row;
        message[bit / 8] ^= 1 << (bit % 8);
    }

    /// The attack of a receiver on delta: with bit i of a digit's column flipped, OT i is off by that digit of delta,
    /// and whatever uses it tells which of sixteen values the digit has.
    #[test]
    fn a_receiver_that_bends_a_column_is_refused_and_always_alike() {
        let n = 300;
        let rows = [0, MASKING_ROWS, MASKING_ROWS + n - 1, 128 * stride(n) - 1];
        assert!(bent(n, Block::ONES, |_, _| ()).is_ok());
        for d in 1..DIGITS {
            let row = rows[d % rows.len()];
            let result = bent(n, Block::ONES, |_, message| flip(message, n, d, row));
            assert!(cheated(&result), "{d} {row}");
        }
        // A sender whose digit is 0 multiplies the column by 0: its OTs are right.
        assert!(bent(n, Block::ONE, |_, message| flip(message, n, 1, 200)).is_ok());
    }

    /// A receiver may guess a digit and hash as if the flip were right: that passes for one digit in sixteen, and tells
    /// the receiver the four bits that it guessed.
    #[test]
    fn a_guess_passes_for_one_digit_in_sixteen() {
        let (n, d, guess) = (100, 1, 6);
        let passed: Vec<u128> = (0..16)
            .filter(|digit| {
                let delta = Block(digit << low_bit(d)).with_lsb();
                let result = bent(n, delta, |matrix, message| {
                    flip(message, n, d, MASKING_ROWS);
                    for j in (0..WIDTH).filter(|j| guess >> j & 1 == 1) {
                        matrix[(low_bit(d) + j) * stride(n) + 1] ^= Block::ONE;
                    }
                });
                assert!(result.is_ok() || cheated(&result));
                result.is_ok()
            })
            .collect();
        assert_eq!(passed, [guess]);
    }

    /// With the sum of one side of a level bent, the sender's seeds below are wrong if its path takes the other side.
    /// If not, it never uses that sum.
    #[test]
    fn a_receiver_that_bends_a_tree_is_refused_if_it_matters() {
        let delta = Block(0x1234_5678_9abc_def0_1357_9bdf_0246_8ace).with_lsb();
        for (i, (d, level)) in levels().enumerate().step_by(5) {
            let refused = [0, 1].map(|side| {
                let at = 16 * (2 * i + side);
                cheated(&bent(200, delta, |_, message| message[at] ^= 1))
            });
            let path = usize::from(delta_bit(delta, d, level));
            assert!(refused[1 - path] && !refused[path], "{d} {level}");
        }
    }

    #[test]
    fn a_receiver_that_bends_a_check_is_refused() {
        let n = 200;
        for at in (TREE_BYTES..TREE_BYTES + TREE_CHECK_BYTES).step_by(33) {
            assert!(cheated(&bent(n, Block::ONES, |_, message| message[at] ^= 0x10)));
        }
        assert!(cheated(&bent(n, Block::ONES, |matrix, _| {
            matrix[5 * stride(n)] ^= Block::ONE;
        })));
    }
}
