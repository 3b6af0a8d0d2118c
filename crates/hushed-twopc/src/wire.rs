//! Words of fewer than 64 bits as bytes, and messages whose length both parties can compute.
//!
//! A vector of `count` values of `width` bits takes ⌈count·width/8⌉ bytes, little-endian, value after value with no
//! gaps. The unused high bits of the last byte must be zero.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use crate::error::TwopcError;
use crate::share::clear_tail;
use hushed_math::bits;
use hushed_net::{Expect, Kind, Session};

/// Bytes of `count` values of `width` bits.
pub(crate) fn packed_len(count: usize, width: u32) -> usize {
    // A vector in memory has fewer than 2^60 words, so count·64 cannot overflow u128.
    (count as u128 * u128::from(width)).div_ceil(8) as usize
}

/// The low `width` bits of each value, packed.
pub(crate) fn pack(values: &[u64], width: u32) -> Vec<u8> {
    let mut out = Vec::with_capacity(packed_len(values.len(), width) + 8);
    pack_into(values, width, &mut out);
    out
}

/// Appends the low `width` bits of each value (1 ≤ width ≤ 64).
pub(crate) fn pack_into(values: &[u64], width: u32, out: &mut Vec<u8>) {
    bits::pack_bits(values, width, out);
}

/// `count` values of `width` bits from bytes of exactly [`packed_len`].
///
/// # Errors
/// [`TwopcError::PeerMisbehaved`] on another length or on stray bits after the last value.
pub(crate) fn unpack(bytes: &[u8], width: u32, count: usize) -> Result<Vec<u64>, TwopcError> {
    bits::unpack_bits(bytes, width, count).ok_or(TwopcError::PeerMisbehaved { what: "packed vector" })
}

/// Appends words of packed bits as ⌈len/8⌉ bytes.
pub(crate) fn bits_into(words: &[u64], len: usize, out: &mut Vec<u8>) {
    let end = out.len() + len.div_ceil(8);
    out.extend(words.iter().flat_map(|w| w.to_le_bytes()));
    out.truncate(end);
}

/// The words of `len` packed bits from ⌈len/8⌉ bytes; bits above `len` are cleared.
pub(crate) fn bits_from(bytes: &[u8], len: usize) -> Vec<u64> {
    let mut words = vec![0u64; len.div_ceil(64)];
    for (word, chunk) in words.iter_mut().zip(bytes.chunks(8)) {
        let mut le = [0u8; 8];
        le.iter_mut().zip(chunk).for_each(|(to, from)| *to = *from);
        *word = u64::from_le_bytes(le);
    }
    clear_tail(&mut words, len);
    words
}

/// Takes the first `n` bytes off a message whose total length has been checked.
pub(crate) fn take<'a>(message: &mut &'a [u8], n: usize) -> Result<&'a [u8], TwopcError> {
    let (head, tail) = message.split_at_checked(n).ok_or(TwopcError::PeerMisbehaved { what: "message length" })?;
    *message = tail;
    Ok(head)
}

/// Receives a message of exactly `len` bytes.
pub(crate) fn recv_exactly(s: &mut Session, kind: Kind, len: usize) -> Result<Vec<u8>, TwopcError> {
    Ok(s.recv(kind, Expect::Exactly(len))?)
}

/// Both parties send, then both receive; a party with nothing to send sends no frame.
pub(crate) fn exchange(s: &mut Session, kind: Kind, mine: Vec<u8>, theirs: usize) -> Result<Vec<u8>, TwopcError> {
    if !mine.is_empty() {
        s.send_vec(kind, mine)?;
    }
    if theirs == 0 {
        return Ok(Vec::new());
    }
    recv_exactly(s, kind, theirs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn values(n: usize) -> Vec<u64> {
        let step = |i: u64| (i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(7);
        (0..n as u64).map(step).collect()
    }

    #[test]
    fn every_width_and_many_lengths_round_trip() {
        for width in 1..=64 {
            let mask = u64::MAX >> (64 - width);
            for n in [0, 1, 2, 7, 8, 9, 63, 64, 65, 129] {
                let v = values(n);
                let bytes = pack(&v, width);
                assert_eq!(bytes.len(), packed_len(n, width));
                let back = unpack(&bytes, width, n).unwrap();
                assert!(back.iter().zip(&v).all(|(a, b)| *a == b & mask), "{width} {n}");
            }
        }
    }

    #[test]
    fn packing_is_little_endian_without_gaps() {
        assert_eq!(pack(&[0b101, 0b011, 0b111], 3), [0b1101_1101, 1]);
    }

    #[test]
    fn foreign_bytes_are_checked() {
        assert!(unpack(&[0], 3, 3).is_err());
        assert!(unpack(&[0, 0, 0], 3, 3).is_err());
        assert!(unpack(&[0, 2], 3, 3).is_err());
        assert!(unpack(&[0xff, 1], 3, 3).is_ok());
        assert!(take(&mut &[0u8; 3][..], 4).is_err());
    }

    #[test]
    fn bits_round_trip() {
        for n in [0usize, 1, 7, 8, 9, 64, 65, 128, 200] {
            let mut words = values(n.div_ceil(64));
            clear_tail(&mut words, n);
            let mut bytes = Vec::new();
            bits_into(&words, n, &mut bytes);
            assert_eq!(bytes.len(), n.div_ceil(8));
            assert_eq!(bits_from(&bytes, n), words);
        }
    }
}
