//! Scores, softmax and the product with V: texts of equal length together, all heads of all of them as one batch.
//!
//! Shapes: Q, K, V are rows × h·dh over all texts; of a group of t texts of m rows, with n keys each (the m of the text
//! and those of earlier passes, which a [`Past`] holds), scores and weights are t·h × m × n.

use hushed_model::{Heads, Mask, Rows};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::func::softmax::SCORES;
use hushed_twopc::he::{MatmulShape, OltShape};
use hushed_twopc::share::Ring;

use crate::RunError;
use crate::circuit::cache::Past;
use crate::circuit::groups::{Group, groups};
use crate::formats::{
    ACTIVATION, ATTENDED, INVERSE, LINEAR, MAIN, MASKED, PORTION, QUERY, QUOTIENT, SUM_BITS, VALUE,
    WEIGHED,
};
use crate::shares::{Local, Shares};

/// Q_j·K_jᵀ in units of log 2 for every head j of every text: `q` (its factor already in it) and `k` in [`LINEAR`]; one
/// share a group, in [`SCORES`]. The keys become part of `past`.
pub fn scores<S: Shares>(
    on: &mut S,
    q: &S::Share,
    k: &S::Share,
    past: &mut Past<S::Share>,
    rows: &Rows,
    heads: Heads,
) -> Result<Vec<S::Share>, RunError> {
    let shift = LINEAR.frac - QUERY.frac;
    let q = on.rescale(q, shift, QUERY.ring)?;
    let k = on.rescale(k, shift, QUERY.ring)?;
    let k = past.with_keys(k);
    let product = |group: Group| {
        let keys = past.before(&group);
        let q = by_heads(&q, &group, heads);
        let k = by_heads_transposed(&k, &keys, heads);
        let shape = MatmulShape {
            shape: OltShape {
                k: group.rows,
                m: heads.width,
                n: keys.rows,
            },
            batch: group.texts.len() * heads.count,
        };
        let s = on.matmul(&q, &k, &shape)?;
        Ok(on.narrow(&s, 2 * QUERY.frac - SCORES.frac, SCORES.ring))
    };
    groups(rows).into_iter().map(product).collect()
}

/// Exponentials of scores, in [`WEIGHED`]: softmax without its division. Keys that the mask hides get none, nor do, if
/// `padded`, those that the client knows to be padding: it then adds the whole mask, so that none is added twice.
pub fn weigh<S: Shares>(
    on: &mut S,
    scores: &[S::Share],
    past: &Past<S::Share>,
    rows: &Rows,
    how: (Heads, Mask),
    padded: bool,
) -> Result<Vec<S::Share>, RunError> {
    let (heads, mask) = how;
    let weights = |(s, group): (&S::Share, Group)| {
        let (m, n) = (group.rows, past.before(&group).rows);
        let matrices = group.texts.len() * heads.count;
        let hides = mask == Mask::Causal && m > 1;
        let owner = match padded {
            true => Party::Client,
            false => Party::Server,
        };
        match padded || hides {
            true => {
                let masked = || masked(past, &group, heads.count, mask);
                let masked = on.known(owner, matrices * m * n, masked);
                let s = on.add_known(s, &masked);
                on.exponentials(&s, matrices * m, n)
            }
            false => on.exponentials(s, matrices * m, n),
        }
    };
    scores.iter().zip(groups(rows)).map(weights).collect()
}

/// [`MASKED`] at the keys that a row may not see, 0 elsewhere. Which are padding is the client's secret: it adds these
/// to its own share.
fn masked<S: Local>(past: &Past<S>, group: &Group, heads: usize, mask: Mask) -> Vec<i64> {
    let masked = SCORES.signed(MASKED);
    let before = past.before(group).rows - group.rows;
    let text = |real: usize| {
        let hidden = |row: usize, key: usize| {
            let ahead = mask == Mask::Causal && key > before + row;
            ahead || key >= before + real || past.is_padding(key)
        };
        let row = |row: usize| (0..before + group.rows).map(move |key| hidden(row, key));
        let all = (0..group.rows).flat_map(row);
        let all: Vec<i64> = all.map(|hidden| i64::from(hidden) * masked).collect();
        all.repeat(heads)
    };
    group.texts.iter().flat_map(|t| text(t.real)).collect()
}

/// Σ_k e_ik·v_k / Σ_k e_ik for every head: `e` as [`weigh`] gives it, `v` in [`LINEAR`]; the result in [`ACTIVATION`].
/// The values become part of `past`.
pub fn attend<S: Shares>(
    on: &mut S,
    e: &[S::Share],
    v: &S::Share,
    past: &mut Past<S::Share>,
    rows: &Rows,
    heads: Heads,
) -> Result<S::Share, RunError> {
    let v = on.rescale(v, LINEAR.frac - VALUE.frac, VALUE.ring)?;
    let v = past.with_values(v);
    let groups = groups(rows);
    let mut done = Vec::with_capacity(e.len());
    for (e, group) in e.iter().zip(&groups) {
        let keys = past.before(group);
        let (m, n) = (group.rows, keys.rows);
        let v = by_heads(&v, &keys, heads);
        let batch = group.texts.len() * heads.count;
        let shape = MatmulShape {
            shape: OltShape {
                k: m,
                m: n,
                n: heads.width,
            },
            batch,
        };
        done.push(match divides_first(n, heads) {
            true => {
                let p = portions(on, e, batch * m, n)?;
                let o = on.matmul(&p, &v.reduce_to(PORTION.ring), &shape)?;
                let shift = PORTION.frac + VALUE.frac - ACTIVATION.frac;
                on.rescale(&o, shift, MAIN)?
            }
            false => {
                let o = on.matmul(e, &v, &shape)?;
                divide(on, &o, e, batch * m, n, heads.width)?
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

/// Whether the weights over `n` keys are divided by their sums before the product with V, or the product after it:
/// whichever has fewer numbers.
fn divides_first(n: usize, heads: Heads) -> bool {
    n < heads.width
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
