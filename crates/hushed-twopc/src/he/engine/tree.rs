//! From leaves to a response: interleaves ciphertexts under the other party's Galois keys.

use crate::error::TwopcError;
use crate::he::context::HeContext;
use crate::he::encode::Wanted;
use crate::he::interleave::{Combine, interleave, slot};
use crate::he::layout::answer::{Answer, Part, Term};
use crate::he::product::Leaf;
use crate::he::window::Packing;
use hushed_math::{Coeff, RnsPoly};
use hushed_rlwe::{Interleaving, RlweParams};

/// The trees of the responses of an answer.
pub(super) struct Tree<'a> {
    pub(super) he: &'a HeContext,
    pub(super) answer: &'a Answer,
}

impl Tree<'_> {
    /// Packs the leaves of response `index` into one ciphertext over the packing primes: b and a. Leaves of two terms
    /// at the same place are added.
    #[expect(
        clippy::indexing_slicing,
        reason = "parts name terms and places of the answer, cells leaves of the tiling"
    )]
    pub(super) fn pack(&self, index: usize, parts: Vec<(Part, Vec<Leaf>)>) -> Result<[RnsPoly<Coeff>; 2], TwopcError> {
        let params = self.he.params();
        let (size, first) = (self.answer.tree_size(index), &self.answer.terms()[0].layout);
        let limbs = first.packing_limbs;
        let tree = Interleaving::new(&self.he.published()?.galois, size, limbs)?;
        let zero = || RnsPoly::zero(params.basis(), &params.ciphertext_ids(limbs));
        let mut b = zero();
        let mut places: Vec<Vec<(&Term, RnsPoly<Coeff>)>> = Vec::new();
        for (part, leaves) in parts {
            let term = &self.answer.terms()[part.term];
            b.add_assign(&self.place(term, &leaves, &self.answer.wanted(index, &part)));
            places.resize_with(places.len().max(part.first + leaves.len()), Vec::new);
            for (place, leaf) in places[part.first..].iter_mut().zip(leaves) {
                place.push((term, leaf.a));
            }
        }
        let lift = |leaves: Vec<(&Term, RnsPoly<Coeff>)>| {
            let lifted = leaves.into_iter().map(|(term, a)| self.lift(term, a, size));
            let sum = lifted.reduce(|mut sum, a| {
                sum.add_assign(&a);
                sum
            });
            Ok(sum.unwrap_or_else(zero))
        };
        let packed = match first.tiling.packing() {
            Packing::InterLeave | Packing::Krdy => interleave(&tree, places, size, &lift)?,
            Packing::PackLwes => {
                let leaves = places.into_iter().map(lift).collect::<Result<Vec<_>, TwopcError>>()?;
                let alone = |w: &Wanted| Ok(leaves[w.leaf].mul_monomial(-(w.coefficient as i64)));
                let cells = self.answer.cells(index);
                let mut order: Vec<&Wanted> = cells.iter().collect();
                order.sort_unstable_by_key(|w| slot(w.position, size));
                interleave(&tree, order, size, &alone)?
            }
        };
        b.add_assign(&tree.into_b());
        Ok([b, packed.unwrap_or_else(zero)])
    }

    /// The a part of a leaf in a tree of `size`, over the packing primes and times the inverse of the size, by which
    /// the tree multiplies everything.
    pub(super) fn lift(&self, term: &Term, a: RnsPoly<Coeff>, size: usize) -> RnsPoly<Coeff> {
        let (params, limbs) = (self.he.params(), term.layout.packing_limbs);
        let scale = if term.layout.scales_inputs() {
            // Inputs carry the inverse of the largest tree's size; a smaller tree takes the difference back.
            vec![(self.answer.largest_tree() / size) as u64; limbs]
        } else {
            inverse_of_two_to(params, limbs, size.ilog2())
        };
        if a.ids().len() > limbs {
            return shorten(a, limbs, &scale);
        }
        let mut a = a;
        if scale.iter().any(|&s| s != 1) {
            a.mul_scalar_assign(&scale);
        }
        a
    }

    /// Puts the wanted coefficients of b where the tree would: each at its position, without the inverse of the size by
    /// which leaves are multiplied.
    #[expect(clippy::indexing_slicing, reason = "cells name leaves of the tiling and coefficients of them")]
    pub(super) fn place(&self, term: &Term, leaves: &[Leaf], cells: &[Wanted]) -> RnsPoly<Coeff> {
        let (params, layout) = (self.he.params(), &term.layout);
        let limbs = layout.product_limbs;
        let mut placed = RnsPoly::<Coeff>::zero(params.basis(), &params.ciphertext_ids(limbs));
        // A power of two.
        let log_mw = layout.tiling.window().mw.ilog2();
        for limb in 0..limbs {
            let out = placed.limb_mut(limb);
            for cell in cells {
                out[cell.position] = leaves[cell.leaf].b[limb][cell.coefficient >> log_mw];
            }
        }
        if layout.scales_inputs() {
            placed.mul_scalar_assign(&vec![self.answer.largest_tree() as u64; limbs]);
            return placed;
        }
        let limbs = layout.packing_limbs;
        shorten(placed, limbs, &vec![1; limbs])
    }
}

impl Combine for Interleaving<'_> {
    type Item = RnsPoly<Coeff>;
    type Error = TwopcError;

    fn children(&self, h: usize) -> usize {
        self.children(h)
    }

    fn combine(&self, children: Vec<RnsPoly<Coeff>>, h: usize, slot: usize) -> Result<RnsPoly<Coeff>, TwopcError> {
        Ok(self.combine(&children, h, slot)?)
    }
}

/// Reduces a polynomial to its first `limbs` primes by dividing by the others with rounding, one at a time from the
/// last, and multiplies it by `scale` modulo each.
fn shorten(mut poly: RnsPoly<Coeff>, limbs: usize, scale: &[u64]) -> RnsPoly<Coeff> {
    while poly.ids().len() > limbs + 1 {
        let ones = vec![1; poly.ids().len() - 1];
        poly = poly.divide_by_last_scaled(&ones);
    }
    poly.divide_by_last_scaled(scale)
}

/// 2^−r modulo each of the first `limbs` primes.
pub(super) fn inverse_of_two_to(params: &RlweParams, limbs: usize, r: u32) -> Vec<u64> {
    (0..limbs)
        .map(|i| {
            let m = params.basis().modulus(i);
            let half = m.value().div_ceil(2);
            m.pow(half, u64::from(r))
        })
        .collect()
}
