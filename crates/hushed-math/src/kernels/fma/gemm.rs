//! Products of matrices with limbs, in two sums of words.
//!
//! With C = 2^102, whose last bit is worth 2^50, x·w + C rounds x·w < 2^100 to a multiple of 2^50, and what that
//! leaves, in size at most 2^49, is x·w − (that multiple) exactly. Both are taken as words of 64 bits and added as
//! integers: less the bits of the constants they are integers of 50 bits, and a thousand of them fit. Three operations
//! on numbers and two on words a term, no reduction (Emmart, Zheng and Weems 2018, for integers of many words).
//!
//! Narrow weights, with l·q ≤ 2^51, have products that are integers of 52 bits with their signs: x·w + 1.5·2^52 is one,
//! and one sum is enough.

use super::lanes::Lanes;
use super::{Constants, ROUND, Registers, centred, kernel};
use crate::cpu::HaveFma;
use crate::kernels::gemm::{Chunk, GemmScratch, Method, ROWS, TERMS};
use crate::modulus::Modulus;
use std::ops::Range;

/// 2^102.
const HIGH: f64 = 5_070_602_400_912_917_605_986_812_821_504.0;

/// 2^61 makes lower sums positive: of at most 1024 terms, in size at most 2^49, or 2^51 of narrow weights.
const OFFSET: u32 = 61;

/// A residue, or a narrow weight, as the kernel wants it packed.
pub(crate) fn number(w: i64) -> u64 {
    (w as f64).to_bits()
}

/// out += f·w·x for the words `at .. at + length`.
#[expect(
    clippy::too_many_arguments,
    reason = "what every kernel's tile takes, and the token"
)]
pub(crate) fn tile(
    have: HaveFma,
    modulus: &Modulus,
    chunk: &Chunk,
    x: &[&[u64]],
    out: &mut [&mut [u64]],
    at: usize,
    length: usize,
    scratch: &mut GemmScratch,
) {
    assert!(x.len() <= TERMS, "sums of words");
    let power = |bits: u32| centred(modulus, modulus.reduce(1_u64 << bits));
    let square = modulus.mul(modulus.reduce(1 << 50), modulus.reduce(1 << 26));
    let constants = Finish {
        modulus: Constants::new(modulus),
        powers: [power(26), power(50), centred(modulus, square)],
        offset: modulus.reduce(1 << OFFSET) as f64,
        factor: centred(modulus, chunk.factor()),
        narrow: chunk.method() == Method::Narrow,
    };
    let lanes = have.lanes();
    let numbers = scratch.words(x.len() * length.next_multiple_of(lanes));
    gather(numbers, x, at..at + length, lanes);
    for (p, out) in out.chunks_mut(ROWS).enumerate() {
        let weights = chunk.panel(p);
        for (group, numbers) in numbers.chunks_exact(x.len() * lanes).enumerate() {
            let first = at + group * lanes;
            let words = lanes.min(at + length - first);
            // A register of each row, filled up with zeros at the end of a limb.
            let mut rows = [[0; 8]; ROWS];
            for (row, out) in rows.iter_mut().zip(&*out) {
                row[..words].copy_from_slice(&out[first..first + words]);
            }
            panel(have, &constants, weights, numbers, &mut rows);
            for (row, out) in rows.iter().zip(&mut *out) {
                out[first..first + words].copy_from_slice(&row[..words]);
            }
        }
    }
}

/// The words of `range` as numbers, in registers of all inputs one after another: limbs lie a power of two apart, which
/// leaves few places of a cache for their words.
fn gather(numbers: &mut [u64], x: &[&[u64]], range: Range<usize>, lanes: usize) {
    let group = x.len() * lanes;
    for (i, x) in x.iter().enumerate() {
        for (words, group) in x[range.clone()]
            .chunks(lanes)
            .zip(numbers.chunks_exact_mut(group))
        {
            let register = &mut group[i * lanes..(i + 1) * lanes];
            register.fill(0);
            for (to, &word) in register.iter_mut().zip(words) {
                *to = (word as f64).to_bits();
            }
        }
    }
}

/// What turns two sums into a residue.
struct Finish {
    modulus: Constants,
    /// 2^26, 2^50 and 2^76 modulo q.
    powers: [f64; 3],
    /// 2^[`OFFSET`] modulo q.
    offset: f64,
    /// What narrow weights are multiplied by.
    factor: f64,
    narrow: bool,
}

kernel! {
    /// A register of the rows of one panel.
    fn panel(c: &Finish, weights: &[u64], x: &[u64], out: &mut [[u64; 8]; ROWS]) = panel_body
}

#[inline(always)]
unsafe fn panel_body<L: Lanes>(c: &Finish, weights: &[u64], x: &[u64], out: &mut [[u64; 8]; ROWS]) {
    assert!(x.len().is_multiple_of(L::LANES) && weights.len() * L::LANES >= ROWS * x.len());
    // SAFETY: the caller's; every access is within slices of these lengths.
    unsafe {
        // Six rows have twelve sums, which sixteen registers do not hold beside the rest.
        match (c.narrow, L::LANES) {
            (true, _) => rows::<L, 6, true>(c, weights, x, out, 0),
            (false, 8) => rows::<L, 6, false>(c, weights, x, out, 0),
            (false, _) => {
                rows::<L, 3, false>(c, weights, x, out, 0);
                rows::<L, 3, false>(c, weights, x, out, 3);
            }
        }
    }
}

/// Rows `first .. first + R` of a panel.
#[inline(always)]
unsafe fn rows<L: Lanes, const R: usize, const NARROW: bool>(
    c: &Finish,
    weights: &[u64],
    x: &[u64],
    out: &mut [[u64; 8]; ROWS],
    first: usize,
) {
    let terms = x.len() / L::LANES;
    // SAFETY: the caller's.
    unsafe {
        let r = &Registers::<L>::new(&c.modulus);
        let high = L::splat(HIGH);
        // High parts are subtracted from this: a multiple of 2^51, exact.
        let both = L::splat(HIGH + ROUND);
        let mut sums = [[L::splat_word(0); 2]; R];
        for i in 0..terms {
            let x = L::as_numbers(L::load(x.as_ptr().add(i * L::LANES)));
            let w = weights.as_ptr().add(i * ROWS + first);
            for (o, [sum_high, sum_low]) in sums.iter_mut().enumerate() {
                let w = L::splat(f64::from_bits(*w.add(o)));
                if NARROW {
                    *sum_low = L::add_words(*sum_low, L::as_words(L::mul_add(x, w, r.round)));
                    continue;
                }
                let top = L::mul_add(x, w, high);
                let rest = L::mul_add(x, w, L::sub(both, top));
                *sum_high = L::add_words(*sum_high, L::as_words(top));
                *sum_low = L::add_words(*sum_low, L::as_words(rest));
            }
        }
        let terms = terms as u64;
        let minus_high = L::splat_word(terms.wrapping_mul(HIGH.to_bits()));
        let minus_low = terms.wrapping_mul(ROUND.to_bits());
        let minus_low = L::splat_word(minus_low.wrapping_sub(1 << OFFSET));
        let mask = L::splat_word((1 << 26) - 1);
        let [p26, p50, p76] = c.powers;
        let powers = [
            r.factor(L::splat(p26)),
            r.factor(L::splat(p50)),
            r.factor(L::splat(p76)),
        ];
        for (&[sum_high, sum_low], out) in sums.iter().zip(out.iter_mut().skip(first)) {
            // Parts below 2^36 and 2^26.
            let sum_low = L::sub_words(sum_low, minus_low);
            let low = r.times(r.number(L::shift_26(sum_low)), powers[0]);
            let last = L::sub(r.number(L::and(sum_low, mask)), L::splat(c.offset));
            let mut sum = L::add(low, last);
            if NARROW {
                sum = r.times(r.reduce(sum), r.factor(L::splat(c.factor)));
            } else {
                let sum_high = L::sub_words(sum_high, minus_high);
                let high = r.times(r.number(L::shift_26(sum_high)), powers[2]);
                let middle = r.times(r.number(L::and(sum_high, mask)), powers[1]);
                sum = L::add(sum, L::add(high, middle));
            }
            let p = out.as_mut_ptr();
            L::store(p, r.reduced_word(L::add(sum, r.load(p))));
        }
    }
}
