//! SplitMix64 (Steele, Lea, Flood 2014), for simulations and orderings. Nothing secret comes from it.

/// The increment of the generator's state.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The output for state `x`.
pub(crate) fn split(x: u64) -> u64 {
    let mut z = x.wrapping_add(STEP);
    z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

/// The generator.
pub(crate) struct SplitMix(pub u64);

impl SplitMix {
    pub(crate) fn next(&mut self) -> u64 {
        let number = split(self.0);
        self.0 = self.0.wrapping_add(STEP);
        number
    }
}
