//! Scores, softmax and the product with V: texts of equal length together, all heads of all of them as one batch.
//!
//! Shapes: Q, K, V are rows × h·dh over all texts; of a group of t texts of m rows, scores and weights are t·h × m × m.

use hushed_model::{Heads, Rows};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::func::softmax::SCORES;
use hushed_twopc::he::{MatmulShape, OltShape};
use hushed_twopc::share::Ring;

use crate::RunError;
use crate::circuit::groups::{Group, groups};
use crate::formats::{
    ACTIVATION, ATTENDED, INVERSE, LINEAR, MAIN, MASKED, PORTION, QUERY, QUOTIENT, SUM_BITS, VALUE,
    WEIGHED,
};
use crate::shares::{Local, Shares};

/// Q_j·K_jᵀ in units of log 2 for every head j of every text: `q` (its factor already in it) and `k` in [`LINEAR`]; one
/// share a group, in [`SCORES`].
pub fn scores<S: Shares>(
    on: &mut S,
    q: &S::Share,
    k: &S::Share,
    rows: &Rows,
    heads: Heads,
) -> Result<Vec<S::Share>, RunError> {
    let shift = LINEAR.frac - QUERY.frac;
    let q = on.rescale(q, shift, QUERY.ring)?;
    let k = on.rescale(k, shift, QUERY.ring)?;
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
        let s = on.matmul(&q, &k, &shape)?;
        Ok(on.narrow(&s, 2 * QUERY.frac - SCORES.frac, SCORES.ring))
    };
    groups(rows).into_iter().map(product).collect()
}

/// Exponentials of scores, in [`WEIGHED`]: softmax without its division. Rows that the client knows to be padding get
/// none, if `padded`.
pub fn weigh<S: Shares>(
    on: &mut S,
    scores: &[S::Share],
    rows: &Rows,
    heads: Heads,
    padded: bool,
) -> Result<Vec<S::Share>, RunError> {
    let weights = |(s, group): (&S::Share, Group)| {
        let m = group.rows;
        let matrices = group.texts.len() * heads.count;
        match padded {
            true => {
                let len = matrices * m * m;
                let mask = on.known(Party::Client, len, || mask(&group, heads.count));
                let s = on.add_known(s, &mask);
                on.exponentials(&s, matrices * m, m)
            }
            false => on.exponentials(s, matrices * m, m),
        }
    };
    scores.iter().zip(groups(rows)).map(weights).collect()
}

/// [`MASKED`] in the columns of padding, 0 elsewhere: the client's secret, which it adds to its own share.
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
pub fn attend<S: Shares>(
    on: &mut S,
    e: &[S::Share],
    v: &S::Share,
    rows: &Rows,
    heads: Heads,
) -> Result<S::Share, RunError> {
    let v = on.rescale(v, LINEAR.frac - VALUE.frac, VALUE.ring)?;
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
                let p = portions(on, e, batch * m, m)?;
                let o = on.matmul(&p, &v.reduce_to(PORTION.ring), &shape)?;
                let shift = PORTION.frac + VALUE.frac - ACTIVATION.frac;
                on.rescale(&o, shift, MAIN)?
            }
            false => {
                let o = on.matmul(e, &v, &shape)?;
                divide(on, &o, e, batch * m, m, heads.width)?
            }
        });
    }
    Ok(by_rows(
        &S::Share::concat(MAIN, &done),
        &groups,
        rows.total(),
        heads,
    ))
}

/// Whether the weights of a text of `m` tokens are divided by their sums before the product with V, or the product
/// after it: whichever has fewer numbers.
fn divides_first(m: usize, heads: Heads) -> bool {
    m < heads.width
}

/// 1 / the row sums of `e` (rows × cols), with [`INVERSE`]'s fraction bits.
fn inverse_sums<S: Shares>(
    on: &mut S,
    e: &S::Share,
    rows: usize,
    cols: usize,
    ring: Ring,
) -> Result<S::Share, RunError> {
    let sums = e.sum_rows(rows, cols);
    let unit = f64::from(1u32 << WEIGHED.frac);
    let to = Format { ring, ..INVERSE };
    on.reciprocal(&sums, SUM_BITS, unit, to)
}

/// Rows of `e` (rows × cols) divided by their sums, in [`PORTION`].
fn portions<S: Shares>(
    on: &mut S,
    e: &S::Share,
    rows: usize,
    cols: usize,
) -> Result<S::Share, RunError> {
    let inverse = inverse_sums(on, e, rows, cols, QUOTIENT)?;
    let p = on.scale_rows(&e.reduce_to(QUOTIENT), rows, cols, &inverse)?;
    let shift = WEIGHED.frac + INVERSE.frac - PORTION.frac;
    on.rescale(&p, shift, PORTION.ring)
}

/// Rows of `o` (rows × width) divided by the row sums of `e` (rows × cols).
fn divide<S: Shares>(
    on: &mut S,
    o: &S::Share,
    e: &S::Share,
    rows: usize,
    cols: usize,
    width: usize,
) -> Result<S::Share, RunError> {
    let inverse = inverse_sums(on, e, rows, cols, INVERSE.ring)?;
    let product = Format::new(VALUE.ring.bits(), WEIGHED.frac + VALUE.frac);
    let o = on.rescale(o, product.frac - ATTENDED.frac, ATTENDED.ring)?;
    let y = on.scale_rows(&o, rows, width, &inverse)?;
    let shift = ATTENDED.frac + INVERSE.frac - ACTIVATION.frac;
    on.rescale(&y, shift, MAIN)
}

/// A group's rows of an …×(h·dh) matrix as t·h matrices of m × dh.
fn by_heads<S: Local>(x: &S, group: &Group, heads: Heads) -> S {
    let width = heads.count * heads.width;
    let count = group.texts.len() * group.rows * width;
    x.gather(count, || {
        let mut places = Vec::with_capacity(count);
        for text in &group.texts {
            for j in 0..heads.count {
                for i in text.start..text.start + group.rows {
                    let first = i * width + j * heads.width;
                    places.extend(first..first + heads.width);
                }
            }
        }
        places
    })
}

/// The same, each transposed: t·h matrices of dh × m.
fn by_heads_transposed<S: Local>(x: &S, group: &Group, heads: Heads) -> S {
    let width = heads.count * heads.width;
    let count = group.texts.len() * group.rows * width;
    x.gather(count, || {
        let mut places = Vec::with_capacity(count);
        for text in &group.texts {
            for column in 0..width {
                let rows = text.start..text.start + group.rows;
                places.extend(rows.map(|i| i * width + column));
            }
        }
        places
    })
}

/// The groups' t·h matrices of m × dh, one group after another, as the rows of the pass: total × h·dh.
fn by_rows<S: Local>(x: &S, groups: &[Group], total: usize, heads: Heads) -> S {
    let width = heads.count * heads.width;
    x.gather(total * width, || {
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
        places
    })
}
