//! 2^(OFFSET − y) for a shared y, 2 ≤ y < 16.
//!
//! The parties, a chooser and a holder, have y = y_c + y_h mod 16 with [`Y`]'s 12 fraction bits. Write y_p = 2·k_p +
//! φ_p with k_p in 0..8 and 0 ≤ φ_p < 2. Then
//!
//! > 2^−y = 2^−φ_c · 2^−φ_h · 4^−κ,  κ = (k_c + k_h) mod 8,
//!
//! as long as 2·(k_c + k_h) and φ_c + φ_h do not carry across 16 together, which y ≥ 2 excludes: ⌊y/2⌋ is κ or κ + 1.
//! So no comparison for a wrap is needed. The holder knows v = 2^(OFFSET−φ_h) and k_h, and offers the 8 numbers
//! v·4^−((j + k_h) mod 8); the chooser takes the one at j = k_c by a 1-of-8 OT, as additive shares. One product with
//! its 14-bit u = 2^−φ_c completes it. In all that is one table of 8·30 bits and one short product, 70 bytes, where the
//! repeated squaring of BumbleBee §V-B takes six products of 70 bytes. Steps of one bit would take a table of 16·29
//! bits and 94 bytes; steps of four bits would leave too little of the sixteen.
//!
//! Nearly all of this is sent by the holder. Each party is the holder for half of the elements, so that both send and
//! compute at once.
//!
//! Error: u ≥ 1/4 is rounded to 2^−14 and a table entry to 2^−16, and u is at most 1: |error| ≤ 2^−12·result + 2^−16.

use zeroize::Zeroizing;

use super::format::Format;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{client_chooses, ole, ole_cost, tables, tables_cost};
use crate::share::Share;

/// The argument: 4 integer and 12 fraction bits, so that the ring is the interval [0, 16).
pub const Y: Format = Format::new(16, 12);
/// The result, in [0, 2): its top bit is zero.
pub const OUT: Format = Format::new(30, U_FRAC + V_FRAC);
/// 2^(OFFSET − y) is at most 1 for y ≥ OFFSET; the margin to 2 covers the rounding of a row's maximum.
pub const OFFSET: f64 = 2.125;

/// Bits of k.
const STEPS: u32 = 3;
/// Bits of φ.
const REST: u32 = Y.ring.bits() - STEPS;
const U_FRAC: u32 = 13;
const U_BITS: u32 = 14;
const V_FRAC: u32 = 15;
/// Bits below the table's precision that are kept until the shift by κ, so that each entry is rounded once.
const GUARD: u32 = 16;

/// 2^([`OFFSET`] − y) for `y` in [`Y`] with 2 ≤ y < 16; the result is in [`OUT`], and arbitrary for any other y.
pub fn exp2_negative(ctx: &mut Ctx, y: &Share) -> Result<Share, TwopcError> {
    let (head, tail) = y.words().split_at(client_chooses(y.len()));
    let [chosen, held] = ctx.by_role(head, tail);
    let index = chosen.iter().map(|w| (w >> REST) as u8);
    let index: Zeroizing<Vec<u8>> = Zeroizing::new(index.collect());
    let heights = held.iter().map(|&w| pow2_minus(below(w), OFFSET, V_FRAC + GUARD));
    let heights: Zeroizing<Vec<u64>> = Zeroizing::new(heights.collect());
    let table = |i: usize, row: &mut [u64]| entries(heights[i], held[i] >> REST, row);
    let [taken, rest] = tables(ctx, STEPS, &index, (held.len(), table), OUT.ring)?;

    let factor = chosen.iter().map(|&w| pow2_minus(below(w), 0.0, U_FRAC));
    let factor: Zeroizing<Vec<u64>> = Zeroizing::new(factor.collect());
    let [cross, rest] = ole(ctx, &factor, rest.words(), U_BITS, OUT.ring)?;
    let own = taken.words().iter().zip(factor.iter());
    let own = own.map(|(z, u)| z.wrapping_mul(*u)).collect();
    let own = Share::new(OUT.ring, own).add(&cross);
    Ok(Share::concat(OUT.ring, &ctx.by_role(&own, &rest)))
}

/// The cost of [`exp2_negative`] for `n` elements.
pub fn exp2_negative_cost(n: usize) -> Cost {
    let first = client_chooses(n);
    let (by_client, by_server) = (first, n - first);
    tables_cost(STEPS, by_client, by_server, OUT.ring) + ole_cost(by_client, by_server, U_BITS, OUT.ring)
}

/// The holder's table for an element: entry j is v·4^−((j + k) mod 8), where v has [`GUARD`] bits more.
fn entries(v: u64, k: u64, row: &mut [u64]) {
    for (j, entry) in (0..).zip(row) {
        let kappa = (j + k) & ((1 << STEPS) - 1);
        // A shift in a vector register takes as long by any count, but valgrind reports it for a secret one: each entry
        // is shifted alone.
        let shift = std::hint::black_box(u64::from(GUARD) + 2 * kappa);
        *entry = (v + (1 << (shift - 1))) >> shift;
    }
}

/// φ: the part of y below the steps of two.
fn below(word: u64) -> f64 {
    (word & ((1 << REST) - 1)) as f64 / (1u64 << Y.frac) as f64
}

/// ⌊2^(offset − φ)·2^frac⌉ for 0 ≤ φ < 2, by the Taylor series of e^(−φ·ln 2) about φ = 1: with neither a table nor a
/// branch, so that the time does not depend on φ. Fourteen terms leave less than 2^−45.
fn pow2_minus(phi: f64, offset: f64, frac: u32) -> u64 {
    let t = (1.0 - phi) * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..=14).rev() {
        sum = 1.0 + sum * t / f64::from(k);
    }
    // The factor is public.
    let scale = (offset - 1.0 + f64::from(frac)).exp2();
    (sum * scale + 0.5) as u64
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("exp2 {Y:?} {STEPS} {OUT:?} {OFFSET} {U_FRAC} {V_FRAC}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};

    #[test]
    fn powers_are_exact_to_the_unit() {
        for i in 0..8192u64 {
            let phi = i as f64 / 4096.0;
            let want = (-phi).exp2() * f64::from(1u32 << 30);
            let got = pow2_minus(phi, 0.0, 30) as f64;
            assert!((got - want).abs() <= 0.5 + 1e-4, "{i}");
        }
    }

    #[test]
    fn every_argument() {
        // All of [2, 16), each under its own random sharing, so that all carries of κ and φ occur.
        let y: Vec<u64> = (8192..65536).collect();
        let (client, server) = share(Y.ring, &y, 5);
        let (a, b, stats) = run_counted(move |ctx| exp2_negative(ctx, &client), move |ctx| exp2_negative(ctx, &server));
        assert_cost(&stats, exp2_negative_cost(y.len()));
        for (y, e) in y.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let want = (OFFSET - *y as f64 / 4096.0).exp2();
            let got = OUT.decode(e);
            let bound = want * 2f64.powi(-12) + 2f64.powi(-16);
            assert!((got - want).abs() <= bound, "{y}: {got} for {want}");
        }
    }
}
