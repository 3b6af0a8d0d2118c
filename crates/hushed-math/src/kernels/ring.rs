//! Matrix products modulo 2^64 of what one party holds alone: its share times its own share or weights.
//!
//! By small signed integers: with w' = w + 2^31 ≥ 0 and x = hi·2^32 + lo, x·w = lo·w' + 2^32·(hi·w') − 2^31·x. That is
//! two 32×32 → 64 bit products per term, which vector units have, while a 64-bit product takes several instructions;
//! hi·w' counts modulo 2^32 only. One body, compiled for each register width. Constant time: no branch or index depends
//! on a value.

use crate::machine::cpu::Cpu;

/// X·Y modulo 2^64 for X of k×m and Y of m×n words, row-major; returns k×n words.
///
/// # Panics
/// Unless `x` and `y` have k·m and m·n words.
pub fn product(x: &[u64], y: &[u64], k: usize, m: usize, n: usize) -> Vec<u64> {
    product_with(Cpu::get(), x, y, k, m, n)
}

fn product_with(cpu: Cpu, x: &[u64], y: &[u64], k: usize, m: usize, n: usize) -> Vec<u64> {
    assert!(x.len() == k * m && y.len() == m * n, "matrices of k·m and m·n");
    let mut out = vec![0; k * n];
    let _ = cpu;
    #[cfg(target_arch = "x86_64")]
    if cpu.ifma().is_some() || cpu.fma().is_some_and(|have| have.wide()) {
        // SAFETY: either token proves AVX-512 F and DQ.
        unsafe { words_eight(x, y, m, n, &mut out) }
        return out;
    }
    #[cfg(target_arch = "x86_64")]
    if cpu.fma().is_some() {
        // SAFETY: the token proves AVX2.
        unsafe { words_four(x, y, m, n, &mut out) }
        return out;
    }
    words(x, y, m, n, &mut out);
    out
}

/// # Safety
/// The processor has AVX-512 F and DQ, whose 64-bit products are one instruction.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512dq")]
unsafe fn words_eight(x: &[u64], y: &[u64], m: usize, n: usize, out: &mut [u64]) {
    words(x, y, m, n, out);
}

/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn words_four(x: &[u64], y: &[u64], m: usize, n: usize, out: &mut [u64]) {
    words(x, y, m, n, out);
}

/// Adds one row of Y at a time to a row of the result.
#[inline(always)]
fn words(x: &[u64], y: &[u64], m: usize, n: usize, out: &mut [u64]) {
    for (row, out) in x.chunks_exact(m.max(1)).zip(out.chunks_exact_mut(n.max(1))) {
        for (&a, y) in row.iter().zip(y.chunks_exact(n.max(1))) {
            for (o, &b) in out.iter_mut().zip(y) {
                *o = o.wrapping_add(a.wrapping_mul(b));
            }
        }
    }
}

/// Columns whose sums are computed together and share the halves of x.
const COLUMNS: usize = 4;

/// X·W modulo 2^64 for X of k×m words and W of m×n integers, X row-major and W column-major (`w` holds Wᵀ); returns k×n
/// words, row-major.
///
/// # Panics
/// Unless `x` and `w` have k·m and m·n numbers.
pub fn product_small(x: &[u64], w: &[i32], k: usize, m: usize, n: usize) -> Vec<u64> {
    product_small_with(Cpu::get(), x, w, k, m, n)
}

fn product_small_with(cpu: Cpu, x: &[u64], w: &[i32], k: usize, m: usize, n: usize) -> Vec<u64> {
    assert!(x.len() == k * m && w.len() == m * n, "matrices of k·m and m·n");
    let mut out = vec![0; k * n];
    let _ = cpu;
    #[cfg(target_arch = "x86_64")]
    if cpu.ifma().is_some() || cpu.fma().is_some_and(|have| have.wide()) {
        // SAFETY: either token proves AVX-512 F and DQ.
        unsafe { eight(x, w, m, n, &mut out) }
        return out;
    }
    #[cfg(target_arch = "x86_64")]
    if cpu.fma().is_some() {
        // SAFETY: the token proves AVX2.
        unsafe { four(x, w, m, n, &mut out) }
        return out;
    }
    body(x, w, m, n, &mut out);
    out
}

/// # Safety
/// The processor has AVX-512 F and DQ.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,avx512f,avx512dq")]
unsafe fn eight(x: &[u64], w: &[i32], m: usize, n: usize, out: &mut [u64]) {
    body(x, w, m, n, out);
}

/// # Safety
/// The processor has AVX2.
#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2")]
unsafe fn four(x: &[u64], w: &[i32], m: usize, n: usize, out: &mut [u64]) {
    body(x, w, m, n, out);
}

/// All rows pass over a few columns, which stay in a first-level cache.
#[inline(always)]
fn body(x: &[u64], w: &[i32], m: usize, n: usize, out: &mut [u64]) {
    if m == 0 || n == 0 {
        return;
    }
    for (group, w) in w.chunks(COLUMNS * m).enumerate() {
        let columns = w.len() / m;
        // If fewer columns are left, the first of them stands in for the missing ones.
        let column = |c: usize| &w[if c < columns { c * m } else { 0 }..][..m];
        for (row, out) in x.chunks_exact(m).zip(out.chunks_exact_mut(n)) {
            let sums = dot_four(row, [0, 1, 2, 3].map(column));
            let out = &mut out[group * COLUMNS..][..columns];
            out.copy_from_slice(&sums[..columns]);
        }
    }
    for (row, out) in x.chunks_exact(m).zip(out.chunks_exact_mut(n)) {
        let sum = row.iter().fold(0u64, |s, &x| s.wrapping_add(x));
        let correction = sum.wrapping_shl(31);
        out.iter_mut().for_each(|o| *o = o.wrapping_sub(correction));
    }
}

/// Σ_j x_j·(w_j + 2^31) modulo 2^64 for four w.
#[inline(always)]
fn dot_four(x: &[u64], w: [&[i32]; COLUMNS]) -> [u64; COLUMNS] {
    let (mut low, mut high) = ([0u64; COLUMNS], [0u64; COLUMNS]);
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

#[cfg(test)]
mod tests {
    use super::*;

    const SHAPES: [(usize, usize, usize); 6] = [(1, 1, 1), (3, 5, 2), (2, 8, 7), (4, 33, 4), (1, 50, 9), (0, 3, 2)];

    fn word(i: usize) -> u64 {
        (i as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(31)
    }

    #[test]
    fn products_of_words_equal_wide_integers_on_every_kernel() {
        for (k, m, n) in SHAPES {
            let mut x: Vec<u64> = (0..k * m).map(word).collect();
            x.iter_mut().take(1).for_each(|x| *x = u64::MAX);
            let y: Vec<u64> = (0..m * n).map(|i| word(i + 1000)).collect();
            let term = |i: usize, j: usize, c: usize| (u128::from(x[i * m + j]) * u128::from(y[j * n + c])) as u64;
            let sum = |e: usize| (0..m).fold(0u64, |s, j| s.wrapping_add(term(e / n, j, e % n)));
            let expected: Vec<u64> = (0..k * n).map(sum).collect();
            for cpu in Cpu::variants() {
                let found = product_with(cpu, &x, &y, k, m, n);
                assert_eq!(found, expected, "{}", cpu.kernel_name());
            }
        }
    }

    #[test]
    fn products_equal_wide_integers_on_every_kernel() {
        for (k, m, n) in SHAPES {
            let mut x: Vec<u64> = (0..k * m).map(word).collect();
            x.iter_mut().take(1).for_each(|x| *x = u64::MAX);
            let mut w: Vec<i32> = (0..m * n).map(|i| word(i + 1000) as i32).collect();
            w[0] = i32::MIN;
            w[m * n - 1] = i32::MAX;
            let expected: Vec<u64> = (0..k * n)
                .map(|e| {
                    let (i, c) = (e / n, e % n);
                    let term = |j: usize| (i128::from(x[i * m + j]) * i128::from(w[c * m + j])) as u64;
                    (0..m).fold(0u64, |s, j| s.wrapping_add(term(j)))
                })
                .collect();
            for cpu in Cpu::variants() {
                let found = product_small_with(cpu, &x, &w, k, m, n);
                assert_eq!(found, expected, "{}", cpu.kernel_name());
            }
        }
    }
}
