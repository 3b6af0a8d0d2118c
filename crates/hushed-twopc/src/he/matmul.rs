//! The product of two shared matrices, for a batch: `[X]·[Y]` modulo 2^ℓ (BumbleBee, NDSS 2025, §III, "Π_matmul").
//!
//! X_c·Y_c and X_s·Y_s are local. The mixed terms are two oblivious linear transformations, both with the client's
//! operand encrypted: X_c times Y_s, and X_s times Y_c. In the paper each party encrypts one operand; here the server
//! has no key ([`super::context`]). The client sends all ciphertexts, then opens all responses. The leaves of all
//! products in the batch are interleaved together, so that only the last response may be partly empty. The result is
//! off by at most two units of the ring, one per mixed term.

use super::context::HeContext;
use super::engine::{collect, expect_words, receive_inputs, respond, send_inputs};
use super::layout::{Layout, OltSpec};
use super::olt::Blocks;
use super::window::{Encrypted, OltShape, Packing};
use super::wire::OltCost;
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
    /// One of the mixed terms, with `encrypted` travelling.
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

    /// The layouts of both mixed terms. `layout` gives the layout of a transformation.
    ///
    /// # Errors
    /// Those of `layout`.
    pub fn mixed<L>(
        &self,
        ring: Ring,
        layout: impl Fn(&OltSpec) -> Result<L, TwopcError>,
    ) -> Result<[L; 2], TwopcError> {
        let of = |encrypted| layout(&self.spec(ring, encrypted));
        Ok([of(Encrypted::Left)?, of(Encrypted::Right)?])
    }

    /// Traffic and work of both mixed terms.
    ///
    /// # Errors
    /// Those of `layout`.
    pub fn cost<L: Borrow<Layout>>(
        &self,
        ring: Ring,
        layout: impl Fn(&OltSpec) -> Result<L, TwopcError>,
    ) -> Result<OltCost, TwopcError> {
        let [left, right] = self.mixed(ring, layout)?;
        Ok(left.borrow().tiling.cost() + right.borrow().tiling.cost())
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
    let layouts = shape.mixed(ring, |spec| he.layout(spec))?;
    expect_words(x.words(), shape.batch * k * m)?;
    expect_words(y.words(), shape.batch * m * n)?;
    let mut sum = SecretWords::from(vec![0; shape.batch * k * n]);
    let operands = x.words().chunks_exact(k * m).zip(y.words().chunks_exact(m * n));
    for ((x, y), sum) in operands.zip(sum.chunks_exact_mut(k * n)) {
        add(sum, &Zeroizing::new(product(x, y, k, m, n)));
    }
    let by_operand = |layout: &Layout| match layout.tiling.encrypted() {
        Encrypted::Left => (x.words(), y.words()),
        Encrypted::Right => (y.words(), x.words()),
    };
    if ctx.is_client() {
        for layout in &layouts {
            send_inputs(ctx, he, layout, by_operand(layout).0)?;
        }
        for layout in &layouts {
            add(&mut sum, &Zeroizing::new(collect(&mut ctx.session, he, layout)?));
        }
    } else {
        let [left, right] = &layouts;
        let inputs = [receive_inputs(&mut ctx.session, he, left)?, receive_inputs(&mut ctx.session, he, right)?];
        for (layout, inputs) in [left, right].into_iter().zip(inputs) {
            let (tiling, bits, values) = (&layout.tiling, ring.bits() - 1, by_operand(layout).1);
            let source = Blocks { values, tiling, bits, signed: |w: u64| ring.decode(w) };
            add(&mut sum, &Zeroizing::new(respond(ctx, he, layout, &inputs, &source)?));
        }
    }
    Ok(Share::new(ring, sum.into_words()))
}

fn add(sum: &mut [u64], terms: &[u64]) {
    for (s, &t) in sum.iter_mut().zip(terms) {
        *s = s.wrapping_add(t);
    }
}
