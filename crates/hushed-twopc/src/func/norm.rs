//! LayerNorm and RMSNorm of shared rows, without gain and offset: these are linear and belong to the following layers.
//!
//! For a row x of d numbers: c = x − mean (LayerNorm) or x (RMSNorm), v = Σ c², y = c·√d/√(v + d·ε). Only v and 1/√v
//! are one number per row; the cost is in the squares of all elements and the products c·r ([`crate::he::rows`]).
//! Usually c has 7 fraction bits in the squares (their rounding adds 10^−5 to a variance) and 11 in the product, whose
//! result is bounded by √d whatever x is, and v < 2^18. A [`NormReach`] widens this where a model's rows are larger or
//! smaller.

mod mean;

use super::format::{Format, narrow, rescale, rescale_cost};
use super::inverse::{Positive, inverse_root, inverse_root_cost};
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{Expected, TwopcError, expect_at_most};
use crate::gadget::Sign;
use crate::he::{HeContext, Layouts, RowsCost, row_squares, row_squares_cost, scale_rows, scale_rows_cost};
use crate::link::Link;
use crate::share::{Ring, Share};
use mean::{Apart, mean, mean_cost};

/// Formats of v and r.
#[derive(Clone, Copy, Debug)]
struct Deviation {
    /// c in the squares, in a ring of one bit more than v.
    squared: Format,
    /// r, at most 2^6.
    root: Format,
}

impl Deviation {
    /// Bits of v, which has twice `squared`'s fraction bits.
    const fn sum_bits(&self) -> u32 {
        self.squared.ring.bits() - 1
    }
}

/// How large and how small a norm's rows are: these figures, declared for a model, determine the rings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NormReach {
    /// v < 2^squares.
    pub squares: u32,
    /// Fraction bits of c beyond the usual ones, for rows of elements far below 1.
    pub finer: u32,
}

impl NormReach {
    /// v < 2^18, which at d = 384 is a variance of 682 and at d = 1024 one of 256.
    pub const USUAL: NormReach = NormReach { squares: 18, finer: 0 };
    /// The widest: at d = 4096 a single element of 3.2·10^4, or all of 512.
    pub const MOST_SQUARES: u32 = 30;
    /// `squares + 2·finer` is at most this: the squares' ring then has 48 bits.
    pub const MOST: u32 = 33;

    /// Whether there are rings for it.
    #[must_use]
    pub const fn is_held(&self) -> bool {
        Self::USUAL.squares <= self.squares
            && self.squares <= Self::MOST_SQUARES
            && self.finer <= Self::MOST
            && self.squares + 2 * self.finer <= Self::MOST
    }

    /// The mean square, with ε, below which 1/√v of rows of `width` numbers errs by 0.5 % or more. A number is off by
    /// u/√6, u = 2^−(7 + finer), when it is squared. The squares of these errors lengthen a row, by u²/12s² of itself
    /// at a root mean square of s. Their products with the numbers scatter by u/(s·√(6·width)), which is more for rows
    /// shorter than 400.
    #[must_use]
    pub fn least_mean_square(&self, width: usize) -> f64 {
        let square = (-2.0 * f64::from(self.squared_frac())).exp2();
        (square / (12.0 * 0.005)).max(square / (6.0 * width as f64 * 0.005 * 0.005))
    }

    /// Fraction bits of c in the squares.
    pub const fn squared_frac(&self) -> u32 {
        7 + self.finer
    }

    /// Fraction bits of c in the product.
    pub const fn centred_frac(&self) -> u32 {
        11 + self.finer
    }

    /// Half the bits by which v is wider than usual: r is smaller by as many bits, and needs them as fraction bits.
    const fn wider(&self) -> u32 {
        (self.squares - Self::USUAL.squares).div_ceil(2)
    }

    /// Bits of c·r and its factors. |c·r| ≤ √d, which beyond d = 2048 takes a bit more. c's finer bits come on top, as
    /// far as the inverse root has room for them; r loses the rest.
    const fn product_bits(&self, width: usize) -> u32 {
        let bits = self.product_whole(width) + self.finer;
        if bits < MOST_PRODUCT { bits } else { MOST_PRODUCT }
    }

    /// The same without finer bits: 40 at most.
    const fn product_whole(&self, width: usize) -> u32 {
        PRODUCT_BITS + self.wider() + (width > 2048) as u32
    }

    /// Fraction bits of r. An error in r is in every element of its row.
    pub const fn root_frac(&self, width: usize) -> u32 {
        14 + self.wider() + self.product_bits(width) - self.product_whole(width) - self.finer
    }

    /// c in the product.
    const fn centred(&self, width: usize) -> Format {
        Format::new(self.product_bits(width), self.centred_frac())
    }

    /// Formats for norms inside a model.
    const fn deviation(&self, width: usize) -> Deviation {
        let frac = self.squared_frac();
        Deviation {
            squared: Format::new(self.squares + 2 * frac + 1, frac),
            root: Format::new(self.product_bits(width), self.root_frac(width)),
        }
    }
}
/// Formats for answers: v < 2^14, a length of 128.
const UNIT: Deviation = Deviation { squared: Format::new(35, 10), root: Format::new(46, 16) };
/// An answer's c in the product, |c·r| < 2^6 with 36 fraction bits.
const UNIT_CENTRED: Format = Format::new(46, 20);
/// That product before it is multiplied by 1/√d.
const UNIT_PRODUCT: Format = Format::new(48, 20);
/// An answer: |y| ≤ 1, with all bits that the constant 1/√d adds. It is revealed only by
/// [`open_rounded`](crate::gadget::open_rounded), never in this form.
pub const UNIT_ROW: Format = Format::new(48, UNIT_PRODUCT.frac + UNIT_FACTOR);
/// Fraction bits of 1/√d.
const UNIT_FACTOR: u32 = 16;
/// |c·r| ≤ √d < 2^5.5 with 25 fraction bits, a sign and a spare bit.
const PRODUCT_BITS: u32 = 33;
/// The most bits that c·r may have: [`inverse_root`] computes r with 24 bits more, in 64.
const MOST_PRODUCT: u32 = 40;

/// The widest rows: |c·r| ≤ √d < 2^6.5.
pub const MOST_WIDTH: usize = 8192;

/// The shape and kind of a norm.
#[derive(Clone, Copy, Debug)]
pub struct NormShape {
    /// Rows.
    pub rows: usize,
    /// Columns d, at most [`MOST_WIDTH`].
    pub width: usize,
    /// Subtract the mean of a row (LayerNorm) or not (RMSNorm).
    pub centre: bool,
    /// ε, added to the variance or mean square.
    pub epsilon: f64,
    /// The size of the rows.
    pub reach: NormReach,
}

/// Normalises the rows: `x` in `from`, with |x| < 2^(ring − frac − 3); the result is in `to`.
pub fn normalise_rows(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    from: Format,
    shape: NormShape,
    to: Format,
) -> Result<Share, TwopcError> {
    let NormShape { rows, width, .. } = shape;
    if !shape.reach.is_held() {
        return Err(TwopcError::Misuse {
            operation: "normalise_rows",
            what: "bits of squares, of which no rings hold so many",
            got: shape.reach.squares.into(),
            expected: Expected::AtMost(NormReach::MOST_SQUARES.into()),
        });
    }
    expect_at_most("normalise_rows", "columns", width as u64, MOST_WIDTH as u64)?;
    let (how, centred) = (shape.reach.deviation(width), shape.reach.centred(width));
    let ring = ring_of_both(centred, how.squared);
    let (c, small) = match (shape.centre, Apart::of(&ctx.link(), width, from, centred.frac, ring)) {
        (true, Some(apart)) => {
            let cut = |ctx: &mut Ctx| cut(ctx, x, from, centred, how.squared);
            let mean = |ctx: &mut Ctx| apart.mean(ctx, x, width);
            let (x, mean) = ctx.both(cut, (|_: &Link| apart.cost(rows), mean))?;
            of_both(ctx, &x.sub(&mean.repeat_each(width)), centred, how.squared)
        }
        (true, None) => {
            let mean = mean(ctx, x, from, width)?;
            both(ctx, &x.sub(&mean.repeat_each(width)), from, centred, how.squared)?
        }
        (false, _) => both(ctx, x, from, centred, how.squared)?,
    };
    let r = inverse_deviation(ctx, he, &small, shape, &how)?;
    let y = scale_rows(ctx, he, &c, rows, width, &r)?;
    let frac = centred.frac + how.root.frac;
    rescale(ctx, &y, frac - to.frac, Sign::Bounded, to.ring)
}

/// The cost of [`normalise_rows`].
///
/// # Errors
/// As [`Layouts::of`].
pub fn normalise_rows_cost(
    shape: NormShape,
    from: Format,
    to: Format,
    layouts: &Layouts,
) -> Result<RowsCost, TwopcError> {
    let NormShape { rows, width, .. } = shape;
    let n = rows * width;
    let (how, centred) = (shape.reach.deviation(width), shape.reach.centred(width));
    let frac = centred.frac + how.root.frac;
    let cut = both_cost(n, from, centred, how.squared);
    let ring = ring_of_both(centred, how.squared);
    let cut = match (shape.centre, Apart::of(layouts.link(), width, from, centred.frac, ring)) {
        (true, Some(apart)) => layouts.link().both(|_| cut, |_| apart.cost(rows)),
        (true, None) => mean_cost(rows, from) + cut,
        (false, _) => cut,
    };
    let around = cut + rescale_cost(n, centred.ring, frac - to.frac, to.ring);
    Ok(RowsCost::from(around)
        + inverse_deviation_cost(shape, &how, layouts)?
        + scale_rows_cost(rows, width, centred.ring, layouts)?)
}

/// The cost of [`unit_rows`].
///
/// # Errors
/// As [`normalise_rows_cost`].
pub fn unit_rows_cost(rows: usize, width: usize, from: Format, layouts: &Layouts) -> Result<RowsCost, TwopcError> {
    let n = rows * width;
    let shift = UNIT_CENTRED.frac + UNIT.root.frac - UNIT_PRODUCT.frac;
    let around =
        both_cost(n, from, UNIT_CENTRED, UNIT.squared) + rescale_cost(n, UNIT_CENTRED.ring, shift, UNIT_PRODUCT.ring);
    Ok(RowsCost::from(around)
        + inverse_deviation_cost(unit_shape(rows, width), &UNIT, layouts)?
        + scale_rows_cost(rows, width, UNIT_CENTRED.ring, layouts)?)
}

fn inverse_deviation_cost(shape: NormShape, how: &Deviation, layouts: &Layouts) -> Result<RowsCost, TwopcError> {
    let NormShape { rows, width, .. } = shape;
    let root = inverse_root_cost(layouts.link(), rows, Positive::below(how.sum_bits()), how.root.ring);
    Ok(RowsCost::from(root) + row_squares_cost(rows, width, how.squared.ring, layouts)?)
}

/// c in the format of its product and in that of its squares, by one truncation: the squares' fewer fraction bits are
/// the upper ones of a ring that has as many more.
fn both(
    ctx: &mut Ctx,
    c: &Share,
    from: Format,
    product: Format,
    squares: Format,
) -> Result<(Share, Share), TwopcError> {
    let c = cut(ctx, c, from, product, squares)?;
    Ok(of_both(ctx, &c, product, squares))
}

/// The truncation for both.
fn cut(ctx: &mut Ctx, c: &Share, from: Format, product: Format, squares: Format) -> Result<Share, TwopcError> {
    let ring = ring_of_both(product, squares);
    rescale(ctx, c, from.frac - product.frac, Sign::Bounded, ring)
}

/// Both formats of what was cut.
fn of_both(ctx: &Ctx, c: &Share, product: Format, squares: Format) -> (Share, Share) {
    let small = narrow(ctx.party(), c, product.frac - squares.frac, squares.ring);
    (c.reduce_to(product.ring), small)
}

fn both_cost(n: usize, from: Format, product: Format, squares: Format) -> Cost {
    let ring = ring_of_both(product, squares);
    rescale_cost(n, from.ring, from.frac - product.frac, ring)
}

fn ring_of_both(product: Format, squares: Format) -> Ring {
    let wide = squares.ring.bits() + product.frac - squares.frac;
    Ring::new(wide.max(product.ring.bits()))
}

fn unit_shape(rows: usize, width: usize) -> NormShape {
    NormShape { rows, width, centre: false, epsilon: 0.0, reach: NormReach::USUAL }
}

/// Strict bound on the magnitude of a row's mean in LayerNorm, for rows of `width` numbers in the format `x`: the sum
/// must leave one bit of the ring besides the sign.
pub fn most_mean(x: Format, width: usize) -> f64 {
    (f64::from(x.ring.bits()) - f64::from(x.frac) - 2.0).exp2() / width as f64
}

/// √d/√(Σ c² + d·ε), one per row, in the format given by `how`, from c in its format for squares.
fn inverse_deviation(
    ctx: &mut Ctx,
    he: &HeContext,
    c: &Share,
    shape: NormShape,
    how: &Deviation,
) -> Result<Share, TwopcError> {
    let NormShape { rows, width, .. } = shape;
    let v = row_squares(ctx, he, c, rows, width)?;
    let unit = f64::from(2 * how.squared.frac).exp2();
    let epsilon = (shape.epsilon * width as f64 * unit).round() as i64;
    let v = v.add_public(ctx.party(), epsilon.max(1));
    let scale = (width as f64 * unit).sqrt();
    inverse_root(ctx, &v, Positive::below(how.sum_bits()), scale, how.root.frac, how.root.ring)
}

/// Divides each row by its length, for sentence embeddings. `x` in `from`, result in [`UNIT_ROW`].
///
/// The client sees the result, so a small error is not enough: a vector of multiples of r would show r, the length. c
/// keeps [`UNIT_CENTRED`]'s 20 fraction bits, so that the grid of its multiples is far finer than the few bits that are
/// revealed.
pub fn unit_rows(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    from: Format,
    rows: usize,
    width: usize,
) -> Result<Share, TwopcError> {
    let (c, small) = both(ctx, x, from, UNIT_CENTRED, UNIT.squared)?;
    let r = inverse_deviation(ctx, he, &small, unit_shape(rows, width), &UNIT)?;
    let y = scale_rows(ctx, he, &c, rows, width, &r)?;
    let shift = UNIT_CENTRED.frac + UNIT.root.frac - UNIT_PRODUCT.frac;
    let y = rescale(ctx, &y, shift, Sign::Bounded, UNIT_PRODUCT.ring)?;
    // y/√d is at most 1, so the product fits the ring.
    let factor = (f64::from(1u32 << UNIT_FACTOR) / (width as f64).sqrt()).round() as i64;
    Ok(y.mul_public(factor))
}

/// The constants on which both parties must agree, as text.
pub fn describe() -> String {
    let usual = NormReach::USUAL;
    let (norm, centred) = (usual.deviation(1), usual.centred(1));
    format!("norm {norm:?} {centred:?} {UNIT:?} {UNIT_CENTRED:?} {UNIT_PRODUCT:?}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, keys, reveal, run_after, run_over_rlwe, share};
    use hushed_math::rng::SecretRng;

    const FROM: Format = Format::new(48, 32);
    const TO: Format = Format::new(48, 16);

    /// The error that the formats allow for a row of `width` with the factor r = √d/‖c‖ and the exact result y: c off
    /// by a unit; r by a unit, by the polynomial's 2·10^−5, and by the roundings in the squares, which add up like
    /// 2·‖c‖·unit/√6 (five times that here); the result by two units.
    fn bound(how: &Deviation, centred: Format, width: usize, r: f64, y: f64) -> f64 {
        let unit = |f: Format| (-f64::from(f.frac)).exp2();
        let squares = 2.1 * unit(how.squared) * r / (width as f64).sqrt();
        let root = unit(how.root) / r + squares + 1e-4;
        unit(centred) * r + y.abs() * root + 2.0 * unit(TO)
    }

    fn layouts() -> Layouts {
        Layouts::new(hushed_rlwe::RlweParams::olt_full().unwrap())
    }

    fn rows(rows: usize, width: usize) -> Vec<f64> {
        let mut next = SecretRng::insecure_from_seed(77);
        let mut x: Vec<f64> = (0..rows * width).map(|_| (next.next_u64() % 2000) as f64 / 1000.0 - 0.8).collect();
        x[17] = 190.0; // an outlier, as in real residuals
        x[width..2 * width].iter_mut().for_each(|v| *v *= 20.0);
        x[2 * width..3 * width].iter_mut().for_each(|v| *v *= 0.3);
        x
    }

    #[test]
    fn layer_norm_against_the_clear() {
        // The first computes its sums over OT, the second over RLWE.
        norm(6, 96, true);
        norm(16, 384, true);
    }

    #[test]
    fn rms_norm_against_the_clear() {
        norm(6, 96, false);
        norm(16, 384, false);
    }

    /// Rows with a single element of 3·10^3, and rows around a hundredth: the usual format holds neither.
    #[test]
    fn wide_and_small_rows() {
        let wide = NormReach { squares: 24, finer: 0 };
        let small = NormReach { squares: 18, finer: 5 };
        let both = NormReach { squares: 25, finer: 4 };
        let factor = |by: f64, x: Vec<f64>| x.into_iter().map(move |v| v * by).collect::<Vec<_>>();
        for centre in [true, false] {
            let mut x = rows(6, 96);
            (x[17], x[96 + 5]) = (3000.0, -3300.0);
            normed(x, 96, centre, wide);
            // A mean of 94.
            let mut x = rows(6, 32);
            x[33] = 3000.0;
            normed(x, 32, centre, wide);
            normed(factor(0.02, rows(6, 96)), 96, centre, small);
            let mut x = factor(0.05, rows(16, 384));
            (x[0], x[384]) = (3000.0, -4100.0);
            normed(x, 384, centre, both);
        }
        // From a published feed-forward, whose rows are wider than its residual.
        normed(rows(3, 6912), 6912, false, wide);
        // The widest squares there are.
        let most = NormReach { squares: 30, finer: 1 };
        let mut x = rows(3, 64);
        (x[3], x[70]) = (8000.0, -7000.0);
        normed(x, 64, false, most);
    }

    #[test]
    fn means_up_to_the_limit() {
        for (width, limit) in [(32, 512.0), (64, 256.0), (256, 64.0)] {
            assert_eq!(most_mean(FROM, width), limit);
            for sign in [1.0, -1.0] {
                let shifted = rows(3, width).into_iter().map(|v| v + sign * 0.93 * limit);
                normed(shifted.collect(), width, true, NormReach::USUAL);
            }
        }
    }

    /// Rows of the least mean square that a reach is for: rounding makes them too short on average, and scatters about
    /// that.
    #[test]
    fn the_smallest_rows_that_a_reach_is_for() {
        for (finer, rows, width) in [(0, 64, 1024), (3, 32, 2048), (1, 400, 32)] {
            let reach = NormReach { squares: 18, finer };
            let least = reach.least_mean_square(width).sqrt();
            let mut next = SecretRng::insecure_from_seed(5);
            // Uniform, so that rounding errors of all sizes occur.
            let unit = |_| (next.next_u64() >> 11) as f64 / (1u64 << 52) as f64 - 1.0;
            let x = (0..rows * width).map(unit);
            let x: Vec<f64> = x.map(|v| v * least * 3f64.sqrt()).collect();
            let y = normalised(&x, width, false, reach);
            // The length of the exact row is √width.
            let short = y.chunks(width).map(|row| {
                let squares = row.iter().map(|v| v * v).sum::<f64>();
                1.0 - (squares / width as f64).sqrt()
            });
            let short: Vec<f64> = short.collect();
            let mean = short.iter().sum::<f64>() / rows as f64;
            let spread = short.iter().map(|s| (s - mean).powi(2)).sum::<f64>() / rows as f64;
            let off = mean.abs().max(spread.sqrt());
            assert!(0.0035 < off && off < 0.0065, "{finer}: {mean} {spread}");
        }
    }

    #[test]
    fn reaches_without_rings_are_refused() {
        for (squares, finer, held) in [
            (18, 0, true),
            (17, 0, false),
            (30, 1, true),
            (30, 2, false),
            (31, 0, false),
            (18, 7, true),
            (18, 8, false),
            (18, u32::MAX, false),
        ] {
            assert_eq!(NormReach { squares, finer }.is_held(), held);
        }
    }

    fn norm(n: usize, width: usize, centre: bool) {
        normed(rows(n, width), width, centre, NormReach::USUAL);
    }

    /// The protocol's result; also checks its cost against the formula.
    fn normalised(x: &[f64], width: usize, centre: bool, reach: NormReach) -> Vec<f64> {
        let n = x.len() / width;
        let words: Vec<u64> = x.iter().map(|&v| FROM.encode(v)).collect();
        let shape = NormShape { rows: n, width, centre, epsilon: 1e-12, reach };
        let (y, stats) = run_over_rlwe(&share(FROM.ring, &words, 4), |ctx, he, x| {
            normalise_rows(ctx, he, x, FROM, shape, TO).unwrap()
        });
        let cost = normalise_rows_cost(shape, FROM, TO, &layouts()).unwrap();
        assert_cost(&stats, cost.cost);
        y.iter().map(|&y| TO.decode(y)).collect()
    }

    fn normed(x: Vec<f64>, width: usize, centre: bool, reach: NormReach) {
        let y = normalised(&x, width, centre, reach);
        for r in 0..x.len() / width {
            let row = &x[r * width..][..width];
            let mean = row.iter().sum::<f64>() / width as f64;
            let mean = if centre { mean } else { 0.0 };
            let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
            for (v, got) in row.iter().zip(&y[r * width..]) {
                let want = (v - mean) / var.sqrt();
                let (how, centred) = (reach.deviation(width), reach.centred(width));
                let bound = bound(&how, centred, width, 1.0 / var.sqrt(), want);
                assert!((want - got).abs() < bound, "row {r}: {got} for {want}");
            }
        }
    }

    /// Over a link where messages count, the mean is found beside the truncation: c is off by a unit more.
    #[test]
    fn layer_norm_over_a_link() {
        let link = Link::INTERNET;
        let wide = NormReach { squares: 25, finer: 4 };
        for (n, width, reach, rows) in [
            (6, 96, NormReach::USUAL, rows(6, 96)),
            (3, 384, wide, rows(3, 384).into_iter().map(|v| 10.0 * v).collect()),
        ] {
            let shape = NormShape { rows: n, width, centre: true, epsilon: 1e-12, reach };
            let words: Vec<u64> = rows.iter().map(|&v| FROM.encode(v)).collect();
            let (x0, x1) = share(FROM.ring, &words, 4);
            let first = |ctx: &mut Ctx| {
                ctx.set_link(link);
                keys(ctx)
            };
            let run = |ctx: &mut Ctx, he: &HeContext, x: &Share| normalise_rows(ctx, he, x, FROM, shape, TO).unwrap();
            let (a, b, stats) = run_after(first, |ctx, he| run(ctx, he, &x0), |ctx, he| run(ctx, he, &x1));
            let layouts = Layouts::over(link, hushed_rlwe::RlweParams::olt_full().unwrap());
            let cost = normalise_rows_cost(shape, FROM, TO, &layouts).unwrap().cost;
            assert_cost(&stats, cost);
            assert!(cost.rounds <= 14, "{}", cost.rounds);
            let y: Vec<f64> = reveal(&a, &b).iter().map(|&y| TO.decode(y)).collect();
            let (how, centred) = (reach.deviation(width), reach.centred(width));
            for (row, y) in rows.chunks(width).zip(y.chunks(width)) {
                let mean = row.iter().sum::<f64>() / width as f64;
                let var = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / width as f64;
                for (v, got) in row.iter().zip(y) {
                    let (r, want) = (1.0 / var.sqrt(), (v - mean) / var.sqrt());
                    let more = (-f64::from(centred.frac)).exp2() * r;
                    let bound = bound(&how, centred, width, r, want) + more;
                    assert!((want - got).abs() < bound, "{got} for {want}");
                }
            }
        }
    }

    #[test]
    fn unit_rows_have_length_one() {
        let (n, width) = (6, 96);
        let mut x = rows(n, width);
        x[17] = 90.0; // within a length of 128
        let words: Vec<u64> = x.iter().map(|&v| FROM.encode(v)).collect();
        let (y, stats) =
            run_over_rlwe(&share(FROM.ring, &words, 4), |ctx, he, x| unit_rows(ctx, he, x, FROM, n, width).unwrap());
        assert_cost(&stats, unit_rows_cost(n, width, FROM, &layouts()).unwrap().cost);
        for r in 0..n {
            let row = &x[r * width..][..width];
            let length = row.iter().map(|v| v * v).sum::<f64>().sqrt();
            for (v, y) in row.iter().zip(&y[r * width..]) {
                let root = (width as f64).sqrt();
                let bound = bound(&UNIT, UNIT_CENTRED, width, root / length, v / length * root) / root + 2e-5;
                assert!((v / length - UNIT_ROW.decode(*y)).abs() < bound, "row {r}");
            }
        }
    }
}
