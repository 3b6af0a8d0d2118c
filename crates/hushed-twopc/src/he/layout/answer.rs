//! Which leaves share a response.
//!
//! Of a product of shared matrices the server makes two transformations, and the client needs their sum alone. If both
//! tilings put a cell at the same place of the same leaf, the server adds the leaves, and one tree serves both. If not,
//! the leaves of one follow those of the other in the same responses, as long as that takes fewer of them. A response
//! then has as many leaves as the smallest mw: a leaf's wanted coefficients are at multiples of its own.
//!
//! In the same way the rows of a product with weights may be those of two transformations: mw is a power of two, so for
//! 17 rows one would leave half of each ciphertext empty that 16 rows fill.

use super::{Layout, packing_limbs};
use crate::he::encode::{Wanted, wanted};
use crate::he::interleave::automorphisms;
use crate::he::price::{Answering, PRICES};
use crate::he::window::{OltShape, OltTiling, Packing, Window};
use crate::he::wire::OltCost;
use crate::link::Link;
use hushed_rlwe::{NoiseBound, ResponseFormat, RlweParams};
use std::ops::Range;
use std::sync::Arc;

/// The responses to the ciphertexts of one or more transformations, whose results are added where they are for the same
/// cells.
#[derive(Clone)]
pub struct Answer {
    terms: Vec<Term>,
    /// Number of results.
    results: usize,
    format: ResponseFormat,
}

/// A transformation.
#[derive(Clone)]
pub struct Term {
    pub(crate) layout: Arc<Layout>,
    pub(crate) cells: Cells,
    /// Whether the client sends its ciphertexts, or the server has them from earlier products.
    pub(crate) sent: bool,
    /// The place of its first leaf among all.
    first: usize,
    /// Whether its leaves are added to those of an earlier term.
    added: bool,
}

/// Which of all results those of a term are: its rows of `width` results are part of rows of `of`, from `start` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cells {
    pub(crate) width: usize,
    pub(crate) of: usize,
    pub(crate) start: usize,
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

impl Cells {
    /// All results of a term, from `start` on.
    pub(crate) fn from(start: usize, layout: &Layout) -> Self {
        let all = results(&layout.tiling).max(1);
        Self { width: all, of: all, start }
    }

    fn of(&self, cell: usize) -> usize {
        cell / self.width * self.of + self.start + cell % self.width
    }
}

impl Term {
    pub(crate) fn new(layout: Arc<Layout>, cells: Cells, sent: bool) -> Self {
        Self { layout, cells, sent, first: 0, added: false }
    }

    /// The tiling, moduli and formats.
    pub fn layout(&self) -> &Arc<Layout> {
        &self.layout
    }

    /// The cost of the transformation but for its responses.
    fn cost_of_products(&self) -> OltCost {
        let cost = self.layout.tiling.cost();
        let answering = Answering::of(&cost, self.layout.packing_limbs as u64).nanoseconds();
        let mut cost = OltCost { nanoseconds: cost.nanoseconds.saturating_sub(answering), ..cost };
        if !self.sent {
            cost.nanoseconds = cost.nanoseconds.saturating_sub(cost.bytes_in.saturating_mul(PRICES.byte_ns));
            (cost.inputs, cost.bytes_in) = (0, 0);
        }
        cost
    }
}

impl Answer {
    /// The responses to one transformation.
    pub fn alone(layout: Arc<Layout>) -> Self {
        let (format, results) = (layout.format.clone(), results(&layout.tiling));
        let cells = Cells::from(0, &layout);
        Self { terms: vec![Term::new(layout, cells, true)], results, format }
    }

    /// The responses to two transformations with results of the same shape, which are added: in common ones if these
    /// are cheaper. `spared` are the same transformations with room for each other's noise.
    pub(super) fn of_sum(
        params: &Arc<RlweParams>,
        link: &Link,
        terms: [Arc<Layout>; 2],
        spared: [Arc<Layout>; 2],
    ) -> Vec<Self> {
        let all = |layout: &Arc<Layout>| Term::new(Arc::clone(layout), Cells::from(0, layout), true);
        let together = [&terms, &spared].map(|terms| Self::together(params, terms.iter().map(all).collect()));
        let alone = terms.map(Self::alone).into();
        let all = together.into_iter().flatten().map(|answer| vec![answer]).chain([alone]);
        all.min_by_key(|answers| cost(answers).nanoseconds_over(link)).unwrap_or_default()
    }

    /// The responses to one transformation of all rows, or to two of which the first takes the first rows, whichever is
    /// cheaper. `spared` are the same two with room for each other's noise.
    pub(super) fn of_rows(
        (params, link): (&Arc<RlweParams>, &Link),
        all: Arc<Layout>,
        terms: [Arc<Layout>; 2],
        spared: [Arc<Layout>; 2],
    ) -> Self {
        let two = |[first, rest]: [Arc<Layout>; 2]| {
            let below = Cells::from(results(&first.tiling), &rest);
            let above = Cells::from(0, &first);
            Self::together(params, vec![Term::new(first, above, true), Term::new(rest, below, true)])
        };
        let alone = Self::alone(all);
        let time = |answer: &Self| answer.cost().nanoseconds_over(link);
        let cheapest = [terms, spared].into_iter().filter_map(two).min_by_key(time);
        match cheapest.filter(|answer| time(answer) < time(&alone)) {
            Some(answer) => answer,
            None => alone,
        }
    }

    /// Common responses; `None` if there can be none.
    pub(crate) fn together(params: &Arc<RlweParams>, terms: Vec<Term>) -> Option<Self> {
        let first = terms.first()?;
        let (limbs, format) = (first.layout.packing_limbs, first.layout.format.clone());
        let alike = |term: &Term| {
            let Layout { tiling, packing_limbs, format: own, .. } = &*term.layout;
            tiling.packing() == Packing::InterLeave && *packing_limbs == limbs && own.ell() == format.ell()
        };
        if !terms.iter().all(alike) {
            return None;
        }
        let last = |term: &Term| term.cells.of(results(&term.layout.tiling) - 1) + 1;
        let mut answer = Self { terms: Vec::new(), results: terms.iter().map(last).max()?, format };
        // The first leaf of each group that is added, with its noise.
        let mut groups: Vec<(usize, NoiseBound)> = Vec::new();
        for term in terms {
            let (tiling, noise) = (&term.layout.tiling, term.layout.noise);
            let same = |other: &&Term| other.cells == term.cells && same_leaves(&other.layout.tiling, tiling);
            let earlier = answer.terms.iter().find(same).map(|other| other.first);
            let first = earlier.unwrap_or(answer.leaves());
            match groups.iter_mut().find(|(at, _)| *at == first) {
                Some((_, sum)) => *sum = sum.add(&noise),
                None => groups.push((first, noise)),
            }
            answer.terms.push(Term { first, added: earlier.is_some(), ..term });
        }
        let noise = groups.into_iter().map(|(_, noise)| noise).reduce(largest)?;
        let levels = answer.largest_tree().ilog2();
        let noise = noise.interleave(params, packing_limbs(params), limbs, levels).bits();
        answer.format = ResponseFormat::for_ring_at(params, limbs, answer.format.ell(), noise).ok()?;
        Some(answer)
    }

    /// The transformations.
    pub fn terms(&self) -> &[Term] {
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

    /// Number of results.
    pub fn results(&self) -> usize {
        self.results
    }

    /// The sum of the transformations' costs, with these responses.
    pub fn cost(&self) -> OltCost {
        let sum = self.terms.iter().map(Term::cost_of_products).fold(OltCost::default(), |sum, cost| sum + cost);
        let (own, limbs, degree) = match &self.terms[..] {
            [] => return sum,
            // Whatever the packing.
            [term] => (Some(term.layout.tiling.cost().automorphisms), term.layout.packing_limbs, 1),
            [term, ..] => (None, term.layout.packing_limbs, term.layout.tiling.degree()),
        };
        let all = 0..self.responses();
        let wanted = |index: usize| self.wanted_in_response(index);
        let answering = Answering {
            responses: all.len() as u64,
            automorphisms: own
                .unwrap_or_else(|| all.clone().map(|index| automorphisms(degree, self.places(index).len())).sum()),
            bytes_out: all.clone().map(|index| self.format.bytes(wanted(index)) as u64).sum(),
            packing_limbs: limbs as u64,
        };
        OltCost {
            responses: answering.responses,
            opened: all.map(|index| wanted(index) as u64).sum(),
            automorphisms: answering.automorphisms,
            bytes_out: answering.bytes_out,
            nanoseconds: sum.nanoseconds + answering.nanoseconds(),
            ..sum
        }
    }

    fn leaves(&self) -> usize {
        self.terms.iter().map(|term| term.first + term.layout.tiling.leaves()).max().unwrap_or(0)
    }

    fn leaves_per_response(&self) -> usize {
        self.terms.iter().map(|term| term.layout.tiling.leaves_per_response()).min().unwrap_or(1)
    }

    /// The places of the leaves of response `index` among all.
    fn places(&self, index: usize) -> Range<usize> {
        let each = self.leaves_per_response();
        index * each..self.leaves().min((index + 1) * each)
    }

    /// The leaves of response `index`, by term.
    pub(crate) fn parts(&self, index: usize) -> Vec<Part> {
        let places = self.places(index);
        let part = |(number, term): (usize, &Term)| {
            let all = term.first..term.first + term.layout.tiling.leaves();
            let (start, end) = (places.start.max(all.start), places.end.min(all.end));
            let leaves = || start - all.start..end - all.start;
            (start < end).then(|| Part { term: number, leaves: leaves(), first: start - places.start })
        };
        self.terms.iter().enumerate().filter_map(part).collect()
    }

    /// The parts of response `index` whose cells are opened: all but those that are added to others.
    fn opened_parts(&self, index: usize) -> Vec<Part> {
        let mut parts = self.parts(index);
        parts.retain(|part| self.terms.get(part.term).is_some_and(|term| !term.added));
        parts
    }

    /// Size of the interleaving tree of response `index`.
    pub(crate) fn tree_size(&self, index: usize) -> usize {
        match &self.terms[..] {
            [term] => term.layout.tiling.tree_size(index),
            _ => self.places(index).len().next_power_of_two(),
        }
    }

    /// The largest tree: ciphertexts are multiplied by its inverse.
    pub(crate) fn largest_tree(&self) -> usize {
        match &self.terms[..] {
            [term] => term.layout.tiling.largest_tree(),
            _ => self.tree_size(0),
        }
    }

    /// The wanted coefficients of response `index` from the leaves of `part`, in ascending position.
    pub(crate) fn wanted(&self, index: usize, part: &Part) -> Vec<Wanted> {
        let Some(term) = self.terms.get(part.term) else {
            return Vec::new();
        };
        let mut cells = wanted(&term.layout.tiling, part.leaves.clone(), part.first, self.tree_size(index));
        cells.iter_mut().for_each(|cell| cell.cell = term.cells.of(cell.cell));
        cells
    }

    /// All wanted coefficients of response `index`, in ascending position.
    pub(crate) fn cells(&self, index: usize) -> Vec<Wanted> {
        let parts = self.opened_parts(index);
        let mut cells: Vec<Wanted> = parts.iter().flat_map(|part| self.wanted(index, part)).collect();
        if parts.len() > 1 {
            cells.sort_unstable_by_key(|cell| cell.position);
        }
        cells
    }

    /// Number of wanted coefficients of response `index`.
    fn wanted_in_response(&self, index: usize) -> usize {
        let of = |part: Part| self.terms.get(part.term).map_or(0, |term| term.layout.tiling.wanted_in(part.leaves));
        self.opened_parts(index).into_iter().map(of).sum()
    }
}

/// The cost of several answers, one after the other.
pub(crate) fn cost<'a>(answers: impl IntoIterator<Item = &'a Answer>) -> OltCost {
    answers.into_iter().map(Answer::cost).fold(OltCost::default(), |sum, cost| sum + cost)
}

/// Number of results of a tiling, batch×k×n.
fn results(tiling: &OltTiling) -> usize {
    let OltShape { k, n, .. } = tiling.inner_shape();
    tiling.batch() * k * n
}

/// A bound on either of two noises.
fn largest(a: NoiseBound, b: NoiseBound) -> NoiseBound {
    NoiseBound { bounded: a.bounded.max(b.bounded), variance: a.variance.max(b.variance) }
}

/// Whether both tilings have each cell in the same place of the same leaf: those that differ in the inner dimension at
/// most; and, with the left operand encrypted in one and the right one in the other, some of those with mirrored
/// windows. There, cell (r, c) of a block is coefficient (r·nw + c)·mw of one and (c·kw + r)·mw of the other.
fn same_leaves(one: &OltTiling, other: &OltTiling) -> bool {
    let (shape, window) = (one.inner_shape(), one.window());
    let (mirrored, (k, _, n)) = (one.encrypted() != other.encrypted(), one.blocks());
    let (others, theirs) = match (mirrored, other.window()) {
        (true, Window { kw, mw, nw }) => (other.inner_shape().transposed(), Window { kw: nw, mw, nw: kw }),
        (false, window) => (other.inner_shape(), window),
    };
    let same = one.batch() == other.batch() && (shape.k, shape.n) == (others.k, others.n) && window == theirs;
    same && (!mirrored || ((window.kw == 1 || window.nw == 1) && (k == 1 || n == 1)))
}

#[cfg(test)]
mod tests;
