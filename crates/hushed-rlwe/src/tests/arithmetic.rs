//! Encryption, products, automorphisms and modulus switching against clear polynomials, with the noise they predict.

use super::*;
use crate::error::RlweError;
use crate::evaluator::{add_automorphism, automorphism, modulus_switch};
use crate::keys::{GaloisKeys, KeySet, PublicKey, SecretKey};
use crate::message::RingScale;
use crate::noise::{NoiseBound, power_of_two};
use crate::{Ciphertext, SeededCiphertext};

struct Setting {
    params: Arc<RlweParams>,
    sk: SecretKey,
    rng: SecretRng,
}

fn setting(params: Arc<RlweParams>, seed: u64) -> Setting {
    let mut rng = rng(seed);
    Setting {
        sk: SecretKey::generate(&params, &mut rng),
        params,
        rng,
    }
}

impl Setting {
    fn encrypt(&mut self, x: &[u64], limbs: usize, ell: u32) -> SeededCiphertext {
        let scale = RingScale::new(&self.params, limbs, ell).unwrap();
        self.sk
            .encrypt_seeded(scale.scale_up(x).unwrap(), &mut self.rng)
            .unwrap()
    }

    /// Asserts that `ct` holds `x` and returns its largest noise coefficient.
    fn noise(&self, ct: &Ciphertext, x: &[u64], ell: u32) -> f64 {
        let scale = RingScale::new(&self.params, ct.limbs(), ell).unwrap();
        let mut phase = self.sk.decrypt_phase(ct).unwrap();
        assert_eq!(scale.scale_down(&phase).unwrap(), x);
        phase.sub_assign(&scale.scale_up(x).unwrap());
        largest(&phase)
    }
}

#[test]
fn fresh_noise_is_within_its_bound() {
    for params in [
        tiny(),
        RlweParams::olt_small().unwrap(),
        RlweParams::ole().unwrap(),
    ] {
        let mut s = setting(params.clone(), 1);
        for limbs in 1..=params.q_len() {
            let ell = if limbs == 1 { 30 } else { 64 };
            let x = shares(&mut s.rng, params.n(), ell);
            let ct = s.encrypt(&x, limbs, ell).expand();
            let noise = s.noise(&ct, &x, ell);
            assert!(
                (1.0..=NoiseBound::fresh_secret().value()).contains(&noise),
                "{noise}"
            );
        }
    }
}

#[test]
fn public_zeros_are_zeros() {
    for params in [tiny(), RlweParams::olt_small().unwrap()] {
        let mut s = setting(params.clone(), 2);
        let key = PublicKey::generate(&s.sk, &mut s.rng);
        for limbs in 1..=params.q_len() {
            let ct = key.encrypt_zero(&mut s.rng, limbs).unwrap();
            let noise = s.noise(&ct, &vec![0; params.n()], 20);
            let bound = NoiseBound::fresh_public(&params).value();
            // The bound is for the worst ternary weights and a tail of 2^-70: some slack, but not much.
            assert!(noise <= bound && noise > bound / 8.0, "{noise} {bound}");
        }
        assert!(key.encrypt_zero(&mut s.rng, 0).is_err());
        assert!(key.encrypt_zero(&mut s.rng, params.q_len() + 1).is_err());
    }
}

#[test]
fn sums_and_products_with_plaintexts() {
    let mut s = setting(tiny(), 3);
    let n = s.params.n();
    for (limbs, ell, bits) in [
        (1, 16, 8),
        (2, 64, 20),
        (2, 37, 20),
        (3, 64, 64),
        (3, 50, 50),
    ] {
        let (x, y) = (shares(&mut s.rng, n, ell), shares(&mut s.rng, n, ell));
        let w = small(&mut s.rng, n, bits);
        let plain = plain_signed(&s.params, limbs, &w);
        let cx = s.encrypt(&x, limbs, ell).expand();
        let cy = s.encrypt(&y, limbs, ell).expand();
        let mut sum = cx.clone();
        sum.mul_plain_assign(&plain);
        sum.add_assign(&cy);
        let product = clear_product(&x, &w, ell);
        let expected: Vec<u64> = product
            .iter()
            .zip(&y)
            .map(|(&p, &y)| reduce(p.wrapping_add(y), ell))
            .collect();
        let bound = NoiseBound::fresh_secret()
            .plain_product(power_of_two(bits - 1), n)
            .add(&NoiseBound::fresh_secret());
        if bound.value() < power_of_two(49) {
            assert!(s.noise(&sum, &expected, ell) <= bound.value());
        }
        let scale = RingScale::new(&s.params, limbs, ell).unwrap();
        let opened = scale
            .scale_down(&s.sk.decrypt_phase(&sum).unwrap())
            .unwrap();
        assert_eq!(opened, expected, "{limbs} {ell} {bits}");

        let mut fused = cy.clone();
        fused.mul_add_assign(&cx, &plain);
        assert_eq!((&fused.b, &fused.a), (&sum.b, &sum.a));
        sum.sub_assign(&cy);
        sum.mul_monomial_assign(n as i64);
        let negated: Vec<u64> = product
            .iter()
            .map(|p| reduce(p.wrapping_neg(), ell))
            .collect();
        let opened = scale
            .scale_down(&s.sk.decrypt_phase(&sum).unwrap())
            .unwrap();
        assert_eq!(opened, negated);
    }
}

#[test]
fn automorphisms_match_the_clear_ones() {
    let mut s = setting(tiny(), 4);
    let n = s.params.n();
    let mut elements = s.params.interleave_elements(8);
    elements.extend([5, 2 * n - 1]);
    let keys = GaloisKeys::generate(&s.sk, &elements, &mut s.rng).unwrap();
    for limbs in [3, 1, 2] {
        let ell = if limbs == 1 { 24 } else { 64 };
        let x = shares(&mut s.rng, n, ell);
        let ct = s.encrypt(&x, limbs, ell).expand();
        for &g in &elements {
            let turned = automorphism(&ct, g, &keys).unwrap();
            // The memory of key switches carries nothing over from one use to the next.
            let mut again = ct.clone();
            add_automorphism(&mut again, &ct, g, &keys).unwrap();
            again.sub_assign(&ct);
            assert_eq!((&again.b, &again.a), (&turned.b, &turned.a));
            let noise = s.noise(&turned, &clear_automorphism(&x, g, ell), ell);
            let bound = NoiseBound::fresh_secret().add(&NoiseBound::key_switch(&s.params, limbs));
            assert!(noise <= bound.value(), "{noise} {bound:?}");
        }
    }
}

/// The preset's sizes, where the transforms use the widest kernels.
#[test]
fn automorphism_at_the_preset_size() {
    let mut s = setting(RlweParams::olt_small().unwrap(), 5);
    let elements = s.params.interleave_elements(2);
    let keys = GaloisKeys::generate(&s.sk, &elements, &mut s.rng).unwrap();
    let x = shares(&mut s.rng, s.params.n(), 64);
    let ct = s.encrypt(&x, 2, 64).expand();
    let bound = NoiseBound::fresh_secret()
        .add(&NoiseBound::key_switch(&s.params, 2))
        .value();
    for &g in &elements {
        let turned = automorphism(&ct, g, &keys).unwrap();
        let noise = s.noise(&turned, &clear_automorphism(&x, g, 64), 64);
        assert!(noise <= bound && noise > bound / 64.0, "{noise} {bound}");
    }
}

/// Keys of the full preset restricted to two primes, after their bytes.
#[test]
fn keys_serve_every_prefix_of_the_primes() {
    let mut s = setting(tiny(), 6);
    let elements = [129, 257];
    let set = KeySet::generate(&s.sk, &elements, &mut s.rng).unwrap();
    let read = KeySet::from_bytes(&s.params, &[257, 129], &set.to_bytes()).unwrap();
    let x = shares(&mut s.rng, 256, 64);
    let ct = s.encrypt(&x, 2, 64).expand();
    let turned = automorphism(&ct, 257, &read.galois).unwrap();
    s.noise(&turned, &clear_automorphism(&x, 257, 64), 64);
}

/// Keys for two of three primes, after their bytes: shorter, equal in use, refused beyond.
#[test]
fn keys_for_short_ciphertexts() {
    let mut s = setting(tiny(), 8);
    let elements = [129, 257];
    let set = KeySet::generate_for(&s.sk, &elements, 2, &mut s.rng).unwrap();
    let bytes = set.to_bytes();
    assert_eq!(bytes.len(), KeySet::bytes_for(&s.params, 2, 2));
    assert!(bytes.len() < KeySet::bytes(&s.params, 2));
    assert!(KeySet::from_bytes(&s.params, &elements, &bytes).is_err());
    let read = KeySet::from_bytes_for(&s.params, &elements, 2, &bytes).unwrap();
    assert_eq!(read.to_bytes(), bytes);
    for limbs in [1, 2] {
        let ell = if limbs == 1 { 24 } else { 64 };
        let x = shares(&mut s.rng, 256, ell);
        let ct = s.encrypt(&x, limbs, ell).expand();
        let turned = automorphism(&ct, 257, &read.galois).unwrap();
        let noise = s.noise(&turned, &clear_automorphism(&x, 257, ell), ell);
        let bound = NoiseBound::fresh_secret().add(&NoiseBound::key_switch(&s.params, limbs));
        assert!(noise <= bound.value(), "{noise} {bound:?}");
    }
    let x = shares(&mut s.rng, 256, 64);
    let long = s.encrypt(&x, 3, 64).expand();
    assert!(matches!(
        automorphism(&long, 257, &read.galois),
        Err(RlweError::LimbCount {
            given: 3,
            available: 2
        })
    ));
    assert!(GaloisKeys::generate_for(&s.sk, &[5], 0, &mut s.rng).is_err());
    assert!(GaloisKeys::generate_for(&s.sk, &[5], 4, &mut s.rng).is_err());
}

#[test]
fn interleaving_noise_is_what_the_formula_says() {
    // One path through Figure 6 for a single ciphertext: b + Auto(b, N/h + 1), h = N/2 … 1, after 2^-8.
    let mut s = setting(tiny(), 7);
    let elements = s.params.interleave_elements(8);
    let keys = GaloisKeys::generate(&s.sk, &elements, &mut s.rng).unwrap();
    let x = shares(&mut s.rng, 256, 64);
    let mut ct = s.encrypt(&x, 2, 64).expand();
    let inverse: Vec<u64> = (0..2)
        .map(|i| s.params.basis().modulus(i))
        .map(|m| m.inv(m.reduce(256)).unwrap())
        .collect();
    ct.b.mul_scalar_assign(&inverse);
    ct.a.mul_scalar_assign(&inverse);
    for &g in elements.iter().rev() {
        let turned = automorphism(&ct, g, &keys).unwrap();
        ct.add_assign(&turned);
    }
    let mut expected = vec![0; 256];
    expected[0] = x[0];
    let bound = NoiseBound::fresh_secret()
        .interleave(&s.params, 2, 8)
        .value();
    assert!(s.noise(&ct, &expected, 64) <= bound);
}

#[test]
fn modulus_switching_keeps_the_message() {
    let mut s = setting(tiny(), 8);
    let n = s.params.n();
    let x = shares(&mut s.rng, n, 32);
    let w = small(&mut s.rng, n, 10);
    let plain = plain_signed(&s.params, 3, &w);
    let mut ct = s.encrypt(&x, 3, 32).expand();
    ct.mul_plain_assign(&plain);
    let bound = NoiseBound::fresh_secret().plain_product(512.0, n);
    let expected = clear_product(&x, &w, 32);
    for limbs in (1..=3).rev() {
        let switched = modulus_switch(&s.params, ct.clone(), limbs).unwrap();
        let noise = s.noise(&switched, &expected, 32);
        // Half a unit more: the scale of the message is rounded anew.
        let bound = bound.modulus_switch(&s.params, 3, limbs).value() + 0.5;
        assert!(
            noise <= bound && (limbs == 3 || noise < 200.0),
            "{noise} {bound}"
        );
    }
    for limbs in [0, 4] {
        assert!(modulus_switch(&s.params, ct.clone(), limbs).is_err());
    }
}

#[test]
fn misuse_is_refused() {
    let mut s = setting(tiny(), 9);
    let x = vec![0; 256];
    let ct = s.encrypt(&x, 2, 64).expand();
    let keys = GaloisKeys::generate(&s.sk, &[5, 5], &mut s.rng).unwrap();
    assert_eq!(keys.elements(), vec![5]);
    assert!(matches!(
        automorphism(&ct, 3, &keys),
        Err(RlweError::MissingGaloisKey { element: 3 })
    ));
    for element in [0, 4, 513] {
        let made = GaloisKeys::generate(&s.sk, &[element], &mut s.rng);
        assert!(matches!(made, Err(RlweError::NotAGaloisElement { .. })));
    }
    // Same numbers, another set: keys and ciphertexts do not mix.
    let mut other = setting(tiny(), 9);
    let stranger = other.encrypt(&x, 2, 64).expand();
    assert_eq!(
        automorphism(&stranger, 5, &keys).err(),
        Some(RlweError::IncompatibleParameters)
    );
    assert_eq!(
        s.sk.decrypt_phase(&stranger).err(),
        Some(RlweError::IncompatibleParameters)
    );
    // Parts of unequal length.
    let mut torn = ct.clone();
    torn.a = torn.a.keep_limbs(&[0]);
    assert!(matches!(
        automorphism(&torn, 5, &keys),
        Err(RlweError::Limbs { .. })
    ));
    // No special prime, no key switching.
    let ole = setting(RlweParams::ole().unwrap(), 10);
    let made = GaloisKeys::generate(&ole.sk, &[5], &mut s.rng);
    assert!(matches!(made, Err(RlweError::NoSpecialPrime)));
    assert!(GaloisKeys::generate(&ole.sk, &[], &mut s.rng).is_ok());
}

#[test]
fn secrets_are_dense_ternary_and_differ() {
    let params = RlweParams::olt_small().unwrap();
    let mut rng = rng(11);
    let coefficients = |rng: &mut SecretRng| {
        let sk = SecretKey::generate(&params, rng);
        let s = sk.s().clone().into_coeff();
        assert_eq!(largest(&s), 1.0);
        s.limb(0).to_vec()
    };
    let (first, second) = (coefficients(&mut rng), coefficients(&mut rng));
    assert_ne!(first, second);
    let q0 = params.q()[0];
    for value in [0, 1, q0 - 1] {
        // 8192/3 ± 6 standard deviations of 42.7.
        let count = first.iter().filter(|&&c| c == value).count();
        assert!((2475..=2987).contains(&count), "{count}");
    }
}
