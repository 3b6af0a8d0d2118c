//! Hybrid key switching, checked against the secret, against integers, and against itself.

use hushed_math::Eval;
use hushed_math::primes::ntt_primes;
use hushed_math::rng::PublicStream;
use num_bigint::{BigInt, Sign};

use super::*;
use crate::error::RlweError;
use crate::hybrid::{
    EvalKeys, Extended, Gadget, KeySpecs, KeyUse, automorphism, automorphisms, decompose, decompose_raised,
    inner_product, inner_product_many, mod_down, mod_down_rescale, switch, switch_add, switch_add_rescale,
};
use crate::keys::SecretKey;
use crate::noise::NoiseBound;

/// 50 | 3×40 | 2×50 with P of 3×50 bits. Insecure below N = 2^14.
fn literal(log_n: u32) -> RlweLiteral {
    let (fifty, forty) = (ntt_primes(50, 1 << log_n, 6), ntt_primes(40, 1 << log_n, 3));
    let q = [&fifty[..1], &forty, &fifty[1..3]].concat();
    RlweLiteral { log_n, q, p: fifty[3..].to_vec() }
}

pub(super) fn params(log_n: u32) -> Arc<RlweParams> {
    RlweParams::insecure_for_tests(literal(log_n)).unwrap()
}

pub(super) fn random(params: &RlweParams, ids: &[usize], seed: u64) -> RnsPoly<Eval> {
    let seed_bytes = hushed_math::rng::PublicSeed([3; 16]);
    RnsPoly::uniform(params.basis(), ids, &mut PublicStream::new(&seed_bytes, seed))
}

/// Σ parts·secrets − wanted, as coefficients.
pub(super) fn error(sk: &SecretKey, (b, a): &(RnsPoly<Eval>, RnsPoly<Eval>), wanted: &RnsPoly<Eval>) -> RnsPoly<Coeff> {
    let mut phase = b.clone();
    phase.mul_add_assign(a, &sk.s().keep_limbs(a.ids()));
    phase.sub_assign(wanted);
    phase.into_coeff()
}

pub(super) fn assert_within(error: &RnsPoly<Coeff>, bound: &NoiseBound) {
    let found = largest(error);
    assert!(found <= bound.value(), "{found} > {}", bound.value());
    // But not far below it either: a bound that is too loose would hide a wrong key.
    let n = error.n() as f64;
    let typical = bound.variance.sqrt();
    assert!(found >= typical / 8.0 || n < 64.0, "{found} for {typical}");
}

#[test]
fn switching_stays_within_its_bound_at_every_length() {
    let params = params(8);
    let mut rng = rng(1);
    let sk = SecretKey::generate(&params, &mut rng);
    for (limbs, special) in [(6, 3), (6, 2), (6, 1), (4, 2), (1, 1), (5, 3)] {
        let mut specs = KeySpecs::new();
        specs.relin(limbs, special).galois(5, limbs, special);
        let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
        for used in 1..=limbs {
            let ids = params.ciphertext_ids(used);
            let (a, b) = (random(&params, &ids, 1), random(&params, &ids, 2));
            let relin = keys.relin(used).unwrap();
            let bound = relin.gadget().noise(&params, used);
            let s = sk.s().keep_limbs(&ids);
            let mut wanted = a.clone();
            wanted.mul_assign(&s);
            wanted.mul_assign(&s);
            assert_within(&error(&sk, &switch(&a, relin).unwrap(), &wanted), &bound);

            let galois = keys.galois(5, used).unwrap();
            let mut phase = b.clone();
            phase.mul_add_assign(&a, &s);
            let turned = automorphism(&b, &a, galois).unwrap();
            assert_within(&error(&sk, &turned, &phase.automorphism(5)), &bound);
        }
    }
}

#[test]
fn rotations_compose() {
    let params = params(8);
    let mut rng = rng(2);
    let sk = SecretKey::generate(&params, &mut rng);
    let conjugation = 2 * params.n() - 1;
    let mut specs = KeySpecs::new();
    for g in [5, 25, conjugation] {
        specs.galois(g, 6, 3);
    }
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let ids = params.ciphertext_ids(6);
    let (b, a) = (random(&params, &ids, 1), random(&params, &ids, 2));
    let turn = |(b, a): &(_, _), g| automorphism(b, a, keys.galois(g, 6).unwrap()).unwrap();
    let once = turn(&(b.clone(), a.clone()), 5);
    let twice = turn(&once, 5);
    let direct = turn(&(b.clone(), a.clone()), 25);
    let phase = |(b, a): &(RnsPoly<Eval>, RnsPoly<Eval>)| {
        let mut phase = b.clone();
        phase.mul_add_assign(a, &sk.s().keep_limbs(&ids));
        phase
    };
    let noise = keys.galois(5, 6).unwrap().gadget().noise(&params, 6);
    let three = noise.add(&noise).add(&noise);
    assert_within(&error(&sk, &twice, &phase(&direct)), &three);
    let there_and_back = turn(&turn(&(b.clone(), a.clone()), conjugation), conjugation);
    assert_within(&error(&sk, &there_and_back, &phase(&(b, a))), &noise.add(&noise));
}

#[test]
fn the_sparse_secret_is_passed_through() {
    let params = params(8);
    let mut rng = rng(3);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.encapsulation(6, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let (to, from) = (keys.get(KeyUse::ToSparse, 1).unwrap(), keys.get(KeyUse::FromSparse, 1).unwrap());
    let (b, a) = (random(&params, &[0], 1), random(&params, &[0], 2));
    let mut phase = b.clone();
    phase.mul_add_assign(&a, &sk.s().keep_limbs(&[0]));
    let (add, a) = switch(&a, to).unwrap();
    let mut b = b;
    b.add_assign(&add);
    let (add, a) = switch(&a, from).unwrap();
    b.add_assign(&add);
    let bound = to.gadget().noise(&params, 1).add(&from.gadget().noise(&params, 1));
    assert_within(&error(&sk, &(b, a), &phase), &bound);
    // The sampler ensures the weight, and no two keys are equal.
    let again = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    assert_ne!(again.to_bytes(), keys.to_bytes());
}

#[test]
fn raised_polynomials_come_back_rotated_with_one_digit() {
    let params = params(8);
    let mut rng = rng(3);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.insert(KeyUse::ToSparse, 1, 1);
    specs.insert(KeyUse::Raised(1), 6, 1);
    specs.insert(KeyUse::Raised(5), 6, 1);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let to = keys.get(KeyUse::ToSparse, 1).unwrap();
    let (b, a) = (random(&params, &[0], 1), random(&params, &[0], 2));
    let mut phase = b.clone();
    phase.mul_add_assign(&a, &sk.s().keep_limbs(&[0]));
    let (add, a) = switch(&a, to).unwrap();
    let mut b = b;
    b.add_assign(&add);
    for g in [1, 5] {
        let key = keys.get(KeyUse::Raised(g), 6).unwrap();
        assert_eq!(key.gadget(), &Gadget::raised(&params, 6, 1).unwrap());
        for limbs in [6, 3] {
            let low = a.clone().into_coeff();
            let digits = decompose_raised(&params, key.gadget(), &low, limbs).unwrap();
            let (sum, turned) = inner_product(&digits, key).unwrap().mod_down(&params).unwrap();
            // Modulo q_0, where the raised b is b itself.
            let mut sum = sum.keep_limbs(&[0]);
            sum.add_assign(&b);
            let result = (sum.automorphism(g), turned.keep_limbs(&[0]).automorphism(g));
            let gadget = key.gadget();
            let noise = gadget.noise(&params, limbs);
            let bound = to.gadget().noise(&params, 1).add(&noise);
            assert_within(&error(&sk, &result, &phase.automorphism(g)), &bound);
        }
        let long = random(&params, &[0, 1], 4);
        assert!(decompose(&params, key.gadget(), &long).is_err());
    }
    assert!(decompose_raised(&params, to.gadget(), &a.into_coeff(), 1).is_err());
}

#[test]
fn forms_agree_and_threads_do_not_matter() {
    let params = params(8);
    let sk = SecretKey::generate(&params, &mut rng(4));
    let mut specs = KeySpecs::new();
    specs.relin(6, 2).galois(5, 6, 2).galois(25, 6, 2);
    let run = |threads: usize| {
        let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
        pool.install(|| {
            let keys = EvalKeys::generate(&sk, &specs, &mut rng(5)).unwrap();
            let ids = params.ciphertext_ids(5);
            let (b, a) = (random(&params, &ids, 1), random(&params, &ids, 2));
            let turned = automorphism(&b, &a, keys.galois(5, 5).unwrap()).unwrap();
            let relin = keys.relin(5).unwrap();
            let (first, second) =
                (decompose(&params, relin.gadget(), &a).unwrap(), decompose(&params, relin.gadget(), &b).unwrap());
            let one = inner_product(&first, relin).unwrap();
            let many = inner_product_many(&[&second, &first], relin).unwrap();
            assert!(many[1].b == one.b && many[1].a == one.a);
            let down = one.clone().mod_down(&params).unwrap();
            assert!(down == switch(&a, relin).unwrap());
            let rescaled = |both: Extended| {
                let part = |part| mod_down_rescale(&params, part, both.special).unwrap();
                (part(both.b), part(both.a))
            };
            // The fused forms give the same bytes as their parts.
            let mut sum = down.clone();
            sum.0.add_assign(&b);
            sum.1.add_assign(&a);
            assert!(sum == switch_add([&b, &a], &a, relin).unwrap());
            let mut lifted = one.clone();
            for (part, added) in [(&mut lifted.b, &b), (&mut lifted.a, &a)] {
                for (id, limb) in part.limbs_mut().take(5) {
                    let q = params.basis().modulus(id);
                    let p = params.literal().p[..2].iter();
                    let p = p.fold(1, |product, &p| q.mul(product, q.reduce(p)));
                    let pointwise = params.basis().ntt(id).pointwise();
                    pointwise.mul_scalar_add_assign(limb, added.limb(id), p);
                }
            }
            assert!(rescaled(lifted) == switch_add_rescale([&b, &a], &a, relin).unwrap());
            let galois = [5, 25].map(|g| keys.galois(g, 5).unwrap());
            let hoisted = automorphisms(&b, &a, &galois).unwrap();
            for (one, key) in hoisted.iter().zip(galois) {
                assert!(*one == automorphism(&b, &a, key).unwrap());
            }
            let artefact = keys.to_bytes().unwrap();
            let rescaled = rescaled(one);
            let polys = [turned.0, turned.1, down.0, down.1, rescaled.0, rescaled.1];
            (polys.map(|p| p.data()), artefact)
        })
    };
    let reference = run(1);
    for threads in [2, 3, 8] {
        assert!(run(threads) == reference, "{threads} threads");
    }
}

/// The coefficients as integers in (−M/2, M/2), where M is the product of all moduli.
fn integers(poly: RnsPoly<Eval>) -> (Vec<BigInt>, BigInt) {
    let poly = poly.into_coeff();
    let moduli: Vec<_> = poly.ids().iter().map(|&id| *poly.basis().modulus(id)).collect();
    let product: BigInt = moduli.iter().map(|m| BigInt::from(m.value())).product();
    let all = (0..poly.n()).map(|i| {
        let mut sum = BigInt::ZERO;
        for (j, m) in moduli.iter().enumerate() {
            let others = &product / m.value();
            let inverse = m.inv(u64::try_from(&others % m.value()).unwrap()).unwrap();
            sum += others * m.mul(poly.limb(j)[i], inverse);
        }
        let value = sum % &product;
        if &value * 2 > product { value - &product } else { value }
    });
    (all.collect(), product)
}

#[test]
fn division_rounds_to_nearest() {
    let params = params(8);
    for (limbs, special) in [(6, 3), (2, 3), (3, 1), (1, 2)] {
        let poly = random(&params, &params.extended_ids_with(limbs, special), 6);
        let (values, _) = integers(poly.clone());
        let p: BigInt = params.literal().p[..special].iter().map(|&p| BigInt::from(p)).product();
        let last = BigInt::from(params.q()[limbs - 1]);
        let down = mod_down(&params, poly.clone(), special).unwrap();
        let mut cases = vec![(p.clone(), down)];
        match mod_down_rescale(&params, poly, special) {
            Ok(rescaled) => cases.push((p * last, rescaled)),
            Err(error) => assert!(limbs == 1 && matches!(error, RlweError::LimbCount { .. })),
        }
        for (divisor, quotient) in cases {
            let (quotients, modulus) = integers(quotient);
            for (value, found) in values.iter().zip(quotients) {
                // |value − found·divisor| ≤ divisor/2, modulo the quotient's modulus times the divisor.
                let mut off = (value - &found * &divisor) % (&modulus * &divisor);
                let whole = &modulus * &divisor;
                if off.sign() == Sign::Minus {
                    off += &whole;
                }
                let off = std::cmp::min(off.clone(), whole - off);
                assert!(off * 2 <= divisor);
            }
        }
    }
}

#[test]
fn gadgets_are_tight_and_balanced() {
    let n = 1 << 16;
    let (fifty, forty) = (ntt_primes(50, n, 19), ntt_primes(40, n, 17));
    let literal = RlweLiteral { log_n: 16, q: [&fifty[..1], &forty, &fifty[1..12]].concat(), p: fifty[12..].to_vec() };
    let bits = |primes: &[u64]| primes.iter().map(|&p| (p as f64).log2()).sum::<f64>();
    let params = RlweParams::new(literal.clone()).unwrap();
    for (limbs, special, digits) in [(29, 7, 4), (20, 6, 3), (14, 6, 2), (5, 5, 1), (2, 1, 2), (1, 1, 1)] {
        let gadget = Gadget::new(&params, limbs, special).unwrap();
        assert_eq!(gadget.digits().len(), digits, "{limbs} {special}");
        let p = bits(&literal.p[..special]);
        let mut next = 0;
        for digit in gadget.digits() {
            assert!(digit.start == next && !digit.is_empty());
            next = digit.end;
            let size = bits(&literal.q[digit.clone()]);
            assert!(size <= p - 3.99 || digit.len() == 1);
        }
        assert_eq!(next, limbs);
        // Cut for a shorter ciphertext, the digits are the same up to its end.
        for used in 1..=limbs {
            let cut: Vec<_> = gadget.digits_for(used).collect();
            assert_eq!(cut.last().unwrap().end, used);
            assert_eq!(cut[..cut.len() - 1], gadget.digits()[..cut.len() - 1]);
        }
    }
    for (limbs, special) in [(29, 0), (29, 8)] {
        let refused = Gadget::new(&params, limbs, special).err();
        assert_eq!(refused, Some(RlweError::Gadget { limbs, special }));
    }
    for limbs in [0, 30] {
        assert!(matches!(Gadget::new(&params, limbs, 1), Err(RlweError::LimbCount { .. })));
    }
}

#[test]
fn the_cheapest_key_is_found_and_a_missing_one_named() {
    let params = params(4);
    let mut rng = rng(7);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.galois(5, 6, 3).galois(5, 2, 1).galois(7, 3, 1).relin(6, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    assert_eq!(keys.specs(), specs);
    let shape = |limbs| keys.galois(5, limbs).unwrap().spec();
    assert_eq!((shape(2).limbs, shape(1).limbs, shape(3).limbs), (2, 2, 6));
    let missing = |key, limbs, longest| RlweError::MissingKey { key, limbs, longest };
    let refused = |found: Result<_, _>| found.map(|_| ()).unwrap_err();
    assert_eq!(refused(keys.galois(7, 4)), missing(KeyUse::Galois(7), 4, 3));
    assert_eq!(refused(keys.galois(3, 1)), missing(KeyUse::Galois(3), 1, 0));
    assert_eq!(refused(keys.relin(7)), missing(KeyUse::Relin, 7, 6));
    assert_eq!(specs.memory_bytes(&params), Ok(keys.memory_bytes()));
}

#[test]
fn digits_of_other_parameters_are_refused_wherever_they_stand() {
    let (params, other) = (params(4), params(4));
    let mut rng = rng(9);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.relin(6, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let key = keys.relin(6).unwrap();
    let digits = |params: &Arc<RlweParams>| {
        let ids: Vec<usize> = (0..6).collect();
        decompose(params, key.gadget(), &random(params, &ids, 1)).unwrap()
    };
    let (own, foreign) = (digits(&params), digits(&other));
    assert!(inner_product_many(&[&own, &own], key).is_ok());
    for many in [[&own, &foreign], [&foreign, &own]] {
        assert!(matches!(inner_product_many(&many, key), Err(RlweError::IncompatibleParameters)));
    }
}

#[test]
fn what_does_not_fit_is_refused() {
    let params = params(4);
    let mut rng = rng(8);
    let sk = SecretKey::generate(&params, &mut rng);
    let refused = |f: &dyn Fn(&mut KeySpecs)| {
        let mut specs = KeySpecs::new();
        f(&mut specs);
        specs.gadgets(&params).unwrap_err()
    };
    assert_eq!(
        refused(&|p| {
            p.insert(KeyUse::ToSparse, 1, 1);
        }),
        RlweError::Encapsulation
    );
    assert_eq!(
        refused(&|p| {
            p.insert(KeyUse::FromSparse, 6, 3);
        }),
        RlweError::Encapsulation
    );
    // The sparse secret never sees more than q_0·p_0.
    for (limbs, special) in [(2, 1), (1, 2)] {
        let specs = |p: &mut KeySpecs| {
            p.encapsulation(6, 3).insert(KeyUse::ToSparse, limbs, special);
        };
        assert_eq!(refused(&specs), RlweError::Encapsulation);
    }
    for element in [2, 33] {
        let error = refused(&|p| {
            p.galois(element, 6, 3);
        });
        assert_eq!(error, RlweError::NotAGaloisElement { element, n: 16 });
    }
    let mut specs = KeySpecs::new();
    specs.relin(4, 2).galois(5, 4, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let a = random(&params, &params.ciphertext_ids(4), 1);
    let (relin, galois) = (keys.relin(4).unwrap(), keys.galois(5, 4).unwrap());
    let digits = decompose(&params, relin.gadget(), &a).unwrap();
    assert_eq!(inner_product(&digits, galois).err(), Some(RlweError::GadgetMismatch));
    assert_eq!(automorphism(&a, &a, relin).err(), Some(RlweError::GadgetMismatch));
    let long = random(&params, &params.ciphertext_ids(5), 1);
    assert!(matches!(switch(&long, relin), Err(RlweError::LimbCount { given: 5, available: 4 })));
    let odd = random(&params, &[0, 2], 1);
    assert!(matches!(switch(&odd, relin), Err(RlweError::Limbs { .. })));
    assert!(matches!(mod_down(&params, odd, 1), Err(RlweError::Limbs { .. })));
    let other = RlweParams::insecure_for_tests(params.literal().clone()).unwrap();
    let foreign = random(&other, &other.ciphertext_ids(4), 1);
    assert_eq!(switch(&foreign, relin).err(), Some(RlweError::IncompatibleParameters));
    let digits = decompose(&other, relin.gadget(), &foreign).unwrap();
    assert_eq!(inner_product(&digits, relin).err(), Some(RlweError::IncompatibleParameters));
}

/// At a secure degree with real primes: one key, one switch.
#[test]
fn switching_at_a_secure_degree() {
    let params = RlweParams::new(literal(15)).unwrap();
    let mut rng = rng(9);
    let sk = SecretKey::generate(&params, &mut rng);
    let mut specs = KeySpecs::new();
    specs.galois(3, 6, 3);
    let keys = EvalKeys::generate(&sk, &specs, &mut rng).unwrap();
    let key = keys.galois(3, 6).unwrap();
    let ids = params.ciphertext_ids(6);
    let (b, a) = (random(&params, &ids, 1), random(&params, &ids, 2));
    let mut phase = b.clone();
    phase.mul_add_assign(&a, &sk.s().keep_limbs(&ids));
    let turned = automorphism(&b, &a, key).unwrap();
    let bound = key.gadget().noise(&params, 6);
    assert_within(&error(&sk, &turned, &phase.automorphism(3)), &bound);
}
