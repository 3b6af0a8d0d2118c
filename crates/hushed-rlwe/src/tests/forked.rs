//! A secret key in a process forked from its own.

use std::panic::{AssertUnwindSafe, catch_unwind};

use hushed_math::process::{Child, in_child};
use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, MathError, RnsPoly};

use super::{minute, rng};
use crate::error::RlweError;
use crate::hybrid::{KeyGenerator, KeySpecs};
use crate::keys::{GaloisKeys, KeySet, PublicKey, SecretKey};

fn forked<T>(answer: Result<T, RlweError>) -> bool {
    matches!(answer, Err(RlweError::Math(MathError::Forked)))
}

#[test]
fn fork_ends_a_key_in_the_child() {
    let params = minute();
    let mut ours = rng(8);
    let sk = SecretKey::generate(&params, &mut ours);
    let pk = PublicKey::generate(&sk, &mut ours);
    let bytes = sk.to_bytes();
    let ids = params.ciphertext_ids(params.q_len());
    let zero = || RnsPoly::<Coeff>::zero(params.basis(), &ids);
    let ct = sk.encrypt_seeded(zero(), &mut ours).unwrap().expand();
    let seen = in_child(|| {
        let mut fresh = SecretRng::from_os("child");
        let mut refused = vec![
            forked(sk.check_process()),
            forked(sk.encrypt_seeded(zero(), &mut fresh)),
            forked(sk.decrypt_phase(&ct)),
            forked(sk.phase(zero(), zero())),
            forked(GaloisKeys::generate(&sk, &[], 1, &mut fresh)),
            forked(KeySet::generate(&sk, &[], 1, &mut fresh)),
            forked(KeyGenerator::new(&sk, &KeySpecs::new(), &mut fresh)),
            // The parent's stream, with a key that is public.
            forked(pk.encrypt_zero(&mut ours, 1)),
        ];
        // Nothing else gets at the coefficients either.
        refused.push(catch_unwind(AssertUnwindSafe(|| sk.to_bytes())).is_err());
        refused.push(catch_unwind(AssertUnwindSafe(|| PublicKey::generate(&sk, &mut fresh))).is_err());
        if let Some(wrong) = refused.iter().position(|refused| !refused) {
            return 1 + wrong as u8;
        }
        // A key that the child reads is its own, and public data may be used by anyone.
        let read = SecretKey::from_bytes(&params, &bytes, 0);
        let opened = read.and_then(|key| key.decrypt_phase(&ct));
        u8::from(opened.is_err() || pk.encrypt_zero(&mut fresh, 1).is_err()) * 100
    });
    assert_eq!(seen, Child::Code(0));
    assert!(sk.decrypt_phase(&ct).is_ok() && pk.encrypt_zero(&mut ours, 1).is_ok());
}
