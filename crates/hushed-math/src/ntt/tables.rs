//! A transform prepared for one degree and one modulus, with its kernel chosen once.

use super::Twiddles;
use crate::error::MathError;
#[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
use crate::kernels::fma;
#[cfg(target_arch = "x86_64")]
use crate::kernels::ifma;
use crate::kernels::{Pointwise, portable};
use crate::machine::cpu::Cpu;
#[cfg(target_arch = "x86_64")]
use crate::machine::cpu::HaveIfma;
use crate::modulus::Modulus;
use crate::primes::is_prime;

/// Largest log2 of a degree: the portable kernel's lazy sums are bounded up to it.
const MAX_LOG_N: u32 = 20;

/// Smallest block of words from which a kernel can start in the middle of a transform.
const LEAST_BLOCK: usize = 64;

/// Tables and kernel of one transform. Shared by reference; never changes.
pub struct NttTables {
    n: usize,
    psi: u64,
    cpu: Cpu,
    pointwise: Pointwise,
    tables: Tables,
    /// The factor of the second layer in each quarter.
    quarters: [u64; 4],
}

enum Tables {
    Portable(portable::Tables),
    #[cfg(target_arch = "x86_64")]
    Ifma(HaveIfma, ifma::Tables),
    #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
    Fma(fma::Tables),
}

impl NttTables {
    /// The tables for degree `n` (a power of two up to 2^20) and a prime modulus q ≡ 1 mod 2n.
    ///
    /// # Errors
    /// [`MathError::InvalidDegree`], or [`MathError::NoTransform`] if q is composite or lacks the root of unity.
    pub fn new(n: usize, modulus: Modulus) -> Result<NttTables, MathError> {
        NttTables::with_cpu(n, modulus, Cpu::get())
    }

    /// As [`NttTables::new`], with the kernel that `cpu` allows: for tests and measurements.
    pub fn with_cpu(n: usize, modulus: Modulus, cpu: Cpu) -> Result<NttTables, MathError> {
        if !n.is_power_of_two() || n.trailing_zeros() > MAX_LOG_N {
            return Err(MathError::InvalidDegree { n });
        }
        let psi = root_of_unity(n, &modulus)?;
        Ok(NttTables::with_root(n, modulus, psi, cpu))
    }

    fn with_root(n: usize, modulus: Modulus, psi: u64, cpu: Cpu) -> NttTables {
        let twiddles = Twiddles::new(n, &modulus, psi);
        NttTables {
            n,
            psi,
            cpu,
            pointwise: Pointwise::with_cpu(modulus, cpu),
            tables: Tables::new(&modulus, &twiddles, cpu),
            quarters: [0, 1, 2, 3].map(|quarter| {
                let twiddle = twiddles.forward.get(2 + quarter / 2).map_or(0, |&w| w);
                match quarter % 2 {
                    0 => twiddle,
                    _ => modulus.neg(twiddle),
                }
            }),
        }
    }

    /// The tables for degree `n`, a divisor of this one's, under the same modulus and with the same kernels.
    ///
    /// # Panics
    /// If `n` is not a power of two, or is larger than this degree.
    pub fn shorter(&self, n: usize) -> NttTables {
        assert!(n.is_power_of_two() && n <= self.n, "a divisor");
        let psi = self.modulus().pow(self.psi, (self.n / n) as u64);
        NttTables::with_root(n, *self.modulus(), psi, self.cpu)
    }

    /// The degree n.
    pub fn n(&self) -> usize {
        self.n
    }

    /// The modulus q.
    pub fn modulus(&self) -> &Modulus {
        self.pointwise.modulus()
    }

    /// The primitive 2n-th root of unity ψ.
    pub fn psi(&self) -> u64 {
        self.psi
    }

    /// The instruction sets by which the kernels were chosen.
    pub(crate) fn cpu(&self) -> Cpu {
        self.cpu
    }

    /// Arithmetic on whole limbs of this modulus.
    pub fn pointwise(&self) -> &Pointwise {
        &self.pointwise
    }

    /// Coefficients in [0, q) to values in [0, q), in place; order as in the module's header.
    ///
    /// # Panics
    /// If `a` does not have n words.
    pub fn forward(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n, "one word a coefficient");
        self.transform(a, 0, 0);
    }

    /// As [`NttTables::forward`], but without the last reductions where the kernel can: only
    /// [`crate::Automorphism::dot_pair_of_turned`] takes words in this form.
    ///
    /// # Panics
    /// If `a` does not have n words.
    pub fn forward_loose(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n, "one word a coefficient");
        match &self.tables {
            #[cfg(target_arch = "x86_64")]
            Tables::Ifma(token, tables) => ifma::forward_loose(*token, tables, a),
            _ => self.transform(a, 0, 0),
        }
    }

    /// Runs the layers after the first 2·`skipped`, on the blocks from `first` on.
    fn transform(&self, a: &mut [u64], skipped: u32, first: usize) {
        match &self.tables {
            Tables::Portable(tables) => {
                portable::forward(self.modulus(), tables, a, skipped, first);
            }
            #[cfg(target_arch = "x86_64")]
            Tables::Ifma(token, tables) => ifma::forward(*token, tables, a, skipped, first),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Tables::Fma(tables) => fma::forward(tables, a, skipped, first),
        }
    }

    /// Consecutive values of the transform, from `start` on and as many as `out` has, of a polynomial whose first
    /// coefficients are `prefix` and whose others are zero.
    ///
    /// A layer whose blocks have their nonzero words in the first half outputs that half twice, (x, 0) → (x, x). Such
    /// layers are copies, and the blocks of the next layer are independent of each other.
    ///
    /// # Panics
    /// Unless `start` and the length of `out` are multiples of [`NttTables::strip_unit`] within n.
    pub fn forward_strip(&self, prefix: &[u64], start: usize, out: &mut [u64]) {
        let unit = self.strip_unit(prefix.len());
        assert!(start.is_multiple_of(unit) && out.len().is_multiple_of(unit), "whole blocks");
        assert!(start + out.len() <= self.n, "blocks within the transform");
        for block in out.chunks_exact_mut(unit) {
            let (head, tail) = block.split_at_mut(prefix.len());
            head.copy_from_slice(prefix);
            tail.fill(0);
        }
        self.transform(out, (self.n / unit).trailing_zeros() / 2, start / unit);
    }

    /// The values of one of `parts` (1, 2 or 4) equal strips of the transform of a polynomial whose first coefficients
    /// are `prefix`, at most half of all, and whose others are zero.
    ///
    /// # Panics
    /// Unless `parts` is one of these, `prefix` has at most n/2 words, `out` n/`parts`, and a quarter at least 64.
    pub fn forward_part(&self, prefix: &[u64], part: usize, parts: usize, out: &mut [u64]) {
        assert!([1, 2, 4].contains(&parts) && part < parts && 2 * prefix.len() <= self.n);
        let words = self.n / parts;
        assert_eq!(out.len(), words, "a value a point");
        if parts == 1 || words.is_multiple_of(self.strip_unit(prefix.len())) {
            return self.forward_strip(prefix, part * words, out);
        }
        let quarter = self.n / 4;
        assert!(quarter >= LEAST_BLOCK, "strips that kernels take");
        // The first layer turns (x, 0) into (x, x); in the second, a quarter holds one result of each butterfly.
        let (x, y) = prefix.split_at(quarter);
        let first = part * 4 / parts;
        for (out, &factor) in out.chunks_exact_mut(quarter).zip(&self.quarters[first..]) {
            out.copy_from_slice(x);
            self.pointwise.mul_scalar_add_assign(&mut out[..y.len()], y, factor);
        }
        self.transform(out, 1, first);
    }

    /// The granularity of [`NttTables::forward_strip`] for a polynomial of `prefix` coefficients: a power of two that
    /// divides n and is less than 4·max(`prefix`, 64).
    ///
    /// # Panics
    /// If `prefix` > n.
    pub fn strip_unit(&self, prefix: usize) -> usize {
        assert!(prefix <= self.n, "one word a coefficient");
        // Kernels take two layers at a time and need blocks of a least length.
        let block = prefix.next_power_of_two().max(LEAST_BLOCK).min(self.n);
        self.n >> ((self.n / block).trailing_zeros() & !1)
    }

    /// Values in [0, q) to coefficients in [0, q), in place.
    ///
    /// # Panics
    /// If `a` does not have n words.
    pub fn inverse(&self, a: &mut [u64]) {
        assert_eq!(a.len(), self.n, "one word a value");
        match &self.tables {
            Tables::Portable(tables) => portable::inverse(self.modulus(), tables, a),
            #[cfg(target_arch = "x86_64")]
            Tables::Ifma(token, tables) => ifma::inverse(*token, tables, a),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Tables::Fma(tables) => fma::inverse(tables, a),
        }
    }

    /// As [`NttTables::inverse`], from `values`, left unchanged, to `out`: without a copy first where the kernel can.
    ///
    /// # Panics
    /// If a slice does not have n words.
    pub fn inverse_from(&self, values: &[u64], out: &mut [u64]) {
        let whole = values.len() == self.n && out.len() == self.n;
        assert!(whole, "one word a value");
        match &self.tables {
            Tables::Portable(tables) => {
                out.copy_from_slice(values);
                portable::inverse(self.modulus(), tables, out);
            }
            #[cfg(target_arch = "x86_64")]
            Tables::Ifma(token, tables) => ifma::inverse_from(*token, tables, values, out),
            #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
            Tables::Fma(tables) => {
                out.copy_from_slice(values);
                fma::inverse(tables, out);
            }
        }
    }

    /// Writes the transform of the monomial X^exponent (exponent modulo 2n) in n multiplications: value k is
    /// ψ^(e·(2·rev(k)+1)), and bit b of k contributes the factor ψ^(e·n/2^b).
    pub(crate) fn monomial(&self, exponent: usize, out: &mut [u64]) {
        assert_eq!(out.len(), self.n, "one word a value");
        let (m, log_n) = (self.modulus(), self.n.trailing_zeros());
        out[0] = m.pow(self.psi, exponent as u64);
        for b in 0..log_n {
            let factor = m.pow(self.psi, (exponent << (log_n - b)) as u64);
            let (low, high) = out[..2 << b].split_at_mut(1 << b);
            high.copy_from_slice(low);
            self.pointwise.mul_scalar_assign(high, factor);
        }
    }
}

impl Tables {
    fn new(modulus: &Modulus, twiddles: &Twiddles, cpu: Cpu) -> Tables {
        #[cfg(target_arch = "x86_64")]
        if let Some(token) = cpu.ifma()
            && twiddles.forward.len() >= ifma::MIN_N
        {
            return Tables::Ifma(token, ifma::Tables::new(modulus, twiddles));
        }
        #[cfg(any(target_arch = "x86_64", target_arch = "aarch64"))]
        if let Some(token) = cpu.fma()
            && twiddles.forward.len() >= fma::MIN_N
        {
            return Tables::Fma(fma::Tables::new(token, modulus, twiddles));
        }
        let _ = cpu;
        Tables::Portable(portable::Tables::new(modulus, twiddles))
    }
}

fn root_of_unity(n: usize, modulus: &Modulus) -> Result<u64, MathError> {
    let q = modulus.value();
    let order = 2 * n as u64;
    if !(q - 1).is_multiple_of(order) || !is_prime(q) {
        return Err(MathError::NoTransform { value: q, n });
    }
    // Half of all g give a root of full order.
    (2..q)
        .map(|g| modulus.pow(g, (q - 1) / order))
        .find(|&psi| modulus.pow(psi, n as u64) == q - 1)
        .ok_or(MathError::NoTransform { value: q, n })
}
