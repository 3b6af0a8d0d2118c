//! Products and squares of shared vectors over batched oblivious linear evaluation.

use super::{
    OleContext, Sent, answer_products, expect_words, open_products, primes, receive_encrypted,
    send_encrypted,
};
use hushed_net::Party;
use hushed_twopc::{Cost, Ctx, Ring, Share, TwopcError};
use std::ops::Range;

/// `[x]·[y]` element-wise. Each party encrypts its share of x and multiplies the other's by its share of y, both at the
/// same time: two crossing exchanges ([`product_cost`]). Off by at most two units, one per mixed term.
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
    let own = x
        .words()
        .iter()
        .zip(y.words())
        .map(|(x, y)| x.wrapping_mul(*y));
    sum.add_assign(&Share::new(x.ring(), own.collect()));
    sum.add_assign(&open_products(ctx, ole, x.ring(), x.len())?);
    Ok(sum)
}

/// `[x²]` element-wise at half the cost: 2·x_c·x_s takes one transfer, in which the client encrypts the first half of
/// the blocks and the server the others ([`square_cost`]). Off by at most two units.
///
/// # Errors
/// Errors of the session and of the peer's bytes.
pub fn square(ctx: &mut Ctx, ole: &OleContext, x: &Share) -> Result<Share, TwopcError> {
    let (ring, n) = (x.ring(), x.len());
    let (first, second) = halves(ole, n);
    let (mine, theirs) = match ctx.party() {
        Party::Client => (first.clone(), second),
        Party::Server => (second, first.clone()),
    };
    let (mine_x, theirs_x) = (x.slice(mine.clone()), x.slice(theirs.clone()));
    send_encrypted(ctx, ole, ring, mine_x.words())?;
    let sent = receive_encrypted(ctx, ole, ring, theirs.len())?;
    let answered = answer_products(ctx, ole, &sent, theirs_x.words())?;
    let opened = open_products(ctx, ole, ring, mine.len())?;
    let cross = if mine == first {
        [opened, answered]
    } else {
        [answered, opened]
    };
    let cross = cross.iter().flat_map(|half| half.words());
    let words = x
        .words()
        .iter()
        .zip(cross)
        .map(|(x, c)| x.wrapping_mul(*x).wrapping_add(c << 1));
    Ok(Share::new(ring, words.collect()))
}

/// The elements whose shares the client encrypts for a square, and those of the server.
fn halves(ole: &OleContext, n: usize) -> (Range<usize>, Range<usize>) {
    let middle = (ole.blocks(n).div_ceil(2) * ole.slots()).min(n);
    (0..middle, middle..n)
}

/// The cost of [`product`] for `n` elements.
pub fn product_cost(ole: &OleContext, n: usize, ring: Ring) -> Cost {
    transfer(ole, n, ring) + product_with_sent_cost(ole, n, ring)
}

/// The cost of [`product_with_sent`] for `n` elements.
pub fn product_with_sent_cost(ole: &OleContext, n: usize, ring: Ring) -> Cost {
    let blocks = ole.blocks(n) as u64;
    let bytes = blocks * ole.response_bytes(primes(ring)) as u64;
    Cost {
        frames_client: blocks,
        frames_server: blocks,
        ..Cost::exchange(bytes, bytes)
    }
}

fn transfer(ole: &OleContext, n: usize, ring: Ring) -> Cost {
    let blocks = ole.blocks(n) as u64;
    let bytes = blocks * ole.input_bytes(primes(ring)) as u64;
    Cost {
        frames_client: blocks,
        frames_server: blocks,
        ..Cost::exchange(bytes, bytes)
    }
}

/// The cost of [`square`] for `n` elements.
pub fn square_cost(ole: &OleContext, n: usize, ring: Ring) -> Cost {
    let (first, second) = halves(ole, n);
    let (client, server) = (
        ole.blocks(first.len()) as u64,
        ole.blocks(second.len()) as u64,
    );
    let input = ole.input_bytes(primes(ring)) as u64;
    let response = ole.response_bytes(primes(ring)) as u64;
    let inputs = Cost {
        frames_client: client,
        frames_server: server,
        ..Cost::exchange(client * input, server * input)
    };
    let responses = Cost {
        frames_client: server,
        frames_server: client,
        ..Cost::exchange(server * response, client * response)
    };
    inputs + responses
}
