//! Flooded responses: exact shares modulo t, their sizes, and a flood as wide as it claims.

use super::*;
use crate::error::RlweError;
use crate::flooded::FloodedFormat;
use crate::keys::{PublicKey, SecretKey};
use crate::message::PrimeScale;
use crate::noise::{NoiseBound, power_of_two};
use crate::response::Positions;

/// The three largest primes below 2^43 that are 1 modulo 2^14: their product exceeds 2^128.
fn plain_primes() -> Vec<u64> {
    hushed_math::primes::ntt_primes(43, 8192, 3)
}

/// Noise of a product of two full-size residues, and hiding for 2^11 responses of N coefficients with 40 bits to spare.
fn ole_figures(params: &RlweParams) -> (u32, u32) {
    let product = NoiseBound::fresh_secret().plain_product(power_of_two(42), params.n());
    (product.bits(), 40 + params.log_n() + 11)
}

#[test]
fn shares_add_up_exactly() {
    let params = RlweParams::ole().unwrap();
    let mut rng = rng(1);
    let sk = SecretKey::generate(&params, &mut rng);
    let key = PublicKey::generate(&sk, &mut rng);
    let (noise, hiding) = ole_figures(&params);
    for t in plain_primes() {
        let scale = PrimeScale::new(&params, 4, t).unwrap();
        let format = FloodedFormat::for_prime(&params, t, noise, hiding).unwrap();
        // x times a constant and a shift, both of full size: the clear product is cheap, but the noise is not small.
        let m = scale.modulus();
        let x: Vec<u64> = (0..params.n()).map(|_| rng.next_u64() % t).collect();
        let mut w = vec![0; params.n()];
        (w[0], w[4000]) = (m.centre(t / 2), m.centre(t - 5));
        let ct = sk.encrypt_seeded(scale.scale_up(&x).unwrap(), &mut rng).unwrap().expand();
        let mut product = ct.clone();
        product.mul_plain_assign(&plain_signed(&params, 4, &w));
        let mut sent = Vec::new();
        let mine = format.answer(&product, &key, &mut rng, &mut sent).unwrap();
        assert_eq!(sent.len(), format.bytes());
        let theirs = format.open(&sent, &sk).unwrap();
        for i in 0..params.n() {
            let turned = if i < 4000 { m.neg(x[i + params.n() - 4000]) } else { x[i - 4000] };
            let expected = m.add(m.mul(x[i], t / 2), m.mul(turned, t - 5));
            assert_eq!(m.add(mine[i], theirs[i]), expected, "{i}");
        }
    }
}

#[test]
fn format_sizes() {
    let params = RlweParams::ole().unwrap();
    let (noise, hiding) = ole_figures(&params);
    assert_eq!((noise, hiding), (55, 64));
    let t = plain_primes()[0];
    let format = FloodedFormat::for_prime(&params, t, noise, hiding).unwrap();
    assert_eq!((format.limbs(), format.flood_bits()), (2, 119));
    let (a, b) = format.coefficient_bits();
    assert_eq!(format.bytes(), (a + b) as usize * 1024);
    assert!(a + b <= 100, "{a} {b}");
    // No room for more hiding or a wider plaintext.
    for (t, hiding) in [(t, hiding + 3), (t, u32::MAX), ((1 << 49) - 1, hiding)] {
        let refused = FloodedFormat::for_prime(&params, t, noise, hiding).err();
        assert!(matches!(refused, Some(RlweError::NoRoomForFlood { .. })));
    }
    assert!(matches!(
        FloodedFormat::for_prime(&params, params.q()[0], noise, hiding).err(),
        Some(RlweError::PlainModulus { .. })
    ));
    assert!(FloodedFormat::for_prime(&params, 1 << 43, noise, hiding).is_err());
}

/// Equal ciphertexts answered twice: the a parts and shares differ, and the phase's noise is as wide as the flood.
#[test]
fn responses_differ_and_are_flooded() {
    let params = tiny();
    let mut rng = rng(2);
    let sk = SecretKey::generate(&params, &mut rng);
    let key = PublicKey::generate(&sk, &mut rng);
    let t = hushed_math::primes::ntt_primes(20, 256, 1)[0];
    let format = FloodedFormat::for_prime(&params, t, 30, 40).unwrap();
    assert_eq!(format.flood_bits(), 70);
    let scale = PrimeScale::new(&params, 3, t).unwrap();
    let x = vec![1; 256];
    let ct = sk.encrypt_seeded(scale.scale_up(&x).unwrap(), &mut rng).unwrap().expand();
    let mut sent = [Vec::new(), Vec::new()];
    let shares: Vec<_> = sent.iter_mut().map(|out| format.answer(&ct, &key, &mut rng, out).unwrap()).collect();
    assert_ne!(shares[0], shares[1]);
    let all = Positions::all(&params);
    let parts = sent.map(|bytes| format.truncation().read(&bytes, all.as_slice()).unwrap());
    assert!(parts[0].0 != parts[1].0 && parts[0].1 != parts[1].1);

    // Two floods, seen directly: means of N uniform values on [−2^70, 2^70) within six standard errors.
    let flood = format.flood(&mut rng);
    let scaled = |poly: &RnsPoly<Coeff>| {
        let shifted = poly.clone().divide_by_last_and_round();
        let q = shifted.basis().modulus(0);
        let p = params.q()[2] as f64;
        shifted.limb(0).iter().map(|&c| q.centre(c) as f64 * p / power_of_two(70)).collect()
    };
    let values: Vec<f64> = scaled(flood.expose());
    let mean = values.iter().sum::<f64>() / 256.0;
    let square = values.iter().map(|v| v * v).sum::<f64>() / 256.0;
    assert!(values.iter().all(|v| v.abs() <= 1.0));
    assert!(mean.abs() < 6.0 * (1.0f64 / 3.0 / 256.0).sqrt(), "{mean}");
    assert!((square - 1.0 / 3.0).abs() < 6.0 * (4.0f64 / 45.0 / 256.0).sqrt(), "{square}");
}
