//! Polynomials of ciphertexts: the evaluator as [`Arithmetic`].

use num_complex::Complex64;

use super::arithmetic::{Arithmetic, PolyError, Weight};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::{Evaluator, Tensor};
use crate::noise::Noise;
use crate::scale::Scale;

impl Arithmetic for Evaluator {
    type Value = Ciphertext;
    type Sum = Tensor;
    type Error = CkksError;

    fn limbs(&self, x: &Ciphertext) -> usize {
        x.limbs()
    }

    fn scale(&self, x: &Ciphertext) -> Scale {
        x.scale()
    }

    fn prime(&self, index: usize) -> u64 {
        self.params().prime(index)
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<Tensor, CkksError> {
        let room = self.params().rlwe().log2_q(limbs) - 1.0;
        if scale.log2() >= room {
            let bits = scale.log2();
            return Err(PolyError::Overflow { bits, limbs, room }.into());
        }
        self.empty_tensor(limbs, scale)
    }

    fn add_product(
        &self,
        sum: &mut Tensor,
        a: &Ciphertext,
        b: &Ciphertext,
        weight: Weight,
    ) -> Result<(), CkksError> {
        if weight == Weight::ONE {
            return self.tensor_add_assign(sum, a, b);
        }
        let mut a = self.drop_to(a, a.limbs().min(sum.limbs()))?;
        if weight.integer != 1 {
            self.mul_int_assign(&mut a, weight.integer)?;
        }
        // integer·a is the message value·a at the scale that makes it so.
        let a = a.read_as(weight.value / weight.integer as f64)?;
        self.tensor_add_assign(sum, &a, b)
    }

    fn add_multiple(&self, sum: &mut Tensor, x: &Ciphertext, factor: f64) -> Result<(), CkksError> {
        self.tensor_add_multiple(sum, x, Complex64::from(factor))
    }

    fn finish(&self, sum: Tensor) -> Result<Ciphertext, CkksError> {
        self.finish_tensor(sum)
    }

    fn add_constant(&self, mut x: Ciphertext, c: f64) -> Result<Ciphertext, CkksError> {
        self.add_scalar_assign(&mut x, Complex64::from(c))?;
        Ok(x)
    }

    fn read_as(&self, x: Ciphertext, factor: f64) -> Result<Ciphertext, CkksError> {
        x.read_as(factor)
    }

    fn within(&self, x: Ciphertext, bound: f64) -> Ciphertext {
        let noise = x.noise().within(bound);
        x.with_noise(noise)
    }

    fn take_error(&self, x: Ciphertext) -> (Ciphertext, f64) {
        let noise = x.noise();
        let exact = Noise::new(noise.magnitude(), 0.0);
        (x.with_noise(exact), noise.deviation())
    }

    fn with_error(&self, x: Ciphertext, deviation: f64) -> Ciphertext {
        let noise = x.noise().plus(deviation);
        x.with_noise(noise)
    }
}

#[cfg(test)]
#[path = "encrypted_tests.rs"]
mod tests;
