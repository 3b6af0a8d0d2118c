//! Bit planes: a vector of words transposed so that bit j of all elements lies together, 64 elements per word.
//!
//! A plane of n elements takes ⌈n/64⌉ words; bits of absent elements are zero. Bitwise protocols then process 64
//! elements per instruction, whatever the word size.

use crate::share::{BitShare, SecretWords, wipe};
use hushed_math::bits::transpose_words;

/// Planes 0..bits of `values`, one after the other: `bits × ⌈n/64⌉` words.
pub(crate) fn bit_planes(values: &[u64], bits: u32) -> SecretWords {
    let words = values.len().div_ceil(64);
    let mut planes = SecretWords::from(vec![0u64; words * bits as usize]);
    let mut square = [0u64; 64];
    for (k, chunk) in values.chunks(64).enumerate() {
        let (rows, absent) = square.split_at_mut(chunk.len());
        rows.copy_from_slice(chunk);
        absent.fill(0);
        transpose_words(&mut square);
        for (j, row) in square.iter().take(bits as usize).enumerate() {
            planes[j * words + k] = *row;
        }
    }
    wipe(&mut square);
    planes
}

/// The planes of `words` words at the given places, one after the other.
pub(crate) fn planes(all: &[u64], words: usize, places: impl Iterator<Item = usize> + Clone) -> SecretWords {
    let mut out = SecretWords::with_room(places.clone().count() * words);
    for place in places {
        out.extend_from_slice(&all[place * words..(place + 1) * words]);
    }
    out
}

/// One plane as a share of bits.
pub(crate) fn plane_share(plane: &[u64], n: usize) -> BitShare {
    BitShare::new(plane.to_vec(), n)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn planes_hold_the_bits() {
        let word = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32);
        for n in [0usize, 1, 63, 64, 65, 200] {
            let values: Vec<u64> = (0..n as u64).map(word).collect();
            for bits in [1, 31, 64] {
                let planes = bit_planes(&values, bits);
                let words = n.div_ceil(64);
                assert_eq!(planes.len(), words * bits as usize);
                for j in 0..bits as usize {
                    for i in 0..64 * words {
                        let got = (planes[j * words + i / 64] >> (i % 64)) & 1;
                        let want = values.get(i).map_or(0, |v| (v >> j) & 1);
                        assert_eq!(got, want, "{n} {bits} {j} {i}");
                    }
                }
            }
        }
    }
}
