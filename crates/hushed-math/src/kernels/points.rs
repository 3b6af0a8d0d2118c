//! A product of two matrices at each of many points: `out[l][r](t)` = Σ_i `left[l][i](t)`·`right[i][r](t)` mod q.
//!
//! The entries are polynomials given by their values at the points t of a transform, so this is a product of matrices
//! of polynomials. Unlike one matrix modulo q times vectors ([`super::gemm`]), every point has its own matrices. Eight
//! points fill a register, so both sides of a product are loaded whole; nothing is broadcast or transposed.
//!
//! Both operands are packed by their owner ([`PointMatrix`]): group of eight points, panel of [`LEFT`] or [`RIGHT`]
//! lines, term, line, point. One step of the inner loop reads contiguous words, and the sums of LEFT·RIGHT products
//! stay in registers until all terms are done.
//!
//! Weights are secrets: each is used in the same way, whatever its value.

mod panels;
mod portable;
#[cfg(test)]
mod tests;

#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use super::fma;
#[cfg(target_arch = "x86_64")]
use super::ifma;
use crate::machine::cpu::Cpu;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use crate::words::Words;
use std::ops::Range;
use zeroize::Zeroize;

pub(crate) use panels::{GROUP, LEFT, Place, RIGHT, Run, Sums, TERMS};

/// Most groups multiplied one after another, so that what is written of one product is contiguous.
const ROW: usize = 4;

/// Words of two panels at the points of such groups: they stay in a first-level cache of 32 KiB, so that at most one
/// operand comes from the second-level cache while the other's panels pass.
const RESIDENT: usize = 3 << 10;

/// Products modulo q, with the kernel chosen at construction.
pub struct PointGemm {
    modulus: Modulus,
    #[cfg(target_arch = "x86_64")]
    ifma: Option<ifma::Points>,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fma: Option<HaveFma>,
}

/// One operand, in the kernel's order; words not stored yet are arbitrary. A left operand is erased on drop: factors
/// are secrets, and what they multiply is public.
pub struct PointMatrix {
    words: Words,
    points: usize,
    lines: usize,
    terms: usize,
    /// Lines per panel.
    panel: usize,
}

impl PointMatrix {
    /// A left operand of `lines` lines.
    ///
    /// # Panics
    /// If `points` is not a multiple of 8.
    pub fn left(points: usize, lines: usize, terms: usize) -> PointMatrix {
        PointMatrix::new(points, lines, terms, LEFT)
    }

    /// A right operand of `lines` lines, not erased on drop.
    ///
    /// # Panics
    /// If `points` is not a multiple of 8.
    pub fn right(points: usize, lines: usize, terms: usize) -> PointMatrix {
        PointMatrix::new(points, lines, terms, RIGHT)
    }

    fn new(points: usize, lines: usize, terms: usize, panel: usize) -> PointMatrix {
        assert!(points.is_multiple_of(GROUP), "whole groups of points");
        let empty = PointMatrix { words: Words::zero(0), points, lines, terms, panel };
        PointMatrix { words: Words::scratch(points / GROUP * empty.stride()), ..empty }
    }

    /// Number of points.
    pub fn points(&self) -> usize {
        self.points
    }

    /// Words of memory.
    pub(crate) fn words(&self) -> usize {
        self.words.len()
    }

    /// Number of lines.
    pub fn lines(&self) -> usize {
        self.lines
    }

    /// Number of terms.
    pub fn terms(&self) -> usize {
        self.terms
    }

    /// Words from one group of points to the next: its panels plus a cache line, as groups a power of two apart would
    /// compete for a few cache sets.
    fn stride(&self) -> usize {
        (self.lines.div_ceil(self.panel) * self.panel * self.terms + 1) * GROUP
    }

    /// The terms `terms` of panel `panel` at the points of `group`.
    fn panel(&self, group: usize, panel: usize, terms: Range<usize>) -> &[u64] {
        let size = self.panel * GROUP;
        &self.panel_from(group, panel, terms.start)[..terms.len() * size]
    }

    /// The words from term `term` of panel `panel` at the points of `group` on.
    fn panel_from(&self, group: usize, panel: usize, term: usize) -> &[u64] {
        let size = self.panel * GROUP;
        &self.words[group * self.stride() + (panel * self.terms + term) * size..]
    }

    /// Number of existing lines in `panels`.
    fn lines_of(&self, panels: &Range<usize>) -> usize {
        self.lines.min(panels.end * self.panel) - panels.start * self.panel
    }
}

/// # Panics
/// If the operands differ in terms or are not a left and a right one, or the right one has no such part.
fn check_sides(left: &PointMatrix, right: &PointMatrix, part: usize) {
    assert!(left.panel == LEFT && right.panel == RIGHT, "left and right");
    let same = left.terms == right.terms && (part + 1) * left.points <= right.points;
    assert!(same, "as many terms, and a part of the points");
}

impl Drop for PointMatrix {
    fn drop(&mut self) {
        if self.panel == LEFT {
            self.words.zeroize();
        }
        // The blocks of a lookup's ciphertexts are most of what a run holds, and are held once.
        self.words.give_back();
    }
}

impl PointGemm {
    /// Products modulo q by the best kernel of `cpu`.
    pub fn with_cpu(modulus: Modulus, cpu: Cpu) -> PointGemm {
        let _ = cpu;
        PointGemm {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().map(|token| ifma::Points::new(token, &modulus)),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            fma: cpu.fma(),
            modulus,
        }
    }

    /// Stores the values of panel `panel`, residues in [0, q), in the terms from `first` on: term by term, line by line
    /// of the panel (4 in a left operand, 3 in a right one), point by point. In the last panel, lines beyond the matrix
    /// may have any values.
    ///
    /// # Panics
    /// If there is no such panel, or not as many terms, or the values are not a whole number of terms.
    pub fn put(&self, matrix: &mut PointMatrix, panel: usize, first: usize, values: &[u64]) {
        let (points, size) = (matrix.points, matrix.panel * GROUP);
        let lines = values.len() / points;
        assert_eq!(values.len(), lines * points, "a value a point");
        assert!(lines.is_multiple_of(matrix.panel), "whole panels");
        let terms = first + lines / matrix.panel;
        let panels = matrix.lines.div_ceil(matrix.panel);
        assert!(panel < panels && terms <= matrix.terms, "a panel");
        let stride = matrix.stride();
        let at = (panel * matrix.terms + first) * size;
        for (group, to) in matrix.words.chunks_exact_mut(stride).enumerate() {
            let to = to[at..].chunks_exact_mut(GROUP);
            for (to, from) in to.zip(values.chunks_exact(points)) {
                self.pack(to, &from[group * GROUP..][..GROUP]);
            }
        }
    }

    /// Stores the residues of a group in the form that the kernel reads.
    fn pack(&self, to: &mut [u64], from: &[u64]) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if self.fma.is_some() {
            for (to, &from) in to.iter_mut().zip(from) {
                *to = fma::number(from as i64);
            }
            return;
        }
        if let (Some(to), Some(from)) = (to.first_chunk_mut::<GROUP>(), from.first_chunk()) {
            *to = *from;
        }
    }

    /// Writes the products of the existing left lines of panels `panels` with the existing right lines of panels
    /// `rights`: the values of the l-th and the r-th of them at (l·R + r)·points, for R right lines and the points of
    /// the right operand. The left operand may have fewer points, those of part number `part`.
    ///
    /// # Panics
    /// If the operands differ in terms or are not a left and a right one, there is no such part, or `out` does not have
    /// the length that the lines need.
    pub fn multiply(
        &self,
        left: &PointMatrix,
        panels: Range<usize>,
        right: &PointMatrix,
        rights: Range<usize>,
        part: usize,
        out: &mut [u64],
    ) {
        check_sides(left, right, part);
        let (points, terms, stride) = (left.points, left.terms, right.points);
        let before = part * points / GROUP;
        let (lefts, count) = (left.lines_of(&panels), right.lines_of(&rights));
        assert_eq!(out.len(), lefts * count * stride, "room for all");
        if terms == 0 {
            out.fill(0);
        }
        let row = (RESIDENT / ((LEFT + RIGHT) * GROUP * terms.max(1))).clamp(1, ROW);
        for groups in (0..points / GROUP).step_by(row) {
            let groups = groups..(points / GROUP).min(groups + row);
            for (number, right_panel) in rights.clone().enumerate() {
                let r = number * RIGHT;
                for (number, left_panel) in panels.clone().enumerate() {
                    let l = number * LEFT;
                    for group in groups.clone() {
                        let place = Place {
                            lines: LEFT.min(lefts - l),
                            columns: RIGHT.min(count - r),
                            first: (l * count + r) * stride + (before + group) * GROUP,
                            stride: [count * stride, stride],
                        };
                        for start in (0..terms).step_by(TERMS) {
                            let terms = start..terms.min(start + TERMS);
                            let l = left.panel(group, left_panel, terms.clone());
                            let r = right.panel(before + group, right_panel, terms);
                            self.tile(l, r, start > 0, out, &place);
                        }
                    }
                }
            }
        }
    }

    /// As [`PointGemm::multiply`], but sums the values at `points` consecutive points: the sum of run i for the l-th
    /// and the r-th line goes to (l·R + r)·I + i, for I runs. No value leaves a register before it is summed.
    ///
    /// # Panics
    /// As there, or unless `points` is a multiple of 8 that divides those of the operands.
    pub fn multiply_runs(
        &self,
        left: &PointMatrix,
        panels: Range<usize>,
        right: &PointMatrix,
        rights: Range<usize>,
        (part, points): (usize, usize),
        out: &mut [u64],
    ) {
        check_sides(left, right, part);
        let whole = points.is_multiple_of(GROUP) && left.points.is_multiple_of(points);
        assert!(whole, "whole runs");
        let (lefts, count) = (left.lines_of(&panels), right.lines_of(&rights));
        let (own, runs) = (left.points / points, right.points / points);
        assert_eq!(out.len(), lefts * count * runs, "room for all");
        // The operands of one run, over all lines, fit in cache.
        for run in 0..own {
            let groups = run * points / GROUP..(run + 1) * points / GROUP;
            let run = part * own + run;
            for (number, right_panel) in rights.clone().enumerate() {
                let r = number * RIGHT;
                for (number, left_panel) in panels.clone().enumerate() {
                    let (l, groups) = (number * LEFT, groups.clone());
                    let panels = [left_panel, right_panel];
                    let sums = self.run([left, right], panels, groups, part);
                    for (i, sums) in sums.chunks_exact(RIGHT).enumerate().take(lefts - l) {
                        for (j, &sum) in sums.iter().enumerate().take(count - r) {
                            out[((l + i) * count + r + j) * runs + run] = sum;
                        }
                    }
                }
            }
        }
    }

    /// The products of two panels, summed over the points of `groups` of the left operand.
    fn run(
        &self,
        [left, right]: [&PointMatrix; 2],
        [left_panel, right_panel]: [usize; 2],
        groups: Range<usize>,
        part: usize,
    ) -> [u64; LEFT * RIGHT] {
        let before = part * left.points / GROUP;
        let mut all = [0; LEFT * RIGHT];
        // Adds a residue and a sum of eight, each of the residues below 2^52.
        let add = |all: &mut u64, sum: u64| *all = self.modulus.reduce(*all + sum);
        for start in (0..left.terms).step_by(TERMS) {
            let terms = start..left.terms.min(start + TERMS);
            #[cfg(target_arch = "x86_64")]
            if let Some(points) = &self.ifma {
                let together = TERMS / terms.len();
                for first in groups.clone().step_by(together) {
                    let run = Run {
                        groups: together.min(groups.end - first),
                        terms: terms.len(),
                        strides: [left.stride(), right.stride()],
                    };
                    let mut sums = [0; LEFT * RIGHT];
                    let l = left.panel_from(first, left_panel, start);
                    let r = right.panel_from(before + first, right_panel, start);
                    points.run(l, r, &run, &mut sums);
                    all.iter_mut().zip(sums).for_each(|(all, sum)| add(all, sum));
                }
                continue;
            }
            let mut sums: Sums = [[0; GROUP]; LEFT * RIGHT];
            for group in groups.clone() {
                let l = left.panel(group, left_panel, terms.clone());
                let r = right.panel(before + group, right_panel, terms.clone());
                self.tile_of_sums(l, r, &mut sums);
            }
            for (all, sums) in all.iter_mut().zip(sums) {
                add(all, sums.iter().sum());
            }
        }
        all
    }

    /// Writes the products of two panels, of at most [`TERMS`] terms, to `out`, or adds them to it.
    fn tile(&self, left: &[u64], right: &[u64], add: bool, out: &mut [u64], place: &Place) {
        #[cfg(target_arch = "x86_64")]
        if let Some(points) = &self.ifma {
            return points.tile(left, right, add, out, place);
        }
        let mut sums: Sums = [[0; GROUP]; LEFT * RIGHT];
        let named = || {
            let lines = (0..place.lines).flat_map(|l| (0..place.columns).map(move |r| (l, r)));
            lines.map(|(l, r)| (l * RIGHT + r, place.at(l, r)))
        };
        if add {
            for (sum, at) in named() {
                sums[sum].copy_from_slice(&out[at..at + GROUP]);
            }
        }
        self.tile_of_sums(left, right, &mut sums);
        for (sum, at) in named() {
            // As an array: copying a slice of eight words would be a call.
            if let Some(out) = out[at..].first_chunk_mut() {
                *out = sums[sum];
            }
        }
    }

    /// Adds the products of two panels to `sums`, without IFMA.
    fn tile_of_sums(&self, left: &[u64], right: &[u64], sums: &mut Sums) {
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(have) = self.fma {
            return fma::points(have, &self.modulus, left, right, sums);
        }
        portable::tile(&self.modulus, left, right, sums);
    }
}
