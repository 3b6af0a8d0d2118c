//! Matrix products modulo 2^64 of what one party holds alone: its share against its own weights or share.
//!
//! Constant time: no branch or index depends on a value.

/// X·W modulo 2^64 for X of k×m words and W of m×n small signed integers, X row-major and W column-major (`w` holds
/// Wᵀ).
///
/// With w' = w + 2^31 ≥ 0 and x = hi·2^32 + lo, x·w = lo·w' + 2^32·(hi·w') − 2^31·x: two 32×32 → 64 bit products a
/// term, which vector units have where a 64-bit product is several instructions; hi·w' counts modulo 2^32 only.
pub fn product_small(x: &[u64], w: &[i32], k: usize, m: usize, n: usize) -> Vec<u64> {
    debug_assert!(x.len() == k * m && w.len() == m * n);
    let mut out = vec![0u64; k * n];
    for (row, out) in x.chunks_exact(m.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        let sum = row.iter().fold(0u64, |s, &x| s.wrapping_add(x));
        let correction = sum.wrapping_shl(31);
        let mut columns = w.chunks_exact(m.max(1));
        // Four columns at a time share the halves of x.
        for out in out.chunks_mut(4) {
            let four = [
                columns.next(),
                columns.next(),
                columns.next(),
                columns.next(),
            ];
            let sums = dot_four(row, four.map(|c| c.unwrap_or(&w[..m])));
            for (o, s) in out.iter_mut().zip(sums) {
                *o = s.wrapping_sub(correction);
            }
        }
    }
    out
}

/// Σ_j x_j·(w_j + 2^31) modulo 2^64 for four w.
fn dot_four(x: &[u64], w: [&[i32]; 4]) -> [u64; 4] {
    let (mut low, mut high) = ([0u64; 4], [0u64; 4]);
    let [a, b, c, d] = w;
    for ((((&x, &a), &b), &c), &d) in x.iter().zip(a).zip(b).zip(c).zip(d) {
        let (lo, hi) = (x & 0xffff_ffff, x >> 32);
        for (i, w) in [a, b, c, d].into_iter().enumerate() {
            let w = u64::from((w as u32) ^ (1 << 31));
            low[i] = low[i].wrapping_add(lo * w);
            high[i] = high[i].wrapping_add(hi * w);
        }
    }
    [0, 1, 2, 3].map(|i| low[i].wrapping_add(high[i] << 32))
}

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
    fn both_agree_with_wide_integers() {
        for (k, m, n) in [(1, 1, 1), (3, 5, 2), (2, 4, 7), (4, 9, 1), (1, 50, 7)] {
            let word = |i: usize| {
                (i as u64 + 1)
                    .wrapping_mul(0x9e37_79b9_7f4a_7c15)
                    .rotate_left(31)
            };
            let mut x: Vec<u64> = (0..k * m).map(word).collect();
            x[0] = u64::MAX;
            let mut w: Vec<i32> = (0..m * n).map(|i| word(i + 1000) as i32).collect();
            w[0] = i32::MIN;
            w[m * n - 1] = i32::MAX;
            let wide: Vec<u64> = w.iter().map(|&w| i64::from(w) as u64).collect();
            let expected: Vec<u64> = (0..k * n)
                .map(|e| {
                    let (i, c) = (e / n, e % n);
                    let term =
                        |j: usize| (i128::from(x[i * m + j]) * i128::from(w[j * n + c])) as u64;
                    (0..m).fold(0u64, |s, j| s.wrapping_add(term(j)))
                })
                .collect();
            let across: Vec<i32> = (0..m * n).map(|i| w[i % m * n + i / m]).collect();
            assert_eq!(product_small(&x, &across, k, m, n), expected);
            assert_eq!(product(&x, &wide, k, m, n), expected);
        }
    }
}
