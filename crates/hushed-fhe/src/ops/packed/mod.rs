//! The steps of a decoder's layer in packed rows ([`crate::packing::Layout`]), for one text or a few; docs/one-text.md
//! has the ledger of levels. An encoder's are recorded ([`crate::tape`]).
//!
//! Between refreshes of the residual stream x/bound, with k the levels of a polynomial:
//!
//! ```text
//! attention                             levels          feed-forward                     levels
//! RMSNorm, 1/√v refreshed                    1          RMSNorm, the same                     1
//! Q, K, V: one grid of maps                  1          gate                                  1
//! copies                                     1          activation, a polynomial a slot       k
//! turns by places, and the causal mask       1          × up, made at that level              1
//! Q·Kᵀ: products, sums                       2          down                                  1
//! σ, a polynomial a slot                     k          sum                                   0
//! P·V: copies, products, sums                3
//! output                                     1          after the last layer: norm,
//! sum                                        0          of 2 levels, and rows                 2
//! ```
//!
//! Attention takes 10 + k: fourteen levels with degree 15.
//!
//! Statistics (v, 1/√v) are spread over the places that need them before they are refreshed, with all slots and to no
//! more primes than later steps use: docs/one-text.md says why not with few slots.

pub mod causal;
pub mod feed_forward;
pub(crate) mod linear;
pub mod norm;
pub mod pool;
pub mod rows;

use hushed_model::{Attention, StepId, same};

use crate::error::FheError;
use crate::ops::acts::Acts;
use crate::ops::levels::{above, above_by};
use crate::packing::heads::Heads;
use crate::packing::{Layout, PackingError, twos};
use crate::slots::Slots;
use rows::PackedRows;

/// Copies of an operand in Q·Kᵀ and P·V: J in docs/one-text.md, unless heads or rows have fewer.
const COPIES: usize = 4;

/// How the heads of a model lie in packed rows, as many side by side as a row has places for.
///
/// # Errors
/// [`PackingError::Mismatch`] if they do not fit: the pairs of columns per head are not a power of two, or exceed the
/// rows or the places.
pub fn heads_of(block: &Attention, layout: Layout) -> Result<Heads, PackingError> {
    let pairs = block.heads.width / 2;
    let inner = block.heads.count * block.heads.width;
    let fits = block.heads.width.is_multiple_of(2) && inner == block.query.inputs;
    if !fits || pairs == 0 {
        return Err(PackingError::Mismatch);
    }
    let copies = COPIES.min(pairs).min(layout.rows());
    let groups = layout.rows() / copies.max(1);
    // About the square root of the groups, in whole vectors of E diagonals each.
    let root = 1_usize << (groups.max(1).ilog2() / 2);
    let baby = root.max(pairs / copies.max(1)).max(2 * root).min(groups);
    Heads::new(layout, pairs, copies, baby)
}

/// Refreshes pairs to `limbs` primes, as separate parts, two per bootstrap. The pairs are at half of
/// [`Slots::default_scale`], so that their parts are at that scale.
///
/// # Errors
/// As [`Slots::refresh`].
pub fn refreshed_pairs<S: Slots>(
    on: &S,
    at: StepId,
    pairs: &[S::Value],
    limbs: usize,
) -> Result<Vec<S::Value>, FheError> {
    let mut parts = Vec::with_capacity(2 * pairs.len());
    for pair in pairs {
        parts.extend(on.parts(pair)?);
    }
    joined(on, on.refresh(at, parts, limbs)?)
}

/// Pairs parts: two per vector.
fn joined<S: Slots>(on: &S, parts: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
    let pair = |(a, b): (_, Option<_>)| on.pair(a, b.ok_or(PackingError::Mismatch)?);
    twos(parts).into_iter().map(pair).collect()
}

/// Pairs at `limbs` primes: refreshed if some have fewer; those from a client may have more and are cut.
///
/// # Errors
/// As [`Slots::refresh`]; [`FheError::Levels`] for fewer primes than a refresh takes.
pub fn lifted<S: Slots>(on: &S, at: StepId, mut x: Acts<S::Value>, limbs: usize) -> Result<Acts<S::Value>, FheError> {
    if x.columns.iter().all(|v| on.limbs(v) >= limbs) {
        return x.cut(on, limbs);
    }
    let site = at.part("refresh");
    on.at(site);
    let columns = refreshed_pairs(on, site, &x.columns, limbs);
    x.columns = columns.map_err(|error| error.at_step(at))?;
    Ok(x)
}

/// x/`bound` + `y`, for x a decoder's residual stream and `y` a block's result divided by `bound`, in pairs as `y` is.
/// x is dropped to one level above `y`, and loses it.
///
/// # Errors
/// If x has no level above the block's, or a different number of vectors.
pub fn sum<S: Slots>(
    on: &S,
    at: StepId,
    rows: &PackedRows<()>,
    x: &Acts<S::Value>,
    y: Vec<S::Value>,
    bound: f64,
) -> Result<Acts<S::Value>, FheError> {
    same(at, "vectors", y.len(), x.columns.len())?;
    let factor = x.gain.first().copied().unwrap_or(1.0) / bound;
    let factors = rows.numbers(on, |_, _, _| factor);
    let add = |(x, y): (&S::Value, S::Value)| {
        let x = on.drop_to(x, above(on, on.limbs(&y))?)?;
        let mut x = on.mul_vector(&x, &factors, on.scale(&y))?;
        on.add_assign(&mut x, &y)?;
        Ok(on.within(x, 1.0))
    };
    let columns = x.columns.iter().zip(y).map(add);
    let columns = columns.collect::<Result<_, FheError>>()?;
    Ok(Acts::over(columns, x.width(), bound))
}

/// The primes to refresh a statistic to so that it has `limbs` after `levels` rescales, at most `most`.
fn reaching<S: Slots>(on: &S, limbs: usize, levels: usize, most: usize) -> usize {
    above_by(on, limbs, levels).map_or(most, |found| found.min(most))
}
