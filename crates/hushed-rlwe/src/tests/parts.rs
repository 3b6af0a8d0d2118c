//! Keys without some primes: against the secret, and against the whole keys they are parts of.

use super::hybrid::{assert_within, error, params, random};
use super::*;
use crate::error::RlweError;
use crate::hybrid::{EvalKeys, KeySpecs, switch, switch_add_rescale};
use crate::keys::SecretKey;
use hushed_math::Eval;

#[test]
fn keys_without_some_primes_switch_without_them() {
    let whole = params(8);
    let mut rng = rng(21);
    let sk = SecretKey::generate(&whole, &mut rng);
    let mut specs = KeySpecs::new();
    specs.relin(6, 3).relin(5, 2).relin(2, 1);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    for gap in [1..3, 2..4, 0..1, 3..3, 1..5] {
        let part = whole.without(&gap).unwrap();
        assert_eq!(part.q_len(), 6 - gap.len());
        let without = keys.without(&part, &gap).unwrap();
        // Shorter keys stay with the whole.
        let long = specs.iter().filter(|spec| spec.limbs >= gap.end);
        assert_eq!(without.iter().len(), long.count());
        assert_eq!(without.memory_bytes(), 0);
        // The indices of the primes in the whole basis.
        let kept: Vec<usize> = (0..6).filter(|id| !gap.contains(id)).collect();
        for used in 1..=kept.len() {
            let ids = part.ciphertext_ids(used);
            let a = random(&part, &ids, 2);
            let key = without.relin(used).unwrap();
            let bound = key.gadget().noise(&part, used);
            let back = |poly: RnsPoly<Eval>| {
                let count = poly.ids().len();
                poly.renumbered(whole.basis(), &kept[..count]).unwrap()
            };
            let found = switch(&a, key).unwrap();
            let square = |mut poly: RnsPoly<Eval>| {
                let s = sk.s().keep_limbs(poly.ids());
                poly.mul_assign(&s);
                poly.mul_assign(&s);
                poly
            };
            let wanted = square(back(a.clone()));
            let parts = (back(found.0.clone()), back(found.1.clone()));
            assert_within(&error(&sk, &parts, &wanted), &bound);
            if used > 1 {
                let zero = RnsPoly::zero(part.basis(), &ids);
                let rescaled = switch_add_rescale([&zero, &zero], &a, key).unwrap();
                assert_eq!(rescaled.0.ids().len(), used - 1);
            }
        }
    }
}

#[test]
fn parts_are_no_artefacts_and_belong_to_their_parameters() {
    let whole = params(6);
    let mut rng = rng(22);
    let sk = SecretKey::generate(&whole, &mut rng);
    let mut specs = KeySpecs::new();
    specs.relin(6, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let part = whole.without(&(1..3)).unwrap();
    assert_ne!(part.hash(), whole.hash());
    let without = keys.without(&part, &(1..3)).unwrap();
    assert!(matches!(without.to_bytes(), Err(RlweError::PartsOfKeys)));
    let other = whole.without(&(2..4)).unwrap();
    assert!(matches!(keys.without(&other, &(1..3)), Err(RlweError::IncompatibleParameters)));
    let less = part.without(&(1..2)).unwrap();
    assert!(matches!(without.without(&less, &(1..2)), Err(RlweError::PartsOfKeys)));
    assert!(whole.without(&(0..6)).is_err());
}
