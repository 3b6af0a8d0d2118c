//! Change of residue number system: what the kernels share, and the portable kernel.
//!
//! With F = Π f_i and y_i = x_i·(F/f_i)^−1 mod f_i, the numbers X with these residues are Σ y_i·F/f_i − v·F for
//! integers v; the centred one has v = round(Σ y_i/f_i) (Shenoy and Kumaresan 1989 for the idea; here without an extra
//! modulus, by an approximate quotient as in Halevi, Polyakov and Shoup 2019, §2.2). The quotient is taken in fixed
//! point with 51 bits after the point: no floating point, hence equal in every kernel by construction.

use crate::modulus::Modulus;
use zeroize::Zeroizing;

/// Bits after the point of a quotient.
pub(crate) const POINT: u32 = 51;

/// A source modulus f.
pub(crate) struct Source {
    pub(crate) modulus: Modulus,
    /// (F/f)^−1 mod f.
    pub(crate) inverse: u64,
    /// ⌊2^(51 + bits)/f⌋ < 2^52: y·ratio/2^bits is 2^51·y/f less an error below 2.
    pub(crate) ratio: u64,
}

/// A target modulus t.
pub(crate) struct Target {
    pub(crate) modulus: Modulus,
    /// F/f_i mod t for each source, then −F mod t, the factor of v.
    pub(crate) factors: Box<[u64]>,
}

/// The constants of one conversion.
pub(crate) struct ConversionTables {
    pub(crate) sources: Box<[Source]>,
    pub(crate) targets: Box<[Target]>,
}

impl ConversionTables {
    /// Both lists of distinct primes; `from` is not empty.
    pub(crate) fn new(from: &[Modulus], to: &[Modulus]) -> ConversionTables {
        // The product of all moduli of `from` except number `skip`.
        let product = |t: &Modulus, skip: usize| {
            from.iter()
                .enumerate()
                .filter(|&(i, _)| i != skip)
                .fold(1, |product, (_, f)| t.mul(product, t.reduce(f.value())))
        };
        let source = |(i, f): (usize, &Modulus)| Source {
            modulus: *f,
            // By Fermat: the moduli are distinct primes.
            inverse: f.pow(product(f, i), f.value() - 2),
            ratio: ((1_u128 << (POINT + f.bits())) / u128::from(f.value())) as u64,
        };
        let target = |t: &Modulus| Target {
            modulus: *t,
            factors: (0..from.len()).map(|i| product(t, i)).chain([t.neg(product(t, from.len()))]).collect(),
        };
        ConversionTables {
            sources: from.iter().enumerate().map(source).collect(),
            targets: to.iter().map(target).collect(),
        }
    }

    /// What is added to a sum of quotients before it is truncated at the point: one half, plus the middle of its error,
    /// as each of the sources loses less than two units.
    pub(crate) fn rounding(&self) -> u64 {
        (1 << (POINT - 1)) + self.sources.len() as u64
    }
}

/// Strips are short enough for the y_i of a usual digit to stay in the first-level cache.
const STRIP: usize = 128;

/// [`crate::BaseConverter::convert`] on slices of one length.
pub(crate) fn portable(tables: &ConversionTables, src: &[&[u64]], out: &mut [&mut [u64]]) {
    let length = src[0].len();
    let mut terms = Zeroizing::new(vec![[0_u64; STRIP]; tables.sources.len() + 1]);
    for start in (0..length).step_by(STRIP) {
        let end = length.min(start + STRIP);
        let mut rows: Vec<&mut [u64]> = terms.iter_mut().map(|row| &mut row[..end - start]).collect();
        for (row, x) in rows.iter_mut().zip(src) {
            row.copy_from_slice(&x[start..end]);
        }
        prepare(tables, &mut rows);
        let rows: Vec<&[u64]> = rows.iter().map(|row| &**row).collect();
        let mut out: Vec<&mut [u64]> = out.iter_mut().map(|out| &mut out[start..end]).collect();
        combine(tables, &rows, &mut out);
    }
}

/// Replaces the x_i by the y_i, then computes the quotients v.
pub(crate) fn prepare(tables: &ConversionTables, terms: &mut [&mut [u64]]) {
    let Some((v, y)) = terms.split_last_mut() else {
        return;
    };
    v.fill(tables.rounding());
    for (y, source) in y.iter_mut().zip(&tables.sources) {
        let (f, shoup) = (&source.modulus, source.modulus.shoup(source.inverse));
        for (y, v) in y.iter_mut().zip(v.iter_mut()) {
            let lazy = f.mul_shoup_lazy(*y, source.inverse, shoup);
            *y = crate::modulus::csub(lazy, f.value());
            *v += ((u128::from(*y) * u128::from(source.ratio)) >> f.bits()) as u64;
        }
    }
    v.iter_mut().for_each(|v| *v >>= POINT);
}

/// Σ terms·factors for each target.
pub(crate) fn combine(tables: &ConversionTables, terms: &[&[u64]], out: &mut [&mut [u64]]) {
    for (target, out) in tables.targets.iter().zip(out.iter_mut()) {
        for (start, out) in (0..).step_by(STRIP).zip(out.chunks_mut(STRIP)) {
            // At most 129 terms below 2^100.
            let mut sums = [0_u128; STRIP];
            for (y, &factor) in terms.iter().zip(&target.factors) {
                for (sum, &y) in sums.iter_mut().zip(&y[start..start + out.len()]) {
                    *sum += u128::from(y) * u128::from(factor);
                }
            }
            for (out, &sum) in out.iter_mut().zip(&sums) {
                *out = target.modulus.reduce_u128(sum);
            }
        }
    }
}
