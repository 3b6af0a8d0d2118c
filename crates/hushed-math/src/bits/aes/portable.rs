//! The kernel for any machine, on the `aes` crate (constant time: AES instructions where the crate finds them,
//! otherwise bit-sliced).

use super::shared::{LevelSums, sigma};
use crate::bits::{Block, Mask};
use ::aes::cipher::{BlockCipherEncrypt, KeyInit};
use zeroize::ZeroizeOnDrop;

/// Blocks handed to the cipher at once; a multiple of every bit-sliced width.
const BATCH: usize = 16;

pub(crate) struct Key(::aes::Aes128);

// The cipher erases its own round keys (feature `zeroize`).
const fn erases<T: ZeroizeOnDrop>() {}
const _: () = erases::<::aes::Aes128>();

impl Key {
    pub(super) fn new(key: Block) -> Self {
        Key(::aes::Aes128::new(&key.to_bytes().into()))
    }

    pub(super) fn encrypt(&self, blocks: &mut [Block]) {
        for chunk in blocks.chunks_mut(BATCH) {
            let mut bytes = [::aes::Block::default(); BATCH];
            for (b, x) in bytes.iter_mut().zip(chunk.iter()) {
                *b = x.to_bytes().into();
            }
            let used = bytes.get_mut(..chunk.len()).unwrap_or_default();
            self.0.encrypt_blocks(used);
            for (b, x) in used.iter().zip(chunk) {
                *x = Block::from_bytes((*b).into());
            }
        }
    }

    /// `out[j] = H(tweak + j·step, input[j] ⊕ offset)` for at most [`BATCH`] inputs.
    pub(super) fn hash(&self, tweak: u64, step: u64, offset: Block, input: &[Block], out: &mut [Block]) {
        let mut masked = [Block::ZERO; BATCH];
        let mut index = tweak;
        for ((m, x), y) in masked.iter_mut().zip(input).zip(out.iter_mut()) {
            *m = sigma(*x ^ offset) ^ Block(index.into());
            *y = *m;
            index = index.wrapping_add(step);
        }
        self.encrypt(out);
        out.iter_mut().zip(&masked).for_each(|(y, m)| *y ^= *m);
    }

    pub(super) fn half_tree_level(&self, nodes: &mut [Block], fix_at: u64, fix: Block) -> LevelSums {
        let mut sums = LevelSums { left: Block::ZERO, all: Block::ZERO };
        let width = nodes.len() / 2;
        // From the top down: children [2a, 2b) are written only after parents [a, b) were read, and no parent below a
        // is touched.
        let mut end = width;
        while end > 0 {
            let begin = (end - 1) / BATCH * BATCH;
            let mut parents = [Block::ZERO; BATCH];
            let mut left = [Block::ZERO; BATCH];
            for (i, j) in (begin..end).enumerate() {
                let hit = Mask::from_eq(j as u64, fix_at);
                parents[i] = nodes[j] ^ (fix & hit);
                left[i] = sigma(parents[i]);
            }
            let n = end - begin;
            self.encrypt(&mut left[..n]);
            for i in 0..n {
                left[i] ^= sigma(parents[i]);
                sums.left ^= left[i];
                sums.all ^= parents[i];
                nodes[2 * (begin + i)] = left[i];
                nodes[2 * (begin + i) + 1] = left[i] ^ parents[i];
            }
            end = begin;
        }
        sums
    }
}
