//! Which leaves share a response.
//!
//! Of a product of shared matrices the server makes two transformations, and the client needs their sum alone. If both
//! tilings put a cell at the same place of the same leaf, the server adds the leaves, and one tree serves both. If not,
//! the leaves of one follow those of the other in the same responses, as long as that takes fewer of them. A response
//! then has as many leaves as the smaller mw: a leaf's wanted coefficients are at multiples of its own.

use super::{Layout, packing_limbs};
use crate::he::encode::{Wanted, wanted};
use crate::he::interleave::automorphisms;
use crate::he::price::Answering;
use crate::he::window::{OltShape, OltTiling, Packing, Window};
use crate::he::wire::OltCost;
use hushed_rlwe::{NoiseBound, ResponseFormat, RlweParams};
use std::ops::Range;
use std::sync::Arc;

/// The responses to the ciphertexts of one transformation, or of two whose products are added.
#[derive(Clone)]
pub struct Answer {
    terms: Vec<Arc<Layout>>,
    together: Together,
    format: ResponseFormat,
}

/// How the leaves of two terms share responses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Together {
    /// Leaf by leaf, in one sum.
    Added,
    /// One after the other.
    InTurn,
}

/// Consecutive leaves of one term in a response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    /// The term.
    pub(crate) term: usize,
    /// Its leaves.
    pub(crate) leaves: Range<usize>,
    /// The place of the first of them among the leaves of the response.
    pub(crate) first: usize,
}

impl Answer {
    /// The responses to one transformation.
    pub fn alone(layout: Arc<Layout>) -> Self {
        let format = layout.format.clone();
        Self { terms: vec![layout], together: Together::InTurn, format }
    }

    /// The responses to two transformations with results of the same shape, which are added: in common ones if these
    /// are cheaper. `spared` are the same transformations with room for each other's noise.
    pub(super) fn of_sum(params: &Arc<RlweParams>, terms: [Arc<Layout>; 2], spared: [Arc<Layout>; 2]) -> Vec<Self> {
        let together = [&terms, &spared].map(|terms| Self::together(params, terms.clone()));
        let alone = terms.map(Self::alone).into();
        let all = together.into_iter().flatten().map(|answer| vec![answer]).chain([alone]);
        all.min_by_key(|answers| cost(answers).nanoseconds).unwrap_or_default()
    }

    /// `None` if the terms cannot share responses.
    fn together(params: &Arc<RlweParams>, terms: [Arc<Layout>; 2]) -> Option<Self> {
        let [first, second] = &terms;
        let limbs = first.packing_limbs;
        let [one, other] = terms.each_ref().map(|layout| &layout.tiling);
        let interleaved = [one, other].iter().all(|tiling| tiling.packing() == Packing::InterLeave);
        if !interleaved || limbs != second.packing_limbs || first.format.ell() != second.format.ell() {
            return None;
        }
        let (together, noise) = match same_leaves(one, other) {
            true => (Together::Added, first.noise.add(&second.noise)),
            false => (Together::InTurn, largest([first.noise, second.noise])),
        };
        let format = first.format.clone();
        let mut answer = Self { terms: terms.into(), together, format };
        let levels = answer.largest_tree().ilog2();
        let noise = noise.interleave(params, packing_limbs(params), limbs, levels).bits();
        answer.format = ResponseFormat::for_ring_at(params, limbs, answer.format.ell(), noise).ok()?;
        Some(answer)
    }

    /// The layouts of the transformations.
    pub fn terms(&self) -> &[Arc<Layout>] {
        &self.terms
    }

    /// The format of a response.
    pub fn format(&self) -> &ResponseFormat {
        &self.format
    }

    /// Number of responses.
    pub fn responses(&self) -> usize {
        self.leaves().div_ceil(self.leaves_per_response())
    }

    /// Number of results, batch×k×n.
    pub fn results(&self) -> usize {
        self.terms.first().map_or(0, |layout| {
            let OltShape { k, n, .. } = layout.tiling.inner_shape();
            layout.tiling.batch() * k * n
        })
    }

    /// The sum of the transformations' costs, with these responses.
    pub fn cost(&self) -> OltCost {
        cost(std::slice::from_ref(self))
    }

    fn leaves(&self) -> usize {
        let mut all = self.terms.iter().map(|layout| layout.tiling.leaves());
        match self.together {
            Together::Added => all.next().unwrap_or(0),
            Together::InTurn => all.sum(),
        }
    }

    fn leaves_per_response(&self) -> usize {
        self.terms.iter().map(|layout| layout.tiling.leaves_per_response()).min().unwrap_or(1)
    }

    /// The places of the leaves of response `index` among all.
    fn places(&self, index: usize) -> Range<usize> {
        let each = self.leaves_per_response();
        index * each..self.leaves().min((index + 1) * each)
    }

    /// The leaves of response `index`, by term.
    pub(crate) fn parts(&self, index: usize) -> Vec<Part> {
        let places = self.places(index);
        if self.together == Together::Added {
            let part = |term| Part { term, leaves: places.clone(), first: 0 };
            return (0..self.terms.len()).map(part).collect();
        }
        let (mut parts, mut before) = (Vec::new(), 0);
        for (term, layout) in self.terms.iter().enumerate() {
            let all = before..before + layout.tiling.leaves();
            let (start, end) = (places.start.max(all.start), places.end.min(all.end));
            if start < end {
                parts.push(Part { term, leaves: start - before..end - before, first: start - places.start });
            }
            before = all.end;
        }
        parts
    }

    /// Size of the interleaving tree of response `index`.
    pub(crate) fn tree_size(&self, index: usize) -> usize {
        match &self.terms[..] {
            [layout] => layout.tiling.tree_size(index),
            _ => self.places(index).len().next_power_of_two(),
        }
    }

    /// The largest tree: inputs are scaled by its inverse.
    pub(crate) fn largest_tree(&self) -> usize {
        match &self.terms[..] {
            [layout] => layout.tiling.largest_tree(),
            _ => self.tree_size(0),
        }
    }

    /// The wanted coefficients of response `index` from the leaves of `part`, in ascending position.
    pub(crate) fn wanted(&self, index: usize, part: &Part) -> Vec<Wanted> {
        let tiling = self.terms.get(part.term).map(|layout| &layout.tiling);
        let of = |tiling| wanted(tiling, part.leaves.clone(), part.first, self.tree_size(index));
        tiling.map(of).unwrap_or_default()
    }

    /// All wanted coefficients of response `index`, in ascending position.
    pub(crate) fn cells(&self, index: usize) -> Vec<Wanted> {
        let mut parts = self.parts(index);
        if self.together == Together::Added {
            parts.truncate(1);
        }
        let mut cells: Vec<Wanted> = parts.iter().flat_map(|part| self.wanted(index, part)).collect();
        if parts.len() > 1 {
            cells.sort_unstable_by_key(|cell| cell.position);
        }
        cells
    }

    /// Number of wanted coefficients of response `index`.
    fn wanted_in_response(&self, index: usize) -> usize {
        let mut parts = self.parts(index);
        if self.together == Together::Added {
            parts.truncate(1);
        }
        let of =
            |part: &Part| self.terms.get(part.term).map_or(0, |layout| layout.tiling.wanted_in(part.leaves.clone()));
        parts.iter().map(of).sum()
    }
}

/// The cost of several answers, one after the other.
pub(crate) fn cost(answers: &[Answer]) -> OltCost {
    let one = |answer: &Answer| match &answer.terms[..] {
        [layout] => layout.tiling.cost(),
        terms => {
            let sum = terms.iter().fold(OltCost::default(), |sum, layout| {
                let cost = layout.tiling.cost();
                let own = Answering::of(&cost, layout.packing_limbs as u64).nanoseconds();
                sum + OltCost { nanoseconds: cost.nanoseconds - own, ..cost }
            });
            let limbs = terms.first().map_or(1, |layout| layout.packing_limbs);
            let degree = terms.first().map_or(1, |layout| layout.tiling.degree());
            let all = 0..answer.responses();
            let bytes = |index| answer.format.bytes(answer.wanted_in_response(index)) as u64;
            let answering = Answering {
                responses: all.len() as u64,
                automorphisms: all.clone().map(|index| automorphisms(degree, answer.places(index).len())).sum(),
                bytes_out: all.map(bytes).sum(),
                packing_limbs: limbs as u64,
            };
            OltCost {
                responses: answering.responses,
                opened: (0..answer.responses()).map(|index| answer.wanted_in_response(index) as u64).sum(),
                automorphisms: answering.automorphisms,
                bytes_out: answering.bytes_out,
                nanoseconds: sum.nanoseconds + answering.nanoseconds(),
                ..sum
            }
        }
    };
    answers.iter().map(one).fold(OltCost::default(), |sum, cost| sum + cost)
}

/// A bound on either of two noises.
fn largest([a, b]: [NoiseBound; 2]) -> NoiseBound {
    NoiseBound { bounded: a.bounded.max(b.bounded), variance: a.variance.max(b.variance) }
}

/// Whether both tilings, one with the left operand encrypted and one with the right, have each cell in the same place
/// of the same leaf. Cell (r, c) of a block is coefficient (r·nw + c)·mw of one and (c·kw + r)·mw of the other.
fn same_leaves(one: &OltTiling, other: &OltTiling) -> bool {
    let mirrored = |Window { kw, mw, nw }: Window| Window { kw: nw, mw, nw: kw };
    let ((k, _, n), Window { kw, nw, .. }) = (one.blocks(), one.window());
    let same = one.encrypted() != other.encrypted()
        && one.batch() == other.batch()
        && one.inner_shape() == other.inner_shape().transposed()
        && one.window() == mirrored(other.window());
    same && (kw == 1 || nw == 1) && (k == 1 || n == 1)
}

#[cfg(test)]
mod tests;
