//! The kernels on 512-bit registers of 52-bit multiply-adds (AVX-512 IFMA): eight residues at a time.

mod accept;
mod convert;
mod forward;
mod fused;
mod gemm;
mod inverse;
mod lanes;
mod limb;
mod permute;
mod planes;
mod points;
mod tables;
mod tiles;

pub(crate) use accept::accept;
pub(crate) use convert::Converter;
pub(crate) use gemm::Gemm;
pub(crate) use limb::Limb;
pub(crate) use permute::{permute, permute_add};
pub(crate) use planes::Planes;
pub(crate) use points::Points;
pub(crate) use tables::{MIN_N, Tables};

use crate::machine::cpu::HaveIfma;
use lanes::Room;

/// Coefficients to values, both in [0, q), for the n of `tables`. `a` holds the words of the blocks from number `first`
/// on of the layer with 4^`skipped` blocks. The whole transform is block 0 of layer 0.
pub(crate) fn forward(token: HaveIfma, tables: &Tables, a: &mut [u64], skipped: u32, first: usize) {
    transform::<false>(token, tables, a, skipped, first);
}

/// As [`forward()`] on the whole, without the last reductions: the low 52 bits of each word are a value, up to a
/// multiple of q.
pub(crate) fn forward_loose(token: HaveIfma, tables: &Tables, a: &mut [u64]) {
    transform::<true>(token, tables, a, 0, 0);
}

fn transform<const LOOSE: bool>(_: HaveIfma, tables: &Tables, a: &mut [u64], skipped: u32, first: usize) {
    let size = tables.n >> (2 * skipped);
    assert!(size >= tables.group() && a.len().is_multiple_of(size), "whole blocks");
    let count = a.len() / size;
    assert!(first + count <= tables.n / size, "blocks of this layer");
    // SAFETY: the token proves the instruction sets, the assertions the lengths.
    unsafe {
        let a = a.as_mut_ptr();
        match tables.room {
            Room::Four => forward::transform::<4, LOOSE>(tables, a, skipped, first, count),
            Room::Eight => forward::transform::<8, LOOSE>(tables, a, skipped, first, count),
            Room::Sixty => forward::transform::<64, LOOSE>(tables, a, skipped, first, count),
        }
    }
}

/// Values to coefficients, both in [0, q), for the n of `tables`, in place.
pub(crate) fn inverse(token: HaveIfma, tables: &Tables, a: &mut [u64]) {
    assert_eq!(a.len(), tables.n, "one word a value");
    let a = a.as_mut_ptr();
    // SAFETY: `a` has n words, all of its own.
    unsafe { inverse_at(token, tables, a, a) }
}

/// As [`inverse()`], from one slice to another.
pub(crate) fn inverse_from(token: HaveIfma, tables: &Tables, from: &[u64], a: &mut [u64]) {
    let whole = from.len() == tables.n && a.len() == tables.n;
    assert!(whole, "one word a value");
    // SAFETY: both have n words.
    unsafe { inverse_at(token, tables, from.as_ptr(), a.as_mut_ptr()) }
}

/// # Safety
/// `from` is readable and `a` writable for n words; they are the same or disjoint, and nothing else writes to them.
unsafe fn inverse_at(_: HaveIfma, tables: &Tables, from: *const u64, a: *mut u64) {
    // SAFETY: the token proves the instruction sets; pointers by the contract of this function.
    unsafe {
        match tables.room {
            Room::Four => inverse::transform::<4>(tables, from, a),
            Room::Eight => inverse::transform::<8>(tables, from, a),
            Room::Sixty => inverse::transform::<64>(tables, from, a),
        }
    }
}
