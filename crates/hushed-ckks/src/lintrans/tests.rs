//! Encrypted products compared with those in the clear, on a small insecure ring.

use super::*;
use crate::params::CkksParams;
use crate::testing::{distance, random};
use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, RnsPoly};
use hushed_rlwe::hybrid::{EvalKeys, KeySpecs};
use hushed_rlwe::{Ciphertext, RlweError, SecretKey};
use num_complex::Complex64;
use std::sync::Arc;

const N: usize = 256;
const SLOTS: usize = N / 2;
const SCALE: f64 = (1_u64 << 40) as f64;

pub(super) struct Room {
    pub(super) params: Arc<CkksParams>,
    pub(super) sk: SecretKey,
    pub(super) rng: SecretRng,
}

pub(super) fn room(seed: u64) -> Room {
    let mut rng = SecretRng::insecure_from_seed(seed);
    let params = CkksParams::insecure_shallow(8, 5).unwrap();
    let sk = SecretKey::generate(params.rlwe(), &mut rng);
    Room { params, sk, rng }
}

impl Room {
    pub(super) fn encrypt(&mut self, slots: &[Complex64], limbs: usize) -> Ciphertext {
        let t = DftFactors::new(Direction::CoeffsToSlots, SLOTS, &[1; 7], 1.0).unwrap().apply(slots).unwrap();
        let natural = (0..SLOTS).map(|k| t[hushed_math::ntt::reverse_bits(k, 7)]);
        let (re, im): (Vec<_>, Vec<_>) =
            natural.map(|z| ((z.re * SCALE).round() as i64, (z.im * SCALE).round() as i64)).unzip();
        let ids = self.params.rlwe().ciphertext_ids(limbs);
        let message = RnsPoly::<Coeff>::from_signed(self.params.rlwe().basis(), &ids, &[re, im].concat());
        self.sk.encrypt_seeded(message, &mut self.rng).unwrap().expand()
    }

    pub(super) fn decrypt(&self, (b, a): Parts) -> Vec<Complex64> {
        let phase = self.sk.decrypt_phase(&Ciphertext { b, a }).unwrap();
        let q = self.params.prime(0);
        let centred = |&r: &u64| {
            let signed = if r > q / 2 { r as i64 - q as i64 } else { r as i64 };
            signed as f64 / SCALE
        };
        let m: Vec<f64> = phase.limb(0).iter().map(centred).collect();
        let t: Vec<_> = (0..SLOTS)
            .map(|k| hushed_math::ntt::reverse_bits(k, 7))
            .map(|k| Complex64::new(m[k], m[k + SLOTS]))
            .collect();
        DftFactors::new(Direction::SlotsToCoeffs, SLOTS, &[1; 7], 1.0).unwrap().apply(&t).unwrap()
    }

    pub(super) fn keys(&mut self, maps: &[&LinearTransform]) -> EvalKeys {
        let mut specs = KeySpecs::new();
        maps.iter().for_each(|map| map.add_keys(&mut specs));
        EvalKeys::generate(&self.sk, &specs, &mut self.rng).unwrap()
    }
}

pub(super) fn bits(found: &[Complex64], expected: &[Complex64]) -> f64 {
    -distance(found, expected).log2()
}

fn matrix(dim: usize, offsets: &[i64], period: usize, rng: &mut SecretRng) -> Diagonals {
    let mut m = Diagonals::new(dim).unwrap();
    for &k in offsets {
        m.set(k, random(rng, period)).unwrap();
    }
    m
}

fn with(method: Method) -> Options {
    Options { method, ..Options::default() }
}

#[test]
fn encrypted_products_are_the_clear_ones_for_every_method_and_level() {
    let mut room = room(1);
    let shapes: [(Vec<i64>, usize, usize); 4] = [
        ((0..SLOTS as i64).collect(), SLOTS, SLOTS),
        ((-7..8).map(|k| k * 2).collect(), SLOTS, 16),
        (vec![3, 5, -20], SLOTS, 64),
        ((0..16).collect(), 16, 16),
    ];
    for (limbs, (offsets, dim, period)) in [6, 4, 3, 2].into_iter().zip(shapes) {
        let m = matrix(dim, &offsets, period, &mut room.rng);
        for method in [Method::DoubleHoisted, Method::Diagonal, Method::Width(4)] {
            let map = LinearTransform::new(&room.params, &m, limbs, with(method)).unwrap();
            assert_eq!(map.products(), m.count());
            let keys = room.keys(&[&map]);
            let inputs: Vec<Vec<_>> = (0..2)
                .map(|_| {
                    let once = random(&mut room.rng, dim);
                    once.iter().copied().cycle().take(SLOTS).collect()
                })
                .collect();
            let cts: Vec<_> = inputs.iter().map(|x| room.encrypt(x, limbs)).collect();
            let parts: Vec<_> = cts.iter().map(|ct| (&ct.b, &ct.a)).collect();
            let outputs = map.apply_parts(&keys, &parts).unwrap();
            // A batch gives the same words as processing one by one.
            let single = map.apply_parts(&keys, &parts[1..]).unwrap();
            assert!(outputs[1] == single[0]);
            for (x, out) in inputs.iter().zip(outputs) {
                assert_eq!(out.0.ids().len(), limbs - 1);
                let expected = m.apply(&x[..dim]).unwrap();
                let found = room.decrypt(out);
                let precision = bits(&found[..dim], &expected);
                assert!(precision > 18.0, "{method:?} at {limbs}: {precision}");
                let again = bits(&found[SLOTS - dim..], &expected);
                assert!(again > 18.0, "{method:?} repeats: {again}");
            }
        }
    }
}

#[test]
fn factored_transforms_cancel_under_encryption() {
    let mut room = room(2);
    let layers = DftFactors::even_layers(Direction::SlotsToCoeffs, SLOTS, 2);
    let down = DftFactors::new(Direction::SlotsToCoeffs, SLOTS, &layers, 0.25).unwrap();
    let layers = DftFactors::even_layers(Direction::CoeffsToSlots, SLOTS, 3);
    let up = DftFactors::new(Direction::CoeffsToSlots, SLOTS, &layers, 4.0).unwrap();
    let factors = down.factors().iter().chain(up.factors());
    let maps: Vec<_> = (2..=6)
        .rev()
        .zip(factors)
        .map(|(limbs, m)| LinearTransform::new(&room.params, m, limbs, Options::default()).unwrap())
        .collect();
    let keys = room.keys(&maps.iter().collect::<Vec<_>>());
    let x = random(&mut room.rng, SLOTS);
    let ct = room.encrypt(&x, 6);
    let mut parts = (ct.b, ct.a);
    for map in &maps {
        let inputs = [(&parts.0, &parts.1)];
        let next = map.apply_parts(&keys, &inputs).unwrap().pop().unwrap();
        parts = next;
    }
    let precision = bits(&room.decrypt(parts), &x);
    assert!(precision > 20.0, "{precision}");
}

#[test]
fn periodic_diagonals_are_stored_once() {
    let mut room = room(3);
    let m = matrix(SLOTS, &[0, 1, 2, 3], 16, &mut room.rng);
    let whole = matrix(SLOTS, &[0, 1, 2, 3], SLOTS, &mut room.rng);
    let sizes = [m, whole]
        .map(|m| LinearTransform::new(&room.params, &m, 5, with(Method::Width(2))).unwrap().plaintext_bytes());
    assert_eq!(sizes[0] * 8, sizes[1]);
}

#[test]
fn missing_keys_and_wrong_lengths_are_named() {
    let mut room = room(4);
    let m = matrix(SLOTS, &[0, 1, 2], SLOTS, &mut room.rng);
    let map = LinearTransform::new(&room.params, &m, 3, Options::default()).unwrap();
    let other = LinearTransform::new(&room.params, &m, 4, Options::default()).unwrap();
    let keys = room.keys(&[&other]);
    let x = random(&mut room.rng, SLOTS);
    let short = room.encrypt(&x, 3);
    let long = room.encrypt(&x, 4);
    assert!(matches!(
        map.apply_parts(&keys, &[(&short.b, &short.a)]),
        Err(LinTransError::Rlwe(RlweError::MissingKey { limbs: 3, .. }))
    ));
    assert!(matches!(
        map.apply_parts(&keys, &[(&long.b, &long.a)]),
        Err(LinTransError::Level { limbs: 4, needed: 3, .. })
    ));
    assert!(map.apply_parts(&keys, &[]).unwrap().is_empty());
    for limbs in [0, 1, 7] {
        assert!(LinearTransform::new(&room.params, &m, limbs, Options::default()).is_err());
    }
}

#[test]
fn debug_shows_the_shape_of_a_matrix_only() {
    let mut matrix = Diagonals::new(4).unwrap();
    matrix.set(1, vec![0.734_375.into(); 4]).unwrap();
    assert_eq!(format!("{matrix:?}"), "Diagonals(1 of 4)");
}
