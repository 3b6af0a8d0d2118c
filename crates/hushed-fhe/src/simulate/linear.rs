//! The matrix product of a simulated linear map in f64, blocked and parallel over rows.

use rayon::prelude::*;

/// Register block: rows that share reads of operands, and operands that share reads and writes of rows; 8 products stay
/// in registers.
const ROWS: usize = 2;
const COLUMNS: usize = 4;

/// Slots per block, so that all of it stays in the first-level cache.
const BLOCK: usize = 512;

/// `sums[o][s]` += Σ_i `weights[o·columns + i]`·`x[i][s]`.
pub(super) fn accumulate(sums: &mut [Vec<f64>], weights: &[f64], x: &[&[f64]]) {
    let columns = x.len();
    if columns == 0 {
        return;
    }
    sums.par_chunks_mut(ROWS).zip(weights.par_chunks(ROWS * columns)).for_each(|(sums, weights)| match sums {
        [a, b] => two([a, b], weights, x),
        rest => {
            for (sum, weights) in rest.iter_mut().zip(weights.chunks_exact(columns)) {
                for (x, w) in x.iter().zip(weights) {
                    sum.iter_mut().zip(*x).for_each(|(s, v)| *s += w * v);
                }
            }
        }
    });
}

fn two(sums: [&mut Vec<f64>; ROWS], weights: &[f64], x: &[&[f64]]) {
    let [a, b] = sums;
    let (top, bottom) = weights.split_at(x.len());
    let blocks = a.chunks_mut(BLOCK).zip(b.chunks_mut(BLOCK));
    for (number, (a, b)) in blocks.enumerate() {
        let slots = number * BLOCK..number * BLOCK + a.len();
        let parts = x.chunks(COLUMNS).zip(top.chunks(COLUMNS));
        for ((x, p), q) in parts.zip(bottom.chunks(COLUMNS)) {
            if let (&[x0, x1, x2, x3], &[p0, p1, p2, p3], &[q0, q1, q2, q3]) = (x, p, q) {
                let [x0, x1, x2, x3] = [x0, x1, x2, x3].map(|x| &x[slots.clone()]);
                let x = x0.iter().zip(x1).zip(x2.iter().zip(x3));
                let sums = a.iter_mut().zip(b.iter_mut());
                for ((a, b), ((x0, x1), (x2, x3))) in sums.zip(x) {
                    *a += (p0 * x0 + p1 * x1) + (p2 * x2 + p3 * x3);
                    *b += (q0 * x0 + q1 * x1) + (q2 * x2 + q3 * x3);
                }
                continue;
            }
            for ((x, p), q) in x.iter().zip(p).zip(q) {
                let sums = a.iter_mut().zip(b.iter_mut());
                for ((a, b), x) in sums.zip(&x[slots.clone()]) {
                    *a += p * x;
                    *b += q * x;
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accumulate;

    #[test]
    fn products_are_those_of_the_definition() {
        for (rows, columns, slots) in [(1, 1, 1), (5, 6, 700), (8, 4, 512), (7, 1, 3)] {
            let weights: Vec<f64> = (0..rows * columns).map(|i| i as f64 - 3.0).collect();
            let x: Vec<Vec<f64>> = (0..columns).map(|c| (0..slots).map(|s| (c * 7 + s) as f64).collect()).collect();
            let mut sums = vec![vec![1.0; slots]; rows];
            let views: Vec<&[f64]> = x.iter().map(Vec::as_slice).collect();
            accumulate(&mut sums, &weights, &views);
            for (row, sum) in sums.iter().enumerate() {
                for (slot, sum) in sum.iter().enumerate() {
                    let want: f64 = (0..columns).map(|c| weights[row * columns + c] * x[c][slot]).sum();
                    assert_eq!(*sum, 1.0 + want);
                }
            }
        }
    }
}
