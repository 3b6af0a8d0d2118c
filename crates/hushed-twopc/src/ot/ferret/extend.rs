//! One extension: n = t·2^h correlated OTs from k + t·h (Yang, Weng, Lan, Zhang, Wang, CCS 2020, with the trees of the
//! half-tree paper; semi-honest).
//!
//! Inputs: the LPN secret (k OTs), then h OTs for each of t trees. Tree i spreads one random unit vector over rows
//! `[i·2^h, (i+1)·2^h)`: regular noise, whose position is the complement of the h choice bits, which are outputs of the
//! same functionality and therefore uniform. Drawing positions separately would change nothing but cost a message and a
//! round to switch the choice bits. Row r of the result is the noise plus ten inputs at public columns; OTs are linear,
//! so `y = w ⊕ A·z` holds for blocks and choice bits at once.
//!
//! An extension runs in steps of [`CHUNK`] trees, each a single message from the sender, of h − 1 blocks per tree.
//! Steps run as outputs are needed, so that these are still in the cache when used, and the receiver works while the
//! sender does. The trees of a step run on the thread pool.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::params::FerretParams;
use crate::error::TwopcError;
use hushed_math::bits::{Block, HalfTree, LpnCode};
use rayon::prelude::*;
use std::ops::Range;
use zeroize::Zeroizing;

/// Trees per step: 512 KiB of outputs with the default set, which stay in a second-level cache until used.
const CHUNK: usize = 32;

/// What both parties need for extensions: the code and the tree expander.
pub(super) struct Extender {
    params: FerretParams,
    code: LpnCode,
    tree: HalfTree,
}

impl Extender {
    /// An extender for one parameter set, under two public seeds agreed on by both parties: one for the code and one
    /// for the trees' keys.
    pub(super) fn new(params: FerretParams, code: [u8; 16], trees: [u8; 16]) -> Self {
        Extender {
            params,
            code: LpnCode::new(code, params.log_k()),
            tree: HalfTree::new(trees),
        }
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
    /// [`Extender::step_outputs`] blocks. Returns the message.
    pub(super) fn send(
        &self,
        extension: u64,
        step: usize,
        delta: Block,
        inputs: &[Block],
        out: &mut [Block],
    ) -> Vec<u8> {
        let (secret, cots) = self.split(step, inputs);
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let mut corrections = vec![Block::ZERO; cots.len() / h * levels];
        out.par_chunks_mut(1 << h)
            .zip(cots.par_chunks(h))
            .zip(corrections.par_chunks_mut(levels))
            .enumerate()
            .for_each_init(
                || Zeroizing::new(vec![Block::ZERO; 1 << h]),
                |leaves, (i, ((out, cots), corrections))| {
                    let tree = self.tree_number(extension, step, i);
                    self.tree
                        .expand_sender(tree, delta, cots, corrections, leaves);
                    self.code
                        .encode(self.first_row(step, i), secret, leaves, out);
                },
            );
        let mut message = Vec::with_capacity(corrections.len() * 16);
        Block::write_all(&corrections, &mut message);
        message
    }

    /// The receiver's step, from the sender's message.
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
    ) -> Result<(), TwopcError> {
        let (secret, cots) = self.split(step, inputs);
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let corrections = Block::read_all(message, cots.len() / h * levels).ok_or(
            TwopcError::PeerMisbehaved {
                what: "extension message",
            },
        )?;
        out.par_chunks_mut(1 << h)
            .zip(cots.par_chunks(h))
            .zip(corrections.par_chunks(levels))
            .enumerate()
            .for_each_init(
                || Zeroizing::new(vec![Block::ZERO; 1 << h]),
                |leaves, (i, ((out, cots), corrections))| {
                    let tree = self.tree_number(extension, step, i);
                    self.tree.expand_receiver(tree, cots, corrections, leaves);
                    self.code
                        .encode(self.first_row(step, i), secret, leaves, out);
                },
            );
        Ok(())
    }

    /// The LPN secret and the OTs of a step's trees.
    #[expect(
        clippy::indexing_slicing,
        reason = "the inputs are this party's own, as many as the parameters say"
    )]
    fn split<'a>(&self, step: usize, inputs: &'a [Block]) -> (&'a [Block], &'a [Block]) {
        let (secret, cots) = inputs.split_at(self.code.columns());
        let (trees, h) = (self.step_trees(step), self.params.depth());
        (secret, &cots[trees.start * h..trees.end * h])
    }

    /// The number of a step's tree `i` among all trees under the seed.
    fn tree_number(&self, extension: u64, step: usize, i: usize) -> u64 {
        extension * self.params.trees() as u64 + (step * CHUNK + i) as u64
    }

    /// The first row of a step's tree `i`.
    fn first_row(&self, step: usize, i: usize) -> u64 {
        ((step * CHUNK + i) as u64) << self.params.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::{CotRecv, CotSend, assert_cot};
    use hushed_math::bits::{PadHash, PrgAes};

    #[test]
    fn outputs_are_correlated_and_messages_as_declared() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16], [5; 16]);
        let delta = Block(0x1234_5678_9abc_def1);
        let mut q = vec![Block::ZERO; params.inputs()];
        PrgAes::new(Block(8)).fill(&mut q);
        let mut bits = vec![Block::ZERO; params.inputs()];
        PrgAes::new(Block(9)).fill(&mut bits);
        q.iter_mut().for_each(|b| *b = b.without_lsb());
        let m: Vec<Block> = q
            .iter()
            .zip(&bits)
            .map(|(q, b)| *q ^ (delta & b.lsb_mask()))
            .collect();

        let mut sent = vec![Block::ZERO; params.outputs()];
        let mut received = vec![Block::ZERO; params.outputs()];
        let (mut at, mut bytes) = (0, 0);
        for step in 0..extender.steps() {
            let range = at..at + extender.step_outputs(step);
            let message = extender.send(0, step, delta, &q, &mut sent[range.clone()]);
            assert_eq!(message.len(), extender.step_bytes(step));
            extender
                .receive(0, step, &m, &message, &mut received[range.clone()])
                .unwrap();
            assert!(
                extender
                    .receive(0, step, &m, &message[1..], &mut [])
                    .is_err()
            );
            (at, bytes) = (range.end, bytes + message.len());
        }
        assert_eq!((at, bytes), (params.outputs(), params.message_bytes()));
        let ones = received.iter().filter(|b| b.lsb()).count() as f64;
        // Six standard deviations of a fair coin.
        let n = received.len() as f64;
        assert!(
            (ones - n / 2.0).abs() < 3.0 * n.sqrt(),
            "choice bits are fair"
        );
        assert_cot(
            &CotSend {
                delta,
                blocks: sent,
                first_index: 0,
                hash: PadHash::new([0; 16]),
            },
            &CotRecv {
                blocks: received,
                first_index: 0,
                hash: PadHash::new([0; 16]),
            },
        );
    }
}
