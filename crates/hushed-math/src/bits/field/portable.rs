//! Products by shifts and masks.

use crate::bits::{Block, Mask};

/// Multiplies by x.
fn shifted(a: Block) -> Block {
    let carry = Mask::from_bit((a.0 >> 127) as u64);
    Block(a.0 << 1) ^ (Block(0x87) & carry)
}

/// The product, constant time in both.
pub(super) fn multiply(a: Block, b: Block) -> Block {
    let bits = [b.low_u64(), b.high_u64()];
    let mut out = Block::ZERO;
    for i in (0..128).rev() {
        out = shifted(out) ^ (a & Mask::from_bit(bits[i / 64] >> (i % 64)));
    }
    out
}

/// `Σ_j powers[j]·values[j]`; the powers are public. Bit i of all powers selects what is added up for x^i, so that a
/// value costs 128 additions and no shifts.
pub(super) fn dot(powers: &[Block], values: &[Block]) -> Block {
    let mut sums = [Block::ZERO; 128];
    for (p, v) in powers.iter().zip(values) {
        for (half, sums) in [p.low_u64(), p.high_u64()].into_iter().zip(sums.chunks_exact_mut(64)) {
            let masks = Mask::from_public_word(half);
            for (sum, mask) in sums.iter_mut().zip(masks) {
                *sum ^= *v & mask;
            }
        }
    }
    let horner = |out, sum: &Block| shifted(out) ^ *sum;
    sums.iter().rev().fold(Block::ZERO, horner)
}
