//! A smooth function of few shared numbers in a public range, in five messages.
//!
//! The number is mapped to u = (x − least)·factor + h mod 2^b, so that the range fills all but the outermost of N = 2^i
//! segments of h = 2^(b−i). Each party cuts its share of u into a segment number and a rest l < h. Then
//!
//! > u = (k_c + k_s mod N)·h + l_c + l_s,
//!
//! and for each k_c the server knows the function of l_c alone that has to be evaluated, as a Chebyshev series on
//! [0, h): its coefficients depend on l_s, which is the server's, and are themselves series in l_s. The client picks
//! the coefficients of its k_c from the server's N rows ([`pick`]), as shares; the values T_1 … T_d of the Chebyshev
//! polynomials at l_c are its own, so that one product of each with the server's share of its coefficient is left
//! ([`ole`]). The sum loses its last bits locally. No carry between the shares is computed: l_c + l_s may reach into
//! the next segment, where the series of k_c + k_s holds as well, and this is why the range keeps away from the ends
//! of the ring.
//!
//! Error, relative: below 2·10^−5 by the series, and below 2^−13 of the first coefficients by the rounding of T_i.
//! Outside of the range the result is arbitrary.
//!
//! Bytes: about (N − 1)·(d + 1) coefficients, downwards, and d products of [`POINT`] bits. Tables of quadratics of a
//! few shared numbers are in use elsewhere (Pika, PoPETs 2022; Grotto, CCS 2023), there under function secret sharing.

use super::format::narrow;
use crate::cost::Cost;
use crate::ctx::Ctx;
use crate::error::{TwopcError, expect_len};
use crate::gadget::{ole, ole_cost, pick, pick_cost};
use crate::link::Link;
use crate::share::{Ring, SecretWords, Share};
use hushed_math::bits::Mask;
use hushed_net::Party;

/// Bits of a Chebyshev polynomial's value: from −1 to 1 in 2^POINT steps.
const POINT: u32 = 14;
/// Bits that coefficients have beyond the result's.
const GUARD: u32 = 2;
/// Bits that the series of coefficients have beyond these.
const FINE: u32 = 12;
/// Fraction bits of the values from which T_i is computed.
const ARGUMENT: u32 = 30;
/// Relative error of a series.
const ERROR: f64 = 2e-5;
/// Relative error of the coefficients' own series.
const COEFFICIENT_ERROR: f64 = 6e-8;
const MOST_DEGREE: usize = 9;
/// Bits of a segment's number: N = 8 to 256.
const SEGMENTS: std::ops::RangeInclusive<u32> = 3..=8;
/// The factor is as large as this where the ring has room, so that hardly a sixteenth of the segments is unused.
const FACTOR: u128 = 16;

/// Public bounds of positive integers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// The least.
    pub least: u64,
    /// The largest.
    pub most: u64,
}

/// How a range is cut into segments, and the degree of the series.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cut {
    least: u64,
    factor: u64,
    /// b
    bits: u32,
    /// i
    index: u32,
    /// d
    degree: usize,
    /// The degree of the coefficients' series.
    inner: usize,
}

impl Cut {
    /// The cheapest cut for `n` numbers of a ring, with results in `to`; `None` if no cut holds 1/x on these bounds.
    pub fn cheapest(link: &Link, n: usize, bounds: Bounds, ring: Ring, to: Ring) -> Option<Cut> {
        if to.bits() + POINT + GUARD > 64 {
            return None;
        }
        let cuts = SEGMENTS.filter_map(|index| Cut::of(bounds, ring.bits(), index));
        cuts.min_by_key(|cut| link.price(&cut.cost(n, to)))
    }

    fn of(bounds: Bounds, most_bits: u32, index: u32) -> Option<Cut> {
        let span = u128::from(bounds.most.checked_sub(bounds.least)?.max(1));
        let usable = |bits: u32| ((1u128 << bits) >> index) * ((1 << index) - 2);
        let fits = |bits: &u32| usable(*bits) >= FACTOR * span;
        let bits = (index + 1..=most_bits).find(fits).unwrap_or(most_bits);
        let factor = u64::try_from(usable(bits) / span).ok()?;
        let mut cut = Cut { least: bounds.least, factor, bits, index, degree: 0, inner: 0 };
        if factor == 0 || bits <= index {
            return None;
        }
        // The first segment reaches below the range by its width: 1/x and 1/√x have their pole at 0.
        let half = cut.width() / 2.0;
        let centre = bounds.least as f64 - half;
        if centre <= half {
            return None;
        }
        let t = half / centre;
        let flat = (1.0 - t * t).sqrt();
        let decay = t / (1.0 + flat);
        let first = 2.0 * (1.0 + t) / flat / (1.0 - decay);
        // The degree with which both parties cut must be the same: only operations that IEEE 754 rounds correctly.
        let degree = |error: f64| {
            let mut rest = first * decay;
            let mut degree = 0;
            while rest > error && degree < 64 {
                rest *= decay;
                degree += 1;
            }
            degree
        };
        cut.degree = degree(ERROR).max(1);
        cut.inner = degree(COEFFICIENT_ERROR).max(cut.degree);
        (cut.degree <= MOST_DEGREE).then_some(cut)
    }

    /// The width of a segment in units of x.
    fn width(&self) -> f64 {
        (1u64 << self.rest()) as f64 / self.factor as f64
    }

    /// Bits of l.
    fn rest(&self) -> u32 {
        self.bits - self.index
    }

    fn segments(&self) -> usize {
        1 << self.index
    }

    fn coefficients(&self) -> usize {
        self.degree + 1
    }

    /// The cost of [`Cut::evaluate`] for `n` numbers.
    pub fn cost(&self, n: usize, to: Ring) -> Cost {
        let ring = summed(to);
        let rows = vec![self.segments(); n * self.coefficients()];
        pick_cost(&rows, ring) + ole_cost(n * self.degree, 0, POINT + 1, ring)
    }

    /// u for x.
    fn mapped(&self, ctx: &Ctx, x: &Share) -> Share {
        let shifted = x.add_public(ctx.party(), (self.least as i64).wrapping_neg());
        let u = shifted.reduce_to(Ring::new(self.bits)).mul_public(self.factor as i64);
        u.add_public(ctx.party(), 1 << self.rest())
    }

    /// The coefficients of all segments for `f` with `frac` fraction bits: for each of `segments` × (d + 1)
    /// coefficients the `inner` + 1 of its own series.
    pub fn tables(&self, f: impl Fn(f64) -> f64, frac: u32) -> Tables {
        let nodes = self.inner + 1;
        let angle = |i: usize| std::f64::consts::PI * (i as f64 + 0.5) / nodes as f64;
        let places: Vec<f64> = (0..nodes).map(|i| (1.0 + angle(i).cos()) / 2.0).collect();
        // Chebyshev's orthogonality over the nodes: row i is T_i there, times its factor.
        let row = |i: usize| {
            let factor = if i == 0 { 1.0 } else { 2.0 } / nodes as f64;
            (0..nodes).map(move |a| factor * (i as f64 * angle(a)).cos()).collect::<Vec<f64>>()
        };
        let rows: Vec<Vec<f64>> = (0..nodes).map(row).collect();
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let unit = f64::from(frac + GUARD + FINE).exp2();
        let mut words = Vec::with_capacity(self.segments() * self.coefficients() * nodes);
        for segment in 0..self.segments() {
            // u = (segment + s + t)·h, and u = h stands for the least x.
            let at = |s: f64, t: f64| self.least as f64 + (segment as f64 + s + t - 1.0) * self.width();
            let along = |s: f64| places.iter().map(|t| f(at(s, *t))).collect::<Vec<f64>>();
            let samples: Vec<Vec<f64>> = places.iter().map(|s| along(*s)).collect();
            for outer in &rows[..self.coefficients().min(nodes)] {
                let of_s: Vec<f64> = samples.iter().map(|values| dot(values, outer)).collect();
                words.extend(rows.iter().map(|inner| (dot(&of_s, inner) * unit).round() as i64));
            }
        }
        Tables { words, inner: nodes }
    }

    /// f(x) with the fraction bits of its tables in `to`. The first part of `x` is of the first function, and so on;
    /// all parts have the same length. Every |f| must be below 2^(to − 2 − frac). Only the server makes the tables.
    pub fn evaluate(
        &self,
        ctx: &mut Ctx,
        x: &Share,
        functions: impl FnOnce() -> Vec<Tables>,
        to: Ring,
    ) -> Result<Share, TwopcError> {
        let (n, ring, d) = (x.len(), summed(to), self.degree);
        let u = self.mapped(ctx, x);
        let (client, rest) = (ctx.party() == Party::Client, self.rest());
        let low = Ring::new(rest);
        let points = |u: &u64| chebyshev(argument(low.reduce(*u), rest), d.max(self.inner));
        let lengths = vec![self.segments(); n * self.coefficients()];
        let room = |words: usize| SecretWords::with_room(if client { words } else { 0 });
        let (mut places, mut values) = (room(n * self.coefficients()), room(n * d));
        let mut rows = SecretWords::with_room(lengths.iter().sum());
        if client {
            for u in u.words() {
                places.extend(std::iter::repeat_n(u >> rest, self.coefficients()));
                values.extend(points(u).iter().skip(1).take(d).map(|t| rounded(*t)));
            }
            rows.resize(lengths.iter().sum(), 0);
        } else {
            let functions = functions();
            let each = n.checked_div(functions.len()).unwrap_or(0);
            expect_len("series", "numbers", n, each * functions.len())?;
            for (i, u) in u.words().iter().enumerate() {
                self.fill(&functions[i / each.max(1)], &points(u), u >> rest, &mut rows);
            }
        }
        let rows = Share::new(ring, rows.into_words());
        let picked = pick(ctx, &rows, &lengths, &places)?;
        // The products of T_i, i > 0, with the server's shares of the coefficients.
        let own = picked.words().chunks_exact(self.coefficients());
        let mut offered = SecretWords::with_room(if client { 0 } else { n * d });
        if !client {
            own.clone().for_each(|a| offered.extend_from_slice(&a[1..]));
        }
        let [chosen, offered] = ole(ctx, &values, &offered, POINT + 1, ring)?;
        let crossed = if client { &chosen } else { &offered };
        let sums = own.enumerate().map(|(k, a)| {
            let first = a[0] << (POINT - 1);
            (0..d).fold(first, |sum, i| {
                let (a, crossed) = (a[i + 1], crossed.words()[k * d + i]);
                let t = if client { values[k * d + i] } else { 0 };
                sum.wrapping_add(crossed).wrapping_add(a.wrapping_mul(t.wrapping_sub(1 << (POINT - 1))))
            })
        });
        let sums = Share::new(ring, sums.collect());
        Ok(narrow(ctx.party(), &sums, POINT - 1 + GUARD, to))
    }

    /// Adds the server's rows of one number: for each coefficient those of all segments, the one for the client's
    /// segment j in place j.
    fn fill(&self, tables: &Tables, points: &[i64], index: u64, rows: &mut SecretWords) {
        let n = self.segments();
        let of_segment = |m: usize, i: usize| {
            let series = &tables.words[(m * self.coefficients() + i) * tables.inner..][..tables.inner];
            let terms = series.iter().zip(points).map(|(c, t)| i128::from(*c) * i128::from(*t));
            let sum = terms.sum::<i128>() + (1 << (ARGUMENT + FINE - 1));
            (sum >> (ARGUMENT + FINE)) as u64
        };
        let mut turned = vec![0; n];
        for i in 0..self.coefficients() {
            let mut row: SecretWords = (0..n).map(|m| of_segment(m, i)).collect::<Vec<u64>>().into();
            for bit in 0..self.index {
                let mask = Mask::from_bit(index >> bit);
                for (j, word) in turned.iter_mut().enumerate() {
                    *word = mask.select(row[(j + (1 << bit)) % n], row[j]);
                }
                row.copy_from_slice(&turned);
            }
            rows.extend_from_slice(&row);
        }
        crate::share::wipe(&mut turned);
    }
}

/// Coefficients of a function, integers.
#[derive(Clone)]
pub(super) struct Tables {
    words: Vec<i64>,
    /// Numbers for each coefficient.
    inner: usize,
}

impl Tables {
    /// Those of the function times `factor`.
    pub fn times(&self, factor: f64) -> Tables {
        let words = self.words.iter().map(|w| (*w as f64 * factor).round() as i64);
        Tables { words: words.collect(), inner: self.inner }
    }
}

/// The ring of the sum of a series.
fn summed(to: Ring) -> Ring {
    Ring::new((to.bits() + POINT - 1 + GUARD).min(64))
}

/// 2l/2^rest − 1 with [`ARGUMENT`] fraction bits.
fn argument(l: u64, rest: u32) -> i64 {
    let wide = i128::from(l) << (ARGUMENT + 1);
    (wide >> rest) as i64 - (1 << ARGUMENT)
}

/// T_0(z) … T_last(z), all with [`ARGUMENT`] fraction bits.
fn chebyshev(z: i64, last: usize) -> zeroize::Zeroizing<Vec<i64>> {
    let mut values = zeroize::Zeroizing::new(Vec::with_capacity(last + 1));
    let (mut now, mut next) = (1i64 << ARGUMENT, z);
    for _ in 0..=last {
        values.push(now);
        (now, next) = (next, ((z * next) >> (ARGUMENT - 1)) - now);
    }
    values
}

/// T in 0 ..= 2^POINT for −1 to 1.
fn rounded(t: i64) -> u64 {
    const DROP: u32 = ARGUMENT + 1 - POINT;
    ((t + (1 << ARGUMENT) + (1 << (DROP - 1))) >> DROP) as u64
}

/// The constants on which both parties must agree, as text.
pub(super) fn describe() -> String {
    format!("series {POINT} {GUARD} {ERROR} {MOST_DEGREE} {SEGMENTS:?} {FACTOR}")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{assert_cost, reveal, run_counted, share};
    use hushed_math::rng::SecretRng;

    /// Over all of a range and its ends, under random shares and under shares whose rests add up to a segment or more.
    #[test]
    fn every_cut_gives_the_function() {
        let (frac, to) = (16, Ring::new(33));
        let mut rng = SecretRng::insecure_from_seed(4);
        let mut tried = 0;
        let narrow = (1 << 28, (1 << 28) + 1);
        for (least, most) in [(7_300, 143_000), (7_300, 290_000), (7_300, 7_301), (1 << 20, 1 << 21), (9, 200), narrow]
        {
            let x: Vec<u64> = (0..300).map(|_| least + rng.next_u64() % (most - least + 1)).collect();
            let x = [vec![least, least + 1, most - 1, most], x].concat();
            for index in SEGMENTS {
                let Some(cut) = Cut::of(Bounds { least, most }, 30, index) else {
                    continue;
                };
                tried += 1;
                let (x0, x1) = share(Ring::new(30), &x, u64::from(index));
                let scale = least as f64;
                let inverse = [cut.tables(|x| scale / x, frac)];
                let root = [cut.tables(|x| (scale / x).sqrt(), frac)];
                for (tables, f) in [(inverse, 1.0), (root, 0.5)] {
                    let run = |ctx: &mut Ctx, x: &Share| cut.evaluate(ctx, x, || tables.to_vec(), to).unwrap();
                    let (a, b, stats) = run_counted(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
                    assert_cost(&stats, cut.cost(x.len(), to));
                    for (x, y) in x.iter().zip(reveal(&a, &b)) {
                        let (want, got) = ((scale / *x as f64).powf(f), to.decode(y) as f64 / 65536.0);
                        assert!((got - want).abs() < 1.2e-4 * want + 4e-5, "{cut:?} {x}: {got} for {want}");
                    }
                }
            }
        }
        assert!(tried > 12, "{tried}");
    }

    /// Functions that differ by a factor share their tables.
    #[test]
    fn parts_have_functions_of_their_own() {
        let (to, bounds) = (Ring::new(40), Bounds { least: 1000, most: 2000 });
        let cut = Cut::cheapest(&Link::INTERNET, 6, bounds, Ring::new(30), to).unwrap();
        let first = cut.tables(|x| 1000.0 / x, 20);
        let second = first.times(3.0);
        let x = [1000, 1500, 2000, 1000, 1500, 2000];
        let (x0, x1) = share(Ring::new(30), &x, 8);
        let functions = [first, second];
        let run = |ctx: &mut Ctx, x: &Share| cut.evaluate(ctx, x, || functions.to_vec(), to).unwrap();
        let (a, b, _) = run_counted(|ctx| run(ctx, &x0), |ctx| run(ctx, &x1));
        let want = [1.0, 2.0 / 3.0, 0.5, 3.0, 2.0, 1.5];
        for (want, got) in want.iter().zip(reveal(&a, &b)) {
            let got = to.decode(got) as f64 / f64::from(1 << 20);
            assert!((got - want).abs() < 1e-4 * want, "{got} for {want}");
        }
    }

    #[test]
    fn no_cut_reaches_the_pole() {
        let wide = Bounds { least: 1, most: 1 << 20 };
        assert_eq!(Cut::cheapest(&Link::INTERNET, 1, wide, Ring::new(30), Ring::new(33)), None);
        let narrow = Bounds { least: 1 << 10, most: 1 << 11 };
        assert_eq!(Cut::cheapest(&Link::INTERNET, 1, narrow, Ring::new(30), Ring::new(60)), None);
    }
}
