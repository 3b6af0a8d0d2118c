//! Coefficient encoding against big integers.

use num_bigint::BigUint;

use super::*;
use crate::error::RlweError;
use crate::message::{PrimeScale, RingScale};

fn modulus(params: &RlweParams, limbs: usize) -> BigUint {
    params.q()[..limbs].iter().map(|&q| BigUint::from(q)).product()
}

fn to_poly(params: &Arc<RlweParams>, limbs: usize, values: &[BigUint]) -> RnsPoly<Coeff> {
    let mut poly = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
    for j in 0..limbs {
        for (out, v) in poly.limb_mut(j).iter_mut().zip(values) {
            *out = u64::try_from(v % params.q()[j]).unwrap();
        }
    }
    poly
}

/// Share values at the edge cases, then random ones.
fn edges(ell: u32, n: usize, rng: &mut SecretRng) -> Vec<u64> {
    let top = u64::MAX >> (64 - ell);
    let half = 1u64 << (ell - 1);
    let mut x = vec![0, 1, top, top - 1, half, half - 1, reduce(half + 1, ell), top / 3];
    x.extend(shares(rng, n - x.len(), ell));
    x.iter_mut().for_each(|x| *x = reduce(*x, ell));
    x
}

#[test]
fn scale_up_is_the_rounded_quotient() {
    let mut rng = rng(1);
    for params in [tiny(), RlweParams::ole().unwrap()] {
        for limbs in 1..=params.q_len().min(3) {
            for ell in (1..=64).step_by(if params.n() > 256 { 21 } else { 1 }) {
                let q = modulus(&params, limbs);
                let x = edges(ell, params.n(), &mut rng);
                let got = RingScale::new(&params, limbs, ell).unwrap().scale_up(&x).unwrap();
                let expected: Vec<BigUint> =
                    x.iter().map(|&x| ((&q * x * 2u32) + (BigUint::from(1u32) << ell)) >> (ell + 1)).collect();
                assert_eq!(got, to_poly(&params, limbs, &expected), "limbs {limbs}, ell {ell}");
            }
        }
    }
}

#[test]
fn scale_down_is_the_rounded_quotient() {
    let mut rng = rng(2);
    for params in [tiny(), RlweParams::ole().unwrap()] {
        for limbs in 1..=params.q_len() {
            for ell in (1..=64).step_by(if params.n() > 256 { 21 } else { 1 }) {
                let q = modulus(&params, limbs);
                // The integers around every kind of boundary (k + 1/2)·Q/2^ell, then random ones.
                let boundary = |k: u64| ((&q * (BigUint::from(k) * 2u32 + 1u32)) >> (ell + 1)) % &q;
                let mut values = vec![BigUint::ZERO, &q - 1u32, &q >> 1, (&q >> 1) + 1u32];
                for k in edges(ell, 40, &mut rng) {
                    let at = boundary(k);
                    values.extend([at.clone(), (&at + 1u32) % &q, (&at + &q - 1u32) % &q]);
                }
                while values.len() < params.n() {
                    let words = shares(&mut rng, 8, 32).iter().map(|&w| w as u32).collect();
                    values.push(BigUint::new(words) % &q);
                }
                let poly = to_poly(&params, limbs, &values);
                let scale = RingScale::new(&params, limbs, ell).unwrap();
                let got = scale.scale_down(&poly).unwrap();
                for (&got, c) in got.iter().zip(&values) {
                    let rounded = ((c << (ell + 1)) + &q) / (&q * 2u32);
                    let expected = u64::try_from(rounded % (BigUint::from(1u32) << ell)).unwrap();
                    assert_eq!(got, expected, "limbs {limbs}, ell {ell}, c {c}");
                }
                let some = [7, 0, 200];
                let at: Vec<u64> = some.iter().map(|&i| got[i]).collect();
                assert_eq!(scale.scale_down_at(&poly, &some).unwrap(), at);
            }
        }
    }
}

#[test]
fn scaling_by_a_prime_is_the_rounded_quotient() {
    let mut rng = rng(4);
    let params = tiny();
    for t in [3, 257, (1 << 32) - 5, (1 << 44) - 17, (1 << 50) - 1] {
        for limbs in 1..=3 {
            let q = modulus(&params, limbs);
            let Ok(scale) = PrimeScale::new(&params, limbs, t) else {
                continue; // 2^50 − 1 may share a factor with Q
            };
            let mut x = vec![0, 1, t - 1, t / 2, t / 2 + 1];
            x.extend((5..256).map(|_| rng.next_u64() % t));
            let up: Vec<BigUint> = x.iter().map(|&x| (&q * x * 2u32 + t) / (BigUint::from(t) * 2u32)).collect();
            let scaled = scale.scale_up(&x).unwrap();
            assert_eq!(scaled, to_poly(&params, limbs, &up), "limbs {limbs}, t {t}");
            if q > BigUint::from(t) * 2u32 {
                assert_eq!(scale.scale_down(&scaled).unwrap(), x);
            }
            // Around the boundaries (k + 1/2)·Q/t.
            let mut values = vec![BigUint::ZERO, &q - 1u32, &q >> 1];
            for &k in x.iter().take(80) {
                let at = (&q * (BigUint::from(k) * 2u32 + 1u32)) / (BigUint::from(t) * 2u32);
                values.extend([&at % &q, (&at + 1u32) % &q, (at + &q - 1u32) % &q]);
            }
            values.resize(256, BigUint::ZERO);
            let down = scale.scale_down(&to_poly(&params, limbs, &values)).unwrap();
            for (&got, c) in down.iter().zip(&values) {
                let expected = (c * t * 2u32 + &q) / (&q * 2u32) % t;
                assert_eq!(BigUint::from(got), expected, "limbs {limbs}, t {t}, c {c}");
            }
        }
    }
    assert!(PrimeScale::new(&params, 1, params.q()[0]).is_err());
    assert!(PrimeScale::new(&params, 1, 1 << 20).is_err());
    let scale = PrimeScale::new(&params, 1, 257).unwrap();
    assert!(matches!(scale.scale_up(&[0; 3]), Err(RlweError::Count { .. })));
}

#[test]
fn down_inverts_up() {
    let mut rng = rng(3);
    let params = tiny();
    for (limbs, ell) in [(1, 1), (1, 32), (1, 48), (2, 64), (3, 64), (2, 37)] {
        let x = edges(ell, params.n(), &mut rng);
        let scale = RingScale::new(&params, limbs, ell).unwrap();
        let up = scale.scale_up(&x).unwrap();
        assert_eq!(scale.scale_down(&up).unwrap(), x);
    }
}

#[test]
fn misuse_is_refused() {
    let params = tiny();
    for ell in [0, 65, u32::MAX] {
        assert!(matches!(RingScale::new(&params, 1, ell), Err(RlweError::RingBits { .. })));
    }
    for limbs in [0, 4, usize::MAX] {
        assert!(matches!(RingScale::new(&params, limbs, 8), Err(RlweError::LimbCount { .. })));
    }
    let scale = RingScale::new(&params, 2, 8).unwrap();
    assert!(matches!(scale.scale_up(&[0; 255]), Err(RlweError::Count { .. })));
    let three = RnsPoly::zero(params.basis(), &[0, 1, 2]);
    assert!(matches!(scale.scale_down(&three), Err(RlweError::Limbs { .. })));
    let other = RnsPoly::zero(tiny().basis(), &[0, 1]);
    assert!(matches!(scale.scale_down(&other), Err(RlweError::IncompatibleParameters)));
    let two = RnsPoly::zero(params.basis(), &[0, 1]);
    assert!(matches!(scale.scale_down_at(&two, &[256]), Err(RlweError::Positions { n: 256 })));
}
