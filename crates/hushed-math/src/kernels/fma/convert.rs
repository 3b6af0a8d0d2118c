//! Change of residue number system, with the constants and the quotients of `kernels/convert.rs`. Between the two steps
//! the terms are numbers, as the bits of doubles, not words: every target reads them.
//!
//! The quotient of a term is exact to the unit, as in all kernels: y·ratio is h + l, and c = ⌊h/2^bits⌉ is too large by
//! one where (h − c·2^bits) + l is negative.

use super::lanes::Lanes;
use super::registers::{Constants, Registers, TOGETHER, centred, kernel};
use crate::kernels::convert::{ConversionTables, POINT};
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;
use zeroize::Zeroizing;

/// Words of a strip whose terms stay in the first-level cache: whole groups.
const STRIP: usize = 128;

/// Registers of one target whose sums are kept together.
const GROUP: usize = 4;

/// The constants of one conversion.
pub(crate) struct Converter {
    have: HaveFma,
    sources: Vec<Source>,
    targets: Vec<Target>,
    rounding: u64,
}

struct Source {
    constants: Constants,
    /// (F/f)^−1 mod f.
    inverse: f64,
    ratio: f64,
    /// 2^bits, for the bits of f.
    power: f64,
}

struct Target {
    constants: Constants,
    /// Factors of the terms, each with its ratio to the modulus.
    factors: Vec<[f64; 2]>,
}

impl Converter {
    pub(crate) fn new(have: HaveFma, tables: &ConversionTables) -> Converter {
        let sources = tables.sources.iter().map(|source| Source {
            constants: Constants::new(&source.modulus),
            inverse: centred(&source.modulus, source.inverse),
            ratio: source.ratio as f64,
            power: (1_u64 << source.modulus.bits()) as f64,
        });
        let factor = |modulus: &Modulus, w: u64| {
            let w = centred(modulus, w);
            [w, w / modulus.value() as f64]
        };
        let targets = tables.targets.iter().map(|target| Target {
            constants: Constants::new(&target.modulus),
            factors: target.factors.iter().map(|&w| factor(&target.modulus, w)).collect(),
        });
        Converter { have, sources: sources.collect(), targets: targets.collect(), rounding: tables.rounding() }
    }

    /// [`crate::BaseConverter::convert`] on slices of one length.
    pub(crate) fn convert(&self, src: &[&[u64]], out: &mut [&mut [u64]]) {
        let length = src[0].len();
        let mut terms = Zeroizing::new(vec![[0_u64; STRIP]; self.sources.len() + 1]);
        for start in (0..length).step_by(STRIP) {
            let words = STRIP.min(length - start);
            for (row, x) in terms.iter_mut().zip(src) {
                row[..words].copy_from_slice(&x[start..start + words]);
                row[words..].fill(0);
            }
            let mut rows: Vec<&mut [u64]> = terms.iter_mut().map(|row| &mut row[..]).collect();
            prepare(self.have, self, &mut rows);
            let rows: Vec<&[u64]> = rows.iter().map(|row| &**row).collect();
            let strips = out.iter_mut().map(|out| &mut out[start..start + words]);
            self.combine_strip(&rows, &mut strips.collect::<Vec<_>>());
        }
    }

    /// [`crate::BaseConverter::prepare`], to numbers.
    pub(crate) fn prepare(&self, terms: &mut [&mut [u64]]) {
        let length = terms[0].len();
        let whole = length - length % self.have.lanes();
        let mut rows: Vec<&mut [u64]> = terms.iter_mut().map(|row| &mut row[..whole]).collect();
        prepare(self.have, self, &mut rows);
        if whole < length {
            let rest = terms.iter().map(|row| filled(&row[whole..]));
            let mut rest = Zeroizing::new(rest.collect::<Vec<[u64; STRIP]>>());
            let mut rows: Vec<&mut [u64]> = rest.iter_mut().map(|row| &mut row[..]).collect();
            prepare(self.have, self, &mut rows);
            for (row, rest) in terms.iter_mut().zip(rest.iter()) {
                row[whole..].copy_from_slice(&rest[..length - whole]);
            }
        }
    }

    /// [`crate::BaseConverter::combine`], from numbers.
    pub(crate) fn combine(&self, terms: &[&[u64]], out: &mut [&mut [u64]]) {
        let length = terms[0].len();
        let whole = length - length % STRIP;
        for start in (0..whole).step_by(STRIP) {
            let rows: Vec<&[u64]> = terms.iter().map(|x| &x[start..start + STRIP]).collect();
            let strips = out.iter_mut().map(|out| &mut out[start..start + STRIP]);
            self.combine_strip(&rows, &mut strips.collect::<Vec<_>>());
        }
        if whole < length {
            let rest = terms.iter().map(|row| filled(&row[whole..]));
            let rest = Zeroizing::new(rest.collect::<Vec<[u64; STRIP]>>());
            let rows: Vec<&[u64]> = rest.iter().map(|row| &row[..]).collect();
            let strips = out.iter_mut().map(|out| &mut out[whole..]);
            self.combine_strip(&rows, &mut strips.collect::<Vec<_>>());
        }
    }

    /// Combines the terms of a whole strip into as many words as `out` has.
    fn combine_strip(&self, terms: &[&[u64]], out: &mut [&mut [u64]]) {
        for (target, out) in self.targets.iter().zip(out) {
            if let Ok(out) = <&mut [u64; STRIP]>::try_from(&mut **out) {
                combine(self.have, target, terms, out);
            } else {
                let mut words = [0; STRIP];
                combine(self.have, target, terms, &mut words);
                out.copy_from_slice(&words[..out.len()]);
            }
        }
    }
}

/// Less than a strip of words, padded with zeros.
fn filled(words: &[u64]) -> [u64; STRIP] {
    let mut filled = [0; STRIP];
    filled[..words.len()].copy_from_slice(words);
    filled
}

kernel! {
    /// Replaces the words x_i by the numbers y_i, then computes the quotients v.
    fn prepare(converter: &Converter, terms: &mut [&mut [u64]]) = prepare_body
}

#[inline(always)]
unsafe fn prepare_body<L: Lanes>(converter: &Converter, terms: &mut [&mut [u64]]) {
    let Some((v, rows)) = terms.split_last_mut() else {
        return;
    };
    assert!(rows.len() == converter.sources.len() && v.len().is_multiple_of(L::LANES));
    assert!(rows.iter().all(|row| row.len() == v.len()));
    const { assert!(POINT == 51) };
    v.fill(converter.rounding);
    // SAFETY: guaranteed by the caller; every access is within slices of one length.
    unsafe {
        for (row, source) in rows.iter_mut().zip(&converter.sources) {
            let r = Registers::<L>::new(&source.constants);
            let inverse = r.factor(L::splat(source.inverse));
            let (ratio, power) = (L::splat(source.ratio), L::splat(source.power));
            let down = L::splat(1.0 / source.power);
            for j in (0..row.len()).step_by(L::LANES) {
                let y = r.positive(r.times(r.load(row.as_ptr().add(j)), inverse));
                L::store(row.as_mut_ptr().add(j), L::as_words(y));
                let high = L::mul(y, ratio);
                let low = L::mul_sub(y, ratio, high);
                // Below 2^51, as the ratio is 2^51·2^bits/f at most.
                let rounded = L::mul_add(high, down, r.round);
                let c = L::sub(rounded, r.round);
                let rest = L::add(L::minus_mul_add(c, power, high), low);
                let c = L::sub_words(L::as_words(rounded), L::as_words(r.round));
                let quotient = L::add_words(c, L::negative(L::as_words(rest)));
                let sum = L::add_words(L::load(v.as_ptr().add(j)), quotient);
                L::store(v.as_mut_ptr().add(j), sum);
            }
        }
        let r = Registers::<L>::new(&converter.sources[0].constants);
        for j in (0..v.len()).step_by(L::LANES) {
            let quotient = r.number(L::shift_51(L::load(v.as_ptr().add(j))));
            L::store(v.as_mut_ptr().add(j), L::as_words(quotient));
        }
    }
}

kernel! {
    /// Σ terms·factors for one target.
    fn combine(target: &Target, terms: &[&[u64]], out: &mut [u64; STRIP]) = combine_body
}

#[inline(always)]
unsafe fn combine_body<L: Lanes>(target: &Target, terms: &[&[u64]], out: &mut [u64; STRIP]) {
    const { assert!(STRIP.is_multiple_of(8 * GROUP)) };
    assert!(terms.len() == target.factors.len());
    assert!(terms.iter().all(|terms| terms.len() == STRIP));
    // SAFETY: guaranteed by the caller; every access is within a strip.
    unsafe {
        let r = Registers::<L>::new(&target.constants);
        for at in (0..STRIP).step_by(GROUP * L::LANES) {
            let mut sums = [L::splat(0.0); GROUP];
            for (i, (terms, &[w, ratio])) in terms.iter().zip(&target.factors).enumerate() {
                let factor = [L::splat(w), L::splat(ratio)];
                for (g, sum) in sums.iter_mut().enumerate() {
                    // A residue of another modulus, below 2^50: the multiplicand of a factor may be one.
                    let term = L::load(terms.as_ptr().add(at + g * L::LANES));
                    *sum = L::add(*sum, r.times(L::as_numbers(term), factor));
                }
                if i % TOGETHER == TOGETHER - 1 {
                    for sum in &mut sums {
                        *sum = r.reduce(*sum);
                    }
                }
            }
            for (g, &sum) in sums.iter().enumerate() {
                L::store(out.as_mut_ptr().add(at + g * L::LANES), r.reduced_word(sum));
            }
        }
    }
}
