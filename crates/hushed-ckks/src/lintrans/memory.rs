//! Working memory of a pass over one prime: pairs of limbs, recycled by the arithmetic layer.

use std::sync::Arc;

use hushed_math::{Eval, RnsBasis, RnsPoly};

/// Two limbs of words of any content. They are residues under whichever prime is being worked on: the ids of the
/// polynomial that holds them say nothing.
pub(crate) struct Pair(RnsPoly<Eval>);

impl Pair {
    /// `count` pairs for a basis of at least two primes.
    pub(crate) fn many(basis: &Arc<RnsBasis>, count: usize) -> Vec<Self> {
        let pair = |_| Self(RnsPoly::scratch(basis, &[0, 1]));
        (0..count).map(pair).collect()
    }

    /// Both limbs.
    pub(crate) fn parts(&mut self) -> [&mut [u64]; 2] {
        let mut limbs = self.0.limbs_mut().map(|(_, limb)| limb);
        match (limbs.next(), limbs.next()) {
            (Some(b), Some(a)) => [b, a],
            _ => [&mut [], &mut []],
        }
    }
}
