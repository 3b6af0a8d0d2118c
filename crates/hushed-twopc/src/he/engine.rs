//! The steps of one oblivious linear transformation (BumbleBee, NDSS 2025, Algorithm 1), each run by one party.
//!
//! The owner of the encrypted operand sends one frame per ciphertext ([`send_inputs`]) and later opens one frame per
//! response ([`collect`]). The other party receives and expands the ciphertexts ([`receive_inputs`]), forms the leaves,
//! interleaves them, and answers with fresh masks ([`respond`]); responses leave as they are ready. The owner is the
//! client, always: [`super::context`] says why.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod tree;

use super::context::HeContext;
use super::encode::{View, Wanted, encode_left, wanted};
use super::error::HeError;
use super::layout::Layout;
use super::product::{Arriving, Inputs, Multiplier};
use super::window::Encrypted;
use crate::ctx::Ctx;
use crate::error::TwopcError;
use crate::share::SecretWords;
use hushed_math::rng::SecretRng;
use hushed_net::{Expect, Kind, Session};
use hushed_rlwe::{Ciphertext, Positions, RlweError};
use rayon::prelude::*;
use std::collections::VecDeque;
use tree::{Tree, inverse_of_two_to};
use zeroize::Zeroizing;

pub(crate) const INPUT: Kind = Kind(0x0401);
pub(crate) const RESPONSE: Kind = Kind(0x0402);

/// Encrypts and sends `words`: this party's matrices (batch×k×m or batch×m×n, as in the caller's shape) modulo 2^ℓ.
#[expect(clippy::indexing_slicing, reason = "this party's own words, as many as the tiling says")]
pub(crate) fn send_inputs(ctx: &mut Ctx, he: &HeContext, layout: &Layout, words: &[u64]) -> Result<(), TwopcError> {
    let tiling = &layout.tiling;
    let inner = tiling.inner_shape();
    let size = inner.k * inner.m;
    expect_words(words, tiling.batch() * size)?;
    ctx.rng.check().map_err(RlweError::from)?;
    let encrypt = |input: usize, mut rng: SecretRng| -> Result<Vec<u8>, TwopcError> {
        let (first, alpha, beta) = tiling.input(input);
        let mut coefficients = Zeroizing::new(vec![0; tiling.degree()]);
        for p in first..(first + tiling.fold()).min(tiling.batch()) {
            let words = &words[p * size..(p + 1) * size];
            let view = View::oriented(words, inner.k, inner.m, tiling.encrypted());
            encode_left(view, tiling.window(), tiling.fold_offset(p), alpha, beta, &mut coefficients);
        }
        let message = layout.scale.scale_up(&coefficients)?;
        let ct = he.secret()?.encrypt_seeded(message, &mut rng)?;
        Ok(layout.input.write(ct)?)
    };
    let blocks: Vec<usize> = (0..tiling.inputs()).collect();
    for chunk in blocks.chunks(rayon::current_num_threads()) {
        let jobs: Vec<_> = chunk.iter().map(|&b| (b, ctx.rng.fork("input ciphertext"))).collect();
        let frames: Vec<_> = jobs.into_par_iter().map(|(b, rng)| encrypt(b, rng)).collect();
        for frame in frames {
            ctx.session.send_vec(INPUT, frame?)?;
        }
    }
    Ok(())
}

/// Receives the other party's ciphertexts, and multiplies them by the inverse of the largest interleaving tree if
/// [`Layout::scales_inputs`].
pub(crate) fn receive_inputs(session: &mut Session, he: &HeContext, layout: &Layout) -> Result<Inputs, TwopcError> {
    let mut inputs = Inputs::new(he.params(), layout);
    receive_each(session, he, layout, |ct| inputs.push(ct))?;
    Ok(inputs)
}

/// [`receive_inputs`], but multiplies the ciphertexts as they arrive where that takes less memory.
pub(crate) fn receive_products(
    session: &mut Session,
    he: &HeContext,
    layout: &Layout,
    multiplier: &impl Multiplier,
) -> Result<Inputs, TwopcError> {
    let Some(mut arriving) = Arriving::new(he.params(), layout, multiplier) else {
        return receive_inputs(session, he, layout);
    };
    receive_each(session, he, layout, |ct| arriving.push(ct))?;
    Ok(Inputs::Leaves(arriving.into_leaves()))
}

fn receive_each(
    session: &mut Session,
    he: &HeContext,
    layout: &Layout,
    mut push: impl FnMut(Ciphertext),
) -> Result<(), TwopcError> {
    let tiling = &layout.tiling;
    let limbs = layout.product_limbs;
    let length = Expect::Exactly(layout.input.bytes());
    let inverse = layout.scales_inputs().then(|| inverse_of_two_to(he.params(), limbs, tiling.largest_tree().ilog2()));
    for _ in 0..tiling.inputs() {
        let bytes = session.recv(INPUT, length)?;
        let mut ct = layout.input.read(&bytes)?.expand();
        if let Some(inverse) = &inverse {
            scale(&mut ct, inverse);
        }
        push(ct);
    }
    Ok(())
}

/// Multiplies, interleaves, masks and sends. Returns this party's share of the products, batch×k×n of the caller's
/// shape, modulo 2^ℓ.
pub(crate) fn respond(
    ctx: &mut Ctx,
    he: &HeContext,
    layout: &Layout,
    inputs: &Inputs,
    multiplier: &impl Multiplier,
) -> Result<Vec<u64>, TwopcError> {
    let tiling = &layout.tiling;
    let inner = tiling.inner_shape();
    let mut share = SecretWords::from(vec![0u64; tiling.batch() * inner.k * inner.n]);
    let tree = Tree { he, layout };
    let mut made = VecDeque::new();
    for index in 0..tiling.responses() {
        let range = tiling.response_leaves(index);
        if made.is_empty() {
            let ahead = inputs.leaves_together(range.len()) / range.len().max(1);
            let last = tiling.responses().min(index + ahead.max(1)) - 1;
            let range = range.start..tiling.response_leaves(last).end;
            let limbs = layout.product_limbs;
            made.extend(inputs.leaves(he.params(), tiling, limbs, multiplier, range));
        }
        let sums = made.drain(..range.len()).collect();
        let cells = wanted(tiling, index);
        let packed = tree.pack(index, sums, &cells)?;
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let mut frame = Vec::with_capacity(layout.format.bytes(used.len()));
        let own = layout.format.answer_parts(packed, &he.published()?.public, &used, &mut ctx.rng, &mut frame)?;
        let own = Zeroizing::new(own);
        ctx.session.send_vec(RESPONSE, frame)?;
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

/// Opens the responses and returns this party's share of the products, as [`respond`] does.
pub(crate) fn collect(session: &mut Session, he: &HeContext, layout: &Layout) -> Result<Vec<u64>, TwopcError> {
    let tiling = &layout.tiling;
    let inner = tiling.inner_shape();
    let mut share = SecretWords::from(vec![0u64; tiling.batch() * inner.k * inner.n]);
    for index in 0..tiling.responses() {
        let cells = wanted(tiling, index);
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let bytes = session.recv(RESPONSE, Expect::Exactly(layout.format.bytes(used.len())))?;
        let own = Zeroizing::new(layout.format.open(&bytes, he.secret()?, &used)?);
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

#[expect(clippy::indexing_slicing, reason = "cells are the tiling's")]
fn scatter(share: &mut [u64], cells: &[Wanted], values: &[u64]) {
    for (w, &value) in cells.iter().zip(values) {
        share[w.cell] = value;
    }
}

fn scale(ct: &mut Ciphertext, factors: &[u64]) {
    ct.b.mul_scalar_assign(factors);
    ct.a.mul_scalar_assign(factors);
}

pub(crate) fn expect_words<T>(words: &[T], expected: usize) -> Result<(), HeError> {
    if words.len() == expected { Ok(()) } else { Err(HeError::Operand { expected, found: words.len() }) }
}

impl<'a, T: Copy> View<'a, T> {
    /// A tiling's rows×columns operand from the caller's matrix, which is its transpose if the right operand is
    /// encrypted.
    pub(crate) fn oriented(words: &'a [T], rows: usize, columns: usize, encrypted: Encrypted) -> Self {
        match encrypted {
            Encrypted::Left => Self::new(words, rows, columns),
            Encrypted::Right => Self::new(words, columns, rows).transposed(),
        }
    }
}

#[cfg(test)]
mod tests;
