//! The local linear code of primal LPN: each row of the public matrix has [`TAPS`] ones in random
//! columns, `row r: noise[r] ⊕ ⨁_{j<9} secret[column(r, j)]`.
//!
//! The number of taps is odd. With an even number every row has even weight, so that the secret has one bit less than
//! it has columns, and no set of rows is invertible.
//!
//! Columns come from the AES-128 counter stream under a public seed. Four rows share six blocks, 12 words of 64 bits;
//! word w gives taps 3w, 3w+1, 3w+2 of the four rows' 36, as its bits 0.., 21.. and 42.., masked to `log2(k)` bits. k
//! is a power of two, so a mask is exact and no division is needed. Columns are public: the gathers leak nothing.

use super::Block;
use super::aes::AesKey;

/// Ones per row (with replacement: two equal taps cancel).
pub const TAPS: usize = 9;

/// Rows that share a stretch of the stream.
pub const ROW_GROUP: usize = 4;

/// Stream blocks per group: 12 words of three taps.
const GROUP_BLOCKS: usize = 6;
const _: () = assert!(TAPS % 2 == 1 && ROW_GROUP * TAPS == 6 * GROUP_BLOCKS);

/// Stream bits per tap.
const TAP_BITS: u32 = 21;

/// Groups whose columns are generated at once: 3 KiB, which stays in the first-level cache.
const GROUPS: usize = 32;

/// A code with 2^log_k columns.
pub struct LpnCode {
    key: AesKey,
    log_k: u32,
}

impl LpnCode {
    /// The code of a public seed.
    ///
    /// # Panics
    /// If `log_k > 21`.
    pub fn new(seed: [u8; 16], log_k: u32) -> Self {
        assert!(log_k <= TAP_BITS, "at most 2^21 columns");
        LpnCode { key: AesKey::new(Block::from_bytes(seed)), log_k }
    }

    /// Number of columns, k.
    pub fn columns(&self) -> usize {
        1 << self.log_k
    }

    /// Adds `row first_row + r applied to secret` to `rows[r]`, which holds the noise.
    ///
    /// # Panics
    /// If `secret` does not have k blocks, or `first_row` or the length is not a multiple of [`ROW_GROUP`].
    pub fn encode(&self, first_row: u64, secret: &[Block], rows: &mut [Block]) {
        assert_eq!(secret.len(), self.columns(), "one block a column");
        assert!(
            first_row.is_multiple_of(ROW_GROUP as u64) && rows.len().is_multiple_of(ROW_GROUP),
            "rows come in fours"
        );
        let mut counter = u128::from(first_row) / ROW_GROUP as u128 * GROUP_BLOCKS as u128;
        let mut stream = [[Block::ZERO; GROUP_BLOCKS]; GROUPS];
        for rows in rows.as_chunks_mut::<ROW_GROUP>().0.chunks_mut(GROUPS) {
            let stream = &mut stream[..rows.len()];
            self.key.counter(counter, stream.as_flattened_mut());
            counter += (stream.len() * GROUP_BLOCKS) as u128;
            for (columns, rows) in stream.iter().zip(rows) {
                gather(columns, secret, rows);
            }
        }
    }
}

/// One group of rows; `secret.len()` is a power of two.
#[inline(always)]
fn gather(columns: &[Block; GROUP_BLOCKS], secret: &[Block], rows: &mut [Block; ROW_GROUP]) {
    let mask = secret.len() - 1;
    assert!(secret.len().is_power_of_two());
    let tap = |i: usize| {
        let block = columns[i / 6];
        let word = if (i / 3).is_multiple_of(2) { block.low_u64() } else { block.high_u64() };
        let column = (word >> (TAP_BITS * (i as u32 % 3))) as usize & mask;
        // SAFETY: a power of two minus one masks every index below the length.
        unsafe { secret.get_unchecked(column) }
    };
    let mut i = 0;
    for row in rows {
        let mut sum = Lane::load(row);
        for _ in 0..TAPS {
            sum = sum.xor(Lane::load(tap(i)));
            i += 1;
        }
        sum.store(row);
    }
}

#[cfg(target_arch = "x86_64")]
use x86::Lane;

/// A block in an SSE2 register (part of every x86-64): integer code would load each half separately.
#[cfg(target_arch = "x86_64")]
mod x86 {
    use super::Block;
    use core::arch::x86_64::*;

    #[derive(Clone, Copy)]
    pub(super) struct Lane(__m128i);

    impl Lane {
        #[inline(always)]
        pub(super) fn load(b: &Block) -> Lane {
            // SAFETY: a reference to 16 aligned bytes.
            Lane(unsafe { _mm_load_si128(core::ptr::from_ref(b).cast()) })
        }

        #[inline(always)]
        pub(super) fn xor(self, other: Lane) -> Lane {
            // SAFETY: SSE2 is part of x86-64.
            Lane(unsafe { _mm_xor_si128(self.0, other.0) })
        }

        #[inline(always)]
        pub(super) fn store(self, out: &mut Block) {
            // SAFETY: a reference to 16 bytes, aligned to 16 as `u128` is.
            unsafe { _mm_store_si128(core::ptr::from_mut(out).cast(), self.0) }
        }
    }

    const _: () = assert!(align_of::<Block>() == 16);
}

#[cfg(not(target_arch = "x86_64"))]
#[derive(Clone, Copy)]
struct Lane(Block);

#[cfg(not(target_arch = "x86_64"))]
impl Lane {
    fn load(b: &Block) -> Lane {
        Lane(*b)
    }

    fn xor(self, other: Lane) -> Lane {
        Lane(self.0 ^ other.0)
    }

    fn store(self, out: &mut Block) {
        *out = self.0;
    }
}

#[cfg(test)]
mod tests {
    use super::super::PrgAes;
    use super::*;

    fn blocks(seed: u128, n: usize) -> Vec<Block> {
        let mut v = vec![Block::ZERO; n];
        PrgAes::new(Block(seed)).fill(&mut v);
        v
    }

    /// Straight from the header.
    fn naive(seed: [u8; 16], log_k: u32, r: u64, secret: &[Block]) -> Block {
        let mut sum = Block::ZERO;
        for j in 0..9 {
            let tap = r % 4 * 9 + j;
            let word = r / 4 * 12 + tap / 3;
            let mut b = [Block::ZERO];
            PrgAes::at(Block::from_bytes(seed), u128::from(word / 2)).fill(&mut b);
            let shift = 64 * (word % 2) + 21 * (tap % 3);
            sum ^= secret[(b[0].0 >> shift) as usize & ((1 << log_k) - 1)];
        }
        sum
    }

    #[test]
    fn rows_match_the_definition() {
        for (log_k, n, first) in [(0, 4, 0), (4, 8, 12), (10, 300, 0), (21, 8, 4), (12, 256, 1 << 33)] {
            let seed = [7; 16];
            let code = LpnCode::new(seed, log_k);
            let secret = blocks(1, code.columns());
            let noise = blocks(2, n);
            let mut rows = noise.clone();
            code.encode(first, &secret, &mut rows);
            for (r, (row, e)) in rows.iter().zip(&noise).enumerate() {
                let expect = naive(seed, log_k, first + r as u64, &secret) ^ *e;
                assert!(*row == expect, "log_k {log_k} row {r}");
            }
        }
    }

    #[test]
    fn splitting_the_rows_changes_nothing() {
        let code = LpnCode::new([9; 16], 8);
        let (secret, noise) = (blocks(3, 256), blocks(4, 1000));
        let (mut whole, mut parts) = (noise.clone(), noise);
        code.encode(0, &secret, &mut whole);
        code.encode(336, &secret, &mut parts[336..]);
        code.encode(0, &secret, &mut parts[..336]);
        assert!(whole == parts);
    }
}
