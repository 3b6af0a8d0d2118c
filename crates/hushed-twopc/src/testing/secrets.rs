//! The functions that choose by secret bits, each ready to run: `examples/secrets.rs` times them and valgrind watches
//! them.

use crate::gadget::{offered, own_product};
use crate::ot::ferret::cases as ferret;
use crate::ot::{additive, bit_table, one_of_n, triple};
use crate::share::{BitShare, Ring, Share};
use hushed_math::bits::{Block, HalfTree, LpnCode, PadHash, Powers, pack_bits, transpose_columns};
use std::hint::black_box;

pub use super::case::{Case, Secret};

/// Every function that chooses by secret bits or indexes by secrets.
pub fn cases() -> Vec<Case> {
    let mut all = vec![planted()];
    all.extend(additive::read::cases());
    all.extend(one_of_n::cases());
    all.extend(bit_table::cases());
    all.extend(triple::cases());
    all.extend(ferret());
    all.extend([half_tree(), lpn(), hash(), pads(), tables(), packing(), mux()]);
    all
}

/// A leak on purpose, for the checks to find: a row is added where a secret bit is one.
fn planted() -> Case {
    let state = (vec![0u64; 4], vec![1u64; 384], vec![3u64; 384]);
    let run = |(bits, row, out): &mut (Vec<u64>, Vec<u64>, Vec<u64>)| {
        for i in 0..64 {
            if (bits[0] >> i) & 1 == 1 {
                let sums = out.iter_mut().zip(row.iter());
                sums.for_each(|(o, r)| *o = o.wrapping_add(*r));
            }
        }
    };
    let set = |s: &mut (Vec<u64>, Vec<u64>, Vec<u64>), secret: Secret| secret.fill(&mut s.0);
    let mut case = Case::new("planted leak", state, set, run);
    case.planted = true;
    case
}

fn half_tree() -> Case {
    const DEPTH: usize = 9;
    let tree = HalfTree::new([1; 16]);
    let state = (vec![Block::ZERO; DEPTH], vec![Block::ZERO; 1 << DEPTH]);
    let corrections = vec![Block(0x77 << 64); DEPTH - 1];
    Case::new(
        "half tree, receiver",
        state,
        |(m, _), secret| secret.fill_blocks(m),
        move |(m, leaves)| tree.expand_receiver(0, m, &corrections, leaves),
    )
}

fn lpn() -> Case {
    let code = LpnCode::new([2; 16], 10);
    let state = [1 << 10, 256].map(|n| vec![Block::ZERO; n]);
    Case::new(
        "LPN code",
        state,
        |[secret, rows], s| {
            s.fill_blocks(secret);
            s.fill_blocks(rows);
        },
        move |[secret, rows]| code.encode(0, secret, rows),
    )
}

fn hash() -> Case {
    let powers = Powers::new(Block(0x1234_5678_9abc_def1), 256);
    Case::new(
        "hash of blocks",
        vec![Block::ZERO; 256],
        |blocks, secret| secret.fill_blocks(blocks),
        move |blocks| {
            black_box(powers.hash(blocks).to_bytes());
        },
    )
}

fn pads() -> Case {
    let hash = PadHash::new([3; 16]);
    Case::new(
        "pads",
        [256, 256].map(|n| vec![Block::ZERO; n]),
        |[blocks, _], secret| secret.fill_blocks(blocks),
        move |[blocks, out]| hash.pads(5, [Block(1)], blocks, [out]),
    )
}

fn tables() -> Case {
    let hash = PadHash::new([3; 16]);
    Case::new(
        "pads of tables",
        (vec![Block::ZERO; 64], vec![[Block::ZERO; 16]; 64]),
        |(blocks, _), secret| secret.fill_blocks(blocks),
        move |(blocks, out)| hash.tables(5, &[Block(1); 16], blocks, out),
    )
}

fn packing() -> Case {
    Case::new(
        "packing and transposition",
        (vec![0u64; 512], vec![0u8; 0], [128 * 4, 128 * 4].map(|n| vec![Block::ZERO; n])),
        |(words, _, [columns, _]), secret| {
            secret.fill(words);
            secret.fill_blocks(columns);
        },
        |(words, packed, [columns, rows])| {
            packed.clear();
            pack_bits(words, 37, packed);
            transpose_columns(columns, rows);
        },
    )
}

fn mux() -> Case {
    let ring = Ring::new(40);
    let state = (vec![0u64; 16], Share::new(ring, (0..1024).collect()));
    Case::new(
        "multiplexer, own part",
        state,
        |(bits, _), secret| secret.fill(bits),
        |(bits, x)| {
            let bits = BitShare::new(bits.clone(), 1024);
            black_box(offered(&bits, x));
            black_box(own_product(&bits, x));
        },
    )
}
