//! `Block`: a 128-bit string, the unit of oblivious transfer.
//!
//! Bit `i` of the string is bit `i` of the little-endian integer, so bit 0 (`lsb`) is the low bit
//! of byte 0 on the wire. There is no `Debug`: nearly every block is a secret.

use super::Mask;
use core::ops::{BitAnd, BitAndAssign, BitXor, BitXorAssign};

/// A 128-bit string; `Block(x).lsb()` is bit 0 of `x`.
#[repr(transparent)]
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Block(pub u128);

impl zeroize::DefaultIsZeroes for Block {}

impl Block {
    /// Sixteen zero bytes.
    pub const ZERO: Block = Block(0);
    /// Sixteen 0xff bytes.
    pub const ONES: Block = Block(u128::MAX);
    /// Only bit 0 set.
    pub const ONE: Block = Block(1);

    /// Bit 0, as a bool.
    #[inline(always)]
    pub fn lsb(self) -> bool {
        self.0 & 1 == 1
    }

    /// All ones if bit 0 is set, zero otherwise.
    #[inline(always)]
    pub fn lsb_mask(self) -> Mask {
        Mask::from_bit(self.low_u64())
    }

    /// The same block with bit 0 cleared.
    #[inline(always)]
    pub fn without_lsb(self) -> Block {
        Block(self.0 & !1)
    }

    /// The same block with bit 0 set.
    #[inline(always)]
    pub fn with_lsb(self) -> Block {
        Block(self.0 | 1)
    }

    /// The low 64 bits.
    #[inline(always)]
    pub fn low_u64(self) -> u64 {
        self.0 as u64
    }

    /// The high 64 bits.
    #[inline(always)]
    pub fn high_u64(self) -> u64 {
        (self.0 >> 64) as u64
    }

    /// Little-endian bytes.
    #[inline(always)]
    pub fn to_bytes(self) -> [u8; 16] {
        self.0.to_le_bytes()
    }

    /// From little-endian bytes.
    #[inline(always)]
    pub fn from_bytes(bytes: [u8; 16]) -> Block {
        Block(u128::from_le_bytes(bytes))
    }

    /// Appends the little-endian bytes of `blocks` to `out`.
    pub fn write_all(blocks: &[Block], out: &mut Vec<u8>) {
        out.reserve(blocks.len() * 16);
        for b in blocks {
            out.extend_from_slice(&b.to_bytes());
        }
    }

    /// Reads exactly `count` blocks; `None` unless `bytes` is 16·`count` long.
    pub fn read_all(bytes: &[u8], count: usize) -> Option<Vec<Block>> {
        if count.checked_mul(16)? != bytes.len() {
            return None;
        }
        let (chunks, _) = bytes.as_chunks::<16>();
        Some(chunks.iter().map(|c| Block::from_bytes(*c)).collect())
    }

    /// Overwrites secrets with zeros. A plain fill behind an optimisation barrier: `zeroize` on a
    /// `Vec` writes byte by byte, which costs as much as making the blocks did.
    pub fn wipe(blocks: &mut [Block]) {
        blocks.fill(Block::ZERO);
        core::hint::black_box(blocks.as_mut_ptr());
        core::sync::atomic::compiler_fence(core::sync::atomic::Ordering::SeqCst);
    }
}

impl BitXor for Block {
    type Output = Block;
    #[inline(always)]
    fn bitxor(self, rhs: Block) -> Block {
        Block(self.0 ^ rhs.0)
    }
}

impl BitXorAssign for Block {
    #[inline(always)]
    fn bitxor_assign(&mut self, rhs: Block) {
        self.0 ^= rhs.0;
    }
}

impl BitAnd for Block {
    type Output = Block;
    #[inline(always)]
    fn bitand(self, rhs: Block) -> Block {
        Block(self.0 & rhs.0)
    }
}

impl BitAndAssign for Block {
    #[inline(always)]
    fn bitand_assign(&mut self, rhs: Block) {
        self.0 &= rhs.0;
    }
}

/// The block if the mask is all ones, else zero.
impl BitAnd<Mask> for Block {
    type Output = Block;
    #[inline(always)]
    fn bitand(self, mask: Mask) -> Block {
        Block(self.0 & ((u128::from(mask.0) << 64) | u128::from(mask.0)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_are_little_endian_and_lengths_are_checked() {
        let b = Block(0x0102);
        assert_eq!(b.to_bytes()[0], 2);
        assert!(Block::from_bytes(b.to_bytes()) == b);
        let mut bytes = Vec::new();
        Block::write_all(&[b, Block::ONES], &mut bytes);
        assert!(Block::read_all(&bytes, 2).is_some_and(|v| v == [b, Block::ONES]));
        assert!(Block::read_all(&bytes, 1).is_none());
        assert!(Block::read_all(&bytes, usize::MAX).is_none());
    }

    #[test]
    fn lsb_helpers() {
        assert!(Block(3).lsb() && !Block(2).lsb());
        assert!(Block::ONES & Block(3).lsb_mask() == Block::ONES);
        assert!(Block::ONES & Block(2).lsb_mask() == Block::ZERO);
        assert!(Block(3).without_lsb() == Block(2) && Block(2).with_lsb() == Block(3));
    }

    #[test]
    fn wipe_clears() {
        let mut v = vec![Block::ONES; 5];
        Block::wipe(&mut v);
        assert!(v.iter().all(|b| *b == Block::ZERO));
    }
}
