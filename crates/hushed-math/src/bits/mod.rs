//! Bit kernels of oblivious transfer: 128-bit blocks, fixed-key AES, GGM trees, the LPN code,
//! transposition and packing. Every public signature is safe; kernels are chosen at run time and
//! give identical bytes.

mod aes;
mod block;
mod half_tree;
mod lpn;
mod pack;
mod prg;
mod transpose;

pub use aes::{AesKey, hash_blocks};
pub use block::Block;
pub use half_tree::{HalfTree, MAX_DEPTH};
pub use lpn::{LpnCode, ROW_GROUP, TAPS};
pub use pack::{pack_bits, packed_len, unpack_bits};
pub use prg::PrgAes;
pub use transpose::transpose_columns;
