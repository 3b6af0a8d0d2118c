//! Bodies of fuzz targets: plain functions of bytes that panic on a broken promise. A test replays them over mutations.
//!
//! The promises: no bytes cause a panic, and accepted bytes are the only encoding of what was read. Rings are tiny
//! (feature `insecure-test-parameters`), so that a round is short and lengths are often right.

use std::sync::Arc;

use hushed_math::rng::SecretRng;

use crate::ciphertext::SeededCiphertext;
use crate::error::{ParamsError, RlweError};
use crate::flooded::FloodedFormat;
use crate::hybrid::{self, EvalKeys, KeySpecs};
use crate::keys::{KeySet, SecretKey};
use crate::params::{RlweLiteral, RlweParams};
use crate::response::{Positions, ResponseFormat};
use crate::truncate::SeededFormat;

/// The Galois elements of the key sets.
pub const ELEMENTS: [usize; 2] = [5, 17];

/// The number of ciphertexts in a list, and of their primes.
pub const LIST: (usize, usize) = (2, 2);

/// N = 2^4. Insecure.
///
/// # Panics
/// Never: the literal is a constant that the tests build.
pub fn params() -> Arc<RlweParams> {
    minute(RlweParams::olt_small())
}

/// A preset's primes at N = 2^4.
fn minute(preset: Result<Arc<RlweParams>, ParamsError>) -> Arc<RlweParams> {
    let literal = preset.map(|params| params.literal().clone());
    let minute = literal.and_then(|l| RlweParams::insecure_for_tests(RlweLiteral { log_n: 4, ..l }));
    minute.unwrap_or_else(|error| panic!("a constant literal: {error}"))
}

/// Runs a body on good bytes and on 10,000 mutations of them: truncated, repeated, with bytes removed or changed.
/// `next` draws the random words.
///
/// # Panics
/// If the body does.
pub fn replay(mut next: impl FnMut() -> u64, good: &[u8], body: impl Fn(&[u8])) {
    body(good);
    for _ in 0..10_000 {
        let mut data = good.to_vec();
        for _ in 0..=next() % 4 {
            let at = next() as usize % data.len().max(1);
            match next() % 8 {
                0 => data.truncate(at),
                1 => data.extend_from_within(at..),
                2 => data.drain(..at.min(8)).for_each(drop),
                _ => {
                    if let Some(byte) = data.get_mut(at) {
                        *byte = next() as u8;
                    }
                }
            }
        }
        body(&data);
    }
}

/// A key set for [`ELEMENTS`].
///
/// # Panics
/// If accepted bytes differ from the set's encoding.
pub fn key_set(params: &Arc<RlweParams>, data: &[u8]) {
    if let Ok(set) = KeySet::from_bytes(params, &ELEMENTS, params.q_len(), data) {
        assert_eq!(set.to_bytes(), data);
    }
}

/// Evaluation keys: a long one, a short one, and those of the sparse secret.
pub fn specs() -> KeySpecs {
    let mut specs = KeySpecs::new();
    specs.relin(2, 1).galois(5, 1, 1).encapsulation(2, 1);
    specs
}

/// Evaluation keys of [`specs`], as given and with repaired digests.
///
/// # Panics
/// If accepted bytes differ from the keys' encoding, or from what the artefact claims to hold.
pub fn eval_keys(params: &Arc<RlweParams>, data: &[u8]) {
    let mut sealed = data.to_vec();
    assert_eq!(hybrid::reseal(params, &specs(), &mut sealed), Ok(()));
    for data in [data, &sealed] {
        let offered = KeySpecs::offered(params, data);
        if let Ok(keys) = EvalKeys::from_bytes(params, &specs(), data) {
            assert_eq!(keys.to_bytes().as_deref(), Ok(data));
            assert_eq!(offered, Ok(specs()));
        }
    }
}

/// A list of ciphertexts with the sizes of [`LIST`].
///
/// # Panics
/// If accepted bytes differ from the list's encoding.
pub fn ciphertexts(params: &Arc<RlweParams>, data: &[u8]) {
    let (count, limbs) = LIST;
    if let Ok(list) = SeededCiphertext::list_from_bytes(params, limbs, count, data) {
        let again = SeededCiphertext::list_to_bytes(params, limbs, &list);
        assert_eq!(again.as_deref(), Ok(data));
        list.into_iter().for_each(|ct| drop(ct.expand()));
    }
}

/// A ciphertext without its lowest 30 bits.
///
/// # Panics
/// If the format of a constant shape is refused, or bytes of another length are accepted.
pub fn top_bits(params: &Arc<RlweParams>, data: &[u8]) {
    let Ok(format) = SeededFormat::new(params, LIST.1, 30) else { panic!("a constant shape") };
    if let Ok(ct) = format.read(data) {
        assert_eq!(data.len(), format.bytes());
        drop(ct.expand());
    }
}

/// A response with 64-bit shares and three used coefficients.
///
/// # Panics
/// If the format of a constant shape is refused, or the number of shares is wrong.
pub fn response(params: &Arc<RlweParams>, data: &[u8]) {
    let mut rng = SecretRng::from_os("fuzz");
    let key = SecretKey::generate(params, &mut rng);
    let format = ResponseFormat::for_ring(params, 64, 20);
    let used = Positions::new(params, vec![1, 5, 6]);
    let (Ok(format), Ok(used)) = (format, used) else { panic!("constant shapes") };
    if let Ok(shares) = format.open(data, &key, &used) {
        assert_eq!(shares.len(), 3);
    }
}

/// A flooded format of exact shares modulo a 43-bit prime. Insecure.
///
/// # Panics
/// Never: the sizes are constants that the tests build.
pub fn flooded_format() -> (Arc<RlweParams>, FloodedFormat) {
    let params = minute(RlweParams::ole());
    let format = FloodedFormat::for_prime(&params, FLOODED_PRIME, 55, 64);
    let format = format.unwrap_or_else(|error| panic!("constant sizes: {error}"));
    (params, format)
}

/// The modulus of the shares in [`flooded`].
const FLOODED_PRIME: u64 = 0x7ff_fffd_8001;

/// A flooded response.
///
/// # Panics
/// If the number of shares is wrong, a share is not below the prime, or bytes of another length are read.
pub fn flooded((params, format): &(Arc<RlweParams>, FloodedFormat), data: &[u8]) {
    let key = SecretKey::generate(params, &mut SecretRng::from_os("fuzz"));
    match format.open(data, &key) {
        Ok(shares) => {
            assert_eq!((shares.len(), data.len()), (params.n(), format.bytes()));
            assert!(shares.iter().all(|share| *share < FLOODED_PRIME));
        }
        Err(error) => assert!(matches!(error, RlweError::Codec(_)), "{error}"),
    }
}
