//! The artefact of evaluation keys: round trips, interruptions, and what a hostile or broken sender can do.

use super::*;
use crate::codec::HEADER_BYTES;
use crate::error::{CodecError, RlweError};
use crate::fuzz;
use crate::hybrid::{EvalKeys, EvalKeysReader, KeySpecs, KeyUse, reseal};
use crate::keys::SecretKey;

fn made(params: &Arc<RlweParams>, specs: &KeySpecs) -> EvalKeys {
    let mut rng = rng(1);
    let sk = SecretKey::generate(params, &mut rng);
    EvalKeys::generate(&sk, specs, &mut rng).unwrap()
}

fn refused(params: &Arc<RlweParams>, specs: &KeySpecs, bytes: &[u8]) -> RlweError {
    EvalKeys::from_bytes(params, specs, bytes).err().unwrap()
}

#[test]
fn keys_are_read_as_they_were_written() {
    let params = tiny();
    let mut specs = KeySpecs::new();
    specs.relin(3, 1).relin(1, 1).galois(5, 3, 1).galois(511, 2, 1).encapsulation(3, 1);
    let keys = made(&params, &specs);
    let bytes = keys.to_bytes().unwrap();
    assert_eq!(specs.artefact_bytes(&params), Ok(bytes.len()));
    assert_eq!(KeySpecs::offered(&params, &bytes).as_ref(), Ok(&specs));
    let read = EvalKeys::from_bytes(&params, &specs, &bytes).unwrap();
    assert_eq!(read.to_bytes().unwrap(), bytes);
    // 50 bits per residue: the keys on disk are 50/64 of those in memory.
    let overhead = HEADER_BYTES + 4 + 8 * specs.len() + 32 * (specs.len() + 2) + 16 * specs.len();
    assert_eq!(bytes.len(), keys.memory_bytes() * 50 / 64 + overhead);
    // Equal bytes mean equal masked halves; a product shows that the uniform ones are expanded alike.
    let a = RnsPoly::uniform(
        params.basis(),
        &[0, 1, 2],
        &mut hushed_math::rng::PublicStream::new(&hushed_math::rng::PublicSeed([1; 16]), 1),
    );
    let switched = |keys: &EvalKeys| crate::hybrid::switch(&a, keys.relin(3).unwrap()).unwrap();
    assert!(switched(&read) == switched(&keys));
    let empty = KeySpecs::new();
    let none = made(&params, &empty).to_bytes().unwrap();
    assert_eq!(EvalKeys::from_bytes(&params, &empty, &none).unwrap().iter().len(), 0);
}

/// Seeded keys have these bytes on every machine, with every kernel and number of threads: what is stored today can be
/// read tomorrow.
#[test]
fn seeded_keys_are_known() {
    let keys = made(&tiny(), &fuzz::specs());
    let bytes = keys.to_bytes().unwrap();
    let name: String = bytes[bytes.len() - 32..].iter().map(|byte| format!("{byte:02x}")).collect();
    assert_eq!(name, "d841163dc84f88b8d7eb1cf1e7cf344952df21b5552a573fffa272a27bc1923c");
}

#[test]
fn reading_goes_on_after_an_interruption() {
    let params = minute();
    let specs = fuzz::specs();
    let keys = made(&params, &specs);
    let bytes = keys.to_bytes().unwrap();
    let chunks: Vec<_> = keys.chunks().unwrap().collect();
    assert_eq!(chunks.len(), specs.len() + 2);
    for cut in 0..bytes.len() {
        let mut reader = EvalKeysReader::new(&params, &specs).unwrap();
        let used = reader.push_all(&bytes[..cut]).unwrap();
        assert_eq!(reader.offset(), used as u64);
        assert_eq!(reader.complete().len() + reader.missing().count(), specs.len());
        assert!(reader.content_hash().is_none());
        // A damaged chunk is refused and changes nothing.
        let mut damaged = bytes[used..used + reader.next_bytes().unwrap()].to_vec();
        *damaged.last_mut().unwrap() ^= 1;
        assert!(reader.push(&damaged).is_err());
        assert_eq!(reader.offset(), used as u64);
        assert_eq!(reader.push_all(&bytes[used..]), Ok(bytes.len() - used));
        assert_eq!(reader.content_hash().unwrap()[..], bytes[bytes.len() - 32..]);
        assert_eq!(reader.finish().unwrap().to_bytes().unwrap(), bytes);
    }
}

#[test]
fn a_reader_that_only_checks_refuses_the_same_and_keeps_nothing() {
    let (params, specs) = (minute(), fuzz::specs());
    let bytes = made(&params, &specs).to_bytes().unwrap();
    let mut reader = EvalKeysReader::checking(&params, &specs).unwrap();
    assert_eq!(reader.push_all(&bytes), Ok(bytes.len()));
    assert_eq!(reader.complete().len(), specs.len());
    assert_eq!(reader.content_hash().unwrap()[..], bytes[bytes.len() - 32..]);
    assert!(matches!(reader.finish().err(), Some(RlweError::Codec(CodecError::Keys))));
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x11;
        let mut reader = EvalKeysReader::checking(&params, &specs).unwrap();
        assert_eq!(reader.push_all(&other).err(), Some(refused(&params, &specs, &other)), "{at}");
    }
}

#[test]
fn every_other_length_is_refused() {
    let (params, specs) = (minute(), fuzz::specs());
    let bytes = made(&params, &specs).to_bytes().unwrap();
    for length in 0..bytes.len() {
        let error = refused(&params, &specs, &bytes[..length]);
        let expected = matches!(error, RlweError::Codec(CodecError::Truncated { .. } | CodecError::Length { .. }));
        assert!(expected, "{length}: {error}");
    }
    let mut longer = bytes.clone();
    longer.push(0);
    let given = longer.len();
    let expected = bytes.len();
    let length = CodecError::Length { given, expected };
    assert_eq!(refused(&params, &specs, &longer), length.into());
}

#[test]
fn every_flipped_byte_is_refused() {
    let (params, specs) = (minute(), fuzz::specs());
    let bytes = made(&params, &specs).to_bytes().unwrap();
    for at in 0..bytes.len() {
        let mut other = bytes.clone();
        other[at] ^= 0x11;
        let error = refused(&params, &specs, &other);
        let codec = |wanted: CodecError| assert_eq!(error, wanted.into(), "{at}");
        match at {
            0..4 => codec(CodecError::Magic),
            8..24 => codec(CodecError::Parameters),
            at if at >= HEADER_BYTES + 4 + 8 * specs.len() => {
                assert!(matches!(error, RlweError::Codec(CodecError::Damaged { .. })), "{at}");
            }
            _ => {}
        }
    }
}

#[test]
fn a_sealed_residue_out_of_range_is_refused() {
    let (params, specs) = (minute(), fuzz::specs());
    let bytes = made(&params, &specs).to_bytes().unwrap();
    // The first limb of the first key, after the first chunk and a seed.
    let at = HEADER_BYTES + 4 + 8 * specs.len() + 32 + 16;
    let mut other = bytes.clone();
    other[at..at + 7].fill(0xff);
    assert_eq!(refused(&params, &specs, &other), CodecError::Damaged { chunk: 1 }.into());
    reseal(&params, &specs, &mut other).unwrap();
    assert_eq!(refused(&params, &specs, &other), CodecError::Residue { limb: 0 }.into());
    let mut same = bytes.clone();
    reseal(&params, &specs, &mut same).unwrap();
    assert_eq!(same, bytes);
}

#[test]
fn other_keys_and_parameters_are_refused_by_name() {
    let (params, specs) = (minute(), fuzz::specs());
    let bytes = made(&params, &specs).to_bytes().unwrap();
    let missing = |key, limbs, longest| RlweError::MissingKey { key, limbs, longest };
    let mut wanted = specs.clone();
    wanted.galois(3, 1, 1);
    assert_eq!(refused(&params, &wanted, &bytes), missing(KeyUse::Galois(3), 1, 0));
    let mut wanted = specs.clone();
    wanted.galois(5, 2, 1);
    assert_eq!(refused(&params, &wanted, &bytes), missing(KeyUse::Galois(5), 2, 1));
    assert!(specs.check_among(&wanted).is_ok());
    let mut fewer = KeySpecs::new();
    fewer.relin(2, 1);
    assert_eq!(refused(&params, &fewer, &bytes), CodecError::Keys.into());
    let mut literal = params.literal().clone();
    literal.q.swap(0, 1);
    let swapped = RlweParams::insecure_for_tests(literal).unwrap();
    assert_eq!(refused(&swapped, &specs, &bytes), CodecError::Parameters.into());
    // Absurd counts allocate nothing.
    for count in [4097, u32::MAX] {
        let mut other = bytes.clone();
        other[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&count.to_le_bytes());
        assert_eq!(KeySpecs::offered(&params, &other), Err(CodecError::Keys.into()));
    }
}
