//! Scores, softmax and the product with V: texts of equal length together, all heads of all of them as one batch.
//!
//! Shapes: Q, K, V are rows × h·dh over all texts; of a group of t texts of m rows, scores and weights are t·h × m × m.

use hushed_model::{Heads, Rows};
use hushed_twopc::func::inverse::reciprocal;
use hushed_twopc::func::softmax::{SCORES, exponentials};
use hushed_twopc::func::{Format, narrow, rescale};
use hushed_twopc::gadget::Sign;
use hushed_twopc::he::{HeContext, MatmulShape, OltShape, matmul_shared, scale_rows};
use hushed_twopc::share::{Ring, Share};
use hushed_twopc::{Ctx, TwopcError};

use super::formats::{
    ACTIVATION, ATTENDED, INVERSE, LINEAR, MAIN, MASKED, PORTION, QUERY, QUOTIENT, SUM_BITS, VALUE,
    WEIGHED,
};
use super::groups::{Group, groups};

/// Q_j·K_jᵀ in units of log 2 for every head j of every text: `q` (its factor already in it) and `k` in [`LINEAR`]; one share a group,
/// in [`SCORES`].
pub fn scores(
    ctx: &mut Ctx,
    he: &HeContext,
    q: &Share,
    k: &Share,
    rows: &Rows,
    heads: Heads,
) -> Result<Vec<Share>, TwopcError> {
    let shift = LINEAR.frac - QUERY.frac;
    let q = rescale(ctx, q, shift, Sign::Bounded, QUERY.ring)?;
    let k = rescale(ctx, k, shift, Sign::Bounded, QUERY.ring)?;
    let party = ctx.party();
    let product = |group: Group| {
        let m = group.rows;
        let q = by_heads(&q, &group, heads);
        let k = by_heads_transposed(&k, &group, heads);
        let shape = MatmulShape {
            shape: OltShape {
                k: m,
                m: heads.width,
                n: m,
            },
            batch: group.texts.len() * heads.count,
        };
        let s = matmul_shared(ctx, he, &q, &k, &shape)?;
        Ok(narrow(party, &s, 2 * QUERY.frac - SCORES.frac, SCORES.ring))
    };
    groups(rows).into_iter().map(product).collect()
}

/// Exponentials of scores, in [`WEIGHED`]: softmax without its division. Rows that the client knows for padding get none, if `padded`.
pub fn weigh(
    ctx: &mut Ctx,
    scores: &[Share],
    rows: &Rows,
    heads: usize,
    padded: bool,
) -> Result<Vec<Share>, TwopcError> {
    let weights = |(s, group): (&Share, Group)| {
        let m = group.rows;
        let matrices = group.texts.len() * heads;
        match padded {
            true => {
                let s = s.add_public_each(ctx.party(), &mask(&group, heads));
                exponentials(ctx, &s, matrices * m, m, WEIGHED)
            }
            false => exponentials(ctx, s, matrices * m, m, WEIGHED),
        }
    };
    scores.iter().zip(groups(rows)).map(weights).collect()
}

/// [`MASKED`] in the columns of padding, 0 elsewhere: the client's secret, which it adds to its own share; the server knows of no
/// padding and its part is zero.
fn mask(group: &Group, heads: usize) -> Vec<i64> {
    let masked = SCORES.signed(MASKED);
    let text = |real: usize| {
        let row = (0..group.rows).map(move |j| i64::from(j >= real) * masked);
        let row: Vec<i64> = row.collect();
        row.repeat(heads * group.rows)
    };
    group.texts.iter().flat_map(|t| text(t.real)).collect()
}

/// Σ_k e_ik·v_k / Σ_k e_ik for every head: `e` as [`weigh`] gives it, `v` in [`LINEAR`]; the result in [`ACTIVATION`].
pub fn attend(
    ctx: &mut Ctx,
    he: &HeContext,
    e: &[Share],
    v: &Share,
    rows: &Rows,
    heads: Heads,
) -> Result<Share, TwopcError> {
    let v = rescale(ctx, v, LINEAR.frac - VALUE.frac, Sign::Bounded, VALUE.ring)?;
    let groups = groups(rows);
    let mut done = Vec::with_capacity(e.len());
    for (e, group) in e.iter().zip(&groups) {
        let m = group.rows;
        let v = by_heads(&v, group, heads);
        let batch = group.texts.len() * heads.count;
        let shape = MatmulShape {
            shape: OltShape {
                k: m,
                m,
                n: heads.width,
            },
            batch,
        };
        done.push(match divides_first(m, heads) {
            true => {
                let p = portions(ctx, he, e, batch * m, m)?;
                let o = matmul_shared(ctx, he, &p, &v.reduce_to(PORTION.ring), &shape)?;
                let shift = PORTION.frac + VALUE.frac - ACTIVATION.frac;
                rescale(ctx, &o, shift, Sign::Bounded, MAIN)?
            }
            false => {
                let o = matmul_shared(ctx, he, e, &v, &shape)?;
                divide(ctx, he, &o, e, batch * m, m, heads.width)?
            }
        });
    }
    let done = Share::concat(MAIN, &done.iter().collect::<Vec<_>>());
    Ok(by_rows(&done, &groups, rows.total(), heads))
}

/// Whether the weights of a text of `m` tokens are divided by their sums before the product with V, or the product after it: whichever
/// has fewer numbers.
pub fn divides_first(m: usize, heads: Heads) -> bool {
    m < heads.width
}

/// 1 / the row sums of `e` (rows × cols), with [`INVERSE`]'s fraction bits.
fn inverse_sums(
    ctx: &mut Ctx,
    e: &Share,
    rows: usize,
    cols: usize,
    ring: Ring,
) -> Result<Share, TwopcError> {
    let sums = e.sum_rows(rows, cols);
    let unit = f64::from(1u32 << WEIGHED.frac);
    reciprocal(ctx, &sums, SUM_BITS, unit, INVERSE.frac, ring)
}

/// Rows of `e` (rows × cols) divided by their sums, in [`PORTION`].
fn portions(
    ctx: &mut Ctx,
    he: &HeContext,
    e: &Share,
    rows: usize,
    cols: usize,
) -> Result<Share, TwopcError> {
    let inverse = inverse_sums(ctx, e, rows, cols, QUOTIENT)?;
    let p = scale_rows(ctx, he, &e.reduce_to(QUOTIENT), rows, cols, &inverse)?;
    let shift = WEIGHED.frac + INVERSE.frac - PORTION.frac;
    // Bounded: where e is 0, the product may be a unit below.
    rescale(ctx, &p, shift, Sign::Bounded, PORTION.ring)
}

/// Rows of `o` (rows × width) divided by the row sums of `e` (rows × cols).
fn divide(
    ctx: &mut Ctx,
    he: &HeContext,
    o: &Share,
    e: &Share,
    rows: usize,
    cols: usize,
    width: usize,
) -> Result<Share, TwopcError> {
    let inverse = inverse_sums(ctx, e, rows, cols, INVERSE.ring)?;
    let product = Format::new(VALUE.ring.bits(), WEIGHED.frac + VALUE.frac);
    let shift = product.frac - ATTENDED.frac;
    let o = rescale(ctx, o, shift, Sign::Bounded, ATTENDED.ring)?;
    let y = scale_rows(ctx, he, &o, rows, width, &inverse)?;
    let shift = ATTENDED.frac + INVERSE.frac - ACTIVATION.frac;
    rescale(ctx, &y, shift, Sign::Bounded, MAIN)
}

/// A group's rows of an …×(h·dh) matrix as t·h matrices of m × dh.
fn by_heads(x: &Share, group: &Group, heads: Heads) -> Share {
    let width = heads.count * heads.width;
    let mut places = Vec::with_capacity(group.texts.len() * group.rows * width);
    for text in &group.texts {
        for j in 0..heads.count {
            for i in text.start..text.start + group.rows {
                let first = i * width + j * heads.width;
                places.extend(first..first + heads.width);
            }
        }
    }
    x.gather(&places)
}

/// The same, each transposed: t·h matrices of dh × m.
fn by_heads_transposed(x: &Share, group: &Group, heads: Heads) -> Share {
    let width = heads.count * heads.width;
    let mut places = Vec::with_capacity(group.texts.len() * group.rows * width);
    for text in &group.texts {
        for column in 0..width {
            let rows = text.start..text.start + group.rows;
            places.extend(rows.map(|i| i * width + column));
        }
    }
    x.gather(&places)
}

/// The groups' t·h matrices of m × dh, one group after another, as the rows of the pass: total × h·dh.
fn by_rows(x: &Share, groups: &[Group], total: usize, heads: Heads) -> Share {
    let width = heads.count * heads.width;
    let mut places = vec![0; total * width];
    let mut from = 0;
    for group in groups {
        for text in &group.texts {
            for j in 0..heads.count {
                for i in text.start..text.start + group.rows {
                    let to = i * width + j * heads.width;
                    for place in &mut places[to..to + heads.width] {
                        *place = from;
                        from += 1;
                    }
                }
            }
        }
    }
    x.gather(&places)
}
