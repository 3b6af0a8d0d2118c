//! Maps whose diagonals are in a file: the same words as in memory, one block at a time, and damage is reported.

use super::*;
use crate::bootstrap::{BootstrapLiteral, Bootstrapper};
use crate::error::CkksError;
use crate::params::CkksParams;
use crate::testing::Fixture;
use hushed_rlwe::CodecError;
use hushed_rlwe::codec::HEADER_BYTES;
use hushed_rlwe::hybrid::KeySpecs;
use num_complex::Complex64;
use std::io::{Cursor, Read, Seek, SeekFrom};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

const LIMBS: usize = 3;

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_shallow(12, 3).unwrap()
}

/// `count` diagonals `step` apart, four per giant step, in strips of 1,024 of 4,096 values.
fn map(params: &Arc<CkksParams>, step: i64, count: i64, period: usize) -> LinearTransform {
    let mut matrix = Diagonals::new(params.slots()).unwrap();
    for k in 0..count {
        let value = |j: usize| Complex64::new((k + 1) as f64 / count as f64, j as f64 / 4096.0);
        matrix.set(k * step, (0..period).map(value).collect()).unwrap();
    }
    let options = Options { method: Method::Width(4), ..Options::default() };
    LinearTransform::new(params, &matrix, LIMBS, options).unwrap()
}

fn written(map: &LinearTransform) -> Vec<u8> {
    let mut bytes = Vec::new();
    map.write(&mut bytes).unwrap();
    bytes
}

fn fixture(map: &LinearTransform) -> Fixture {
    let mut specs = KeySpecs::new();
    map.add_keys(&mut specs);
    Fixture::new(&map.common.params, &specs, 1)
}

/// A file that records the largest single read and the total.
struct Counting {
    file: Cursor<Vec<u8>>,
    largest: Arc<AtomicUsize>,
    total: Arc<AtomicUsize>,
}

impl Read for Counting {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        self.largest.fetch_max(buffer.len(), Ordering::Relaxed);
        self.total.fetch_add(buffer.len(), Ordering::Relaxed);
        self.file.read(buffer)
    }
}

impl Seek for Counting {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.file.seek(to)
    }
}

#[test]
fn products_from_a_file_are_those_from_memory_and_hold_one_block() {
    let params = params();
    // Rotations with all orbits, with short ones (run by run), and repeating diagonals.
    for (step, count, period) in [(1, 12, 2048), (16, 12, 2048), (16, 12, 32), (1, 8, 16)] {
        let held = map(&params, step, count, period);
        assert_eq!(held.giants.len(), count as usize / 4);
        let bytes = written(&held);
        // Packed and without repetitions, so smaller than the words in memory, which have 64 bits each.
        let digests = 32 * held.giants.len() * 16 * 8 + 1024;
        assert!(bytes.len() < held.plaintext_bytes() * 50 / 64 + digests);
        let (largest, total) = (Arc::default(), Arc::default());
        let file =
            Counting { file: Cursor::new(bytes.clone()), largest: Arc::clone(&largest), total: Arc::clone(&total) };
        let opened = LinearTransform::open(&params, file).unwrap();
        assert_eq!(opened.plaintext_bytes(), 0);
        assert_eq!(opened.rotations(), held.rotations());
        assert_eq!(opened.dim(), held.dim());
        // Four of twelve diagonals, one strip of four (all values if they go run by run), one prime of four or more.
        assert!(opened.block_bytes() <= 4 * 1024 * 8);
        assert!(4 * opened.block_bytes() < held.plaintext_bytes());

        let mut f = fixture(&held);
        let inputs = [0, 1, 2].map(|_| {
            let x = f.random();
            f.encrypt(&x, LIMBS)
        });
        let inputs: Vec<_> = inputs.iter().collect();
        let expected = held.apply_many(&f.evaluator, &inputs).unwrap();
        let head = total.swap(0, Ordering::Relaxed);
        let found = opened.apply_many(&f.evaluator, &inputs).unwrap();
        for (found, expected) in found.iter().zip(&expected) {
            assert!(found.b() == expected.b() && found.a() == expected.a());
            assert_eq!(found.scale(), expected.scale());
            assert_eq!(found.noise(), expected.noise());
        }
        // One block per read, and every block once for all three inputs.
        let largest = largest.load(Ordering::Relaxed);
        assert!(largest <= opened.block_bytes() + 32, "{largest} bytes at a time");
        assert_eq!(total.load(Ordering::Relaxed) + head, bytes.len());
        assert!(matches!(opened.write(&mut Vec::new()), Err(LinTransError::Stored)));
    }
}

#[test]
fn damaged_and_truncated_files_are_named() {
    let params = params();
    let held = map(&params, 1, 8, 2048);
    let good = written(&held);
    let open = |bytes: &[u8]| LinearTransform::open(&params, Cursor::new(bytes.to_vec())).err();
    assert!(open(&good).is_none());
    for length in [0, 7, HEADER_BYTES, HEADER_BYTES + 50, good.len() - 1] {
        let refused = open(&good[..length]);
        assert!(matches!(refused, Some(LinTransError::Codec(CodecError::Truncated { .. }))), "{length}: {refused:?}");
    }
    let longer = [&good[..], &[0]].concat();
    assert!(matches!(open(&longer), Some(LinTransError::Codec(CodecError::Length { .. }))));
    let with = |at: usize, value: u8| {
        let mut bytes = good.clone();
        bytes[at] ^= value;
        bytes
    };
    // Magic, kind, version and parameters in the header.
    for (at, expected) in [
        (0, CodecError::Magic),
        (4, CodecError::Kind { given: 13, expected: 12 }),
        (6, CodecError::Version { given: 0, expected: 1 }),
        (8, CodecError::Parameters),
    ] {
        assert_eq!(open(&with(at, 1)), Some(LinTransError::Codec(expected)));
    }
    let other = CkksParams::insecure_shallow(12, 4).unwrap();
    let refused = LinearTransform::open(&other, Cursor::new(good.clone())).err();
    assert_eq!(refused, Some(LinTransError::Codec(CodecError::Parameters)));
    // Each byte of the shape: any change is refused, without large allocations.
    let numbers = 13 + held.babies.len() + held.products() + 2 * held.giants.len();
    let lists = HEADER_BYTES + 8 * numbers + 32;
    for at in HEADER_BYTES..lists {
        for value in [1, 0x80] {
            assert!(open(&with(at, value)).is_some(), "byte {at}");
        }
    }
    // Damage to a block is reported by the product that reads it, with the block's number.
    let mut f = fixture(&held);
    let x = f.random();
    let ct = f.encrypt(&x, LIMBS);
    let apply = |bytes: Vec<u8>| {
        let map = LinearTransform::open(&params, Cursor::new(bytes)).unwrap();
        map.apply(&f.evaluator, &ct).err()
    };
    assert!(apply(good.clone()).is_none());
    let damaged = |found, expected| {
        matches!(
            found,
            Some(CkksError::LinTrans(LinTransError::Codec(CodecError::Damaged { chunk }))) if chunk == expected
        )
    };
    assert!(damaged(apply(with(lists + 100, 4)), 0));
    assert!(damaged(apply(with(good.len() - 1, 4)), 2 * 4 * limbs_of(&held) - 1));
    // The first two strips of one prime, swapped.
    let size = 4 * 1024 * 50 / 8 + 32;
    let mut swapped = good.clone();
    let (first, second) = swapped[lists..lists + 2 * size].split_at_mut(size);
    first.swap_with_slice(second);
    assert!(
        apply(swapped)
            .is_some_and(|e| matches!(e, CkksError::LinTrans(LinTransError::Codec(CodecError::Damaged { .. }))))
    );
}

/// Including the one for raised ciphertexts.
#[test]
fn the_maps_of_a_bootstrap_go_through_files() {
    let params = CkksParams::insecure_test(10, 2).unwrap();
    let bootstrapper = Bootstrapper::new(&params, BootstrapLiteral::default()).unwrap();
    for held in bootstrapper.maps() {
        let opened = LinearTransform::open(&params, Cursor::new(written(held))).unwrap();
        assert_eq!(opened.gadget(), held.gadget());
        assert_eq!(opened.rotations(), held.rotations());
        assert_eq!(opened.products(), held.products());
    }
}

fn limbs_of(map: &LinearTransform) -> usize {
    map.limbs() + map.gadget().special()
}

/// A file that is truncated while it is open.
struct Cut(Cursor<Vec<u8>>, usize);

impl Read for Cut {
    fn read(&mut self, buffer: &mut [u8]) -> std::io::Result<usize> {
        if self.0.position() as usize >= self.1 {
            return Ok(0);
        }
        self.0.read(buffer)
    }
}

impl Seek for Cut {
    fn seek(&mut self, to: SeekFrom) -> std::io::Result<u64> {
        self.0.seek(to)
    }
}

#[test]
fn a_file_that_ends_during_a_product_is_an_error() {
    let params = params();
    let held = map(&params, 1, 8, 2048);
    let bytes = written(&held);
    let half = bytes.len() / 2;
    let opened = LinearTransform::open(&params, Cut(Cursor::new(bytes), half)).unwrap();
    let mut f = fixture(&held);
    let x = f.random();
    let ct = f.encrypt(&x, LIMBS);
    assert!(matches!(
        opened.apply(&f.evaluator, &ct),
        Err(CkksError::LinTrans(LinTransError::File { kind: std::io::ErrorKind::UnexpectedEof }))
    ));
}
