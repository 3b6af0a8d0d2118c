//! The product of two shared matrices, for a batch: `[X]·[Y]` modulo 2^ℓ (BumbleBee, NDSS 2025, §III, "Π_matmul").
//!
//! X_c·Y_c and X_s·Y_s are local. The mixed terms are two oblivious linear transformations, both with the client's
//! operand encrypted: X_c times Y_s, and X_s times Y_c. In the paper each party encrypts one operand; here the server
//! has no key ([`super::context`]). The client sends all ciphertexts, then opens all responses. The leaves of all
//! products in the batch, and of both terms where they fit ([`Answer`]), are interleaved together, so that only the
//! last response may be partly empty. The result is off by at most two units of the ring, one per mixed term.

pub mod past;

use super::context::HeContext;
use super::engine::{collect, expect_words, receive_inputs, respond, send_inputs};
use super::layout::answer::{Answer, cost};
use super::layout::known::Layouts;
use super::layout::{Layout, OltSpec};
use super::olt::Blocks;
use super::window::{Encrypted, OltShape, Packing};
use super::wire::OltCost;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::{Ring, SecretWords, Share};
use hushed_math::product;
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
            spare_bits: 0,
        }
    }

    /// Both mixed terms.
    pub fn mixed(&self, ring: Ring) -> [OltSpec; 2] {
        [Encrypted::Left, Encrypted::Right].map(|encrypted| self.spec(ring, encrypted))
    }

    /// Traffic and work.
    ///
    /// # Errors
    /// As [`Layouts::of`].
    pub fn cost(&self, ring: Ring, layouts: &Layouts) -> Result<OltCost, TwopcError> {
        Ok(cost(layouts.of_sum(self.mixed(ring))?.iter()))
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
    matmul_by(ctx, he, x, y, (shape, shape.mixed(x.ring())))
}

/// [`matmul_shared`] by given transformations for the mixed terms.
pub(super) fn matmul_by(
    ctx: &mut Ctx,
    he: &HeContext,
    x: &Share,
    y: &Share,
    (shape, mixed): (&MatmulShape, [OltSpec; 2]),
) -> Result<Share, TwopcError> {
    assert!(x.ring() == y.ring(), "both operands in one ring");
    let ring = x.ring();
    let OltShape { k, m, n } = shape.shape;
    let answers = he.layouts().of_sum(mixed)?;
    expect_words(x.words(), shape.batch * k * m)?;
    expect_words(y.words(), shape.batch * m * n)?;
    let mut sum = own_products(x, y, shape);
    let by_operand = |layout: &Layout| match layout.tiling.encrypted() {
        Encrypted::Left => (x.words(), y.words()),
        Encrypted::Right => (y.words(), x.words()),
    };
    if ctx.is_client() {
        for term in answers.iter().flat_map(Answer::terms) {
            send_inputs(ctx, he, &term.layout, by_operand(&term.layout).0)?;
        }
        for answer in answers.iter() {
            add(&mut sum, &Zeroizing::new(collect(&mut ctx.session, he, answer)?));
        }
    } else {
        let received = answers.iter().map(|answer| receive_inputs(&mut ctx.session, he, answer));
        let received = received.collect::<Result<Vec<_>, _>>()?;
        for (answer, inputs) in answers.iter().zip(received) {
            let (bits, signed) = (ring.bits() - 1, |w: u64| ring.decode(w));
            let terms = answer.terms().iter().map(|term| (&term.layout.tiling, by_operand(&term.layout).1));
            let sources: Vec<_> = terms.map(|(tiling, values)| Blocks { values, tiling, bits, signed }).collect();
            add(&mut sum, &Zeroizing::new(respond(ctx, he, answer, &inputs, &sources)?));
        }
    }
    Ok(Share::new(ring, sum.into_words()))
}

/// The products of a party's own shares.
fn own_products(x: &Share, y: &Share, shape: &MatmulShape) -> SecretWords {
    let OltShape { k, m, n } = shape.shape;
    let mut all = SecretWords::from(vec![0; shape.batch * k * n]);
    let operands = x.words().chunks_exact(k * m).zip(y.words().chunks_exact(m * n));
    for ((x, y), all) in operands.zip(all.chunks_exact_mut(k * n)) {
        add(all, &Zeroizing::new(product(x, y, k, m, n)));
    }
    all
}

fn add(sum: &mut [u64], terms: &[u64]) {
    for (s, &t) in sum.iter_mut().zip(terms) {
        *s = s.wrapping_add(t);
    }
}
