//! The primes of a chain: each is 1 modulo 2N and below 2^50, and all are distinct.
//!
//! Levels that carry messages have primes alternately just below and just above 2^bits, so that products of neighbours
//! stay near a power of two and the scale drifts little. All others lie just below, since they need room rather than
//! balance, and no prime may reach 2^50.

use hushed_math::Modulus;
use hushed_math::primes::is_prime;

use crate::error::CkksParamsError;

/// Smallest prime size that leaves any room for a message.
const MIN_BITS: u32 = 20;

/// Primes of one size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PrimeGroup {
    /// Bits of each prime.
    pub bits: u32,
    /// How many.
    pub count: usize,
}

impl PrimeGroup {
    /// No primes.
    pub const NONE: Self = Self { bits: 40, count: 0 };

    /// `count` primes of `bits` bits.
    pub const fn new(count: usize, bits: u32) -> Self {
        Self { bits, count }
    }

    fn refused(self) -> CkksParamsError {
        CkksParamsError::PrimeGroup { bits: self.bits, count: self.count }
    }
}

/// Chooses primes, remembering the ones taken.
pub(super) struct Chooser {
    two_n: u64,
    taken: Vec<u64>,
}

impl Chooser {
    pub(super) fn new(log_n: u32) -> Self {
        Self { two_n: 2 << log_n.min(20), taken: Vec::new() }
    }

    /// The largest free primes below 2^bits, descending.
    pub(super) fn below(&mut self, group: PrimeGroup) -> Result<Vec<u64>, CkksParamsError> {
        self.check(group)?;
        let top = (1u64 << group.bits) + 1;
        let candidates =
            (1..).map_while(|k| top.checked_sub(self.two_n * k)).take_while(|&q| q >> (group.bits - 1) == 1);
        let found = self.pick(candidates, group.count);
        self.keep(found, group)
    }

    /// Free primes nearest to 2^bits on either side, alternately below and above.
    pub(super) fn around(&mut self, group: PrimeGroup) -> Result<Vec<u64>, CkksParamsError> {
        if group.bits == Modulus::MAX_BITS {
            return self.below(group);
        }
        self.check(group)?;
        let top = (1u64 << group.bits) + 1;
        let below = (1..).map_while(|k| top.checked_sub(self.two_n * k)).take_while(|&q| q >> (group.bits - 1) == 1);
        let above = (0..).map(|k| top + self.two_n * k).take_while(|&q| q >> group.bits == 1);
        let below = self.pick(below, group.count.div_ceil(2));
        let above = self.pick(above, group.count / 2);
        let mut found = Vec::with_capacity(group.count);
        for i in 0..group.count.div_ceil(2) {
            found.extend(below.get(i));
            found.extend(above.get(i));
        }
        self.keep(found, group)
    }

    fn pick(&self, candidates: impl Iterator<Item = u64>, count: usize) -> Vec<u64> {
        candidates.filter(|q| !self.taken.contains(q) && is_prime(*q)).take(count).collect()
    }

    fn check(&self, group: PrimeGroup) -> Result<(), CkksParamsError> {
        let possible = (MIN_BITS..=Modulus::MAX_BITS).contains(&group.bits);
        if possible && group.count <= hushed_rlwe::params::MAX_PRIMES {
            return Ok(());
        }
        Err(group.refused())
    }

    fn keep(&mut self, found: Vec<u64>, group: PrimeGroup) -> Result<Vec<u64>, CkksParamsError> {
        if found.len() < group.count {
            return Err(group.refused());
        }
        self.taken.extend(&found);
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn groups_are_distinct_near_their_size_and_balanced() {
        let mut chooser = Chooser::new(16);
        let group = |bits, count| PrimeGroup { bits, count };
        let p = chooser.below(group(50, 7)).unwrap();
        let q = chooser.below(group(50, 12)).unwrap();
        let levels = chooser.around(group(40, 17)).unwrap();
        let mut all: Vec<u64> = [p, q, levels.clone()].concat();
        assert!(all.iter().all(|&q| q % (1 << 17) == 1 && q < 1 << 50));
        all.sort_unstable();
        all.dedup();
        assert_eq!(all.len(), 36);
        let two = 2f64.powi(40);
        assert!(levels.iter().all(|&q| (q as f64 / two - 1.0).abs() < 2f64.powi(-14)));
        for pair in levels.windows(2) {
            assert!((pair[0] < 1 << 40) != (pair[1] < 1 << 40));
        }
    }

    #[test]
    fn impossible_groups_are_refused() {
        let mut chooser = Chooser::new(16);
        for (bits, count) in [(51, 1), (19, 1), (20, 30), (40, 1000)] {
            assert!(chooser.below(PrimeGroup { bits, count }).is_err());
            assert!(chooser.around(PrimeGroup { bits, count }).is_err());
        }
    }
}
