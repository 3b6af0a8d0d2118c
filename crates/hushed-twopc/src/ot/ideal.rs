//! The ideal functionality: a dealer's seed shared by both ends. Tests only; a release build cannot enable it (feature
//! `ideal`).
//!
//! Sender block `i` of direction `d` is AES_seed(d ‖ i) with the lsb cleared, and the choice bit is that lsb; nothing
//! is sent.

use super::{Correlations, CotRecv, CotSend, Unchecked, check};
use crate::error::TwopcError;
use hushed_math::bits::{Block, PadHash, PrgAes};
use hushed_net::Session;

/// One end of an ideal source. It knows the other end's secrets: for tests only.
pub struct IdealOt {
    seed: Block,
    /// 0 or 1: the direction in which this end sends.
    side: u128,
    sent: u64,
    received: u64,
}

/// Makes two joined ends.
pub struct IdealPair;

impl IdealPair {
    /// Two ends from a fixed seed.
    #[expect(clippy::new_ret_no_self, reason = "a pair is its two ends")]
    pub fn new() -> (IdealOt, IdealOt) {
        Self::from_seed(0)
    }

    /// Two ends from the given seed.
    pub fn from_seed(seed: u64) -> (IdealOt, IdealOt) {
        let end = |side| IdealOt { seed: Block(seed.into()), side, sent: 0, received: 0 };
        (end(0), end(1))
    }
}

impl IdealOt {
    fn delta_of(&self, side: u128) -> Block {
        let mut out = [Block::ZERO];
        PrgAes::at(self.seed, (2 | side) << 64).fill(&mut out);
        out[0].with_lsb()
    }

    fn raw(&self, side: u128, first: u64, n: usize) -> Vec<Block> {
        let mut out = vec![Block::ZERO; n];
        PrgAes::at(self.seed, (side << 64) | u128::from(first)).fill(&mut out);
        out
    }
}

impl Correlations for IdealOt {
    fn send(&mut self, _: &mut Session, n: usize) -> Result<CotSend, TwopcError> {
        let first_index = self.sent;
        let mut blocks = self.raw(self.side, first_index, n);
        blocks.iter_mut().for_each(|b| *b = b.without_lsb());
        self.sent += n as u64;
        Ok(CotSend { delta: self.delta(), blocks, first_index, hash: PadHash::new([self.side as u8; 16]) })
    }

    fn recv(&mut self, _: &mut Session, n: usize) -> Result<CotRecv, TwopcError> {
        let side = 1 - self.side;
        let delta = self.delta_of(side);
        let first_index = self.received;
        let mut blocks = self.raw(side, first_index, n);
        blocks.iter_mut().for_each(|b| *b = b.without_lsb() ^ (delta & b.lsb_mask()));
        self.received += n as u64;
        Ok(CotRecv { blocks, first_index, hash: PadHash::new([side as u8; 16]) })
    }

    fn delta(&self) -> Block {
        self.delta_of(self.side)
    }

    fn has_begun(&self) -> bool {
        true
    }

    /// A dealer cannot cheat.
    fn take_unchecked(&mut self) -> [Unchecked; 2] {
        [Unchecked::default(); 2]
    }

    fn check(&mut self, s: &mut Session) -> Result<(), TwopcError> {
        check::run(self, s, &[0; 32])
    }
}
