//! Bodies of fuzz targets (feature `testing`): plain functions of bytes that panic on a broken promise. A test replays
//! them over mutations.
//!
//! Sessions only pass on messages of the expected length; these readers get any.

use crate::error::TwopcError;
use crate::ot::additive::{self, Shape};
use crate::ot::base::{self, BaseSender, PAIR_BYTES, POINT_BYTES};
use crate::ot::bit_table;
use crate::ot::ferret;
use crate::ot::one_of_n::{self, Batch};
use crate::share::Ring;
use crate::wire;
use hushed_math::rng::SecretRng;
use subtle::Choice;

/// Additive OTs: planes of more and of fewer than 32 bits, two values per choice.
const ADDITIVE: Shape = Shape { count: 9, messages: 2, bits: 12, width: 40 };

/// OTs of the first extension.
const STARTED: usize = 5;

/// One-of-sixteen OTs.
fn batch() -> Batch {
    Batch { n: 9, bits: 4, ring: Ring::new(13) }
}

/// Reads a vector of words and one of bits. The first byte gives the width, the second the number of words.
///
/// # Panics
/// If a vector has two encodings, or if a valid encoding is refused.
pub fn packed(data: &[u8]) {
    let [width, count, bytes @ ..] = data else {
        return;
    };
    let (width, count, unused) = (u32::from(*width) % 64 + 1, usize::from(*count), count % 8);
    match wire::unpack(bytes, width, count) {
        Ok(values) => {
            assert_eq!(values.len(), count);
            assert!(wire::pack(&values, width) == bytes);
        }
        Err(error) => {
            assert!(matches!(error, TwopcError::PeerMisbehaved { .. }));
            let stray = bytes.last().is_some_and(|last| *last != 0);
            assert!(bytes.len() != wire::packed_len(count, width) || stray);
        }
    }
    let len = (8 * bytes.len()).saturating_sub(unused.into());
    let words = wire::bits_from(bytes, len);
    let (mut again, mut expected) = (Vec::new(), bytes.to_vec());
    wire::bits_into(&words, len, &mut again);
    // Bits beyond the last one are the sender's business.
    if let Some(last) = expected.last_mut() {
        *last &= u8::MAX >> unused;
    }
    assert!(again == expected);
}

/// Reads the same bytes as each message of the oblivious transfers.
///
/// # Panics
/// If a message is accepted whose length is not the batch's, or if the result does not have the batch's size.
pub fn transfers(data: &[u8]) {
    let mut rng = SecretRng::from_os("fuzz");
    if let Ok(keys) = BaseSender::new([0; 32], 3, &mut rng).finish(data) {
        assert_eq!((keys.len(), data.len()), (3, 3 * PAIR_BYTES));
    }
    let choices = [0, 1, 1].map(Choice::from);
    if let Ok((keys, message)) = base::receive([0; 32], data, choices.into_iter(), 3, &mut rng) {
        assert_eq!((keys.len(), message.len()), (3, 3 * PAIR_BYTES));
        assert_eq!(data.len(), 3 * POINT_BYTES);
    }
    ferret::read_start(STARTED, data, &mut rng);
    let cost = additive::cost(Some(ADDITIVE), None);
    let values = vec![3; ADDITIVE.count * ADDITIVE.messages];
    let length = data.len() as u64;
    let choices = additive::read::choices(ADDITIVE, &values, data);
    assert_eq!(choices, length == cost.bytes_client);
    assert!(!additive::read::values(ADDITIVE, data) || length == cost.bytes_server);
    let [chosen, held] = one_of_n::read(batch(), data);
    assert!(chosen.is_none() || data.len() == batch().entries_len());
    assert_eq!(held.is_some(), data.len() >= batch().choice_len());
    for shares in [chosen, held].into_iter().flatten() {
        assert_eq!(shares.len(), batch().n);
    }
    let words = wire::bits_from(data, 8 * data.len());
    for shares in bit_table::read(1, &words).into_iter().flatten() {
        assert_eq!(shares.len(), 2);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn random(length: usize, seed: u64) -> Vec<u8> {
        let mut bytes = vec![0; length];
        SecretRng::insecure_from_seed(seed).fill_bytes(&mut bytes);
        bytes
    }

    /// Runs the body on good bytes and on mutations of them: cut, repeated, with bytes removed or changed.
    fn replay(good: &[u8], count: usize, seed: u64, body: impl Fn(&[u8])) {
        let mut rng = SecretRng::insecure_from_seed(seed);
        let mut below = |n: usize| (rng.next_u64() % n.max(1) as u64) as usize;
        body(good);
        for _ in 0..count {
            let mut data = good.to_vec();
            for _ in 0..=below(3) {
                let at = below(data.len());
                match below(8) {
                    0 => data.truncate(at),
                    1 => data.extend_from_within(at..),
                    2 => drop(data.drain(at..data.len().min(at + 8))),
                    _ => {
                        if let Some(byte) = data.get_mut(at) {
                            *byte = below(256) as u8;
                        }
                    }
                }
            }
            body(&data);
        }
    }

    #[test]
    fn vectors() {
        for (width, count) in [(1u8, 70u8), (3, 5), (8, 9), (13, 64), (32, 4), (64, 3)] {
            let values: Vec<u64> = (0..u64::from(count)).map(|i| i << 2 | 1).collect();
            let bytes = wire::pack(&values, width.into());
            let good = [&[width - 1, count][..], &bytes].concat();
            replay(&good, 10_000, width.into(), packed);
        }
    }

    #[test]
    fn messages_of_the_transfers() {
        let mut rng = SecretRng::insecure_from_seed(1);
        let sender = BaseSender::new([0; 32], 3, &mut rng);
        let points = |count: usize, rng: &mut SecretRng| {
            let sender = BaseSender::new([0; 32], count, rng);
            let choices = (0..count).map(|i| Choice::from((i % 2) as u8));
            let made = base::receive([0; 32], sender.message(), choices, count, rng);
            made.unwrap().1
        };
        let cost = additive::cost(Some(ADDITIVE), None);
        for (seed, good) in [
            sender.message().to_vec(),
            points(3, &mut rng),
            random(cost.bytes_client as usize, 2),
            random(cost.bytes_server as usize, 3),
            random(batch().choice_len(), 4),
            random(batch().entries_len(), 5),
        ]
        .into_iter()
        .enumerate()
        {
            replay(&good, 3_000, seed as u64, transfers);
        }
        // 127 pairs of points, as many as a direction's sender sends, and the columns that answer them.
        let points = points(127, &mut rng);
        assert_eq!(ferret::read_start(STARTED, &points, &mut rng), [true, false]);
        replay(&points, 100, 7, transfers);
        let columns = random(127 * 32 + 33 * 32 + 31 * 2 * 16 + 48, 8);
        assert_eq!(ferret::read_start(STARTED, &columns, &mut rng), [false, true]);
        replay(&columns, 1_000, 9, transfers);
    }
}
