//! All inner products of two lists of vectors: `grid[i][j]` = Σ_k `left[k][i]` ⊗ `right[k][j]`, each relinearised and
//! rescaled once.
//!
//! Done product by product, this is memory-bound: each product reads two operands and updates three sums. At N = 2^16,
//! 17 primes and 16 × 8 sums of 32 terms, that is 0.3 TB. A word of a sum depends only on the same word of all
//! operands, so the work is cut into strips of words of one limb. The operands' strips stay in the L2 cache while every
//! sum passes over them, and each operand is read from memory once per block of grid rows ([`BLOCK_BYTES`]). Within a
//! strip, sums of 104 bits are reduced once ([`hushed_math::Pointwise::dot_pair`]).
//!
//! Relinearisations take most of the time. They run block by block, so that few three-part sums are in memory at once.
//! Each one is itself parallel.

use std::ops::Range;

use hushed_math::RnsPoly;
use rayon::prelude::*;

use super::limbs::Part;
use super::{Evaluator, Tensor};
use crate::ciphertext::Ciphertext;
use crate::gemm::{GemmError, check_count};
use crate::noise::Noise;
use crate::scale::Scale;

/// Bytes of all operands' strips together: what any L2 cache holds.
const CACHE_BYTES: usize = 1 << 20;

/// Fewest and most words in a strip: long strips are read from memory faster, and more than a page gains nothing.
const STRIP: (usize, usize) = (1 << 6, 1 << 9);

/// Memory for sums not yet relinearised.
const BLOCK_BYTES: usize = 1 << 30;

/// What the operands of a grid have in common.
struct Shape {
    terms: usize,
    rows: usize,
    columns: usize,
    limbs: usize,
    scale: Scale,
}

impl Evaluator {
    /// `grid[i][j]` = Σ_k `left[k][i]`·`right[k][j]`, one level below the shortest operand.
    ///
    /// The counters record its products, relinearisations and rescales.
    ///
    /// # Errors
    /// [`GemmError::Count`] if there are no terms, or lists differ in length; [`GemmError::Ckks`] if scales within a
    /// side do not match, for [`crate::CkksError::OtherParameters`], and as for [`Evaluator::relinearize_rescale`].
    pub fn dot_grid(
        &self,
        left: &[Vec<Ciphertext>],
        right: &[Vec<Ciphertext>],
    ) -> Result<Vec<Vec<Ciphertext>>, GemmError> {
        let shape = self.grid_shape(left, right)?;
        let sum_bytes = 3 * shape.limbs * self.params.n() * 8;
        let block = (BLOCK_BYTES / (sum_bytes * shape.columns)).max(1);
        let mut grid = Vec::with_capacity(shape.rows);
        for start in (0..shape.rows).step_by(block) {
            let rows = start..(start + block).min(shape.rows);
            let mut sums = self.tensor_grid(left, right, &shape, rows).into_iter();
            while sums.len() > 0 {
                let row = sums.by_ref().take(shape.columns);
                let row = row.map(|sum| self.relinearize_rescale(&sum));
                grid.push(row.collect::<Result<_, _>>()?);
            }
        }
        Ok(grid)
    }

    fn grid_shape(&self, left: &[Vec<Ciphertext>], right: &[Vec<Ciphertext>]) -> Result<Shape, GemmError> {
        let terms = left.len();
        check_count("terms on the right", terms, right.len())?;
        let [rows, columns] = [left, right].map(|side| side.first().map_or(0, Vec::len));
        for (what, side, count) in [("operands on the left", left, rows), ("operands on the right", right, columns)] {
            for list in side {
                check_count(what, count.max(1), list.len())?;
            }
        }
        let (Some(x), Some(y)) = (left.iter().flatten().next(), right.iter().flatten().next()) else {
            return Err(GemmError::Count { what: "terms", expected: 1, found: 0 });
        };
        let mut limbs = x.limbs();
        for (first, side) in [(x, left), (y, right)] {
            for ct in side.iter().flatten() {
                limbs = limbs.min(self.check_pair(first, ct, "dot_grid")?);
                first.scale.check(ct.scale, "dot_grid")?;
            }
        }
        Ok(Shape { terms, rows, columns, limbs, scale: x.scale.times(y.scale) })
    }

    /// The sums of the given rows of the grid, row by row, not relinearised.
    fn tensor_grid(
        &self,
        left: &[Vec<Ciphertext>],
        right: &[Vec<Ciphertext>],
        shape: &Shape,
        rows: Range<usize>,
    ) -> Vec<Tensor> {
        let basis = self.params.rlwe().basis();
        let ids = self.params.rlwe().ciphertext_ids(shape.limbs);
        let mut sums: Vec<Tensor> = rows
            .clone()
            .flat_map(|i| (0..shape.columns).map(move |j| (i, j)))
            .map(|(i, j)| Tensor {
                d: [0; 3].map(|_| RnsPoly::scratch(basis, &ids)),
                scale: shape.scale,
                noise: left
                    .iter()
                    .zip(right)
                    .map(|(left, right)| {
                        let (left, right) = (&left[i], &right[j]);
                        let product = left.noise.product(right.noise, self.params.n());
                        product.read_at(left.scale.times(right.scale), shape.scale)
                    })
                    .reduce(Noise::sum)
                    .unwrap_or(Noise::UNKNOWN),
                quadratic: true,
            })
            .collect();
        let terms = sums.len() * shape.terms;
        self.counters.ct_mul.many(terms);
        self.counters.products.many(4 * shape.limbs * terms);
        let width = strip_words(shape.terms * (rows.len() + shape.columns)).min(self.params.n());
        let strips = self.params.n() / width;
        // For each strip of each limb, the words of all sums, three parts per sum.
        let mut targets: Vec<Vec<[&mut [u64]; 3]>> =
            (0..shape.limbs * strips).map(|_| Vec::with_capacity(rows.len() * shape.columns)).collect();
        for Tensor { d, .. } in &mut sums {
            let [d0, d1, d2] = d.each_mut().map(|d| {
                let limbs = d.limbs_mut();
                limbs.flat_map(|(_, limb)| limb.chunks_exact_mut(width))
            });
            for (target, ((d0, d1), d2)) in targets.iter_mut().zip(d0.zip(d1).zip(d2)) {
                target.push([d0, d1, d2]);
            }
        }
        let work = targets.into_par_iter().enumerate();
        work.for_each(|(index, mut target)| {
            let (limb, start) = (index / strips, index % strips * width);
            let words = |side, operand| strip(side, operand, limb, start..start + width);
            let y: Vec<_> = (0..shape.columns).map(|j| words(right, j)).collect();
            let pointwise = basis.ntt(limb).pointwise();
            for (i, sums) in rows.clone().zip(target.chunks_exact_mut(shape.columns)) {
                let [xb, xa] = words(left, i);
                for ([d0, d1, d2], [yb, ya]) in sums.iter_mut().zip(&y) {
                    pointwise.dot_pair([d0, d1], &xb, [yb, ya]);
                    d2.fill(0);
                    pointwise.dot_pair_assign([d1, d2], &xa, [yb, ya]);
                }
            }
        });
        sums
    }
}

/// Words in a strip for this many operands: a power of two.
fn strip_words(operands: usize) -> usize {
    let (least, most) = STRIP;
    let fit = CACHE_BYTES / (2 * size_of::<u64>() * operands.max(1));
    let mut words = least;
    while 2 * words <= fit.min(most) {
        words *= 2;
    }
    words
}

/// The given words of one limb of an operand, for each term: of b and of a.
fn strip(side: &[Vec<Ciphertext>], operand: usize, limb: usize, words: Range<usize>) -> [Vec<&[u64]>; 2] {
    let of = |part: Part| {
        let limbs = side.iter().map(|list| part.of(&list[operand]).limb(limb));
        limbs.map(|limb| &limb[words.clone()]).collect()
    };
    [of(Part::B), of(Part::A)]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keys::KeySpecs;
    use crate::params::CkksParams;
    use crate::testing::Fixture;

    fn operands(f: &mut Fixture, terms: usize, count: usize, limbs: usize) -> Vec<Vec<Ciphertext>> {
        let mut list = |_| {
            let one = |_| {
                let x = f.random();
                f.encrypt(&x, limbs)
            };
            (0..count).map(one).collect()
        };
        (0..terms).map(&mut list).collect()
    }

    fn fixture(seed: u64) -> Fixture {
        let params = CkksParams::insecure_test(10, 4).unwrap();
        let mut specs = KeySpecs::new();
        specs.relin(params.fresh_limbs(), 7);
        Fixture::new(&params, &specs, seed)
    }

    /// Same bytes, error estimate and counts as summing the products one by one.
    #[test]
    fn grids_are_sums_of_products() {
        let mut f = fixture(1);
        for (terms, rows, columns) in [(1, 1, 1), (3, 2, 4), (5, 4, 1)] {
            let left = operands(&mut f, terms, rows, 7);
            let right = operands(&mut f, terms, columns, 6);
            let e = &f.evaluator;
            let before = e.counters().snapshot();
            let grid = e.dot_grid(&left, &right).unwrap();
            let counts = e.counters().snapshot().since(&before);
            let before = e.counters().snapshot();
            assert_eq!((grid.len(), grid[0].len()), (rows, columns));
            for (i, row) in grid.iter().enumerate() {
                for (j, found) in row.iter().enumerate() {
                    let mut sum = e.tensor(&left[0][i], &right[0][j]).unwrap();
                    for k in 1..terms {
                        e.tensor_add_assign(&mut sum, &left[k][i], &right[k][j]).unwrap();
                    }
                    let expected = e.relinearize_rescale(&sum).unwrap();
                    assert!(found.b() == expected.b() && found.a() == expected.a());
                    assert_eq!(found.scale(), expected.scale());
                    assert_eq!(found.noise(), expected.noise());
                    assert_eq!(found.limbs(), 5);
                }
            }
            assert_eq!(counts, e.counters().snapshot().since(&before));
            assert_eq!(counts.ct_mul as usize, terms * rows * columns);
        }
    }

    #[test]
    fn refusals() {
        let mut f = fixture(2);
        let (x, y) = (operands(&mut f, 2, 2, 5), operands(&mut f, 2, 3, 5));
        let e = &f.evaluator;
        assert!(matches!(e.dot_grid(&x, &y[..1]), Err(GemmError::Count { .. })));
        assert!(e.dot_grid(&[], &[]).is_err() && e.dot_grid(&[vec![], vec![]], &y).is_err());
        let ragged = vec![x[0].clone(), x[1][..1].to_vec()];
        assert!(matches!(e.dot_grid(&ragged, &y), Err(GemmError::Count { .. })));
        let mut scaled = x.clone();
        scaled[1][1] = scaled[1][1].clone().read_as(2.0).unwrap();
        assert!(matches!(e.dot_grid(&scaled, &y), Err(GemmError::Ckks(_))));
        let keyless = Evaluator::without_keys(&f.params);
        assert!(matches!(keyless.dot_grid(&x, &y), Err(GemmError::Ckks(_))));
    }
}
