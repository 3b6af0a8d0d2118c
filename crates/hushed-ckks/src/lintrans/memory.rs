//! Working memory of a pass over one prime: pairs of limbs, recycled by the arithmetic layer, and the amount of a limb
//! that is processed at a time.

use std::sync::Arc;

use hushed_math::{Eval, RnsBasis, RnsPoly};

/// Words of a limb processed at a time: together with the sixteen or so rotations in a sum they fit the L2 cache.
const STRIP: usize = 1 << 10;

/// Values processed at a time by baby steps and then by giant steps, if the longest orbit of a baby is `orbit`.
/// Rotations of closed runs are computed and used run by run; others need all values and are used strip by strip.
pub(super) fn values_at_a_time(n: usize, orbit: usize) -> (usize, usize) {
    if orbit <= n / 8 {
        let run = orbit.max(STRIP).min(n);
        (run, run)
    } else {
        (n, STRIP.min(n))
    }
}

/// Two limbs of arbitrary words. They hold residues under the prime being processed; the ids of the polynomial that
/// holds them are meaningless.
pub(crate) struct Pair(RnsPoly<Eval>);

impl Pair {
    /// `count` pairs for a basis of at least two primes.
    pub(crate) fn many(basis: &Arc<RnsBasis>, count: usize) -> Vec<Self> {
        let pair = |_| Self(RnsPoly::scratch(basis, &[0, 1]));
        (0..count).map(pair).collect()
    }

    /// One of the two limbs.
    pub(crate) fn part(&self, index: usize) -> &[u64] {
        self.0.limb(index)
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
