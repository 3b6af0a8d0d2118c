//! The tile on 64-bit words, for any processor.

use super::packed::{Chunk, Method, ROWS};
use crate::modulus::Modulus;

/// Words of a limb whose sums are kept together.
const BLOCK: usize = 64;

/// out += f·w·x for the words `at .. at + length`.
pub(super) fn tile(modulus: &Modulus, chunk: &Chunk, x: &[&[u64]], out: &mut [&mut [u64]], at: usize, length: usize) {
    for first in (at..at + length).step_by(BLOCK) {
        let range = first..(first + BLOCK).min(at + length);
        let x: Vec<&[u64]> = x.iter().map(|x| &x[range.clone()]).collect();
        let corrections = corrections(modulus, chunk, &x);
        for (p, out) in out.chunks_mut(ROWS).enumerate() {
            for (r, out) in out.iter_mut().enumerate() {
                let weights = chunk.panel(p)[r..].iter().step_by(ROWS);
                let out = &mut out[range.clone()];
                match chunk.method() {
                    Method::Planes(_) => unreachable!("tiles have a kernel of their own"),
                    Method::Full => full(modulus, weights, &x, out),
                    Method::Narrow => narrow(modulus, chunk, weights, &x, &corrections, out),
                }
            }
        }
    }
}

/// Sums of 128 bits: below q + 1024·q² < 2^111.
fn full<'a>(modulus: &Modulus, weights: impl Iterator<Item = &'a u64>, x: &[&[u64]], out: &mut [u64]) {
    let mut sums = [0_u128; BLOCK];
    for (&w, x) in weights.zip(x) {
        for (sum, &x) in sums.iter_mut().zip(*x) {
            *sum += u128::from(w) * u128::from(x);
        }
    }
    for (out, &sum) in out.iter_mut().zip(&sums) {
        *out = modulus.add(*out, modulus.reduce_u128(sum));
    }
}

/// Sums of 64 bits: a correction and 1024 products below 2^52.
fn narrow<'a>(
    modulus: &Modulus,
    chunk: &Chunk,
    weights: impl Iterator<Item = &'a u64>,
    x: &[&[u64]],
    corrections: &[u64; BLOCK],
    out: &mut [u64],
) {
    let mut sums = *corrections;
    for (&w, x) in weights.zip(x) {
        for (sum, &x) in sums.iter_mut().zip(*x) {
            *sum += w * x;
        }
    }
    for (out, &sum) in out.iter_mut().zip(&sums) {
        *out = modulus.add(*out, modulus.mul(chunk.factor(), modulus.reduce(sum)));
    }
}

/// −limit·Σ_i `x[i][c]` mod q.
fn corrections(modulus: &Modulus, chunk: &Chunk, x: &[&[u64]]) -> [u64; BLOCK] {
    let mut sums = [0; BLOCK];
    for x in x {
        for (sum, &x) in sums.iter_mut().zip(*x) {
            *sum += x; // below 1024·2^50
        }
    }
    let minus = modulus.neg(modulus.reduce(chunk.limit()));
    sums.map(|sum| modulus.mul(minus, modulus.reduce(sum)))
}
