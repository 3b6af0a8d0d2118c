//! Matrix products modulo 2^64 of what one party holds alone: its share against its own weights or share.
//!
//! Constant time: no branch or index depends on a value.

/// X·W modulo 2^64 for X of k×m words and W of m×n small signed integers, row-major.
///
/// With w' = w + 2^31 ≥ 0 and x = hi·2^32 + lo, x·w = lo·w' + 2^32·(hi·w') − 2^31·x: two 32×32 → 64 bit products a
/// term, which vector units have where a 64-bit product is several instructions; hi·w' counts modulo 2^32 only.
pub fn product_small(x: &[u64], w: &[i32], k: usize, m: usize, n: usize) -> Vec<u64> {
    debug_assert!(x.len() == k * m && w.len() == m * n);
    let mut out = vec![0u64; k * n];
    let mut high = vec![0u64; n];
    for (row, out) in x.chunks_exact(m.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        high.fill(0);
        let sum = row.iter().fold(0u64, |s, &x| s.wrapping_add(x));
        let mut weights = w.chunks_exact(n.max(1));
        for four in row.chunks(4) {
            let lo = |i: usize| four.get(i).map_or(0, |x| x & 0xffff_ffff);
            let hi = |i: usize| four.get(i).map_or(0, |x| x >> 32);
            let (l, h) = ([lo(0), lo(1), lo(2), lo(3)], [hi(0), hi(1), hi(2), hi(3)]);
            let rows = [
                weights.next(),
                weights.next(),
                weights.next(),
                weights.next(),
            ];
            // Absent rows (m not a multiple of four) meet zero factors.
            let rows = rows.map(|r| r.unwrap_or(&w[..n]));
            accumulate(out, &mut high, l, h, rows);
        }
        let correction = sum.wrapping_shl(31);
        for (o, h) in out.iter_mut().zip(&high) {
            *o = o.wrapping_add(h << 32).wrapping_sub(correction);
        }
    }
    out
}

fn accumulate(low: &mut [u64], high: &mut [u64], l: [u64; 4], h: [u64; 4], rows: [&[i32]; 4]) {
    let [a, b, c, d] = rows;
    let columns = low.iter_mut().zip(high).zip(a).zip(b).zip(c).zip(d);
    for (((((lo, hi), &a), &b), &c), &d) in columns {
        let w = [a, b, c, d].map(|w| u64::from((w as u32) ^ (1 << 31)));
        let term = |f: [u64; 4]| {
            let ab = (f[0] * w[0]).wrapping_add(f[1] * w[1]);
            let cd = (f[2] * w[2]).wrapping_add(f[3] * w[3]);
            ab.wrapping_add(cd)
        };
        *lo = lo.wrapping_add(term(l));
        *hi = hi.wrapping_add(term(h));
    }
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
            assert_eq!(product_small(&x, &w, k, m, n), expected);
            assert_eq!(product(&x, &wide, k, m, n), expected);
        }
    }
}
