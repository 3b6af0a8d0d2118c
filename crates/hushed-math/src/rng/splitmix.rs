//! SplitMix64 (Steele, Lea, Flood 2014), for simulations, orderings and test data. Nothing secret comes from it.

/// The increment of the generator's state.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output for state `x`.
#[inline]
pub fn split(x: u64) -> u64 {
    let mut z = x.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator with its state; a new one holds its seed.
#[derive(Debug)]
pub struct SplitMix(pub u64);

impl SplitMix {
    /// The next number.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        let number = split(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_those_of_the_reference() {
        let mut random = SplitMix(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
        assert_eq!(random.next_u64(), 9_817_491_932_198_370_423);
    }
}
