//! Scores, softmax and the product with V, text by text, all heads of a text together.
//!
//! Shapes: Q, K, V are m × h·dh; scores and weights h × m × m; the result m × h·dh.

use hushed_model::{Heads, Rows};
use hushed_twopc::func::inverse::reciprocal;
use hushed_twopc::func::softmax::{SCORES, exponentials};
use hushed_twopc::func::{Format, narrow, rescale};
use hushed_twopc::gadget::{Sign, mul_rows};
use hushed_twopc::he::{HeContext, MatmulShape, OltShape, matmul_shared};
use hushed_twopc::share::Share;
use hushed_twopc::{Ctx, TwopcError};

use super::formats::{
    ACTIVATION, ATTENDED, INVERSE, LINEAR, MAIN, QUERY, SUM_BITS, VALUE, WEIGHED,
};

/// Q_j·K_jᵀ in units of log 2 for every head j of every text: `q` (its factor already in it) and `k` in [`LINEAR`]; one share a text, in
/// [`SCORES`].
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
    let width = heads.count * heads.width;
    let mut out = Vec::with_capacity(rows.texts().len());
    for (block, _) in rows.blocks() {
        let m = block.len();
        let q = by_heads(&q, block.start, m, width, heads);
        let k = by_heads_transposed(&k, block.start, m, width, heads);
        let shape = MatmulShape {
            shape: OltShape {
                k: m,
                m: heads.width,
                n: m,
            },
            batch: heads.count,
        };
        let s = matmul_shared(ctx, he, &q, &k, &shape)?;
        out.push(narrow(party, &s, 2 * QUERY.frac - SCORES.frac, SCORES.ring));
    }
    Ok(out)
}

/// Exponentials of scores, in [`WEIGHED`]: softmax without its division.
pub fn weigh(
    ctx: &mut Ctx,
    scores: &[Share],
    rows: &Rows,
    heads: usize,
) -> Result<Vec<Share>, TwopcError> {
    let mut out = Vec::with_capacity(scores.len());
    for (s, (block, _)) in scores.iter().zip(rows.blocks()) {
        let m = block.len();
        out.push(exponentials(ctx, s, heads * m, m, WEIGHED)?);
    }
    Ok(out)
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
    let width = heads.count * heads.width;
    let v = rescale(ctx, v, LINEAR.frac - VALUE.frac, Sign::Bounded, VALUE.ring)?;
    let mut done = Vec::with_capacity(e.len());
    for (e, (block, _)) in e.iter().zip(rows.blocks()) {
        let m = block.len();
        let v = by_heads(&v, block.start, m, width, heads);
        let shape = MatmulShape {
            shape: OltShape {
                k: m,
                m,
                n: heads.width,
            },
            batch: heads.count,
        };
        let o = matmul_shared(ctx, he, e, &v, &shape)?;
        let o = divide(ctx, &o, e, heads.count * m, m, heads.width)?;
        done.push(to_columns(&o, m, heads));
    }
    Ok(Share::concat(MAIN, &done.iter().collect::<Vec<_>>()))
}

/// Rows of `o` (rows × width) divided by the row sums of `e` (rows × cols).
fn divide(
    ctx: &mut Ctx,
    o: &Share,
    e: &Share,
    rows: usize,
    cols: usize,
    width: usize,
) -> Result<Share, TwopcError> {
    let sums = e.sum_rows(rows, cols);
    let unit = f64::from(1u32 << WEIGHED.frac);
    let inverse = reciprocal(ctx, &sums, SUM_BITS, unit, INVERSE.frac, INVERSE.ring)?;
    let product = Format::new(VALUE.ring.bits(), WEIGHED.frac + VALUE.frac);
    let shift = product.frac - ATTENDED.frac;
    let o = rescale(ctx, o, shift, Sign::Bounded, ATTENDED.ring)?;
    let y = mul_rows(ctx, &o, rows, width, &inverse)?;
    let shift = ATTENDED.frac + INVERSE.frac - ACTIVATION.frac;
    rescale(ctx, &y, shift, Sign::Bounded, MAIN)
}

/// Rows start..start+m of an …×(h·dh) matrix as h matrices of m × dh.
fn by_heads(x: &Share, start: usize, m: usize, width: usize, heads: Heads) -> Share {
    let mut places = Vec::with_capacity(m * width);
    for j in 0..heads.count {
        for i in start..start + m {
            let first = i * width + j * heads.width;
            places.extend(first..first + heads.width);
        }
    }
    x.gather(&places)
}

/// The same, each transposed: h matrices of dh × m.
fn by_heads_transposed(x: &Share, start: usize, m: usize, width: usize, heads: Heads) -> Share {
    let mut places = Vec::with_capacity(m * width);
    for j in 0..heads.count {
        for c in 0..heads.width {
            places.extend((start..start + m).map(|i| i * width + j * heads.width + c));
        }
    }
    x.gather(&places)
}

/// h matrices of m × dh side by side: m × h·dh.
fn to_columns(x: &Share, m: usize, heads: Heads) -> Share {
    let mut places = Vec::with_capacity(x.len());
    for i in 0..m {
        for j in 0..heads.count {
            let first = (j * m + i) * heads.width;
            places.extend(first..first + heads.width);
        }
    }
    x.gather(&places)
}
