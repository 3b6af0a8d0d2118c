//! Pairs: vectors whose slots also have an imaginary part.
//!
//! The imaginary part of a product of two pairs is never used ([`crate::packing::Pairs`]), so it is not computed: it is
//! marked as unknown, and reading it is an error.

use hushed_ckks::{CkksError, Scale};

use super::errors::mix;
use super::imaginary::Imaginary;
use super::tally::{Held, Op};
use super::{Simulator, Vector, check_limbs, check_scales};
use crate::error::FheError;

/// Checks that a vector is real, for operations on real vectors only.
pub(super) fn check_real(x: &Vector) -> Result<(), FheError> {
    match x.imaginary {
        Imaginary::Zero => Ok(()),
        _ => Err(misused("a pair of vectors where one was expected")),
    }
}

/// Checks that no part of a vector is unknown.
pub(super) fn check_known(x: &Vector) -> Result<(), FheError> {
    match x.imaginary {
        Imaginary::Unknown => Err(misused("products of products of pairs")),
        _ => Ok(()),
    }
}

fn misused(what: &str) -> FheError {
    FheError::Unsupported { what: what.to_owned(), remedy: "part it first" }
}

/// Number of slots that stay in the first-level cache while a product of a grid is summed.
const BLOCK: usize = 2048;

impl Simulator {
    /// Σ left ⊗ right: the real parts, and the imaginary parts if no term has two pairs.
    pub(super) fn sum_of_products<'v, I>(&self, terms: impl Fn() -> I) -> (Vec<f64>, Imaginary)
    where
        I: Iterator<Item = (&'v Vector, &'v Vector)>,
    {
        let slots = if self.counting { 0 } else { self.slots };
        let mut real = vec![0.0; slots];
        for (block, sums) in real.chunks_mut(BLOCK).enumerate() {
            let range = block * BLOCK..block * BLOCK + sums.len();
            for (left, right) in terms() {
                add_products(sums, &left.slots[range.clone()], &right.slots[range.clone()]);
                if let (Some(left), Some(right)) = (left.imaginary.values(), right.imaginary.values()) {
                    let products = left[range.clone()].iter().zip(&right[range.clone()]);
                    let pairs = sums.iter_mut().zip(products);
                    pairs.for_each(|(s, (a, b))| *s -= a * b);
                }
            }
        }
        let is_pair = |v: &Vector| !matches!(v.imaginary, Imaginary::Zero);
        if terms().any(|(left, right)| is_pair(left) && is_pair(right)) {
            return (real, Imaginary::Unknown);
        }
        if !terms().any(|(left, right)| is_pair(left) || is_pair(right)) {
            return (real, Imaginary::Zero);
        }
        let mut imaginary = vec![0.0; slots];
        for (left, right) in terms() {
            for (pair, other) in [(left, right), (right, left)] {
                if let Some(values) = pair.imaginary.values() {
                    add_products(&mut imaginary, values, &other.slots);
                }
            }
        }
        (real, Imaginary::Known(imaginary))
    }

    /// Both parts of x ⊗ (`re` + i·`im`).
    pub(super) fn times_pairs(&self, x: &Vector, re: &[f64], im: &[f64]) -> Result<(Vec<f64>, Imaginary), FheError> {
        check_known(x)?;
        let times = |x: &[f64], v: &[f64]| -> Vec<f64> { x.iter().zip(v).map(|(x, v)| x * v).collect() };
        let mut real = times(&x.slots, re);
        let mut imaginary = times(&x.slots, im);
        if let Some(b) = x.imaginary.values() {
            let sums = real.iter_mut().zip(&mut imaginary);
            for ((sums, b), (re, im)) in sums.zip(b).zip(re.iter().zip(im)) {
                *sums.0 -= b * im;
                *sums.1 += b * re;
            }
        }
        Ok((real, Imaginary::Known(imaginary)))
    }

    /// [`Simulator::rescale`] of both parts; their errors are independent.
    pub(super) fn rescale_pair(
        &self,
        slots: Vec<f64>,
        mut imaginary: Imaginary,
        limbs: usize,
        wide: f64,
        id: u64,
    ) -> Result<Vector, FheError> {
        if let Imaginary::Known(values) = &imaginary {
            self.check_room(values, limbs, wide)?;
        }
        let mut done = self.rescale(slots, limbs, wide, id)?;
        if let Some(errors) = &self.errors {
            let scale = done.scale.value();
            imaginary.each(|part| errors.rescale(part, mix(done.id, 0x696d), scale));
        }
        done.imaginary = imaginary;
        Ok(done)
    }

    /// a + `sign`·i·b.
    pub(super) fn joined(&self, mut a: Vector, mut b: Vector, sign: f64) -> Result<Vector, FheError> {
        check_known(&a)?;
        check_known(&b)?;
        check_scales(a.scale, b.scale)?;
        check_limbs(&a, b.limbs)?;
        check_limbs(&b, a.limbs)?;
        self.tally.count(Op::Add, a.limbs, 1);
        a.id = mix(mix(a.id, b.id), sign.to_bits());
        let mut turned = Imaginary::Known(std::mem::take(&mut b.slots));
        turned.each(|part| part.iter_mut().for_each(|v| *v *= sign));
        a.imaginary.join(&turned, |a, b| *a += b);
        if let Some(b) = b.imaginary.values() {
            let real = a.slots.iter_mut().zip(b);
            real.for_each(|(a, b)| *a -= sign * b);
        }
        Ok(a)
    }

    /// The real parts of x at twice the scale, counted as a conjugation.
    pub(super) fn doubled(&self, x: &Vector) -> Result<Vector, FheError> {
        self.tally.count(Op::Hoist, x.limbs, 1);
        self.tally.count(Op::Conjugate, x.limbs, 1);
        self.tally.count(Op::Add, x.limbs, 1);
        let _digits = Held::new(&self.tally, self.decomposed[x.limbs]);
        let mut sum = self.make(x.slots.clone(), x.limbs, x.scale, mix(x.id, 0x7265));
        sum.scale = double(sum.scale)?;
        self.switched(&mut sum.slots, sum.id, sum.scale);
        Ok(sum)
    }

    /// The imaginary parts of `x`, after [`Simulator::doubled`] has counted the conjugation.
    pub(super) fn imaginary(&self, x: &Vector) -> Result<Vector, FheError> {
        self.tally.count(Op::Add, x.limbs, 1);
        let slots = match &x.imaginary {
            Imaginary::Known(values) => values.clone(),
            Imaginary::Zero => vec![0.0; x.slots.len()],
            Imaginary::Unknown => return Err(misused("imaginary parts of products of pairs")),
        };
        let mut part = self.make(slots, x.limbs, x.scale, mix(x.id, 0x696d));
        part.scale = double(part.scale)?;
        self.switched(&mut part.slots, part.id, part.scale);
        Ok(part)
    }
}

fn double(scale: Scale) -> Result<Scale, CkksError> {
    Scale::new(2.0 * scale.value())
}

/// sums += left ⊗ right.
fn add_products(sums: &mut [f64], left: &[f64], right: &[f64]) {
    let products = left.iter().zip(right);
    let pairs = sums.iter_mut().zip(products);
    pairs.for_each(|(s, (a, b))| *s += a * b);
}
