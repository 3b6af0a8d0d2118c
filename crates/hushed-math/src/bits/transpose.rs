//! Bit transposition: of a 128 × n matrix from columns (bit strings of length n) to one block per row, and of 64 × 64.

use super::Block;

/// `out[i]` gets bit `j` from bit `i` of column `j`: columns are `n/128` blocks each, laid end to
/// end (`columns[j·n/128 + i/128]`, bit `i mod 128`), and `out` has `n` blocks. `n` must be a
/// multiple of 128.
///
/// # Panics
/// If `columns` and `out` differ in length or the length is not a multiple of 128.
pub fn transpose_columns(columns: &[Block], out: &mut [Block]) {
    assert_eq!(columns.len(), out.len(), "transposition keeps the size");
    let (tiles, rest) = out.as_chunks_mut::<128>();
    assert!(rest.is_empty(), "rows must be a multiple of 128");
    let stride = tiles.len();
    for (t, tile) in tiles.iter_mut().enumerate() {
        for (j, b) in tile.iter_mut().enumerate() {
            *b = columns[j * stride + t];
        }
        transpose_tile(tile);
    }
}

/// In place: bit `i` of block `j` becomes bit `j` of block `i`. Seven rounds of swapping
/// off-diagonal squares, halving the square each time.
fn transpose_tile(tile: &mut [Block; 128]) {
    let mut half = 64usize;
    let mut mask = u128::from(u64::MAX);
    while half > 0 {
        for pair in tile.chunks_exact_mut(2 * half) {
            let (top, bottom) = pair.split_at_mut(half);
            for (a, b) in top.iter_mut().zip(bottom) {
                let swap = ((a.0 >> half) ^ b.0) & mask;
                b.0 ^= swap;
                a.0 ^= swap << half;
            }
        }
        half /= 2;
        mask ^= mask << half;
    }
}

/// Transposes a 64 × 64 matrix of bits: bit i of row j ↔ bit j of row i.
///
/// Six passes that swap ever smaller off-diagonal blocks (Hacker's Delight, section 7-3, in little-endian bit order).
pub fn transpose_words(a: &mut [u64; 64]) {
    let mut half = 32;
    let mut mask = 0x0000_0000_ffff_ffffu64;
    while half > 0 {
        let mut i = 0;
        while i < 64 {
            for k in i..i + half {
                let t = ((a[k] >> half) ^ a[k + half]) & mask;
                a[k + half] ^= t;
                a[k] ^= t << half;
            }
            i += 2 * half;
        }
        half /= 2;
        mask ^= mask << half;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_naive_transposition() {
        for n in [0usize, 128, 384] {
            let stride = n / 128;
            let mut columns = vec![Block::ZERO; n];
            super::super::PrgAes::new(Block(n as u128)).fill(&mut columns);
            let mut out = vec![Block::ZERO; n];
            transpose_columns(&columns, &mut out);
            for (i, row) in out.iter().enumerate() {
                for j in 0..128 {
                    let bit = (columns[j * stride + i / 128].0 >> (i % 128)) & 1;
                    assert_eq!((row.0 >> j) & 1, bit, "n {n} row {i} column {j}");
                }
            }
        }
    }

    #[test]
    fn words_match_the_naive_transposition() {
        let mut blocks = vec![Block::ZERO; 64];
        super::super::PrgAes::new(Block(5)).fill(&mut blocks);
        let words: [u64; 64] = core::array::from_fn(|i| blocks[i].low_u64());
        let mut turned = words;
        transpose_words(&mut turned);
        for (j, row) in turned.iter().enumerate() {
            for (i, word) in words.iter().enumerate() {
                assert_eq!((row >> i) & 1, (word >> j) & 1, "{i} {j}");
            }
        }
    }

    #[test]
    fn twice_is_the_identity_on_one_tile() {
        let mut tile = [Block::ZERO; 128];
        super::super::PrgAes::new(Block(9)).fill(&mut tile);
        let mut twice = tile;
        transpose_tile(&mut twice);
        transpose_tile(&mut twice);
        assert!(twice == tile);
    }
}
