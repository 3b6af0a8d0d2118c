//! Arithmetic on whole limbs. Words in memory are in [0, q); the end of a slice that does not fill a register takes the
//! portable path.
//!
//! Sums, differences and remainders are those of `portable`, compiled for the longer registers.

use super::lanes::Lanes;
use super::registers::{Constants, Registers, TOGETHER, centred, kernel};
use crate::kernels::portable;
use crate::machine::cpu::HaveFma;
use crate::modulus::Modulus;

/// Constants of one modulus.
pub(crate) struct Limb {
    have: HaveFma,
    modulus: Modulus,
    constants: Constants,
}

/// Functions of `portable`, which the compiler vectorises.
macro_rules! portable {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            pub(crate) fn $name(&self, $($argument: $type),*) {
                #[cfg_attr(target_arch = "x86_64", target_feature(enable = "avx2,fma"))]
                #[cfg_attr(target_arch = "aarch64", target_feature(enable = "neon"))]
                fn four(modulus: &Modulus, $($argument: $type),*) {
                    portable::$name(modulus, $($argument),*);
                }
                // Of 256 bits everywhere: longer registers gain nothing on what memory limits.
                // SAFETY: the token in `self` proves the instruction set.
                unsafe { four(&self.modulus, $($argument),*) }
            }
        )*
    };
}

impl Limb {
    pub(crate) fn new(have: HaveFma, modulus: &Modulus) -> Limb {
        Limb { have, modulus: *modulus, constants: Constants::new(modulus) }
    }

    portable! {
        add_assign(a: &mut [u64], b: &[u64]);
        sub_assign(a: &mut [u64], b: &[u64]);
        neg_assign(a: &mut [u64]);
        add(out: &mut [u64], a: &[u64], b: &[u64]);
        sub(out: &mut [u64], a: &[u64], b: &[u64]);
        add_scalar_assign(a: &mut [u64], s: u64);
        reduce_signed(out: &mut [u64], x: &[i64]);
        lift_signed(out: &mut [u64], x: &[i64]);
        lift_small(out: &mut [u64], x: &[i32]);
        reduce(out: &mut [u64], x: &[u64]);
    }

    /// Number of words in whole registers.
    fn whole(&self, length: usize) -> usize {
        length - length % self.have.lanes()
    }

    pub(crate) fn mul_assign(&self, a: &mut [u64], b: &[u64]) {
        let (a, rest) = a.split_at_mut(self.whole(b.len()));
        let (b, rest_b) = b.split_at(a.len());
        mul_assign(self.have, &self.constants, a, b);
        portable::mul_assign(&self.modulus, rest, rest_b);
    }

    pub(crate) fn mul(&self, out: &mut [u64], a: &[u64], b: &[u64]) {
        let at = self.whole(a.len());
        mul(self.have, &self.constants, &mut out[..at], &a[..at], &b[..at]);
        portable::mul(&self.modulus, &mut out[at..], &a[at..], &b[at..]);
    }

    pub(crate) fn mul_add_assign(&self, acc: &mut [u64], a: &[u64], b: &[u64]) {
        let at = self.whole(a.len());
        mul_add_assign(self.have, &self.constants, &mut acc[..at], &a[..at], &b[..at]);
        portable::mul_add_assign(&self.modulus, &mut acc[at..], &a[at..], &b[at..]);
    }

    pub(crate) fn mul_scalar_assign(&self, a: &mut [u64], s: u64) {
        let at = self.whole(a.len());
        mul_scalar_assign(self.have, &self.constants, &mut a[..at], self.factor(s));
        portable::mul_scalar_assign(&self.modulus, &mut a[at..], s);
    }

    pub(crate) fn mul_scalar(&self, out: &mut [u64], a: &[u64], s: u64) {
        let at = self.whole(a.len());
        mul_scalar(self.have, &self.constants, &mut out[..at], &a[..at], self.factor(s));
        portable::mul_scalar(&self.modulus, &mut out[at..], &a[at..], s);
    }

    pub(crate) fn mul_scalar_add_assign(&self, acc: &mut [u64], a: &[u64], s: u64) {
        let at = self.whole(a.len());
        let (whole, rest) = acc.split_at_mut(at);
        mul_scalar_add_assign(self.have, &self.constants, whole, &a[..at], self.factor(s));
        portable::mul_scalar_add_assign(&self.modulus, rest, &a[at..], s);
    }

    pub(crate) fn sub_mul_scalar_assign(&self, a: &mut [u64], b: &[u64], s: u64) {
        let at = self.whole(a.len());
        let (whole, rest) = a.split_at_mut(at);
        sub_mul_scalar_assign(self.have, &self.constants, whole, &b[..at], self.factor(s));
        portable::sub_mul_scalar_assign(&self.modulus, rest, &b[at..], s);
    }

    pub(crate) fn mod_down_finish(&self, out: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        let at = self.whole(out.len());
        let (whole, rest) = out.split_at_mut(at);
        let factor = self.factor(inv);
        mod_down_finish::<false>(self.have, &self.constants, whole, &sum[..at], &lifted[..at], factor);
        portable::mod_down_finish(&self.modulus, rest, &sum[at..], &lifted[at..], inv);
    }

    pub(crate) fn mod_down_finish_add_assign(&self, acc: &mut [u64], sum: &[u64], lifted: &[u64], inv: u64) {
        let at = self.whole(acc.len());
        let (whole, rest) = acc.split_at_mut(at);
        let factor = self.factor(inv);
        mod_down_finish::<true>(self.have, &self.constants, whole, &sum[..at], &lifted[..at], factor);
        portable::mod_down_finish_add_assign(&self.modulus, rest, &sum[at..], &lifted[at..], inv);
    }

    pub(crate) fn lift_centred(&self, out: &mut [u64], x: &[u64], from: &Modulus) {
        let at = self.whole(x.len());
        lift_centred(self.have, &self.constants, &mut out[..at], &x[..at], from.value());
        portable::lift_centred(&self.modulus, &mut out[at..], &x[at..], from);
    }

    pub(crate) fn dot_assign(&self, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
        let at = self.whole(acc.len());
        let (whole, rest) = acc.split_at_mut(at);
        dot_assign(self.have, &self.constants, whole, a, b);
        if !rest.is_empty() {
            portable::dot_assign(&self.modulus, rest, &after(a, at), &after(b, at));
        }
    }

    pub(crate) fn dot_scalars_assign(&self, acc: &mut [u64], a: &[&[u64]], s: &[u64]) {
        let at = self.whole(acc.len());
        let (whole, rest) = acc.split_at_mut(at);
        let factors: Vec<f64> = s.iter().map(|&s| self.factor(s)).collect();
        dot_scalars_assign(self.have, &self.constants, whole, a, &factors);
        if !rest.is_empty() {
            portable::dot_scalars_assign(&self.modulus, rest, &after(a, at), s);
        }
    }

    pub(crate) fn dot_pair<const ACCUMULATE: bool>(
        &self,
        [out0, out1]: [&mut [u64]; 2],
        d: &[&[u64]],
        keys: [&[&[u64]]; 2],
    ) {
        let at = self.whole(out0.len());
        let (whole0, rest0) = out0.split_at_mut(at);
        let (whole1, rest1) = out1.split_at_mut(at);
        dot_pair::<ACCUMULATE>(self.have, &self.constants, [whole0, whole1], d, keys);
        if !rest0.is_empty() {
            let keys = keys.map(|key| after(key, at));
            let keys = [&*keys[0], &*keys[1]];
            portable::dot_pair::<ACCUMULATE>(&self.modulus, [rest0, rest1], &after(d, at), keys);
        }
    }

    pub(crate) fn dot_pair_repeated(&self, out: [&mut [u64]; 2], d: &[&[u64]], log_repeat: u32, keys: [&[&[u64]]; 2]) {
        // Whole runs of eight words, as the caller has checked.
        dot_pair_repeated(self.have, &self.constants, out, d, log_repeat, keys);
    }

    pub(crate) fn tensor<const ACCUMULATE: bool>(
        &self,
        [out0, out1, out2]: [&mut [u64]; 3],
        x: [&[u64]; 2],
        y: [&[u64]; 2],
    ) {
        let at = self.whole(out0.len());
        let (whole0, rest0) = out0.split_at_mut(at);
        let (whole1, rest1) = out1.split_at_mut(at);
        let (whole2, rest2) = out2.split_at_mut(at);
        let before = |x: [_; 2]| x.map(|x: &[u64]| &x[..at]);
        let whole = [whole0, whole1, whole2];
        tensor::<ACCUMULATE>(self.have, &self.constants, whole, before(x), before(y));
        let after = |x: [_; 2]| x.map(|x: &[u64]| &x[at..]);
        let rest = [rest0, rest1, rest2];
        portable::tensor::<ACCUMULATE>(&self.modulus, rest, after(x), after(y));
    }

    fn factor(&self, s: u64) -> f64 {
        centred(&self.modulus, s)
    }
}

fn after<'a>(all: &[&'a [u64]], at: usize) -> Vec<&'a [u64]> {
    all.iter().map(|x| &x[at..]).collect()
}

kernel! { fn mul_assign(c: &Constants, a: &mut [u64], b: &[u64]) = mul_assign_body }
kernel! { fn mul(c: &Constants, out: &mut [u64], a: &[u64], b: &[u64]) = mul_body }
kernel! { fn mul_add_assign(c: &Constants, acc: &mut [u64], a: &[u64], b: &[u64]) = mul_add_body }
kernel! { fn mul_scalar_assign(c: &Constants, a: &mut [u64], s: f64) = mul_scalar_assign_body }
kernel! { fn mul_scalar(c: &Constants, out: &mut [u64], a: &[u64], s: f64) = mul_scalar_body }
kernel! { fn mul_scalar_add_assign(c: &Constants, acc: &mut [u64], a: &[u64], s: f64) = mul_scalar_add_body }
kernel! { fn sub_mul_scalar_assign(c: &Constants, a: &mut [u64], b: &[u64], s: f64) = sub_mul_scalar_body }
kernel! { fn mod_down_finish(c: &Constants, out: &mut [u64], sum: &[u64], lifted: &[u64], inv: f64) = mod_down_body::<ACCUMULATE> }
kernel! { fn lift_centred(c: &Constants, out: &mut [u64], x: &[u64], from: u64) = lift_centred_body }
kernel! { fn dot_assign(c: &Constants, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) = dot_body }
kernel! { fn dot_scalars_assign(c: &Constants, acc: &mut [u64], a: &[&[u64]], s: &[f64]) = dot_scalars_body }
kernel! { fn dot_pair(c: &Constants, out: [&mut [u64]; 2], d: &[&[u64]], keys: [&[&[u64]]; 2]) = dot_pair_body::<ACCUMULATE> }
kernel! { fn dot_pair_repeated(c: &Constants, out: [&mut [u64]; 2], d: &[&[u64]], log_repeat: u32, keys: [&[&[u64]]; 2]) = dot_pair_repeated_body }
kernel! { fn tensor(c: &Constants, out: [&mut [u64]; 3], x: [&[u64]; 2], y: [&[u64]; 2]) = tensor_body::<ACCUMULATE> }

/// `out[j]` ← f(registers at j) for each register of `out`; its length and those of what f reads are multiples of the
/// lanes.
macro_rules! each {
    ($r:ident, $c:ident, $out:ident, [$($from:ident),*], |$p:ident $(, $x:ident)*| $value:expr) => {{
        $(assert_eq!($from.len(), $out.len(), "limbs of one length");)*
        assert!($out.len().is_multiple_of(L::LANES), "whole registers");
        // SAFETY: guaranteed by the caller; every access is within slices of one length.
        unsafe {
            let $r = Registers::<L>::new($c);
            let $p = $out.as_mut_ptr();
            for j in (0..$out.len()).step_by(L::LANES) {
                $(let $x = $r.load($from.as_ptr().add(j));)*
                let $p = $p.add(j);
                let word = $value;
                L::store($p, word);
            }
        }
    }};
}

#[inline(always)]
unsafe fn mul_assign_body<L: Lanes>(c: &Constants, a: &mut [u64], b: &[u64]) {
    each!(r, c, a, [b], |p, b| r.word(r.mul(r.load(p), b)))
}

#[inline(always)]
unsafe fn mul_body<L: Lanes>(c: &Constants, out: &mut [u64], a: &[u64], b: &[u64]) {
    each!(r, c, out, [a, b], |_p, a, b| r.word(r.mul(a, b)))
}

#[inline(always)]
unsafe fn mul_add_body<L: Lanes>(c: &Constants, acc: &mut [u64], a: &[u64], b: &[u64]) {
    each!(r, c, acc, [a, b], |p, a, b| r.reduced_word(L::add(r.load(p), r.mul(a, b))))
}

#[inline(always)]
unsafe fn mul_scalar_assign_body<L: Lanes>(c: &Constants, a: &mut [u64], s: f64) {
    each!(r, c, a, [], |p| r.word(r.times(r.load(p), r.factor(L::splat(s)))))
}

#[inline(always)]
unsafe fn mul_scalar_body<L: Lanes>(c: &Constants, out: &mut [u64], a: &[u64], s: f64) {
    each!(r, c, out, [a], |_p, a| r.word(r.times(a, r.factor(L::splat(s)))))
}

#[inline(always)]
unsafe fn mul_scalar_add_body<L: Lanes>(c: &Constants, acc: &mut [u64], a: &[u64], s: f64) {
    each!(r, c, acc, [a], |p, a| r.reduced_word(L::add(r.load(p), r.times(a, r.factor(L::splat(s))))))
}

#[inline(always)]
unsafe fn sub_mul_scalar_body<L: Lanes>(c: &Constants, a: &mut [u64], b: &[u64], s: f64) {
    each!(r, c, a, [b], |p, b| r.word(r.times(L::sub(r.load(p), b), r.factor(L::splat(s)))))
}

#[inline(always)]
unsafe fn mod_down_body<L: Lanes, const ACCUMULATE: bool>(
    c: &Constants,
    out: &mut [u64],
    sum: &[u64],
    lifted: &[u64],
    inv: f64,
) {
    each!(r, c, out, [sum, lifted], |p, sum, lifted| {
        let quotient = r.times(L::sub(sum, lifted), r.factor(L::splat(inv)));
        match ACCUMULATE {
            true => r.reduced_word(L::add(r.load(p), quotient)),
            false => r.word(quotient),
        }
    })
}

#[inline(always)]
unsafe fn lift_centred_body<L: Lanes>(c: &Constants, out: &mut [u64], x: &[u64], from: u64) {
    assert_eq!(x.len(), out.len(), "limbs of one length");
    assert!(out.len().is_multiple_of(L::LANES), "whole registers");
    // SAFETY: guaranteed by the caller; every access is within slices of one length.
    unsafe {
        let r = Registers::<L>::new(c);
        let (half, p) = (L::splat_word(from / 2), L::splat_word(from));
        for j in (0..out.len()).step_by(L::LANES) {
            let x = L::load(x.as_ptr().add(j));
            let above = L::negative(L::sub_words(half, x));
            let x = r.signed_number(L::sub_words(x, L::and(above, p)));
            L::store(out.as_mut_ptr().add(j), r.reduced_word(x));
        }
    }
}

/// Words of an output whose sums are kept together: a page of each input is read at a time, however many there are.
const BLOCK: usize = 512;

/// Sums of `count` terms for each output, added to what it holds if `$accumulate`. `terms` are the remainders of term
/// number i for the register at word `at`, one per output.
macro_rules! sums {
    ($r:ident, $out:expr, $accumulate:expr, $count:expr, |$i:ident, $at:ident| $terms:block) => {{
        let mut out = $out;
        let (length, count): (usize, usize) = (out[0].len(), $count);
        assert!(length.is_multiple_of(L::LANES), "whole registers");
        let mut sums = [[0_u64; BLOCK]; OUT];
        for start in (0..length).step_by(BLOCK) {
            let end = length.min(start + BLOCK);
            for (sums, out) in sums.iter_mut().zip(&out) {
                for j in (start..end).step_by(L::LANES) {
                    let sum = match $accumulate {
                        true => $r.load(out.as_ptr().add(j)),
                        false => L::splat(0.0),
                    };
                    L::store(sums.as_mut_ptr().add(j - start), L::as_words(sum));
                }
            }
            for $i in 0..count {
                let reduce = $i % TOGETHER == TOGETHER - 1;
                for j in (start..end).step_by(L::LANES) {
                    let $at = j;
                    let terms: [L::F; OUT] = $terms;
                    for (sums, &term) in sums.iter_mut().zip(&terms) {
                        let place = sums.as_mut_ptr().add(j - start);
                        let mut sum = L::add(L::as_numbers(L::load(place)), term);
                        if reduce {
                            sum = $r.reduce(sum);
                        }
                        L::store(place, L::as_words(sum));
                    }
                }
            }
            for (sums, out) in sums.iter().zip(&mut out) {
                for j in (start..end).step_by(L::LANES) {
                    let sum = L::as_numbers(L::load(sums.as_ptr().add(j - start)));
                    L::store(out.as_mut_ptr().add(j), $r.reduced_word(sum));
                }
            }
        }
    }};
}

#[inline(always)]
unsafe fn dot_body<L: Lanes>(c: &Constants, acc: &mut [u64], a: &[&[u64]], b: &[&[u64]]) {
    const OUT: usize = 1;
    assert!(a.len() == b.len() && a.iter().chain(b).all(|x| x.len() >= acc.len()));
    // SAFETY: guaranteed by the caller; every access is within slices of that length at least.
    unsafe {
        let r = Registers::<L>::new(c);
        sums!(r, [acc], true, a.len(), |i, at| {
            let a = r.load(a.get_unchecked(i).as_ptr().add(at));
            [r.mul(a, r.load(b.get_unchecked(i).as_ptr().add(at)))]
        });
    }
}

#[inline(always)]
unsafe fn dot_scalars_body<L: Lanes>(c: &Constants, acc: &mut [u64], a: &[&[u64]], s: &[f64]) {
    const OUT: usize = 1;
    assert!(a.len() == s.len() && a.iter().all(|x| x.len() >= acc.len()));
    // SAFETY: guaranteed by the caller; every access is within slices of that length at least.
    unsafe {
        let r = Registers::<L>::new(c);
        sums!(r, [acc], true, a.len(), |i, at| {
            let factor = r.factor(L::splat(*s.get_unchecked(i)));
            [r.times(r.load(a.get_unchecked(i).as_ptr().add(at)), factor)]
        });
    }
}

#[inline(always)]
unsafe fn dot_pair_body<L: Lanes, const ACCUMULATE: bool>(
    c: &Constants,
    out: [&mut [u64]; 2],
    d: &[&[u64]],
    keys: [&[&[u64]]; 2],
) {
    const OUT: usize = 2;
    let length = out[0].len();
    let [key0, key1] = keys;
    assert!(out[1].len() == length && d.len() == key0.len() && d.len() == key1.len());
    let mut all = d.iter().chain(key0).chain(key1);
    assert!(all.all(|x| x.len() >= length));
    // SAFETY: guaranteed by the caller; every access is within slices of that length at least.
    unsafe {
        let r = Registers::<L>::new(c);
        sums!(r, out, ACCUMULATE, d.len(), |i, at| {
            let d = r.load(d.get_unchecked(i).as_ptr().add(at));
            [
                r.mul(d, r.load(key0.get_unchecked(i).as_ptr().add(at))),
                r.mul(d, r.load(key1.get_unchecked(i).as_ptr().add(at))),
            ]
        });
    }
}

#[inline(always)]
unsafe fn dot_pair_repeated_body<L: Lanes>(
    c: &Constants,
    out: [&mut [u64]; 2],
    d: &[&[u64]],
    log_repeat: u32,
    keys: [&[&[u64]]; 2],
) {
    const OUT: usize = 2;
    let length = out[0].len();
    let [key0, key1] = keys;
    assert!(out[1].len() == length && d.len() == key0.len() && d.len() == key1.len());
    assert!(key0.iter().chain(key1).all(|x| x.len() >= length));
    assert!(1 << log_repeat >= L::LANES, "one word a register");
    assert!(d.iter().all(|d| d.len() << log_repeat >= length));
    // SAFETY: guaranteed by the caller; every access is within slices of these lengths at least.
    unsafe {
        let r = Registers::<L>::new(c);
        sums!(r, out, false, d.len(), |i, at| {
            let d = *d.get_unchecked(i).get_unchecked(at >> log_repeat);
            let d = r.number(L::splat_word(d));
            [
                r.mul(d, r.load(key0.get_unchecked(i).as_ptr().add(at))),
                r.mul(d, r.load(key1.get_unchecked(i).as_ptr().add(at))),
            ]
        });
    }
}

#[inline(always)]
unsafe fn tensor_body<L: Lanes, const ACCUMULATE: bool>(
    c: &Constants,
    out: [&mut [u64]; 3],
    x: [&[u64]; 2],
    y: [&[u64]; 2],
) {
    const OUT: usize = 3;
    let length = out[0].len();
    assert!(out.iter().all(|out| out.len() == length));
    assert!(x.iter().chain(&y).all(|x| x.len() >= length));
    // SAFETY: guaranteed by the caller; every access is within slices of that length at least.
    unsafe {
        let r = Registers::<L>::new(c);
        let ([x0, x1], [y0, y1]) = (x.map(<[u64]>::as_ptr), y.map(<[u64]>::as_ptr));
        sums!(r, out, ACCUMULATE, 1, |_i, at| {
            let (x0, x1) = (r.load(x0.add(at)), r.load(x1.add(at)));
            let (y0, y1) = (r.load(y0.add(at)), r.load(y1.add(at)));
            let middle = L::add(r.mul(x0, y1), r.mul(x1, y0));
            [r.mul(x0, y0), middle, r.mul(x1, y1)]
        });
    }
}
