//! Functions that are curved near zero and linear beyond: GELU, SiLU, ELU, tanh, by quadratics on equal segments.
//!
//! With z = |x| and L the limit beyond which the function is linear,
//!
//! > GELU, SiLU: max(x, 0) + b(z) · ELU: max(x, 0) + \[x < 0\]·b(z) · tanh, σ − 1/2: sign(x)·b(z),
//!
//! where b has one value, the tail, from L on. Everything is in units of L (v = x/L; that factor is free, as it is
//! folded into the linear layers before and after), so the bits of |v| decide everything: those of weight 1 and more
//! whether z < L, the next 3 or 4 the segment. They are *added up once*, with the sign, from coarse shares: one carry
//! look-ahead instead of a comparison for the sign and one for each threshold. Then t = z − (middle of the segment) is
//! short, and so is its square: one square of 18 to 20 bits is the only product. Each party evaluates its share of all
//! segments' quadratics alone, and a 1-of-N OT each way selects one of them ([`select`]).
//!
//! If the coarse bits pick a wrong segment, it is a neighbour, at most 1/32 of a segment away, where its quadratic
//! still holds: the tables are fitted that much wider, and t is computed from the segment that was picked. A wrong sign
//! is harmless in the same way: both sides of zero continue each other.
//!
//! Compared with BumbleBee's Seg4GeLU (NDSS 2025, §V-A: degrees 3 and 6, three comparisons, 1.5·10^−2) and with one
//! quartic of |x| by two squares (120 bytes per element, 1.9·10^−3), GELU takes 94 bytes at 10^−4, or 76 at 5·10^−4
//! with eight segments.
//!
//! Error: the curve's own plus, in units of L·2^−f (f fraction bits), one for the argument's rounding, one for the
//! quadratic's and half of one for its terms, all random and unbiased.

mod tables;

pub(super) use tables::SIGMOID;
pub use tables::{ELU, GELU, GELU_EIGHT, GELU_TANH, GELU_TANH_EIGHT, SILU, TANH, describe};

use super::format::{Format, narrow};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    Sign, all, all_cost, bit_to_arith, bit_to_arith_cost, mux, mux_cost, select, select_cost, square, square_cost,
    top_bits, top_bits_cost, truncate, truncate_cost,
};
use crate::link::Link;
use crate::share::{BitShare, Ring, Share};

/// How the function is composed from b.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// max(x, 0) + b(|x|)
    Rectified,
    /// sign(x)·b(|x|)
    Odd,
    /// The same for a function to which nothing is added: b's ring is left in one step.
    Centred,
    /// max(x, 0) + \[x < 0\]·b(|x|)
    Negative,
}

/// A function, its segments and its formats.
#[derive(Clone, Copy, Debug)]
pub struct Curve {
    name: &'static str,
    kind: Kind,
    /// L, in units of x.
    limit: f64,
    /// f: fraction bits of v = x/L.
    frac: u32,
    /// I: |x| < L·2^I, the function's domain.
    integer: u32,
    /// Bits of the ring of b: 2^(small−1) exceeds b's range plus two units either side, and four times |b| for an odd
    /// function.
    small: u32,
    /// b beyond the limit, with `frac` fraction bits.
    tail: i32,
    /// Largest error of the approximation in units of x, without rounding.
    error: f64,
    /// γ, β, α of every segment: 8 or 16 rows.
    segments: &'static [[i32; 3]],
}

/// The widest domain: 32 limits on either side.
const WIDEST: u32 = 5;
/// The narrowest domain: twice the limit.
const NARROWEST: u32 = 1;
/// Bits of the coarse argument below those that select the segment: it is exact to half of the last.
const BELOW: u32 = 4;
/// Fraction bits of β, and those of the quadratic beyond f.
const SLOPE_FRAC: u32 = 12;
/// Fraction bits of α; t² has [`SLOPE_FRAC`] − this many beyond f.
const BEND_FRAC: u32 = 8;
/// Offset of b beyond its least value, so that no rounding makes it negative.
const MARGIN: i64 = 8;

impl Curve {
    /// The curve's name.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// κ = 1/L: the factor on the argument and the result.
    pub const fn kappa(&self) -> f64 {
        1.0 / self.limit
    }

    /// Largest |x| that the rings hold.
    pub const fn range(&self) -> f64 {
        self.limit * ((1 << self.integer) - 1) as f64
    }

    /// The same function for arguments of magnitude at most `reach`, on the narrowest domain that holds them, or the
    /// widest if none does. A narrower domain is cheaper: the sign and the domain follow from one addition of shares,
    /// which is shorter by as many bits.
    #[must_use]
    pub fn reaching(&self, reach: f64) -> Curve {
        let with = |integer| Curve { integer, ..*self };
        // A range written to a file and read back may differ in its last digit.
        let holds = |integer: &u32| with(*integer).range() >= reach * (1.0 - 1e-9);
        let integer = (NARROWEST..WIDEST).find(holds).unwrap_or(WIDEST);
        with(integer)
    }

    /// Largest difference from the function, without rounding.
    pub const fn error(&self) -> f64 {
        self.error
    }

    /// The unit of the rounding errors: L·2^−f.
    pub fn unit(&self) -> f64 {
        self.limit / f64::from(1u32 << self.frac)
    }

    /// The function that the protocol computes, in the clear and without rounding.
    pub fn approximation(&self, x: f64) -> f64 {
        let z = x.abs() / self.limit;
        let b = if z < 1.0 {
            let place = z * self.segments.len() as f64;
            let k = (place as usize).min(self.segments.len() - 1);
            let t = z - (k as f64 + 0.5) / self.segments.len() as f64;
            let [c, s, q] = self.segments[k].map(f64::from);
            let scaled = |v: f64, bits: u32| v / f64::from(bits).exp2();
            scaled(c, self.frac + SLOPE_FRAC) + scaled(s, SLOPE_FRAC) * t + scaled(q, BEND_FRAC) * t * t
        } else {
            f64::from(self.tail) / f64::from(self.frac).exp2()
        };
        let b = b * self.limit;
        match self.kind {
            Kind::Rectified => x.max(0.0) + b,
            Kind::Odd | Kind::Centred => b.copysign(b * x),
            Kind::Negative if x < 0.0 => b,
            Kind::Negative => x,
        }
    }

    /// s: 2^s segments.
    const fn index_bits(&self) -> u32 {
        self.segments.len().ilog2()
    }

    /// The ring of v, of |v|, and of the quadratics before their last bits are cut.
    pub(super) fn wide(&self) -> Ring {
        Ring::new(self.squares().bits().max(self.small + SLOPE_FRAC).max(self.sum().bits()))
    }

    /// The ring of t², which has 2f fraction bits and is below (0.54·2^−s)²: six tenths of half the ring.
    fn squares(&self) -> Ring {
        Ring::new(2 * (self.frac - self.index_bits()))
    }

    /// The ring of the quadratics.
    fn terms(&self) -> Ring {
        Ring::new(self.small + SLOPE_FRAC)
    }

    /// The ring of the function, |κ·f| < 2^I.
    fn sum(&self) -> Ring {
        Ring::new(self.frac + self.integer + 2)
    }

    fn small(&self) -> Ring {
        Ring::new(self.small)
    }

    /// Bits that the coarse argument loses.
    fn coarse_drop(&self) -> u32 {
        self.frac - self.index_bits() - BELOW
    }

    fn coarse(&self) -> Ring {
        Ring::new(1 + self.integer + self.index_bits() + BELOW)
    }

    /// Number of bits read off the coarse argument.
    fn read(&self) -> u32 {
        1 + self.integer + self.index_bits()
    }

    /// The ring in which the segment's bits are needed: higher bits are cut off by their weights.
    fn index_ring(&self) -> Ring {
        Ring::new(self.wide().bits() - (self.frac - self.index_bits()))
    }

    /// −(least value of b) plus a margin: adding it makes b non-negative.
    fn lift(&self) -> i64 {
        let ends = self.segments.iter().flat_map(|row| {
            let [c, slope, bend] = row.map(i64::from);
            let reach = self.frac - self.index_bits() - 1;
            let bend = (bend.min(0) << (2 * reach)) >> (self.frac + BEND_FRAC - SLOPE_FRAC);
            let least = (c - (slope.abs() << reach) + bend) >> SLOPE_FRAC;
            [least, i64::from(self.tail)]
        });
        MARGIN - ends.min().unwrap_or(0).min(0)
    }

    /// The constants on which both parties must agree, as text.
    fn describe(&self) -> String {
        format!(
            "{} {:?} {} {} {} {} {} {:?}",
            self.name, self.kind, self.limit, self.integer, self.frac, self.small, self.tail, self.segments
        )
    }
}

/// κ·f(x) from κx (κ = [`Curve::kappa`]). The argument has `frac` ≥ 14 fraction bits in a ring of at least `frac` + 12
/// bits, and |x| is at most [`Curve::range`]; the result is in `to`, which has at least 14 fraction bits.
pub fn curve_scaled(ctx: &mut Ctx, curve: &Curve, x: &Share, frac: u32, to: Format) -> Result<Share, TwopcError> {
    let party = ctx.party();
    let x = narrow(party, x, frac - curve.frac, curve.wide());

    // Half a coarse unit less, so that the random rounding is equally far from the floor on either side.
    let drop = curve.coarse_drop();
    let coarse = x.add_public(party, -(1 << (drop - 1)));
    let bits = top_bits(ctx, &narrow(party, &coarse, drop, curve.coarse()), curve.read())?;
    let (sign, bits) = split_sign(&bits);
    let (index, integer) = bits.split_at(curve.index_bits() as usize);
    let integer: Vec<BitShare> = integer.iter().map(|b| b.not_by(party)).collect();

    let n = x.len();
    let places = |ctx: &mut Ctx| {
        let bits = BitShare::concat(&index.iter().collect::<Vec<_>>());
        bit_to_arith(ctx, &bits, curve.index_ring())
    };
    let (folded, places) = ctx.both(|ctx| mux(ctx, sign, &x), (|_: &Link| places_cost(n, curve), places))?;
    // z = |x| = x − 2·[x < 0]·x
    let z = x.sub(&folded.shift_left(1));
    let rectified = rectified(curve, &x, &folded);
    let up = to.frac - curve.frac;
    let ring = Ring::new(to.ring.bits() - up);
    let direct = direct(&ctx.link(), n, curve, to);
    let value = |ctx: &mut Ctx| {
        let values = quadratics(ctx, curve, &z, &places)?;
        select(ctx, index, &values)
    };
    let inside = |ctx: &mut Ctx| {
        let inside = all(ctx, &integer)?;
        let rectified = match direct && curve.kind.has_rectified() {
            true => truncate(ctx, &rectified, 0, Sign::Bounded, ring)?,
            false => rectified,
        };
        Ok((inside, rectified))
    };
    let (b, (inside, rectified)) = ctx.both(value, (|_: &Link| inside_cost(n, curve, ring, direct), inside))?;
    let tail = i64::from(curve.tail);
    let b = mux(ctx, &inside, &b.add_public(party, -tail))?.add_public(party, tail);

    let b = match curve.kind {
        Kind::Odd | Kind::Centred => b.sub(&mux(ctx, sign, &b)?.shift_left(1)),
        Kind::Rectified => b,
        Kind::Negative => mux(ctx, sign, &b)?,
    };
    let middle = if direct { ring } else { curve.sum() };
    let sum = match curve.kind {
        Kind::Centred => b,
        Kind::Odd => truncate(ctx, &b, 0, Sign::Bounded, middle)?,
        Kind::Rectified | Kind::Negative => widen(ctx, curve, &b, middle)?.add(&rectified),
    };
    let sum = match direct {
        true => sum,
        false => truncate(ctx, &sum, 0, Sign::Bounded, ring)?,
    };
    Ok(Share::new(to.ring, sum.into_words()).shift_left(up))
}

impl Kind {
    /// Whether max(x, 0) is a term.
    fn has_rectified(self) -> bool {
        matches!(self, Kind::Rectified | Kind::Negative)
    }
}

/// The cost of [`curve_scaled`] for `n` elements.
pub fn curve_scaled_cost(link: &Link, n: usize, curve: &Curve, to: Format) -> Cost {
    cost(link, n, curve, to, direct(link, n, curve, to))
}

/// Whether the terms of the sum are brought into the result's ring each on its own, which takes more bytes, rather than
/// into that of the sum first.
fn direct(link: &Link, n: usize, curve: &Curve, to: Format) -> bool {
    let price = |direct| link.price(&cost(link, n, curve, to, direct));
    !link.is_lan() && curve.kind != Kind::Centred && price(true) < price(false)
}

fn cost(link: &Link, n: usize, curve: &Curve, to: Format, direct: bool) -> Cost {
    let (small, sum) = (curve.small(), curve.sum());
    let turned = match curve.kind {
        Kind::Rectified => Cost::ZERO,
        Kind::Odd | Kind::Centred | Kind::Negative => mux_cost(n, small),
    };
    let ring = Ring::new(to.ring.bits() - (to.frac - curve.frac));
    let widened = match curve.kind {
        Kind::Centred => truncate_cost(n, small, 0, ring),
        _ if direct => truncate_cost(n, small, 0, ring),
        _ => truncate_cost(n, small, 0, sum) + truncate_cost(n, sum, 0, ring),
    };
    top_bits_cost(link, n, curve.coarse().bits(), curve.read())
        + link.both(|_| mux_cost(n, curve.wide()), |_| places_cost(n, curve))
        + link.both(|_| value_cost(n, curve), |_| inside_cost(n, curve, ring, direct))
        + mux_cost(n, small)
        + turned
        + widened
}

/// The cost of the segment's number as an integer, bit by bit.
fn places_cost(n: usize, curve: &Curve) -> Cost {
    bit_to_arith_cost(n * curve.index_bits() as usize, curve.index_ring())
}

/// The cost of the quadratics, and of the choice of one of them.
fn value_cost(n: usize, curve: &Curve) -> Cost {
    square_cost(n, curve.squares())
        + truncate_cost(n, curve.squares(), square_drop(curve), curve.terms())
        + select_cost(n, curve.index_bits(), curve.small())
}

/// The cost of what is done beside that: whether |x| is below the limit, and max(x, 0) in the result's ring.
fn inside_cost(n: usize, curve: &Curve, ring: Ring, direct: bool) -> Cost {
    let rectified = match direct && curve.kind.has_rectified() {
        true => truncate_cost(n, curve.sum(), 0, ring),
        false => Cost::ZERO,
    };
    all_cost(n, curve.integer as usize) + rectified
}

/// The sign, which comes last in `bits`, and the bits of |x| below it. For negative x these are of −1 − x: one unit of
/// the coarse argument less.
fn split_sign(bits: &[BitShare]) -> (&BitShare, Vec<BitShare>) {
    let (sign, below) = (&bits[bits.len() - 1], &bits[..bits.len() - 1]);
    (sign, below.iter().map(|b| b.xor(sign)).collect())
}

/// Each segment's quadratic of z in the small ring; the right one is that of the segment whose number has the bits
/// `places`, the lowest of all elements first.
fn quadratics(ctx: &mut Ctx, curve: &Curve, z: &Share, places: &Share) -> Result<Vec<Share>, TwopcError> {
    let (party, n) = (ctx.party(), z.len());
    // t = z − (k + 1/2)·2^−s
    let width = curve.frac - curve.index_bits();
    let mut t = z.add_public(party, -(1 << (width - 1)));
    for j in 0..curve.index_bits() {
        let bit = Share::new(z.ring(), places.words()[j as usize * n..][..n].to_vec());
        t.sub_assign(&bit.shift_left(width + j));
    }
    let t2 = square(ctx, &t.reduce_to(curve.squares()))?;
    let t2 = truncate(ctx, &t2, square_drop(curve), Sign::NonNegative, curve.terms())?;
    let t = t.reduce_to(curve.terms());
    // Evaluates the quadratics and their `narrow` in one pass: there are up to sixteen of them.
    let (ring, small, client) = (curve.terms(), curve.small(), u64::from(ctx.is_client()));
    let value = |row: &[i32; 3]| {
        let [c, slope, bend] = row.map(|v| i64::from(v) as u64);
        let c = c.wrapping_mul(client);
        let words = t2.words().iter().zip(t.words()).map(|(t2, t)| {
            let sum = t2.wrapping_mul(bend).wrapping_add(t.wrapping_mul(slope));
            (ring.reduce(sum.wrapping_add(c)) >> SLOPE_FRAC).wrapping_add(client)
        });
        Share::new(small, words.collect())
    };
    Ok(curve.segments.iter().map(value).collect())
}

/// Number of bits that t² loses.
fn square_drop(curve: &Curve) -> u32 {
    2 * curve.frac - (curve.frac + SLOPE_FRAC - BEND_FRAC)
}

/// b in a larger ring.
fn widen(ctx: &mut Ctx, curve: &Curve, b: &Share, to: Ring) -> Result<Share, TwopcError> {
    let (party, lift) = (ctx.party(), curve.lift());
    let b = b.add_public(party, lift);
    Ok(truncate(ctx, &b, 0, Sign::NonNegative, to)?.add_public(party, -lift))
}

/// max(x, 0) in the ring of the sum.
fn rectified(curve: &Curve, x: &Share, folded: &Share) -> Share {
    x.sub(folded).reduce_to(curve.sum())
}

#[cfg(test)]
mod tests;
