//! What carry-less products add up to.

use crate::bits::Block;

/// A sum of products before the reduction: `low + middle·x^64 + high·x^128`.
pub(super) struct Unreduced {
    pub(super) low: u128,
    pub(super) middle: u128,
    pub(super) high: u128,
}

impl Unreduced {
    pub(super) fn reduce(self) -> Block {
        let low = self.low ^ (self.middle << 64);
        let high = self.high ^ (self.middle >> 64);
        // x^128 = x^7 + x^2 + x + 1, once for all of `high`, and once for the seven bits that come out at the top.
        let fold = |h: u128| h ^ (h << 1) ^ (h << 2) ^ (h << 7);
        let top = (high >> 127) ^ (high >> 126) ^ (high >> 121);
        Block(low ^ fold(high) ^ fold(top))
    }
}
