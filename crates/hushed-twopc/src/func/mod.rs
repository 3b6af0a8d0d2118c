//! Functions on fixed-point shares: the non-linear parts of a transformer.
//!
//! A real number x is the integer ⌊x·2^f⌉ modulo 2^ℓ; every function documents the ring and the number of fraction bits
//! of its argument and its result. Two rules keep the traffic low, both from BumbleBee (NDSS 2025, §V-C) and taken
//! further: *going down is free* (in a ring with `shift` spare bits each party truncates alone, [`narrow`]), and *go up
//! once*, at the end, with one fused truncation and extension.
//!
//! | function | method | module |
//! |---|---|---|
//! | exp2 of a negative number | one 1-of-8 OT and one 14-bit product per element | [`exp2`] |
//! | softmax without its division | row maxima, clipping, exp2 | [`softmax`] |
//! | GELU, SiLU, ELU, tanh | the top bits, one short square, one 1-of-8 or 1-of-16 OT each way | [`curve`] |
//! | ReLU, squared ReLU | one comparison and one multiplexer; one square | [`relu`] |
//! | σ of a score, for attention without softmax | as tanh | [`sigmoid`] |
//! | 1/x and 1/√x of one number per row | highest bit, one polynomial | [`inverse`] |
//! | LayerNorm, RMSNorm without gain and offset | a row's sum of squares and 1/√x, a product per element | [`norm`] |

pub mod curve;
pub mod exp2;
pub mod inverse;
pub mod norm;
pub mod relu;
pub mod sigmoid;
pub mod softmax;

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{Sign, truncate, truncate_cost};
use crate::share::{Ring, Share};
use hushed_net::Party;

/// A ring, and the number of fraction bits of its elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Format {
    /// ℓ
    pub ring: Ring,
    /// f
    pub frac: u32,
}

impl Format {
    /// ℓ bits of which f are fraction.
    pub const fn new(bits: u32, frac: u32) -> Format {
        Format {
            ring: Ring::new(bits),
            frac,
        }
    }

    /// `x` as an element of the ring.
    pub fn encode(self, x: f64) -> u64 {
        self.ring.encode(self.signed(x))
    }

    /// `x` as a signed integer, for public constants.
    pub fn signed(self, x: f64) -> i64 {
        (x * (1u64 << self.frac) as f64).round() as i64
    }

    /// The real number that an element stands for.
    pub fn decode(self, word: u64) -> f64 {
        self.ring.decode(word) as f64 / (1u64 << self.frac) as f64
    }
}

/// x/2^shift in the smaller ring `to`, computed by each party alone. Needs ℓ ≥ to + shift, so that a wrap of the shares
/// modulo 2^ℓ is a multiple of 2^to. The error is below one unit either way: the two floors lose one unit on average,
/// which the client adds back.
///
/// # Panics
/// If the ring is too small.
pub fn narrow(party: Party, x: &Share, shift: u32, to: Ring) -> Share {
    assert!(
        to.bits() + shift <= x.ring().bits(),
        "narrowing needs `shift` spare bits"
    );
    if shift == 0 {
        return x.reduce_to(to);
    }
    let words = x.words().iter().map(|w| w >> shift).collect();
    Share::new(to, words).add_public(party, 1)
}

/// x/2^shift in the ring `to`: locally where [`narrow`] applies, otherwise by the truncation protocol.
pub fn rescale(
    ctx: &mut Ctx,
    x: &Share,
    shift: u32,
    sign: Sign,
    to: Ring,
) -> Result<Share, TwopcError> {
    if to.bits() + shift <= x.ring().bits() {
        return Ok(narrow(ctx.party(), x, shift, to));
    }
    truncate(ctx, x, shift, sign, to)
}

/// The cost of [`rescale`] for `n` elements.
pub fn rescale_cost(n: usize, from: Ring, shift: u32, to: Ring) -> Cost {
    if to.bits() + shift <= from.bits() {
        return Cost::ZERO;
    }
    truncate_cost(n, from, shift, to)
}

/// The constants of every function here, as text: parties that differ in one of them must not run together. New
/// constants belong in their module's part of this text.
pub fn describe() -> String {
    [
        exp2::describe(),
        softmax::describe(),
        curve::describe(),
        relu::describe(),
        sigmoid::describe(),
        inverse::describe(),
        norm::describe(),
    ]
    .join(" ")
}

#[cfg(test)]
mod tests;
