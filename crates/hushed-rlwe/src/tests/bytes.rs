//! Key sets and ciphertext lists: round trips, and what a hostile or broken sender can do.

use super::*;
use crate::SeededCiphertext;
use crate::codec::HEADER_BYTES;
use crate::error::{CodecError, RlweError};
use crate::keys::{KeySet, SecretKey};

type Read<'a> = dyn Fn(&[u8]) -> Result<(), RlweError> + 'a;

/// A reader and valid input for it.
struct Case<'a> {
    bytes: Vec<u8>,
    read: Box<Read<'a>>,
}

fn cases(params: &Arc<RlweParams>) -> [Case<'_>; 2] {
    let mut rng = rng(1);
    let sk = SecretKey::generate(params, &mut rng);
    let set = KeySet::generate(&sk, &[5, 17], params.q_len(), &mut rng).unwrap();
    let list: Vec<SeededCiphertext> = (0..3)
        .map(|_| RnsPoly::zero(params.basis(), &[0, 1]))
        .map(|zero| sk.encrypt_seeded(zero, &mut rng).unwrap())
        .collect();
    let (set_bytes, list_bytes) = (set.to_bytes(), SeededCiphertext::list_to_bytes(params, 2, &list).unwrap());
    [
        Case {
            bytes: set_bytes,
            read: Box::new(move |bytes| KeySet::from_bytes(params, &[17, 5], params.q_len(), bytes).map(drop)),
        },
        Case {
            bytes: list_bytes,
            read: Box::new(move |bytes| SeededCiphertext::list_from_bytes(params, 2, 3, bytes).map(drop)),
        },
    ]
}

#[test]
fn round_trips() {
    let params = tiny();
    let mut rng = rng(2);
    let sk = SecretKey::generate(&params, &mut rng);
    let set = KeySet::generate(&sk, &[5, 129], params.q_len(), &mut rng).unwrap();
    let bytes = set.to_bytes();
    assert_eq!(bytes.len(), KeySet::bytes(&params, 2, params.q_len()));
    let read = KeySet::from_bytes(&params, &[5, 129], params.q_len(), &bytes).unwrap();
    assert_eq!((&read.public.b, &read.public.a), (&set.public.b, &set.public.a));
    assert_eq!(read.galois.elements(), set.galois.elements());
    for ((_, left), (_, right)) in read.galois.iter().zip(set.galois.iter()) {
        for (left, right) in left.digits.iter().zip(&right.digits) {
            assert_eq!((&left.b, &left.a), (&right.b, &right.a));
        }
    }
    assert_eq!(read.to_bytes(), bytes);

    for limbs in 1..=3 {
        let ids = params.ciphertext_ids(limbs);
        let list: Vec<SeededCiphertext> =
            (0..2).map(|_| sk.encrypt_seeded(RnsPoly::zero(params.basis(), &ids), &mut rng).unwrap()).collect();
        let bytes = SeededCiphertext::list_to_bytes(&params, limbs, &list).unwrap();
        // 50 bits per residue and 16 bytes of seed: the byte count that protocols declare.
        assert_eq!(bytes.len(), HEADER_BYTES + 2 * (16 + limbs * 256 * 50 / 8));
        assert_eq!(bytes.len(), SeededCiphertext::list_bytes(&params, limbs, 2));
        let read = SeededCiphertext::list_from_bytes(&params, limbs, 2, &bytes).unwrap();
        for (read, original) in read.into_iter().zip(list) {
            assert_eq!((read.seed, &read.b), (original.seed, &original.b));
            assert_eq!(read.expand().a, original.expand().a);
        }
    }
    let none = SeededCiphertext::list_to_bytes(&params, 2, &[]).unwrap();
    assert!(SeededCiphertext::list_from_bytes(&params, 2, 0, &none).unwrap().is_empty());
}

#[test]
fn every_other_length_is_refused() {
    let params = minute();
    for case in cases(&params) {
        assert!((case.read)(&case.bytes).is_ok());
        for length in (0..case.bytes.len()).chain([case.bytes.len() + 1]) {
            let mut other = case.bytes.clone();
            other.resize(length, 0);
            let refused = (case.read)(&other);
            assert!(matches!(refused, Err(RlweError::Codec(CodecError::Length { .. }))));
        }
    }
}

#[test]
fn flipped_bytes_never_panic_and_headers_are_checked() {
    let params = minute();
    for case in cases(&params) {
        for at in 0..case.bytes.len() {
            for flip in [1, 0x40, 0xff] {
                let mut other = case.bytes.clone();
                other[at] ^= flip;
                let read = (case.read)(&other);
                let expected = match at {
                    0..4 => Some(CodecError::Magic),
                    8..24 => Some(CodecError::Parameters),
                    _ => None,
                };
                match (at, expected) {
                    (_, Some(error)) => assert_eq!(read, Err(error.into())),
                    (0..HEADER_BYTES, None) => assert!(read.is_err(), "{at}"),
                    _ => {}
                }
            }
        }
    }
}

#[test]
fn residues_must_be_reduced() {
    let params = minute();
    for case in cases(&params) {
        let mut other = case.bytes.clone();
        // The first limb after the header and a seed: residues of all ones exceed any prime below 2^50.
        other[HEADER_BYTES + 16..HEADER_BYTES + 16 + 7].fill(0xff);
        assert_eq!((case.read)(&other), Err(CodecError::Residue { limb: 0 }.into()));
    }
}

#[test]
fn other_parameters_kinds_and_shapes_are_refused() {
    let params = minute();
    let [set, list] = cases(&params);
    // Another parameter set with the same sizes.
    let mut literal = params.literal().clone();
    literal.q.swap(0, 1);
    let swapped = RlweParams::insecure_for_tests(literal).unwrap();
    let read = SeededCiphertext::list_from_bytes(&swapped, 2, 3, &list.bytes);
    assert_eq!(read.err(), Some(CodecError::Parameters.into()));
    assert_eq!(
        KeySet::from_bytes(&swapped, &[5, 17], swapped.q_len(), &set.bytes).err(),
        Some(CodecError::Parameters.into())
    );
    // A key set of the same size as an expected list cannot arise; a wrong kind in the header can.
    let mut other = list.bytes.clone();
    other[4] = 1;
    assert_eq!((list.read)(&other), Err(CodecError::Kind { given: 1, expected: 2 }.into()));
    other[6] = 9;
    assert_eq!((list.read)(&other), Err(CodecError::Version { given: 9, expected: 1 }.into()));
    // Counts come from the protocol, and absurd ones cause no overflow.
    for count in [0, 2, 4, usize::MAX] {
        assert!(SeededCiphertext::list_from_bytes(&params, 2, count, &list.bytes).is_err());
    }
    for limbs in [0, 1, 3, usize::MAX] {
        assert!(SeededCiphertext::list_from_bytes(&params, limbs, 3, &list.bytes).is_err());
    }
    let q_len = params.q_len();
    assert!(KeySet::from_bytes(&params, &[5], q_len, &set.bytes).is_err());
    assert!(KeySet::from_bytes(&params, &[4, 5], q_len, &set.bytes).is_err());
}

/// What a client that cheats learns from a response is bounded only because it cannot choose its public key's a: zero
/// or a structured one would leave the a part of a response as the product made it.
#[test]
fn h1_a_public_key_has_no_a_of_its_own_on_the_wire() {
    let params = tiny();
    let mut rng = rng(5);
    let sk = SecretKey::generate(&params, &mut rng);
    let set = KeySet::generate(&sk, &[], params.q_len(), &mut rng).unwrap();
    let mut bytes = set.to_bytes();
    // All that the sender writes beside the header and the seed is zero: a does not notice, and is expanded from the
    // seed.
    let seed = HEADER_BYTES..HEADER_BYTES + crate::codec::SEED_BYTES;
    bytes[seed.end..].fill(0);
    let read = KeySet::from_bytes(&params, &[], params.q_len(), &bytes).unwrap();
    assert_eq!(read.public.a, set.public.a);
    bytes[seed.start] ^= 1;
    let other = KeySet::from_bytes(&params, &[], params.q_len(), &bytes).unwrap();
    assert_ne!(other.public.a, set.public.a);
}
