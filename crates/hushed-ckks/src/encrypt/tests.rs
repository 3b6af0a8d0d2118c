use super::*;
use crate::keys::EvalKeyPlan;
use crate::testing::{Fixture, bits};

fn fixture() -> Fixture {
    let params = CkksParams::insecure_test(10, 3).unwrap();
    Fixture::new(&params, &EvalKeyPlan::new(), 1)
}

#[test]
fn decryption_rounds_to_what_is_certified_unless_told_otherwise() {
    let mut f = fixture();
    let x = f.random();
    let ct = f.encrypt(&x, 5);
    let opened = f.decryptor.open(&ct, Opening::Certified).unwrap();
    let kept = opened.bits.unwrap();
    assert!((20..40).contains(&kept), "{kept}");
    let unit = 2f64.powi(-kept);
    // Values are multiples of the unit, and within one of the message.
    for (found, x) in opened.values.iter().zip(&x) {
        for (found, x) in [(found.re, x.re), (found.im, x.im)] {
            assert_eq!((found / unit).fract(), 0.0);
            assert!((found - x).abs() <= unit);
        }
    }
    // The error is below half a unit, so rounding mostly gives what rounding the message gives.
    let mut exact = x.clone();
    round_to(&mut exact, kept);
    let same = exact.iter().zip(&opened.values).filter(|(x, y)| x == y);
    assert!(same.count() * 2 > exact.len());
    let raw = f.decryptor.open(&ct, Opening::Raw).unwrap();
    assert!(raw.bits.is_none() && raw.values != opened.values);
    let coarse = f.decryptor.open(&ct, Opening::Bits(3)).unwrap();
    assert!(coarse.values.iter().all(|z| (z.re * 8.0).fract() == 0.0));
    // Nothing known of the error: the bits of the parameter set.
    let blind = ct.with_noise(Noise::UNKNOWN);
    let opened = f.decryptor.open(&blind, Opening::Certified).unwrap();
    assert_eq!(opened.bits, Some(14));
}

#[test]
fn flooding_costs_what_it_says_and_hides_the_error() {
    let mut f = fixture();
    let x = f.random();
    let ct = f.encrypt(&x, 5);
    let raw = f.decryptor.decrypt_raw(&ct).unwrap();
    let (_, mean) = bits(&raw, &x);
    let flooded = Opening::Flooded {
        security: 20,
        decryptions: 1,
    };
    let first = f.decryptor.open(&ct, flooded).unwrap();
    assert!((first.flooding_bits - 11.8).abs() < 0.1);
    let (least, after) = bits(&first.values, &x);
    assert!(
        (mean - after - first.flooding_bits).abs() < 1.5,
        "{mean} {after}"
    );
    assert!(least > f64::from(first.bits.unwrap()) - 3.0);
    // Fresh noise each time.
    let second = f.decryptor.open(&ct, flooded).unwrap();
    assert!(first.values != second.values);
    let far = Opening::Flooded {
        security: 128,
        decryptions: 1 << 20,
    };
    assert!(matches!(
        f.decryptor.open(&ct, far),
        Err(CkksError::FloodingTooLarge { .. })
    ));
    let blind = ct.with_noise(Noise::UNKNOWN);
    assert!(matches!(
        f.decryptor.open(&blind, flooded),
        Err(CkksError::UnknownError { .. })
    ));
}

/// What rounding and flooding are for (Li and Micciancio): raw slots of a ciphertext whose message is known give the error
/// exactly, and with it a linear equation of the key; rounded ones do not.
#[test]
fn the_error_can_be_read_off_a_raw_opening_and_off_no_other() {
    let mut f = fixture();
    let x = f.random();
    let scale = f.params.default_scale();
    let plain = f.encoder.encode(&x, 2, scale).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    let message = plain.poly().clone().into_coeff();
    // The error of the phase, from the secret: what an attacker wants.
    let phase = f.decryptor.phase(&ct).unwrap();
    let mut error = phase.expose().clone();
    error.sub_assign(&message);
    let recovered = |values: &[Complex64]| {
        let again = f.encoder.encode(values, 2, scale).unwrap();
        let mut found = again.into_poly().into_coeff();
        found.sub_assign(&message);
        found == error
    };
    assert!(recovered(&f.decryptor.decrypt_raw(&ct).unwrap()));
    assert!(!recovered(&f.decryptor.decrypt(&ct).unwrap()));
    let flooded = Opening::Flooded {
        security: 20,
        decryptions: 1,
    };
    assert!(!recovered(&f.decryptor.open(&ct, flooded).unwrap().values));
}

#[test]
fn decryptions_are_counted_and_end() {
    let mut f = fixture();
    let x = f.random();
    let ct = f.encrypt(&x, 2);
    let decryptor = Decryptor::with_limit(&f.encoder, &f.key, 2).unwrap();
    for _ in 0..2 {
        decryptor.decrypt(&ct).unwrap();
    }
    assert!(matches!(
        decryptor.decrypt_raw(&ct),
        Err(CkksError::DecryptionsSpent { limit: 2 })
    ));
    assert_eq!(decryptor.opened(), 2);
}

#[test]
fn unrescaled_and_large_messages_are_decrypted_under_as_many_primes_as_they_need() {
    let mut f = fixture();
    let x: Vec<Complex64> = f.random().iter().map(|x| x * 1e6).collect();
    let ct = f.encrypt(&x, 5);
    let (least, _) = f.bits(&ct, &x);
    assert!(least > 24.0);
    let scale = f.params.default_scale();
    let wide = f.evaluator.mul_scalar(&ct, 2.0.into(), scale).unwrap();
    let twice: Vec<Complex64> = x.iter().map(|x| x * 2.0).collect();
    let (least, _) = f.bits(&wide, &twice);
    assert!(least > 23.0, "{least}");
}

#[test]
fn coefficients_are_encrypted_as_they_are() {
    let mut f = fixture();
    let values: Vec<f64> = (0..f.params.n()).map(|k| (k as f64).sin()).collect();
    let scale = f.params.default_scale();
    let plain = f.encoder.encode_coefficients(&values, 2, scale).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    let found = f.decryptor.decrypt_coefficients(&ct).unwrap();
    let largest = found
        .iter()
        .zip(&values)
        .map(|(x, y)| (x - y).abs())
        .fold(0.0, f64::max);
    assert!(largest < 22.0 / scale.value(), "{largest:e}");
}
