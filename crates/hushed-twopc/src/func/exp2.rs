//! 2^(OFFSET − y) of a shared y, 1 ≤ y < 16.
//!
//! The parties, a chooser and a holder, have y = y_c + y_h mod 16 with [`Y`]'s 12 fraction bits, y_p = k_p + φ_p with
//! k_p in 0..16 and 0 ≤ φ_p < 1. Then
//!
//! > 2^−y = 2^−φ_c · 2^−φ_h · 2^−κ,  κ = (k_c + k_h) mod 16,
//!
//! as long as k_c + k_h and φ_c + φ_h do not carry across 16 together, which y ≥ 1 excludes: the integer part of y is κ
//! or κ + 1. So no wrap is compared. The holder knows v = 2^(OFFSET−φ_h) and k_h, and offers the 16 numbers v·2^−((j +
//! k_h) mod 16); the chooser takes the one at j = k_c by a 1-of-16 OT, as additive shares; one product with its 13-bit
//! u = 2^−φ_c ends it. It takes one table of 16·29 bits and one short product, 98 bytes, where the repeated squaring of
//! BumbleBee §V-B takes six products of 70 bytes.
//!
//! Nine tenths of that are the holder's. Either party holds for half of the elements, so that both send and compute at
//! once.
//!
//! κ = 15 counts as zero: 2^−15 and less is below the precision of what follows.
//!
//! Error: u ≥ 1/2 is rounded to 2^−13 and a table entry to 2^−16, and the other factor of each is at most 1 and 2.1:
//! |error| ≤ 2^−12·result + 2^−16.

use zeroize::Zeroizing;

use super::Format;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{client_chooses, ole, ole_cost, tables_16, tables_16_cost};
use crate::share::Share;
use hushed_net::Party;

/// The argument: 4 integer and 12 fraction bits, so that the ring is the interval [0, 16).
pub const Y: Format = Format::new(16, 12);
/// The result, in [0, 2): its top bit is zero.
pub const OUT: Format = Format::new(29, U_FRAC + V_FRAC);
/// 2^(OFFSET − y) is at most 1 for y ≥ OFFSET; the margin to 1 takes the rounding of a row's maximum.
pub const OFFSET: f64 = 1.0625;

const U_FRAC: u32 = 12;
const U_BITS: u32 = 13;
const V_FRAC: u32 = 15;
/// Bits below the table's precision kept until the shift by κ, so that each entry is rounded once.
const GUARD: u32 = 16;

/// 2^([`OFFSET`] − y): `y` in [`Y`] with 1 ≤ y < 16; the result in [`OUT`].
pub fn exp2_negative(ctx: &mut Ctx, y: &Share) -> Result<Share, TwopcError> {
    let (head, tail) = y.words().split_at(client_chooses(y.len()));
    let client = ctx.party() == Party::Client;
    let (chosen, held) = if client { (head, tail) } else { (tail, head) };
    let index = chosen.iter().map(|w| (w >> Y.frac) as u8);
    let index: Zeroizing<Vec<u8>> = Zeroizing::new(index.collect());
    let tables = Zeroizing::new(entries(held));
    let [taken, rest] = tables_16(ctx, &index, &tables, OUT.ring)?;

    let factor = chosen.iter().map(|&w| pow2_minus(fraction(w), 0.0, U_FRAC));
    let factor: Zeroizing<Vec<u64>> = Zeroizing::new(factor.collect());
    let [cross, rest] = ole(ctx, &factor, rest.words(), U_BITS, OUT.ring)?;
    let own = taken.words().iter().zip(factor.iter());
    let own = own.map(|(z, u)| z.wrapping_mul(*u)).collect();
    let own = Share::new(OUT.ring, own).add(&cross);
    let parts = if client { [&own, &rest] } else { [&rest, &own] };
    Ok(Share::concat(OUT.ring, &parts))
}

/// The cost of [`exp2_negative`] for `n` elements.
pub fn exp2_negative_cost(n: usize) -> Cost {
    let first = client_chooses(n);
    let (by_client, by_server) = (first, n - first);
    tables_16_cost(by_client, by_server, OUT.ring)
        + ole_cost(by_client, by_server, U_BITS, OUT.ring)
}

/// The holder's tables: entry j of element i is v·2^−((j + k_i) mod 16).
fn entries(y: &[u64]) -> Vec<u64> {
    let mut out = Vec::with_capacity(16 * y.len());
    for &w in y {
        let v = pow2_minus(fraction(w), OFFSET, V_FRAC + GUARD);
        let k = w >> Y.frac;
        for j in 0..16 {
            let kappa = (j + k) & 15;
            let rounded = (v + ((1 << (GUARD - 1)) << kappa)) >> (GUARD as u64 + kappa);
            // A mask instead of a branch: κ is secret.
            let keep = 0u64.wrapping_sub(u64::from(kappa != 15));
            out.push(rounded & keep);
        }
    }
    out
}

/// φ, the fraction of y.
fn fraction(word: u64) -> f64 {
    (word & ((1 << Y.frac) - 1)) as f64 / (1u64 << Y.frac) as f64
}

/// ⌊2^(offset − φ)·2^frac⌉ for 0 ≤ φ < 1, by Taylor's series of e^(−φ·ln 2) about φ = 1/2: neither a table nor a
/// branch, so that the time does not depend on φ. Twelve terms leave less than 2^−45.
fn pow2_minus(phi: f64, offset: f64, frac: u32) -> u64 {
    let t = (0.5 - phi) * std::f64::consts::LN_2;
    let mut sum = 1.0;
    for k in (1..=12).rev() {
        sum = 1.0 + sum * t / f64::from(k);
    }
    // The factor is public.
    let scale = (offset - 0.5 + f64::from(frac)).exp2();
    (sum * scale + 0.5) as u64
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("exp2 {Y:?} {OUT:?} {OFFSET} {U_FRAC} {V_FRAC}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};

    #[test]
    fn powers_are_exact_to_the_unit() {
        for i in 0..4096u64 {
            let phi = i as f64 / 4096.0;
            let want = (-phi).exp2() * f64::from(1u32 << 30);
            let got = pow2_minus(phi, 0.0, 30) as f64;
            assert!((got - want).abs() <= 0.5 + 1e-4, "{i}");
        }
    }

    #[test]
    fn every_argument() {
        // All of [1, 16), each under its own random sharing, so all carries of κ and φ occur.
        let y: Vec<u64> = (4096..65536).collect();
        let (client, server) = share(Y.ring, &y, 5);
        let (a, b, stats) = run_counted(
            move |ctx| exp2_negative(ctx, &client),
            move |ctx| exp2_negative(ctx, &server),
        );
        assert_cost(&stats, exp2_negative_cost(y.len()));
        for (y, e) in y.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let want = (OFFSET - *y as f64 / 4096.0).exp2();
            let got = OUT.decode(e);
            let bound =
                want * 2f64.powi(-12) + 2f64.powi(-16) + if *y >= 15 * 4096 { want } else { 0.0 };
            assert!((got - want).abs() <= bound, "{y}: {got} for {want}");
        }
    }
}
