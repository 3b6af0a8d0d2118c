//! Flooding against an attacker who chooses the circuit: the error of a known message, read off one decryption, is a
//! linear equation in the key (Li and Micciancio, EUROCRYPT 2021). Doubling k times multiplies the error by 2^k, but an
//! estimate for independent errors by only √2^k.

use hushed_math::{Eval, RnsPoly};

use super::*;
use crate::keys::KeySpecs;
use crate::testing::Fixture;

/// A fresh encryption of zero at the scale 2^`log_scale`.
fn zero(f: &mut Fixture, log_scale: i32) -> Ciphertext {
    let scale = Scale::new(2f64.powi(log_scale)).unwrap();
    let plain = f.encoder.encode(&[], f.params.fresh_limbs(), scale);
    f.encryptor.encrypt(&plain.unwrap(), &mut f.rng).unwrap()
}

/// ct ← 2^times·ct, by additions.
fn double(f: &Fixture, ct: &mut Ciphertext, times: usize) {
    for _ in 0..times {
        let same = ct.clone();
        f.evaluator.add_assign(ct, &same).unwrap();
    }
}

/// The number of key coefficients that follow from slots that should be 2^`log_unit` times the error of `fresh`.
fn recovered(f: &Fixture, fresh: &Ciphertext, slots: &[Complex64], log_unit: i32) -> usize {
    let scale = Scale::new(2f64.powi(-log_unit)).unwrap();
    // Too large for any rounding to be the error, so nothing is found.
    let Ok(error) = f.encoder.encode(slots, 1, scale) else {
        return 0;
    };
    let q = f.params.rlwe().basis().modulus(0);
    // e = b + a·s.
    let mut found = RnsPoly::<Eval>::zero(f.params.rlwe().basis(), &[0]);
    let parts = fresh.b().limb(0).iter().zip(fresh.a().limb(0));
    let errors = error.poly().limb(0).iter();
    for ((found, (&b, &a)), &e) in found.limb_mut(0).iter_mut().zip(parts).zip(errors) {
        *found = q.mul(q.sub(e, b), q.pow(a, q.value() - 2));
    }
    // The key itself is the phase of (0, 1).
    let mut one = RnsPoly::<Eval>::zero(f.params.rlwe().basis(), &[0]);
    let b = one.clone();
    one.limb_mut(0).fill(1);
    let key = f.key.decrypt_phase(&hushed_rlwe::Ciphertext { b, a: one });
    let key = key.unwrap();
    let found = found.into_coeff();
    let both = key.limb(0).iter().zip(found.limb(0));
    both.filter(|(s, found)| s == found).count()
}

/// What the attack finds in a flooded opening; `None` if the opening is refused because of its error.
fn flooded(f: &Fixture, ct: &Ciphertext, fresh: &Ciphertext, security: u32, log_unit: i32) -> Option<usize> {
    let opening = Opening::Flooded { security, decryptions: f.decryptor.opened() + 1 };
    match f.decryptor.open(ct, opening) {
        Ok(opened) => Some(recovered(f, fresh, &opened.values, log_unit)),
        Err(CkksError::FloodingTooLarge { .. } | CkksError::ErrorOutgrown { .. }) => None,
        Err(other) => panic!("{other}"),
    }
}

/// On a 128-bit parameter set: 92 doublings at scale 2^100, one rescale, one opening at 30 bits. It used to give all
/// 32,768 coefficients.
#[test]
fn c1_one_flooded_opening_of_a_correlated_sum_does_not_give_the_key() {
    let params = CkksParams::n15_shallow().unwrap();
    let mut f = Fixture::new(&params, &KeySpecs::new(), 1);
    let fresh = zero(&mut f, 100);
    let mut ct = fresh.clone();
    double(&f, &mut ct, 92);
    ct = f.evaluator.rescale(&ct).unwrap();
    assert_eq!(flooded(&f, &ct, &fresh, 30, -8).unwrap_or(0), 0);
    // The attack is real: without noise it finds the key.
    let raw = f.decryptor.decrypt_raw(&ct).unwrap();
    assert_eq!(recovered(&f, &fresh, &raw, -8), params.n());
}

/// The same where the opening is not refused, so that only the noise hides the key.
#[test]
fn c1_what_is_opened_of_a_correlated_sum_is_hidden() {
    let params = CkksParams::insecure_shallow(10, 6).unwrap();
    let mut opened = 0;
    for (doublings, security) in [(56, 20), (60, 20), (66, 20), (70, 20), (92, 30)] {
        let mut f = Fixture::new(&params, &KeySpecs::new(), 2);
        let fresh = zero(&mut f, 140);
        let mut ct = fresh.clone();
        double(&f, &mut ct, doublings);
        ct = f.evaluator.rescale(&ct).unwrap();
        let unit = doublings as i32 - 140;
        if let Some(found) = flooded(&f, &ct, &fresh, security, unit) {
            opened += 1;
            assert_eq!(found, 0, "{doublings} doublings, {security} bits");
        }
        let raw = f.decryptor.decrypt_raw(&ct).unwrap();
        assert_eq!(recovered(&f, &fresh, &raw, unit), params.n());
    }
    assert!(opened >= 3, "{opened}");
}

/// Products with one and rotations back and forth leave the error in place: they hide no more than sums do.
#[test]
fn c1_products_and_rotations_of_a_correlated_sum_do_not_give_the_key() {
    let params = CkksParams::insecure_shallow(10, 8).unwrap();
    let limbs = params.fresh_limbs();
    let specs = params.key_specs(limbs, true, &[3, -3], true).unwrap();
    for (before, after, security, opens) in [(40, 20, 20, true), (46, 46, 30, false)] {
        let mut f = Fixture::new(&params, &specs, 3);
        let fresh = zero(&mut f, 140);
        let ones = vec![Complex64::new(1.0, 0.0); params.slots()];
        let scale = Scale::ONE.times_prime(params.prime(limbs - 1));
        let one = f.encoder.encode(&ones, limbs, scale).unwrap();
        let one = f.encryptor.encrypt(&one, &mut f.rng).unwrap();
        let mut ct = fresh.clone();
        double(&f, &mut ct, before);
        let e = &f.evaluator;
        ct = e.mul_rescale(&ct, &one).unwrap();
        ct = e.rotate(&e.rotate(&ct, 3).unwrap(), -3).unwrap();
        ct = e.conjugate(&e.conjugate(&ct).unwrap()).unwrap();
        double(&f, &mut ct, after);
        ct = e.rescale(&ct).unwrap();
        let unit = (before + after) as i32 - 140;
        let found = flooded(&f, &ct, &fresh, security, unit);
        assert_eq!(found, opens.then_some(0));
        let raw = f.decryptor.decrypt_raw(&ct).unwrap();
        assert_eq!(recovered(&f, &fresh, &raw, unit), params.n());
    }
}

/// Without a valid bound flooding is refused: for a message with only an estimate, for ciphertexts from bytes, and for
/// an error that may have reached the modulus.
#[test]
fn c1_without_a_bound_nothing_is_flooded() {
    let params = CkksParams::insecure_shallow(10, 2).unwrap();
    let mut f = Fixture::new(&params, &KeySpecs::new(), 4);
    let x = f.random();
    let ct = f.encrypt(&x, 3);
    let opening = |f: &Fixture, ct: &Ciphertext| {
        let opening = Opening::Flooded { security: 20, decryptions: f.decryptor.opened() + 1 };
        f.decryptor.open(ct, opening).map(|opened| opened.values)
    };
    assert!(opening(&f, &ct).is_ok());
    let noise = ct.noise();
    let unknown = |found| matches!(found, Err(CkksError::UnknownError { .. }));
    let estimate = Noise::new(noise.magnitude(), noise.deviation());
    assert!(unknown(opening(&f, &ct.clone().with_noise(estimate))));
    let (scale, list) = (ct.scale(), std::slice::from_ref(&ct));
    let bytes = Ciphertext::list_to_bytes(&params, 3, list).unwrap();
    let read = |noise| Ciphertext::list_from_bytes(&params, 3, 1, scale, noise, &bytes).unwrap();
    assert!(unknown(opening(&f, &read(estimate)[0])));
    assert!(opening(&f, &read(noise)[0]).is_ok());
    let plain = f.encoder.encode(&x, 3, scale).unwrap();
    let seeded = f.encryptor.encrypt_seeded(&plain, &mut f.rng).unwrap();
    let bytes = SeededCiphertext::list_to_bytes(&params, 3, &[seeded]).unwrap();
    let seeded = SeededCiphertext::list_from_bytes(&params, 3, 1, scale, 1.5, &bytes).unwrap();
    for seeded in seeded {
        assert!(unknown(opening(&f, &seeded.expand())));
    }
    for bad in [f64::NAN, -1.0, f64::INFINITY] {
        assert!(unknown(opening(&f, &ct.clone().with_noise(noise.with_norm(bad)))));
    }
    let mut large = ct.clone();
    double(&f, &mut large, 125);
    assert!(matches!(opening(&f, &large), Err(CkksError::ErrorOutgrown { .. })));
}

/// The default opening, on a 128-bit parameter set at the default scale: sixteen doublings used to be rounded to 19
/// bits of which three were error, and gave all 32,768 coefficients of the key.
#[test]
fn m4_a_certified_opening_of_a_correlated_sum_is_right_and_does_not_give_the_key() {
    let params = CkksParams::n15_shallow().unwrap();
    let mut f = Fixture::new(&params, &KeySpecs::new(), 49);
    let fresh = zero(&mut f, 40);
    let (mut ct, mut done) = (fresh.clone(), 0);
    let mut kept = i32::MAX;
    for doublings in [0, 4, 8, 14, 16, 24] {
        double(&f, &mut ct, doublings - done);
        done = doublings;
        let opened = f.decryptor.open(&ct, Opening::Certified).unwrap();
        let bits = opened.bits.unwrap();
        assert!(bits < kept && bits > -2, "{bits} of {kept}");
        kept = bits;
        // The message is zero: what is left is error, and less than half a unit is rounded away.
        let unit = 2f64.powi(-bits);
        let raw = f.decryptor.decrypt_raw(&ct).unwrap();
        let parts = raw.iter().flat_map(|z| [z.re.abs(), z.im.abs()]);
        let most = parts.fold(0.0, f64::max);
        assert!(most < 0.5 * unit, "{most:e}, unit {unit:e}");
        let log_unit = doublings as i32 - 40;
        assert_eq!(recovered(&f, &fresh, &opened.values, log_unit), 0);
    }
    // The attack is real: on the unrounded slots it finds the key.
    let raw = f.decryptor.decrypt_raw(&ct).unwrap();
    assert_eq!(recovered(&f, &fresh, &raw, 24 - 40), params.n());
}

/// Noise for zero bits of security used to be drawn without a word.
#[test]
fn m4_flooding_has_a_floor() {
    let params = CkksParams::insecure_shallow(10, 2).unwrap();
    let mut f = Fixture::new(&params, &KeySpecs::new(), 4);
    let x = f.random();
    let ct = f.encrypt(&x, 3);
    for security in [0, 1, 10, 19] {
        let opening = Opening::Flooded { security, decryptions: 1 << 10 };
        let refused = f.decryptor.open(&ct, opening).err();
        assert!(matches!(refused, Some(CkksError::FloodingTooWeak { least: 20, .. })), "{security}");
    }
}
