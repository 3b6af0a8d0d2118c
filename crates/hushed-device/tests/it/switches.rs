//! Key switching, against `hushed-rlwe`.

use std::sync::Arc;

use hushed_device::opencl::OpenCl;
use hushed_device::{Arithmetic, DeviceError, DeviceKey, DevicePoly, DeviceRing, Parts, switch};
use hushed_math::primes::ntt_primes;
use hushed_math::rng::{PublicSeed, PublicStream, SecretRng};
use hushed_math::{Eval, RnsPoly};
use hushed_rlwe::hybrid::{self, EvalKeys, KeySpecs};
use hushed_rlwe::{RlweError, RlweLiteral, RlweParams, SecretKey};

use crate::bed::{ARITHMETICS, assert_same, ring};

/// 50 | `middle` × 40 | 2 × 50 bits, with `special` special primes of 50. Insecure below N = 2^14.
fn params(log_n: u32, middle: usize, special: usize) -> Arc<RlweParams> {
    let (fifty, forty) = (ntt_primes(50, 1 << log_n, 3 + special), ntt_primes(40, 1 << log_n, middle));
    let q = [&fifty[..1], &forty, &fifty[1..3]].concat();
    RlweParams::insecure_for_tests(RlweLiteral { log_n, q, p: fifty[3..].to_vec() }).unwrap()
}

fn random(params: &RlweParams, limbs: usize, seed: u64) -> RnsPoly<Eval> {
    let stream = &mut PublicStream::new(&PublicSeed([7; 16]), seed);
    RnsPoly::uniform(params.basis(), &params.ciphertext_ids(limbs), stream)
}

/// All residues q − 1.
fn largest(params: &RlweParams, limbs: usize) -> RnsPoly<Eval> {
    let mut poly = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
    for (id, limb) in poly.limbs_mut() {
        limb.fill(params.basis().modulus(id).value() - 1);
    }
    poly
}

fn same(found: &Parts<OpenCl>, expected: &(RnsPoly<Eval>, RnsPoly<Eval>), what: &str) {
    assert_same(&found.0.download().unwrap(), &expected.0, what);
    assert_same(&found.1.download().unwrap(), &expected.1, what);
}

/// Every form of a key switch at one length.
fn all_forms(params: &Arc<RlweParams>, keys: &EvalKeys, ring: &Arc<DeviceRing<OpenCl>>, polys: [RnsPoly<Eval>; 3]) {
    let limbs = polys[0].ids().len();
    let what = format!("{limbs} primes, {:?}", ring.text().arithmetic());
    let [b, a, c] = &polys;
    let [on_b, on_a, on_c] = polys.each_ref().map(|poly| DevicePoly::upload(ring, poly).unwrap());
    let relin = keys.relin(limbs).unwrap();
    let on_relin = DeviceKey::upload(ring, relin).unwrap();
    same(&switch::switch(&on_c, &on_relin).unwrap(), &hybrid::switch(c, relin).unwrap(), &what);
    let sum = switch::switch_add([&on_b, &on_a], &on_c, &on_relin).unwrap();
    same(&sum, &hybrid::switch_add([b, a], c, relin).unwrap(), &what);
    let digits = hybrid::decompose(params, relin.gadget(), c).unwrap();
    let expected = hybrid::inner_product(&digits, relin).unwrap();
    let digits = switch::decompose(params, relin.gadget(), &on_c).unwrap();
    let found = switch::inner_product(&digits, &on_relin).unwrap();
    same(&found.mod_down().unwrap(), &expected.mod_down(params).unwrap(), &what);
    if limbs > 1 {
        let sum = switch::switch_add_rescale([&on_b, &on_a], &on_c, &on_relin).unwrap();
        same(&sum, &hybrid::switch_add_rescale([b, a], c, relin).unwrap(), &what);
        let down = on_c.divide_by_last_and_round().unwrap();
        assert_same(&down.download().unwrap(), &c.clone().divide_by_last_and_round(), &what);
    }
    let galois = [5, 25].map(|g| keys.galois(g, limbs).unwrap());
    let on_galois = galois.map(|key| DeviceKey::upload(ring, key).unwrap());
    let turned = switch::automorphisms([&on_b, &on_a], &on_galois.each_ref()).unwrap();
    for ((found, key), on_key) in turned.iter().zip(galois).zip(&on_galois) {
        let expected = hybrid::automorphism(b, a, key).unwrap();
        same(found, &expected, &what);
        same(&switch::automorphism([&on_b, &on_a], on_key).unwrap(), &expected, &what);
    }
}

#[test]
fn key_switches_are_those_of_the_processor_at_every_length() {
    for (log_n, special) in [(8, 3), (8, 1), (12, 2)] {
        let params = params(log_n, 3, special);
        let mut rng = SecretRng::insecure_from_seed(1);
        let sk = SecretKey::generate(&params, &mut rng);
        let mut specs = KeySpecs::new();
        specs.relin(6, special).galois(5, 6, special).galois(25, 6, special);
        let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
        for ring in ARITHMETICS.iter().filter_map(|&arithmetic| ring(params.basis(), arithmetic)) {
            for limbs in if log_n == 8 { 1..7 } else { 5..6 } {
                all_forms(&params, &keys, &ring, [1, 2, 3].map(|seed| random(&params, limbs, seed)));
                all_forms(&params, &keys, &ring, [(); 3].map(|()| largest(&params, limbs)));
            }
        }
    }
}

/// One digit of all fourteen primes that a conversion takes, and a division by twelve special primes and one more.
#[test]
fn the_longest_conversions_are_those_of_the_processor() {
    let params = params(8, 11, 12);
    let mut rng = SecretRng::insecure_from_seed(2);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.relin(14, 12).galois(5, 14, 12).galois(25, 14, 12);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    assert_eq!(keys.relin(14).unwrap().gadget().digits().len(), 1);
    for ring in ARITHMETICS.iter().filter_map(|&arithmetic| ring(params.basis(), arithmetic)) {
        all_forms(&params, &keys, &ring, [1, 2, 3].map(|seed| random(&params, 14, seed)));
        all_forms(&params, &keys, &ring, [(); 3].map(|()| largest(&params, 14)));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let (params, other) = (params(8, 3, 3), params(8, 3, 3));
    let mut rng = SecretRng::insecure_from_seed(3);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.relin(4, 2).galois(5, 4, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let (relin, galois) = (keys.relin(4).unwrap(), keys.galois(5, 4).unwrap());
    let rings = [&params, &other].map(|params| ring(params.basis(), Arithmetic::Doubles));
    let [Some(ring), Some(foreign)] = rings else {
        return;
    };
    let refused = |found: Result<Parts<OpenCl>, DeviceError>| found.map(|_| ()).unwrap_err();
    let up = |poly: &RnsPoly<Eval>| DevicePoly::upload(&ring, poly).unwrap();
    let [on_relin, on_galois] = [relin, galois].map(|key| DeviceKey::upload(&ring, key).unwrap());
    let (a, long) = (up(&random(&params, 4, 1)), up(&random(&params, 5, 1)));
    let too_long = RlweError::LimbCount { given: 5, available: 4 };
    assert_eq!(refused(switch::switch(&long, &on_relin)), too_long.into());
    assert_eq!(refused(switch::automorphism([&a, &a], &on_relin)), RlweError::GadgetMismatch.into());
    let digits = switch::decompose(&params, relin.gadget(), &a).unwrap();
    let mismatch = switch::inner_product(&digits, &on_galois).map(|_| ()).unwrap_err();
    assert_eq!(mismatch, RlweError::GadgetMismatch.into());
    let odd = up(&random(&params, 5, 1).keep_limbs(&[0, 2]));
    assert!(matches!(refused(switch::switch(&odd, &on_relin)), DeviceError::Rlwe(RlweError::Limbs { .. })));
    assert!(matches!(refused(switch::switch_add([&long, &a], &a, &on_relin)), DeviceError::Rlwe(_)));
    let strange = DevicePoly::upload(&foreign, &random(&other, 4, 1)).unwrap();
    assert_eq!(refused(switch::switch(&strange, &on_relin)), RlweError::IncompatibleParameters.into());
    assert!(DeviceKey::upload(&foreign, relin).is_err());
    let one = up(&random(&params, 1, 1));
    assert_eq!(one.divide_by_last_and_round().err(), Some(DeviceError::Mismatch));
}
