//! Change of residue number system: sums of products reduced once per target, by Montgomery's method.
//!
//! For one target t: S = Σ y_i·c_i with c_i = 2^52·(F/f_i) mod t is held as low + 2^52·high, each a sum of halves. With
//! m = low·t^−1 mod 2^52 the low halves of S and m·t agree, so S − m·t is a multiple of 2^52, and
//! r = high + ⌊low/2^52⌋ − ⌊m·t/2^52⌋ is S/2^52 modulo t: one multiply-add for m and one for its product, where
//! Barrett's reduction of the two words took eight. As ⌊m·t/2^52⌋ < t, `high` begins at t, and
//!
//! ```text
//! 0 < r ≤ t + Σ f_i·t/2^52 + the number of terms
//! ```
//!
//! which for 11 terms of 50 bits is below 4t, so that two conditional subtractions reduce it. More terms are cut into
//! groups; a later group begins at t plus the residue of the groups before it.

use super::lanes::{Factor, Lanes, MASK, csub, load, shoup52, splat, store};
use crate::kernels::convert::{ConversionTables, POINT};
use crate::machine::cpu::HaveIfma;
use crate::words::Words;
use std::arch::x86_64::*;
use std::ops::Range;
use zeroize::Zeroize;

/// Words of a strip: the y_i and the quotients of ten sources stay in the first-level cache.
const STRIP: usize = 256;

/// Registers of a strip that share the factors: with two sums each, enough chains to fill the latency.
const WIDTH: usize = 4;

/// Constants of one conversion; its existence proves that the kernel may run.
pub(crate) struct Converter {
    sources: Box<[Source]>,
    targets: Box<[Target]>,
    rounding: u64,
    /// Terms of each reduction; the quotient is the last term.
    groups: Box<[Range<usize>]>,
}

struct Source {
    constants: super::lanes::Constants,
    /// (F/f)^−1 mod f and its w'.
    inverse: [u64; 2],
    /// 52 − the bits of f.
    shift: u64,
    ratio: u64,
}

struct Target {
    constants: super::lanes::Constants,
    /// t^−1 mod 2^52.
    inverse: u64,
    /// 2^52·(the factor of each term) mod t.
    factors: Box<[u64]>,
}

impl Converter {
    /// `_token`: `convert` relies on the instruction sets that it proves.
    pub(crate) fn new(_token: HaveIfma, tables: &ConversionTables) -> Converter {
        let source = |source: &crate::kernels::convert::Source| Source {
            constants: super::lanes::Constants::new(&source.modulus),
            inverse: [source.inverse, shoup52(source.inverse, source.modulus.value())],
            shift: u64::from(52 - source.modulus.bits()),
            ratio: source.ratio,
        };
        let target = |target: &crate::kernels::convert::Target| {
            let t = &target.modulus;
            let power = t.reduce(1 << 52);
            Target {
                constants: super::lanes::Constants::new(t),
                inverse: inverse52(t.value()),
                factors: target.factors.iter().map(|&c| t.mul(c, power)).collect(),
            }
        };
        Converter {
            sources: tables.sources.iter().map(source).collect(),
            targets: tables.targets.iter().map(target).collect(),
            rounding: tables.rounding(),
            groups: groups(tables),
        }
    }

    /// As the portable kernel; the length of the slices is a multiple of 8.
    pub(crate) fn convert(&self, src: &[&[u64]], out: &mut [&mut [u64]]) {
        let length = src[0].len();
        assert!(length.is_multiple_of(8), "whole registers");
        assert!(src.len() == self.sources.len() && out.len() == self.targets.len());
        assert!(src.iter().all(|x| x.len() == length) && out.iter().all(|x| x.len() == length));
        if let ([first, second], [_]) = (&*self.sources, &*self.groups) {
            // SAFETY: the token of `new` proves the instruction sets; all slices have `length` words.
            return unsafe { self.convert_two([first, second], [src[0], src[1]], out) };
        }
        let mut terms = Words::zero((self.sources.len() + 1) * STRIP);
        let rows: Vec<*mut u64> = terms.chunks_exact_mut(STRIP).map(<[u64]>::as_mut_ptr).collect();
        let src: Vec<*const u64> = src.iter().map(|x| x.as_ptr()).collect();
        for start in (0..length).step_by(STRIP) {
            let strip = STRIP.min(length - start);
            // SAFETY: the token of `new` proves the instruction sets; all slices have words start .. start + strip, and
            // `terms` has STRIP words for each source and the quotient.
            unsafe {
                self.prepare_strip(&src, start, strip, &rows, 0);
                self.combine_strip(&rows, 0, strip, out, start);
            }
        }
        terms.zeroize();
    }

    /// Converts from two primes, whose terms stay in registers.
    ///
    /// # Safety
    /// The processor has AVX-512 F, DQ and IFMA; there is a slice for each target, all slices have one length, a
    /// multiple of 8, and one reduction takes all terms.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn convert_two(&self, [first, second]: [&Source; 2], [x0, x1]: [&[u64]; 2], out: &mut [&mut [u64]]) {
        let (first, second) = (Term::new(first), Term::new(second));
        let rounding = splat(self.rounding);
        for at in (0..x0.len()).step_by(8) {
            // SAFETY: by the contract of this function; targets have a factor for each term.
            unsafe {
                let (y0, quotient) = first.of(load(x0.as_ptr().add(at)), rounding);
                let (y1, quotient) = second.of(load(x1.as_ptr().add(at)), quotient);
                let terms = [y0, y1, _mm512_srli_epi64::<POINT>(quotient)];
                for (target, out) in self.targets.iter().zip(&mut *out) {
                    let lanes = Lanes::new(&target.constants);
                    let (mut low, mut high) = (_mm512_setzero_si512(), lanes.q);
                    for (i, y) in terms.into_iter().enumerate() {
                        let c = splat(*target.factors.get_unchecked(i));
                        low = _mm512_madd52lo_epu64(low, y, c);
                        high = _mm512_madd52hi_epu64(high, y, c);
                    }
                    let r = reduce(&lanes, splat(target.inverse), low, high);
                    store(out.as_mut_ptr().add(at), r);
                }
            }
        }
    }

    /// As the portable kernel; the length of the slices is a multiple of 8.
    pub(crate) fn prepare(&self, terms: &mut [&mut [u64]]) {
        let length = terms[0].len();
        assert!(length.is_multiple_of(8), "whole registers");
        assert!(terms.len() == self.sources.len() + 1);
        assert!(terms.iter().all(|x| x.len() == length));
        let rows: Vec<*mut u64> = terms.iter_mut().map(|row| row.as_mut_ptr()).collect();
        let src: Vec<*const u64> = rows[..self.sources.len()].iter().map(|row| row.cast_const()).collect();
        for start in (0..length).step_by(STRIP) {
            let strip = STRIP.min(length - start);
            // SAFETY: the token of `new` proves the instruction sets; all slices have words start .. start + strip, and
            // a word is read before it is written.
            unsafe { self.prepare_strip(&src, start, strip, &rows, start) };
        }
    }

    /// As the portable kernel; the length of the slices is a multiple of 8.
    pub(crate) fn combine(&self, terms: &[&[u64]], out: &mut [&mut [u64]]) {
        let length = terms[0].len();
        assert!(length.is_multiple_of(8), "whole registers");
        assert!(terms.len() == self.sources.len() + 1 && out.len() == self.targets.len());
        assert!(terms.iter().all(|x| x.len() == length) && out.iter().all(|x| x.len() == length));
        // These are only read.
        let rows: Vec<*mut u64> = terms.iter().map(|row| row.as_ptr().cast_mut()).collect();
        for start in (0..length).step_by(STRIP) {
            let strip = STRIP.min(length - start);
            // SAFETY: the token of `new` proves the instruction sets; all slices have words start .. start + strip.
            unsafe { self.combine_strip(&rows, start, strip, out, start) };
        }
    }

    /// Writes the y_i of a strip to row i of `rows`, from word `to` on, and the quotients to the last row.
    ///
    /// # Safety
    /// The processor has AVX-512 F, DQ and IFMA; `src` has words start .. start + strip; `rows` has a row for each
    /// source and one more, each writable at words to .. to + strip, in the place of `src` or apart from it.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn prepare_strip(&self, src: &[*const u64], start: usize, strip: usize, rows: &[*mut u64], to: usize) {
        // SAFETY: by the contract of this function.
        unsafe {
            let quotients = rows[self.sources.len()].add(to);
            for at in (0..strip).step_by(8) {
                store(quotients.add(at), splat(self.rounding));
            }
            for ((source, x), row) in self.sources.iter().zip(src).zip(rows) {
                let term = Term::new(source);
                let (x, row) = (x.add(start), row.add(to));
                for at in (0..strip).step_by(8) {
                    let (y, sum) = term.of(load(x.add(at)), load(quotients.add(at)));
                    store(row.add(at), y);
                    store(quotients.add(at), sum);
                }
            }
            for at in (0..strip).step_by(8) {
                let sum = load(quotients.add(at));
                store(quotients.add(at), _mm512_srli_epi64::<POINT>(sum));
            }
        }
    }

    /// Computes the residues of all targets for a strip of terms.
    ///
    /// # Safety
    /// As `prepare_strip`, but `rows` are only read; `out` has words to .. to + strip.
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn combine_strip(&self, rows: &[*mut u64], start: usize, strip: usize, out: &mut [&mut [u64]], to: usize) {
        let targets = self.targets.len();
        for (number, (target, out)) in self.targets.iter().zip(out).enumerate() {
            // SAFETY: by the contract of this function; a prefetch beyond a row is a hint like any other.
            unsafe {
                let out = out.as_mut_ptr().add(to);
                let mut at = 0;
                while at + 8 * WIDTH <= strip {
                    // Prefetches the next strip, a share of it with each target: rows lie apart, and the processor is
                    // too late in detecting streams that begin anew on every page.
                    for k in (number..WIDTH).step_by(targets) {
                        for row in rows {
                            let next = row.wrapping_add(start + STRIP + at + 8 * k);
                            _mm_prefetch::<_MM_HINT_T0>(next.cast_const().cast());
                        }
                    }
                    self.sum::<WIDTH>(target, rows, start + at, out.add(at));
                    at += 8 * WIDTH;
                }
                while at < strip {
                    self.sum::<1>(target, rows, start + at, out.add(at));
                    at += 8;
                }
            }
        }
    }

    /// Computes `8·WIDTH` residues of one target from the terms at word `at` of the rows on.
    ///
    /// # Safety
    /// As `combine_strip`; the rows have words at .. at + 8·WIDTH and `out` 8·WIDTH words.
    #[inline]
    #[target_feature(enable = "avx512f,avx512dq,avx512vl,avx512bw,avx512ifma")]
    unsafe fn sum<const WIDTH: usize>(&self, target: &Target, rows: &[*mut u64], at: usize, out: *mut u64) {
        let lanes = Lanes::new(&target.constants);
        let inverse = splat(target.inverse);
        let mut high = [lanes.q; WIDTH];
        for (number, group) in self.groups.iter().enumerate() {
            let mut low = [_mm512_setzero_si512(); WIDTH];
            // SAFETY: groups are within the terms, which have a row and a factor each.
            unsafe {
                for i in group.clone() {
                    let c = splat(*target.factors.get_unchecked(i));
                    let row = rows.get_unchecked(i).add(at).cast_const();
                    for k in 0..WIDTH {
                        let y = load(row.add(8 * k));
                        low[k] = _mm512_madd52lo_epu64(low[k], y, c);
                        high[k] = _mm512_madd52hi_epu64(high[k], y, c);
                    }
                }
            }
            let last = number + 1 == self.groups.len();
            for k in 0..WIDTH {
                let r = reduce(&lanes, inverse, low[k], high[k]);
                if last {
                    // SAFETY: by the contract of this function.
                    unsafe { store(out.add(8 * k), r) };
                } else {
                    high[k] = _mm512_add_epi64(r, lanes.q);
                }
            }
        }
    }
}

/// The constants for the terms of one source, in registers.
struct Term {
    lanes: Lanes,
    inverse: Factor,
    shift: __m512i,
    ratio: __m512i,
}

impl Term {
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn new(source: &Source) -> Term {
        Term {
            lanes: Lanes::new(&source.constants),
            inverse: Factor { w: splat(source.inverse[0]), shoup: splat(source.inverse[1]) },
            shift: splat(source.shift),
            ratio: splat(source.ratio),
        }
    }

    /// Returns y for the residues x, and the sum of quotients with that of y added.
    #[inline]
    #[target_feature(enable = "avx512f,avx512ifma")]
    fn of(&self, x: __m512i, quotients: __m512i) -> (__m512i, __m512i) {
        let y = self.lanes.finish(self.lanes.mul(x, self.inverse));
        let shifted = _mm512_sllv_epi64(y, self.shift);
        (y, _mm512_madd52hi_epu64(quotients, shifted, self.ratio))
    }
}

/// (low + 2^52·high)/2^52 modulo t, for sums as in the header; `inverse` is t^−1 modulo 2^52.
#[inline]
#[target_feature(enable = "avx512f,avx512ifma")]
fn reduce(lanes: &Lanes, inverse: __m512i, low: __m512i, high: __m512i) -> __m512i {
    let zero = _mm512_setzero_si512();
    let m = _mm512_madd52lo_epu64(zero, low, inverse);
    let upper = _mm512_add_epi64(high, _mm512_srli_epi64::<52>(low));
    let r = _mm512_sub_epi64(upper, _mm512_madd52hi_epu64(zero, m, lanes.q));
    csub(csub(r, lanes.q2), lanes.q)
}

/// Cuts the terms so that every sum of every target stays below 4t; a group has at least one term.
fn groups(tables: &ConversionTables) -> Box<[Range<usize>]> {
    let sources = tables.sources.len();
    // Exclusive bounds of the terms: f_i, and one more than the largest quotient.
    let bounds = tables.sources.iter().map(|s| s.modulus.value());
    let bounds: Vec<u64> = bounds.chain([sources as u64 + 1]).collect();
    // Whether these terms, added to the start of a sum, stay below 4t for every target.
    let fits = |terms: &Range<usize>, start: u64| {
        tables.targets.iter().all(|target| {
            let t = u128::from(target.modulus.value());
            let sum: u128 = bounds[terms.clone()].iter().map(|&f| u128::from(f)).sum();
            u128::from(start) * t + ((sum * t) >> 52) + 2 + terms.len() as u128 <= 4 * t
        })
    };
    let (mut groups, mut from) = (Vec::new(), 0);
    while from <= sources {
        let start = if from == 0 { 1 } else { 2 };
        let mut to = from + 1;
        while to <= sources && fits(&(from..to + 1), start) {
            to += 1;
        }
        groups.push(from..to);
        from = to;
    }
    groups.into()
}

/// t^−1 modulo 2^52 for odd t: each Newton step doubles the number of correct bits, from 3.
fn inverse52(t: u64) -> u64 {
    (0..5).fold(t, |x, _| x.wrapping_mul(2_u64.wrapping_sub(t.wrapping_mul(x)))) & MASK
}
