//! Bootstrapping on small insecure rings with the chain of the large preset.

use super::*;
use crate::testing::Fixture;

fn fixture(seed: u64) -> (Fixture, Bootstrapper) {
    let params = CkksParams::insecure_test(11, 4).unwrap();
    let bootstrapper = Bootstrapper::new(&params, BootstrapLiteral::default()).unwrap();
    let plan = bootstrapper.key_plan().unwrap();
    (Fixture::new(&params, &plan, seed), bootstrapper)
}

#[test]
fn steps_one_to_four_leave_the_message_modulo_one() {
    let (mut f, bootstrapper) = fixture(1);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs());
    let low = bootstrapper
        .slots_to_coeffs
        .apply(&f.evaluator, vec![ct])
        .unwrap();
    assert_eq!(low[0].limbs(), 1);
    // The coefficients are the slots, bit-reversed.
    let coefficients = f.decryptor.decrypt_coefficients(&low[0]).unwrap();
    let (slots, bits) = (f.params.slots(), f.params.slots().trailing_zeros());
    for (k, z) in x.iter().enumerate() {
        let at = hushed_math::ntt::reverse_bits(k, bits);
        assert!((coefficients[at] - z.re).abs() < 2f64.powi(-20));
        assert!((coefficients[at + slots] - z.im).abs() < 2f64.powi(-20));
    }
    let low: Vec<_> = low
        .into_iter()
        .map(|ct| encapsulate(&f.evaluator, ct).unwrap())
        .collect();
    let parts = bootstrapper
        .coeffs_to_slots
        .apply(&f.evaluator, &low)
        .unwrap();
    let reach = 1.0 / bootstrapper.eval_mod.input_scaling();
    for (index, part) in parts[0].iter().enumerate() {
        assert_eq!(part.limbs(), f.params.chain().eval_mod.end);
        let slots = f.decryptor.decrypt_raw(part).unwrap();
        for (found, z) in slots.iter().zip(&x) {
            let u = found.re * reach;
            assert!(u.abs() < 16.0 && (found.im * reach).abs() < 1e-6);
            let message = (u - u.round()) * 1024.0;
            let expected = [z.re, z.im][index];
            assert!(
                (message - expected).abs() < 2f64.powi(-14),
                "{message} {expected}"
            );
        }
    }
}

#[test]
fn messages_come_back_with_fourteen_usable_bits_at_all_slots() {
    let (mut f, bootstrapper) = fixture(2);
    let x = f.random();
    let ct = f.encrypt(&x, f.params.bootstrap_limbs() + 1);
    let out = bootstrapper.bootstrap(&f.evaluator, &ct).unwrap();
    assert_eq!(out.limbs(), f.params.fresh_limbs());
    assert_eq!(out.limbs(), bootstrapper.output_limbs());
    assert!(out.scale().matches(f.params.default_scale()));
    let (least, mean) = f.bits(&out, &x);
    println!("least {least:.2}, mean {mean:.2}");
    assert!(least > 15.0 && mean > 17.0, "least {least}, mean {mean}");
    // And again, from the result.
    let again = f
        .evaluator
        .drop_to(&out, f.params.bootstrap_limbs())
        .unwrap();
    let twice = bootstrapper.bootstrap(&f.evaluator, &again).unwrap();
    let (least, mean) = f.bits(&twice, &x);
    assert!(least > 14.0 && mean > 16.0, "least {least}, mean {mean}");
}
