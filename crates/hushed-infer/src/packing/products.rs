//! The two products of encrypted matrices in attention: Q·Kᵀ (columns × columns → diagonals) and P·V (diagonals × columns → columns).
//!
//! With m rows split as m = b·g, every j < m is a·b + r:
//!
//! ```text
//! Diag_j(Q·Kᵀ) = Rot_{ab}( Σ_i Rot_{−ab}(q_i) ⊗ Rot_r(k_i) )                       (lemma 3.1, rotated by −ab)
//! col_i(P·V)   = Σ_a Rot_{ab}( Σ_r Rot_{−ab}(Diag_{ab+r}(P)) ⊗ Rot_r(v_i) )        (algorithm 8)
//! ```
//!
//! The inner sums are sums of products, finished once each. [`scores`] takes d'·(b + g − 2) rotations of columns, hoisted, and
//! m − b of results; the paper's algorithm 7 ([`scores_by_paper`]) takes d'·(m − 1). [`attend`] takes m − b rotations of diagonals,
//! once for a head, and b + g − 2 a column, as the paper's; the paper's formula counts the diagonals again for every column.

use super::{Columns, Diagonals, PackingError, Vectors};

/// The split m = b·g with the fewest rotations of `columns` columns, b the power of two.
pub fn baby_steps(m: usize, columns: usize) -> usize {
    let cost = |b: usize| columns * (b + m / b - 2) + (m - b);
    let powers = (0..=m.trailing_zeros()).map(|k| 1usize << k);
    powers.min_by_key(|&b| cost(b)).unwrap_or(1)
}

/// Q·Kᵀ of every text: m × d' by d' × m, in diagonals, `baby` baby steps.
///
/// # Errors
/// [`PackingError::Mismatch`], and whatever the arithmetic says.
pub fn scores<A: Vectors>(
    on: &A,
    q: &Columns<A::V>,
    k: &Columns<A::V>,
    baby: usize,
) -> Result<Diagonals<A::V>, A::Error>
where
    A::Error: From<PackingError>,
{
    let (layout, m) = (q.layout(), q.layout().rows());
    if layout != k.layout()
        || q.width() != k.width()
        || q.width() == 0
        || baby == 0
        || !m.is_multiple_of(baby)
    {
        return Err(PackingError::Mismatch.into());
    }
    let turned_keys: Vec<Vec<A::V>> =
        rotations(on, k.vectors(), (0..baby).map(|r| layout.rotation(r)))?;
    let queries: Vec<A::Hoisted> = q
        .vectors()
        .iter()
        .map(|q| on.hoist(q))
        .collect::<Result<_, _>>()?;
    let mut diagonals = Vec::with_capacity(m);
    for giant in (0..m).step_by(baby) {
        let back = layout.rotation(m - giant);
        let turned: Vec<A::V> = queries
            .iter()
            .map(|q| on.rotate(q, back))
            .collect::<Result<_, _>>()?;
        for r in 0..baby {
            let pairs = turned.iter().zip(turned_keys.iter().map(|k| &k[r]));
            let sum = on.finish(sum_of_products(on, pairs)?)?;
            let diagonal = if giant == 0 {
                sum
            } else {
                on.rotate(&on.hoist(&sum)?, layout.rotation(giant))?
            };
            diagonals.push(diagonal);
        }
    }
    Ok(Diagonals::from_vectors(layout, diagonals)?)
}

/// Q·Kᵀ as the paper has it (algorithm 7): every column of K rotated by every j.
///
/// # Errors
/// As [`scores`].
pub fn scores_by_paper<A: Vectors>(
    on: &A,
    q: &Columns<A::V>,
    k: &Columns<A::V>,
) -> Result<Diagonals<A::V>, A::Error>
where
    A::Error: From<PackingError>,
{
    let layout = q.layout();
    if layout != k.layout() || q.width() != k.width() || q.width() == 0 {
        return Err(PackingError::Mismatch.into());
    }
    let keys: Vec<A::Hoisted> = k
        .vectors()
        .iter()
        .map(|k| on.hoist(k))
        .collect::<Result<_, _>>()?;
    let diagonal = |j| {
        let by = layout.rotation(j);
        let turned: Vec<A::V> = keys
            .iter()
            .map(|k| on.rotate(k, by))
            .collect::<Result<_, _>>()?;
        on.finish(sum_of_products(on, q.vectors().iter().zip(&turned))?)
    };
    let diagonals = (0..layout.rows())
        .map(diagonal)
        .collect::<Result<_, A::Error>>()?;
    Ok(Diagonals::from_vectors(layout, diagonals)?)
}

/// P·V of every text: m × m by m × d', in columns, `baby` baby steps.
///
/// # Errors
/// As [`scores`].
pub fn attend<A: Vectors>(
    on: &A,
    p: &Diagonals<A::V>,
    v: &Columns<A::V>,
    baby: usize,
) -> Result<Columns<A::V>, A::Error>
where
    A::Error: From<PackingError>,
{
    let (layout, m) = (p.layout(), p.layout().rows());
    if layout != v.layout() || baby == 0 || !m.is_multiple_of(baby) {
        return Err(PackingError::Mismatch.into());
    }
    // Once for all columns: diagonal ab + r, rotated by −ab.
    let turned = |(j, diagonal): (usize, &A::V)| {
        on.rotate(&on.hoist(diagonal)?, layout.rotation(m - j / baby * baby))
    };
    let diagonals: Vec<A::V> = p
        .vectors()
        .iter()
        .enumerate()
        .map(turned)
        .collect::<Result<_, _>>()?;
    let column = |v: &A::V| {
        let hoisted = on.hoist(v)?;
        let turned: Vec<A::V> = (0..baby)
            .map(|r| on.rotate(&hoisted, layout.rotation(r)))
            .collect::<Result<_, _>>()?;
        let mut sum: Option<A::V> = None;
        for (a, block) in diagonals.chunks(baby).enumerate() {
            let inner = on.finish(sum_of_products(on, block.iter().zip(&turned))?)?;
            let inner = if a == 0 {
                inner
            } else {
                on.rotate(&on.hoist(&inner)?, layout.rotation(a * baby))?
            };
            match &mut sum {
                Some(sum) => on.add_assign(sum, &inner)?,
                None => sum = Some(inner),
            }
        }
        sum.ok_or_else(|| PackingError::Mismatch.into())
    };
    v.map(column)
}

/// Every vector rotated by each of `by`.
fn rotations<A: Vectors>(
    on: &A,
    vectors: &[A::V],
    by: impl Iterator<Item = usize> + Clone,
) -> Result<Vec<Vec<A::V>>, A::Error> {
    let turn = |v| {
        let hoisted = on.hoist(v)?;
        by.clone().map(|by| on.rotate(&hoisted, by)).collect()
    };
    vectors.iter().map(turn).collect()
}

fn sum_of_products<'a, A: Vectors>(
    on: &A,
    mut pairs: impl Iterator<Item = (&'a A::V, &'a A::V)>,
) -> Result<A::Product, A::Error>
where
    A::V: 'a,
    A::Error: From<PackingError>,
{
    let (a, b) = pairs.next().ok_or(PackingError::Mismatch)?;
    let mut sum = on.product(a, b)?;
    for (a, b) in pairs {
        on.add_product(&mut sum, a, b)?;
    }
    Ok(sum)
}
