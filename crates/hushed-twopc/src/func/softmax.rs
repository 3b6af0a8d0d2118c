//! Softmax's numerator and denominator, row by row. The division comes after the product with V, where there are fewer
//! columns, or before it: the caller chooses.
//!
//! Scores come in units of log 2 (the factor log₂e is folded into the query weights), so that e^(s−max) = 2^−y with y =
//! max − s. The maximum is taken over scores rounded to 2^−3: any number close to the maximum will do, because
//! numerator and denominator shrink alike.
//!
//! Cost per element: one comparison of 14 bits and one multiplexer (maximum), one comparison of 13 bits, one
//! [`exp2_negative`] and one multiplexer (clipping), one extension. A comparison chain has digits of four bits, then
//! three, so 14 bits is the most before it needs another digit. The structure is from BumbleBee (NDSS 2025) §V-B; the
//! exponential is our own.

use super::exp2::{OFFSET, OUT, Y, exp2_negative, exp2_negative_cost};
use super::format::{Format, narrow};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    Sign, less_than_public, less_than_public_cost, max_of_rows, max_of_rows_cost, mux, mux_cost, truncate,
    truncate_cost,
};
use crate::link::Link;
use crate::share::Share;

/// Scores s·log₂e: |s·log₂e| < 2^9, 12 fraction bits, and room for a difference of two scores.
pub const SCORES: Format = Format::new(23, Y.frac);
/// The format in which the maximum is taken.
const COARSE: Format = Format::new(14, 3);
/// Above this, 2^−y counts as zero: from somewhere in [15.75, 16) on.
const CLIP: f64 = 15.875;
/// Low bits that the comparison with [`CLIP`] ignores: it is exact to half their weight, 1/8, and CLIP + 1/8 = 16.
const CLIP_DROP: u32 = 10;
/// The bits that it compares.
const CLIP_KEEP: u32 = SCORES.ring.bits() - CLIP_DROP;
/// No exponential is larger: 2^(1/8), and what is lost by rounding.
pub const MOST: f64 = 1.093;
/// The largest exponential of a row is not smaller: 2^(−1/8), and what is lost by rounding.
pub const LEAST_LARGEST: f64 = 0.91;

/// 2^(s − max) for every element of rows of `widths` scores in [`SCORES`], one row after another, up to a common factor
/// per row between 2^(−1/8) and 2^(1/8), as the maximum is off by less than 1/8. The result is in `to`, non-negative
/// and at most 1.092.
pub fn exponentials(ctx: &mut Ctx, scores: &Share, widths: &[usize], to: Format) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let coarse = narrow(party, scores, SCORES.frac - COARSE.frac, COARSE.ring);
    let top = max_of_rows(ctx, &coarse, widths, 0, COARSE.ring.bits())?;
    // 2^9 times a value modulo 2^14 is known modulo 2^23: lifting the maximum costs nothing.
    let top = Share::new(SCORES.ring, top.into_words()).shift_left(SCORES.frac - COARSE.frac);
    let y = top.gather(&rows_of(widths)).sub(scores).add_public(party, SCORES.signed(OFFSET));

    // For y beyond 16 the result is arbitrary.
    let early = cut_early(&ctx.link(), y.len(), to);
    let cut = |ctx: &mut Ctx, e: &Share| truncate(ctx, e, OUT.frac - to.frac, Sign::NonNegative, to.ring);
    // One that is truncated beside the comparison may be arbitrary then too.
    let power = |ctx: &mut Ctx| {
        let e = exp2_negative(ctx, &y.reduce_to(Y.ring))?;
        if early { cut(ctx, &e) } else { Ok(e) }
    };
    let inside = |ctx: &mut Ctx| less_than_public(ctx, &y, &[SCORES.signed(CLIP)], CLIP_DROP, CLIP_KEEP);
    let (e, inside) = ctx.both(power, (|link: &Link| inside_cost(link, y.len()), inside))?;
    let e = mux(ctx, &inside[0], &e)?;
    if early { Ok(e) } else { cut(ctx, &e) }
}

/// The row of every element.
fn rows_of(widths: &[usize]) -> Vec<usize> {
    let rows = widths.iter().enumerate();
    rows.flat_map(|(row, width)| std::iter::repeat_n(row, *width)).collect()
}

/// The function that the protocol computes in place of softmax, in the clear and without rounding: exponentials below
/// 2^−13.75 of the row's largest count as zero (in the protocol, from somewhere in a quarter of a bit around that).
/// `row` holds scores in natural units.
pub fn approximation(row: &mut [f64]) {
    let top = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    for s in row.iter_mut() {
        let y = (top - *s) * std::f64::consts::LOG2_E + OFFSET;
        *s = if y < CLIP { (-y).exp2() } else { 0.0 };
    }
    let sum: f64 = row.iter().sum();
    row.iter_mut().for_each(|e| *e /= sum);
}

/// The cost of [`exponentials`].
pub fn exponentials_cost(link: &Link, widths: &[usize], to: Format) -> Cost {
    let n = widths.iter().sum();
    let clipped = clipped_cost(link, n, to, cut_early(link, n, to));
    max_of_rows_cost(link, widths, COARSE.ring, (0, COARSE.ring.bits())) + clipped
}

/// Whether the powers are truncated beside the comparison, in a message less, and not after it.
fn cut_early(link: &Link, n: usize, to: Format) -> bool {
    let price = |early| link.price(&clipped_cost(link, n, to, early));
    !link.is_lan() && price(true) < price(false)
}

/// The cost of powers of two that are zero beyond [`CLIP`].
fn clipped_cost(link: &Link, n: usize, to: Format, early: bool) -> Cost {
    let (power, cut) = (exp2_negative_cost(n), truncate_cost(n, OUT.ring, OUT.frac - to.frac, to.ring));
    let inside = |link: &Link| inside_cost(link, n);
    match early {
        true => link.both(|_| power + cut, inside) + mux_cost(n, to.ring),
        false => link.both(|_| power, inside) + mux_cost(n, OUT.ring) + cut,
    }
}

/// The cost of finding which of `n` numbers are below [`CLIP`].
fn inside_cost(link: &Link, n: usize) -> Cost {
    less_than_public_cost(link, n, SCORES.ring, 1, (CLIP_DROP, CLIP_KEEP))
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("softmax {SCORES:?} {COARSE:?} {CLIP} {CLIP_DROP} {MOST} {LEAST_LARGEST}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    #[test]
    fn no_result_is_far_above_one() {
        // Scores so close that any of a row may win, each under its own sharing: every rounding of the maximum occurs.
        let (rows, cols) = (1500, 4);
        let mut next = SecretRng::insecure_from_seed(12);
        let words: Vec<u64> = (0..rows * cols).map(|_| SCORES.ring.reduce(next.next_u64() % 1024)).collect();
        let to = Format::new(40, 14);
        let (client, server) = share(SCORES.ring, &words, 5);
        let (a, b, _) = run_counted(
            move |ctx| exponentials(ctx, &client, &vec![cols; rows], to),
            move |ctx| exponentials(ctx, &server, &vec![cols; rows], to),
        );
        let e = reveal(&a.unwrap(), &b.unwrap());
        let largest = e.iter().map(|&w| to.decode(w)).fold(0.0, f64::max);
        assert!(largest <= 1.092, "{largest}");
    }

    #[test]
    fn what_is_far_below_the_largest_has_no_weight() {
        let (rows, cols) = (40, 64);
        let mut next = SecretRng::insecure_from_seed(13);
        let mut words = Vec::new();
        for _ in 0..rows {
            // From 16 units of log 2 below the maximum to as far as scores can be apart.
            let mut row = |i: usize| match i {
                0 => 400.0,
                _ => 384.0 - (next.next_u64() % (890 << 6)) as f64 / 64.0,
            };
            words.extend((0..cols).map(|i| SCORES.encode(row(i))));
        }
        let to = Format::new(40, 14);
        let (client, server) = share(SCORES.ring, &words, 6);
        for link in [Link::LAN, Link::INTERNET] {
            let run = |ctx: &mut Ctx, x: &Share| {
                ctx.set_link(link);
                exponentials(ctx, x, &vec![cols; rows], to).unwrap()
            };
            let (a, b, stats) = run_counted(|ctx| run(ctx, &client), |ctx| run(ctx, &server));
            assert_cost(&stats, exponentials_cost(&link, &vec![cols; rows], to));
            let mut units = 0;
            for (i, e) in reveal(&a, &b).into_iter().enumerate() {
                let far = i % cols > 0;
                // On a LAN the truncation of 0 gives a unit once in 2^14.
                assert!(!far || e <= u64::from(link.is_lan()), "{i}: {}", to.decode(e));
                units += u64::from(far) * e;
                assert!(far || to.decode(e) > 0.9, "{i}");
            }
            assert!(units <= 4, "{units}");
        }
    }

    #[test]
    fn rows_against_the_clear() {
        let (rows, cols) = (9, 21);
        let mut next = SecretRng::insecure_from_seed(11);
        let mut s: Vec<f64> = (0..rows * cols).map(|_| (next.next_u64() % 4000) as f64 / 100.0 - 25.0).collect();
        s[..cols].fill(3.5); // a constant row
        s[cols..2 * cols].fill(-200.0); // one large score, all others far away
        s[cols + 7] = 250.0;
        let words: Vec<u64> = s.iter().map(|&x| SCORES.encode(x)).collect();
        let to = Format::new(40, 14);
        let (client, server) = share(SCORES.ring, &words, 3);
        let (a, b, stats) = run_counted(
            move |ctx| exponentials(ctx, &client, &vec![cols; rows], to),
            move |ctx| exponentials(ctx, &server, &vec![cols; rows], to),
        );
        assert_cost(&stats, exponentials_cost(&Link::LAN, &vec![cols; rows], to));
        let e: Vec<f64> = reveal(&a.unwrap(), &b.unwrap()).iter().map(|&w| to.decode(w)).collect();
        // Almost nothing is lost by clipping, and rounding errors are 2^−14: twenty add up to about 2·10^−4.
        let most = 9e-4;
        for r in 0..rows {
            let (s, e) = (&s[r * cols..][..cols], &e[r * cols..][..cols]);
            let top = s.iter().cloned().fold(f64::MIN, f64::max);
            let want: Vec<f64> = s.iter().map(|x| (x - top).exp2()).collect();
            let (we, ee) = (want.iter().sum::<f64>(), e.iter().sum::<f64>());
            for (w, e) in want.iter().zip(e) {
                assert!((w / we - e / ee).abs() < most, "row {r}: {} for {}", e / ee, w / we);
            }
        }
    }
}
