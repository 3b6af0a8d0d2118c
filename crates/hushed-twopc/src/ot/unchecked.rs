//! What is kept of OTs until they are checked ([`super::check`]), and what a check costs.

use crate::cost::Cost;
use hushed_math::bits::Block;

/// OTs that mask one check, per direction.
pub(super) const MASKING: usize = 128;
pub(super) const NOISE_BYTES: usize = 16;
pub(super) const SUM_BYTES: usize = 32;

/// What a check sends and uses.
pub const CHECK_COST: Cost = {
    let noise = Cost::exchange(NOISE_BYTES as u64, NOISE_BYTES as u64);
    let sums = Cost::exchange(SUM_BYTES as u64, SUM_BYTES as u64);
    Cost {
        bytes_client: noise.bytes_client + sums.bytes_client,
        bytes_server: noise.bytes_server + sums.bytes_server,
        frames_client: noise.frames_client + sums.frames_client,
        frames_server: noise.frames_server + sums.frames_server,
        rounds: noise.rounds + sums.rounds,
        cots_client: MASKING as u64,
        cots_server: MASKING as u64,
    }
};

/// The sums over OTs that have not been checked yet, at one end of a direction.
#[derive(Clone, Copy, Default)]
pub struct Unchecked {
    /// V at the sender, W at the receiver.
    pub leaves: Block,
    /// φ at the receiver, zero at the sender.
    pub noise: Block,
}

impl Unchecked {
    /// Adds the sums of another step.
    pub fn add(&mut self, other: Unchecked) {
        self.leaves ^= other.leaves;
        self.noise ^= other.noise;
    }

    /// Erases the sums: φ shows where the noise is.
    pub fn wipe(&mut self) {
        Block::wipe(core::slice::from_mut(&mut self.leaves));
        Block::wipe(core::slice::from_mut(&mut self.noise));
    }
}
