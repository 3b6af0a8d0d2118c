//! Oblivious transfer: random correlated OTs behind one trait, and what builds on them.
//!
//! A random correlated OT gives the sender a block `b` (its global `delta` is fixed) and the receiver a random choice
//! bit `c` with the block `b ⊕ c·delta`. By convention `lsb(delta) = 1` and `lsb(b) = 0`, so the receiver's choice bit
//! is the lsb of its block.
//!
//! Pads are hashes of blocks under keys specific to the session and direction ([`PadHash`]).
//!
//! A party that cheats when OTs are made is found by checks ([`ferret`], [`Correlations::check`]): the OTs are secure
//! against malicious parties, what is built on them only against semi-honest ones.
//!
//! Correlations are used once: [`CotSend`] and [`CotRecv`] move, are not `Clone`, and erase themselves on drop.

pub mod additive;
pub mod base;
pub(crate) mod bit_table;
mod check;
pub mod ferret;
#[cfg(any(test, feature = "ideal"))]
pub mod ideal;
pub mod one_of_n;
mod set_aside;
pub mod triple;
mod unchecked;

pub(crate) use set_aside::SetAside;
pub use unchecked::{CHECK_COST, Unchecked};

use crate::error::TwopcError;
use hushed_math::bits::{Block, PadHash, TARGETS_A_KEY};
use hushed_net::Session;

/// A source of random correlated OTs in both directions between two parties.
///
/// Both parties call with the same `n` in the same order: each `send` meets one `recv`.
pub trait Correlations: Send {
    /// `n` correlated OTs with this party as sender.
    fn send(&mut self, s: &mut Session, n: usize) -> Result<CotSend, TwopcError>;

    /// `n` correlated OTs with this party as receiver.
    fn recv(&mut self, s: &mut Session, n: usize) -> Result<CotRecv, TwopcError>;

    /// This party's global correlation as sender; its lsb is 1.
    fn delta(&self) -> Block;

    /// Whether both directions have begun, after which what a party sends needs no answer. Between calls both parties
    /// give the same answer.
    fn has_begun(&self) -> bool;

    /// The OTs, of both directions, that were set aside for a step and are left: none in a source that makes them.
    fn left(&self) -> usize {
        0
    }

    /// The sums over the OTs made since the last call, as sender and as receiver; they begin again at zero.
    fn take_unchecked(&mut self) -> [Unchecked; 2];

    /// Checks that the other party made all OTs since the last call honestly. Comes before every opening; costs
    /// [`CHECK_COST`].
    ///
    /// # Errors
    /// The same error whatever was wrong, since where it was may depend on secrets; the source then gives no more OTs.
    fn check(&mut self, s: &mut Session) -> Result<(), TwopcError>;
}

/// The other party did not make its OTs as the protocol says.
pub(crate) const CHEATED: TwopcError =
    TwopcError::PeerMisbehaved { what: "oblivious transfer: its consistency check failed" };

/// The sender's half of correlated OTs: `blocks[i]` has lsb 0.
pub struct CotSend {
    /// The sender's global correlation, lsb 1.
    pub delta: Block,
    /// One block per OT, lsb 0.
    pub blocks: Vec<Block>,
    /// Index of `blocks[0]` for hashing; `blocks[i]` has `first_index + i`. Unique in the session and direction.
    pub first_index: u64,
    /// The hash of this session and direction.
    pub hash: PadHash,
}

/// The receiver's half: `blocks[i] = sender.blocks[i] ⊕ c_i·delta`, `c_i = lsb(blocks[i])`.
pub struct CotRecv {
    /// One block per OT; its lsb is the random choice bit.
    pub blocks: Vec<Block>,
    /// Index of `blocks[0]`, the same as the sender's.
    pub first_index: u64,
    /// The sender's hash.
    pub hash: PadHash,
}

impl CotSend {
    /// Number of OTs.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// Both pads of consecutive OTs from number `at` on, as many as the slices hold: under the blocks, and under the
    /// blocks ⊕ delta.
    ///
    /// # Panics
    /// If there are fewer OTs.
    #[expect(clippy::indexing_slicing, reason = "callers walk over the blocks that they drew")]
    pub(crate) fn pads(&self, at: usize, zero: &mut [Block], one: &mut [Block]) {
        let blocks = &self.blocks[at..][..zero.len()];
        let first = self.first_index + at as u64;
        let offsets = [Block::ZERO, self.delta];
        self.hash.pads(first, offsets, blocks, [zero, one]);
    }
}

impl CotRecv {
    /// Number of OTs.
    pub fn len(&self) -> usize {
        self.blocks.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.blocks.is_empty()
    }

    /// The pads that this party can compute, for the OTs as in [`CotSend::pads`].
    #[expect(clippy::indexing_slicing, reason = "callers walk over the blocks that they drew")]
    pub(crate) fn pads(&self, at: usize, chosen: &mut [Block]) {
        let blocks = &self.blocks[at..][..chosen.len()];
        let first = self.first_index + at as u64;
        self.hash.pads(first, [Block::ZERO], blocks, [chosen]);
    }
}

/// Whether an error is [`CHEATED`].
#[cfg(any(test, feature = "testing"))]
pub(crate) fn is_cheated(error: &TwopcError) -> bool {
    matches!((error, CHEATED), (TwopcError::PeerMisbehaved { what }, TwopcError::PeerMisbehaved { what: cheated }) if *what == cheated)
}

/// Bits of security of pads and of tables' pads: one cipher call tests one key, which has at most this many targets
/// (`hushed_math::bits::PadHash`).
pub const PAD_BITS: f64 = 128.0 - TARGETS_A_KEY.ilog2() as f64;

/// Bits of security of the trees: one target per key, and one bit less because the lsb of delta is known.
pub const TREE_BITS: f64 = 127.0;

impl Drop for CotSend {
    fn drop(&mut self) {
        Block::wipe(&mut self.blocks);
        Block::wipe(core::slice::from_mut(&mut self.delta));
    }
}

impl Drop for CotRecv {
    fn drop(&mut self) {
        Block::wipe(&mut self.blocks);
    }
}

/// Blocks that are wiped when dropped, quickly.
pub(crate) struct SecretBlocks(pub(crate) Vec<Block>);

impl SecretBlocks {
    /// `n` zeros.
    pub(crate) fn zero(n: usize) -> SecretBlocks {
        SecretBlocks(vec![Block::ZERO; n])
    }
}

impl core::ops::Deref for SecretBlocks {
    type Target = [Block];

    fn deref(&self) -> &[Block] {
        &self.0
    }
}

impl core::ops::DerefMut for SecretBlocks {
    fn deref_mut(&mut self) -> &mut [Block] {
        &mut self.0
    }
}

impl Drop for SecretBlocks {
    fn drop(&mut self) {
        Block::wipe(&mut self.0);
    }
}

/// Checks the correlation of both halves in the clear; the common oracle for the tests of every source.
///
/// # Panics
/// If lengths, indices, the lsb convention or any block is wrong.
#[cfg(any(test, feature = "testing"))]
pub fn assert_cot(send: &CotSend, recv: &CotRecv) {
    assert!(send.delta.lsb(), "lsb(delta) must be 1");
    assert_eq!(send.len(), recv.len());
    assert_eq!(send.first_index, recv.first_index);
    for (i, (&s, &r)) in send.blocks.iter().zip(&recv.blocks).enumerate() {
        assert!(!s.lsb(), "lsb of sender block {i}");
        assert!(r == s ^ (send.delta & r.lsb_mask()), "block {i}");
    }
}
