//! Scores, softmax and the product with V: texts of equal length together, all heads of all of them as one batch.
//!
//! Shapes: over all texts Q is rows × h·dh, K and V rows × g·dh; of a group of t texts of m rows, with n keys each (the
//! m of the text and those of earlier passes, which a [`Past`] holds), scores and weights are t·h × m × n. Where one
//! row a text asks, Q is texts × h·dh and m is 1, with the same keys. The h/g heads that read the same keys lie one
//! after another, so that they are one product of m·h/g rows.
//!
//! Behind a [public prefix](super::prefix) of p rows, its p keys come before the n. Their scores, and their part of the
//! product with V, are products with numbers of the server's.

use std::ops::Range;

use hushed_model::{Attention, Heads, Mask, Queries, Rope, StepId};
use hushed_net::Party;
use hushed_twopc::func::Format;
use hushed_twopc::func::softmax::SCORES;
use hushed_twopc::he::{MatmulShape, OltShape};

use crate::RunError;
use crate::circuit::cache::Past;
use crate::circuit::groups::{Asking, Group};
use crate::circuit::input::Padding;
use crate::formats::{
    ACTIVATION, INVERSE, KEY_BITS, LINEAR, MAIN, MASKED, PORTION, QUERY, QUOTIENT, SUM_BITS, Sums,
    TURN_FRAC, TURNED, VALUE, VALUE_BITS, WEIGHED,
};
use crate::shares::{Local, Shares};

/// Q_j·K_jᵀ in units of log 2 for every head j of every text: `q` (its factor already in it) and `k` in [`LINEAR`]; one
/// share a group, in [`SCORES`]. The keys, turned where the block says so, become part of `past`.
pub fn scores<S: Shares>(
    on: &mut S,
    [q, k]: [&S::Share; 2],
    past: &mut Past<S::Share>,
    rows: &Asking<'_>,
    (a, step): (&Attention, StepId),
) -> Result<Vec<S::Share>, RunError> {
    let (heads, shift) = (a.heads, LINEAR.frac - QUERY.frac);
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
            shape: OltShape {
                k: asking.rows * heads.shared(),
                m: heads.width,
                n: keys.rows,
            },
            batch: group.texts.len() * heads.keys,
        };
        let mut s = on.matmul(&q, &k, &shape)?;
        let public = past.prefix().rows();
        if public > 0 {
            let numbers = || past.prefix().keys(step);
            let keys = on.known(Party::Server, public * heads.key_columns(), numbers);
            let shape = with(shape, heads.width, public);
            let before = on.times_known(&q, &keys, &shape, KEY_BITS)?;
            s = side_by_side([before, s], asking.rows * heads.count);
        }
        Ok(on.narrow(&s, 2 * QUERY.frac - SCORES.frac, SCORES.ring))
    };
    rows.groups().into_iter().map(product).collect()
}

/// Q and K in [`QUERY`], turned by their places: the rows of every text are at `before` and after it. Cosines and sines
/// are public, so that turning is local; what one truncation of both gives has bits enough for it, and loses the last
/// ones locally.
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
        // Where places turn rows, padding is in front: the last row is the last token to both parties.
        lengths.flat_map(move |length| match queries {
            Queries::All => before..before + length,
            Queries::First => before..before + 1,
            Queries::Last => before + length - 1..before + length,
        })
    };
    // What every row of a head is multiplied by: one table a place, for the heads of Q and then for those of K.
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
        [
            part(rows.queries, heads.count),
            part(Queries::All, heads.keys),
        ]
        .concat()
    };
    let partner = both.gather(elements, || {
        let mut other = vec![0; dh];
        for i in 0..dh / 2 {
            let (a, b) = rope.pair(i, dh);
            (other[a], other[b]) = (b, a);
        }
        let starts = (0..elements).step_by(dh.max(1));
        starts
            .flat_map(|s| other.iter().map(move |o| s + o))
            .collect()
    });
    let mut turned = both.times_each(|| tables(|angle, _| angle.cos()));
    turned.add_assign(
        &partner
            .times_each(|| tables(|angle, first| if first { -angle.sin() } else { angle.sin() })),
    );
    let turned = on.narrow(&turned, TURNED.frac + TURN_FRAC - QUERY.frac, QUERY.ring);
    let part = |range: Range<usize>| turned.gather(range.len(), || range.collect());
    Ok((part(0..queries), part(queries..elements)))
}

/// Exponentials of scores, in [`WEIGHED`]: softmax without its division. Keys that the mask hides get none, and take no
/// part; nor get any, with `padding`, those that the client knows to be such: it adds [`MASKED`] to them.
pub fn weigh<S: Shares>(
    on: &mut S,
    scores: &[S::Share],
    past: &Past<S::Share>,
    rows: &Asking<'_>,
    how: (Heads, Mask),
    padding: Option<Padding>,
) -> Result<Vec<S::Share>, RunError> {
    let (heads, mask) = how;
    let weights = |(s, (group, asking)): (&S::Share, (Group, Group))| {
        let public = past.prefix().rows();
        let (m, n) = (asking.rows, public + past.before(&group).rows);
        let matrices = group.texts.len() * heads.count;
        // One row is the last, or under no mask.
        let seen = Seen {
            rows: m,
            keys: n,
            causal: mask == Mask::Causal && m > 1,
        };
        let mut s = seen.of(s, matrices);
        if let Some(padding) = padding {
            let behind = padding != Padding::InFront;
            let masked = || {
                let one = masked(past, &group, rows.queries, behind);
                let one = one
                    .into_iter()
                    .map(|text| seen.places(1).map(|p| text[p]).collect());
                one.flat_map(|text: Vec<i64>| text.repeat(heads.count))
                    .collect()
            };
            let masked = on.known(Party::Client, s.elements(), masked);
            s = on.add_known(&s, &masked);
        }
        let to = past.sums().weighed;
        let e = on.exponentials(&s, &seen.widths().repeat(matrices), to)?;
        Ok(seen.spread(on, e, matrices))
    };
    scores.iter().zip(rows.groups()).map(weights).collect()
}

/// The keys that rows see by the mask, which is public.
struct Seen {
    rows: usize,
    keys: usize,
    /// Row i of m sees the first n − m + i + 1 of n keys; else all.
    causal: bool,
}

impl Seen {
    /// How many keys each row sees.
    fn widths(&self) -> Vec<usize> {
        let hidden = |row: usize| usize::from(self.causal) * (self.rows - 1 - row);
        (0..self.rows).map(|row| self.keys - hidden(row)).collect()
    }

    /// The places of these keys in so many matrices of rows × keys.
    fn places(&self, matrices: usize) -> impl Iterator<Item = usize> {
        let widths = self.widths().repeat(matrices);
        let (rows, keys) = (widths.into_iter().enumerate(), self.keys);
        rows.flat_map(move |(row, width)| row * keys..row * keys + width)
    }

    /// What is at these places.
    fn of<S: Local>(&self, x: &S, matrices: usize) -> S {
        let count = matrices * self.widths().iter().sum::<usize>();
        match self.causal {
            true => x.gather(count, || self.places(matrices).collect()),
            false => x.clone(),
        }
    }

    /// Whole matrices again, with zeros elsewhere.
    fn spread<S: Shares>(&self, on: &S, x: S::Share, matrices: usize) -> S::Share {
        if !self.causal {
            return x;
        }
        let (ring, count) = (x.ring(), x.elements());
        let nothing = on.known(Party::Server, 1, || vec![0]);
        let with_zero = S::Share::concat(ring, &[x, on.shared(&nothing, ring)]);
        let all = matrices * self.rows * self.keys;
        with_zero.gather(all, || {
            let mut places = vec![count; all];
            for (from, to) in self.places(matrices).enumerate() {
                places[to] = from;
            }
            places
        })
    }
}

/// For each text of a group [`MASKED`] at the keys that are padding to a row, 0 elsewhere. Which are is the client's
/// secret: it adds these to its own share.
fn masked<S: Local>(
    past: &Past<S>,
    group: &Group,
    queries: Queries,
    behind: bool,
) -> Vec<Vec<i64>> {
    let masked = SCORES.signed(MASKED);
    let public = past.prefix().rows();
    let before = past.before(group).rows - group.rows;
    let text = |real: usize| {
        let hidden = |row: usize, key: usize| {
            let in_front = before..before + group.rows - real;
            let padding = match behind {
                true => key >= before + real,
                false => in_front.contains(&key),
            };
            // A row of padding in front of the text sees itself, as a first token does: with nothing to see it would
            // get values that no calibration has measured.
            let own = !behind && key == before + row && in_front.contains(&key);
            (padding || past.is_padding(key)) && !own
        };
        let row = |row: usize| {
            let private = (0..before + group.rows).map(move |key| hidden(row, key));
            std::iter::repeat_n(false, public).chain(private)
        };
        let asking = match queries {
            Queries::All => 0..group.rows,
            Queries::First => 0..1,
            Queries::Last if behind => real - 1..real,
            Queries::Last => group.rows - 1..group.rows,
        };
        let all = asking.flat_map(row);
        all.map(|hidden| i64::from(hidden) * masked).collect()
    };
    group.texts.iter().map(|t| text(t.real)).collect()
}

/// Σ_k e_ik·v_k / Σ_k e_ik for every head: `e` as [`weigh`] gives it, `v` in [`LINEAR`]; the result in [`ACTIVATION`].
/// The values become part of `past`.
pub fn attend<S: Shares>(
    on: &mut S,
    e: &[S::Share],
    v: &S::Share,
    past: &mut Past<S::Share>,
    rows: &Asking<'_>,
    (heads, step): (Heads, StepId),
) -> Result<S::Share, RunError> {
    let (sums, public) = (past.sums(), past.prefix().rows());
    let v = on.rescale(v, LINEAR.frac - sums.value.frac, sums.value.ring)?;
    let v = past.with_values(v);
    let (groups, asking): (Vec<Group>, Vec<Group>) = rows.groups().into_iter().unzip();
    let mut done = Vec::with_capacity(e.len());
    for (e, (group, asking)) in e.iter().zip(groups.iter().zip(&asking)) {
        let keys = past.before(group);
        let (m, n) = (asking.rows, keys.rows);
        let v = by_heads(&v, &keys, (heads.keys, heads.width));
        let batch = group.texts.len() * heads.count;
        let shape = MatmulShape {
            shape: OltShape {
                k: m * heads.shared(),
                m: n,
                n: heads.width,
            },
            batch: group.texts.len() * heads.keys,
        };
        let numbers = || past.prefix().values(step);
        let before = on.known(Party::Server, public * heads.key_columns(), numbers);
        // Rows of weights, in any ring, times all values.
        let product = |on: &mut S, weights: &S::Share| {
            let [public_keys, own] = apart(weights, [public, n], batch * m);
            let mut o = on.matmul(&own, &v.reduce_to(weights.ring()), &shape)?;
            if public > 0 {
                let shape = with(shape, public, heads.width);
                o.add_assign(&on.times_known(&public_keys, &before, &shape, VALUE_BITS)?);
            }
            Ok::<_, RunError>(o)
        };
        let all = public + n;
        done.push(match divides_first(all, heads) {
            true => {
                let p = portions(on, e, batch * m, all)?;
                let o = product(on, &p)?;
                let shift = PORTION.frac + VALUE.frac - ACTIVATION.frac;
                on.rescale(&o, shift, MAIN)?
            }
            false => {
                let o = product(on, e)?;
                divide(on, &o, e, (batch * m, all, heads.width), sums)?
            }
        });
    }
    Ok(by_rows(
        &S::Share::concat(MAIN, &done),
        &asking,
        rows.asking().total(),
        heads,
    ))
}

/// Whether the weights over `n` keys are divided by their sums before the product with V, or the product after it:
/// whichever has fewer numbers.
fn divides_first(n: usize, heads: Heads) -> bool {
    n < heads.width
}

/// 1 / the row sums of `e` (rows × cols), which have so many bits.
fn inverse_sums<S: Shares>(
    on: &mut S,
    e: &S::Share,
    (rows, cols): (usize, usize),
    bits: u32,
    to: Format,
) -> Result<S::Share, RunError> {
    let sums = e.sum_rows(rows, cols);
    let unit = f64::from(1u32 << WEIGHED.frac);
    on.reciprocal(&sums, bits, unit, to)
}

/// Rows of `e` (rows × cols) divided by their sums, in [`PORTION`].
fn portions<S: Shares>(
    on: &mut S,
    e: &S::Share,
    rows: usize,
    cols: usize,
) -> Result<S::Share, RunError> {
    let to = Format {
        ring: QUOTIENT,
        ..INVERSE
    };
    let inverse = inverse_sums(on, e, (rows, cols), SUM_BITS, to)?;
    let p = on.scale_rows(&e.reduce_to(QUOTIENT), rows, cols, &inverse)?;
    let shift = WEIGHED.frac + INVERSE.frac - PORTION.frac;
    on.rescale(&p, shift, PORTION.ring)
}

/// Rows of `o` (rows × width) divided by the row sums of `e` (rows × cols).
fn divide<S: Shares>(
    on: &mut S,
    o: &S::Share,
    e: &S::Share,
    (rows, cols, width): (usize, usize, usize),
    sums: &Sums,
) -> Result<S::Share, RunError> {
    let (attended, inverse) = (sums.attended, sums.inverse);
    let factors = inverse_sums(on, e, (rows, cols), sums.bits, inverse)?;
    let frac = sums.weighed.frac + sums.value.frac;
    let o = on.rescale(o, frac - attended.frac, attended.ring)?;
    let y = on.scale_rows(&o, rows, width, &factors)?;
    let shift = attended.frac + inverse.frac - ACTIVATION.frac;
    on.rescale(&y, shift, MAIN)
}

/// The products of as many matrices, m × n from the right.
fn with(shape: MatmulShape, m: usize, n: usize) -> MatmulShape {
    let k = shape.shape.k;
    MatmulShape {
        shape: OltShape { k, m, n },
        ..shape
    }
}

/// Matrices of `rows` rows as one, whose columns are those of each.
fn side_by_side<S: Local>(parts: [S; 2], rows: usize) -> S {
    let [a, b] = parts.each_ref().map(|x| x.elements() / rows.max(1));
    let all = S::concat(parts[0].ring(), &parts);
    all.gather(rows * (a + b), || {
        let row = |r: usize| (r * a..(r + 1) * a).chain(rows * a + r * b..rows * a + (r + 1) * b);
        (0..rows).flat_map(row).collect()
    })
}

/// The first columns of a matrix of `rows` rows, and the others.
fn apart<S: Local>(x: &S, [a, b]: [usize; 2], rows: usize) -> [S; 2] {
    let columns = |first: usize, count: usize| {
        let row = move |r: usize| r * (a + b) + first..r * (a + b) + first + count;
        x.gather(rows * count, || (0..rows).flat_map(row).collect())
    };
    [columns(0, a), columns(a, b)]
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
