//! ReLU, max(x, 0) = x − \[x < 0\]·x, by one comparison (DReLU) and one multiplexer; its square by one more product.
//!
//! The sign is taken of x without its last [`SIGN_DROP`] bits. It can be wrong where |x| is below half their weight,
//! where x and 0 are close: by at most four units of the result, plus one for the rounding of x.

use super::format::{Format, narrow};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{
    Sign, less_than_public, less_than_public_cost, mux, mux_cost, square, square_cost, truncate, truncate_cost,
};
use crate::link::Link;
use crate::share::{Ring, Share};

/// Bits of the result's precision that the comparison ignores.
const SIGN_DROP: u32 = 3;

/// The format of the number that is squared: max(x, 0) < 2^7, whose square has 24 fraction bits.
const ROOT: Format = Format::new(40, 12);

/// max(x, 0) in `to`: `x` in `from`, which has at least `to`'s fraction bits, and |x| < 2^(from.ring − from.frac − 2).
pub fn relu(ctx: &mut Ctx, x: &Share, from: Format, to: Format) -> Result<Share, TwopcError> {
    let ring = cut(from, to);
    let x = narrow(ctx.party(), x, from.frac - to.frac, ring);
    let negative = less_than_public(ctx, &x, &[0], SIGN_DROP, ring.bits())?;
    let y = x.sub(&mux(ctx, &negative[0], &x)?);
    truncate(ctx, &y, 0, Sign::Bounded, to.ring)
}

/// The cost of [`relu`] for `n` elements.
pub fn relu_cost(link: &Link, n: usize, from: Format, to: Format) -> Cost {
    let ring = cut(from, to);
    less_than_public_cost(link, n, ring, 1, (SIGN_DROP, ring.bits()))
        + mux_cost(n, ring)
        + truncate_cost(n, ring, 0, to.ring)
}

/// max(x, 0)² in `to`, which has at most 24 fraction bits, for `x` in `from`, which has at least 12, with x < 2^7 and
/// not below −2^(from.ring − from.frac − 2).
pub fn squared_relu(ctx: &mut Ctx, x: &Share, from: Format, to: Format) -> Result<Share, TwopcError> {
    let root = relu(ctx, x, from, ROOT)?;
    let y = square(ctx, &root)?;
    truncate(ctx, &y, 2 * ROOT.frac - to.frac, Sign::NonNegative, to.ring)
}

/// The cost of [`squared_relu`] for `n` elements.
pub fn squared_relu_cost(link: &Link, n: usize, from: Format, to: Format) -> Cost {
    relu_cost(link, n, from, ROOT)
        + square_cost(n, ROOT.ring)
        + truncate_cost(n, ROOT.ring, 2 * ROOT.frac - to.frac, to.ring)
}

/// The largest x whose square [`squared_relu`] holds.
pub fn most_squared() -> f64 {
    f64::from((ROOT.ring.bits() - 2) / 2 - ROOT.frac).exp2()
}

/// The ring of x at the result's precision: the bits that remain after going down, at most as many as the result has.
fn cut(from: Format, to: Format) -> Ring {
    let left = from.ring.bits() - (from.frac - to.frac);
    Ring::new(left.min(to.ring.bits()))
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("relu {SIGN_DROP} {ROOT:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    #[test]
    fn negative_numbers_are_cut_off() {
        let mut rng = SecretRng::insecure_from_seed(6);
        for (from, to) in [
            (Format::new(48, 32), Format::new(48, 16)),
            (Format::new(48, 16), Format::new(48, 16)),
            (Format::new(64, 18), Format::new(32, 12)),
        ] {
            let unit = (-f64::from(to.frac)).exp2();
            let small = to.ring.bits().min(from.ring.bits() - from.frac + to.frac);
            let largest = f64::from(small - to.frac - 2).exp2() * 0.999;
            let random = (0..500).map(|i| (rng.next_u64() as f64 / 1.9e19 - 0.5) * largest / f64::from(1 + i % 40));
            let near = (-20..=20).map(|i| f64::from(i) * unit);
            let edges = [largest, -largest];
            let x: Vec<f64> = random.chain(near).chain(edges).collect();
            let words: Vec<u64> = x.iter().map(|&x| from.encode(x)).collect();
            let (client, server) = share(from.ring, &words, 8);
            let (a, b, stats) =
                run_counted(|ctx| relu(ctx, &client, from, to).unwrap(), |ctx| relu(ctx, &server, from, to).unwrap());
            let cost = relu_cost(&Link::LAN, x.len(), from, to);
            assert_cost(&stats, cost);
            for (x, y) in x.iter().zip(reveal(&a, &b)) {
                let error = (to.decode(y) - x.max(0.0)).abs();
                let bound = if x.abs() < 6.0 * unit { 5.5 } else { 1.5 };
                assert!(error <= bound * unit, "{x}: {}", to.decode(y));
            }
        }
    }

    #[test]
    fn squares_of_positive_numbers() {
        let mut rng = SecretRng::insecure_from_seed(7);
        let from = Format::new(48, 32);
        for to in [Format::new(48, 16), Format::new(40, 12)] {
            let most = most_squared();
            assert_eq!(most, 128.0);
            let random = (0..500).map(|i| (rng.next_u64() as f64 / 1.9e19 - 0.5) * 2.0 * most / f64::from(1 + i % 40));
            let near = (-20..=20).map(|i| f64::from(i) / 4096.0);
            let x: Vec<f64> = random.chain(near).chain([127.9, -128.0, -16_000.0]).collect();
            let words: Vec<u64> = x.iter().map(|&x| from.encode(x)).collect();
            let (client, server) = share(from.ring, &words, 8);
            let (a, b, stats) = run_counted(
                |ctx| squared_relu(ctx, &client, from, to).unwrap(),
                |ctx| squared_relu(ctx, &server, from, to).unwrap(),
            );
            assert_cost(&stats, squared_relu_cost(&Link::LAN, x.len(), from, to));
            let unit = (-f64::from(to.frac)).exp2();
            for (x, y) in x.iter().zip(reveal(&a, &b)) {
                let error = (to.decode(y) - x.max(0.0).powi(2)).abs();
                // A unit of the root, or, squared, a few around a sign that was missed.
                let bound = 2.0 * x.max(0.0) * 1.01 / 4096.0 + (5.5f64 / 4096.0).powi(2) + unit;
                assert!(error <= bound, "{x}: {}", to.decode(y));
            }
        }
    }
}
