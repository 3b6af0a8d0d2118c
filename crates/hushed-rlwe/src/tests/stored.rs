//! Keys in files: what is read is what was written, and nothing else is accepted.

use super::*;
use crate::codec::HEADER_BYTES;
use crate::error::{CodecError, RlweError};
use crate::fuzz;
use crate::hybrid::{EvalKeys, EvalKeysWriter, KeyGenerator};
use crate::keys::{PublicKey, SecretKey};

#[test]
fn a_secret_key_is_read_as_it_was_written() {
    let params = tiny();
    let mut rng = rng(1);
    let sk = SecretKey::generate(&params, &mut rng);
    let bytes = sk.to_bytes();
    assert_eq!(bytes.len(), SecretKey::stored_bytes(&params));
    let read = SecretKey::from_bytes(&params, &bytes, 17).unwrap();
    assert!(read.s() == sk.s());
    assert_eq!(read.decryptions(), 17);
    assert_eq!(read.to_bytes(), bytes);
    let public = PublicKey::generate(&sk, &mut rng);
    let bytes = public.to_bytes();
    assert_eq!(bytes.len(), PublicKey::stored_bytes(&params));
    let read = PublicKey::from_bytes(&params, &bytes).unwrap();
    assert!(read.b == public.b && read.a == public.a);
}

#[test]
fn every_flipped_byte_and_every_other_length_of_a_secret_key_is_refused() {
    let params = minute();
    let bytes = SecretKey::generate(&params, &mut rng(2)).to_bytes();
    let refused = |bytes: &[u8]| SecretKey::from_bytes(&params, bytes, 0).err().unwrap();
    for at in 0..bytes.len() {
        let mut other = bytes.to_vec();
        other[at] ^= 0x11;
        let error = refused(&other);
        if at >= HEADER_BYTES {
            assert_eq!(error, CodecError::Damaged { chunk: 0 }.into(), "{at}");
        }
        let length = refused(&bytes[..at]);
        assert!(matches!(length, RlweError::Codec(CodecError::Length { .. })));
    }
    let longer = [&bytes[..], &[0]].concat();
    assert!(matches!(refused(&longer), RlweError::Codec(CodecError::Length { .. })));
    assert!(matches!(
        SecretKey::from_bytes(&fuzz::params(), &SecretKey::generate(&tiny(), &mut rng(3)).to_bytes(), 0).err().unwrap(),
        RlweError::Codec(CodecError::Length { .. })
    ));
}

#[test]
fn keys_written_one_by_one_are_those_made_together() {
    let (params, specs) = (minute(), fuzz::specs());
    let sk = SecretKey::generate(&params, &mut rng(4));
    let together = EvalKeys::generate(&sk, &specs, &mut rng(5)).unwrap();
    let (mut writer, mut bytes) = EvalKeysWriter::new(&params, &specs).unwrap();
    let mut rng = rng(5);
    let generator = KeyGenerator::new(&sk, &specs, &mut rng).unwrap();
    assert_eq!(generator.len(), specs.len());
    let keys: Vec<_> = generator.map(Result::unwrap).collect();
    assert_eq!(writer.push(&keys[1]).err(), Some(CodecError::Keys.into()));
    for key in &keys {
        bytes.extend(writer.push(key).unwrap());
    }
    assert_eq!(writer.push(&keys[0]).err(), Some(CodecError::Keys.into()));
    bytes.extend(writer.finish().unwrap());
    assert_eq!(bytes, together.to_bytes().unwrap());
    let (writer, _) = EvalKeysWriter::new(&params, &specs).unwrap();
    assert_eq!(writer.finish().err(), Some(CodecError::Keys.into()));
}
