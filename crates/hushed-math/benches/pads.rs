//! Nanoseconds per block of what oblivious transfers hash, on one core: `cargo bench -p hushed-math --bench pads`.
//!
//! Prints the minimum of many rounds. A report: it asserts nothing about time.

use hushed_math::bits::{AesKey, Block, HalfTree, PadHash, TABLE};
use hushed_math::cpu::Cpu;
use std::hint::black_box;
use std::time::Instant;

const BLOCKS: usize = 1 << 12;
const DEPTH: usize = 12;

fn main() {
    println!("{}", Cpu::get().kernel_name());
    let input: Vec<Block> = (0..BLOCKS as u128).map(|i| Block::from_bytes((i * i + 1).to_le_bytes())).collect();
    let (hash, offset) = (PadHash::new([1; 16]), Block::from_bytes([7; 16]));
    let (mut one, mut two) = (input.clone(), input.clone());
    time("pads, both of a transfer", 2, || {
        hash.pads(0, [Block::ZERO, offset], black_box(&input), [&mut one, &mut two])
    });
    time("pads, one of a transfer", 1, || hash.pads(0, [offset], black_box(&input), [&mut one]));
    let mut tables = vec![[Block::ZERO; TABLE]; BLOCKS];
    let offsets: Vec<Block> = input[..TABLE].to_vec();
    time("tables", TABLE, || hash.tables(0, &offsets, black_box(&input), &mut tables));
    let key = AesKey::new(offset);
    time("cipher", 1, || key.encrypt(black_box(&mut one)));
    let tree = HalfTree::new([2; 16]);
    let (mut corrections, mut leaves) = (vec![Block::ZERO; DEPTH - 1], vec![Block::ZERO; 1 << DEPTH]);
    time("leaves of a half-tree", 1, || {
        tree.expand_sender(0, offset, black_box(&input[..DEPTH]), &mut corrections, &mut leaves);
    });
}

/// The time of a call on `BLOCKS` inputs with `each` blocks of output.
fn time(name: &str, each: usize, mut call: impl FnMut()) {
    let mut round = || {
        let start = Instant::now();
        call();
        start.elapsed().as_secs_f64()
    };
    let least = (0..200).map(|_| round()).fold(f64::INFINITY, f64::min);
    println!("{name:<28} {:>7.3} ns a block", least * 1e9 / (BLOCKS * each) as f64);
}
