//! Products of shared vectors over batched oblivious linear evaluation.

use super::{OleContext, Sent, answer_products, expect_words, open_products, receive_encrypted, send_encrypted};
use hushed_twopc::{Ctx, Share, TwopcError};

/// `[x]·[y]` element-wise. Each party encrypts its share of x and multiplies the other's by its share of y, both at the
/// same time: two crossing exchanges. Off by at most two units, one per mixed term.
///
/// # Errors
/// [`HeError::Operand`](hushed_twopc::he::HeError::Operand) if the lengths differ; errors of the session and of the
/// peer's bytes.
///
/// # Panics
/// Panics if the shares are over different rings.
pub fn product(ctx: &mut Ctx, ole: &OleContext, x: &Share, y: &Share) -> Result<Share, TwopcError> {
    let sent = exchange_encrypted(ctx, ole, x)?;
    product_with_sent(ctx, ole, x, &sent, y)
}

/// Exchanges the encryptions of both shares of x, for [`product_with_sent`].
///
/// # Errors
/// Errors of the session and of the peer's bytes.
pub fn exchange_encrypted(ctx: &mut Ctx, ole: &OleContext, x: &Share) -> Result<Sent, TwopcError> {
    send_encrypted(ctx, ole, x.ring(), x.words())?;
    receive_encrypted(ctx, ole, x.ring(), x.len())
}

/// `[x]·[y]` after the encryptions of x have been exchanged: one crossing exchange of responses.
///
/// # Errors
/// Those of [`product`].
///
/// # Panics
/// Panics if the shares are over different rings.
pub fn product_with_sent(
    ctx: &mut Ctx,
    ole: &OleContext,
    x: &Share,
    sent: &Sent,
    y: &Share,
) -> Result<Share, TwopcError> {
    assert!(x.ring() == y.ring() && sent.ring == x.ring(), "one ring");
    expect_words(x.words(), sent.len)?;
    let mut sum = answer_products(ctx, ole, sent, y.words())?;
    let own = x.words().iter().zip(y.words()).map(|(x, y)| x.wrapping_mul(*y));
    sum.add_assign(&Share::new(x.ring(), own.collect()));
    sum.add_assign(&open_products(ctx, ole, x.ring(), x.len())?);
    Ok(sum)
}
