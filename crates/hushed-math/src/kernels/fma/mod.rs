//! The kernels on floating-point multiply-adds (AVX2 with FMA, AVX-512 without IFMA, NEON): four or eight residues at a
//! time.

mod convert;
mod gemm;
mod inverse;
mod lanes;
mod limb;
mod ntt;
#[cfg(target_arch = "x86_64")]
mod permute;
mod points;
mod registers;

pub(crate) use convert::Converter;
pub(crate) use gemm::{number, tile};
pub(crate) use inverse::inverse;
pub(crate) use limb::Limb;
pub(crate) use ntt::{MIN_N, Tables, forward};
#[cfg(target_arch = "x86_64")]
pub(crate) use permute::{Halves, halves, permute, permute_add};
pub(crate) use points::points;
