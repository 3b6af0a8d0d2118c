//! The local linear code of primal LPN: each row of the public matrix has [`TAPS`] ones in random
//! columns, `rows[r] ^= ⨁_{j<10} secret[index(r, j)]`.
//!
//! Columns: word `10r + j` (32 bits, little-endian) of the AES-128 counter stream under a public
//! seed, masked to `log2(k)` bits; k is a power of two so that a mask is exact and no division is
//! needed. Indices are public, so the gathers leak nothing.

use super::Block;
use super::aes::AesKey;

/// Ones in a row (with replacement: two equal taps cancel).
pub const TAPS: usize = 10;

/// Rows whose indices are made at once: 5 KiB, which stays in the first cache.
const ROWS: usize = 128;
const STREAM: usize = ROWS * TAPS / 4;

/// A code with 2^log_k columns.
pub struct LpnCode {
    key: AesKey,
    log_k: u32,
}

impl LpnCode {
    /// The code of a public seed.
    ///
    /// # Panics
    /// If `log_k > 28`.
    pub fn new(seed: [u8; 16], log_k: u32) -> Self {
        assert!(log_k <= 28, "at most 2^28 columns");
        LpnCode {
            key: AesKey::new(Block::from_bytes(seed)),
            log_k,
        }
    }

    /// Number of columns, k.
    pub fn columns(&self) -> usize {
        1 << self.log_k
    }

    /// XORs the code's rows `first_row..` applied to `secret` onto `rows`.
    ///
    /// # Panics
    /// If `secret` has not k blocks or `first_row` is odd (two rows share five index blocks).
    pub fn add_rows(&self, first_row: u64, secret: &[Block], rows: &mut [Block]) {
        assert_eq!(secret.len(), self.columns(), "one block a column");
        assert!(first_row.is_multiple_of(2), "rows start at an even number");
        let mut counter = u128::from(first_row / 2) * 5;
        let mut stream = [Block::ZERO; STREAM];
        let mask = (self.columns() - 1) as u32;
        for rows in rows.chunks_mut(ROWS) {
            let used = (rows.len() * TAPS).div_ceil(4);
            let stream = &mut stream[..used];
            self.key.counter(counter, stream);
            counter += used as u128;
            gather(stream, mask, secret, rows);
        }
    }
}

/// `rows[r] ^= ⨁ secret[word(10r + j) & mask]`; `mask < secret.len()`.
fn gather(stream: &[Block], mask: u32, secret: &[Block], rows: &mut [Block]) {
    assert!((mask as usize) < secret.len() && rows.len() * TAPS <= stream.len() * 4);
    let tap = |word: u64| {
        // SAFETY: the masked word is at most `mask`, which is below the length (checked above).
        unsafe { *secret.get_unchecked((word as u32 & mask) as usize) }
    };
    let (fives, rest) = stream.as_chunks::<5>();
    let (pairs, last) = rows.as_chunks_mut::<2>();
    for (pair, five) in pairs.iter_mut().zip(fives) {
        let words: [u64; 10] = core::array::from_fn(|i| {
            let b = five[i / 2];
            if i % 2 == 0 {
                b.low_u64()
            } else {
                b.high_u64()
            }
        });
        for (row, words) in pair.iter_mut().zip(words.as_chunks::<5>().0) {
            let mut sum = *row;
            for w in words {
                sum ^= tap(*w);
                sum ^= tap(*w >> 32);
            }
            *row = sum;
        }
    }
    for row in last {
        // The odd last row has its two and a half blocks at the stream's end.
        let from = if fives.len() * 2 * TAPS >= stream.len() * 4 {
            &[]
        } else {
            rest
        };
        for word in from
            .iter()
            .flat_map(|b| [b.low_u64(), b.high_u64()])
            .take(TAPS / 2)
        {
            *row ^= tap(word) ^ tap(word >> 32);
        }
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

    /// Straight from the header: word 10r + j of the stream.
    fn naive(seed: [u8; 16], log_k: u32, r: u64, secret: &[Block]) -> Block {
        let mut sum = Block::ZERO;
        for j in 0..TAPS as u64 {
            let word = 10 * r + j;
            let mut b = [Block::ZERO];
            PrgAes::at(Block::from_bytes(seed), u128::from(word / 4)).fill(&mut b);
            let at = (b[0].0 >> (32 * (word % 4))) as u32 & ((1 << log_k) - 1);
            sum ^= secret[at as usize];
        }
        sum
    }

    #[test]
    fn rows_match_the_definition() {
        for (log_k, n, first) in [(0, 3, 0), (4, 1, 6), (10, 300, 0), (12, 257, 1 << 33)] {
            let seed = [7; 16];
            let code = LpnCode::new(seed, log_k);
            let secret = blocks(1, code.columns());
            let noise = blocks(2, n);
            let mut rows = noise.clone();
            code.add_rows(first, &secret, &mut rows);
            for (r, (row, e)) in rows.iter().zip(&noise).enumerate() {
                let expect = naive(seed, log_k, first + r as u64, &secret) ^ *e;
                assert!(*row == expect, "log_k {log_k} row {r}");
            }
        }
    }

    #[test]
    fn splitting_the_rows_changes_nothing() {
        let code = LpnCode::new([9; 16], 8);
        let secret = blocks(3, 256);
        let mut whole = vec![Block::ZERO; 1000];
        code.add_rows(0, &secret, &mut whole);
        let mut parts = vec![Block::ZERO; 1000];
        let (a, b) = parts.split_at_mut(334);
        code.add_rows(334, &secret, b);
        code.add_rows(0, &secret, a);
        assert!(whole == parts);
    }
}
