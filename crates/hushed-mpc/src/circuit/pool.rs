//! Pools the shared rows of each text into one.
//!
//! If both parties know which rows are tokens, this costs only a division by their number. If only the client knows
//! (padding up to a bucket), its choice is a row of coefficients, 2^22/real for tokens and 0 for padding, and the
//! pooled row is that row times the text's matrix: the client multiplies its own share, and one oblivious linear
//! transformation with encrypted coefficients multiplies the server's.

use hushed_model::{Pool, Rows};
use hushed_net::Party;
use hushed_twopc::func::norm::MOST_WIDTH;

use crate::RunError;
use crate::circuit::groups::{Group, groups};
use crate::formats::{ACTIVATION, LINEAR, MAIN, MAX_TOKENS, MAXIMUM};
use crate::shares::{Local, Shares};

/// Fraction bits of 1/m, which leave that of 512 rows 13 significant ones.
pub(crate) const SHARE_FRAC: u32 = 22;
/// A mean is of rows that a norm has made, |x| ≤ √width: times 2^[`SHARE_FRAC`] it leaves two bits of the ring spare.
const _: () = assert!(
    1 << (2 * (MAIN.bits() - 2 - ACTIVATION.frac - SHARE_FRAC)) > MOST_WIDTH && MAX_TOKENS <= 1 << (SHARE_FRAC - 13)
);

/// Pools the rows of `x` (rows × width over [`MAIN`]) in its format: texts × width. For a mean the rows are those of a
/// norm, in [`ACTIVATION`].
pub fn pool<S: Shares>(
    on: &mut S,
    x: &S::Share,
    rows: &Rows,
    width: usize,
    how: Pool,
    padded: bool,
) -> Result<S::Share, RunError> {
    let pooled = match (how, padded) {
        (Pool::First, _) => return Ok(pick(x, rows, width, |_| 0)),
        (Pool::Last, false) => return Ok(pick(x, rows, width, |real| real - 1)),
        (Pool::Mean, false) => sums(x, rows, width),
        (Pool::Max, _) => return maximum(on, x, rows, width, padded),
        (Pool::Mean | Pool::Last, true) => hidden(on, x, rows, width, how)?,
    };
    match how {
        Pool::Mean => on.rescale(&pooled, SHARE_FRAC, MAIN),
        Pool::First | Pool::Last | Pool::Max => Ok(pooled),
    }
}

/// The maximum of each column of `x` in [`LINEAR`] over each text: texts × width, in [`LINEAR`] again but with
/// [`MAXIMUM`]'s precision. The client lowers its share of padding below every value.
pub fn maximum<S: Shares>(
    on: &mut S,
    x: &S::Share,
    rows: &Rows,
    width: usize,
    padded: bool,
) -> Result<S::Share, RunError> {
    let shift = LINEAR.frac - MAXIMUM.frac;
    let x = on.narrow(x, shift, MAXIMUM.ring);
    let groups = groups(rows);
    let mut done = Vec::with_capacity(groups.len());
    for group in &groups {
        // A row of the tournament is one column of a text.
        let matches = group.texts.len() * width;
        let count = matches * group.rows;
        let mut columns = x.gather(count, || {
            let column = |start: usize, column| (0..group.rows).map(move |i| (start + i) * width + column);
            let text = |start| (0..width).flat_map(move |c| column(start, c));
            group.texts.iter().flat_map(|t| text(t.start)).collect()
        });
        if padded {
            let lowered = on.known(Party::Client, count, || {
                let below = MAXIMUM.signed(-8192.0);
                let column = |real| (0..group.rows).map(move |i| i64::from(i >= real) * below);
                let text = |real| (0..width).flat_map(move |_| column(real));
                group.texts.iter().flat_map(|t| text(t.real)).collect()
            });
            columns = on.add_known(&columns, &lowered);
        }
        let top = on.maxima(&columns, matches, group.rows)?;
        // A value modulo 2^bits times 2^shift is determined modulo LINEAR's ring: widening is free.
        done.push(top.lift(MAIN).shift_left(shift));
    }
    Ok(in_order(&done, &groups, width))
}

/// Picks one row of each text, given the number of its tokens.
fn pick<S: Local>(x: &S, rows: &Rows, width: usize, row: impl Fn(usize) -> usize) -> S {
    x.gather(rows.texts().len() * width, || {
        let places = rows.blocks().flat_map(|(block, real)| {
            let first = (block.start + row(real)) * width;
            first..first + width
        });
        places.collect()
    })
}

/// The sums over each text times 2^[`SHARE_FRAC`]/m.
fn sums<S: Local>(x: &S, rows: &Rows, width: usize) -> S {
    let pooled = rows.blocks().map(|(block, _)| {
        let columns = x.gather(block.len() * width, || {
            let column = |c: usize| block.clone().map(move |row| row * width + c);
            (0..width).flat_map(column).collect()
        });
        let sum = columns.sum_rows(width, block.len());
        sum.times(share_of(block.len()))
    });
    S::concat(MAIN, &pooled.collect::<Vec<_>>())
}

fn share_of(tokens: usize) -> i64 {
    (f64::from(1u32 << SHARE_FRAC) / tokens as f64).round() as i64
}

/// Coefficients that only the client knows, times rows; one text length at a time.
fn hidden<S: Shares>(on: &mut S, x: &S::Share, rows: &Rows, width: usize, how: Pool) -> Result<S::Share, RunError> {
    let groups = groups(rows);
    let mut done = Vec::with_capacity(groups.len());
    for group in &groups {
        let texts = group.texts.len();
        let matrices = x.gather(texts * group.rows * width, || {
            let text = |start: usize| start * width..(start + group.rows) * width;
            group.texts.iter().flat_map(|t| text(t.start)).collect()
        });
        let chosen = on.known(Party::Client, texts * group.rows, || coefficients(group, how));
        done.push(on.known_times(&chosen, &matrices, texts, width)?);
    }
    Ok(in_order(&done, &groups, width))
}

/// One coefficient per row of a group's texts.
fn coefficients(group: &Group, how: Pool) -> Vec<i64> {
    let text = |real: usize| {
        (0..group.rows).map(move |row| match how {
            Pool::Mean if row < real => share_of(real),
            Pool::Last if row + 1 == real => 1,
            Pool::First if row == 0 => 1,
            _ => 0,
        })
    };
    group.texts.iter().flat_map(|t| text(t.real)).collect()
}

/// Puts the rows, one per text and group after group, in the order of the texts.
fn in_order<S: Local>(done: &[S], groups: &[Group], width: usize) -> S {
    let starts = groups.iter().flat_map(|g| g.texts.iter().map(|t| t.start));
    let starts: Vec<usize> = starts.collect();
    let all = S::concat(MAIN, done);
    all.gather(starts.len() * width, || {
        let mut order: Vec<usize> = (0..starts.len()).collect();
        order.sort_unstable_by_key(|&i| starts.get(i));
        let row = |i: usize| i * width..(i + 1) * width;
        order.into_iter().flat_map(row).collect()
    })
}

#[cfg(test)]
mod tests {
    use hushed_model::TextRows;
    use hushed_twopc::share::Share;

    use super::*;
    use crate::Clear;

    /// 1/m is no whole number of units, and its rounding shifts all columns alike.
    #[test]
    fn means_of_many_rows_are_exact_to_four_digits() {
        let width = 2;
        for real in [7, 255, 257, 509, 512] {
            let value = |i: usize| if i < real * width { 20.0 + (i % 7) as f64 } else { 80.0 };
            for total in [real, real + 3] {
                let words = (0..total * width).map(|i| ACTIVATION.encode(value(i))).collect();
                let rows = Rows::new([TextRows { real, total }]);
                let (x, padded) = (Share::new(MAIN, words), total > real);
                let found = pool(&mut Clear::default(), &x, &rows, width, Pool::Mean, padded).unwrap();
                for (column, &word) in found.words().iter().enumerate() {
                    let mean = (0..real).map(|row| value(row * width + column)).sum::<f64>() / real as f64;
                    let found = ACTIVATION.decode(word);
                    assert!((found / mean - 1.0).abs() < 1e-4, "{real} of {total}: {found}, {mean}");
                }
            }
        }
    }
}
