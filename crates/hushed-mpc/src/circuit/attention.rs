//! Attention scores, and the product of the weights ([`weigh`](super::weigh)) with V. Texts of equal length are
//! processed together, with all their heads in one batch.
//!
//! Shapes: over all texts Q is rows × h·dh, K and V are rows × g·dh. For a group of t texts of m rows with n keys each
//! (the text's m and those of earlier passes, held in a [`Past`]), scores and weights are t·h × m × n. If one row per
//! text asks, Q is texts × h·dh and m is 1, with the same keys. The h/g heads that share keys are adjacent, so that
//! they form one product of m·h/g rows.
//!
//! After a [public prefix](super::prefix) of p rows, its p keys come before the n. Their scores, and their part of the
//! product with V, are products with numbers that the server knows.

use std::ops::Range;

use hushed_model::{Attention, Distances, Heads, Queries, Rope, StepId, Weigh, here};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::func::inverse::Positive;
use hushed_twopc::func::softmax::{LEAST_LARGEST, MOST};
use hushed_twopc::he::{Grows, MatmulShape, OltShape, PastShape};

use crate::RunError;
use crate::circuit::cache::Past;
use crate::circuit::groups::{Asking, Group};
use crate::circuit::scores::Scores;
use crate::formats::{
    INVERSE, KEY_BITS, LINEAR, MAIN, PORTION, QUERY, QUOTIENT, SUM_BITS, Sums, TURN_FRAC, TURNED, VALUE, VALUE_BITS,
    WEIGHED,
};
use crate::shares::{Aside, Local, Shares};

/// Q_j·K_jᵀ for every head j of every text, from `q` (already scaled) and `k` in [`LINEAR`]. Returns one share per
/// group, in the format of [`Scores`]. The keys, rotated by position where the block has RoPE, are added to `past`.
pub fn scores<S: Shares>(
    on: &mut S,
    [q, k]: [&S::Share; 2],
    past: &mut Past<S::Share>,
    rows: &Asking<'_>,
    (a, step): (&Attention, StepId),
) -> Result<Vec<S::Share>, RunError> {
    let (heads, shift) = (a.heads, LINEAR.frac - QUERY.frac);
    let how = Scores::of(a.weigh);
    let (q, k) = match &a.rope {
        None => {
            // In one message.
            let queries = q.elements();
            let both = S::Share::concat(LINEAR.ring, &[q.clone(), k.clone()]);
            let both = on.rescale(&both, shift, QUERY.ring)?;
            let part = |range: Range<usize>| both.gather(range.len(), || range.collect());
            (part(0..queries), part(queries..both.elements()))
        }
        Some(rope) => turned(on, [q, k], past.place(), rows, heads, rope)?,
    };
    let k = past.with_keys(k);
    let product = |(group, asking): (Group, Group)| {
        let keys = past.before(&group);
        let q = by_heads(&q, &asking, (heads.count, heads.width));
        let k = by_heads_transposed(&k, &keys, (heads.keys, heads.width));
        let shape = MatmulShape {
            shape: OltShape { k: asking.rows * heads.shared(), m: heads.width, n: keys.rows },
            batch: group.texts.len() * heads.keys,
        };
        let mut s = match past.rows_before() {
            Some(before) => {
                let shape = PastShape { product: shape, grows: Grows::Columns, before };
                let [kept, _] = past.kept();
                on.matmul_past(&q, &k, &shape, kept)?
            }
            None => on.matmul(&q, &k, &shape)?,
        };
        let public = past.prefix().rows();
        if public > 0 {
            let numbers = || past.prefix().keys(step, heads);
            let keys = on.known(Party::Server, public * heads.key_columns(), numbers);
            let shape = with(shape, heads.width, public);
            let before = on.times_known(&q, &keys, &shape, KEY_BITS)?;
            s = side_by_side([before, s], asking.rows * heads.count);
        }
        let s = on.narrow(&s, how.shift, how.format.ring);
        let Some(distances) = &a.distances else { return Ok(s) };
        // The biases are added to the server's share.
        let table = match on.knows(Party::Server) {
            true => Some(here(step, &distances.table)?),
            false => None,
        };
        let (m, n) = (asking.rows, keys.rows);
        let biases = on.known(Party::Server, s.elements(), || {
            let of = |head: usize, row: usize, key: usize| {
                let bias = table.map_or(0.0, |table| table.row(Distances::bucket(row, key))[head]);
                how.format.signed(how.factor * f64::from(bias))
            };
            let row = |head: usize, row: usize| (0..n).map(move |key| of(head, row, key));
            let all = (0..heads.count).flat_map(|head| (0..m).flat_map(move |i| row(head, i)));
            all.collect::<Vec<_>>().repeat(group.texts.len())
        });
        Ok(on.add_known(&s, &biases))
    };
    rows.groups().into_iter().map(product).collect()
}

/// Q and K in [`QUERY`] with RoPE applied: each text's rows start at position `before`. Cosines and sines are public,
/// so the rotation is local. One truncation of both leaves enough bits for it; the last bits are then dropped locally.
fn turned<S: Shares>(
    on: &mut S,
    qk: [&S::Share; 2],
    before: usize,
    rows: &Asking<'_>,
    heads: Heads,
    rope: &Rope,
) -> Result<(S::Share, S::Share), RunError> {
    let queries = qk[0].elements();
    let both = S::Share::concat(LINEAR.ring, &qk.map(S::Share::clone));
    let both = on.rescale(&both, LINEAR.frac - TURNED.frac, TURNED.ring)?;
    let elements = both.elements();
    let dh = heads.width;
    let places = |queries: Queries| {
        let lengths = rows.rows.blocks().map(|(block, _)| block.len());
        // With RoPE, padding is in front, so both parties know that the last row is the last token.
        lengths.flat_map(move |length| match queries {
            Queries::All => before..before + length,
            Queries::First => before..before + 1,
            Queries::Last => before + length - 1..before + length,
        })
    };
    // The factors for every row of a head: one table per position, for the heads of Q and then for those of K.
    let tables = |of: fn(f64, bool) -> f64| {
        let unit = f64::from(1u32 << TURN_FRAC);
        let row = |place: usize| {
            let mut row = vec![0; dh];
            for (i, angle) in rope.angles(place, dh).enumerate() {
                let (a, b) = rope.pair(i, dh);
                row[a] = (of(angle, true) * unit).round() as i64;
                row[b] = (of(angle, false) * unit).round() as i64;
            }
            row
        };
        let part = |queries, count: usize| {
            let rows = places(queries).map(row);
            rows.flat_map(|row| row.repeat(count)).collect::<Vec<_>>()
        };
        [part(rows.queries, heads.count), part(Queries::All, heads.keys)].concat()
    };
    let partner = both.gather(elements, || {
        let mut other = vec![0; dh];
        for i in 0..dh / 2 {
            let (a, b) = rope.pair(i, dh);
            (other[a], other[b]) = (b, a);
        }
        let starts = (0..elements).step_by(dh.max(1));
        starts.flat_map(|s| other.iter().map(move |o| s + o)).collect()
    });
    let mut turned = both.times_each(|| tables(|angle, _| angle.cos()));
    turned.add_assign(&partner.times_each(|| tables(|angle, first| if first { -angle.sin() } else { angle.sin() })));
    let turned = on.narrow(&turned, TURNED.frac + TURN_FRAC - QUERY.frac, QUERY.ring);
    let part = |range: Range<usize>| turned.gather(range.len(), || range.collect());
    Ok((part(0..queries), part(queries..elements)))
}

/// Σ_k p_ik·v_k for every head, p being the weights: `e` as returned by [`weigh`](super::weigh::weigh), `v` in
/// [`LINEAR`] on a LAN, elsewhere after [`cut_values`]; the result is in `to`, in the ring [`MAIN`]. Softmax's weights
/// are e_ik / Σ_k e_ik; a sigmoid's are used as they are. The values are added to `past`.
pub fn attend<S: Shares>(
    on: &mut S,
    e: &[S::Share],
    v: &S::Share,
    past: &mut Past<S::Share>,
    rows: &Asking<'_>,
    (a, step, to): (&Attention, StepId, Format),
) -> Result<S::Share, RunError> {
    let (heads, sums, public) = (a.heads, past.sums(), past.prefix().rows());
    let v = match on.over().is_lan() {
        true => on.done(cut_values(v, past, a))?,
        false => v.clone(),
    };
    let v = past.with_values(v);
    let (groups, asking): (Vec<Group>, Vec<Group>) = rows.groups().into_iter().unzip();
    let mut done = Vec::with_capacity(e.len());
    for (e, (group, asking)) in e.iter().zip(groups.iter().zip(&asking)) {
        let keys = past.before(group);
        let (m, n) = (asking.rows, keys.rows);
        let all = public + n;
        let v = by_heads(&v, &keys, (heads.keys, heads.width));
        let batch = group.texts.len() * heads.count;
        let shape = MatmulShape {
            shape: OltShape { k: m * heads.shared(), m: n, n: heads.width },
            batch: group.texts.len() * heads.keys,
        };
        // Weights divided first are in another ring: of the rows before that, nothing is kept.
        let first = |rows| a.weigh == Weigh::Softmax && divides_first(public + rows, heads);
        let more = batch * m * heads.width.saturating_sub(all);
        let later = past.rows_before().is_none() && on.over().is_worth(MESSAGES_LESS, BYTES_MORE * more as u64);
        let earlier = past.rows_before().map(|rows| if first(rows) { 0 } else { rows }).filter(|_| !first(n));
        let numbers = || past.prefix().values(step, heads);
        let before = on.known(Party::Server, public * heads.key_columns(), numbers);
        let [_, kept] = past.kept();
        // Rows of weights, in any ring, times all values.
        let mut product = |on: &mut S, weights: &S::Share| {
            let part = |keys| weights.columns(batch * m, keys);
            let (p, v) = (part(public..all), v.reduce_to(weights.ring()));
            let mut o = match earlier {
                Some(before) => {
                    let shape = PastShape { product: shape, grows: Grows::Rows, before };
                    on.matmul_past(&p, &v, &shape, kept)?
                }
                None => on.matmul(&p, &v, &shape)?,
            };
            if public > 0 {
                let shape = with(shape, public, heads.width);
                o.add_assign(&on.times_known(&part(0..public), &before, &shape, VALUE_BITS)?);
            }
            Ok::<_, RunError>(o)
        };
        done.push(match a.weigh {
            Weigh::Sigmoid { .. } => {
                let o = product(on, e)?;
                on.rescale(&o, sums.standing.frac + VALUE.frac - to.frac, MAIN)?
            }
            Weigh::Softmax if divides_first(all, heads) && !later => {
                let p = portions(on, e, batch * m, all)?;
                let o = product(on, &p)?;
                on.rescale(&o, PORTION.frac + VALUE.frac - to.frac, MAIN)?
            }
            Weigh::Softmax => divide(on, |on| product(on, e), e, (batch * m, all, heads.width), (sums, to))?,
        });
    }
    Ok(by_rows(&S::Share::concat(MAIN, &done), &asking, rows.asking().total(), heads))
}

/// The values as the product with the weights reads them.
pub(crate) fn cut_values<'a, S: Local>(v: &'a S, past: &Past<S>, a: &Attention) -> Aside<'a, S> {
    let sums = past.sums();
    let to = match a.weigh {
        Weigh::Softmax => sums.value.ring,
        Weigh::Sigmoid { .. } => sums.standing.ring,
    };
    Aside::Rescale { x: v, shift: LINEAR.frac - sums.value.frac, to }
}

/// A division after the product with V saves these messages, those of the product and of its truncation, beside which
/// the inverses are found.
const MESSAGES_LESS: u64 = 3;
/// A number that is divided, in a batch of many.
const BYTES_MORE: u64 = 16;

/// Whether to divide the weights over `n` keys by their sums before the product with V rather than divide the product:
/// whichever has fewer numbers. Where nothing is kept for later rows, messages count too.
fn divides_first(n: usize, heads: Heads) -> bool {
    n < heads.width
}

/// 1 / `sums`, which are sums of `cols` exponentials and have `bits` bits.
fn inverse<S>(sums: &S, cols: usize, bits: u32, to: Format) -> Aside<'_, S> {
    let unit = f64::from(1u32 << WEIGHED.frac);
    // A row's largest exponential is one of its terms.
    let [least, most] = [LEAST_LARGEST, MOST * cols as f64].map(|x| x * unit);
    let of = Positive::below(bits).within(least as u64, most as u64);
    Aside::Reciprocal { x: sums, of, scale: unit, to }
}

/// Rows of `e` (rows × cols) divided by their sums, in [`PORTION`].
fn portions<S: Shares>(on: &mut S, e: &S::Share, rows: usize, cols: usize) -> Result<S::Share, RunError> {
    let to = Format { ring: QUOTIENT, ..INVERSE };
    let inverse = on.done(inverse(&e.sum_rows(rows, cols), cols, SUM_BITS, to))?;
    let p = on.scale_rows(&e.reduce_to(QUOTIENT), rows, cols, &inverse)?;
    let shift = WEIGHED.frac + INVERSE.frac - PORTION.frac;
    on.rescale(&p, shift, PORTION.ring)
}

/// Rows of a product (rows × width) divided by the row sums of `e` (rows × cols), in `to`.
fn divide<S: Shares>(
    on: &mut S,
    product: impl FnOnce(&mut S) -> Result<S::Share, RunError>,
    e: &S::Share,
    (rows, cols, width): (usize, usize, usize),
    (sums, to): (&Sums, Format),
) -> Result<S::Share, RunError> {
    let attended = sums.attended;
    let frac = sums.weighed.frac + sums.value.frac;
    let cut = |on: &mut S, o: &S::Share| on.rescale(o, frac - attended.frac, attended.ring);
    let lan = on.over().is_lan();
    let attend = |on: &mut S| {
        let o = product(on)?;
        if lan { Ok(o) } else { cut(on, &o) }
    };
    let totals = e.sum_rows(rows, cols);
    let (o, factors) = on.beside(attend, inverse(&totals, cols, sums.bits, sums.inverse))?;
    let o = if lan { cut(on, &o)? } else { o };
    let y = on.scale_rows(&o, rows, width, &factors)?;
    on.rescale(&y, attended.frac + sums.inverse.frac - to.frac, MAIN)
}

/// The products of as many matrices, with right-hand sides m × n.
fn with(shape: MatmulShape, m: usize, n: usize) -> MatmulShape {
    let k = shape.shape.k;
    MatmulShape { shape: OltShape { k, m, n }, ..shape }
}

/// Joins two matrices of `rows` rows side by side.
fn side_by_side<S: Local>(parts: [S; 2], rows: usize) -> S {
    let [a, b] = parts.each_ref().map(|x| x.elements() / rows.max(1));
    let all = S::concat(parts[0].ring(), &parts);
    all.gather(rows * (a + b), || {
        let row = |r: usize| (r * a..(r + 1) * a).chain(rows * a + r * b..rows * a + (r + 1) * b);
        (0..rows).flat_map(row).collect()
    })
}

/// A group's rows of an …×(heads·dh) matrix as t·heads matrices of m × dh.
fn by_heads<S: Local>(x: &S, group: &Group, (heads, dh): (usize, usize)) -> S {
    let width = heads * dh;
    let count = group.texts.len() * group.rows * width;
    x.gather(count, || {
        let mut places = Vec::with_capacity(count);
        for text in &group.texts {
            for j in 0..heads {
                for i in text.start..text.start + group.rows {
                    let first = i * width + j * dh;
                    places.extend(first..first + dh);
                }
            }
        }
        places
    })
}

/// The same, each transposed: t·heads matrices of dh × m.
fn by_heads_transposed<S: Local>(x: &S, group: &Group, (heads, dh): (usize, usize)) -> S {
    let width = heads * dh;
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

/// Reorders the groups' t·h matrices of m × dh, one group after another, into the rows of the pass: total × h·dh.
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
