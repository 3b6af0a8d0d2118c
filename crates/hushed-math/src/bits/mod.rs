//! Bit kernels of oblivious transfer: 128-bit blocks, fixed-key AES, GGM trees, the LPN code,
//! transposition and packing. Every public signature is safe; kernels are chosen at run time and
//! give identical bytes.

pub mod aes;
mod block;
mod prg;

pub use block::Block;
pub use prg::PrgAes;
