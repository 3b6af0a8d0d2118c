//! AES-128 in counter mode under a secret block: `out[i] = AES_seed(start + i)`.

use super::{Block, aes::AesKey};

/// A pseudo-random stream of blocks from a seed block; seekable, the same bytes on every machine.
pub struct PrgAes {
    key: AesKey,
    next: u128,
}

impl PrgAes {
    /// The stream of `seed` from its beginning.
    pub fn new(seed: Block) -> Self {
        Self::at(seed, 0)
    }

    /// The stream of `seed` from block number `start`.
    pub fn at(seed: Block, start: u128) -> Self {
        PrgAes { key: AesKey::new(seed), next: start }
    }

    /// Overwrites `out` with the next `out.len()` blocks.
    pub fn fill(&mut self, out: &mut [Block]) {
        self.key.counter(self.next, out);
        self.next = self.next.wrapping_add(out.len() as u128);
    }
}
