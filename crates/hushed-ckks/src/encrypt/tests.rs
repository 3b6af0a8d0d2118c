use super::*;
use crate::keys::KeySpecs;
use crate::testing::{Fixture, bits};

fn fixture() -> Fixture {
    let params = CkksParams::insecure_test(10, 3).unwrap();
    Fixture::new(&params, &KeySpecs::new(), 1)
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
    // Values are multiples of the unit and within one unit of the message.
    for (found, x) in opened.values.iter().zip(&x) {
        for (found, x) in [(found.re, x.re), (found.im, x.im)] {
            assert_eq!((found / unit).fract(), 0.0);
            assert!((found - x).abs() <= unit);
        }
    }
    // The error is below half a unit, so rounding mostly agrees with rounding the message.
    let mut exact = x.clone();
    round_to(&mut exact, kept);
    let same = exact.iter().zip(&opened.values).filter(|(x, y)| x == y);
    assert!(same.count() * 2 > exact.len());
    let raw = f.decryptor.open(&ct, Opening::Raw).unwrap();
    assert!(raw.bits.is_none() && raw.values != opened.values);
    let coarse = f.decryptor.open(&ct, Opening::Bits(3)).unwrap();
    assert!(coarse.values.iter().all(|z| (z.re * 8.0).fract() == 0.0));
    // Asking for more bits than are certified gives no more: only what is named raw is raw.
    let fine = f.decryptor.open(&ct, Opening::Bits(1000)).unwrap();
    assert_eq!(fine.bits, Some(kept));
    assert!(fine.values == opened.values);
    // If nothing is known about the error, the bits of the parameter set apply.
    let blind = ct.with_noise(Noise::UNKNOWN);
    let opened = f.decryptor.open(&blind, Opening::Certified).unwrap();
    assert_eq!(opened.bits, Some(14));
    let fine = f.decryptor.open(&blind, Opening::Bits(20)).unwrap();
    assert_eq!(fine.bits, Some(14));
}

#[test]
fn flooding_costs_what_it_says_and_hides_the_error() {
    let mut f = fixture();
    let x = f.random();
    let ct = f.encrypt(&x, 5);
    let raw = f.decryptor.decrypt_raw(&ct).unwrap();
    let (_, mean) = bits(&raw, &x);
    let flooded = Opening::Flooded { security: 20, decryptions: 16 };
    let first = f.decryptor.open(&ct, flooded).unwrap();
    assert!((first.flooding_bits - 19.4).abs() < 0.1);
    let (least, after) = bits(&first.values, &x);
    assert!((mean - after - first.flooding_bits).abs() < 1.5, "{mean} {after}");
    assert!(least > f64::from(first.bits.unwrap()) - 3.0);
    // Fresh noise each time.
    let second = f.decryptor.open(&ct, flooded).unwrap();
    assert!(first.values != second.values);
    let far = Opening::Flooded { security: 128, decryptions: 1 << 20 };
    assert!(matches!(f.decryptor.open(&ct, far), Err(CkksError::FloodingTooLarge { .. })));
    let blind = ct.with_noise(Noise::UNKNOWN);
    assert!(matches!(f.decryptor.open(&blind, flooded), Err(CkksError::UnknownError { .. })));
}

/// The divergence between noise alone and noise plus error is |e|²/(2σ²), over all coefficients of the error, and σ² is
/// 12·τ·2^s·|e|².
#[test]
fn the_noise_is_as_wide_as_the_whole_error_asks_for() {
    let mut f = fixture();
    let x = f.random();
    let plain = f.encoder.encode(&x, 2, f.params.default_scale()).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    let message = plain.poly().clone().into_coeff();
    let phase = f.decryptor.phase(&ct, DECRYPTION_LIMIT).unwrap();
    let mut error = phase.expose().clone();
    error.sub_assign(&message);
    let q = f.params.prime(0);
    let centred = error.limb(0).iter().map(|&r| {
        let below = r as f64;
        if 2 * r > q { below - q as f64 } else { below }
    });
    let norm: f64 = centred.map(|e| e * e).sum();
    let (security, decryptions) = (20, 16);
    let flood = Flood::new(&f.params, &ct, security, decryptions).unwrap();
    let noise = flood.sample(&f.params).unwrap();
    let variance = noise.iter().map(|&x| (x as f64).powi(2)).sum::<f64>() / noise.len() as f64;
    let needed = 12.0 * decryptions as f64 * 2f64.powi(20) * norm;
    assert!(variance > needed, "{variance:e} {needed:e}");
    // And not much wider: for a fresh error the bound is √2 of the norm plus the rounding, and the last weight is
    // rounded up.
    assert!(variance < 4.0 * needed, "{variance:e} {needed:e}");
}

/// The trivial zero ciphertext has no error at all.
#[test]
fn an_exact_zero_is_opened_like_any_other() {
    let f = fixture();
    let zero = Ciphertext::zero(&f.params, 2, f.params.default_scale()).unwrap();
    let zero = zero.with_noise(Noise::exact(0.0));
    let flooded = Opening::Flooded { security: 20, decryptions: 16 };
    for opening in [Opening::Certified, flooded] {
        let opened = f.decryptor.open(&zero, opening).unwrap();
        assert_eq!(opened.bits, Some(200));
        assert!(opened.values.iter().all(|z| z.norm() < 1e-6));
    }
    let mut large = [Complex64::new(2f64.powi(100), -3.0)];
    round_to(&mut large, whole_bits(f64::INFINITY));
    assert_eq!(large, [Complex64::new(2f64.powi(100), -3.0)]);
}

/// Why rounding and flooding are needed (Li and Micciancio): raw slots of a ciphertext with a known message give the
/// error exactly, and with it a linear equation in the key; rounded ones do not.
#[test]
fn the_error_can_be_read_off_a_raw_opening_and_off_no_other() {
    let mut f = fixture();
    let x = f.random();
    let scale = f.params.default_scale();
    let plain = f.encoder.encode(&x, 2, scale).unwrap();
    let ct = f.encryptor.encrypt(&plain, &mut f.rng).unwrap();
    let message = plain.poly().clone().into_coeff();
    // The phase error, computed with the secret: what an attacker wants.
    let phase = f.decryptor.phase(&ct, DECRYPTION_LIMIT).unwrap();
    let mut error = phase.expose().clone();
    error.sub_assign(&message);
    let recovered = |values: &[Complex64]| {
        let again = f.encoder.encode(values, 2, scale).unwrap();
        let mut found = again.poly().clone().into_coeff();
        found.sub_assign(&message);
        found == error
    };
    assert!(recovered(&f.decryptor.decrypt_raw(&ct).unwrap()));
    assert!(!recovered(&f.decryptor.decrypt(&ct).unwrap()));
    let flooded = Opening::Flooded { security: 20, decryptions: 16 };
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
    assert!(matches!(decryptor.decrypt_raw(&ct), Err(CkksError::DecryptionsSpent { limit: 2 })));
    assert_eq!(decryptor.opened(), 2);
    // The key keeps the count: another decryptor does not start afresh.
    let again = Decryptor::with_limit(&f.encoder, &f.key, 2).unwrap();
    assert!(matches!(again.decrypt(&ct), Err(CkksError::DecryptionsSpent { limit: 2 })));
    // Nor does flooding allow more openings than its noise was made for.
    let flooded = |decryptions| Opening::Flooded { security: 20, decryptions };
    assert!(matches!(f.decryptor.open(&ct, flooded(2)), Err(CkksError::FloodingSpent { decryptions: 2 })));
    f.decryptor.open(&ct, flooded(3)).unwrap();
    assert!(f.decryptor.open(&ct, flooded(3)).is_err());
    assert_eq!(f.decryptor.opened(), 3);
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
fn fork_refuses_an_opening_in_the_child_and_counts_none() {
    use hushed_math::MathError;
    use hushed_math::process::{Child, in_child};
    use hushed_rlwe::RlweError;
    let mut f = fixture();
    let x = f.random();
    let ct = f.encrypt(&x, 3);
    let plain = f.encoder.encode(&x, 3, f.params.default_scale()).unwrap();
    let flooded = Opening::Flooded { security: 20, decryptions: 4 };
    let seen = in_child(|| {
        let forked =
            |error: Option<CkksError>| matches!(error, Some(CkksError::Rlwe(RlweError::Math(MathError::Forked))));
        for opening in [Opening::Certified, Opening::Raw, flooded] {
            if !forked(f.decryptor.open(&ct, opening).err()) {
                return 1;
            }
        }
        if !forked(f.encryptor.encrypt(&plain, &mut f.rng).err()) {
            return 2;
        }
        u8::from(f.decryptor.opened() != 0)
    });
    assert_eq!(seen, Child::Code(0));
    assert!(f.decryptor.open(&ct, flooded).is_ok());
    assert_eq!(f.decryptor.opened(), 1);
}
