use super::super::aes::shared::sigma;
use super::*;
use std::collections::HashMap;

fn sample(n: usize) -> Vec<Block> {
    (0..n as u128).map(|i| Block((i + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15_f39c_c060_5ced_c835))).collect()
}

fn aes(key: Block, x: Block) -> Block {
    let mut e = [x];
    AesKey::with_cpu(key, Cpu::portable()).encrypt(&mut e);
    e[0]
}

/// H(i, x) under key `number` of a use with `places` places, straight from the header.
fn hash(seed: Block, [places, of]: [usize; 2], number: u64, i: u64, x: Block) -> Block {
    let start = (places as u128) << 96 | (of as u128) << 64;
    let key = aes(seed, Block(start | u128::from(number)));
    let s = sigma(x) ^ Block(i.into());
    aes(key, s) ^ s
}

#[test]
fn pads_are_the_formula_in_every_kernel() {
    let seed = Block(u128::from_le_bytes([9; 16]));
    for cpu in Cpu::variants() {
        let pads = PadHash::with_cpu([9; 16], cpu);
        for first in [0, 1, 15, 16, 1000, (1 << 47) - 3] {
            for n in [0, 1, 14, 15, 16, 17, 33, 600, 1100] {
                let (x, offset) = (sample(n), Block(77 << 90));
                let mut out = vec![Block::ONES; n];
                let mut plain = out.clone();
                pads.pads(first, [offset], &x, [&mut out]);
                pads.pads(first, [Block::ZERO], &x, [&mut plain]);
                let (mut zero, mut one) = (x.clone(), x.clone());
                let both = [&mut zero[..], &mut one];
                pads.pads(first, [Block::ZERO, offset], &x, both);
                assert!(zero == plain && one == out, "{cpu:?} {first} {n}");
                for (j, (x, y)) in x.iter().zip(&out).enumerate() {
                    let i = first + j as u64;
                    let expect = hash(seed, [0, 1], i / 16, i, *x ^ offset);
                    assert!(*y == expect, "{cpu:?} {first} {n} {j}");
                }
            }
        }
    }
}

#[test]
fn tables_are_the_formula_in_every_kernel() {
    let seed = Block(u128::from_le_bytes([3; 16]));
    for cpu in Cpu::variants() {
        let pads = PadHash::with_cpu([3; 16], cpu);
        for (n, places) in [(1, 16), (33, 16), (70, 4), (300, 8), (300, 2), (5, 1), (0, 2)] {
            let (x, offsets) = (sample(n), &sample(40)[40 - places..]);
            let mut out = vec![[Block::ZERO; TABLE]; n];
            pads.tables(5, offsets, &x, &mut out);
            for (i, (x, y)) in x.iter().zip(&out).enumerate() {
                for (offset, y) in offsets.iter().zip(y) {
                    let at = 5 + i as u64;
                    let number = at / (16 / places as u64);
                    let expect = hash(seed, [places, 2], number, at, *x ^ *offset);
                    assert!(*y == expect, "{cpu:?} {n} {places} {i}");
                }
            }
            // A chooser's place equals the table's.
            let own: Vec<Block> = x.iter().map(|x| *x ^ offsets[places - 1]).collect();
            let mut read = vec![Block::ZERO; n];
            pads.places(5, places, &own, &mut read);
            assert!(read.iter().zip(&out).all(|(r, o)| *r == o[places - 1]));
        }
    }
}

/// Computed with OpenSSL; a change of σ, of the keys or of the byte order breaks every peer.
#[test]
fn known_answers() {
    let pads = PadHash::new([0x42; 16]);
    let x = [Block(1), Block(u128::MAX - 1)];
    let mut out = [Block::ZERO; 2];
    pads.pads(31, [Block::ZERO], &x, [&mut out]);
    let hex = |b: &Block| b.to_bytes().map(|byte| format!("{byte:02x}")).concat();
    assert_eq!(hex(&out[0]), "6a7cd3b4bd17e2dde7c5db6ae2a9513f");
    assert_eq!(hex(&out[1]), "8a84be88a3a48579c0f616a2323c6fd0");
    pads.places(7, 16, &x, &mut out);
    assert_eq!(hex(&out[0]), "97dff7e54481ed476cfbb5c4de4161ad");
    assert_eq!(hex(&out[1]), "ae1286a8b17a202a8dbce26587c774dd");
}

/// Under a single key anyone could move the label into the input: H(i, x) = H(j, x ⊕ σ⁻¹(i ⊕ j)). This may hold only
/// within a group of sixteen.
#[test]
fn f3_indices_of_other_groups_have_other_keys() {
    let pads = PadHash::new([1; 16]);
    let x = Block(0x0123_4567_89ab_cdef << 40);
    let at = |i: u64, x: Block| {
        let mut out = [Block::ZERO];
        pads.pads(i, [Block::ZERO], &[x], [&mut out]);
        out[0]
    };
    // σ⁻¹(hi' ‖ lo') = lo' ‖ (hi' ⊕ lo').
    let unsigma = |y: u64| Block((u128::from(y) << 64) | u128::from(y));
    let related = |i: u64, j: u64| at(i, x) == at(j, x ^ unsigma(i ^ j));
    assert!((17..32).all(|j| related(16, j)), "one key in a group");
    assert!((0..16).chain(32..200).all(|j| !related(16, j)));
    assert_eq!(TARGETS_A_KEY, 16);
    // The places of a table of sixteen share a key, but no two such tables do.
    let mut tables = [[Block::ZERO; TABLE]; 2];
    let shifted = [x, x ^ unsigma(1)];
    pads.tables(0, &[Block::ZERO; 16], &shifted, &mut tables);
    assert!(tables[0][0] != tables[1][0]);
}

/// A toy of 40 bits: π a Feistel network under a key, H(x) = π(x) ⊕ x, and T = 2^18 targets H(known ⊕ Δ). An attacker
/// who tabulates the targets and hashes 2^24 points hits one if all are under one key (expected 2^24·2^18/2^40 = 4
/// hits), and learns Δ. With one key per target the same calls, on any targets, find it with probability 2^-16.
#[test]
fn f3_targets_under_one_key_give_delta_away() {
    const BITS: u64 = (1 << 40) - 1;
    const TARGETS: u64 = 1 << 18;
    const CALLS: u64 = 1 << 24;
    let mix = |x: u64| {
        let x = (x ^ (x >> 31)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        (x ^ (x >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 20
    };
    let hash = |key: u64, x: u64| {
        let (mut l, mut r) = (x >> 20, x & 0xf_ffff);
        for round in 0..4 {
            (l, r) = (r, l ^ (mix(r ^ (key << 22) ^ (round << 60)) & 0xf_ffff));
        }
        x ^ (l << 20 | r)
    };
    let delta = 0xab_cdef_0123u64;
    let known = |i: u64| mix(i.wrapping_mul(0x1234_5678_9abc_def1) ^ 5).wrapping_mul(0x9e37_79b9) & BITS;
    // The attacker: `key` says under which key target i and call number z are hashed.
    let attack = |key: fn(u64) -> u64| {
        let target = |i: u64| (hash(key(i), known(i) ^ delta), i);
        let table: HashMap<u64, u64> = (0..TARGETS).map(target).collect();
        (0..CALLS).find_map(|z| {
            let x = z.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 24;
            // The best use of a call: a key under which there is a target.
            let i = *table.get(&hash(key(z % TARGETS), x))?;
            let guess = known(i) ^ x;
            // Checked against two more targets, as the attacker can.
            let fits = |i| hash(key(i), known(i) ^ guess) == hash(key(i), known(i) ^ delta);
            (fits(0) && fits(1)).then_some(guess)
        })
    };
    assert_eq!(attack(|_| 0), Some(delta), "one key for all targets");
    assert_eq!(attack(|i| i), None, "a key a target");
    assert_eq!(attack(|i| i / TARGETS_A_KEY as u64), None, "sixteen targets a key");
}
