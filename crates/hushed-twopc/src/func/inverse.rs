//! 1/x and 1/√x of positive shared integers, one per row: precision and rounds matter, bytes hardly.
//!
//! | form | rounds | for |
//! |---|---|---|
//! | highest bit, then a polynomial | 14 to 19 | many numbers; a LAN |
//! | a series on segments ([`super::series`]) | 5 | numbers in a narrow public range |
//! | such a series for each power of two, beside the highest bit, which chooses | 6 to 8 | few numbers in a wide range |
//!
//! The session's [`Link`] chooses. **The polynomial**: the highest set bit k of x < 2^b gives S = 2^(b−1−k) and u =
//! x·S/2^b in [1/2, 1). A polynomial of degree 5 in w = 4u − 3 in [−1, 1) gives 1/u or 1/√u:
//!
//! ```text
//! w²                                                   in a ring so wide that each party truncates it alone
//! w³ = w·w²,   B = c3 + c4·w + c5·w²                   truncated together
//! (c0 + c1·w + c2·w²) + w³·B                           truncated
//! ```
//!
//! The relative error is below 6.5·10^−5 and 2·10^−5, in five rounds; a quadratic and a Newton step took seven and
//! nine. The result is multiplied by the power of two that belongs to k (its root, for 1/√x). Both products with a
//! power are multiplexers over all multiples, one per bit of the one-hot of k. The bits need not become numbers first,
//! which saves more bytes than the multiplexers cost over a product. The scheme is the normalisation of Lu et al. used
//! by BumbleBee's reciprocal and rsqrt; here the list may hold any weights, so 1/√x needs no parity case.

use super::format::{rescale, rescale_cost};
use super::series::{self, Bounds, Cut};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::gadget::{Sign, leading_one, leading_one_cost, mul, mul_cost, mux, mux_cost, square, square_cost};
use crate::link::Link;
use crate::share::{BitShare, Ring, Share};

/// Fraction bits of u, w, its powers and coefficients.
const FRAC: u32 = 18;
/// The ring of u and w: each party truncates their products alone.
const FULL: Ring = Ring::new(64);
/// The ring of w², truncated: holds w·w², at most 2^(2·FRAC) in magnitude, so that it can be truncated (below 2^(ℓ−2)).
const SQUARED: Ring = Ring::new(FULL.bits() - FRAC);
/// The ring of w³ and B: holds the result, below 4, with the fraction bits of a product.
const WIDE: Ring = Ring::new(2 * FRAC + 4);
const _: () = assert!(SQUARED.bits() > 2 * FRAC + 2);

/// Bits that the powers of two keep beyond those of the result.
const GUARD: u32 = 6;

/// Minimax in relative error for 4/(3 + w) on [−1, 1], off by 5.2·10^−5: c0 … c5.
const INVERSE: [f64; 6] = [1.333_401_357, -0.444_467_119, 0.146_931_279, -0.048_977_093, 0.019_590_837, -0.006_530_279];
/// The same for 2/√(3 + w), off by 1.2·10^−5.
const ROOT: [f64; 6] = [1.154_713_843, -0.192_464_000, 0.047_877_407, -0.013_252_499, 0.004_501_473, -0.001_387_870];

/// What is known of positive integers x.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Positive {
    /// x < 2^bits.
    bits: u32,
    bounds: Bounds,
}

impl Positive {
    /// 0 < x < 2^`bits`, for `bits` from 1 to 63.
    pub const fn below(bits: u32) -> Positive {
        Positive { bits, bounds: Bounds { least: 1, most: (1 << bits) - 1 } }
    }

    /// The same integers, if they are from `least` to `most`. The result is arbitrary for others.
    #[must_use]
    pub fn within(self, least: u64, most: u64) -> Positive {
        let Bounds { least: low, most: high } = self.bounds;
        Positive { bounds: Bounds { least: least.max(low), most: most.min(high) }, ..self }
    }

    /// The ring in which x is taken.
    fn ring(&self) -> Ring {
        Ring::new(self.bits + 1)
    }

    /// The places of x's highest bit.
    fn places(&self) -> std::ops::Range<u32> {
        self.bounds.least.max(1).ilog2()..self.bits
    }
}

/// 1/x or 1/√x.
#[derive(Clone, Copy)]
enum Power {
    Inverse,
    Root,
}

impl Power {
    fn of(self, x: f64) -> f64 {
        match self {
            Power::Inverse => 1.0 / x,
            Power::Root => 1.0 / x.sqrt(),
        }
    }

    fn polynomial(self) -> &'static [f64; 6] {
        match self {
            Power::Inverse => &INVERSE,
            Power::Root => &ROOT,
        }
    }
}

/// scale/x, with `x` in a ring of at least bits + 1. The result has `frac` fraction bits in `to`; `scale/x` must stay
/// below 2^(to − frac − 2) for every x that occurs.
pub fn reciprocal(
    ctx: &mut Ctx,
    x: &Share,
    of: Positive,
    scale: f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    inverse(ctx, x, of, (Power::Inverse, scale), frac, to)
}

/// scale/√x; otherwise like [`reciprocal`].
pub fn inverse_root(
    ctx: &mut Ctx,
    x: &Share,
    of: Positive,
    scale: f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    inverse(ctx, x, of, (Power::Root, scale), frac, to)
}

/// The cost of [`reciprocal`] for `n` numbers.
pub fn reciprocal_cost(link: &Link, n: usize, of: Positive, to: Ring) -> Cost {
    Form::over(link, n, of, to).cost(link, n, of, to)
}

/// The cost of [`inverse_root`] for `n` numbers.
pub fn inverse_root_cost(link: &Link, n: usize, of: Positive, to: Ring) -> Cost {
    reciprocal_cost(link, n, of, to)
}

/// How it is computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Form {
    Polynomial,
    /// A series over the whole range.
    Series(Cut),
    /// A series for each place of the highest bit.
    Places(Cut),
}

impl Form {
    /// The form for `n` numbers over a link.
    fn over(link: &Link, n: usize, of: Positive, to: Ring) -> Form {
        match link.is_lan() {
            true => Form::Polynomial,
            false => {
                let price = |form: &Form| link.price(&form.cost(link, n, of, to));
                Form::all(link, n, of, to).into_iter().min_by_key(price).unwrap_or(Form::Polynomial)
            }
        }
    }

    /// The forms that there are for these numbers.
    fn all(link: &Link, n: usize, of: Positive, to: Ring) -> Vec<Form> {
        let whole = Cut::cheapest(link, n, of.bounds, of.ring(), to).map(Form::Series);
        let each = Cut::cheapest(link, n * of.places().len(), octave(of), of.ring(), to).map(Form::Places);
        [Some(Form::Polynomial), whole, each].into_iter().flatten().collect()
    }

    fn cost(self, link: &Link, n: usize, of: Positive, to: Ring) -> Cost {
        match self {
            Form::Polynomial => normalise_cost(link, n, of.bits) + polynomial_cost(n, to) + finish_cost(n, of.bits, to),
            Form::Series(cut) => cut.cost(n, to),
            Form::Places(cut) => {
                let all = n * of.places().len();
                link.both(|link| leading_one_cost(link, n, of.ring()), |_| cut.cost(all, to)) + mux_cost(all, to)
            }
        }
    }

    fn run(
        self,
        ctx: &mut Ctx,
        x: &Share,
        of: Positive,
        (power, scale): (Power, f64),
        frac: u32,
        to: Ring,
    ) -> Result<Share, TwopcError> {
        let x = x.reduce_to(of.ring());
        match self {
            Form::Polynomial => {
                let (u, hot) = normalise(ctx, &x, of.bits)?;
                let y = polynomial(ctx, &u, power.polynomial(), to)?;
                // x = u·2^(k + 1)
                let weight = |k: u32| scale * power.of(f64::from(k + 1).exp2());
                finish(ctx, &y, &hot, weight, frac, to)
            }
            Form::Series(cut) => cut.evaluate(ctx, &x, || vec![cut.tables(|x| scale * power.of(x), frac)], to),
            Form::Places(cut) => {
                let n = x.len();
                // x = v·2^k/2^(bits − 1) for v in the octave.
                let octave = f64::from(of.bits - 1).exp2();
                let limit = (f64::from(to.bits()) - 2.0 - f64::from(frac)).exp2();
                let weight = |k: u32| (scale * power.of(f64::from(k).exp2())).min(limit);
                let tables = || {
                    let table = cut.tables(|v| power.of(v / octave), frac);
                    of.places().map(|k| table.times(weight(k))).collect()
                };
                let moved = of.places().map(|k| x.mul_public(1 << (of.bits - 1 - k)));
                let moved: Vec<Share> = moved.collect();
                let moved = Share::concat(of.ring(), &moved.iter().collect::<Vec<_>>());
                let series = |_: &Link| cut.cost(moved.len(), to);
                let evaluate = |ctx: &mut Ctx| cut.evaluate(ctx, &moved, tables, to);
                let (hot, y) = ctx.both(|ctx| leading_one(ctx, &x), (series, evaluate))?;
                let hot = BitShare::concat(&hot.iter().skip(of.places().start as usize).collect::<Vec<_>>());
                Ok(sum_of_parts(&mux(ctx, &hot, &y)?, n))
            }
        }
    }
}

/// The integers of `bits` bits with the highest bit set.
fn octave(of: Positive) -> Bounds {
    Bounds { least: 1 << (of.bits - 1), most: (1 << of.bits) - 1 }
}

fn inverse(
    ctx: &mut Ctx,
    x: &Share,
    of: Positive,
    (power, scale): (Power, f64),
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    let form = Form::over(&ctx.link(), x.len(), of, to);
    form.run(ctx, x, of, (power, scale), frac, to)
}

/// Σ of the parts of `n` elements each.
fn sum_of_parts(x: &Share, n: usize) -> Share {
    let mut sum = Share::zero(x.ring(), n);
    for k in 0..x.len().checked_div(n).unwrap_or(0) {
        sum.add_assign(&x.slice(k * n..(k + 1) * n));
    }
    sum
}

fn normalise_cost(link: &Link, n: usize, bits: u32) -> Cost {
    let ring = Ring::new(bits + 1);
    leading_one_cost(link, n, ring)
        + mux_cost(n * bits as usize, ring)
        + rescale_cost(n, ring, bits.saturating_sub(FRAC), FULL)
}

fn polynomial_cost(n: usize, to: Ring) -> Cost {
    square_cost(n, FULL)
        + rescale_cost(n, FULL, FRAC, SQUARED)
        + mul_cost(n, SQUARED)
        + rescale_cost(2 * n, SQUARED, FRAC, WIDE)
        + mul_cost(n, WIDE)
        + rescale_cost(n, WIDE, FRAC, listed(to))
}

fn finish_cost(n: usize, bits: u32, to: Ring) -> Cost {
    let ring = listed(to);
    mux_cost(n * bits as usize, ring) + rescale_cost(n, ring, FRAC + GUARD, to)
}

/// The ring of the result times a power of two: the powers keep GUARD bits more than the result.
fn listed(to: Ring) -> Ring {
    Ring::new((to.bits() + GUARD + FRAC).min(64))
}

/// For x in a ring of bits + 1: u = x·2^(bits−1−k)/2^bits with [`FRAC`] fraction bits in [`FULL`], and the one-hot of
/// k, least significant first.
fn normalise(ctx: &mut Ctx, x: &Share, bits: u32) -> Result<(Share, BitShare), TwopcError> {
    let hot = leading_one(ctx, x)?;
    let hot = BitShare::concat(&hot.iter().collect::<Vec<_>>());
    let weights: Vec<u64> = (0..bits).map(|k| 1 << (bits - 1 - k)).collect();
    let u = times_picked(ctx, x, &hot, &weights)?;
    let u = if bits >= FRAC {
        rescale(ctx, &u, bits - FRAC, Sign::NonNegative, FULL)?
    } else {
        rescale(ctx, &u, 0, Sign::NonNegative, FULL)?.shift_left(FRAC - bits)
    };
    Ok((u, hot))
}

/// Σ c_k·w^k for w = 4u − 3, in [1, 2] up to its error, with [`FRAC`] fraction bits in the ring [`listed`]. For u = 0,
/// which no positive number gives, it is out of range and may be far off; the one-hot of 0 is all zeros, so the result
/// is not affected.
fn polynomial(ctx: &mut Ctx, u: &Share, c: &[f64; 6], to: Ring) -> Result<Share, TwopcError> {
    let (n, me) = (u.len(), ctx.party());
    let c = c.map(|x| (x * f64::from(1u32 << FRAC)).round() as i64);
    // a + b·x + c·y for x and y with FRAC fraction bits; the result has twice as many.
    let sum = |[a, b, c]: [i64; 3], x: &Share, y: &Share| {
        let sum = x.mul_public(b).add(&y.mul_public(c));
        sum.add_public(me, a << FRAC)
    };
    let w = u.shift_left(2).add_public(me, -(3 << FRAC));
    let w2 = square(ctx, &w)?;
    let w2 = rescale(ctx, &w2, FRAC, Sign::NonNegative, SQUARED)?;
    let w = w.reduce_to(SQUARED);
    let w3 = mul(ctx, &w, &w2)?;
    let both = Share::concat(SQUARED, &[&w3, &sum([c[3], c[4], c[5]], &w, &w2)]);
    let both = rescale(ctx, &both, FRAC, Sign::Bounded, WIDE)?;
    let rest = mul(ctx, &both.slice(0..n), &both.slice(n..2 * n))?;
    let [w, w2] = [&w, &w2].map(|x| x.reduce_to(WIDE));
    let y = rest.add(&sum([c[0], c[1], c[2]], &w, &w2));
    rescale(ctx, &y, FRAC, Sign::NonNegative, listed(to))
}

/// x·Σ_k hot_k·weights_k, where `hot` has the one-hots of the numbers, weight by weight.
fn times_picked(ctx: &mut Ctx, x: &Share, hot: &BitShare, weights: &[u64]) -> Result<Share, TwopcError> {
    let multiples = weights.iter().map(|&w| x.mul_public(w as i64));
    let multiples: Vec<Share> = multiples.collect();
    let picked = mux(ctx, hot, &Share::concat(x.ring(), &multiples.iter().collect::<Vec<_>>()))?;
    Ok(sum_of_parts(&picked, x.len()))
}

/// y·weight(k), where y has [`FRAC`] fraction bits in the ring [`listed`] and the result `frac`.
fn finish(
    ctx: &mut Ctx,
    y: &Share,
    hot: &BitShare,
    weight: impl Fn(u32) -> f64,
    frac: u32,
    to: Ring,
) -> Result<Share, TwopcError> {
    // y is in [1, 2]: the product stays below 2^(to + GUARD + FRAC − 1).
    let limit = 1u64 << (to.bits() + GUARD - 2);
    let places = hot.len().checked_div(y.len()).unwrap_or(0);
    let weights: Vec<u64> =
        (0..places as u32).map(|k| ((weight(k) * f64::from(frac + GUARD).exp2()).round() as u64).min(limit)).collect();
    let product = times_picked(ctx, y, hot, &weights)?;
    rescale(ctx, &product, FRAC + GUARD, Sign::NonNegative, to)
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    format!("inverse {FRAC} {FULL:?} {WIDE:?} {GUARD} {INVERSE:?} {ROOT:?} {}", series::describe())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};

    fn arguments(bits: u32) -> Vec<u64> {
        let mut x: Vec<u64> =
            (3..bits).flat_map(|k| [1u64 << k, (1 << k) + 1, (2 << k) - 1, (1 << k) * 3 / 2]).collect();
        x.extend((20..400).map(|i| i * 37));
        x.retain(|&v| v < 1 << bits);
        x
    }

    #[test]
    fn reciprocal_relative_error() {
        let (bits, frac, to) = (21, 16, Ring::new(36));
        let x = arguments(bits);
        let scale = 8192.0;
        let (client, server) = share(Ring::new(30), &x, 2);
        let (a, b, stats) = run_counted(
            move |ctx| reciprocal(ctx, &client, Positive::below(bits), scale, frac, to),
            move |ctx| reciprocal(ctx, &server, Positive::below(bits), scale, frac, to),
        );
        assert_cost(&stats, reciprocal_cost(&Link::LAN, x.len(), Positive::below(bits), to));
        for (x, y) in x.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let (want, got) = (scale / *x as f64, y as f64 / 65536.0);
            assert!((got - want).abs() < want * 1.4e-4 + 3e-5, "{x}: {got} for {want}");
        }
    }

    #[test]
    fn of_zero_the_result_is_zero() {
        let (bits, frac, to) = (21, 16, Ring::new(36));
        let (client, server) = share(Ring::new(30), &[0; 400], 9);
        let (a, b, _) = run_counted(
            |ctx| reciprocal(ctx, &client, Positive::below(bits), 8192.0, frac, to).unwrap(),
            |ctx| reciprocal(ctx, &server, Positive::below(bits), 8192.0, frac, to).unwrap(),
        );
        for y in reveal(&a, &b) {
            assert!(to.decode(y).abs() <= 1, "{y}");
        }
    }

    #[test]
    fn root_relative_error() {
        let (bits, frac, to) = (33, 16, Ring::new(36));
        let x = arguments(bits);
        let scale = 4096.0;
        let (client, server) = share(Ring::new(40), &x, 2);
        let (a, b, stats) = run_counted(
            move |ctx| inverse_root(ctx, &client, Positive::below(bits), scale, frac, to),
            move |ctx| inverse_root(ctx, &server, Positive::below(bits), scale, frac, to),
        );
        assert_cost(&stats, inverse_root_cost(&Link::LAN, x.len(), Positive::below(bits), to));
        for (x, y) in x.iter().zip(reveal(&a.unwrap(), &b.unwrap())) {
            let (want, got) = (scale / (*x as f64).sqrt(), y as f64 / 65536.0);
            assert!((got - want).abs() < want * 4e-5 + 3e-5, "{x}: {got} for {want}");
        }
    }

    /// Each form over the numbers that it is for, against the function.
    #[test]
    fn every_form_gives_the_function() {
        let (bits, frac, to) = (22, 16, Ring::new(33));
        let of = Positive::below(bits).within(7_300, 143_000);
        let x: Vec<u64> = (0..90).map(|i| 7_300 + i * i * 17).chain([143_000]).collect();
        let (x0, x1) = share(Ring::new(40), &x, 3);
        let forms = Form::all(&Link::INTERNET, x.len(), of, to);
        assert_eq!(forms.len(), 3);
        for (form, power) in forms.into_iter().flat_map(|form| [(form, Power::Inverse), (form, Power::Root)]) {
            let scale = 1.0 / power.of(8192.0);
            let run = |ctx: &mut Ctx, x: &Share| form.run(ctx, x, of, (power, scale), frac, to).unwrap();
            let (a, b, stats) = run_counted(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
            assert_cost(&stats, form.cost(&Link::LAN, x.len(), of, to));
            for (x, y) in x.iter().zip(reveal(&a, &b)) {
                let (want, got) = (scale * power.of(*x as f64), y as f64 / 65536.0);
                assert!((got - want).abs() < want * 1.4e-4 + 4e-5, "{form:?} {x}: {got} for {want}");
            }
        }
    }

    /// Few numbers over a long way take a series, many a polynomial.
    #[test]
    fn the_form_follows_the_link() {
        let (to, sums) = (Ring::new(33), Positive::below(22).within(7_300, 143_000));
        let of = |link: &Link, n, of| Form::over(link, n, of, to);
        assert_eq!(of(&Link::LAN, 12, sums), Form::Polynomial);
        assert!(matches!(of(&Link::INTERNET, 12, sums), Form::Series(_)));
        assert!(matches!(of(&Link::INTERNET, 1, Positive::below(33)), Form::Places(_)));
        assert_eq!(of(&Link::INTERNET, 1 << 14, Positive::below(33)), Form::Polynomial);
    }
}
