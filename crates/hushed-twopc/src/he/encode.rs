//! Coefficient encodings of matrix blocks, and decoding from interleaved products, all in the clear.
//!
//! With blocks A (kw×mw) and B (mw×nw) and w = mw·nw (BumbleBee, NDSS 2025, §III-A, with the row stride corrected from
//! the printed kw·mw to mw·nw):
//!   πlhs(A): `A[i,j]` at exponent i·w − j, a negative exponent −j being `−A[0,j]` at N − j (X^N = −1)
//!   πrhs(B): `B[j,c]` at exponent c·mw + j
//! so that `(A·B)[i,c]` is the coefficient (i·nw + c)·mw of πlhs(A)·πrhs(B): the exponents i·w + c·mw + (j' − j) are
//! multiples of mw exactly if j' = j, because |j' − j| < mw. They stay below kw·w ≤ N, and those that wrap are −1 …
//! −(mw−1), which are not multiples of mw either.
//!
//! Interleaving puts coefficient t·mw of leaf j at t·mw + slot(j). [`wanted`] walks exactly those coefficients.

use super::interleave::slot;
use super::window::{Encrypted, OltTiling, Packing, Window};
use std::ops::Range;

/// A row-major matrix, viewed directly or transposed.
#[derive(Clone, Copy)]
pub struct View<'a, T> {
    words: &'a [T],
    rows: usize,
    columns: usize,
    row_stride: usize,
    column_stride: usize,
}

impl<'a, T: Copy> View<'a, T> {
    /// `words` as rows×columns, row-major.
    pub fn new(words: &'a [T], rows: usize, columns: usize) -> Self {
        debug_assert_eq!(words.len(), rows * columns);
        Self { words, rows, columns, row_stride: columns, column_stride: 1 }
    }

    /// The transposed matrix.
    pub fn transposed(self) -> Self {
        Self {
            words: self.words,
            rows: self.columns,
            columns: self.rows,
            row_stride: self.column_stride,
            column_stride: self.row_stride,
        }
    }

    pub(super) fn rows(&self) -> usize {
        self.rows
    }

    pub(super) fn columns(&self) -> usize {
        self.columns
    }

    /// Some rows of a column, if columns are contiguous in memory.
    pub(super) fn column(&self, column: usize, rows: Range<usize>) -> Option<&'a [T]> {
        let first = column * self.column_stride;
        (self.row_stride == 1).then(|| &self.words[first + rows.start..first + rows.end])
    }

    fn at(&self, row: usize, column: usize) -> T {
        self.words[row * self.row_stride + column * self.column_stride]
    }
}

/// Writes πlhs of block (α, β) of `matrix` into `out`, which must be zero: N coefficients modulo 2^64. Entries outside
/// the matrix are zero. The columns are shifted by `offset` within the window (a folded batch).
pub fn encode_left(matrix: View<'_, u64>, window: Window, offset: usize, alpha: usize, beta: usize, out: &mut [u64]) {
    let degree = out.len();
    let Window { kw, mw, nw } = window;
    let (row0, column0) = (alpha * kw, beta * mw);
    for i in 0..kw.min(matrix.rows - row0) {
        for j in 0..mw.min(matrix.columns - column0) {
            let value = matrix.at(row0 + i, column0 + j);
            match (i * mw * nw).checked_sub(offset + j) {
                Some(exponent) => out[exponent] = value,
                None => out[degree - offset - j] = value.wrapping_neg(),
            }
        }
    }
}

/// Writes πrhs of block (β, γ) of `matrix` into `out`, of length [`right_prefix`]: the coefficients beyond are zero
/// because of the packing alone, whatever the values. The rows are shifted by `offset` as in [`encode_left`].
pub fn encode_right<T: Copy, U: Copy + Default>(
    matrix: View<'_, T>,
    window: Window,
    offset: usize,
    beta: usize,
    gamma: usize,
    out: &mut [U],
    convert: impl Fn(T) -> U,
) {
    let Window { mw, nw, .. } = window;
    debug_assert_eq!(out.len(), right_prefix(window));
    out.fill(U::default());
    let (row0, column0) = (beta * mw, gamma * nw);
    let rows = row0..row0 + mw.min(matrix.rows - row0);
    for c in 0..nw.min(matrix.columns - column0) {
        let out = &mut out[c * mw + offset..][..rows.len()];
        match matrix.column(column0 + c, rows.clone()) {
            Some(column) => {
                out.iter_mut().zip(column).for_each(|(out, &v)| *out = convert(v));
            }
            None => {
                let column = rows.clone().map(|row| matrix.at(row, column0 + c));
                out.iter_mut().zip(column).for_each(|(out, v)| *out = convert(v));
            }
        }
    }
}

/// Number of leading coefficients that πrhs can touch.
pub fn right_prefix(window: Window) -> usize {
    window.mw * window.nw
}

/// A wanted coefficient of a response.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Wanted {
    /// The one of the given leaves that holds it.
    pub leaf: usize,
    /// Its index in that leaf.
    pub coefficient: usize,
    /// Its position in the response.
    pub position: usize,
    /// Index into the caller's row-major batch×k×n result.
    pub cell: usize,
}

/// The wanted coefficients of some leaves of `tiling` in a response with a tree of `size`, in ascending position. They
/// are the leaves of the response from number `first` on.
pub fn wanted(tiling: &OltTiling, leaves: Range<usize>, first: usize, size: usize) -> Vec<Wanted> {
    let Window { kw, mw, nw } = tiling.window();
    let inner = tiling.inner_shape();
    let transposed = tiling.encrypted() == Encrypted::Right;
    let leaves: Vec<(usize, usize, usize)> = leaves.map(|leaf| tiling.leaf(leaf)).collect();
    // In ascending position; PackLWEs takes them in any order, as a position is a coefficient's number there.
    let order: Vec<usize> = match tiling.packing() {
        Packing::InterLeave | Packing::Krdy => (0..size).map(|place| slot(place, size)).collect(),
        Packing::PackLwes => (0..leaves.len()).collect(),
    };
    // Each leaf with its slot, and the start, row and column of its first cell in its product.
    let cell = |&place: &usize| {
        let leaf = place.checked_sub(first)?;
        let &(product, alpha, gamma) = leaves.get(leaf)?;
        let start = product * inner.k * inner.n;
        Some((leaf, slot(place, size), start, alpha * kw, gamma * nw))
    };
    let firsts: Vec<_> = order.iter().filter_map(cell).collect();
    let mut out = Vec::with_capacity(leaves.len() * kw * nw);
    for t in 0..kw * nw {
        let (down, right, coefficient) = (t / nw, t % nw, t * mw);
        for &(leaf, place, start, row, column) in &firsts {
            let (row, column) = (row + down, column + right);
            if row >= inner.k || column >= inner.n {
                continue;
            }
            let cell = if transposed { column * inner.k + row } else { row * inner.n + column };
            let position = match tiling.packing() {
                Packing::InterLeave | Packing::Krdy => coefficient + place,
                Packing::PackLwes => slot(out.len(), size),
            };
            out.push(Wanted { leaf, coefficient, position, cell: start + cell });
        }
    }
    if tiling.packing() == Packing::PackLwes {
        out.sort_unstable_by_key(|w| w.position);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::super::window::OltShape;
    use super::super::wire::Wire;
    use super::*;
    use crate::link::Link;

    const DEGREE: usize = 32;

    fn wire() -> Wire {
        Wire {
            degree: DEGREE,
            input_bytes: 100,
            response_bytes: 100,
            response_bits: 66,
            product_limbs: 2,
            packing_limbs: 2,
        }
    }

    /// a·b mod X^N + 1 and mod 2^64, by definition.
    fn multiply(a: &[u64], b: &[u64]) -> Vec<u64> {
        let n = a.len();
        let mut out = vec![0u64; n];
        for (i, &x) in a.iter().enumerate() {
            for (j, &y) in b.iter().enumerate() {
                let term = x.wrapping_mul(y);
                if i + j < n {
                    out[i + j] = out[i + j].wrapping_add(term);
                } else {
                    out[i + j - n] = out[i + j - n].wrapping_sub(term);
                }
            }
        }
        out
    }

    fn words(count: usize, seed: u64) -> Vec<u64> {
        (0..count as u64)
            .map(|i| {
                (i + 1 + seed).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(23).wrapping_mul(0xbf58_476d_1ce4_e5b9)
            })
            .collect()
    }

    /// InterLeave by its definition: c[i] = a_{i mod 2^r}[⌊i/2^r⌋·2^r], with leaf j as a_slot(j).
    fn interleave(leaves: &[Vec<u64>], size: usize) -> Vec<u64> {
        (0..DEGREE).map(|i| leaves.get(slot(i % size, size)).map_or(0, |leaf| leaf[i / size * size])).collect()
    }

    fn evaluate(tiling: &OltTiling, q: &[u64], v: &[u64], shape: OltShape) -> Vec<u64> {
        let OltShape { k, m, n } = shape;
        // (encrypted operand, multiplying operand)
        let operands = |p: usize| {
            let left = View::new(&q[p * k * m..(p + 1) * k * m], k, m);
            let right = View::new(&v[p * m * n..(p + 1) * m * n], m, n);
            match tiling.encrypted() {
                Encrypted::Left => (left, right),
                Encrypted::Right => (right.transposed(), left.transposed()),
            }
        };
        let inputs: Vec<Vec<u64>> = (0..tiling.inputs())
            .map(|input| {
                let (first, alpha, beta) = tiling.input(input);
                let mut a = vec![0; DEGREE];
                for p in first..(first + tiling.fold()).min(tiling.batch()) {
                    encode_left(operands(p).0, tiling.window(), tiling.fold_offset(p), alpha, beta, &mut a);
                }
                a
            })
            .collect();
        let mut out = vec![0u64; tiling.batch() * k * n];
        let mut seen = vec![false; out.len()];
        for response in 0..tiling.responses() {
            let leaves: Vec<Vec<u64>> = tiling
                .response_leaves(response)
                .map(|leaf| {
                    let (product, alpha, gamma) = tiling.leaf(leaf);
                    let mut sum = vec![0u64; DEGREE];
                    for (beta, input) in tiling.inputs_of(product, alpha).enumerate() {
                        let mut b = vec![0; right_prefix(tiling.window())];
                        let right = operands(product).1;
                        let offset = tiling.fold_offset(product);
                        encode_right(right, tiling.window(), offset, beta, gamma, &mut b, |x| x);
                        b.resize(DEGREE, 0);
                        for (s, t) in sum.iter_mut().zip(multiply(&inputs[input], &b)) {
                            *s = s.wrapping_add(t);
                        }
                    }
                    sum
                })
                .collect();
            let merged = interleave(&leaves, tiling.tree_size(response));
            let mut last = None;
            for Wanted { leaf, coefficient, position, cell } in
                wanted(tiling, tiling.response_leaves(response), 0, tiling.tree_size(response))
            {
                assert!(last.is_none_or(|l| l < position), "positions must ascend");
                last = Some(position);
                assert!(position < DEGREE);
                if tiling.packing() == Packing::PackLwes {
                    out[cell] = leaves[leaf][coefficient];
                    assert!(!std::mem::replace(&mut seen[cell], true), "cell {cell} twice");
                    continue;
                }
                out[cell] = merged[position];
                assert!(!std::mem::replace(&mut seen[cell], true), "cell {cell} twice");
            }
        }
        assert!(seen.iter().all(|&s| s), "every cell is produced");
        out
    }

    fn clear(q: &[u64], v: &[u64], shape: OltShape, batch: usize) -> Vec<u64> {
        let OltShape { k, m, n } = shape;
        let mut out = vec![0u64; batch * k * n];
        for b in 0..batch {
            for i in 0..k {
                for j in 0..m {
                    for c in 0..n {
                        let term = q[b * k * m + i * m + j].wrapping_mul(v[b * m * n + j * n + c]);
                        let cell = &mut out[b * k * n + i * n + c];
                        *cell = cell.wrapping_add(term);
                    }
                }
            }
        }
        out
    }

    fn check(shape: OltShape, batch: usize, tiling: &OltTiling) {
        let q = words(batch * shape.k * shape.m, 1);
        let v = words(batch * shape.m * shape.n, 2);
        assert_eq!(evaluate(tiling, &q, &v, shape), clear(&q, &v, shape, batch), "{tiling:?}");
    }

    #[test]
    fn every_window_of_every_small_shape_gives_the_product() {
        for k in 1..=5 {
            for m in [1, 2, 3, 5, 8] {
                for n in 1..=4 {
                    for encrypted in [Encrypted::Left, Encrypted::Right] {
                        for packing in [Packing::InterLeave, Packing::Krdy, Packing::PackLwes] {
                            windows(OltShape { k, m, n }, 1, encrypted, packing);
                        }
                    }
                }
            }
        }
    }

    fn windows(shape: OltShape, batch: usize, encrypted: Encrypted, packing: Packing) {
        for mw in [1, 2, 4, 8, 16, 32] {
            for kw in 1..=(DEGREE / mw).min(6) {
                for nw in 1..=(DEGREE / (mw * kw)).min(5) {
                    let window = Window { kw, mw, nw };
                    let tiling = OltTiling::with_window(shape, batch, encrypted, packing, window, &wire()).unwrap();
                    check(shape, batch, &tiling);
                }
            }
        }
    }

    #[test]
    fn batches_share_responses() {
        for batch in [2, 3, 7, 12] {
            for shape in [OltShape { k: 3, m: 5, n: 2 }, OltShape { k: 1, m: 1, n: 1 }, OltShape { k: 4, m: 4, n: 4 }] {
                windows(shape, batch, Encrypted::Left, Packing::InterLeave);
                windows(shape, batch, Encrypted::Right, Packing::InterLeave);
            }
        }
    }

    #[test]
    fn chosen_plans_give_the_product() {
        for shape in [
            OltShape { k: 1, m: 50, n: 7 },
            OltShape { k: 16, m: 38, n: 11 },
            OltShape { k: 33, m: 2, n: 3 },
            OltShape { k: 40, m: 40, n: 40 },
        ] {
            for batch in [1, 3] {
                for side in [Encrypted::Left, Encrypted::Right] {
                    let packing = Packing::InterLeave;
                    let tiling = OltTiling::choose(shape, batch, side, packing, &wire(), &Link::LAN);
                    check(shape, batch, &tiling.unwrap());
                }
            }
        }
    }

    #[test]
    fn the_papers_example() {
        // Figure 3: N = 16, 8 of 16 coefficients wanted.
        let window = Window { kw: 4, mw: 2, nw: 2 };
        let mut q = vec![0; 16];
        encode_left(View::new(&[1, 2, 3, 4, 5, 6, 7, 8], 4, 2), window, 0, 0, 0, &mut q);
        let negative = 2u64.wrapping_neg();
        assert_eq!(q, [1, 0, 0, 4, 3, 0, 0, 6, 5, 0, 0, 8, 7, 0, 0, negative]);
        let mut v = vec![0; 4];
        encode_right(View::new(&[9u64, 10, 11, 12], 2, 2), window, 0, 0, 0, &mut v, |x| x);
        assert_eq!(v, [9, 11, 10, 12]);
        v.resize(16, 0);
        let product: Vec<u64> = multiply(&q, &v).iter().step_by(2).map(|x| x % 32).collect();
        assert_eq!(product, [31, 2, 7, 14, 15, 26, 23, 6]);
    }
}
