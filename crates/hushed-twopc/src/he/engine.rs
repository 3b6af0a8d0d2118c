//! The steps of one oblivious linear transformation (BumbleBee, NDSS 2025, Algorithm 1), each run by one party.
//!
//! The owner of the encrypted operand sends one frame per ciphertext ([`send_inputs`]) and later opens one frame per
//! response ([`collect`]). The other party receives and expands the ciphertexts ([`receive_inputs`]), forms the leaves,
//! interleaves them, and answers with fresh masks ([`respond`]); responses leave as they are ready. The owner is the
//! client, always: [`super::context`] says why.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod tree;

use super::context::HeContext;
use super::encode::{View, Wanted, encode_left};
use super::error::HeError;
use super::layout::Layout;
use super::layout::answer::{Answer, Part, Term};
use super::product::{Arriving, Inputs, Leaf, Multiplier};
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

/// Receives the other party's ciphertexts, term by term, and multiplies them by the inverse of the largest interleaving
/// tree if [`Layout::scales_inputs`].
pub(crate) fn receive_inputs(
    session: &mut Session,
    he: &HeContext,
    answer: &Answer,
) -> Result<Vec<Inputs>, TwopcError> {
    let mut all = Vec::with_capacity(answer.terms().len());
    for term in answer.terms() {
        all.push(term_inputs(he, answer, term, |length| Ok(session.recv(INPUT, length)?))?);
    }
    Ok(all)
}

/// [`receive_inputs`], but multiplies the ciphertexts as they arrive where that takes less memory.
pub(crate) fn receive_products(
    session: &mut Session,
    he: &HeContext,
    answer: &Answer,
    multipliers: &[impl Multiplier],
) -> Result<Vec<Inputs>, TwopcError> {
    let mut all = Vec::with_capacity(answer.terms().len());
    for (term, multiplier) in answer.terms().iter().zip(multipliers) {
        let mut frame = |length| -> Result<_, TwopcError> { Ok(session.recv(INPUT, length)?) };
        all.push(match Arriving::new(he.params(), &term.layout, multiplier) {
            Some(mut arriving) => {
                each_input(he, answer, term, &mut frame, |ct| arriving.push(ct))?;
                Inputs::Leaves(arriving.into_leaves())
            }
            None => term_inputs(he, answer, term, frame)?,
        });
    }
    Ok(all)
}

/// The ciphertexts of a term, whose bytes `frame` returns one after the other, each of the length that it is told.
pub(crate) fn term_inputs(
    he: &HeContext,
    answer: &Answer,
    term: &Term,
    frame: impl FnMut(Expect) -> Result<Vec<u8>, TwopcError>,
) -> Result<Inputs, TwopcError> {
    let mut inputs = Inputs::new(he.params(), &term.layout);
    each_input(he, answer, term, frame, |ct| inputs.push(ct))?;
    Ok(inputs)
}

fn each_input(
    he: &HeContext,
    answer: &Answer,
    term: &Term,
    mut frame: impl FnMut(Expect) -> Result<Vec<u8>, TwopcError>,
    mut push: impl FnMut(Ciphertext),
) -> Result<(), TwopcError> {
    let layout = &term.layout;
    let levels = answer.largest_tree().ilog2();
    let inverse = layout.scales_inputs().then(|| inverse_of_two_to(he.params(), layout.product_limbs, levels));
    for _ in 0..layout.tiling.inputs() {
        let bytes = frame(Expect::Exactly(layout.input.bytes()))?;
        let mut ct = layout.input.read(&bytes)?.expand();
        if let Some(inverse) = &inverse {
            scale(&mut ct, inverse);
        }
        push(ct);
    }
    Ok(())
}

/// Multiplies, interleaves, masks and sends. Takes the ciphertexts and the multiplier of each term, and returns this
/// party's share of the sum of the products, batch×k×n of the caller's shape, modulo 2^ℓ.
pub(crate) fn respond(
    ctx: &mut Ctx,
    he: &HeContext,
    answer: &Answer,
    inputs: &[Inputs],
    multipliers: &[impl Multiplier],
) -> Result<Vec<u64>, TwopcError> {
    let mut share = SecretWords::from(vec![0u64; answer.results()]);
    let tree = Tree { he, answer };
    let terms = answer.terms().iter().zip(inputs).zip(multipliers);
    let term = |((term, inputs), by)| Made { term, inputs, by, next: 0, leaves: VecDeque::new() };
    let mut made: Vec<_> = terms.map(term).collect();
    for index in 0..answer.responses() {
        let mut parts = Vec::new();
        for part in answer.parts(index) {
            let leaves = made.get_mut(part.term).map(|made| made.take(he, &part)).unwrap_or_default();
            parts.push((part, leaves));
        }
        let packed = tree.pack(index, parts)?;
        let cells = answer.cells(index);
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let format = answer.format();
        let mut frame = Vec::with_capacity(format.bytes(used.len()));
        let own = format.answer_parts(packed, &he.published()?.public, &used, &mut ctx.rng, &mut frame)?;
        let own = Zeroizing::new(own);
        ctx.session.send_vec(RESPONSE, frame)?;
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

/// The leaves of a term, made for several responses at once where that saves work.
struct Made<'a, M> {
    term: &'a Term,
    inputs: &'a Inputs,
    by: &'a M,
    /// The first leaf that is not made yet.
    next: usize,
    leaves: VecDeque<Leaf>,
}

impl<M: Multiplier> Made<'_, M> {
    /// The leaves of `part`, which follow those taken before.
    fn take(&mut self, he: &HeContext, part: &Part) -> Vec<Leaf> {
        let (layout, count) = (&self.term.layout, part.leaves.len());
        if self.leaves.len() < count {
            let more = self.inputs.leaves_together(count).max(count - self.leaves.len());
            let range = self.next..layout.tiling.leaves().min(self.next + more);
            self.next = range.end;
            let made = self.inputs.leaves(he.params(), &layout.tiling, layout.product_limbs, self.by, range);
            self.leaves.extend(made);
        }
        self.leaves.drain(..count.min(self.leaves.len())).collect()
    }
}

/// Opens the responses and returns this party's share of the products, as [`respond`] does.
pub(crate) fn collect(session: &mut Session, he: &HeContext, answer: &Answer) -> Result<Vec<u64>, TwopcError> {
    let mut share = SecretWords::from(vec![0u64; answer.results()]);
    let format = answer.format();
    for index in 0..answer.responses() {
        let cells = answer.cells(index);
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let bytes = session.recv(RESPONSE, Expect::Exactly(format.bytes(used.len())))?;
        let own = Zeroizing::new(format.open(&bytes, he.secret()?, &used)?);
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

#[expect(clippy::indexing_slicing, reason = "cells are the tiling's")]
fn scatter(share: &mut [u64], cells: &[Wanted], values: &[u64]) {
    for (w, &value) in cells.iter().zip(values) {
        share[w.cell] = share[w.cell].wrapping_add(value);
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
