//! Products of long polynomials with short ones, block by block (overlap-save; Stockham 1966).
//!
//! If a factor w has only D leading coefficients, coefficient k of c·w modulo X^n + 1 is a sum over
//! `c[k − D + 1] … c[k]`, where indices below 0 mean the negated tail. So c is cut into blocks of L coefficients that
//! overlap by D. Each block is multiplied by w modulo X^L + 1, which wraps into the first D − 1 coefficients only, and
//! the last L − D are kept.
//!
//! w is evaluated at L points instead of n, and the same L values serve all blocks. For many w, many c and sums of
//! their products, that is one matrix product per point ([`PointGemm`]). It takes L/(L − D) times as many products: a
//! third more for L = 4·D.
//!
//! Any transform of length L would do; the negacyclic one is used because its kernels exist. All moduli have its roots,
//! since they have roots of order 2n.

use crate::kernels::{LEFT, PointGemm, PointMatrix, RIGHT};
use crate::ntt::{EveryCoefficient, NttTables};
use crate::words::Words;
use std::ops::Range;
use zeroize::Zeroize;

/// Words of short-factor values that are stored at once.
const TOGETHER: usize = 1 << 13;

/// Up to this many terms, the operands of a sum take less memory than its values.
const FEW_TERMS: usize = 8;

/// Words of polynomial blocks that stay in the last-level cache while the factors pass through it: 5 MiB, because it
/// was 32 MiB where this was measured, and shared with other users.
const PART_WORDS: usize = 5 << 17;

/// Fewest points that are cut into parts.
const LEAST_CUT: usize = 512;

/// Minimum number of words of product values held at once: half of a second-level cache.
const LEAST_VALUES: usize = 1 << 17;

/// Maximum number of them.
const MOST_VALUES: usize = 1 << 20;

/// Products modulo one q and X^n + 1 with polynomials of only D leading coefficients, in blocks of L.
pub struct BlockTables {
    degree: usize,
    prefix: usize,
    overlap: usize,
    short: NttTables,
    /// s.
    step: usize,
    /// Every s-th coefficient of a block.
    sparse: EveryCoefficient,
    gemm: PointGemm,
}

impl BlockTables {
    /// Lines per panel of factors.
    pub const PANEL: usize = LEFT;

    /// For the ring and modulus of `ntt`, D = `prefix`, L = `length`, s = `step`. With L = n there is one block,
    /// without overlap.
    ///
    /// # Panics
    /// Unless s divides D, D ≤ L ≤ n, L and s are powers of two and L is at least 8; also if D > L/2, unless L = n.
    pub fn new(ntt: &NttTables, prefix: usize, length: usize, step: usize) -> BlockTables {
        let degree = ntt.n();
        let powers = length.is_power_of_two() && step.is_power_of_two();
        assert!(powers && (8..=degree).contains(&length));
        assert!(prefix >= 1 && (2 * prefix <= length || length == degree && prefix <= degree));
        assert!(prefix.is_multiple_of(step), "wanted coefficients in step");
        BlockTables {
            degree,
            prefix,
            // One more than what wraps, so that the wanted coefficients of a block line up with the wanted ones of the
            // whole.
            overlap: if length == degree { 0 } else { prefix },
            short: ntt.shorter(length),
            step,
            sparse: EveryCoefficient::new(&ntt.shorter(length), step),
            gemm: PointGemm::with_cpu(*ntt.modulus(), ntt.cpu()),
        }
    }

    /// Blocks per polynomial.
    pub fn count(&self) -> usize {
        self.degree.div_ceil(self.kept())
    }

    /// Points per block, L.
    pub fn points(&self) -> usize {
        self.short.n()
    }

    fn kept(&self) -> usize {
        self.points() - self.overlap
    }

    /// The number of parts into which the points are cut, so that the blocks of `polynomials` in one part stay in the
    /// last-level cache while all short factors pass through it.
    pub fn parts(&self, polynomials: &PointMatrix) -> usize {
        let whole = polynomials.words();
        let cut = 2 * self.prefix <= self.points() && self.points() >= LEAST_CUT;
        // A part consists of whole runs of points whose values are summed.
        let runs = |parts: usize| self.sums_in_registers() && (self.points() / parts).is_multiple_of(self.step);
        let mut parts: usize = 1;
        while whole / parts > PART_WORDS && parts < 4 && cut && runs(2 * parts) {
            parts *= 2;
        }
        parts
    }

    /// Room for `lines` × `terms` short factors at the points of one of `parts` parts.
    pub fn factors(&self, lines: usize, terms: usize, parts: usize) -> PointMatrix {
        PointMatrix::left(self.points() / parts, lines, terms)
    }

    /// Room for `polynomials` × `terms` long polynomials.
    pub fn polynomials(&self, polynomials: usize, terms: usize) -> PointMatrix {
        PointMatrix::right(self.points(), polynomials * self.panels() * RIGHT, terms)
    }

    /// Panels per polynomial. Its blocks begin at a panel boundary, so the last panel may be partly empty.
    fn panels(&self) -> usize {
        self.count().div_ceil(RIGHT)
    }

    /// Stores the short factors of one panel of lines, for the terms from `first` on, at the points of part `part`.
    /// `prefixes` has D leading coefficients per factor, term by term, each term line by line. Lines of the last panel
    /// beyond the last line may hold anything. `room` is reused between calls.
    ///
    /// # Panics
    /// As [`PointGemm::put`], or if the words are not a whole number of factors.
    pub fn put_factors(
        &self,
        factors: &mut PointMatrix,
        room: &mut FactorRoom,
        part: usize,
        panel: usize,
        first: usize,
        prefixes: &[u64],
    ) {
        let count = prefixes.len() / self.prefix;
        assert_eq!(prefixes.len(), count * self.prefix, "whole factors");
        let (points, parts) = (factors.points(), self.points() / factors.points());
        let values = room.words(count * points);
        let out = values.chunks_exact_mut(points);
        for (prefix, out) in prefixes.chunks_exact(self.prefix).zip(out) {
            match parts {
                1 => self.short.forward_strip(prefix, 0, out),
                _ => self.short.forward_part(prefix, part, parts, out),
            }
        }
        self.gemm.put(factors, panel, first, values);
    }

    /// Terms of a panel of short factors to store at once: their values fill one or two first-level caches.
    pub fn terms_together(&self) -> usize {
        (TOGETHER / (LEFT * self.points())).max(1)
    }

    /// Stores the blocks of one term's long polynomials, given by their coefficients.
    ///
    /// # Panics
    /// As [`PointGemm::put`], or unless there are as many polynomials as there is room for, with n coefficients each.
    pub fn put_polynomials(&self, polynomials: &mut PointMatrix, term: usize, coefficients: &[&[u64]]) {
        let lines = coefficients.len() * self.panels() * RIGHT;
        assert_eq!(lines, polynomials.lines(), "every polynomial");
        let mut values = Words::zero(RIGHT * self.points());
        for (number, whole) in coefficients.iter().enumerate() {
            for panel in 0..self.panels() {
                let blocks = panel * RIGHT..self.count().min((panel + 1) * RIGHT);
                let lines = values.chunks_exact_mut(self.points());
                for (block, values) in blocks.zip(lines) {
                    self.cut(whole, block, values);
                    self.short.forward(values);
                }
                let panel = number * self.panels() + panel;
                self.gemm.put(polynomials, panel, term, &values);
            }
        }
    }

    /// Cuts block `index` out of a polynomial's coefficients: those before the first follow from X^n = −1, those beyond
    /// the last are zeros.
    fn cut(&self, coefficients: &[u64], index: usize, block: &mut [u64]) {
        assert_eq!(coefficients.len(), self.degree, "one word a coefficient");
        let begin = index * self.kept();
        let end = self.degree.min(begin + self.kept());
        if index == 0 {
            let (tail, body) = block.split_at_mut(self.overlap);
            tail.copy_from_slice(&coefficients[self.degree - self.overlap..]);
            self.short.pointwise().neg_assign(tail);
            body.copy_from_slice(&coefficients[..end]);
        } else {
            let source = &coefficients[begin - self.overlap..end];
            let (body, rest) = block.split_at_mut(source.len());
            body.copy_from_slice(source);
            rest.fill(0);
        }
    }

    /// Writes to `out`, line by line and polynomial by polynomial, the sum over the terms of the products of each
    /// factor line of `panels` ([`BlockTables::PANEL`] lines each, as far as they exist) with each long polynomial: all
    /// n coefficients or, equally for all lines of a polynomial, every s-th, to slices of n/s words.
    ///
    /// # Panics
    /// Unless `out` has a slice of n or n/s words for each sum, or as [`PointGemm::multiply`].
    pub fn multiply(
        &self,
        factors: &PointMatrix,
        panels: Range<usize>,
        polynomials: &PointMatrix,
        out: &mut [&mut [u64]],
    ) {
        let lines = factors.lines().min(panels.end * Self::PANEL) - panels.start * Self::PANEL;
        let count = polynomials.lines() / (self.panels() * RIGHT);
        assert_eq!(out.len(), lines * count, "room for every sum");
        for polynomial in 0..count {
            let first = polynomial * self.panels();
            let rights = first..first + self.panels();
            let out = out.iter_mut().skip(polynomial).step_by(count);
            let mut out: Vec<&mut [u64]> = out.map(|out| &mut **out).collect();
            let length = out.first().map_or(self.degree, |out| out.len());
            let fit = length == self.degree || length == self.degree / self.step;
            assert!(fit && out.iter().all(|out| out.len() == length), "coefficients of a polynomial");
            let all = [panels.clone(), rights];
            if length == self.degree {
                self.multiply_whole(factors, polynomials, all, &mut out);
            } else {
                self.multiply_sparse(factors, polynomials, all, &mut out);
            }
        }
    }

    /// All coefficients of one polynomial, whose panels are `rights`, for the lines of `panels`.
    fn multiply_whole(
        &self,
        factors: &PointMatrix,
        polynomials: &PointMatrix,
        [panels, rights]: [Range<usize>; 2],
        out: &mut [&mut [u64]],
    ) {
        let points = self.points();
        let words = rights.len() * RIGHT * points;
        // With few terms, the values of one panel at a time, which stay in cache until they are transformed. With many,
        // as many lines at once as fit, so that the polynomials are read from memory less often.
        let (blocks, together) = match factors.terms() <= FEW_TERMS {
            true => (1, 1),
            false => {
                let budget = (words * factors.terms()).clamp(LEAST_VALUES, MOST_VALUES);
                (rights.len(), (budget / (words * Self::PANEL)).max(1))
            }
        };
        let most = together.min(panels.len()) * Self::PANEL * blocks * RIGHT * points;
        let mut values = Words::scratch(most);
        let chunks = panels.clone().step_by(together);
        for (first, out) in chunks.zip(out.chunks_mut(together * Self::PANEL)) {
            let panels = first..panels.end.min(first + together);
            // From last to first, as [`BlockTables::keep`] requires.
            for right in rights.clone().step_by(blocks).rev() {
                let begin = (right - rights.start) * RIGHT;
                let count = (blocks * RIGHT).min(self.count() - begin);
                let rights = right..rights.end.min(right + blocks);
                let values = &mut values[..out.len() * rights.len() * RIGHT * points];
                let panels = panels.clone();
                self.gemm.multiply(factors, panels, polynomials, rights.clone(), 0, values);
                let lines = values.chunks_exact_mut(rights.len() * RIGHT * points);
                for (values, out) in lines.zip(out.iter_mut()) {
                    let blocks = values.chunks_exact_mut(points).take(count);
                    self.keep(blocks, begin, out);
                }
            }
        }
        values.zeroize();
    }

    /// Computes a line's coefficients in the blocks from `first` on, from their values, which may be overwritten; later
    /// blocks are done. A whole block is transformed into its place, its overlap into that of the block before.
    fn keep<'a>(
        &self,
        blocks: impl DoubleEndedIterator<Item = &'a mut [u64]> + ExactSizeIterator,
        first: usize,
        out: &mut [u64],
    ) {
        for (number, block) in blocks.enumerate().rev() {
            let begin = (first + number) * self.kept();
            let start = begin.checked_sub(self.overlap);
            let place = start.and_then(|start| out.get_mut(start..begin + self.kept()));
            if let Some(place) = place {
                self.short.inverse_from(block, place);
                continue;
            }
            self.short.inverse(block);
            let wanted = &block[self.overlap..];
            let count = wanted.len().min(out.len() - begin);
            out[begin..][..count].copy_from_slice(&wanted[..count]);
        }
    }

    /// Every s-th coefficient of one polynomial, as [`BlockTables::multiply_whole`].
    fn multiply_sparse(
        &self,
        factors: &PointMatrix,
        polynomials: &PointMatrix,
        [panels, rights]: [Range<usize>; 2],
        out: &mut [&mut [u64]],
    ) {
        let (points, blocks, wanted) = (self.points(), self.panels() * RIGHT, self.points() / self.step);
        // Values take much memory, sums little.
        let together = match self.sums_in_registers() {
            true => panels.len(),
            false => 1,
        };
        let lines = out.len().min(together * Self::PANEL);
        let mut values = Words::scratch(match self.sums_in_registers() {
            true => 0,
            false => lines * blocks * points,
        });
        let mut sums = Words::scratch(lines * blocks * wanted);
        let chunks = panels.clone().step_by(together.max(1));
        for (first, out) in chunks.zip(out.chunks_mut((together * Self::PANEL).max(1))) {
            let panels = first..panels.end.min(first + together);
            let sums = &mut sums[..out.len() * blocks * wanted];
            let rights = rights.clone();
            if self.sums_in_registers() {
                let runs = (0, self.step);
                self.gemm.multiply_runs(factors, panels, polynomials, rights, runs, sums);
            } else {
                let values = &mut values[..out.len() * blocks * points];
                self.gemm.multiply(factors, panels, polynomials, rights, 0, values);
                self.sparse.sums(values, sums);
            }
            self.keep_sparse(sums, out);
        }
        values.zeroize();
    }

    /// Computes every s-th coefficient of the lines' blocks from the sums of their values, which are overwritten.
    fn keep_sparse(&self, sums: &mut [u64], out: &mut [&mut [u64]]) {
        let (blocks, wanted) = (self.panels() * RIGHT, self.points() / self.step);
        // Drops the sums of nonexistent blocks at the end of each line.
        let mut kept = 0;
        for line in 0..out.len() {
            let begin = line * blocks * wanted;
            sums.copy_within(begin..begin + self.count() * wanted, kept);
            kept += self.count() * wanted;
        }
        self.sparse.take_each(&mut sums[..kept], self.overlap / self.step, out);
        sums[kept..].zeroize();
    }

    /// Room for the sums of `lines` lines of factors with two polynomials, filled part by part.
    pub fn sums(&self, lines: usize) -> PartSums {
        let blocks = lines * self.panels() * RIGHT;
        PartSums {
            runs: Words::scratch(blocks * self.points() / self.step),
            values: Words::scratch(blocks * self.points()),
        }
    }

    /// As [`BlockTables::multiply`] for all lines of the factors and two polynomials, on one part of the points.
    ///
    /// # Panics
    /// Unless the sums are for these lines and s is a multiple of 8, or as [`PointGemm::multiply`].
    pub fn multiply_part(&self, factors: &PointMatrix, part: usize, polynomials: &PointMatrix, sums: &mut PartSums) {
        assert!(self.sums_in_registers(), "whole groups");
        let panels = 0..factors.lines().div_ceil(Self::PANEL);
        let (first, second) = (0..self.panels(), self.panels()..2 * self.panels());
        let runs = (part, self.step);
        let (gemm, values) = (&self.gemm, &mut sums.values);
        gemm.multiply_runs(factors, panels.clone(), polynomials, first, runs, &mut sums.runs);
        gemm.multiply(factors, panels, polynomials, second, part, values);
    }

    /// Finishes the sums once all parts are added, line by line: every s-th coefficient of the first polynomial, all n
    /// of the second.
    ///
    /// # Panics
    /// Unless there are slices of n/s and of n words for every line.
    pub fn finish(&self, mut sums: PartSums, first: &mut [&mut [u64]], second: &mut [&mut [u64]]) {
        let line = self.panels() * RIGHT * self.points();
        assert!(first.len() == second.len() && sums.values.len() == line * first.len());
        self.keep_sparse(&mut sums.runs, first);
        for (values, out) in sums.values.chunks_exact_mut(line).zip(second) {
            assert_eq!(out.len(), self.degree, "coefficients of a polynomial");
            let blocks = values.chunks_exact_mut(self.points()).take(self.count());
            self.keep(blocks, 0, out);
        }
    }

    fn sums_in_registers(&self) -> bool {
        self.step.is_multiple_of(8)
    }
}

/// Room for the values of short factors before they are stored, erased on drop.
pub struct FactorRoom(Words);

impl Default for FactorRoom {
    fn default() -> FactorRoom {
        FactorRoom(Words::scratch(0))
    }
}

impl FactorRoom {
    fn words(&mut self, length: usize) -> &mut [u64] {
        if self.0.len() < length {
            self.0.zeroize();
            self.0 = Words::scratch(length);
        }
        &mut self.0[..length]
    }
}

impl Drop for FactorRoom {
    fn drop(&mut self) {
        self.0.zeroize();
    }
}

/// Sums of short factors times two long polynomials, filled one part of the points after another.
pub struct PartSums {
    /// First polynomial: sums over s consecutive points.
    runs: Words,
    /// Second polynomial: values.
    values: Words,
}

impl Drop for PartSums {
    fn drop(&mut self) {
        self.runs.zeroize();
        self.values.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::cpu::Cpu;
    use crate::modulus::Modulus;
    use crate::primes::ntt_primes;
    use crate::reference::negacyclic_product;
    use crate::rng::SecretRng;

    fn residues(length: usize, q: u64, rng: &mut SecretRng) -> Vec<u64> {
        (0..length).map(|_| rng.next_u64() % q).collect()
    }

    /// Sums of two products, whatever blocks they are cut into, on every kernel.
    #[test]
    fn blocks_of_every_length_give_the_negacyclic_product() {
        let degree = 512;
        let mut rng = SecretRng::insecure_from_seed(1);
        let modulus = Modulus::new(ntt_primes(50, degree, 1)[0]).unwrap();
        let q = modulus.value();
        for prefix in [1, 2, 5, 32, 37, 64, 128, 300, 512] {
            let (lines, polynomials, terms) = (5, 2, 2);
            let w: Vec<Vec<u64>> = (0..lines * terms).map(|_| residues(prefix, q, &mut rng)).collect();
            let c: Vec<Vec<u64>> = (0..polynomials * terms).map(|_| residues(degree, q, &mut rng)).collect();
            let expected = |line: usize, polynomial: usize| {
                let mut sum = vec![0; degree];
                for term in 0..terms {
                    let mut w = w[line * terms + term].clone();
                    w.resize(degree, 0);
                    let product = negacyclic_product(&c[polynomial * terms + term], &w, q);
                    for (sum, product) in sum.iter_mut().zip(product) {
                        *sum = modulus.add(*sum, product);
                    }
                }
                sum
            };
            let expected: Vec<Vec<u64>> =
                (0..lines * polynomials).map(|i| expected(i / polynomials, i % polynomials)).collect();
            for cpu in Cpu::variants() {
                let ntt = NttTables::with_cpu(degree, modulus, cpu).unwrap();
                for length in [8, 64, 128, 256, 512] {
                    if 2 * prefix > length && length < degree {
                        continue;
                    }
                    let step = [1, 4, 16][length.ilog2() as usize % 3].min(1 << prefix.trailing_zeros());
                    let tables = BlockTables::new(&ntt, prefix, length, step);
                    let mut factors = tables.factors(lines, terms, 1);
                    let mut long = tables.polynomials(polynomials, terms);
                    let mut room = FactorRoom::default();
                    let factors_of = |panel: usize, term: usize| -> Vec<u64> {
                        let lines = (panel * LEFT..(panel + 1) * LEFT).map(|l| l % lines);
                        lines.flat_map(|l| w[l * terms + term].clone()).collect()
                    };
                    for panel in 0..2 {
                        for term in 0..terms {
                            let w = factors_of(panel, term);
                            tables.put_factors(&mut factors, &mut room, 0, panel, term, &w);
                        }
                    }
                    for term in 0..terms {
                        let c: Vec<&[u64]> = (0..polynomials).map(|p| &c[p * terms + term][..]).collect();
                        tables.put_polynomials(&mut long, term, &c);
                    }
                    let mut out = vec![vec![1; degree]; expected.len()];
                    let mut sums: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
                    tables.multiply(&factors, 0..2, &long, &mut sums);
                    assert!(out == expected, "D = {prefix}, L = {length}, {}", cpu.kernel_name());
                    let mut out = vec![vec![1; degree / step]; expected.len()];
                    let mut sums: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
                    tables.multiply(&factors, 0..2, &long, &mut sums);
                    for (out, expected) in out.iter().zip(&expected) {
                        assert!(out.iter().eq(expected.iter().step_by(step)));
                    }
                    if 2 * prefix > length || length < LEAST_CUT || !tables.sums_in_registers() {
                        continue;
                    }
                    for parts in [1, 2, 4] {
                        let mut sums = tables.sums(lines);
                        for part in 0..parts {
                            let mut factors = tables.factors(lines, terms, parts);
                            for (panel, term) in [(0, 0), (0, 1), (1, 0), (1, 1)] {
                                let w = factors_of(panel, term);
                                tables.put_factors(&mut factors, &mut room, part, panel, term, &w);
                            }
                            tables.multiply_part(&factors, part, &long, &mut sums);
                        }
                        let mut first = vec![vec![1; degree / step]; lines];
                        let mut second = vec![vec![1; degree]; lines];
                        let [mut a, mut b] =
                            [&mut first, &mut second].map(|all| all.iter_mut().map(|o| &mut o[..]).collect::<Vec<_>>());
                        tables.finish(sums, &mut a, &mut b);
                        for (line, expected) in expected.chunks(2).enumerate() {
                            let sparse = expected[0].iter().step_by(step);
                            assert!(first[line].iter().eq(sparse) && second[line] == expected[1]);
                        }
                    }
                }
            }
        }
    }
}
