//! One row a text, from shares of all its rows.
//!
//! Where both parties know which rows are tokens this costs nothing but a division by their number. Where only the client knows
//! (padding up to a bucket), its choice is a row of coefficients, 2^16/real over the tokens and 0 over the padding, and the pooled row is that
//! row times the text's matrix: the client multiplies its own share, and one oblivious linear transformation, with the
//! coefficients encrypted, multiplies the server's.

use hushed_model::{Pool, Rows};
use hushed_net::Party;
use hushed_twopc::func::{narrow, rescale};
use hushed_twopc::gadget::{Sign, max_rows, max_rows_cost};
use hushed_twopc::he::local::product;
use hushed_twopc::he::{
    Encrypted, HeContext, OltShape, OltSpec, Packing, olt_encrypted, olt_multiplying,
};
use hushed_twopc::share::Share;
use hushed_twopc::{Cost, Ctx, TwopcError};

use super::formats::{LINEAR, MAIN, MAXIMUM};
use super::groups::{Group, groups};

/// Fraction bits of 1/m.
pub const SHARE_FRAC: u32 = 16;

/// The pooled rows of `x` (rows × width over [`MAIN`]) in its format: texts × width.
pub fn pool(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    rows: &Rows,
    width: usize,
    how: Pool,
    padded: bool,
) -> Result<Share, TwopcError> {
    let pooled = match (how, padded) {
        (Pool::First, _) => return Ok(pick(x, rows, width, |_| 0)),
        (Pool::Last, false) => return Ok(pick(x, rows, width, |real| real - 1)),
        (Pool::Mean, false) => sums(x, rows, width),
        (Pool::Max, _) => return maximum(ctx, x, rows, width, padded),
        (Pool::Mean | Pool::Last, true) => hidden(ctx, he, x, rows, width, how)?,
    };
    match how {
        Pool::Mean => rescale(ctx, &pooled, SHARE_FRAC, Sign::Bounded, MAIN),
        Pool::First | Pool::Last | Pool::Max => Ok(pooled),
    }
}

/// The largest of each column of `x` in [`LINEAR`], over each text: texts × width, in [`LINEAR`] again with [`MAXIMUM`]'s precision. The
/// client lowers its share of padding by what no value reaches.
pub fn maximum(
    ctx: &mut Ctx,
    x: &Share,
    rows: &Rows,
    width: usize,
    padded: bool,
) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let shift = LINEAR.frac - MAXIMUM.frac;
    let x = narrow(party, x, shift, MAXIMUM.ring);
    let groups = groups(rows);
    let mut done = Vec::with_capacity(groups.len());
    for group in &groups {
        // A row of the tournament is a column of a text.
        let mut places = Vec::with_capacity(group.texts.len() * width * group.rows);
        let mut lowered = Vec::with_capacity(places.capacity());
        for text in &group.texts {
            for column in 0..width {
                let rows = 0..group.rows;
                places.extend(rows.clone().map(|i| (text.start + i) * width + column));
                lowered.extend(rows.map(|i| i64::from(i >= text.real) * MAXIMUM.signed(-8192.0)));
            }
        }
        let mut columns = x.gather(&places);
        if padded {
            columns = columns.add_public_each(party, &lowered);
        }
        let matches = group.texts.len() * width;
        let bits = MAXIMUM.ring.bits();
        let top = max_rows(ctx, &columns, matches, group.rows, 0, bits)?;
        // 2^shift times a value modulo 2^bits is known modulo the ring of LINEAR: going up is free.
        done.push(Share::new(MAIN, top.into_words()).shift_left(shift));
    }
    Ok(in_order(&done, &groups, width))
}

/// What [`maximum`] sends.
pub fn maximum_cost(rows: &Rows, width: usize) -> Cost {
    let bits = MAXIMUM.ring.bits();
    let each = groups(rows)
        .into_iter()
        .map(|group| max_rows_cost(group.texts.len() * width, group.rows, MAXIMUM.ring, 0, bits));
    each.sum()
}

/// The hidden product for `texts` texts of `rows` rows.
pub fn hidden_spec(texts: usize, rows: usize, width: usize) -> OltSpec {
    OltSpec {
        shape: OltShape {
            k: 1,
            m: rows,
            n: width,
        },
        batch: texts,
        ring_bits: MAIN.bits(),
        // The server's share as signed integers.
        multiplier_bits: MAIN.bits() - 1,
        encrypted: Encrypted::Left,
        packing: Packing::InterLeave,
        window: None,
    }
}

/// One row of each text, by the number of its tokens.
fn pick(x: &Share, rows: &Rows, width: usize, row: impl Fn(usize) -> usize) -> Share {
    let places = rows.blocks().flat_map(|(block, real)| {
        let first = (block.start + row(real)) * width;
        first..first + width
    });
    x.gather(&places.collect::<Vec<_>>())
}

/// Sums over each text times 2^[`SHARE_FRAC`]/m.
fn sums(x: &Share, rows: &Rows, width: usize) -> Share {
    let mut pooled = Vec::with_capacity(rows.texts().len());
    for (block, _) in rows.blocks() {
        let factor = share_of(block.len());
        let mut sum = Share::zero(MAIN, width);
        for r in block {
            sum.add_assign(&x.slice(r * width..(r + 1) * width));
        }
        pooled.push(sum.mul_public(factor));
    }
    Share::concat(MAIN, &pooled.iter().collect::<Vec<_>>())
}

fn share_of(tokens: usize) -> i64 {
    (f64::from(1u32 << SHARE_FRAC) / tokens as f64).round() as i64
}

/// Coefficients times rows, with coefficients that the client alone knows; texts of one length at a time.
fn hidden(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    rows: &Rows,
    width: usize,
    how: Pool,
) -> Result<Share, TwopcError> {
    let groups = groups(rows);
    let mut done = Vec::with_capacity(groups.len());
    for group in &groups {
        let spec = hidden_spec(group.texts.len(), group.rows, width);
        let matrices = group.texts.iter().flat_map(|text| {
            let first = text.start * width;
            first..first + group.rows * width
        });
        let matrices = x.gather(&matrices.collect::<Vec<_>>());
        done.push(match ctx.party() {
            Party::Client => {
                let chosen = Share::new(MAIN, coefficients(group, how));
                let cross = olt_encrypted(ctx, he, &spec, chosen.words())?;
                let texts = matrices.words().chunks_exact(group.rows * width);
                let own = chosen.words().chunks_exact(group.rows).zip(texts);
                let own = own.flat_map(|(c, x)| product(c, x, 1, group.rows, width));
                cross.add(&Share::new(MAIN, own.collect()))
            }
            Party::Server => {
                let values = zeroize::Zeroizing::new(
                    matrices
                        .words()
                        .iter()
                        .map(|&w| MAIN.decode(w))
                        .collect::<Vec<i64>>(),
                );
                olt_multiplying(ctx, he, &spec, &values)?
            }
        });
    }
    Ok(in_order(&done, &groups, width))
}

/// A coefficient for every row of a group's texts.
fn coefficients(group: &Group, how: Pool) -> Vec<u64> {
    let text = |real: usize| {
        (0..group.rows).map(move |row| match how {
            Pool::Mean if row < real => share_of(real) as u64,
            Pool::Last if row + 1 == real => 1,
            Pool::First if row == 0 => 1,
            _ => 0,
        })
    };
    group.texts.iter().flat_map(|t| text(t.real)).collect()
}

/// One row a text, group after group, in the order of the texts.
fn in_order(done: &[Share], groups: &[Group], width: usize) -> Share {
    let mut order: Vec<usize> = groups
        .iter()
        .flat_map(|g| g.texts.iter().map(|t| t.start))
        .collect();
    let all = Share::concat(MAIN, &done.iter().collect::<Vec<_>>());
    let mut place: Vec<usize> = (0..order.len()).collect();
    place.sort_unstable_by_key(|&i| order[i]);
    order.clear();
    order.extend(place.iter().flat_map(|&i| i * width..(i + 1) * width));
    all.gather(&order)
}
