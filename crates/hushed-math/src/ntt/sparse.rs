//! Every s-th coefficient of a polynomial, from its values.
//!
//! s consecutive values are those at x·ζ for all s-th roots of unity ζ; their sum is s times the value at x^s of the
//! polynomial formed by the coefficients at multiples of s. So one pass of additions and an n/s-word transform suffice.

use crate::kernels::sums::sums;
use crate::machine::cpu::Cpu;
use crate::ntt::NttTables;
use crate::words::Words;
use zeroize::Zeroize;

/// Up to this many words, the transforms of length n/s of many polynomials are done together, as a matrix product: such
/// a short transform by itself does not fill a register.
const MATRIX: usize = 32;

/// The coefficients at multiples of s, of polynomials of one degree n modulo one q.
pub struct EveryCoefficient {
    step: usize,
    /// For degree n/s.
    ntt: NttTables,
    cpu: Cpu,
    /// s^−1 mod q.
    inverse: u64,
    /// The weight of sum i in coefficient j, at j·n/s + i; empty above [`MATRIX`].
    matrix: Vec<u64>,
}

impl EveryCoefficient {
    /// For the ring and modulus of `ntt`, s = `step`.
    ///
    /// # Panics
    /// Unless s is a power of two that divides n and is at most 2^14, so that sums of s residues fit a word.
    pub fn new(ntt: &NttTables, step: usize) -> EveryCoefficient {
        assert!(step.is_power_of_two() && step <= 1 << 14, "a step that sums allow");
        let (ntt, modulus) = (ntt.shorter(ntt.n() / step), ntt.modulus());
        let inverse = modulus.pow(modulus.value().div_ceil(2), u64::from(step.ilog2()));
        let words = ntt.n();
        let mut matrix = vec![0; if words <= MATRIX { words * words } else { 0 }];
        for i in 0..matrix.len() / words {
            let mut column = vec![0; words];
            column[i] = inverse;
            ntt.inverse(&mut column);
            for (j, c) in column.into_iter().enumerate() {
                matrix[j * words + i] = c;
            }
        }
        EveryCoefficient { step, cpu: ntt.cpu(), ntt, inverse, matrix }
    }

    /// `out` ← s times the coefficients at 0, s, 2s, … of the polynomial with these values.
    ///
    /// # Panics
    /// Unless there are n values and room for n/s words.
    pub fn times_step(&self, values: &[u64], out: &mut [u64]) {
        assert!(values.len() == self.step * self.ntt.n() && out.len() == self.ntt.n(), "one word in {}", self.step);
        self.sums(values, out);
        self.ntt.inverse(out);
    }

    /// `out` ← the sums modulo q of s consecutive values each.
    ///
    /// # Panics
    /// Unless there are s values for each sum.
    pub fn sums(&self, values: &[u64], out: &mut [u64]) {
        let mut wide = Words::scratch(out.len());
        sums(self.cpu, values, self.step, &mut wide);
        self.ntt.pointwise().reduce(out, &wide);
        wide.zeroize();
    }

    /// `out` ← as many as fit of the coefficients at 0, s, 2s, …, from number `skipped` on.
    ///
    /// # Panics
    /// Unless there are n values, or if there are not enough coefficients.
    pub fn take(&self, values: &[u64], skipped: usize, out: &mut [u64]) {
        let mut sums = Words::scratch(self.ntt.n());
        self.times_step(values, &mut sums);
        out.copy_from_slice(&sums[skipped..][..out.len()]);
        sums.zeroize();
        self.ntt.pointwise().mul_scalar_assign(out, self.inverse);
    }

    /// Writes coefficients of several polynomials in a row to each of `out`, from the sums modulo q of s consecutive
    /// values: n/s − `skipped` per polynomial as in [`EveryCoefficient::take`], fewer of the last if `out` is full. The
    /// sums are erased.
    ///
    /// # Panics
    /// Unless there are n/s sums for each piece of `out`, or if all coefficients are skipped.
    pub fn take_each(&self, sums: &mut [u64], skipped: usize, out: &mut [&mut [u64]]) {
        let words = self.ntt.n();
        let kept = words - skipped;
        let pieces: usize = out.iter().map(|out| out.len().div_ceil(kept)).sum();
        assert_eq!(sums.len(), pieces * words, "sums for each piece");
        let pieces = out.iter_mut().flat_map(|out| out.chunks_mut(kept));
        if self.matrix.is_empty() {
            for (sums, out) in sums.chunks_exact_mut(words).zip(pieces) {
                self.ntt.inverse(sums);
                out.copy_from_slice(&sums[skipped..][..out.len()]);
                self.ntt.pointwise().mul_scalar_assign(out, self.inverse);
            }
            return sums.zeroize();
        }
        let mut pieces: Vec<&mut [u64]> = pieces.collect();
        let count = pieces.len();
        let mut all = Words::scratch((words + 1) * count);
        let (columns, found) = all.split_at_mut(words * count);
        for (i, column) in columns.chunks_exact_mut(count).enumerate() {
            let sums = sums.iter().skip(i).step_by(words);
            column.iter_mut().zip(sums).for_each(|(c, s)| *c = *s);
        }
        let columns: Vec<&[u64]> = columns.chunks_exact(count).collect();
        for (j, row) in (0..kept).zip(self.matrix.chunks_exact(words).skip(skipped)) {
            found.fill(0);
            let pointwise = self.ntt.pointwise();
            pointwise.dot_scalars_assign(found, &columns, row);
            for (piece, found) in pieces.iter_mut().zip(found.iter()) {
                if let Some(out) = piece.get_mut(j) {
                    *out = *found;
                }
            }
        }
        all.zeroize();
        sums.zeroize();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::machine::cpu::Cpu;
    use crate::modulus::Modulus;
    use crate::primes::ntt_primes;
    use crate::rng::SecretRng;

    #[test]
    fn coefficients_at_multiples_of_every_step() {
        let (n, mut rng) = (256, SecretRng::insecure_from_seed(1));
        let q = ntt_primes(50, n, 1)[0];
        for largest in [false, true] {
            let residue = |rng: &mut SecretRng| if largest { q - 1 } else { rng.next_u64() % q };
            let coefficients: Vec<u64> = (0..n).map(|_| residue(&mut rng)).collect();
            for cpu in Cpu::variants() {
                let ntt = NttTables::with_cpu(n, Modulus::new(q).unwrap(), cpu).unwrap();
                let mut values = coefficients.clone();
                ntt.forward(&mut values);
                for step in (0..=8).map(|log| 1 << log) {
                    let every = EveryCoefficient::new(&ntt, step);
                    let expected: Vec<u64> = coefficients.iter().step_by(step).copied().collect();
                    let mut out = vec![0; n / step];
                    every.times_step(&values, &mut out);
                    let times = |c: &u64| (u128::from(*c) * step as u128 % u128::from(q)) as u64;
                    assert!(out.iter().copied().eq(expected.iter().map(times)));
                    let skipped = expected.len() / 2;
                    let mut out = vec![0; (out.len() / 4).max(1)];
                    every.take(&values, skipped, &mut out);
                    assert_eq!(out, expected[skipped..][..out.len()]);
                    // Three polynomials, the third of which ends early.
                    let (three, kept) = (values.repeat(3), expected.len() - skipped);
                    let mut sums = vec![0; 3 * expected.len()];
                    every.sums(&three, &mut sums);
                    let mut out = [kept, kept + kept.div_ceil(2)].map(|length| vec![0; length]);
                    let [first, others] = &mut out;
                    every.take_each(&mut sums, skipped, &mut [first, others]);
                    for out in out.iter().flat_map(|out| out.chunks(kept)) {
                        assert_eq!(out, &expected[skipped..][..out.len()]);
                    }
                    assert!(sums.iter().all(|sum| *sum == 0));
                }
            }
        }
    }
}
