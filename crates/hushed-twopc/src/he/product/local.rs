//! Matrix products modulo 2^64 of what one party holds alone: its share against its own weights or share.
//!
//! Constant time: no branch or index depends on a value.

pub use hushed_math::product_small;

/// X·Y modulo 2^64 for X of k×m and Y of m×n words, row-major.
pub fn product(x: &[u64], y: &[u64], k: usize, m: usize, n: usize) -> Vec<u64> {
    debug_assert!(x.len() == k * m && y.len() == m * n);
    let mut out = vec![0u64; k * n];
    for (row, out) in x.chunks_exact(m.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        for (&a, y) in row.iter().zip(y.chunks_exact(n.max(1))) {
            for (o, &b) in out.iter_mut().zip(y) {
                *o = o.wrapping_add(a.wrapping_mul(b));
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_agrees_with_wide_integers() {
        for (k, m, n) in [(1, 1, 1), (3, 5, 2), (2, 4, 7), (4, 9, 1), (1, 50, 7)] {
            let word = |i: usize| {
                (i as u64 + 1)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(31)
            };
            let mut x: Vec<u64> = (0..k * m).map(word).collect();
            x[0] = u64::MAX;
            let y: Vec<u64> = (0..m * n).map(|i| word(i + 1000)).collect();
            let expected: Vec<u64> = (0..k * n)
                .map(|e| {
                    let (i, c) = (e / n, e % n);
                    let term =
                        |j: usize| (u128::from(x[i * m + j]) * u128::from(y[j * n + c])) as u64;
                    (0..m).fold(0u64, |s, j| s.wrapping_add(term(j)))
                })
                .collect();
            assert_eq!(product(&x, &y, k, m, n), expected);
        }
    }
}
