//! Every s-th coefficient of a polynomial, from its values.
//!
//! s values in a row are those at x·ζ for all s-th roots of unity ζ; their sum is s times the value at x^s of the
//! polynomial that the coefficients at multiples of s make. So one pass of additions and a transform of n/s words do.

use crate::ntt::NttPlan;
use crate::words::Words;
use zeroize::Zeroize;

/// The coefficients at multiples of s, of polynomials of one degree n modulo one q.
pub struct EveryCoefficient {
    step: usize,
    /// For degree n/s.
    plan: NttPlan,
}

impl EveryCoefficient {
    /// For the ring and modulus of `ntt`, s = `step`.
    ///
    /// # Panics
    /// Unless s is a power of two that divides n and is at most 2^14, so that sums of s residues fit a word.
    pub fn new(ntt: &NttPlan, step: usize) -> EveryCoefficient {
        assert!(
            step.is_power_of_two() && step <= 1 << 14,
            "a step that sums allow"
        );
        EveryCoefficient {
            step,
            plan: ntt.shorter(ntt.n() / step),
        }
    }

    /// `out` ← s times the coefficients at 0, s, 2s, … of the polynomial with these values.
    ///
    /// # Panics
    /// Unless there are n values and room for n/s words.
    pub fn times_step(&self, values: &[u64], out: &mut [u64]) {
        let words = self.plan.n();
        assert!(
            values.len() == self.step * words && out.len() == words,
            "one word in {}",
            self.step
        );
        let modulus = self.plan.modulus();
        for (sum, values) in out.iter_mut().zip(values.chunks_exact(self.step)) {
            *sum = modulus.reduce(values.iter().sum());
        }
        self.plan.inverse(out);
    }

    /// `out` ← the first of the coefficients at 0, s, 2s, …, without those before number `skipped`.
    ///
    /// # Panics
    /// Unless there are n values, or if there are not as many coefficients.
    pub fn take(&self, values: &[u64], skipped: usize, out: &mut [u64]) {
        let mut sums = Words::scratch(self.plan.n());
        self.times_step(values, &mut sums);
        out.copy_from_slice(&sums[skipped..][..out.len()]);
        sums.zeroize();
        let modulus = self.plan.modulus();
        let inverse = modulus.pow(modulus.value().div_ceil(2), u64::from(self.step.ilog2()));
        self.plan.pointwise().mul_scalar_assign(out, inverse);
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
                let ntt = NttPlan::with_cpu(n, Modulus::new(q).unwrap(), cpu).unwrap();
                let mut values = coefficients.clone();
                ntt.forward(&mut values);
                for step in (0..=8).map(|log| 1 << log) {
                    let every = EveryCoefficient::new(&ntt, step);
                    let expected: Vec<u64> = coefficients.iter().step_by(step).copied().collect();
                    let mut out = vec![0; n / step];
                    every.times_step(&values, &mut out);
                    let times = |c: &u64| (u128::from(*c) * step as u128 % u128::from(q)) as u64;
                    assert!(out.iter().copied().eq(expected.iter().map(times)));
                    let skipped = out.len() / 2;
                    let mut out = vec![0; (out.len() / 4).max(1)];
                    every.take(&values, skipped, &mut out);
                    assert_eq!(out, expected[skipped..][..out.len()]);
                }
            }
        }
    }
}
