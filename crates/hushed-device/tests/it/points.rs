//! Word-by-word operations and permutations.

use std::sync::Arc;

use hushed_device::{DeviceError, DevicePoly};
use hushed_math::{Eval, RnsPoly};

use crate::bed::{assert_same, basis, named, rings, samples};

#[test]
fn pointwise_operations_are_those_of_the_processor() {
    let basis = basis(1 << 8);
    let polys = samples::<Eval>(&basis, 3);
    let scalars: Vec<u64> = (0..basis.len()).map(|id| basis.modulus(id).value() - 1 - id as u64).collect();
    for ring in rings(&basis) {
        let name = named(&ring);
        let up = |poly: &RnsPoly<Eval>| DevicePoly::upload(&ring, poly).unwrap();
        for a in &polys {
            for b in &polys {
                let (other, [mut sum, mut difference, mut product, mut both]) = (up(b), [(); 4].map(|()| up(a)));
                let mut expected = a.clone();
                expected.add_assign(b);
                sum.add_assign(&other).unwrap();
                assert_same(&sum.download().unwrap(), &expected, &name);
                let mut expected = a.clone();
                expected.sub_assign(b);
                difference.sub_assign(&other).unwrap();
                assert_same(&difference.download().unwrap(), &expected, &name);
                let mut expected = a.clone();
                expected.mul_assign(b);
                product.mul_assign(&other).unwrap();
                assert_same(&product.download().unwrap(), &expected, &name);
                let mut expected = a.clone();
                expected.mul_add_assign(b, a);
                both.mul_add_assign(&other, &up(a)).unwrap();
                assert_same(&both.download().unwrap(), &expected, &name);
            }
            let (mut negative, mut scaled) = (up(a), up(a));
            let mut expected = a.clone();
            expected.neg_assign();
            negative.neg_assign().unwrap();
            assert_same(&negative.download().unwrap(), &expected, &name);
            let mut expected = a.clone();
            expected.mul_scalar_assign(&scalars);
            scaled.mul_scalar_assign(&scalars).unwrap();
            assert_same(&scaled.download().unwrap(), &expected, &name);
        }
    }
}

#[test]
fn automorphisms_are_those_of_the_processor() {
    for n in [1 << 8, 1 << 12, 1 << 16] {
        let basis = basis(n);
        let [poly, ..] = samples::<Eval>(&basis, 4);
        for ring in rings(&basis) {
            let device = DevicePoly::upload(&ring, &poly).unwrap();
            for g in [1, 5, 2 * n - 1, 78_125, n + 1] {
                let found = device.automorphism(g).unwrap().download().unwrap();
                assert_same(&found, &poly.automorphism(g), &format!("{}, g = {g}", named(&ring)));
            }
        }
    }
}

#[test]
fn operands_of_other_rings_and_moduli_are_refused() {
    let basis = basis(1 << 8);
    let [poly, ..] = samples::<Eval>(&basis, 5);
    let [Some(ring), Some(other)] = [0, 1].map(|i| rings(&basis).into_iter().nth(i)) else {
        return;
    };
    let mut own = DevicePoly::upload(&ring, &poly).unwrap();
    let foreign = DevicePoly::upload(&other, &poly).unwrap();
    let short = DevicePoly::upload(&ring, &poly.keep_limbs(&[0, 1])).unwrap();
    for operand in [&foreign, &short] {
        assert_eq!(own.add_assign(operand), Err(DeviceError::Mismatch));
    }
    let largest: Vec<u64> = (0..basis.len()).map(|id| basis.modulus(id).value()).collect();
    assert_eq!(own.mul_scalar_assign(&largest), Err(DeviceError::Mismatch));
    let elsewhere = crate::bed::basis(1 << 8);
    let [strange, ..] = samples::<Eval>(&elsewhere, 5);
    assert!(!Arc::ptr_eq(&elsewhere, &basis));
    assert_eq!(DevicePoly::upload(&ring, &strange).err(), Some(DeviceError::Mismatch));
}
