//! The oblivious linear transformation itself (BumbleBee, NDSS 2025, Algorithm 1): two parties with one private matrix
//! each get shares of the product. Model layers use [`super::linear`] and [`super::matmul`]; here an [`OltSpec`] fixes
//! everything, including the baselines of the paper's tables.

use super::context::HeContext;
use super::encode::{View, encode_right};
use super::engine::{collect, expect_words, receive_inputs, respond, send_inputs};
use super::layout::OltSpec;
use super::layout::answer::Answer;
use super::product::Multiplier;
use super::window::{OltShape, OltTiling};
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, Share};
use std::sync::Arc;

/// The owner of the encrypted operand passes `words`, modulo 2^ℓ, batch×k×m (or batch×m×n if the right one is
/// encrypted), and gets its share of the products, batch×k×n.
///
/// # Errors
/// [`super::HeError::Operand`] if `words` has the wrong length; else those of the session and of the peer's bytes.
pub fn olt_encrypted(ctx: &mut Ctx, he: &HeContext, spec: &OltSpec, words: &[u64]) -> Result<Share, TwopcError> {
    let layout = he.layout(spec)?;
    send_inputs(ctx, he, &layout, words)?;
    let share = collect(&mut ctx.session, he, &Answer::alone(layout))?;
    Ok(Share::new(Ring::new(spec.ring_bits), share))
}

/// The other party passes `values`, at most 2^multiplier_bits in magnitude, and gets its share of the products.
///
/// # Errors
/// As [`olt_encrypted`]; [`super::HeError::Weight`] if a value is above its bound.
pub fn olt_multiplying(ctx: &mut Ctx, he: &HeContext, spec: &OltSpec, values: &[i64]) -> Result<Share, TwopcError> {
    let layout = he.layout(spec)?;
    let OltShape { m, n, .. } = layout.tiling.inner_shape();
    expect_words(values, spec.batch * m * n)?;
    let bits = spec.multiplier_bits;
    if bits > 63 || values.iter().any(|v| v.unsigned_abs() > 1 << bits) {
        return Err(super::HeError::Weight { bits }.into());
    }
    let answer = Answer::alone(Arc::clone(&layout));
    let inputs = receive_inputs(&mut ctx.session, he, &answer)?;
    let source = [Blocks { values, tiling: &layout.tiling, bits, signed: |v: i64| v }];
    let share = respond(ctx, he, &answer, &inputs, &source)?;
    Ok(Share::new(Ring::new(spec.ring_bits), share))
}

/// The matrices of a batch as multiplier.
pub(super) struct Blocks<'a, T, F> {
    pub(super) values: &'a [T],
    pub(super) tiling: &'a OltTiling,
    pub(super) bits: u32,
    /// A value as a signed integer.
    pub(super) signed: F,
}

impl<T: Copy + Sync, F: Fn(T) -> i64 + Sync> Multiplier for Blocks<'_, T, F> {
    fn bits(&self) -> u32 {
        self.bits
    }

    fn block(&self, p: usize, beta: usize, gamma: usize, out: &mut [i64]) {
        let OltShape { m, n, .. } = self.tiling.inner_shape();
        let values = &self.values[p * m * n..(p + 1) * m * n];
        let view = View::oriented(values, m, n, self.tiling.encrypted());
        let (window, offset) = (self.tiling.window(), self.tiling.fold_offset(p));
        encode_right(view, window, offset, beta, gamma, out, &self.signed);
    }
}
