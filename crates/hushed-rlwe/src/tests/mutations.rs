//! The fuzz bodies on good bytes and 10,000 seeded mutations of them.

use super::*;
use crate::SeededCiphertext;
use crate::fuzz;
use crate::hybrid::EvalKeys;
use crate::keys::{KeySet, SecretKey};
use crate::response::{Positions, ResponseFormat};
use crate::truncate::SeededFormat;

fn replay(seed: u64, good: &[u8], body: impl Fn(&[u8])) {
    let mut rng = rng(seed);
    fuzz::replay(|| rng.next_u64(), good, body);
}

#[test]
fn key_sets() {
    let params = fuzz::params();
    let mut rng = rng(1);
    let sk = SecretKey::generate(&params, &mut rng);
    let set = KeySet::generate(&sk, &fuzz::ELEMENTS, params.q_len(), &mut rng).unwrap();
    replay(2, &set.to_bytes(), |data| fuzz::key_set(&params, data));
}

#[test]
fn eval_keys() {
    let params = fuzz::params();
    let mut rng = rng(7);
    let sk = SecretKey::generate(&params, &mut rng);
    let keys = EvalKeys::generate(&sk, &fuzz::specs(), &mut rng).unwrap();
    let good = keys.to_bytes().unwrap();
    assert!(EvalKeys::from_bytes(&params, &fuzz::specs(), &good).is_ok());
    replay(8, &good, |data| fuzz::eval_keys(&params, data));
}

#[test]
fn ciphertext_lists() {
    let params = fuzz::params();
    let mut rng = rng(3);
    let sk = SecretKey::generate(&params, &mut rng);
    let (count, limbs) = fuzz::LIST;
    let zero = || RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
    let list: Vec<_> = (0..count).map(|_| sk.encrypt_seeded(zero(), &mut rng).unwrap()).collect();
    let good = SeededCiphertext::list_to_bytes(&params, limbs, &list).unwrap();
    replay(4, &good, |data| fuzz::ciphertexts(&params, data));
}

#[test]
fn top_bits() {
    let params = fuzz::params();
    let mut rng = rng(13);
    let sk = SecretKey::generate(&params, &mut rng);
    let limbs = fuzz::LIST.1;
    let zero = RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
    let ct = sk.encrypt_seeded(zero, &mut rng).unwrap();
    let format = SeededFormat::new(&params, limbs, 30).unwrap();
    let good = format.write(ct).unwrap();
    assert!(format.read(&good).is_ok());
    replay(14, &good, |data| fuzz::top_bits(&params, data));
}

#[test]
fn responses() {
    let params = fuzz::params();
    let format = ResponseFormat::for_ring(&params, 64, 20).unwrap();
    let used = Positions::new(&params, vec![1, 5, 6]).unwrap();
    let mut good = vec![0; format.bytes(used.len())];
    rng(5).fill_bytes(&mut good);
    replay(6, &good, |data| fuzz::response(&params, data));
}

#[test]
fn flooded_responses() {
    let made = fuzz::flooded_format();
    let mut good = vec![0; made.1.bytes()];
    rng(9).fill_bytes(&mut good);
    // Residues above the modulus are refused; small ones are in range.
    replay(10, &good, |data| fuzz::flooded(&made, data));
    let zeros = vec![0; good.len()];
    let key = SecretKey::generate(&made.0, &mut rng(11));
    assert!(made.1.open(&zeros, &key).is_ok());
    replay(12, &zeros, |data| fuzz::flooded(&made, data));
}
