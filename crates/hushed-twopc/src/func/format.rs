//! The formats of numbers, and the ways from one to another.

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
        Format { ring: Ring::new(bits), frac }
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
    assert!(to.bits() + shift <= x.ring().bits(), "narrowing needs `shift` spare bits");
    if shift == 0 {
        return x.reduce_to(to);
    }
    let words = x.words().iter().map(|w| w >> shift).collect();
    Share::new(to, words).add_public(party, 1)
}

/// x/2^shift in the ring `to`: locally where [`narrow`] applies, otherwise by the truncation protocol.
pub fn rescale(ctx: &mut Ctx, x: &Share, shift: u32, sign: Sign, to: Ring) -> Result<Share, TwopcError> {
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
