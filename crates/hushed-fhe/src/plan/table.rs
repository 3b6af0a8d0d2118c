//! Prices of `n16-boot-14x40` on the machine of docs/benchmarks.md, used by plans if nothing was measured.

use super::prices::{DISK, Point, Prices};

/// Primes, then a decomposition, a hoisted rotation, a product, relinearisation with rescale, a rescale, a multiple, a
/// sum, an encoding, a product with a plaintext: milliseconds of processor time on one core (`hushed plan --measure
/// whole`, with other work on the machine).
const ONE_CORE: [[f64; 10]; 5] = [
    [4.0, 0.56, 3.43, 0.33, 3.99, 0.94, 0.27, 0.33, 1.67, 0.41],
    [8.0, 3.97, 7.97, 0.80, 11.9, 2.18, 0.57, 0.83, 2.86, 0.89],
    [12.0, 8.00, 12.0, 1.71, 19.5, 4.31, 0.91, 1.36, 3.63, 1.32],
    [16.0, 7.44, 19.8, 2.29, 27.9, 5.59, 1.14, 1.71, 4.83, 1.49],
    [29.0, 35.9, 39.8, 6.65, 69.9, 12.0, 3.42, 3.99, 7.99, 3.99],
];

/// Seconds per prime of a product of a grid, and of a term of a matrix product.
const GRID_TERM: f64 = 193e-6;
const GEMM_TERM: f64 = 6.4e-6;

/// Seconds of a bootstrap, by primes of its results, and of a call beside its bootstraps. Each of four was measured:
/// 1.42 and 2.79 s. Elsewhere one alone took 2.72 s and each of four 2.47, so a call takes 0.135 of the latter.
const BOOTSTRAP: [(usize, f64); 2] = [(4, 1.37), (18, 2.70)];
const BOOTSTRAP_CALL: [(usize, f64); 2] = [(4, 0.19), (18, 0.38)];

/// Seconds of 14 transforms of 2^16 numbers and a conversion of ten primes to ten at a pace of 1. Fitted: plans of one
/// text of MiniLM then agree with `--measure quick` within 15 % on an EPYC of family 25, model 17, with AVX-512 IFMA
/// (143 s) and without (305 s).
pub(super) const SWITCHED: f64 = 2.35e-3;

/// Speedup of two threads.
const TWO_THREADS: f64 = 1.95;

/// The table for `threads` threads.
#[must_use]
pub fn reference(threads: usize) -> Prices {
    let gain = match threads {
        0 | 1 => 1.0,
        more => TWO_THREADS * more as f64 / 2.0,
    };
    let point = |row: &[f64; 10]| {
        let [limbs, rest @ ..] = row;
        let [hoist, rotate_hoisted, product, relinearise, rescale, multiple, add, encode, mul_plain] =
            rest.map(|ms| ms * 1e-3 / gain);
        Point {
            limbs: *limbs as usize,
            hoist,
            rotate_hoisted,
            product,
            relinearise,
            rescale,
            multiple,
            add,
            encode,
            mul_plain,
        }
    };
    Prices {
        set: "n16-boot-14x40".to_owned(),
        threads: threads.max(1),
        measured: false,
        pace: 1.0,
        by_limbs: ONE_CORE.iter().map(point).collect(),
        grid_term: GRID_TERM / gain,
        gemm_term: GEMM_TERM / gain,
        bootstrap: BOOTSTRAP.map(|(limbs, s)| (limbs, s / gain)).to_vec(),
        bootstrap_call: BOOTSTRAP_CALL.map(|(limbs, s)| (limbs, s / gain)).to_vec(),
        disk: DISK,
    }
}
