//! Single-point correlated OT by the half-tree (Guo, Yang, Wang, Zhang, Xie, Liu, Zhao, EUROCRYPT 2023, correlated
//! GGM): a binary tree in which every level sums to `delta`, with one hash per parent.
//!
//! The tree of depth h consumes h correlated OTs `(q_1..q_h; b_1..b_h, m_i = q_i ⊕ b_i·delta)`. The sender's level 1 is
//! `(q_1, q_1 ⊕ delta)`; a parent p has the children `H(p)`, `H(p) ⊕ p`. For each level i = 2..h the sender sends
//! `c_i = q_i ⊕ ⨁ left children`. The receiver thereby learns, in level i, the sum of the children of side b_i, hence
//! every node but one; the unknown leaf α has the bits ¬b_1, …, ¬b_h from the top down and is uniform because the b_i
//! are. Nothing is sent back.
//!
//! Result on 2^h leaves: `receiver[j] = sender[j] ⊕ [j = α]·delta`, lsb of the sender's leaves 0, lsb
//! of the receiver's `[j = α]` (given `lsb(delta) = 1`).
//!
//! H(p) = π(σ(p)) ⊕ σ(p) is the hash of [`super::PadHash`] without a tweak. Every level of every tree has its own key:
//! the receiver knows H(known ⊕ delta) of each, the only target under that key, so finding delta takes 2^128 calls
//! however many trees there are.
//!
//! α is secret: the receiver's passes touch every node alike and select by masks.

use super::aes::{AesKey, Batch, KEYS, LevelSums};
use super::{Block, Mask};
use crate::machine::cpu::Cpu;

/// Leaves handled by one table of [`patch_leaves`].
const GROUP: usize = 32;

/// Maximum depth; keeps positions well inside a word, trees inside the cache and the keys of a tree in one batch.
pub const MAX_DEPTH: usize = 24;

/// The tree expander under the keys of one public seed.
pub struct HalfTree {
    seed: AesKey,
    cpu: Cpu,
}

impl HalfTree {
    /// The expander under a public seed that both parties draw for this session and this use.
    pub fn new(seed: [u8; 16]) -> Self {
        HalfTree::with_cpu(seed, Cpu::get())
    }

    fn with_cpu(seed: [u8; 16], cpu: Cpu) -> Self {
        HalfTree { seed: AesKey::with_cpu(Block::from_bytes(seed), cpu), cpu }
    }

    /// Key number i is for the children of level i + 1 of the tree: `AES(seed; tree ‖ i)`.
    fn keys(&self, tree: u64, levels: usize) -> Batch {
        const { assert!(MAX_DEPTH <= KEYS) };
        let mut keys = [Block::ZERO; KEYS];
        let keys = &mut keys[..levels];
        self.seed.counter(u128::from(tree) << 8, keys);
        let mut batch = Batch::new(self.cpu);
        batch.expand(keys);
        batch
    }

    /// Expands the sender's tree number `tree`, a number used once per seed: `q` holds its h blocks, `corrections`
    /// receives the h−1 blocks to send (levels 2..h), `leaves` the 2^h results.
    ///
    /// # Panics
    /// If the lengths do not fit each other or h is not in 1..=[`MAX_DEPTH`].
    pub fn expand_sender(&self, tree: u64, delta: Block, q: &[Block], corrections: &mut [Block], leaves: &mut [Block]) {
        check_lengths(q.len(), corrections.len(), leaves.len());
        let keys = self.keys(tree, corrections.len());
        leaves[0] = q[0];
        leaves[1] = q[0] ^ delta;
        for (i, (q, c)) in q[1..].iter().zip(corrections).enumerate() {
            let nodes = &mut leaves[..4 << i];
            let sums = keys.half_tree_level(i, nodes, u64::MAX, Block::ZERO);
            *c = sums.left ^ *q;
        }
        leaves.iter_mut().for_each(|b| *b = b.without_lsb());
    }

    /// Expands the receiver's tree of the same number: `m` holds its h blocks (choice bits in their lsb), `corrections`
    /// the sender's h−1 blocks; `leaves` receives the 2^h results. The one leaf with lsb 1 is at position α.
    ///
    /// # Panics
    /// As [`HalfTree::expand_sender`].
    pub fn expand_receiver(&self, tree: u64, m: &[Block], corrections: &[Block], leaves: &mut [Block]) {
        check_lengths(m.len(), corrections.len(), leaves.len());
        let keys = self.keys(tree, corrections.len());
        // Level 1: node b_1 is m_1, the other is unknown and stays zero. An unknown node holds a wrong value that is
        // expanded like the rest, so that no step depends on its position.
        let b = m[0].lsb_mask();
        leaves[0] = m[0] & !b;
        leaves[1] = m[0] & b;
        let bit = |m: &Block| m.low_u64() & 1;
        let mut alpha = 1 ^ bit(&m[0]);
        let (mut fix_at, mut fix) = (u64::MAX, Block::ZERO);
        let mut all = m[0];
        for (i, (m, c)) in m[1..].iter().zip(corrections).enumerate() {
            let sums = keys.half_tree_level(i, &mut leaves[..4 << i], fix_at, fix);
            let LevelSums { left, all: parents } = sums;
            // Sum of all children of side b as they stand, including the unknown node's known child with its wrong
            // value; c ⊕ m is the correct sum.
            let side = left ^ (parents & m.lsb_mask());
            fix = *c ^ *m ^ side;
            let b = bit(m);
            fix_at = 2 * alpha + b;
            alpha = 2 * alpha + (1 - b);
            all = parents ^ fix;
        }
        // Leaf α holds a wrong value g and becomes `(all leaves) ⊕ g`, the sum of the others, which is the sender's
        // leaf ⊕ delta. Its sibling still needs the last level's fix.
        patch_leaves(leaves, alpha, fix, all);
    }
}

fn check_lengths(h: usize, corrections: usize, leaves: usize) {
    assert!((1..=MAX_DEPTH).contains(&h), "tree depth");
    assert!(corrections == h - 1 && leaves == 1 << h, "half-tree buffer lengths");
}

/// Clears every lsb, XORs `sibling_fix` onto leaf `alpha ^ 1` (if there are levels below the first)
/// and `alpha_fix` with lsb 1 onto leaf `alpha`.
///
/// `alpha` is secret: the low bits select inside a table built by masks, the high bits mask the table as a whole, once
/// per group of leaves.
fn patch_leaves(leaves: &mut [Block], alpha: u64, sibling_fix: Block, alpha_fix: Block) {
    let (low, high) = (alpha % GROUP as u64, alpha / GROUP as u64);
    let mut table = [Block::ZERO; GROUP];
    for (j, t) in table.iter_mut().enumerate() {
        let at_alpha = Mask::from_eq(j as u64, low);
        let at_sibling = Mask::from_eq(j as u64, low ^ 1);
        *t = (alpha_fix.with_lsb() & at_alpha) ^ (sibling_fix.without_lsb() & at_sibling);
    }
    for (g, group) in leaves.chunks_mut(GROUP).enumerate() {
        let here = Mask::from_eq(g as u64, high);
        for (leaf, t) in group.iter_mut().zip(&table) {
            *leaf = leaf.without_lsb() ^ (*t & here);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrgAes;
    use super::*;

    #[test]
    fn every_position_of_small_trees_and_some_of_large() {
        let tree = HalfTree::new([5; 16]);
        for h in 1..=11usize {
            let mut random = vec![Block::ZERO; h + 1];
            PrgAes::new(Block(h as u128)).fill(&mut random);
            let delta = random[h].with_lsb();
            let q: Vec<Block> = random[..h].iter().map(|b| b.without_lsb()).collect();
            let mut corrections = vec![Block::ZERO; h - 1];
            let mut sender = vec![Block::ZERO; 1 << h];
            tree.expand_sender(h as u64, delta, &q, &mut corrections, &mut sender);
            for b in (0..1u64 << h).step_by(if h < 8 { 1 } else { 37 }) {
                let bit = |i: usize| b >> (h - 1 - i) & 1 == 1;
                let m: Vec<Block> =
                    q.iter().enumerate().map(|(i, q)| *q ^ (delta & Mask::from_bit(bit(i).into()))).collect();
                // Old contents must not matter.
                let mut receiver = vec![Block::ONES; 1 << h];
                tree.expand_receiver(h as u64, &m, &corrections, &mut receiver);
                let alpha = (!b & ((1 << h) - 1)) as usize;
                for (j, (s, r)) in sender.iter().zip(&receiver).enumerate() {
                    assert!(!s.lsb());
                    let expect = if j == alpha { *s ^ delta } else { *s };
                    assert!(*r == expect, "depth {h} alpha {alpha} leaf {j}");
                }
            }
        }
    }

    /// The same blocks in another tree or on another level use another key: the receiver has one target per key.
    #[test]
    fn f3_every_level_of_every_tree_has_a_key_of_its_own() {
        let tree = HalfTree::new([7; 16]);
        let q = vec![Block(6); 5];
        let expand = |number| {
            let (mut corrections, mut leaves) = (vec![Block::ZERO; 4], vec![Block::ZERO; 32]);
            tree.expand_sender(number, Block(9), &q, &mut corrections, &mut leaves);
            corrections
        };
        let [a, b] = [expand(0), expand(1)];
        for (i, x) in a.iter().enumerate() {
            assert!(b.iter().all(|y| x != y), "level {i}");
        }
        let batch = tree.keys(3, 23);
        let hashes = (0..23).map(|level| {
            let mut nodes = [Block(77), Block::ZERO];
            batch.half_tree_level(level, &mut nodes, u64::MAX, Block::ZERO).left.0
        });
        let mut hashes: Vec<u128> = hashes.collect();
        hashes.sort();
        hashes.dedup();
        assert_eq!(hashes.len(), 23);
    }
}
