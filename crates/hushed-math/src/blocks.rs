//! Products of long polynomials by short ones, block by block (overlap-save; Stockham 1966).
//!
//! Modulo X^n + 1, of which one factor w has D leading coefficients only, coefficient k of c·w is a sum over
//! `c[k − D + 1] … c[k]`, the indices below 0 being those of the negated tail. So c is cut into blocks of L
//! coefficients that overlap by D, each block is multiplied by w modulo X^L + 1, which wraps into the first D − 1
//! coefficients only, and the last L − D are kept.
//!
//! w is evaluated at L points instead of n, and the same L values serve all blocks: for many w, many c and sums of
//! their products that is a product of two matrices at each point ([`PointGemm`]). L/(L − D) times the products are
//! made: a third more for L = 4·D.
//!
//! Any transform of length L will do: it is the negacyclic one, whose kernels are there. All moduli have the roots, of
//! order 2n.

use crate::kernels::{LEFT, PointGemm, PointMatrix, RIGHT};
use crate::ntt::{EveryCoefficient, NttPlan};
use crate::words::Words;
use std::ops::Range;
use zeroize::Zeroize;

/// Words of values of short factors that are put at once.
const TOGETHER: usize = 1 << 13;

/// Words of products by their values that are held at once, at least: half of a second-level cache.
const LEAST_VALUES: usize = 1 << 17;

/// And at most.
const MOST_VALUES: usize = 1 << 20;

/// Products modulo one q and X^n + 1 by polynomials of D leading coefficients, in blocks of L.
pub struct BlockPlan {
    degree: usize,
    prefix: usize,
    overlap: usize,
    short: NttPlan,
    /// s.
    step: usize,
    /// Every s-th coefficient of a block.
    sparse: EveryCoefficient,
    gemm: PointGemm,
}

impl BlockPlan {
    /// Lines of a panel of factors.
    pub const PANEL: usize = LEFT;

    /// For the ring and modulus of `ntt`, D = `prefix`, L = `length`, s = `step`. With L = n there is one block,
    /// without overlap.
    ///
    /// # Panics
    /// Unless s divides D and D ≤ L ≤ n; L and s are powers of two and L is at least 8; if D > L/2, unless L = n.
    pub fn new(ntt: &NttPlan, prefix: usize, length: usize, step: usize) -> BlockPlan {
        let degree = ntt.n();
        let powers = length.is_power_of_two() && step.is_power_of_two();
        assert!(powers && (8..=degree).contains(&length));
        assert!(prefix >= 1 && (2 * prefix <= length || length == degree && prefix <= degree));
        assert!(prefix.is_multiple_of(step), "wanted coefficients in step");
        BlockPlan {
            degree,
            prefix,
            // One more than what wraps, so that the coefficients wanted of a block begin with those wanted of the
            // whole.
            overlap: if length == degree { 0 } else { prefix },
            short: ntt.shorter(length),
            step,
            sparse: EveryCoefficient::new(&ntt.shorter(length), step),
            gemm: PointGemm::with_cpu(*ntt.modulus(), ntt.cpu()),
        }
    }

    /// Blocks of a polynomial.
    pub fn count(&self) -> usize {
        self.degree.div_ceil(self.kept())
    }

    /// Points of a block, L.
    pub fn points(&self) -> usize {
        self.short.n()
    }

    fn kept(&self) -> usize {
        self.points() - self.overlap
    }

    /// Room for `lines` times `terms` short factors.
    pub fn factors(&self, lines: usize, terms: usize) -> PointMatrix {
        PointMatrix::left(self.points(), lines, terms)
    }

    /// Room for `polynomials` times `terms` long ones.
    pub fn polynomials(&self, polynomials: usize, terms: usize) -> PointMatrix {
        PointMatrix::right(self.points(), polynomials * self.count(), terms)
    }

    /// Puts the short factors of a panel of lines in the terms from `first` on: term by term, line by line of the
    /// panel, D leading coefficients each. Of the last panel, lines beyond the last may be any.
    ///
    /// # Panics
    /// As [`PointGemm::put`], or if the words are no whole number of factors.
    pub fn put_factors(
        &self,
        factors: &mut PointMatrix,
        panel: usize,
        first: usize,
        prefixes: &[u64],
    ) {
        let count = prefixes.len() / self.prefix;
        assert_eq!(prefixes.len(), count * self.prefix, "whole factors");
        let mut values = Words::scratch(count * self.points());
        let out = values.chunks_exact_mut(self.points());
        for (prefix, out) in prefixes.chunks_exact(self.prefix).zip(out) {
            self.short.forward_strip(prefix, 0, out);
        }
        self.gemm.put(factors, panel, first, &values);
        values.zeroize();
    }

    /// Terms of a panel of short factors that are best put at once: their values stay in a first-level cache or two.
    pub fn terms_together(&self) -> usize {
        (TOGETHER / (LEFT * self.points())).max(1)
    }

    /// Puts the blocks of the long polynomials of one term, by their coefficients.
    ///
    /// # Panics
    /// As [`PointGemm::put`], or if there are not as many polynomials as there is room for, of n coefficients each.
    pub fn put_polynomials(
        &self,
        polynomials: &mut PointMatrix,
        term: usize,
        coefficients: &[&[u64]],
    ) {
        let count = coefficients.len() * self.count();
        assert_eq!(count, polynomials.lines(), "every polynomial");
        let mut values = Words::zero(RIGHT * self.points());
        for (panel, first) in (0..count).step_by(RIGHT).enumerate() {
            let blocks = values.chunks_exact_mut(self.points());
            for (block, values) in (first..count).zip(blocks) {
                let whole = coefficients[block / self.count()];
                self.cut(whole, block % self.count(), values);
                self.short.forward(values);
            }
            self.gemm.put(polynomials, panel, term, &values);
        }
    }

    /// Block `index` of a polynomial by its coefficients, those before the first and beyond the last by X^n = −1 and as
    /// zeros.
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

    /// For the lines of `panels` (of [`BlockPlan::PANEL`] lines each, those that there are) of the factors, and every
    /// long polynomial: the sum over the terms of their products, to `out`, line by line, polynomial by polynomial: all
    /// n coefficients, or every s-th to slices of n/s words.
    ///
    /// # Panics
    /// Unless `out` has a slice of n or n/s words for each, or as [`PointGemm::multiply`].
    pub fn multiply(
        &self,
        factors: &PointMatrix,
        panels: Range<usize>,
        polynomials: &PointMatrix,
        out: &mut [&mut [u64]],
    ) {
        let lines = factors.lines().min(panels.end * Self::PANEL) - panels.start * Self::PANEL;
        let count = polynomials.lines() / self.count();
        assert_eq!(out.len(), lines * count, "room for every sum");
        let lengths = [self.degree, self.degree / self.step];
        let fit = out.iter().all(|out| lengths.contains(&out.len()));
        assert!(fit, "coefficients of a polynomial");
        let words = self.count() * self.points();
        // The more lines at once, the less often the polynomials come from memory, and the more do their products go
        // there.
        let budget = (words * count * factors.terms() / 2).clamp(LEAST_VALUES, MOST_VALUES);
        let together = (budget / (words * count * Self::PANEL)).max(1);
        let mut values = Words::scratch(lines.min(together * Self::PANEL) * count * words);
        let chunks = panels.clone().step_by(together);
        for (first, out) in chunks.zip(out.chunks_mut(together * Self::PANEL * count)) {
            let panels = first..panels.end.min(first + together);
            let values = &mut values[..out.len() * words];
            self.gemm.multiply(factors, panels, polynomials, values);
            for (values, out) in values.chunks_exact_mut(words).zip(out) {
                match out.len() == self.degree {
                    true => self.take(values, out),
                    false => self.take_sparse(values, out),
                }
            }
        }
        values.zeroize();
    }

    /// The coefficients of a polynomial from the values of its blocks.
    fn take(&self, values: &mut [u64], out: &mut [u64]) {
        let blocks = values.chunks_exact_mut(self.points());
        for (block, out) in blocks.zip(out.chunks_mut(self.kept())) {
            self.short.inverse(block);
            out.copy_from_slice(&block[self.overlap..][..out.len()]);
        }
    }

    /// Every s-th coefficient of a polynomial from the values of its blocks.
    fn take_sparse(&self, values: &[u64], out: &mut [u64]) {
        self.sparse.take_each(values, self.overlap / self.step, out);
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

    /// Two sums of two products, whatever blocks they are cut into, on every kernel.
    #[test]
    fn blocks_of_every_length_give_the_negacyclic_product() {
        let degree = 512;
        let mut rng = SecretRng::insecure_from_seed(1);
        let modulus = Modulus::new(ntt_primes(50, degree, 1)[0]).unwrap();
        let q = modulus.value();
        for prefix in [1, 2, 5, 32, 37, 64, 128, 300, 512] {
            let (lines, polynomials, terms) = (5, 2, 2);
            let w: Vec<Vec<u64>> = (0..lines * terms)
                .map(|_| residues(prefix, q, &mut rng))
                .collect();
            let c: Vec<Vec<u64>> = (0..polynomials * terms)
                .map(|_| residues(degree, q, &mut rng))
                .collect();
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
            let expected: Vec<Vec<u64>> = (0..lines * polynomials)
                .map(|i| expected(i / polynomials, i % polynomials))
                .collect();
            for cpu in Cpu::variants() {
                let ntt = NttPlan::with_cpu(degree, modulus, cpu).unwrap();
                for length in [8, 64, 128, 256, 512] {
                    if 2 * prefix > length && length < degree {
                        continue;
                    }
                    let step =
                        [1, 4, 16][length.ilog2() as usize % 3].min(1 << prefix.trailing_zeros());
                    let plan = BlockPlan::new(&ntt, prefix, length, step);
                    let mut factors = plan.factors(lines, terms);
                    let mut long = plan.polynomials(polynomials, terms);
                    for panel in 0..2 {
                        for term in 0..terms {
                            let lines = (panel * LEFT..(panel + 1) * LEFT).map(|l| l % lines);
                            let w: Vec<u64> =
                                lines.flat_map(|l| w[l * terms + term].clone()).collect();
                            plan.put_factors(&mut factors, panel, term, &w);
                        }
                    }
                    for term in 0..terms {
                        let c: Vec<&[u64]> =
                            (0..polynomials).map(|p| &c[p * terms + term][..]).collect();
                        plan.put_polynomials(&mut long, term, &c);
                    }
                    let mut out = vec![vec![1; degree]; expected.len()];
                    let mut sums: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
                    plan.multiply(&factors, 0..2, &long, &mut sums);
                    assert!(
                        out == expected,
                        "D = {prefix}, L = {length}, {}",
                        cpu.kernel_name()
                    );
                    let mut out = vec![vec![1; degree / step]; expected.len()];
                    let mut sums: Vec<&mut [u64]> = out.iter_mut().map(|o| &mut o[..]).collect();
                    plan.multiply(&factors, 0..2, &long, &mut sums);
                    for (out, expected) in out.iter().zip(&expected) {
                        assert!(out.iter().eq(expected.iter().step_by(step)));
                    }
                }
            }
        }
    }
}
