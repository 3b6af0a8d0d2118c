//! The product of two shared matrices, for a batch: `[X]·[Y]` modulo 2^ℓ (BumbleBee, NDSS 2025, §III, "Π_matmul").
//!
//! X_c·Y_c and X_s·Y_s are local. The mixed terms are two oblivious linear transformations in opposite directions, run
//! at the same time: each party encrypts its share of one operand (the cheaper one, the same for both), multiplies the
//! other party's ciphertexts by its share of the other operand, and answers. Two crossing exchanges. The leaves of all
//! products in the batch are interleaved together, so that only the last response may be partly empty. The result is
//! off by at most two units of the ring, one per mixed term.

use super::context::HeContext;
use super::engine::{collect, expect_words, receive_inputs, respond, send_inputs};
use super::layout::{Layout, OltSpec};
use super::olt::Blocks;
use super::window::{Encrypted, OltShape, Packing};
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, SecretWords, Share};
use hushed_math::product;
use std::borrow::Borrow;
use zeroize::Zeroizing;

/// `batch` products of k×m by m×n.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MatmulShape {
    /// Shape of each product.
    pub shape: OltShape,
    /// Number of products.
    pub batch: usize,
}

impl MatmulShape {
    /// One direction of the mixed terms, with `encrypted` travelling.
    pub fn spec(&self, ring: Ring, encrypted: Encrypted) -> OltSpec {
        OltSpec {
            shape: self.shape,
            batch: self.batch,
            ring_bits: ring.bits(),
            // Shares multiply as signed integers, |v| ≤ 2^(ℓ−1).
            multiplier_bits: ring.bits() - 1,
            encrypted,
            packing: Packing::InterLeave,
            window: None,
        }
    }

    /// The layout for both directions that encrypts the cheaper operand, the same for both parties. `layout` gives the
    /// layout of a transformation.
    ///
    /// # Errors
    /// Those of `layout`.
    pub fn cheaper<L: Borrow<Layout>>(
        &self,
        ring: Ring,
        layout: impl Fn(&OltSpec) -> Result<L, TwopcError>,
    ) -> Result<L, TwopcError> {
        let left = layout(&self.spec(ring, Encrypted::Left))?;
        let right = layout(&self.spec(ring, Encrypted::Right))?;
        let nanoseconds = |l: &L| l.borrow().tiling.cost().nanoseconds;
        Ok(if nanoseconds(&right) < nanoseconds(&left) { right } else { left })
    }
}

/// Both parties' part: takes shares of X (batch×k×m) and Y (batch×m×n), and returns the share of X·Y (batch×k×n).
///
/// # Errors
/// [`super::HeError::Operand`] if a share does not fit the shape; else those of the session and of the peer's bytes.
///
/// # Panics
/// If the shares are over different rings.
pub fn matmul_shared(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    y: &Share,
    shape: &MatmulShape,
) -> Result<Share, TwopcError> {
    assert!(x.ring() == y.ring(), "both operands in one ring");
    let ring = x.ring();
    let OltShape { k, m, n } = shape.shape;
    let layout = shape.cheaper(ring, |spec| he.layout(spec))?;
    expect_words(x.words(), shape.batch * k * m)?;
    expect_words(y.words(), shape.batch * m * n)?;
    let (travelling, multiplying) = match layout.tiling.encrypted() {
        Encrypted::Left => (x.words(), y.words()),
        Encrypted::Right => (y.words(), x.words()),
    };
    let source =
        Blocks { values: multiplying, tiling: &layout.tiling, bits: ring.bits() - 1, signed: |w: u64| ring.decode(w) };
    send_inputs(ctx, he, &layout, travelling)?;
    let inputs = receive_inputs(&mut ctx.session, he, &layout)?;
    let mut sum = SecretWords::from(respond(ctx, he, &layout, &inputs, &source)?);
    drop(inputs);
    let operands = x.words().chunks_exact(k * m).zip(y.words().chunks_exact(m * n));
    for ((x, y), sum) in operands.zip(sum.chunks_exact_mut(k * n)) {
        add(sum, &Zeroizing::new(product(x, y, k, m, n)));
    }
    let opened = Zeroizing::new(collect(&mut ctx.session, he, &layout)?);
    add(&mut sum, &opened);
    Ok(Share::new(ring, sum.into_words()))
}

fn add(sum: &mut [u64], terms: &[u64]) {
    for (s, &t) in sum.iter_mut().zip(terms) {
        *s = s.wrapping_add(t);
    }
}
