//! Means of the rows of a LayerNorm: the only step that it has more than an RMSNorm.

use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::func::format::{Format, narrow, rescale, rescale_cost};
use crate::gadget::Sign;
use crate::link::Link;
use crate::share::{Ring, Share};

/// The ring of a row's sum times 1/d.
const MEAN: Ring = Ring::new(64);
/// Fraction bits of 1/d.
const INVERSE_FRAC: u32 = 28;

/// Row means, in the format of `x`. The sum loses as many low bits as leave 28 fraction bits for 1/d, in a ring of 64
/// bits from which each party drops them alone. Needs a row sum that [`most_mean`](super::most_mean) allows.
pub(super) fn mean(ctx: &mut Ctx, x: &Share, from: Format, width: usize) -> Result<Share, TwopcError> {
    let (before, after) = mean_shifts(from);
    let sum = sums(x, width);
    let sum = rescale(ctx, &sum, before, Sign::Bounded, MEAN)?;
    let factor = (f64::from(before + after).exp2() / width as f64).round() as i64;
    let mean = sum.mul_public(factor);
    rescale(ctx, &mean, after, Sign::Bounded, from.ring)
}

pub(super) fn mean_cost(rows: usize, from: Format) -> Cost {
    let (before, after) = mean_shifts(from);
    rescale_cost(rows, from.ring, before, MEAN) + rescale_cost(rows, MEAN, after, from.ring)
}

fn sums(x: &Share, width: usize) -> Share {
    x.sum_rows(x.len().checked_div(width).unwrap_or(0), width)
}

/// Bits that a row's sum loses before and after the division.
fn mean_shifts(from: Format) -> (u32, u32) {
    let after = MEAN.bits() - from.ring.bits();
    (INVERSE_FRAC.saturating_sub(after), after)
}

/// The mean in the ring of both formats, found beside the truncation of x and not before it, where a message counts. It
/// is off by a unit of the product's format, and so is c by one more, the same in all of a row.
#[derive(Clone, Copy)]
pub(super) struct Apart {
    from: Format,
    /// Bits that a row's sum loses before and after the division.
    before: u32,
    after: u32,
    /// The ring of the result.
    ring: Ring,
}

impl Apart {
    /// For rows of `width`, to `frac` fraction bits in a ring. `None` on a LAN, and where the sum would lose too many
    /// bits.
    pub fn of(link: &Link, width: usize, from: Format, frac: u32, ring: Ring) -> Option<Apart> {
        // Each party drops the last bits alone.
        let all = from.frac + INVERSE_FRAC - frac;
        let before = all.saturating_sub(MEAN.bits() - ring.bits());
        // A unit of the sum is a quarter of one of the mean.
        let fine = from.frac.checked_sub(before)? + width.max(1).ilog2() >= frac + 2;
        (!link.is_lan() && fine).then_some(Apart { from, before, after: all - before, ring })
    }

    pub fn mean(&self, ctx: &mut Ctx, x: &Share, width: usize) -> Result<Share, TwopcError> {
        let sum = sums(x, width);
        let sum = rescale(ctx, &sum, self.before, Sign::Bounded, MEAN)?;
        let factor = (f64::from(INVERSE_FRAC).exp2() / width as f64).round() as i64;
        Ok(narrow(ctx.party(), &sum.mul_public(factor), self.after, self.ring))
    }

    pub fn cost(&self, rows: usize) -> Cost {
        rescale_cost(rows, self.from.ring, self.before, MEAN)
    }
}
