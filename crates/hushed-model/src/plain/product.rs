//! Matrix products in f64.

use rayon::prelude::*;

use crate::matrix::Matrix;

/// Rows and columns of the register tile: 4 × 4 accumulators of f64 fill half of the 16 vector registers of every
/// x86-64 processor.
const TILE: usize = 4;

/// `A·Bᵀ` for A of shape `m × k` and B of shape `n × k`: `m × n`.
///
/// Panels of `TILE` rows of B are copied to `k × TILE` in f64, and each is used in one pass over A. Panels run in
/// parallel. The additions in an element always run in the order 0..k, whatever the shapes, so that a text's result
/// does not depend on its batch.
pub fn times_transposed<T: Copy + Into<f64> + Sync>(a: &Matrix<f64>, b: &Matrix<T>) -> Matrix<f64> {
    let (m, n, k) = (a.rows(), b.rows(), a.cols());
    assert_eq!(k, b.cols(), "inner dimensions");
    let mut transposed_result = Matrix::zero(n, m);
    if m * n == 0 {
        return transposed(&transposed_result);
    }
    let fill = |(p, out): (usize, &mut [f64])| {
        let columns = out.len() / m; // TILE, or fewer in the last panel
        let mut panel = vec![[0.0; TILE]; k];
        for j in 0..columns {
            panel.iter_mut().zip(b.row(p * TILE + j)).for_each(|(cell, &v)| cell[j] = v.into());
        }
        for i in (0..m).step_by(TILE) {
            let rows: [usize; TILE] = std::array::from_fn(|r| (i + r).min(m - 1)); // the last tile repeats a row
            let tile = tile(rows.map(|r| a.row(r)), &panel);
            for (r, cells) in tile.iter().enumerate().take(m - i) {
                for (j, &v) in cells.iter().enumerate().take(columns) {
                    out[j * m + i + r] = v;
                }
            }
        }
    };
    let data = transposed_result.data_mut();
    if m * n * k < 1 << 16 {
        data.chunks_mut(TILE * m).enumerate().for_each(fill);
    } else {
        data.par_chunks_mut(TILE * m).enumerate().for_each(fill);
    }
    transposed(&transposed_result)
}

#[inline]
fn tile(rows: [&[f64]; TILE], panel: &[[f64; TILE]]) -> [[f64; TILE]; TILE] {
    let mut sums = [[0.0; TILE]; TILE];
    let k = panel.len();
    let [r0, r1, r2, r3] = rows.map(|r| &r[..k]);
    for (x, b) in panel.iter().enumerate() {
        for (sum, a) in sums.iter_mut().zip([r0[x], r1[x], r2[x], r3[x]]) {
            for (s, b) in sum.iter_mut().zip(b) {
                *s += a * b;
            }
        }
    }
    sums
}

/// `Aᵀ`.
pub fn transposed(a: &Matrix<f64>) -> Matrix<f64> {
    let mut t = Matrix::zero(a.cols(), a.rows());
    let rows = a.rows();
    for i in 0..rows {
        for (j, &v) in a.row(i).iter().enumerate() {
            t.data_mut()[j * rows + i] = v;
        }
    }
    t
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layers::Random;

    #[test]
    fn every_shape_equals_the_definition() {
        let mut random = Random::new(3);
        for (m, n, k) in [(1, 1, 1), (1, 4, 3), (5, 7, 9), (4, 8, 16), (13, 3, 40), (64, 65, 33), (3, 2, 0)] {
            let a: Vec<f64> = random.numbers("a", &[m, k]).iter().map(|&v| v.into()).collect();
            let b = random.numbers("b", &[n, k]);
            let (a, b) = (Matrix::new(m, k, a).unwrap(), Matrix::new(n, k, b).unwrap());
            let c = times_transposed(&a, &b);
            assert_eq!((c.rows(), c.cols()), (m, n));
            for i in 0..m {
                for j in 0..n {
                    let sum: f64 = a.row(i).iter().zip(b.row(j)).map(|(x, &y)| x * f64::from(y)).sum();
                    assert!((c.row(i)[j] - sum).abs() < 1e-14, "{m} {n} {k}");
                }
            }
        }
    }
}
