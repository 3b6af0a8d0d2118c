//! Bit kernels of oblivious transfer: 128-bit blocks, masks from secret bits, AES, the pad hash, the field of 2^128
//! elements, GGM trees, the LPN code, transposition and packing. Every public signature is safe; kernels are chosen at
//! run time and give identical bytes.

mod aes;
mod block;
mod field;
mod half_tree;
mod lpn;
mod mask;
mod pack;
mod pads;
mod prg;
mod transpose;

pub(crate) use aes::AesCtr;
pub use aes::AesKey;
pub use block::Block;
pub use field::{Powers, multiply};
pub use half_tree::{HalfTree, MAX_DEPTH};
pub use lpn::{LpnCode, ROW_GROUP, TAPS};
pub use mask::Mask;
pub use pack::{pack_bits, packed_len, unpack_bits};
pub use pads::{PadHash, TABLE, TARGETS_A_KEY};
pub use prg::PrgAes;
pub use transpose::{transpose_columns, transpose_words};
