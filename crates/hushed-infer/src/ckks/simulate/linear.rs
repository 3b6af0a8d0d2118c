//! The matrix product of a simulated linear map: f64, blocked, parallel over rows.

use rayon::prelude::*;

/// Rows that share the reads of an operand.
const ROWS: usize = 4;

/// Slots whose sums stay in the first cache.
const BLOCK: usize = 512;

/// sums[o][s] += Σ_i weights[o·columns + i]·x[i][s].
pub(super) fn accumulate(sums: &mut [Vec<f64>], weights: &[f64], x: &[&[f64]]) {
    let columns = x.len();
    if columns == 0 {
        return;
    }
    sums.par_chunks_mut(ROWS)
        .zip(weights.par_chunks(ROWS * columns))
        .for_each(|(sums, weights)| match sums {
            [a, b, c, d] => four([a, b, c, d], weights, x),
            rest => {
                for (sum, weights) in rest.iter_mut().zip(weights.chunks_exact(columns)) {
                    for (x, w) in x.iter().zip(weights) {
                        sum.iter_mut().zip(*x).for_each(|(s, v)| *s += w * v);
                    }
                }
            }
        });
}

fn four(sums: [&mut Vec<f64>; ROWS], weights: &[f64], x: &[&[f64]]) {
    let columns = x.len();
    let [a, b, c, d] = sums;
    let blocks = a
        .chunks_mut(BLOCK)
        .zip(b.chunks_mut(BLOCK))
        .zip(c.chunks_mut(BLOCK))
        .zip(d.chunks_mut(BLOCK));
    for (number, (((a, b), c), d)) in blocks.enumerate() {
        let start = number * BLOCK;
        for (i, x) in x.iter().enumerate() {
            let [p, q, r, s] = [0, 1, 2, 3].map(|row| weights[row * columns + i]);
            let x = &x[start..start + a.len()];
            let rows = a
                .iter_mut()
                .zip(b.iter_mut())
                .zip(c.iter_mut())
                .zip(d.iter_mut());
            for ((((a, b), c), d), x) in rows.zip(x) {
                *a += p * x;
                *b += q * x;
                *c += r * x;
                *d += s * x;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::accumulate;

    #[test]
    fn products_are_those_of_the_definition() {
        for (rows, columns, slots) in [(1, 1, 1), (5, 3, 700), (8, 2, 512), (7, 1, 3)] {
            let weights: Vec<f64> = (0..rows * columns).map(|i| i as f64 - 3.0).collect();
            let x: Vec<Vec<f64>> = (0..columns)
                .map(|c| (0..slots).map(|s| (c * 7 + s) as f64).collect())
                .collect();
            let mut sums = vec![vec![1.0; slots]; rows];
            let views: Vec<&[f64]> = x.iter().map(Vec::as_slice).collect();
            accumulate(&mut sums, &weights, &views);
            for (row, sum) in sums.iter().enumerate() {
                for (slot, sum) in sum.iter().enumerate() {
                    let want: f64 = (0..columns)
                        .map(|c| weights[row * columns + c] * x[c][slot])
                        .sum();
                    assert_eq!(*sum, 1.0 + want);
                }
            }
        }
    }
}
