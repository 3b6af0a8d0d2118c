//! Base conversion from one set of primes to another: the same centred integers, coefficient by coefficient.
//!
//! Key switching raises digits and lowers products with it. Bases are named by indices into one [`RnsBasis`]; the
//! coefficients are given as slices, so that a caller can cut them into strips for its threads.

use crate::error::MathError;
use crate::kernels::convert::{ConversionTables, combine, portable, prepare};
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::kernels::fma;
#[cfg(target_arch = "x86_64")]
use crate::kernels::ifma;
use crate::machine::cpu::Cpu;
use crate::rns::RnsBasis;

/// A conversion from the primes `from` to the primes `to`, prepared once.
pub struct BaseConverter {
    tables: ConversionTables,
    #[cfg(target_arch = "x86_64")]
    ifma: Option<ifma::Converter>,
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    fma: Option<fma::Converter>,
}

impl BaseConverter {
    /// Prepares the conversion between primes of `basis`, named by index. A prime may be in both lists.
    ///
    /// # Errors
    /// [`MathError::InvalidBasis`] if `from` is empty, or a list repeats an index or contains one that the basis lacks.
    pub fn new(basis: &RnsBasis, from: &[usize], to: &[usize]) -> Result<BaseConverter, MathError> {
        BaseConverter::with_cpu(basis, from, to, Cpu::get())
    }

    /// As [`BaseConverter::new`], with the kernel that `cpu` allows: for tests and measurements.
    ///
    /// # Errors
    /// As [`BaseConverter::new`].
    pub fn with_cpu(basis: &RnsBasis, from: &[usize], to: &[usize], cpu: Cpu) -> Result<BaseConverter, MathError> {
        let refused = |ids: &[usize]| {
            let unknown = ids.iter().any(|&id| id >= basis.len());
            unknown || ids.iter().enumerate().any(|(i, id)| ids[..i].contains(id))
        };
        if from.is_empty() || refused(from) || refused(to) {
            return Err(MathError::InvalidBasis { max: RnsBasis::MAX_LIMBS });
        }
        let moduli = |ids: &[usize]| -> Vec<_> { ids.iter().map(|&i| *basis.modulus(i)).collect() };
        let tables = ConversionTables::new(&moduli(from), &moduli(to));
        let _ = cpu;
        Ok(BaseConverter {
            #[cfg(target_arch = "x86_64")]
            ifma: cpu.ifma().map(|token| ifma::Converter::new(token, &tables)),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            fma: cpu.fma().map(|token| fma::Converter::new(token, &tables)),
            tables,
        })
    }

    /// Number of primes converted from.
    pub fn sources(&self) -> usize {
        self.tables.sources.len()
    }

    /// Number of primes converted to.
    pub fn targets(&self) -> usize {
        self.tables.targets.len()
    }

    /// `out[j]` ← X mod t_j, where X is the integer in (−F/2, F/2) with the residues `src[i]` in [0, f_i), and F the
    /// product of the primes of `from`. Takes coefficients, not values: one slice per prime, all of one length;
    /// multiples of 8 are fast. Every kernel gives the same words, in constant time.
    ///
    /// X is exact unless it is within k·2^−51·F of ±F/2, with k primes in `from`; there it may be off by F.
    ///
    /// # Panics
    /// If there are not as many slices as primes, or their lengths differ.
    pub fn convert(&self, src: &[&[u64]], out: &mut [&mut [u64]]) {
        assert_eq!(src.len(), self.sources(), "one slice a prime converted from");
        assert_eq!(out.len(), self.targets(), "one slice a prime converted to");
        let length = src[0].len();
        let same = src.iter().all(|x| x.len() == length) && out.iter().all(|x| x.len() == length);
        assert!(same, "slices of one length");
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.ifma
            && length.is_multiple_of(8)
        {
            return kernel.convert(src, out);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(kernel) = &self.fma {
            return kernel.convert(src, out);
        }
        portable(&self.tables, src, out);
    }

    /// Computes what conversions from one set of primes to several others share: the terms of their sums, one row per
    /// prime, and the quotients in one more row. The first rows hold the residues, as in [`BaseConverter::convert`],
    /// and are overwritten. Any of the conversions may compute the terms. They are as secret as the residues.
    ///
    /// # Panics
    /// If there is not one row per prime converted from and one more, or their lengths differ.
    pub fn prepare(&self, terms: &mut [&mut [u64]]) {
        assert_eq!(terms.len(), self.sources() + 1, "a row a prime, and one");
        let length = terms[0].len();
        let same = terms.iter().all(|x| x.len() == length);
        assert!(same, "slices of one length");
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.ifma
            && length.is_multiple_of(8)
        {
            return kernel.prepare(terms);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(kernel) = &self.fma {
            return kernel.prepare(terms);
        }
        prepare(&self.tables, terms);
    }

    /// Computes what [`BaseConverter::convert`] does, from the terms made by [`BaseConverter::prepare`].
    ///
    /// # Panics
    /// If there is not one slice per prime, and one more in `terms`, or their lengths differ.
    pub fn combine(&self, terms: &[&[u64]], out: &mut [&mut [u64]]) {
        assert!(
            terms.len() == self.sources() + 1 && out.len() == self.targets(),
            "one slice a prime, and the quotients"
        );
        let length = terms[0].len();
        let same = terms.iter().all(|x| x.len() == length) && out.iter().all(|x| x.len() == length);
        assert!(same, "slices of one length");
        #[cfg(target_arch = "x86_64")]
        if let Some(kernel) = &self.ifma
            && length.is_multiple_of(8)
        {
            return kernel.combine(terms, out);
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(kernel) = &self.fma {
            return kernel.combine(terms, out);
        }
        combine(&self.tables, terms, out);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::primes::ntt_primes;
    use crate::rng::SecretRng;
    use num_bigint::{BigInt, BigUint};
    use std::sync::Arc;

    /// Primes of 50, 49, 41 and 30 bits in turn.
    fn basis(count: usize) -> Arc<RnsBasis> {
        let mut lists = [50, 49, 41, 30].map(|bits| ntt_primes(bits, 8, count).into_iter());
        let primes: Vec<u64> = (0..count).filter_map(|i| lists[i % 4].next()).collect();
        RnsBasis::new(8, &primes).unwrap()
    }

    fn residue(x: &BigInt, q: u64) -> u64 {
        let q = BigInt::from(q);
        u64::try_from(((x % &q) + &q) % &q).unwrap()
    }

    /// Centred integers: near zero, near both ends but outside the doubtful margin, and anywhere.
    fn integers(product: &BigUint, sources: usize, count: usize, rng: &mut SecretRng) -> Vec<BigInt> {
        let half = BigInt::from(product >> 1_u32);
        let margin = BigInt::from((product * sources) >> 51_u32) + 1;
        let mut all: Vec<BigInt> = (-3..=3).map(BigInt::from).collect();
        if half > margin {
            all.extend([&half - &margin, &margin - &half]);
        }
        while all.len() < count {
            let words: Vec<u32> = (0..2 * sources + 2).map(|_| rng.next_u64() as u32).collect();
            let x = BigInt::from(BigUint::new(words) % product) - &half;
            if BigInt::from(x.magnitude().clone()) <= &half - &margin {
                all.push(x);
            }
        }
        all.truncate(count);
        all
    }

    #[test]
    fn converts_centred_integers_exactly_on_every_kernel() {
        let mut rng = SecretRng::insecure_from_seed(1);
        let basis = basis(60);
        let ids: Vec<usize> = (0..basis.len()).collect();
        // Lists that fit one reduction and lists that need several, with and without common primes.
        for (from, to) in [
            (&ids[..1], &ids[..9]),
            (&ids[3..4], &ids[..4]),
            (&ids[..2], &ids[2..20]),
            (&ids[4..12], &ids[..12]),
            (&ids[8..19], &ids[19..30]),
            (&ids[8..20], &ids[15..30]),
            (&ids[..40], &ids[..60]),
            (&ids[..3], &ids[..0]),
        ] {
            let product: BigUint = from.iter().map(|&i| basis.modulus(i).value()).product();
            for length in [8, 9, 64, 304] {
                let x = integers(&product, from.len(), length, &mut rng);
                let limb = |&i: &usize| -> Vec<u64> {
                    let q = basis.modulus(i).value();
                    x.iter().map(|x| residue(x, q)).collect()
                };
                let source: Vec<Vec<u64>> = from.iter().map(limb).collect();
                let expected: Vec<Vec<u64>> = to.iter().map(limb).collect();
                let source: Vec<&[u64]> = source.iter().map(Vec::as_slice).collect();
                for cpu in Cpu::variants() {
                    let converter = BaseConverter::with_cpu(&basis, from, to, cpu).unwrap();
                    let mut out = vec![vec![u64::MAX; length]; to.len()];
                    let mut slices: Vec<&mut [u64]> = out.iter_mut().map(Vec::as_mut_slice).collect();
                    converter.convert(&source, &mut slices);
                    assert!(out == expected, "{from:?} to {to:?}, {length} coefficients");
                    // In two steps.
                    let mut terms: Vec<Vec<u64>> = source.iter().map(|x| x.to_vec()).collect();
                    terms.push(vec![u64::MAX; length]);
                    let mut rows: Vec<&mut [u64]> = terms.iter_mut().map(Vec::as_mut_slice).collect();
                    converter.prepare(&mut rows);
                    let rows: Vec<&[u64]> = terms.iter().map(Vec::as_slice).collect();
                    let mut again = vec![vec![u64::MAX; length]; to.len()];
                    let mut slices: Vec<&mut [u64]> = again.iter_mut().map(Vec::as_mut_slice).collect();
                    converter.combine(&rows, &mut slices);
                    assert!(again == expected, "{from:?} to {to:?}, {length} coefficients");
                }
            }
        }
    }

    #[test]
    fn kernels_agree_on_any_residues_and_the_margin_is_off_by_the_product_at_most() {
        let mut rng = SecretRng::insecure_from_seed(2);
        let basis = basis(24);
        let (from, to): (Vec<usize>, Vec<usize>) = ((0..24).step_by(4).collect(), (0..24).collect());
        let product: BigUint = from.iter().map(|&i| basis.modulus(i).value()).product();
        let half = BigInt::from(&product >> 1_u32);
        // All residues at their maximum, then the integers around F/2, then random residues.
        let mut x: Vec<BigInt> = vec![BigInt::from(-1); 8];
        x.extend((-4..4).map(|i| &half + i));
        let mut source: Vec<Vec<u64>> =
            from.iter().map(|&i| x.iter().map(|x| residue(x, basis.modulus(i).value())).collect()).collect();
        for (limb, &i) in source.iter_mut().zip(&from) {
            limb.extend((0..496).map(|_| rng.next_u64() % basis.modulus(i).value()));
        }
        let source: Vec<&[u64]> = source.iter().map(Vec::as_slice).collect();
        let mut results = Vec::new();
        for cpu in Cpu::variants() {
            let converter = BaseConverter::with_cpu(&basis, &from, &to, cpu).unwrap();
            let mut out = vec![vec![0; 512]; to.len()];
            let mut slices: Vec<&mut [u64]> = out.iter_mut().map(Vec::as_mut_slice).collect();
            converter.convert(&source, &mut slices);
            results.push(out);
        }
        assert!(results.iter().all(|out| *out == results[0]));
        let product = BigInt::from(product);
        for (i, x) in x.iter().enumerate() {
            let found: Vec<u64> = results[0].iter().map(|limb| limb[i]).collect();
            let fits = [0, -1].iter().any(|v| {
                let wanted = x + &product * v;
                to.iter().zip(&found).all(|(&j, &r)| r == residue(&wanted, basis.modulus(j).value()))
            });
            assert!(fits, "{x}");
        }
    }

    #[test]
    fn refuses_lists_that_are_no_bases() {
        let basis = basis(4);
        let refused = |from: &[usize], to: &[usize]| BaseConverter::new(&basis, from, to).is_err();
        assert!(refused(&[], &[1]) && refused(&[0, 0], &[1]) && refused(&[4], &[1]));
        assert!(refused(&[0], &[1, 1]) && refused(&[0], &[4]));
        let converter = BaseConverter::new(&basis, &[0, 2], &[0, 1, 3]).unwrap();
        assert_eq!((converter.sources(), converter.targets()), (2, 3));
    }
}
