//! Prices of `n16-boot-14x40` on the machine of docs/benchmarks.md: what a plan says where nothing was measured.

use super::prices::{Point, Prices};

/// Primes, then a decomposition, a hoisted rotation, a product, relinearisation with rescale, a rescale, a multiple, a sum, an encoding, a product
/// with a plaintext: milliseconds of one core (`hushed plan --measure whole`).
const ONE_CORE: [[f64; 10]; 5] = [
    [4.0, 0.3, 3.8, 0.47, 4.0, 1.05, 0.28, 0.44, 1.75, 0.45],
    [8.0, 4.0, 8.0, 0.98, 12.0, 2.4, 0.56, 0.85, 2.6, 0.71],
    [12.0, 8.7, 11.9, 1.4, 19.4, 2.7, 0.54, 1.36, 3.7, 1.25],
    [16.0, 12.3, 17.0, 2.2, 23.9, 5.2, 0.59, 1.49, 4.9, 1.71],
    [29.0, 30.5, 39.9, 6.6, 64.7, 9.9, 2.8, 3.98, 7.0, 3.98],
];

/// Seconds of a product of a grid, and of a term of a matrix product, a prime.
const GRID_TERM: f64 = 165e-6;
const GEMM_TERM: f64 = 4e-6;

/// A bootstrap that leaves so many primes, seconds.
const BOOTSTRAP: [(usize, f64); 2] = [(4, 1.7), (18, 2.84)];

/// What two threads gain.
const TWO_THREADS: f64 = 1.95;

/// The table for so many threads.
#[must_use]
pub fn reference(threads: usize) -> Prices {
    let gain = match threads {
        0 | 1 => 1.0,
        more => TWO_THREADS * more as f64 / 2.0,
    };
    let point = |row: &[f64; 10]| {
        let [limbs, rest @ ..] = row;
        let [
            hoist,
            rotate_hoisted,
            product,
            relinearise,
            rescale,
            multiple,
            add,
            encode,
            mul_plain,
        ] = rest.map(|ms| ms * 1e-3 / gain);
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
        by_limbs: ONE_CORE.iter().map(point).collect(),
        grid_term: GRID_TERM / gain,
        gemm_term: GEMM_TERM / gain,
        bootstrap: BOOTSTRAP
            .iter()
            .map(|&(limbs, s)| (limbs, s / gain))
            .collect(),
    }
}
