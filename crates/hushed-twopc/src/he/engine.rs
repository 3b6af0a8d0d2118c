//! The steps of one oblivious linear transformation (BumbleBee, NDSS 2025, Algorithm 1), each run by one party.
//!
//! The owner of the encrypted operand sends one frame a ciphertext ([`send_inputs`]) and later opens one frame a
//! response ([`collect`]). The other party receives and expands the ciphertexts ([`receive_inputs`]), forms the leaves,
//! interleaves them, and answers with fresh masks ([`respond`]); responses leave as they are ready. Two transformations
//! in opposite directions run at the same time by calling the steps alternately.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use super::context::HeContext;
use super::encode::{View, Wanted, encode_left, wanted};
use super::error::HeError;
use super::interleave::{Combine, interleave, slot};
use super::layout::{Layout, input_bytes};
use super::product::Inputs;
use super::product::{Leaf, Multiplier};
use super::window::{Encrypted, Packing};
use crate::error::TwopcError;
use crate::share::SecretWords;
use hushed_math::rng::SecretRng;
use hushed_math::{Coeff, Eval, RnsPoly};
use hushed_net::{Expect, Kind, Session};
use hushed_rlwe::{
    Ciphertext, Positions, RlweError, RlweParams, SeededCiphertext, add_automorphism_of,
    modulus_switch,
};
use rayon::prelude::*;
use std::collections::VecDeque;
use zeroize::Zeroizing;

pub(crate) const INPUT: Kind = Kind(0x0401);
pub(crate) const RESPONSE: Kind = Kind(0x0402);

/// Encrypts and sends `words`, this party's matrices (batch×k×m or batch×m×n as the caller's shape has them) modulo
/// 2^ℓ.
#[expect(
    clippy::indexing_slicing,
    reason = "this party's own words, as many as the plan says"
)]
pub(crate) fn send_inputs(
    session: &mut Session,
    rng: &mut SecretRng,
    he: &HeContext,
    layout: &Layout,
    words: &[u64],
) -> Result<(), TwopcError> {
    let plan = &layout.plan;
    let inner = plan.inner_shape();
    let size = inner.k * inner.m;
    expect_words(words, plan.batch() * size)?;
    rng.check().map_err(RlweError::from)?;
    let encrypt = |input: usize, mut rng: SecretRng| -> Result<Vec<u8>, TwopcError> {
        let (first, alpha, beta) = plan.input(input);
        let mut coefficients = Zeroizing::new(vec![0; plan.degree()]);
        for p in first..(first + plan.fold()).min(plan.batch()) {
            let words = &words[p * size..(p + 1) * size];
            let view = View::oriented(words, inner.k, inner.m, plan.encrypted());
            encode_left(
                view,
                plan.window(),
                plan.fold_offset(p),
                alpha,
                beta,
                &mut coefficients,
            );
        }
        let message = layout.scale.scale_up(&coefficients)?;
        let ct = he.own().encrypt_seeded(message, &mut rng)?;
        Ok(SeededCiphertext::list_to_bytes(
            he.params(),
            layout.product_limbs,
            &[ct],
        )?)
    };
    let blocks: Vec<usize> = (0..plan.inputs()).collect();
    for chunk in blocks.chunks(rayon::current_num_threads()) {
        let jobs: Vec<_> = chunk
            .iter()
            .map(|&b| (b, rng.fork("input ciphertext")))
            .collect();
        let frames: Vec<_> = jobs
            .into_par_iter()
            .map(|(b, rng)| encrypt(b, rng))
            .collect();
        for frame in frames {
            session.send_vec(INPUT, frame?)?;
        }
    }
    Ok(())
}

/// Receives the ciphertexts of the other party, times the inverse of the largest interleaving tree if
/// [`Layout::scales_inputs`].
pub(crate) fn receive_inputs(
    session: &mut Session,
    he: &HeContext,
    layout: &Layout,
) -> Result<Inputs, TwopcError> {
    let plan = &layout.plan;
    let limbs = layout.product_limbs;
    let length = Expect::Exactly(input_bytes(he.params(), limbs));
    let inverse = layout
        .scales_inputs()
        .then(|| inverse_of_two_to(he.params(), limbs, plan.largest_tree().ilog2()));
    let mut inputs = Inputs::new(he.params(), layout);
    for _ in 0..plan.inputs() {
        let bytes = session.recv(INPUT, length)?;
        let list = SeededCiphertext::list_from_bytes(he.params(), limbs, 1, &bytes)?;
        let first = list.into_iter().next();
        let mut ct = first
            .ok_or(TwopcError::PeerMisbehaved {
                what: "list of ciphertexts",
            })?
            .expand();
        if let Some(inverse) = &inverse {
            scale(&mut ct, inverse);
        }
        inputs.push(plan, ct);
    }
    Ok(inputs)
}

/// Multiplies, interleaves, masks and sends; returns this party's share of the products, batch×k×n of the caller's
/// shape, modulo 2^ℓ.
pub(crate) fn respond(
    session: &mut Session,
    rng: &mut SecretRng,
    he: &HeContext,
    layout: &Layout,
    inputs: &Inputs,
    multiplier: &impl Multiplier,
) -> Result<Vec<u64>, TwopcError> {
    let plan = &layout.plan;
    let inner = plan.inner_shape();
    let mut share = SecretWords::from(vec![0u64; plan.batch() * inner.k * inner.n]);
    let tree = Tree::new(he, layout, plan.largest_tree());
    let mut made = VecDeque::new();
    for index in 0..plan.responses() {
        let range = plan.response_leaves(index);
        if made.is_empty() {
            let ahead = inputs.leaves_together(range.len()) / range.len().max(1);
            let last = plan.responses().min(index + ahead.max(1)) - 1;
            let range = range.start..plan.response_leaves(last).end;
            let limbs = layout.product_limbs;
            made.extend(inputs.leaves(he.params(), plan, limbs, multiplier, range));
        }
        let sums = made.drain(..range.len()).collect();
        let cells = wanted(plan, index);
        let packed = tree.pack(index, sums, &cells)?;
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let mut frame = Vec::with_capacity(layout.format.bytes(used.len()));
        let own = layout
            .format
            .answer(&packed, &he.peer().public, &used, rng, &mut frame)?;
        let own = Zeroizing::new(own);
        session.send_vec(RESPONSE, frame)?;
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

/// Opens the responses; returns this party's share of the products, as [`respond`] does.
pub(crate) fn collect(
    session: &mut Session,
    he: &HeContext,
    layout: &Layout,
) -> Result<Vec<u64>, TwopcError> {
    let plan = &layout.plan;
    let inner = plan.inner_shape();
    let mut share = SecretWords::from(vec![0u64; plan.batch() * inner.k * inner.n]);
    for index in 0..plan.responses() {
        let cells = wanted(plan, index);
        let used = Positions::new(he.params(), cells.iter().map(|c| c.position).collect())?;
        let bytes = session.recv(RESPONSE, Expect::Exactly(layout.format.bytes(used.len())))?;
        let own = Zeroizing::new(layout.format.open(&bytes, he.own(), &used)?);
        scatter(&mut share, &cells, &own);
    }
    Ok(share.into_words())
}

/// Interleaving of ciphertexts under the other party's Galois keys.
struct Tree<'a> {
    he: &'a HeContext,
    layout: &'a Layout,
    /// X^h in evaluation form for h = 1, 2, 4, …
    monomials: Vec<RnsPoly<Eval>>,
}

impl<'a> Tree<'a> {
    /// Trees of up to `largest` leaves.
    fn new(he: &'a HeContext, layout: &'a Layout, largest: usize) -> Self {
        let params = he.params();
        let ids = params.ciphertext_ids(layout.packing_limbs);
        let monomials = (0..largest.ilog2())
            .map(|level| {
                let mut monomial = RnsPoly::<Coeff>::zero(params.basis(), &ids);
                for limb in 0..ids.len() {
                    if let Some(c) = monomial.limb_mut(limb).get_mut(1 << level) {
                        *c = 1;
                    }
                }
                monomial.into_eval()
            })
            .collect();
        Self {
            he,
            layout,
            monomials,
        }
    }

    /// A leaf of a tree of `size`, over the packing primes and times the inverse of the size, whose multiple the tree
    /// makes of all that is in it.
    fn lift(&self, leaf: Leaf, size: usize) -> Result<Node, TwopcError> {
        let params = self.he.params();
        let limbs = self.layout.packing_limbs;
        let mut node = match leaf {
            Leaf::Values(ct) => modulus_switch(params, ct, limbs)?.into(),
            Leaf::Coefficients { a, .. } => Node {
                // What is wanted of b goes past the tree.
                b: None,
                a: shorten(a, limbs).into_eval(),
            },
        };
        if self.layout.scales_inputs() {
            // Inputs carry the inverse of the largest tree; a smaller one takes the difference back.
            let excess = (self.layout.plan.largest_tree() / size) as u64;
            if excess > 1 {
                node.scale(&vec![excess; limbs]);
            }
        } else {
            node.scale(&inverse_of_two_to(params, limbs, size.ilog2()));
        }
        Ok(node)
    }

    /// What the tree would make of the wanted coefficients of b: each at its place, without the inverse of the size
    /// that leaves are multiplied by. An automorphism acts on b without a key, so that nothing of b need go through the
    /// tree.
    #[expect(
        clippy::indexing_slicing,
        reason = "cells name leaves of the plan and coefficients of them"
    )]
    fn place(&self, leaves: &[Leaf], cells: &[Wanted]) -> Option<RnsPoly<Eval>> {
        let (params, plan) = (self.he.params(), &self.layout.plan);
        let limbs = self.layout.product_limbs;
        let mut placed = RnsPoly::<Coeff>::zero(params.basis(), &params.ciphertext_ids(limbs));
        let mw = plan.window().mw;
        for limb in 0..limbs {
            let out = placed.limb_mut(limb);
            for cell in cells {
                let Leaf::Coefficients { b, .. } = &leaves[cell.leaf] else {
                    return None;
                };
                out[cell.position] = b[limb][cell.coefficient / mw];
            }
        }
        let mut placed = shorten(placed, self.layout.packing_limbs);
        if self.layout.scales_inputs() {
            let largest = plan.largest_tree() as u64;
            placed.mul_scalar_assign(&vec![largest; self.layout.packing_limbs]);
        }
        Some(placed.into_eval())
    }

    /// The leaves of response `index` as one ciphertext over the packing primes.
    #[expect(clippy::indexing_slicing, reason = "cells name leaves of the plan")]
    fn pack(
        &self,
        index: usize,
        leaves: Vec<Leaf>,
        cells: &[Wanted],
    ) -> Result<Ciphertext, TwopcError> {
        let (params, plan) = (self.he.params(), &self.layout.plan);
        let limbs = self.layout.packing_limbs;
        let size = plan.tree_size(index);
        let placed = self.place(&leaves, cells);
        let lift = |leaf| self.lift(leaf, size);
        let packed = match plan.packing() {
            Packing::InterLeave | Packing::Krdy => interleave(self, leaves, size, &lift)?,
            Packing::PackLwes => {
                let leaves = leaves
                    .into_iter()
                    .map(lift)
                    .collect::<Result<Vec<_>, _>>()?;
                let alone = |w: &Wanted| {
                    let mut leaf = leaves[w.leaf].clone();
                    let parts = leaf.b.iter_mut().chain([&mut leaf.a]);
                    parts.for_each(|part| part.mul_monomial_assign(-(w.coefficient as i64)));
                    Ok(leaf)
                };
                let mut order: Vec<&Wanted> = cells.iter().collect();
                order.sort_unstable_by_key(|w| slot(w.position, size));
                interleave(self, order, size, &alone)?
            }
        };
        let zero = || Ciphertext::zero(params, limbs);
        let mut packed = packed.map_or_else(zero, |node| node.into_ciphertext(params));
        if let Some(placed) = placed {
            packed.b.add_assign(&placed);
        }
        Ok(packed)
    }
}

/// The first `limbs` primes of a polynomial, divided by the others with rounding, one after another from the last.
fn shorten(mut poly: RnsPoly<Coeff>, limbs: usize) -> RnsPoly<Coeff> {
    while poly.ids().len() > limbs {
        poly = poly.divide_by_last_and_round();
    }
    poly
}

/// What the tree is made of: a ciphertext, whose b is zero if it is none.
#[derive(Clone)]
struct Node {
    b: Option<RnsPoly<Eval>>,
    a: RnsPoly<Eval>,
}

impl From<Ciphertext> for Node {
    fn from(ct: Ciphertext) -> Node {
        Node {
            b: Some(ct.b),
            a: ct.a,
        }
    }
}

impl Node {
    fn scale(&mut self, factors: &[u64]) {
        let parts = self.b.iter_mut().chain([&mut self.a]);
        parts.for_each(|part| part.mul_scalar_assign(factors));
    }

    fn into_ciphertext(self, params: &RlweParams) -> Ciphertext {
        let zero = || RnsPoly::zero(params.basis(), self.a.ids());
        Ciphertext {
            b: self.b.unwrap_or_else(zero),
            a: self.a,
        }
    }
}

impl Combine for Tree<'_> {
    type Item = Node;
    type Error = TwopcError;

    fn combine(&self, mut even: Node, odd: Option<Node>, h: usize) -> Result<Node, TwopcError> {
        let element = self.layout.plan.degree() / h + 1;
        let keys = &self.he.peer().galois;
        let difference = match odd {
            None => even.clone(),
            Some(mut odd) => {
                // Nodes of one level have their b or have it not.
                let a = (&mut even.a, &mut odd.a);
                let parts = even.b.as_mut().zip(odd.b.as_mut()).into_iter().chain([a]);
                for (even, odd) in parts {
                    if let Some(monomial) = self.monomials.get(h.ilog2() as usize) {
                        odd.mul_assign(monomial);
                    }
                    even.sum_and_difference(odd);
                }
                odd
            }
        };
        let mut sum = even.into_ciphertext(self.he.params());
        let (b, a) = (difference.b.as_ref(), &difference.a);
        add_automorphism_of(&mut sum, b, a, element, keys)?;
        Ok(sum.into())
    }
}

#[expect(clippy::indexing_slicing, reason = "cells are the plan's")]
fn scatter(share: &mut [u64], cells: &[Wanted], values: &[u64]) {
    for (w, &value) in cells.iter().zip(values) {
        share[w.cell] = value;
    }
}

fn scale(ct: &mut Ciphertext, factors: &[u64]) {
    ct.b.mul_scalar_assign(factors);
    ct.a.mul_scalar_assign(factors);
}

/// 2^−r modulo each of the first `limbs` primes.
fn inverse_of_two_to(params: &RlweParams, limbs: usize, r: u32) -> Vec<u64> {
    (0..limbs)
        .map(|i| {
            let m = params.basis().modulus(i);
            let half = m.value().div_ceil(2);
            m.pow(half, u64::from(r))
        })
        .collect()
}

pub(crate) fn expect_words<T>(words: &[T], expected: usize) -> Result<(), HeError> {
    if words.len() == expected {
        Ok(())
    } else {
        Err(HeError::Operand {
            expected,
            found: words.len(),
        })
    }
}

impl<'a, T: Copy> View<'a, T> {
    /// The rows×columns operand of a plan out of the caller's matrix, which is its transpose if the right one is
    /// encrypted.
    pub(crate) fn oriented(
        words: &'a [T],
        rows: usize,
        columns: usize,
        encrypted: Encrypted,
    ) -> Self {
        match encrypted {
            Encrypted::Left => Self::new(words, rows, columns),
            Encrypted::Right => Self::new(words, columns, rows).transposed(),
        }
    }
}

#[cfg(test)]
mod tests;
