//! Checks against integers: coefficients as u128/i128 by the Chinese remainder theorem, products by schoolbook.

use super::*;
use crate::primes::ntt_primes;
use crate::reference;
use crate::rng::{PublicSeed, SecretRng};

fn basis(n: usize) -> Arc<RnsBasis> {
    // 50 + 41 + 30 bits: a product below 2^127, so that the oracle has room.
    let moduli = [ntt_primes(50, n, 1)[0], ntt_primes(41, n, 1)[0], ntt_primes(30, n, 1)[0]];
    RnsBasis::new(n, &moduli).unwrap()
}

fn random<D: Domain>(basis: &Arc<RnsBasis>, ids: &[usize], seed: u64) -> RnsPoly<D> {
    let mut stream = crate::rng::PublicStream::new(&PublicSeed([7; 16]), seed);
    RnsPoly::uniform(basis, ids, &mut stream)
}

/// The coefficients as integers in [0, Q).
fn integers(poly: &RnsPoly<Coeff>) -> (Vec<u128>, u128) {
    let moduli: Vec<u64> = poly.ids().iter().map(|&id| poly.basis().modulus(id).value()).collect();
    let product = moduli.iter().map(|&q| u128::from(q)).product();
    let all = (0..poly.n())
        .map(|i| {
            // Garner, one modulus after the other.
            let (mut value, mut step) = (0_u128, 1_u128);
            for (j, &q) in moduli.iter().enumerate() {
                let m = crate::Modulus::new(q).unwrap();
                let missing = m.sub(poly.limb(j)[i], m.reduce_u128(value));
                let digit = m.mul(missing, m.inv(m.reduce_u128(step)).unwrap());
                value += step * u128::from(digit);
                step *= u128::from(q);
            }
            value
        })
        .collect();
    (all, product)
}

#[test]
fn arithmetic_is_that_of_the_ring() {
    let basis = basis(32);
    let ids = [0, 2, 1];
    let (a, b): (RnsPoly<Coeff>, RnsPoly<Coeff>) = (random(&basis, &ids, 1), random(&basis, &ids, 2));
    let mut sum = a.clone();
    sum.add_assign(&b);
    let mut difference = sum.clone();
    difference.sub_assign(&b);
    assert_eq!(difference, a);
    let mut negative = a.clone();
    negative.neg_assign();
    negative.add_assign(&a);
    let (mut both, mut difference) = (a.clone(), b.clone());
    both.sum_and_difference(&mut difference);
    difference.add_assign(&b);
    assert!(both == sum && difference == a);
    assert_eq!(negative, RnsPoly::zero(&basis, &ids));
    let (eval_a, eval_b) = (a.clone().into_eval(), b.clone().into_eval());
    let mut product = eval_a.clone();
    product.mul_assign(&eval_b);
    let mut accumulated = eval_b.clone();
    accumulated.mul_add_assign(&eval_a, &eval_b);
    accumulated.sub_assign(&eval_b);
    assert_eq!(accumulated, product);
    let product = product.into_coeff();
    for (j, &id) in ids.iter().enumerate() {
        let q = basis.modulus(id).value();
        assert_eq!(product.limb(j), reference::negacyclic_product(a.limb(j), b.limb(j), q));
    }
    let mut scaled = a.clone();
    scaled.mul_scalar_assign(&[3, 3, 3]);
    let mut triple = a.clone();
    triple.add_assign(&a);
    triple.add_assign(&a);
    assert_eq!(scaled, triple);
}

#[test]
fn automorphisms_and_monomials_commute_with_the_transform() {
    for n in [1, 2, 8, 64] {
        let basis = basis(n);
        let a: RnsPoly<Coeff> = random(&basis, &[0, 1, 2], 3);
        for g in [1, 3, 5, n + 1 - n % 2, 2 * n - 1, 2 * n + 3] {
            let image = a.automorphism(g);
            assert_eq!(image.clone().into_eval(), a.clone().into_eval().automorphism(g), "n = {n}, g = {g}");
            // By definition: coefficient i goes to i·g.
            for i in 0..n {
                let target = i * g % (2 * n);
                let (q, c) = (basis.modulus(1), a.limb(1)[i]);
                let expected = if target < n { c } else { q.neg(c) };
                assert_eq!(image.limb(1)[target % n], expected);
            }
        }
        for k in [0, 1, -1, n as i64 - 1, n as i64, n as i64 + 1, 2 * n as i64, -3 * n as i64 - 1] {
            let turned = a.mul_monomial(k);
            let mut values = a.clone().into_eval();
            values.mul_monomial_assign(k);
            assert_eq!(turned.clone().into_eval(), values, "n = {n}, k = {k}");
            assert_eq!(turned.mul_monomial(-k), a);
        }
        let mut minus = a.clone();
        minus.neg_assign();
        assert_eq!(a.mul_monomial(n as i64), minus);
    }
}

#[test]
fn division_by_the_last_modulus_rounds_to_nearest() {
    let basis = basis(16);
    for ids in [vec![0, 1, 2], vec![2, 0], vec![1, 2]] {
        let mut a: RnsPoly<Coeff> = random(&basis, &ids, 4);
        // Edges: 0, ±1, just below and above half of p, multiples of p, and −1 = Q − 1.
        let p = basis.modulus(*ids.last().unwrap()).value();
        let half = (p / 2) as i64;
        let edges = [0, 1, -1, half, half + 1, -half, -half - 1, p as i64, -(p as i64), 3 * p as i64 + half];
        let mut coefficients = vec![0; 16];
        coefficients[..edges.len()].copy_from_slice(&edges);
        let edged = RnsPoly::from_signed(&basis, &ids, &coefficients);
        for j in 0..ids.len() {
            a.limb_mut(j)[..edges.len()].copy_from_slice(&edged.limb(j)[..edges.len()]);
        }
        let (before, q) = integers(&a);
        let quotient = a.clone().divide_by_last_and_round();
        assert_eq!(quotient.clone().into_eval(), a.into_eval().divide_by_last_and_round());
        let (after, small_q) = integers(&quotient);
        assert_eq!(small_q, q / u128::from(p));
        for (&c, &r) in before.iter().zip(&after) {
            let rounded = (c + u128::from(p / 2)) / u128::from(p) % small_q;
            assert_eq!(r, rounded, "{c} / {p}");
        }
    }
}

/// The coefficients of limb `j`, as integers in (−q/2, q/2), under other moduli.
fn lifted(poly: &RnsPoly<Coeff>, j: usize, ids: &[usize]) -> RnsPoly<Coeff> {
    let basis = poly.basis();
    let mut lifted = RnsPoly::zero(basis, ids);
    for (i, &id) in ids.iter().enumerate() {
        let pointwise = basis.ntt(id).pointwise();
        pointwise.lift_centred(lifted.limb_mut(i), poly.limb(j), basis.modulus(poly.ids()[j]));
    }
    lifted
}

#[test]
fn limbs_are_lifted_centred_and_kept_by_name() {
    let basis = basis(8);
    let q = basis.modulus(2).value();
    let half = q as i64 / 2;
    let coefficients = [0, 1, -1, half, -half, half - 1, 5, -5];
    let a = RnsPoly::from_signed(&basis, &[0, 2], &coefficients);
    assert_eq!(lifted(&a, 1, &[1, 0]), RnsPoly::from_signed(&basis, &[1, 0], &coefficients));
    assert_eq!(a.keep_limbs(&[2]), RnsPoly::from_signed(&basis, &[2], &coefficients));
    let wide = RnsPoly::from_signed(&basis, &[0], &[i64::MIN, i64::MAX, 0, 0, 0, 0, 0, 0]);
    let q = i128::from(basis.modulus(0).value());
    assert_eq!(i128::from(wide.limb(0)[0]), i128::from(i64::MIN).rem_euclid(q));
    assert_eq!(i128::from(wide.limb(0)[1]), i128::from(i64::MAX).rem_euclid(q));
    // From the 50-bit modulus down to the 30-bit one.
    let top = (basis.modulus(0).value() / 2) as i64;
    let big = [top, -top, top - 1, 1 - top, 1 << 40, -(1 << 40), 0, 1];
    let b = RnsPoly::from_signed(&basis, &[0], &big);
    assert_eq!(lifted(&b, 0, &[2, 1]), RnsPoly::from_signed(&basis, &[2, 1], &big));
}

#[test]
fn limbs_are_written_one_by_one_and_cut() {
    let basis = basis(64);
    let a: RnsPoly<Coeff> = random(&basis, &[2, 0, 1], 3);
    let mut copy: RnsPoly<Coeff> = RnsPoly::scratch(&basis, a.ids());
    for ((id, out), (from, limb)) in copy.limbs_mut().zip(a.limbs()) {
        assert_eq!(id, from);
        out.copy_from_slice(limb);
    }
    assert_eq!(copy, a);
    // Transforming limb by limb is the whole transform.
    for (id, limb) in copy.limbs_mut() {
        basis.ntt(id).forward(limb);
    }
    assert_eq!(copy.relabel::<Eval>(), a.clone().into_eval());
    assert_eq!(a.clone().truncate_limbs(2), a.keep_limbs(&[2, 0]));
}

#[test]
fn data_from_outside_is_checked() {
    let basis = basis(8);
    let q = basis.modulus(1).value();
    let check = |data: &[u64]| RnsPoly::<Eval>::from_data(&basis, &[0, 1], data).map(|p| p.data().to_vec());
    let mut data = vec![q - 1; 16];
    assert_eq!(check(&data), Ok(data.clone()));
    data[15] = q;
    assert_eq!(check(&data), Err(MathError::ResidueOutOfRange { limb: 1 }));
    assert_eq!(check(&data[1..]), Err(MathError::WrongLength { expected: 16, found: 15 }));
    assert!(RnsBasis::new(8, &[17, 97, 17]).is_err() && RnsBasis::new(8, &[]).is_err());
    let secret = SecretPoly::new(RnsPoly::<Eval>::zero(&basis, &[0]));
    assert_eq!(secret.expose().limb(0), [0; 8]);
}

#[test]
fn a_subset_of_a_basis_transforms_as_the_whole() {
    let whole = basis(16);
    let part = whole.subset(&[2, 0]).unwrap();
    assert_eq!((part.len(), part.n()), (2, 16));
    let poly: RnsPoly<Coeff> = random(&whole, &[0, 2], 5);
    let moved = poly.clone().renumbered(&part, &[1, 0]).unwrap();
    assert_eq!(moved.data(), poly.data());
    assert_eq!(moved.into_eval().data(), poly.clone().into_eval().data());
    assert!(Arc::ptr_eq(&whole.automorphism(5), &part.automorphism(5)));
    // Other moduli, fewer of them, another degree.
    assert!(poly.clone().renumbered(&part, &[0, 1]).is_err());
    assert!(poly.clone().renumbered(&part, &[1]).is_err());
    assert!(poly.renumbered(&basis(8), &[0, 2]).is_err());
    assert!(whole.subset(&[]).is_err() && whole.subset(&[3]).is_err());
    assert!(whole.subset(&[1, 1]).is_err());
}

#[test]
#[should_panic(expected = "same moduli")]
fn mixed_moduli_are_a_bug_of_the_caller() {
    let basis = basis(8);
    RnsPoly::<Eval>::zero(&basis, &[0, 1]).add_assign(&RnsPoly::zero(&basis, &[1, 0]));
}

#[test]
fn fresh_randomness_differs() {
    let mut rng = SecretRng::from_os("poly test");
    assert_ne!(rng.public_seed(), rng.public_seed());
}
