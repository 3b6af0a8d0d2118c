//! Encryption, products, automorphisms and modulus switching against clear polynomials, with their predicted noise.

use super::*;
use crate::error::RlweError;
use crate::evaluator::modulus_switch;
use crate::keys::{PublicKey, SecretKey};
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
    Setting { sk: SecretKey::generate(&params, &mut rng), params, rng }
}

impl Setting {
    fn encrypt(&mut self, x: &[u64], limbs: usize, ell: u32) -> SeededCiphertext {
        let scale = RingScale::new(&self.params, limbs, ell).unwrap();
        self.sk.encrypt_seeded(scale.scale_up(x).unwrap(), &mut self.rng).unwrap()
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
    for params in [tiny(), RlweParams::olt_small().unwrap(), RlweParams::ole().unwrap()] {
        let mut s = setting(params.clone(), 1);
        for limbs in 1..=params.q_len() {
            let ell = if limbs == 1 { 30 } else { 64 };
            let x = shares(&mut s.rng, params.n(), ell);
            let ct = s.encrypt(&x, limbs, ell).expand();
            let noise = s.noise(&ct, &x, ell);
            assert!((1.0..=NoiseBound::fresh_secret().value()).contains(&noise), "{noise}");
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
            // The bound is for the worst ternary weights and a tail of 2^-70: there is some slack, but not much.
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
    for (limbs, ell, bits) in [(1, 16, 8), (2, 64, 20), (2, 37, 20), (3, 64, 64), (3, 50, 50)] {
        let (x, y) = (shares(&mut s.rng, n, ell), shares(&mut s.rng, n, ell));
        let w = small(&mut s.rng, n, bits);
        let plain = plain_signed(&s.params, limbs, &w);
        let cx = s.encrypt(&x, limbs, ell).expand();
        let cy = s.encrypt(&y, limbs, ell).expand();
        let mut sum = cx.clone();
        sum.mul_plain_assign(&plain);
        sum.add_assign(&cy);
        let product = clear_product(&x, &w, ell);
        let expected: Vec<u64> = product.iter().zip(&y).map(|(&p, &y)| reduce(p.wrapping_add(y), ell)).collect();
        let bound =
            NoiseBound::fresh_secret().plain_product(power_of_two(bits - 1), n).add(&NoiseBound::fresh_secret());
        if bound.value() < power_of_two(49) {
            assert!(s.noise(&sum, &expected, ell) <= bound.value());
        }
        let scale = RingScale::new(&s.params, limbs, ell).unwrap();
        let opened = scale.scale_down(&s.sk.decrypt_phase(&sum).unwrap()).unwrap();
        assert_eq!(opened, expected, "{limbs} {ell} {bits}");

        let mut fused = cy.clone();
        fused.mul_add_assign(&cx, &plain);
        assert_eq!((&fused.b, &fused.a), (&sum.b, &sum.a));
        sum.sub_assign(&cy);
        sum.mul_monomial_assign(n as i64);
        let negated: Vec<u64> = product.iter().map(|p| reduce(p.wrapping_neg(), ell)).collect();
        let opened = scale.scale_down(&s.sk.decrypt_phase(&sum).unwrap()).unwrap();
        assert_eq!(opened, negated);
    }
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
        // Half a unit more, because the message's scaling is rounded again.
        let bound = bound.modulus_switch(&s.params, 3, limbs).value() + 0.5;
        assert!(noise <= bound && (limbs == 3 || noise < 200.0), "{noise} {bound}");
    }
    for limbs in [0, 4] {
        assert!(modulus_switch(&s.params, ct.clone(), limbs).is_err());
    }
}

#[test]
fn ciphertexts_of_another_set_are_refused() {
    let (mut s, x) = (setting(tiny(), 9), vec![0; 256]);
    // The same numbers in another set: keys and ciphertexts do not mix.
    let mut other = setting(tiny(), 9);
    let stranger = other.encrypt(&x, 2, 64).expand();
    assert_eq!(s.sk.decrypt_phase(&stranger).err(), Some(RlweError::IncompatibleParameters));
    let own = s.encrypt(&x, 2, 64).expand();
    assert!(s.sk.decrypt_phase(&own).is_ok());
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
