//! The two products of encrypted matrices in attention: Q·Kᵀ (columns × columns → diagonals) and P·V (diagonals ×
//! columns → columns).
//!
//! With m rows split as m = b·g, every j < m is a·b + r:
//!
//! ```text
//! Diag_j(Q·Kᵀ) = Rot_{ab}( Σ_i Rot_{−ab}(q_i) ⊗ Rot_r(k_i) )                       (lemma 3.1, rotated by −ab)
//! col_i(P·V)   = Σ_a Rot_{ab}( Σ_r Rot_{−ab}(Diag_{ab+r}(P)) ⊗ Rot_r(v_i) )        (algorithm 8)
//! ```
//!
//! Each inner sum of products is relinearised and rescaled once. Columns are in pairs ([`Pairs`]). Key switches other
//! than relinearisations, for d' columns per head in p = d'/2 pairs:
//!
//! | | hoisted | not hoisted | m = 128, d' = 64 |
//! |---|---|---|---|
//! | [`scores`] | p·(b + g − 2) pairs | m − b diagonals, and m conjugations | 944 at b = 16 |
//! | the paper's algorithm 7 (`hushed-bench/src/baselines/packing.rs`) | d'·(m − 1) columns | | 8,128 |
//! | texts one after another (D.1; there too) | 2·d'·(m − 1) columns, and as many plaintext products | | 16,256 |
//! | [`attend`] | p·(b − 1) pairs | m − b diagonals, once per head; p·(g − 1) sums | 816, 32 conjugations of pairs |
//! | the paper's algorithm 8 | d'·(b − 1) columns | d'·(m − b) diagonals, once per column; d'·(g − 1) sums | 8,576 |
//!
//! *Memory.* [`scores`] holds b rotations of each pair of K, the decompositions of Q, and [`GIANTS`] rotations of each
//! pair of Q; it hands diagonals to the caller b at a time. At m = 128, d' = 32, b = 8 and 17 primes of N = 2^16 this
//! is 2.1 + 0.6 + 0.6 GiB. [`attend`] holds its diagonals, b rotations of [`PAIRS`] pairs, and their g·[`PAIRS`] sums:
//! at 8 primes and b = 16, 1 + 1 + 0.5 GiB.

use rayon::prelude::*;

use super::{Columns, Diagonals, Interleave, PackingError, Pairs};
use crate::{FheError, Slots};

/// Giant steps of Q·Kᵀ that share one read of the rotated keys.
pub const GIANTS: usize = 2;

/// Pairs of columns of V that share one read of the diagonals.
pub const PAIRS: usize = 8;

/// The baby steps b of the split m = b·g, a power of two, with the fewest rotations for `columns` columns in pairs.
/// Among values within a fiftieth of the least it takes the smallest, which holds the fewest rotated pairs.
pub fn baby_steps(m: usize, columns: usize) -> usize {
    let cost = |b: usize| columns.div_ceil(2) * (b + m / b - 2) + (m - b);
    let powers = (0..=m.trailing_zeros()).map(|k| 1usize << k);
    let least = powers.clone().map(cost).min().unwrap_or(0);
    let enough = |&b: &usize| cost(b) <= least + least / 50;
    powers.into_iter().find(enough).unwrap_or(1)
}

/// Q·Kᵀ of every text: m × d' by d' × m, in diagonals, with `baby` baby steps. One level below the operands; the scale
/// is twice the product of theirs divided by the divisor of that level.
///
/// # Errors
/// [`PackingError::Mismatch`] for packings or widths that differ, and those of the arithmetic.
pub fn scores<S: Slots>(
    on: &S,
    q: &Columns<S::Value>,
    k: &Columns<S::Value>,
    baby: usize,
) -> Result<Diagonals<S::Value>, FheError> {
    let (q, k) = (Pairs::new(on, q.clone())?, Pairs::conjugate(on, k.clone())?);
    let diagonals = scores_with(on, &q, k, baby, |_, diagonals| Ok(diagonals))?;
    Ok(Diagonals::from_vectors(q.layout(), diagonals)?)
}

/// As [`scores`], for pairs and conjugate pairs, returning the results of `each(j, [diagonal j, diagonal j + 1, …])`
/// instead of the diagonals: the caller's next step frees their memory early.
///
/// # Errors
/// As [`scores`], and those of `each`.
pub fn scores_with<S: Slots, T>(
    on: &S,
    q: &Pairs<S::Value>,
    k: Pairs<S::Value>,
    baby: usize,
    mut each: impl FnMut(usize, Vec<S::Value>) -> Result<Vec<T>, FheError>,
) -> Result<Vec<T>, FheError> {
    let (layout, m) = (q.layout(), q.layout().rows());
    check(layout == k.layout() && q.width() == k.width() && q.width() > 0)?;
    check(baby > 0 && m.is_multiple_of(baby))?;
    let babies: Vec<usize> = (0..baby).map(|r| layout.rotation(r)).collect();
    let keys = rotations(on, k.into_vectors(), &babies)?;
    let queries: Vec<S::Hoisted<'_>> = hoisted(on, q.vectors())?;
    let mut done = Vec::with_capacity(m);
    let giants: Vec<usize> = (0..m).step_by(baby).collect();
    for giants in giants.chunks(GIANTS) {
        let back = |query: &S::Hoisted<'_>| -> Result<Vec<S::Value>, FheError> {
            let turn = |&giant: &usize| on.rotate_hoisted(query, layout.rotation(m - giant));
            giants.iter().map(turn).collect()
        };
        let rotated = queries.par_iter().map(back).collect::<Result<Vec<_>, _>>()?;
        let grid = on.dot_grid(&rotated, &keys)?;
        drop(rotated);
        for (row, &giant) in grid.into_iter().zip(giants) {
            let rotated = row.into_par_iter();
            let rotated = rotated.map(|sum| on.real(&rotated_by(on, layout, sum, giant)?));
            done.extend(each(giant, rotated.collect::<Result<_, FheError>>()?)?);
        }
    }
    Ok(done)
}

/// P·V of every text: m × m by m × d', in pairs of columns, with `baby` baby steps. One level below the operands.
///
/// # Errors
/// As [`scores`].
pub fn attend<S: Slots>(
    on: &S,
    p: Diagonals<S::Value>,
    v: Pairs<S::Value>,
    baby: usize,
) -> Result<Pairs<S::Value>, FheError> {
    let (layout, m) = (p.layout(), p.layout().rows());
    check(layout == v.layout() && baby > 0 && m.is_multiple_of(baby))?;
    // Once for all columns: diagonal ab + r rotated by −ab.
    let back = |(j, diagonal)| rotated_by(on, layout, diagonal, m - j / baby * baby);
    let rotated = p.vectors.into_par_iter().enumerate().map(back);
    let turned = rotated.collect::<Result<Vec<_>, FheError>>()?;
    check(turned.len() == m)?;
    // Indexed by r, then by a.
    let mut diagonals: Vec<Vec<S::Value>> = (0..baby).map(|_| Vec::with_capacity(m / baby)).collect();
    for (j, diagonal) in turned.into_iter().enumerate() {
        diagonals[j % baby].push(diagonal);
    }
    let babies: Vec<usize> = (0..baby).map(|r| layout.rotation(r)).collect();
    let mut pairs = Vec::with_capacity(v.vectors().len());
    let width = v.width();
    let mut rest = v.into_vectors().into_iter();
    while rest.len() > 0 {
        let block = rest.by_ref().take(PAIRS).collect();
        let rotated = transposed(rotations(on, block, &babies)?);
        let grid = on.dot_grid(&diagonals, &rotated)?;
        let sums = transposed(grid).into_par_iter();
        let sums = sums.map(|giants| homed(on, layout, giants, baby));
        pairs.extend(sums.collect::<Result<Vec<_>, FheError>>()?);
    }
    Ok(Pairs::from_vectors(layout, pairs, width))
}

/// A pair's inner sums of giant steps, each rotated home, in one.
fn homed<S: Slots>(on: &S, layout: Interleave, giants: Vec<S::Value>, baby: usize) -> Result<S::Value, FheError> {
    let mut sum: Option<S::Value> = None;
    for (a, inner) in giants.into_iter().enumerate() {
        let inner = rotated_by(on, layout, inner, a * baby)?;
        match &mut sum {
            Some(sum) => on.add_assign(sum, &inner)?,
            None => sum = Some(inner),
        }
    }
    Ok(sum.ok_or(PackingError::Mismatch)?)
}

/// `x` rotated by `rows` rows; unchanged for a whole turn.
fn rotated_by<S: Slots>(on: &S, layout: Interleave, x: S::Value, rows: usize) -> Result<S::Value, FheError> {
    match layout.rotation(rows) {
        0 => Ok(x),
        by => on.rotate(&x, by),
    }
}

/// Every vector rotated by each of `by`, of which the first is 0.
fn rotations<S: Slots>(on: &S, vectors: Vec<S::Value>, by: &[usize]) -> Result<Vec<Vec<S::Value>>, FheError> {
    let further = by.get(1..).unwrap_or_default();
    let turn = |v: S::Value| -> Result<Vec<S::Value>, FheError> {
        let mut rotated = Vec::with_capacity(by.len());
        if !further.is_empty() {
            let hoisted = on.hoist(&v)?;
            for &by in further {
                rotated.push(on.rotate_hoisted(&hoisted, by)?);
            }
        }
        rotated.insert(0, v);
        Ok(rotated)
    };
    vectors.into_par_iter().map(turn).collect()
}

fn hoisted<'a, S: Slots>(on: &'a S, vectors: &'a [S::Value]) -> Result<Vec<S::Hoisted<'a>>, FheError> {
    vectors.par_iter().map(|v| on.hoist(v)).collect()
}

fn transposed<T>(rows: Vec<Vec<T>>) -> Vec<Vec<T>> {
    let mut columns: Vec<Vec<T>> = Vec::new();
    for row in rows {
        columns.resize_with(columns.len().max(row.len()), Vec::new);
        for (column, entry) in columns.iter_mut().zip(row) {
            column.push(entry);
        }
    }
    columns
}

fn check(fits: bool) -> Result<(), PackingError> {
    if fits { Ok(()) } else { Err(PackingError::Mismatch) }
}
