//! Other algorithms for Q·Kᵀ of one head than [`hushed_fhe::packing::products::scores`]: MOAI's algorithm 7, texts one
//! after the other, and ENSI's, which extracts every element.

use hushed_fhe::packing::{Columns, Diagonals, PackingError};
use hushed_fhe::{FheError, Slots};
use rayon::prelude::*;

/// Q·Kᵀ as in the paper (algorithm 7): every column of K rotated by every j.
///
/// # Errors
/// [`PackingError::Mismatch`]; errors of the arithmetic.
pub fn scores_by_paper<S: Slots>(
    on: &S,
    q: &Columns<S::Value>,
    k: &Columns<S::Value>,
) -> Result<Diagonals<S::Value>, FheError> {
    let layout = q.layout();
    check(layout == k.layout() && q.width() == k.width() && q.width() > 0)?;
    let keys: Vec<S::Hoisted<'_>> = hoisted(on, k.vectors())?;
    let queries: Vec<Vec<S::Value>> = q.vectors().iter().map(|q| vec![q.clone()]).collect();
    let diagonal = |j: usize| -> Result<S::Value, FheError> {
        let turn = |key| Ok(vec![on.rotate_hoisted(key, layout.rotation(j))?]);
        let turned = keys.par_iter().map(turn);
        let turned = turned.collect::<Result<Vec<_>, FheError>>()?;
        only(on.dot_grid(&queries, &turned)?)
    };
    let diagonals = (0..layout.rows()).map(diagonal);
    let diagonals = diagonals.collect::<Result<_, FheError>>()?;
    Ok(Diagonals::from_vectors(layout, diagonals)?)
}

/// Q·Kᵀ in naive batching (D.1): entry t of text r lies in slot r·m + t, so rotating all texts takes two slot
/// rotations, and two masks that cost a level. Gives the diagonals, in the same batching.
///
/// # Errors
/// [`PackingError::Mismatch`]; errors of the arithmetic.
pub fn scores_naive<S: Slots>(on: &S, q: &[S::Value], k: &[S::Value], m: usize) -> Result<Vec<S::Value>, FheError> {
    check(!q.is_empty() && q.len() == k.len())?;
    check(m > 0 && on.slots().is_multiple_of(m))?;
    let keys: Vec<S::Hoisted<'_>> = hoisted(on, k)?;
    let queries: Vec<Vec<S::Value>> = q.iter().map(|q| vec![q.clone()]).collect();
    let diagonal = |j: usize| -> Result<S::Value, FheError> {
        let turn = |(key, plain)| Ok(vec![internal_rotation(on, key, plain, m, j)?]);
        let turned = keys.par_iter().zip(k).map(turn);
        let turned = turned.collect::<Result<Vec<_>, FheError>>()?;
        only(on.dot_grid(&queries, &turned)?)
    };
    (0..m).map(diagonal).collect()
}

/// Q·Kᵀ by ENSI's CCMM (arXiv 2509.09424, Figures 4 and 5): column i of the product is the sum over columns j of q_j ⊗
/// an element of k_j, which a mask extracts and ⌈log₂ m⌉ rotations copy to all rows of its text. The paper's count of
/// log(d·m) rotations is for one element. Gives the columns of the product, in the same packing.
///
/// # Errors
/// [`PackingError::Mismatch`], also if the number of rows is not a power of two; errors of the arithmetic.
pub fn scores_by_extraction<S: Slots>(
    on: &S,
    q: &Columns<S::Value>,
    k: &Columns<S::Value>,
) -> Result<Vec<S::Value>, FheError> {
    let (layout, m) = (q.layout(), q.layout().rows());
    check(layout == k.layout() && q.width() == k.width() && m.is_power_of_two())?;
    let queries: Vec<Vec<S::Value>> = q.vectors().iter().map(|q| vec![q.clone()]).collect();
    let column = |i: usize| -> Result<S::Value, FheError> {
        let here = |slot: usize| f64::from(u8::from(slot / layout.texts() == i));
        let mask = on.plain(|| (0..on.slots()).map(here).collect());
        let element = |k: &S::Value| -> Result<Vec<S::Value>, FheError> {
            let mut x = on.mul_vector(k, &mask, on.scale(k))?;
            for step in 0..m.trailing_zeros() {
                let turned = on.rotate(&x, layout.rotation(1 << step))?;
                on.add_assign(&mut x, &turned)?;
            }
            Ok(vec![x])
        };
        let elements = k.vectors().par_iter().map(element);
        only(on.dot_grid(&queries, &elements.collect::<Result<Vec<_>, FheError>>()?)?)
    };
    (0..m).map(column).collect()
}

/// Rotates every text of `plain`, m slots each, by `j` within itself: Rot_j ⊗ (t < m − j) + Rot_{j−m} ⊗ (t ≥ m − j).
fn internal_rotation<S: Slots>(
    on: &S,
    hoisted: &S::Hoisted<'_>,
    plain: &S::Value,
    m: usize,
    j: usize,
) -> Result<S::Value, FheError> {
    let scale = on.scale(plain);
    if j == 0 {
        let limbs = on.limbs(plain);
        let less = limbs.saturating_sub(on.level_primes(limbs).max(1));
        return on.drop_to(plain, less);
    }
    let mask = |inside: &dyn Fn(usize) -> bool| -> Vec<f64> {
        let slot = |i: usize| f64::from(u8::from(inside(i % m)));
        (0..on.slots()).map(slot).collect()
    };
    let ahead = on.rotate_hoisted(hoisted, j)?;
    let mut sum = on.mul_vector(&ahead, &mask(&|t| t < m - j), scale)?;
    let behind = on.rotate_hoisted(hoisted, (on.slots() + j - m) % on.slots())?;
    let behind = on.mul_vector(&behind, &mask(&|t| t >= m - j), scale)?;
    on.add_assign(&mut sum, &behind)?;
    Ok(sum)
}

fn hoisted<'a, S: Slots>(on: &'a S, vectors: &'a [S::Value]) -> Result<Vec<S::Hoisted<'a>>, FheError> {
    vectors.par_iter().map(|v| on.hoist(v)).collect()
}

fn only<T>(grid: Vec<Vec<T>>) -> Result<T, FheError> {
    let first = grid.into_iter().flatten().next();
    first.ok_or_else(|| PackingError::Mismatch.into())
}

fn check(fits: bool) -> Result<(), PackingError> {
    fits.then_some(()).ok_or(PackingError::Mismatch)
}

#[cfg(test)]
mod tests {
    use hushed_ckks::CkksParams;
    use hushed_fhe::Simulator;
    use hushed_fhe::packing::Interleave;
    use hushed_fhe::simulate::{Op, Vector};

    use super::*;

    const SLOTS: usize = 16;

    fn simulator() -> Simulator {
        Simulator::new(&CkksParams::insecure_test(7, 4).unwrap(), SLOTS).unwrap()
    }

    /// Entry (row, column) of a text; no two are equal.
    fn entry(text: usize, row: usize, column: usize, salt: usize) -> f64 {
        let at = ((text * 16 + row) * 16 + column + 1) * (2 * salt + 1_234_567);
        (at % 10_007) as f64 / 1000.0 - 5.0
    }

    /// Columns of every text, with rows in the slots given by `place`.
    fn columns(
        on: &Simulator,
        width: usize,
        m: usize,
        salt: usize,
        place: impl Fn(usize) -> (usize, usize),
    ) -> Vec<Vector> {
        let column = |c: usize| {
            let slot = |i: usize| {
                let (text, row) = place(i);
                assert!(row < m);
                entry(text, row, c, salt)
            };
            on.vector((0..SLOTS).map(slot).collect(), on.top()).unwrap()
        };
        (0..width).map(column).collect()
    }

    fn product(text: usize, row: usize, other: usize, width: usize) -> f64 {
        let term = |c: usize| entry(text, row, c, 3) * entry(text, other, c, 8);
        (0..width).map(term).sum()
    }

    fn rotations(on: &Simulator) -> u64 {
        on.tally().counts().total(Op::Rotate)
    }

    /// Diagonal j holds entry (row, row + j) of each text in the slot of the row.
    fn assert_diagonals(found: &[Vector], m: usize, width: usize, place: impl Fn(usize) -> (usize, usize)) {
        assert_eq!(found.len(), m);
        for (j, diagonal) in found.iter().enumerate() {
            for (i, found) in diagonal.values().iter().enumerate() {
                let (text, row) = place(i);
                let want = product(text, row, (row + j) % m, width);
                assert!((found - want).abs() < 1e-9, "{j} {i}: {found} {want}");
            }
        }
    }

    #[test]
    fn algorithm_seven_rotates_every_column_by_every_row() {
        for (m, width) in [(1, 2), (4, 1), (4, 3), (8, 2), (16, 2)] {
            let (on, layout) = (simulator(), Interleave::new(SLOTS, m).unwrap());
            let texts = layout.texts();
            let place = |i: usize| (i % texts, i / texts);
            let pack = |salt| Columns::from_vectors(layout, columns(&on, width, m, salt, place));
            let found = scores_by_paper(&on, &pack(3), &pack(8)).unwrap();
            assert_eq!(rotations(&on), (width * (m - 1)) as u64);
            assert_diagonals(found.vectors(), m, width, place);
        }
    }

    /// Every element of K takes one rotation per bit of a row number.
    #[test]
    fn every_element_taken_out() {
        for (m, width) in [(1, 2), (4, 3), (8, 2), (16, 2)] {
            let (on, layout) = (simulator(), Interleave::new(SLOTS, m).unwrap());
            let texts = layout.texts();
            let place = |i: usize| (i % texts, i / texts);
            let pack = |salt| Columns::from_vectors(layout, columns(&on, width, m, salt, place));
            let found = scores_by_extraction(&on, &pack(3), &pack(8)).unwrap();
            assert_eq!(rotations(&on), (m * width * m.ilog2() as usize) as u64);
            for (other, column) in found.iter().enumerate() {
                for (i, found) in column.values().iter().enumerate() {
                    let (text, row) = place(i);
                    let want = product(text, row, other, width);
                    assert!((found - want).abs() < 1e-9, "{other} {i}: {found} {want}");
                }
            }
        }
    }

    /// Texts one after the other need twice as many rotations as algorithm 7, and one level.
    #[test]
    fn naive_batching_agrees_at_twice_the_rotations() {
        for (m, width) in [(1, 2), (4, 1), (4, 3), (8, 2), (16, 2)] {
            let on = simulator();
            let place = |i: usize| (i / m, i % m);
            let pack = |salt| columns(&on, width, m, salt, place);
            let found = scores_naive(&on, &pack(3), &pack(8), m).unwrap();
            assert_eq!(rotations(&on), (2 * width * (m - 1)) as u64);
            assert_diagonals(&found, m, width, place);
        }
    }
}
