//! One extension: n = t·2^h correlated OTs from k + t·h (Yang, Weng, Lan, Zhang, Wang, CCS 2020, with the trees of the
//! half-tree paper).
//!
//! Inputs: the LPN secret (k OTs), then h OTs for each of t trees. Tree i spreads one random unit vector over rows
//! `[i·2^h, (i+1)·2^h)`: regular noise, whose position is the complement of the h choice bits, which are outputs of the
//! same functionality and therefore uniform. Drawing positions separately would change nothing but cost a message and a
//! round to switch the choice bits. Row r of the result is the noise plus nine inputs at public columns; OTs are
//! linear, so `y = w ⊕ A·z` holds for blocks and choice bits at once. Every extension has rows of its own: under one
//! code for all, an attack on LPN could share its linear algebra between them.
//!
//! An extension runs in steps of [`CHUNK`] trees, each a single message from the sender, of h − 1 blocks per tree.
//! Steps run as outputs are needed, so that these are still in the cache when used, and the receiver works while the
//! sender does. The trees of a step run on the thread pool.
//!
//! Each step leaves the sums for [`crate::ot::check`], with leaf j of tree i weighted by β^i·χ^j. The points χ and β
//! are a hash of the step's message, so the sender, who makes the message from all trees, goes over the leaves twice.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::params::FerretParams;
use crate::error::TwopcError;
use crate::ot::Unchecked;
use hushed_math::bits::{Block, HalfTree, LpnCode, Powers, multiply};
use rayon::prelude::*;
use sha2::{Digest, Sha256};
use std::ops::Range;

/// Trees per step: 512 KiB of outputs with the default set, which stay in a second-level cache until used.
const CHUNK: usize = 32;

/// What both parties need for extensions: the code and the tree expander.
pub(super) struct Extender {
    params: FerretParams,
    code: LpnCode,
    tree: HalfTree,
    /// The seed of the trees, which separates this extender's challenges from those of others.
    seed: [u8; 16],
}

impl Extender {
    /// An extender for one parameter set, under two public seeds agreed on by both parties: one for the code and one
    /// for the trees' keys.
    pub(super) fn new(params: FerretParams, code: [u8; 16], trees: [u8; 16]) -> Self {
        Extender { params, code: LpnCode::new(code, params.log_k()), tree: HalfTree::new(trees), seed: trees }
    }

    pub(super) fn params(&self) -> FerretParams {
        self.params
    }

    /// Steps per extension.
    pub(super) fn steps(&self) -> usize {
        self.params.trees().div_ceil(CHUNK)
    }

    /// Number of outputs of a step.
    pub(super) fn step_outputs(&self, step: usize) -> usize {
        self.step_trees(step).len() << self.params.depth()
    }

    /// Bytes of a step's message.
    pub(super) fn step_bytes(&self, step: usize) -> usize {
        self.step_trees(step).len() * (self.params.depth() - 1) * 16
    }

    fn step_trees(&self, step: usize) -> Range<usize> {
        let trees = self.params.trees();
        (step * CHUNK).min(trees)..((step + 1) * CHUNK).min(trees)
    }

    /// The sender's step of extension number `extension` under these seeds: `inputs` are the extension's, and `out` has
    /// [`Extender::step_outputs`] blocks. Returns the message and the sums for the check.
    pub(super) fn send(
        &self,
        extension: u64,
        step: usize,
        delta: Block,
        inputs: &[Block],
        out: &mut [Block],
    ) -> (Vec<u8>, Unchecked) {
        self.send_bent(extension, step, delta, inputs, out, |_| ())
    }

    /// [`Extender::send`] with a change of the corrections, which tests use to cheat.
    fn send_bent(
        &self,
        extension: u64,
        step: usize,
        delta: Block,
        inputs: &[Block],
        out: &mut [Block],
        bend: impl FnOnce(&mut [Block]),
    ) -> (Vec<u8>, Unchecked) {
        let (secret, cots) = self.split(step, inputs);
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let mut corrections = vec![Block::ZERO; cots.len() / h * levels];
        out.par_chunks_mut(1 << h)
            .zip(cots.par_chunks(h))
            .zip(corrections.par_chunks_mut(levels))
            .enumerate()
            .for_each(|(i, ((leaves, cots), corrections))| {
                let tree = self.tree_number(extension, step, i);
                self.tree.expand_sender(tree, delta, cots, corrections, leaves);
            });
        bend(&mut corrections);
        let mut message = Vec::with_capacity(corrections.len() * 16);
        Block::write_all(&corrections, &mut message);
        let weights = self.weights(extension, step, &message);
        let sums = out
            .par_chunks_mut(1 << h)
            .enumerate()
            .map(|(i, leaves)| {
                let sum = weights.leaves.hash(leaves);
                let row = self.first_row(extension, step, i);
                self.code.encode(row, secret, leaves);
                Unchecked { leaves: sum, noise: Block::ZERO }
            })
            .collect();
        (message, weights.total(sums))
    }

    /// The receiver's step, from the sender's message; returns the sums for the check.
    ///
    /// # Errors
    /// [`TwopcError::PeerMisbehaved`] unless the message has [`Extender::step_bytes`] bytes.
    pub(super) fn receive(
        &self,
        extension: u64,
        step: usize,
        inputs: &[Block],
        message: &[u8],
        out: &mut [Block],
    ) -> Result<Unchecked, TwopcError> {
        let (secret, cots) = self.split(step, inputs);
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let corrections = Block::read_all(message, cots.len() / h * levels)
            .ok_or(TwopcError::PeerMisbehaved { what: "extension message" })?;
        let weights = self.weights(extension, step, message);
        let sums = out
            .par_chunks_mut(1 << h)
            .zip(cots.par_chunks(h))
            .zip(corrections.par_chunks(levels))
            .enumerate()
            .map(|(i, ((leaves, cots), corrections))| {
                let tree = self.tree_number(extension, step, i);
                self.tree.expand_receiver(tree, cots, corrections, leaves);
                let sum = weights.leaves.hash(leaves);
                let row = self.first_row(extension, step, i);
                self.code.encode(row, secret, leaves);
                Unchecked { leaves: sum, noise: weights.of_noise(cots) }
            })
            .collect();
        Ok(weights.total(sums))
    }

    /// The weights of a step's leaves, from its message.
    fn weights(&self, extension: u64, step: usize, message: &[u8]) -> Weights {
        let digest: [u8; 32] = Sha256::new()
            .chain_update(b"hushed extension, challenge")
            .chain_update(self.seed)
            .chain_update(extension.to_le_bytes())
            .chain_update((step as u64).to_le_bytes())
            .chain_update(message)
            .finalize()
            .into();
        let mut points = [[0; 16]; 2];
        points.as_flattened_mut().copy_from_slice(&digest);
        let [leaf, tree] = points.map(Block::from_bytes);
        Weights { leaves: Powers::new(leaf, 1 << self.params.depth()), tree }
    }

    /// The LPN secret and the OTs of a step's trees.
    #[expect(clippy::indexing_slicing, reason = "the inputs are this party's own, as many as the parameters say")]
    fn split<'a>(&self, step: usize, inputs: &'a [Block]) -> (&'a [Block], &'a [Block]) {
        let (secret, cots) = inputs.split_at(self.code.columns());
        let (trees, h) = (self.step_trees(step), self.params.depth());
        (secret, &cots[trees.start * h..trees.end * h])
    }

    /// The number of a step's tree `i` among all trees under the seed.
    fn tree_number(&self, extension: u64, step: usize, i: usize) -> u64 {
        extension * self.params.trees() as u64 + (step * CHUNK + i) as u64
    }

    /// The first row of a step's tree `i`, among the rows of all extensions.
    fn first_row(&self, extension: u64, step: usize, i: usize) -> u64 {
        self.tree_number(extension, step, i) << self.params.depth()
    }
}

/// The weights β^i·χ^j of a step's leaves.
struct Weights {
    leaves: Powers,
    tree: Block,
}

impl Weights {
    /// χ^α for the noise position α of a tree, whose bits are the complements of the OTs' choice bits from the top
    /// down: by squaring and multiplying, with masks.
    fn of_noise(&self, cots: &[Block]) -> Block {
        let point = self.leaves.as_slice().get(1).copied().unwrap_or_default();
        cots.iter().fold(Block::ONE, |power, cot| {
            let square = multiply(power, power);
            let more = multiply(square, point);
            square ^ ((square ^ more) & !cot.lsb_mask())
        })
    }

    /// Σ β^i·sums[i].
    fn total(&self, mut sums: Vec<Unchecked>) -> Unchecked {
        let horner = |mut total: Unchecked, sum: &Unchecked| {
            total.leaves = multiply(total.leaves, self.tree);
            total.noise = multiply(total.noise, self.tree);
            total.add(*sum);
            total
        };
        let total = sums.iter().rev().fold(Unchecked::default(), horner);
        sums.iter_mut().for_each(Unchecked::wipe);
        total
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::{CotRecv, CotSend, assert_cot};
    use hushed_math::bits::{PadHash, PrgAes};

    /// Inputs of one extension at both ends.
    fn inputs(params: FerretParams, delta: Block) -> [Vec<Block>; 2] {
        let [mut q, bits] = [8, 9].map(|seed| {
            let mut blocks = vec![Block::ZERO; params.inputs()];
            PrgAes::new(Block(seed)).fill(&mut blocks);
            blocks
        });
        q.iter_mut().for_each(|b| *b = b.without_lsb());
        let m = q.iter().zip(&bits);
        let m = m.map(|(q, b)| *q ^ (delta & b.lsb_mask())).collect();
        [q, m]
    }

    /// A sender that bends any correction leaves sums that do not fit: the receiver has a wrong node on that level
    /// whatever its noise positions are.
    #[test]
    fn a_sender_that_bends_a_correction_is_refused() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16], [5; 16]);
        let delta = Block(0x1234_5678_9abc_def1);
        let [q, m] = inputs(params, delta);
        let levels = params.depth() - 1;
        let n = extender.step_outputs(0);
        let (mut out, mut received) = (vec![Block::ZERO; n], vec![Block::ZERO; n]);
        for level in 0..levels {
            for tree in [0, CHUNK - 1] {
                let bend = |c: &mut [Block]| c[tree * levels + level] ^= Block(1 << (level + 1));
                let (message, v) = extender.send_bent(0, 0, delta, &q, &mut out, bend);
                let w = extender.receive(0, 0, &m, &message, &mut received);
                let w = w.unwrap();
                let fits = w.leaves == v.leaves ^ multiply(delta, w.noise);
                assert!(!fits, "level {level} of tree {tree}");
            }
        }
    }

    /// A sender may guess: bending the last level by ε makes the leaf at the noise and its neighbour wrong by ε, which
    /// the sender can add to its sum for one of 2^(h−1) pairs.
    #[test]
    fn a_guess_passes_for_one_pair_of_leaves() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16], [5; 16]);
        let delta = Block(0x1234_5678_9abc_def1);
        let [q, m] = inputs(params, delta);
        let (h, tree, epsilon) = (params.depth(), 3, Block(0xf0));
        let n = extender.step_outputs(0);
        let (mut out, mut received) = (vec![Block::ZERO; n], vec![Block::ZERO; n]);
        let bend = |c: &mut [Block]| c[tree * (h - 1) + h - 2] ^= epsilon;
        let (message, v) = extender.send_bent(0, 0, delta, &q, &mut out, bend);
        let w = extender.receive(0, 0, &m, &message, &mut received).unwrap();
        let weights = extender.weights(0, 0, &message);
        let pair_of = |leaves: &[Block]| {
            let weight = leaves[0] ^ leaves[1];
            (0..tree).fold(multiply(weight, epsilon), |e, _| multiply(e, weights.tree))
        };
        let fits = |pair: usize| {
            let error = pair_of(&weights.leaves.as_slice()[2 * pair..]);
            w.leaves == v.leaves ^ multiply(delta, w.noise) ^ error
        };
        let passed: Vec<usize> = (0..1 << (h - 1)).filter(|pair| fits(*pair)).collect();
        let first = (1 << 16) + tree * h;
        let choices = m[first..][..h].iter().zip(&q[first..]);
        let alpha = choices.fold(0, |a, (m, q)| 2 * a + usize::from(m.lsb() == q.lsb()));
        assert_eq!(passed, [alpha / 2]);
    }

    /// Every extension has rows of its own: under one code, an attack on LPN serves all extensions of a session.
    #[test]
    fn extensions_have_codes_of_their_own() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16], [5; 16]);
        let last = extender.first_row(0, extender.steps() - 1, CHUNK - 1) + (1 << params.depth());
        assert_eq!(last, params.outputs() as u64);
        assert_eq!(extender.first_row(1, 0, 0), last);
    }

    #[test]
    fn outputs_are_correlated_and_messages_as_declared() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16], [5; 16]);
        let delta = Block(0x1234_5678_9abc_def1);
        let [q, m] = inputs(params, delta);
        let mut sent = vec![Block::ZERO; params.outputs()];
        let mut received = vec![Block::ZERO; params.outputs()];
        let (mut at, mut bytes) = (0, 0);
        for step in 0..extender.steps() {
            let range = at..at + extender.step_outputs(step);
            let (message, v) = extender.send(3, step, delta, &q, &mut sent[range.clone()]);
            assert_eq!(message.len(), extender.step_bytes(step));
            let w = extender.receive(3, step, &m, &message, &mut received[range.clone()]).unwrap();
            assert!(w.leaves == v.leaves ^ multiply(delta, w.noise));
            assert!(extender.receive(3, step, &m, &message[1..], &mut []).is_err());
            (at, bytes) = (range.end, bytes + message.len());
        }
        assert_eq!((at, bytes), (params.outputs(), params.message_bytes()));
        let ones = received.iter().filter(|b| b.lsb()).count() as f64;
        // Six standard deviations of a fair coin.
        let n = received.len() as f64;
        assert!((ones - n / 2.0).abs() < 3.0 * n.sqrt(), "choice bits are fair");
        assert_cot(
            &CotSend { delta, blocks: sent, first_index: 0, hash: PadHash::new([0; 16]) },
            &CotRecv { blocks: received, first_index: 0, hash: PadHash::new([0; 16]) },
        );
    }
}
