//! Sums of products and of multiples, with which polynomials are evaluated.

use hushed_ckks::Scale;
use hushed_ckks::poly::{Arithmetic, PolyError, SlotArithmetic, Weight};

use super::errors::mix;
use super::pairs::check_real;
use super::tally::{Held, Op};
use super::{Simulator, Vector, check_limbs, check_scales, rounded};
use crate::error::FheError;

/// A sum that is not yet relinearised or rescaled.
#[derive(Debug)]
pub struct Sum {
    slots: Option<Vec<f64>>,
    products: bool,
    limbs: usize,
    scale: Scale,
    id: u64,
    _held: Held,
}

impl Sum {
    fn add(&mut self, terms: impl Iterator<Item = f64>, id: u64) {
        match &mut self.slots {
            Some(slots) => slots.iter_mut().zip(terms).for_each(|(v, t)| *v += t),
            empty => *empty = Some(terms.collect()),
        }
        self.id = mix(self.id, id);
    }
}

impl Arithmetic for Simulator {
    type Value = Vector;
    type Sum = Sum;
    type Error = FheError;

    fn limbs(&self, x: &Vector) -> usize {
        x.limbs
    }

    fn scale(&self, x: &Vector) -> Scale {
        x.scale
    }

    fn prime(&self, index: usize) -> u64 {
        self.params.prime(index)
    }

    fn level_primes(&self, limbs: usize) -> usize {
        self.params.level_primes(limbs)
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<Sum, FheError> {
        let room = self.room[limbs];
        if scale.log2() >= room {
            let bits = scale.log2();
            return Err(PolyError::Overflow { bits, limbs, room }.into());
        }
        Ok(Sum { slots: None, products: false, limbs, scale, id: 0, _held: Held::new(&self.tally, 3 * limbs) })
    }

    fn add_product(&self, sum: &mut Sum, a: &Vector, b: &Vector, weight: Weight) -> Result<(), FheError> {
        check_limbs(a, sum.limbs)?;
        check_limbs(b, sum.limbs)?;
        check_real(a)?;
        check_real(b)?;
        check_scales(sum.scale, weight.scale(a.scale.times(b.scale))?)?;
        let pairs = a.slots.iter().zip(&b.slots);
        sum.add(pairs.map(|(x, y)| x * y * weight.value), mix(a.id, b.id));
        sum.products = true;
        self.tally.count(Op::Tensor, sum.limbs, 1);
        Ok(())
    }

    fn add_multiple(&self, sum: &mut Sum, x: &Vector, factor: f64) -> Result<(), FheError> {
        check_limbs(x, sum.limbs)?;
        check_real(x)?;
        let factor = rounded(factor, sum.scale.over(x.scale).value());
        sum.add(x.slots.iter().map(|v| v * factor), mix(x.id, factor.to_bits()));
        self.tally.count(Op::Multiple, sum.limbs, 1);
        Ok(())
    }

    fn finish(&self, sum: Sum) -> Result<Vector, FheError> {
        let slots = match sum.slots {
            Some(slots) => slots,
            None if self.counting => Vec::new(),
            None => vec![0.0; self.slots],
        };
        if sum.products {
            self.tally.count(Op::Relinearise, sum.limbs, 1);
        }
        self.rescale(slots, sum.limbs, sum.scale.value(), sum.id)
    }

    fn add_constant(&self, mut x: Vector, c: f64) -> Result<Vector, FheError> {
        let c = rounded(c, x.scale.value());
        x.slots.iter_mut().for_each(|v| *v += c);
        Ok(x)
    }

    fn read_as(&self, mut x: Vector, factor: f64) -> Result<Vector, FheError> {
        x.scale = Scale::new(x.scale.value() / factor)?;
        x.slots.iter_mut().for_each(|v| *v *= factor);
        x.imaginary.each(|part| part.iter_mut().for_each(|v| *v *= factor));
        Ok(x)
    }
}

impl SlotArithmetic for Simulator {
    fn add_multiples(&self, sum: &mut Sum, x: &Vector, factors: &[f64]) -> Result<(), FheError> {
        check_limbs(x, sum.limbs)?;
        check_real(x)?;
        self.check_period(factors.len())?;
        let scale = sum.scale.over(x.scale).value();
        let mut factors: Vec<f64> = match self.counting {
            true => Vec::new(),
            false => factors.iter().copied().cycle().take(self.slots).collect(),
        };
        let id = mix(x.id, 0x6d76);
        if let Some(errors) = &self.errors {
            errors.encoding(&mut factors, id, scale);
        }
        let terms = x.slots.iter().zip(&factors);
        sum.add(terms.map(|(v, f)| v * f), id);
        self.tally.count(Op::MulVector, sum.limbs, 1);
        Ok(())
    }

    fn add_numbers(&self, mut x: Vector, numbers: &[f64]) -> Result<Vector, FheError> {
        self.check_period(numbers.len())?;
        self.tally.count(Op::AddVector, x.limbs, 1);
        let all = numbers.iter().cycle();
        x.slots.iter_mut().zip(all).for_each(|(x, v)| *x += v);
        Ok(x)
    }
}

impl Simulator {
    /// A copy of `x` with `limbs` primes.
    pub(super) fn copy(&self, x: &Vector, limbs: usize) -> Vector {
        Vector { imaginary: x.imaginary.clone(), ..self.make(x.slots.clone(), limbs, x.scale, x.id) }
    }
}
