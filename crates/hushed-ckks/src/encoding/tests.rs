use super::*;
use crate::testing::{distance, random};
use hushed_math::rng::SecretRng;

#[test]
fn what_is_encoded_is_decoded_to_the_rounding_of_the_integers() {
    let params = CkksParams::insecure_test(11, 3).unwrap();
    let encoder = Encoder::new(&params);
    let mut rng = SecretRng::insecure_from_seed(1);
    let values = random(&mut rng, params.slots());
    for (bits, limbs) in [(30, 1), (40, 2), (60, 3), (70, 2), (100, 8)] {
        let scale = Scale::from_bits(bits);
        let plain = encoder.encode(&values, limbs, scale).unwrap();
        let decoded = encoder.decode(&plain.poly().clone().into_coeff(), scale);
        // Rounding: slot deviation √(N/12)/scale, times 7. Transforms: 2^-48.
        let rounding = 7.0 * (params.n() as f64 / 12.0).sqrt() / scale.value();
        let bound = rounding + 2f64.powi(-48);
        let error = distance(&values, &decoded);
        assert!(error < bound, "{bits}: {error:e} {bound:e}");
    }
}

#[test]
fn the_transform_is_exact_to_2_to_the_minus_48_in_the_largest_ring() {
    let transform = SlotTransform::new(1 << 15);
    let mut rng = SecretRng::insecure_from_seed(2);
    let values = random(&mut rng, 1 << 15);
    let mut back = values.clone();
    transform.inverse(&mut back);
    transform.forward(&mut back);
    let error = distance(&values, &back);
    assert!(error < 2f64.powi(-48), "{error:e}");
}

#[test]
fn products_of_polynomials_are_products_of_slots() {
    let params = CkksParams::insecure_test(8, 2).unwrap();
    let encoder = Encoder::new(&params);
    let mut rng = SecretRng::insecure_from_seed(3);
    let (x, y) = (random(&mut rng, 128), random(&mut rng, 128));
    let scale = Scale::from_bits(35);
    let mut product = encoder.encode(&x, 3, scale).unwrap().poly().clone();
    product.mul_assign(encoder.encode(&y, 3, scale).unwrap().poly());
    let decoded = encoder.decode(&product.into_coeff(), scale.times(scale));
    let expected: Vec<Complex64> = x.iter().zip(&y).map(|(x, y)| x * y).collect();
    assert!(distance(&expected, &decoded) < 2f64.powi(-28));
}

#[test]
fn an_automorphism_by_five_rotates_and_the_last_conjugates() {
    let params = CkksParams::insecure_test(8, 2).unwrap();
    let encoder = Encoder::new(&params);
    let mut rng = SecretRng::insecure_from_seed(4);
    let values = random(&mut rng, 128);
    let scale = Scale::from_bits(40);
    let poly = encoder.encode(&values, 2, scale).unwrap().poly().clone();
    for steps in [1, 3, -5, 127] {
        let turned = poly.automorphism(params.rotation_element(steps));
        let decoded = encoder.decode(&turned.into_coeff(), scale);
        let mut expected = values.clone();
        expected.rotate_left(steps.rem_euclid(128) as usize);
        assert!(distance(&expected, &decoded) < 2f64.powi(-32), "{steps}");
    }
    let turned = poly.automorphism(params.conjugation_element());
    let decoded = encoder.decode(&turned.into_coeff(), scale);
    let expected: Vec<Complex64> = values.iter().map(Complex64::conj).collect();
    assert!(distance(&expected, &decoded) < 2f64.powi(-32));
}

#[test]
fn periodic_messages_repeat_and_short_ones_are_padded() {
    let params = CkksParams::insecure_test(9, 2).unwrap();
    let encoder = Encoder::new(&params);
    let mut rng = SecretRng::insecure_from_seed(5);
    let scale = Scale::from_bits(40);
    for period in [1, 2, 64, 256] {
        let values = random(&mut rng, period);
        let poly = encoder.encode_periodic(&values, 2, scale).unwrap().poly().clone().into_coeff();
        let repeated: Vec<Complex64> = values.iter().copied().cycle().take(256).collect();
        assert!(distance(&repeated, &encoder.decode(&poly, scale)) < 2f64.powi(-33));
        let whole = encoder.encode(&repeated, 2, scale).unwrap().poly().clone().into_coeff();
        assert!(whole.data() == poly.data(), "the same polynomial");
    }
    let values = random(&mut rng, 100);
    let poly = encoder.encode(&values, 2, scale).unwrap().poly().clone().into_coeff();
    let decoded = encoder.decode(&poly, scale);
    assert!(decoded[100..].iter().all(|z| z.norm() < 2f64.powi(-33)));
    assert!(matches!(
        encoder.encode_periodic(&values, 2, scale),
        Err(CkksError::NotPeriodic { given: 100, slots: 256 })
    ));
}

#[test]
fn special_primes_carry_the_same_integers() {
    let params = CkksParams::insecure_test(6, 2).unwrap();
    let encoder = Encoder::new(&params);
    let mut rng = SecretRng::insecure_from_seed(6);
    let values = random(&mut rng, 32);
    let scale = Scale::from_bits(40);
    let ids = params.rlwe().extended_ids_with(3, 2);
    let integers = encoder.integers(&values, scale).unwrap();
    let over = encoder.residues(&integers, &ids);
    let plain = encoder.encode(&values, 3, scale).unwrap();
    assert!(over.keep_limbs(&[0, 1, 2]) == *plain.poly());
    let special = over.keep_limbs(&ids[3..5]).into_coeff();
    assert!(distance(&values, &encoder.decode(&special, scale)) < 2f64.powi(-34));
}

#[test]
fn constants_are_what_encoding_them_gives() {
    let params = CkksParams::insecure_test(6, 2).unwrap();
    let encoder = Encoder::new(&params);
    for (value, bits) in [((0.3, -1.7), 40), ((-2.0, 0.0), 80), ((0.0, 5.5), 100)] {
        let value = Complex64::new(value.0, value.1);
        let scale = Scale::from_bits(bits);
        let plain = encoder.encode_periodic(&[value], 5, scale).unwrap();
        let constant = Constant::new(value, scale).unwrap();
        for (id, limb) in plain.poly().limbs() {
            let residue = constant.residue(&params, id);
            let (first, second) = limb.split_at(32);
            assert!(first.iter().all(|&r| r == residue.first));
            assert!(second.iter().all(|&r| r == residue.second));
        }
    }
}

#[test]
fn refusals_name_what_is_wrong() {
    let params = CkksParams::insecure_test(6, 2).unwrap();
    let encoder = Encoder::new(&params);
    let one = Complex64::new(1.0, 0.0);
    let scale = Scale::from_bits(40);
    assert!(matches!(encoder.encode(&[one; 33], 1, scale), Err(CkksError::TooManyValues { given: 33, slots: 32 })));
    assert!(matches!(encoder.encode(&[one], 99, scale), Err(CkksError::LimbCount { limbs: 99, .. })));
    assert!(matches!(
        encoder.encode_periodic(&[one], 1, Scale::from_bits(50)),
        Err(CkksError::ScaleTooLarge { limbs: 1, .. })
    ));
    assert!(matches!(encoder.encode(&[one * f64::NAN], 1, scale), Err(CkksError::ValueOutOfRange { .. })));
}
