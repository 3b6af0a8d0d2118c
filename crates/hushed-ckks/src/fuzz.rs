//! Bodies of fuzz targets: plain functions of bytes that panic on a broken promise. A test replays them over mutations.
//!
//! The promises: no input panics, and accepted bytes are the only encoding of what was read, except for scales, which
//! may differ from the reader's by rounding. The ring is tiny (feature `insecure-test-parameters`), so rounds are short
//! and mutations often keep the right length.

use std::sync::Arc;

use hushed_rlwe::codec::HEADER_BYTES;

use crate::ciphertext::Ciphertext;
use crate::encrypt::SeededCiphertext;
use crate::noise::Noise;
use crate::params::CkksParams;

/// Number of ciphertexts in a list, and of primes in each.
pub const LIST: (usize, usize) = (2, 2);

/// N = 2^4. Insecure.
///
/// # Panics
/// Never: the literal is a constant that tests build.
pub fn params() -> Arc<CkksParams> {
    CkksParams::insecure_shallow(4, 1).unwrap_or_else(|error| panic!("a constant literal: {error}"))
}

/// Reads a list of ciphertexts of the shape [`LIST`].
///
/// # Panics
/// If the list does not encode to the accepted bytes.
pub fn ciphertexts(params: &Arc<CkksParams>, data: &[u8]) {
    let (count, limbs) = LIST;
    let scale = params.default_scale();
    let read = Ciphertext::list_from_bytes(params, limbs, count, scale, Noise::UNKNOWN, data);
    if let Ok(list) = read {
        let again = Ciphertext::list_to_bytes(params, limbs, &list);
        assert_eq!(again.map(unscaled), Ok(unscaled(data.to_vec())));
    }
}

/// Reads a list of seeded ciphertexts of the shape [`LIST`].
///
/// # Panics
/// If the list does not encode to the accepted bytes.
pub fn seeded(params: &Arc<CkksParams>, data: &[u8]) {
    let (count, limbs) = LIST;
    let scale = params.default_scale();
    if let Ok(list) = SeededCiphertext::list_from_bytes(params, limbs, count, scale, 1.0, data) {
        let again = SeededCiphertext::list_to_bytes(params, limbs, &list);
        assert_eq!(again.map(unscaled), Ok(unscaled(data.to_vec())));
        list.into_iter().for_each(|ct| drop(ct.expand()));
    }
}

/// The list with the scale at the start of each entry zeroed.
fn unscaled(mut list: Vec<u8>) -> Vec<u8> {
    let entry = list.len().saturating_sub(HEADER_BYTES) / LIST.0;
    for (at, byte) in list.iter_mut().skip(HEADER_BYTES).enumerate() {
        if at % entry.max(1) < 8 {
            *byte = 0;
        }
    }
    list
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySpecs;
    use crate::testing::Fixture;
    use hushed_math::rng::SecretRng;

    fn replay(seed: u64, good: &[u8], body: impl Fn(&[u8])) {
        let mut rng = SecretRng::insecure_from_seed(seed);
        hushed_rlwe::fuzz::replay(|| rng.next_u64(), good, body);
    }

    #[test]
    fn mutated_lists_are_refused_or_whole() {
        let params = params();
        let mut f = Fixture::new(&params, &KeySpecs::new(), 1);
        let (count, limbs) = LIST;
        let values = [f.random(), f.random()];
        let list: Vec<Ciphertext> = values.iter().map(|x| f.encrypt(x, limbs)).collect();
        assert_eq!(list.len(), count);
        let good = Ciphertext::list_to_bytes(&params, limbs, &list).unwrap();
        replay(2, &good, |data| ciphertexts(&params, data));

        let scale = params.default_scale();
        let list: Vec<SeededCiphertext> = values
            .iter()
            .map(|x| {
                let plain = f.encoder.encode(x, limbs, scale).unwrap();
                f.encryptor.encrypt_seeded(&plain, &mut f.rng).unwrap()
            })
            .collect();
        let good = SeededCiphertext::list_to_bytes(&params, limbs, &list).unwrap();
        replay(3, &good, |data| seeded(&params, data));
    }
}
