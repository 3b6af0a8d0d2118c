//! Packing of `width`-bit values into bytes: value `i` takes bits `[i·width, (i+1)·width)` of the
//! stream, bit `j` of the stream being bit `j mod 8` of byte `⌊j/8⌋`. The last byte is padded with
//! zero bits. Time depends on count and width only.

/// Number of bytes that `count` values of `width` bits take; `None` on overflow.
pub fn packed_len(count: usize, width: u32) -> Option<usize> {
    Some(count.checked_mul(width as usize)?.div_ceil(8))
}

/// Appends `values` (their low `width` bits) to `out`: `⌈len·width/8⌉` bytes.
///
/// # Panics
/// If `width` is not in 1..=64.
pub fn pack_bits(values: &[u64], width: u32, out: &mut Vec<u8>) {
    assert!((1..=64).contains(&width), "width must be in 1..=64");
    out.reserve(packed_len(values.len(), width).unwrap_or(0) + 8);
    match width {
        8 => out.extend(values.iter().map(|v| *v as u8)),
        16 => values.iter().for_each(|v| out.extend_from_slice(&(*v as u16).to_le_bytes())),
        32 => values.iter().for_each(|v| out.extend_from_slice(&(*v as u32).to_le_bytes())),
        64 => values.iter().for_each(|v| out.extend_from_slice(&v.to_le_bytes())),
        1 => {
            let (words, tail) = values.as_chunks::<64>();
            for word in words {
                let bits = word.iter().enumerate().fold(0u64, |w, (i, v)| w | ((v & 1) << i));
                out.extend_from_slice(&bits.to_le_bytes());
            }
            pack_any(tail, 1, out);
        }
        _ => pack_any(values, width, out),
    }
}

fn pack_any(values: &[u64], width: u32, out: &mut Vec<u8>) {
    let mask = u64::MAX >> (64 - width);
    // `held` < 64 bits are waiting in `word`; a value adds up to 64, so `word` never loses bits: the
    // part of `v` shifted out is put back as the next word. The double shift keeps amounts below 64.
    let (mut word, mut held) = (0u64, 0u32);
    for v in values {
        let v = v & mask;
        word |= v << held;
        if held + width >= 64 {
            out.extend_from_slice(&word.to_le_bytes());
            word = (v >> 1) >> (63 - held);
            held = held + width - 64;
        } else {
            held += width;
        }
    }
    let bytes = word.to_le_bytes();
    out.extend_from_slice(bytes.get(..held.div_ceil(8) as usize).unwrap_or_default());
}

/// Reads `count` values of `width` bits. `None` unless `bytes` is exactly as long as
/// [`pack_bits`] makes it and its padding bits are zero (one encoding per list), or if `width` is not
/// in 1..=64.
pub fn unpack_bits(bytes: &[u8], width: u32, count: usize) -> Option<Vec<u64>> {
    if !(1..=64).contains(&width) || bytes.len() != packed_len(count, width)? {
        return None;
    }
    let padding = bytes.len() * 8 - count * width as usize;
    if let Some(last) = bytes.last()
        && u32::from(*last) >> (8 - padding) != 0
    {
        return None;
    }
    let mut out = Vec::with_capacity(count);
    match width {
        8 => out.extend(bytes.iter().map(|b| u64::from(*b))),
        16 => {
            out.extend(bytes.as_chunks::<2>().0.iter().map(|c| u64::from(u16::from_le_bytes(*c))));
        }
        32 => {
            out.extend(bytes.as_chunks::<4>().0.iter().map(|c| u64::from(u32::from_le_bytes(*c))));
        }
        64 => out.extend(bytes.as_chunks::<8>().0.iter().map(|c| u64::from_le_bytes(*c))),
        _ => unpack_any(bytes, width, count, &mut out),
    }
    Some(out)
}

fn unpack_any(bytes: &[u8], width: u32, count: usize, out: &mut Vec<u64>) {
    let mask = u64::MAX >> (64 - width);
    let (words, tail) = bytes.as_chunks::<8>();
    let mut last = [0u8; 8];
    last.iter_mut().zip(tail).for_each(|(l, t)| *l = *t);
    let mut words = words.iter().copied().chain(core::iter::once(last)).map(u64::from_le_bytes);
    // `held` unread bits are the low bits of `word`, its other bits are zero.
    let (mut word, mut held) = (0u64, 0u32);
    for _ in 0..count {
        if held >= width {
            out.push(word & mask);
            word = (word >> 1) >> (width - 1);
            held -= width;
        } else {
            let next = words.next().unwrap_or(0);
            out.push((word | (next << held)) & mask);
            let taken = width - held;
            word = (next >> 1) >> (taken - 1);
            held = 64 - taken;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One bit at a time.
    fn naive(values: &[u64], width: u32) -> Vec<u8> {
        let mut out = vec![0u8; (values.len() * width as usize).div_ceil(8)];
        for (i, v) in values.iter().enumerate() {
            for b in 0..width as usize {
                let at = i * width as usize + b;
                out[at / 8] |= (((v >> b) & 1) as u8) << (at % 8);
            }
        }
        out
    }

    #[test]
    fn every_width_and_tail_matches_the_naive_packing() {
        for width in 1..=64u32 {
            for count in [0usize, 1, 2, 3, 7, 8, 9, 63, 64, 65, 200] {
                let values: Vec<u64> =
                    (1..=count as u64).map(|i| i.wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(i as u32)).collect();
                let mut out = vec![0xaa];
                pack_bits(&values, width, &mut out);
                assert_eq!(&out[1..], naive(&values, width), "width {width} count {count}");
                let reduced: Vec<u64> = values.iter().map(|v| v & (u64::MAX >> (64 - width))).collect();
                assert_eq!(unpack_bits(&out[1..], width, count), Some(reduced));
            }
        }
    }

    #[test]
    fn only_the_one_encoding_is_read() {
        assert_eq!(unpack_bits(&[0xff], 3, 2), None, "padding bits set");
        assert_eq!(unpack_bits(&[0x3f], 3, 2), Some(vec![7, 7]));
        assert_eq!(unpack_bits(&[0x3f, 0], 3, 2), None, "a byte too many");
        assert_eq!(unpack_bits(&[], 3, 1), None, "a byte too few");
        assert_eq!(unpack_bits(&[], 0, 0), None);
        assert_eq!(unpack_bits(&[0; 9], 65, 1), None);
        assert_eq!(unpack_bits(&[], 64, usize::MAX), None, "length overflow");
        assert_eq!(unpack_bits(&[], 5, 0), Some(vec![]));
    }
}
