//! Two operations on shared rows for norms and softmax: Σ_j x_ij² per row, and every x_ij times its row's factor r_i.
//!
//! Gilboa's method computes both bit by bit over OT ([`square`], [`mul_rows`]), at 70 and 140 bytes per element of 33
//! bits. Over RLWE a row is one polynomial, and the mixed terms become small matrix products. Σ_j x_ij² needs 2·⟨x_c,
//! x_s⟩, a row times a column, of which only one number per row comes back. r_i·x_ij is a batch of products of 1×1 by
//! 1×width, or by pieces of the row, with many products in a ciphertext. Factors and rows are encrypted, and both mixed
//! terms have their results at the same places of the same leaves, so one response carries their sum. A few short rows
//! are cheaper over OT; both parties choose by what the session's [`Link`] weighs.
//!
//! The result is off by at most two units of the ring over RLWE (the one mixed term of the squares is doubled), and
//! exact over OT.

use super::context::HeContext;
use super::layout::OltSpec;
use super::layout::answer::cost;
use super::layout::known::Layouts;
use super::matmul::{MatmulShape, matmul_by};
use super::olt::{olt_encrypted, olt_multiplying};
use super::window::{Encrypted, OltShape, Window};
use super::wire::OltCost;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::gadget::{mul_rows, mul_rows_cost, square, square_cost};
use crate::link::Link;
use crate::share::{Ring, Share};
use hushed_net::Party;
use std::ops::Add;

/// The cost of an operation on rows, and of the RLWE products in it.
#[derive(Clone, Copy, Debug, Default)]
pub struct RowsCost {
    /// Traffic and OTs.
    pub cost: Cost,
    /// Work of the server.
    pub tiling: OltCost,
}

impl From<Cost> for RowsCost {
    fn from(cost: Cost) -> RowsCost {
        RowsCost { cost, ..RowsCost::default() }
    }
}

impl Add for RowsCost {
    type Output = RowsCost;

    /// One after the other.
    fn add(self, b: RowsCost) -> RowsCost {
        RowsCost { cost: self.cost + b.cost, tiling: self.tiling + b.tiling }
    }
}

impl RowsCost {
    /// What it weighs over a link.
    fn price(&self, link: &Link) -> u64 {
        link.price_with(&self.cost, self.tiling.work())
    }

    fn cheaper(self, other: RowsCost, link: &Link) -> RowsCost {
        if self.price(link) < other.price(link) { self } else { other }
    }

    fn over_rlwe(&self) -> bool {
        self.tiling.responses > 0
    }
}

/// Cost of [`row_squares`].
///
/// # Errors
/// As [`Layouts::of`].
pub fn row_squares_cost(rows: usize, width: usize, ring: Ring, layouts: &Layouts) -> Result<RowsCost, TwopcError> {
    let over_ot = RowsCost::from(square_cost(rows * width, ring));
    let Some(spec) = squares_spec(rows, width, ring) else {
        return Ok(over_ot);
    };
    let tiling = layouts.of(&spec)?.tiling.cost();
    let cost = tiling.traffic();
    Ok(RowsCost { cost, tiling }.cheaper(over_ot, layouts.link()))
}

/// Σ_j x_ij² mod 2^ℓ for a rows × width matrix x: one number per row, off by at most two units.
///
/// # Errors
/// [`TwopcError::Misuse`] unless x has rows × width elements; else those of the session and of the peer's bytes.
pub fn row_squares(ctx: &mut Ctx, he: &HeContext, x: &Share, rows: usize, width: usize) -> Result<Share, TwopcError> {
    expect_len("row_squares", "elements", x.len(), rows * width)?;
    let ring = x.ring();
    let how = row_squares_cost(rows, width, ring, he.layouts())?;
    let (Some(spec), true) = (squares_spec(rows, width, ring), how.over_rlwe()) else {
        return Ok(square(ctx, x)?.sum_rows(rows, width));
    };
    // (x_c + x_s)² = x_c² + x_s² + 2·x_c·x_s, where x_c·x_s is needed modulo 2^(ℓ−1).
    let half = Ring::new(spec.ring_bits);
    let x_half = x.reduce_to(half);
    let mixed = match ctx.party() {
        Party::Client => olt_encrypted(ctx, he, &spec, x_half.words())?,
        Party::Server => {
            let signed = x_half.words().iter().map(|w| half.decode(*w));
            let signed = zeroize::Zeroizing::new(signed.collect::<Vec<i64>>());
            olt_multiplying(ctx, he, &spec, &signed)?
        }
    };
    let own = x.words().iter().map(|w| w.wrapping_mul(*w)).collect();
    let own = Share::new(ring, own).sum_rows(rows, width);
    let mixed = Share::new(ring, mixed.into_words());
    Ok(own.add(&mixed.shift_left(1)))
}

/// Cost of [`scale_rows`].
///
/// # Errors
/// As [`Layouts::of`].
pub fn scale_rows_cost(rows: usize, width: usize, ring: Ring, layouts: &Layouts) -> Result<RowsCost, TwopcError> {
    Ok(scaling(rows, width, ring, layouts)?.0)
}

/// The cost of [`scale_rows`], and the products by which it is done over RLWE, if it is.
fn scaling(
    rows: usize,
    width: usize,
    ring: Ring,
    layouts: &Layouts,
) -> Result<(RowsCost, Option<Scaling>), TwopcError> {
    let over_ot = RowsCost::from(mul_rows_cost(rows, width, ring));
    let mut best = (over_ot, None);
    for scaling in scalings(rows, width, ring, layouts.params().n()) {
        let tiling = cost(layouts.of_sum(scaling.mixed)?.iter());
        let cost = RowsCost { cost: tiling.traffic(), tiling };
        if cost.price(layouts.link()) < best.0.price(layouts.link()) {
            best = (cost, Some(scaling));
        }
    }
    Ok(best)
}

/// Products that multiply rows by their factors, each a factor times a piece of its row.
struct Scaling {
    shape: MatmulShape,
    /// The number of pieces of a row.
    pieces: usize,
    mixed: [OltSpec; 2],
}

impl Scaling {
    fn new(rows: usize, width: usize, pieces: usize, ring: Ring) -> Self {
        let shape = OltShape { k: 1, m: 1, n: width / pieces };
        let shape = MatmulShape { shape, batch: rows * pieces };
        Self { shape, pieces, mixed: shape.mixed(ring) }
    }

    /// With windows by which leaves of both terms are added: as many products as fit share a ciphertext of factors, and
    /// a ciphertext of the rows, in which each has `numbers` numbers.
    fn in_common_leaves(self, products: usize, numbers: usize) -> Self {
        let window = |kw, nw| Some(Window { kw, mw: products, nw });
        let [factors, row] = self.mixed;
        let factors = OltSpec { window: window(1, numbers), ..factors };
        Self { mixed: [factors, OltSpec { window: window(numbers, 1), ..row }], ..self }
    }
}

/// The ways to be considered, for rings of `degree`.
fn scalings(rows: usize, width: usize, ring: Ring, degree: usize) -> Vec<Scaling> {
    if rows == 0 || width == 0 {
        return Vec::new();
    }
    let mut all = vec![Scaling::new(rows, width, 1, ring)];
    for products in (0..=degree.ilog2()).map(|bits| 1 << bits) {
        let widest = degree / products;
        // Whole rows, cut by the tiling where they are longer, or pieces that fill a ciphertext better.
        let pieces = (width.div_ceil(widest)..=width).find(|pieces| width.is_multiple_of(*pieces));
        let numbers = width.div_ceil(width.div_ceil(widest));
        all.push(Scaling::new(rows, width, 1, ring).in_common_leaves(products, numbers));
        if let Some(pieces) = pieces.filter(|pieces| *pieces > 1) {
            all.push(Scaling::new(rows, width, pieces, ring).in_common_leaves(products, width / pieces));
        }
        if products >= rows * width {
            break;
        }
    }
    all
}

/// x_ij·r_i mod 2^ℓ for a rows × width matrix x, row by row, and `rows` factors r: off by at most two units.
///
/// # Errors
/// As [`mul_rows`]; else those of the session and of the peer's bytes.
pub fn scale_rows(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    rows: usize,
    width: usize,
    r: &Share,
) -> Result<Share, TwopcError> {
    let bits = |s: &Share| s.ring().bits() as usize;
    expect_len("scale_rows", "elements", x.len(), rows * width)?;
    expect_len("scale_rows", "factors", r.len(), rows)?;
    expect_len("scale_rows", "ring bits of the factors", bits(r), bits(x))?;
    let Some(Scaling { shape, pieces, mixed }) = scaling(rows, width, x.ring(), he.layouts())?.1 else {
        return mul_rows(ctx, x, rows, width, r);
    };
    matmul_by(ctx, he, &r.repeat_each(pieces), x, (&shape, mixed))
}

/// The products of one party's rows with the other's, each a row times a column; `None` if there are none.
fn squares_spec(rows: usize, width: usize, ring: Ring) -> Option<OltSpec> {
    let half = ring.bits().checked_sub(1).filter(|bits| *bits > 1)?;
    let shape = OltShape { k: 1, m: width, n: 1 };
    let products = MatmulShape { shape, batch: rows };
    (rows > 0 && width > 0).then(|| products.spec(Ring::new(half), Encrypted::Left))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, run_over_rlwe, share, values};

    fn off(ring: Ring, found: u64, want: u64) -> u64 {
        ring.decode(ring.reduce(found.wrapping_sub(want))).unsigned_abs()
    }

    fn layouts() -> Layouts {
        Layouts::new(hushed_rlwe::RlweParams::olt_full().unwrap())
    }

    #[test]
    fn squares_of_rows() {
        // The first two over OT, the others over RLWE.
        for (rows, width, bits, rlwe) in
            [(1, 24, 33, false), (0, 5, 33, false), (16, 384, 33, true), (21, 300, 46, true)]
        {
            let ring = Ring::new(bits);
            let x = values(rows * width, ring, 1);
            let (y, stats) =
                run_over_rlwe(&share(ring, &x, 2), |ctx, he, x| row_squares(ctx, he, x, rows, width).unwrap());
            let cost = row_squares_cost(rows, width, ring, &layouts()).unwrap();
            assert_eq!(cost.over_rlwe(), rlwe, "{rows} {width}");
            assert_cost(&stats, cost.cost);
            for (row, y) in x.chunks(width).zip(&y) {
                let want = row.iter().fold(0u64, |s, x| s.wrapping_add(x.wrapping_mul(*x)));
                assert!(off(ring, *y, want) <= 2, "{rows} {width} {bits}");
            }
        }
    }

    #[test]
    fn rows_times_their_factors() {
        for (rows, width, bits, rlwe) in
            [(1, 40, 46, false), (0, 7, 33, false), (16, 384, 33, true), (20, 200, 46, true)]
        {
            let ring = Ring::new(bits);
            let (x, r) = (values(rows * width, ring, 3), values(rows, ring, 4));
            let (r0, r1) = share(ring, &r, 5);
            let (y, stats) = run_over_rlwe(&share(ring, &x, 6), |ctx, he, x| {
                let r = if ctx.is_client() { &r0 } else { &r1 };
                scale_rows(ctx, he, x, rows, width, r).unwrap()
            });
            let cost = scale_rows_cost(rows, width, ring, &layouts()).unwrap();
            assert_eq!(cost.over_rlwe(), rlwe, "{rows} {width}");
            assert_cost(&stats, cost.cost);
            for ((i, x), y) in x.iter().enumerate().zip(&y) {
                let want = x.wrapping_mul(r[i / width]);
                assert!(off(ring, *y, want) <= 2, "{rows} {width} {bits}");
            }
        }
    }

    #[test]
    fn shapes_are_checked() {
        let ring = Ring::new(33);
        let (y, _) = run_over_rlwe(&share(ring, &[1, 2, 3, 4], 1), |ctx, he, x| {
            assert!(row_squares(ctx, he, x, 2, 3).is_err());
            assert!(scale_rows(ctx, he, x, 2, 2, x).is_err());
            let r = Share::zero(Ring::new(32), 2);
            assert!(scale_rows(ctx, he, x, 2, 2, &r).is_err());
            x.clone()
        });
        assert_eq!(y, [1, 2, 3, 4]);
    }
}
