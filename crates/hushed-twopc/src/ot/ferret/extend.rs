//! One extension: n = t·2^h correlated OTs from k + t·h (Yang, Weng, Lan, Zhang, Wang, CCS 2020, with
//! the trees of the half-tree paper; semi-honest).
//!
//! Inputs: the LPN secret (k OTs), then h OTs for each of t trees. Tree i spreads one random unit
//! vector over rows `[i·2^h, (i+1)·2^h)`: regular noise, its position the complement of the h choice
//! bits, which are outputs of the same functionality and therefore uniform. Drawing positions
//! elsewhere would change nothing but cost a message and a round for switching the choice bits. Row r
//! of the result is the noise plus ten inputs at public columns; OTs are linear, so `y = w ⊕ A·z` holds
//! for blocks and choice bits at once.
//!
//! Messages: from the sender only, h − 1 blocks a tree, [`CHUNK`] trees a message, so that the
//! receiver works while the sender does. Trees of a chunk run on the thread pool.

use super::params::FerretParams;
use crate::error::TwopcError;
use hushed_math::bits::{Block, HalfTree, LpnCode};
use rayon::prelude::*;
use zeroize::Zeroizing;

/// Trees a message.
const CHUNK: usize = 128;

/// Messages of one extension.
#[cfg(test)]
pub(super) fn messages(params: FerretParams) -> usize {
    params.trees().div_ceil(CHUNK)
}

/// What both parties hold to extend: the code, and the tree expander.
pub(super) struct Extender {
    params: FerretParams,
    code: LpnCode,
    tree: HalfTree,
}

impl Extender {
    /// An extender for one parameter set under a public seed that both parties agreed on.
    pub(super) fn new(params: FerretParams, seed: [u8; 16]) -> Self {
        Extender {
            params,
            code: LpnCode::new(seed, params.log_k()),
            tree: HalfTree::new(),
        }
    }

    pub(super) fn params(&self) -> FerretParams {
        self.params
    }

    /// The sender's part. `inputs` and `out` have the set's sizes; each message is handed to `emit`.
    pub(super) fn send(
        &self,
        delta: Block,
        inputs: &[Block],
        out: &mut [Block],
        mut emit: impl FnMut(Vec<u8>) -> Result<(), TwopcError>,
    ) -> Result<(), TwopcError> {
        let (secret, cots) = inputs.split_at(self.code.columns());
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let chunks = out.chunks_mut(CHUNK << h).zip(cots.chunks(CHUNK * h));
        for (c, (out, cots)) in chunks.enumerate() {
            let trees = cots.len() / h;
            let mut corrections = vec![Block::ZERO; trees * levels];
            out.par_chunks_mut(1 << h)
                .zip(cots.par_chunks(h))
                .zip(corrections.par_chunks_mut(levels))
                .enumerate()
                .for_each_init(
                    || Zeroizing::new(vec![Block::ZERO; 1 << h]),
                    |leaves, (i, ((out, cots), corrections))| {
                        self.tree.expand_sender(delta, cots, corrections, leaves);
                        self.code.encode(self.first_row(c, i), secret, leaves, out);
                    },
                );
            let mut message = Vec::with_capacity(corrections.len() * 16);
            Block::write_all(&corrections, &mut message);
            emit(message)?;
        }
        Ok(())
    }

    /// The receiver's part: `next(len)` gives the sender's next message, of `len` bytes.
    pub(super) fn receive(
        &self,
        inputs: &[Block],
        out: &mut [Block],
        mut next: impl FnMut(usize) -> Result<Vec<u8>, TwopcError>,
    ) -> Result<(), TwopcError> {
        let (secret, cots) = inputs.split_at(self.code.columns());
        let (h, levels) = (self.params.depth(), self.params.depth() - 1);
        let chunks = out.chunks_mut(CHUNK << h).zip(cots.chunks(CHUNK * h));
        for (c, (out, cots)) in chunks.enumerate() {
            let blocks = cots.len() / h * levels;
            let message = next(blocks * 16)?;
            let corrections =
                Block::read_all(&message, blocks).ok_or(TwopcError::PeerMisbehaved {
                    what: "extension message",
                })?;
            out.par_chunks_mut(1 << h)
                .zip(cots.par_chunks(h))
                .zip(corrections.par_chunks(levels))
                .enumerate()
                .for_each_init(
                    || Zeroizing::new(vec![Block::ZERO; 1 << h]),
                    |leaves, (i, ((out, cots), corrections))| {
                        self.tree.expand_receiver(cots, corrections, leaves);
                        self.code.encode(self.first_row(c, i), secret, leaves, out);
                    },
                );
        }
        Ok(())
    }

    /// First row of tree `i` of chunk `c`.
    fn first_row(&self, c: usize, i: usize) -> u64 {
        ((c * CHUNK + i) as u64) << self.params.depth()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ot::{CotRecv, CotSend, assert_cot};
    use hushed_math::bits::PrgAes;

    #[test]
    fn outputs_are_correlated_and_messages_as_declared() {
        let params = FerretParams::K16;
        let extender = Extender::new(params, [4; 16]);
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

        let mut messages_sent = std::collections::VecDeque::new();
        let mut sent = vec![Block::ZERO; params.outputs()];
        let emit = |m| {
            messages_sent.push_back(m);
            Ok(())
        };
        extender.send(delta, &q, &mut sent, emit).unwrap();
        assert_eq!(messages_sent.len(), messages(params));
        assert_eq!(
            messages_sent.iter().map(Vec::len).sum::<usize>(),
            params.message_bytes()
        );
        let mut received = vec![Block::ZERO; params.outputs()];
        let next = |len| {
            let m: Vec<u8> = messages_sent.pop_front().unwrap();
            assert_eq!(m.len(), len);
            Ok(m)
        };
        extender.receive(&m, &mut received, next).unwrap();
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
            },
            &CotRecv {
                blocks: received,
                first_index: 0,
            },
        );
    }
}
