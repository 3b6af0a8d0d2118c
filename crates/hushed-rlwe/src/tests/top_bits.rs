//! Seeded ciphertexts without the lowest bits of b.

use super::*;
use crate::SeededCiphertext;
use crate::codec::{HEADER_BYTES, SEED_BYTES};
use crate::error::{CodecError, RlweError};
use crate::keys::SecretKey;
use crate::message::RingScale;
use crate::noise::{NoiseBound, power_of_two};
use crate::truncate::SeededFormat;

fn encrypted(sk: &SecretKey, rng: &mut SecretRng, (limbs, ell): (usize, u32)) -> (RnsPoly<Coeff>, SeededCiphertext) {
    let params = sk.params();
    let x = shares(rng, params.n(), ell);
    let scale = RingScale::new(params, limbs, ell).unwrap();
    let message = scale.scale_up(&x).unwrap();
    let ct = sk.encrypt_seeded(message.clone(), rng).unwrap();
    (message, ct)
}

/// The decoded ciphertext is off by b's full rounding error and no more; so is a product.
#[test]
fn the_noise_is_that_of_the_bits_that_were_not_sent() {
    let params = tiny();
    let mut rng = rng(31);
    let sk = SecretKey::generate(&params, &mut rng);
    for (limbs, ell, drop) in [(1, 20, 1), (1, 16, 20), (2, 40, 0), (2, 40, 33), (2, 30, 45)] {
        let format = SeededFormat::new(&params, limbs, drop).unwrap();
        let (message, ct) = encrypted(&sk, &mut rng, (limbs, ell));
        let bytes = format.write(ct).unwrap();
        assert_eq!(bytes.len(), format.bytes());
        let read = format.read(&bytes).unwrap().expand();
        let noise = |ct| {
            let mut phase = sk.decrypt_phase(ct).unwrap();
            phase.sub_assign(&message);
            largest(&phase)
        };
        let (found, bound) = (noise(&read), NoiseBound::fresh_top_bits(drop).value());
        assert!(found <= bound && found > bound / 16.0, "{drop}: {found} {bound}");
        // At most half a step of 2^drop, plus the fresh error.
        assert!(drop == 0 || found <= power_of_two(drop) / 2.0 + 30.0);

        if drop + 12 < 48 {
            let w = small(&mut rng, params.n(), 4);
            let plain = plain_signed(&params, limbs, &w);
            let mut product = read;
            product.mul_plain_assign(&plain);
            let mut exact = message.into_eval();
            exact.mul_assign(&plain);
            let mut phase = sk.decrypt_phase(&product).unwrap();
            phase.sub_assign(&exact.into_coeff());
            let found = largest(&phase);
            let bound = NoiseBound::fresh_top_bits(drop).plain_product(8.0, params.n());
            assert!(found <= bound.value(), "{drop}: {found} {}", bound.value());
        }
    }
}

#[test]
fn every_bit_less_is_a_bit_less_a_coefficient() {
    let params = tiny();
    let bytes = |drop| SeededFormat::new(&params, 2, drop).unwrap().bytes();
    let none = SEED_BYTES + HEADER_BYTES;
    for drop in 1..100 {
        // Rounding may take one bit more.
        let bits = 100 - drop as usize;
        let bytes = bytes(drop) - none;
        assert!((32 * bits..=32 * (bits + 1)).contains(&bytes), "{drop}: {bytes}");
    }
    assert_eq!(bytes(0), SeededCiphertext::list_bytes(&params, 2, 1));
}

#[test]
fn other_bytes_and_shapes_are_refused() {
    let params = minute();
    let mut rng = rng(32);
    let sk = SecretKey::generate(&params, &mut rng);
    let format = SeededFormat::new(&params, 2, 37).unwrap();
    let (_, ct) = encrypted(&sk, &mut rng, (2, 40));
    let good = format.write(ct.clone()).unwrap();
    for length in [0, 1, good.len() - 1, good.len() + 1] {
        let mut bytes = good.clone();
        bytes.resize(length, 0);
        let error = format.read(&bytes).err();
        let length = matches!(error, Some(RlweError::Codec(CodecError::Length { .. })));
        assert!(length, "{error:?}");
    }
    // The last coefficient exceeds every integer modulo Q'.
    let mut bytes = good.clone();
    let end = bytes.len();
    bytes[end - 8..].fill(0xff);
    assert!(matches!(format.read(&bytes), Err(RlweError::Codec(_))));
    // Another format's bytes, and a ciphertext with other primes.
    assert!(SeededFormat::new(&params, 2, 0).unwrap().read(&good).is_err());
    let one = SeededFormat::new(&params, 1, 10).unwrap();
    assert!(matches!(one.write(ct), Err(RlweError::Limbs { .. })));
    for (limbs, drop) in [(0, 1), (0, 0), (2, 101), (2, 127), (3, 1)] {
        assert!(SeededFormat::new(&tiny(), limbs, drop).is_err(), "{limbs} {drop}");
    }
    assert!(SeededFormat::new(&tiny(), 3, 0).is_ok());
}
