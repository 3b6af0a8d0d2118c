//! Polynomials of ciphertexts: the evaluator as [`Arithmetic`].

use num_complex::Complex64;

use super::arithmetic::{Arithmetic, Weight};
use super::error::PolyError;
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::{Evaluator, Tensor};
use crate::noise::Noise;
use crate::plaintext::Plaintext;
use crate::scale::Scale;

/// A sum of products and multiples; allocates nothing before the first term.
pub struct EncryptedSum {
    limbs: usize,
    scale: Scale,
    terms: Option<Tensor>,
}

impl EncryptedSum {
    /// Primes.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// Scale.
    pub fn scale(&self) -> Scale {
        self.scale
    }
}

impl Evaluator {
    /// Adds x ⊗ `plain` to a sum: [`super::SlotArithmetic::add_multiples`] for a caller that encodes the factors.
    ///
    /// # Errors
    /// As [`Evaluator::tensor_add_plain`].
    pub fn add_plain_multiple(
        &self,
        sum: &mut EncryptedSum,
        x: &Ciphertext,
        plain: &Plaintext,
    ) -> Result<(), CkksError> {
        let mut terms = match sum.terms.take() {
            Some(terms) => terms,
            None => self.empty_tensor(sum.limbs, sum.scale)?,
        };
        self.tensor_add_plain(&mut terms, x, plain)?;
        sum.terms = Some(terms);
        Ok(())
    }
}

impl Arithmetic for Evaluator {
    type Value = Ciphertext;
    type Sum = EncryptedSum;
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

    fn level_primes(&self, limbs: usize) -> usize {
        self.params().level_primes(limbs)
    }

    fn sum(&self, limbs: usize, scale: Scale) -> Result<EncryptedSum, CkksError> {
        let room = self.params().rlwe().log2_q(limbs) - 1.0;
        if scale.log2() >= room {
            let bits = scale.log2();
            return Err(PolyError::Overflow { bits, limbs, room }.into());
        }
        Ok(EncryptedSum { limbs, scale, terms: None })
    }

    fn add_product(
        &self,
        sum: &mut EncryptedSum,
        a: &Ciphertext,
        b: &Ciphertext,
        weight: Weight,
    ) -> Result<(), CkksError> {
        let scale = weight.scale(a.scale().times(b.scale()))?;
        sum.scale.check(scale, "add_product")?;
        let multiplied;
        let a = if weight.integer == 1 {
            a
        } else {
            let mut copy = self.drop_to(a, a.limbs().min(sum.limbs))?;
            self.mul_int_assign(&mut copy, weight.integer)?;
            multiplied = copy;
            &multiplied
        };
        // integer·a·b is the message value·a·b at a suitable scale.
        let factor = weight.value / weight.integer as f64;
        let Some(terms) = &mut sum.terms else {
            let product = self.tensor_over(a, b, sum.limbs)?;
            sum.terms = Some(product.read_as(factor)?);
            return Ok(());
        };
        if factor == 1.0 {
            return self.tensor_add_assign(terms, a, b);
        }
        let product = self.tensor_over(a, b, sum.limbs)?.read_as(factor)?;
        self.add_tensor(terms, &product)
    }

    fn add_multiple(&self, sum: &mut EncryptedSum, x: &Ciphertext, factor: f64) -> Result<(), CkksError> {
        self.add_combination(sum, &[(factor, x)])
    }

    fn add_combination(&self, sum: &mut EncryptedSum, terms: &[(f64, &Ciphertext)]) -> Result<(), CkksError> {
        let mut tensor = match sum.terms.take() {
            Some(tensor) => tensor,
            None => self.empty_tensor(sum.limbs, sum.scale)?,
        };
        let terms = terms.iter().map(|&(c, x)| (Complex64::from(c), x));
        self.tensor_add_combination(&mut tensor, &terms.collect::<Vec<_>>())?;
        sum.terms = Some(tensor);
        Ok(())
    }

    fn finish(&self, sum: EncryptedSum) -> Result<Ciphertext, CkksError> {
        let terms = match sum.terms {
            Some(terms) => terms,
            None => self.empty_tensor(sum.limbs, sum.scale)?,
        };
        let once = self.finish_tensor(terms)?;
        // The second of two divisions also divides the rounding error of the first.
        (1..self.level_primes(sum.limbs)).try_fold(once, |ct, _| self.rescale(&ct))
    }

    fn add_constant(&self, mut x: Ciphertext, c: f64) -> Result<Ciphertext, CkksError> {
        self.add_scalar_assign(&mut x, Complex64::from(c))?;
        Ok(x)
    }

    fn read_as(&self, x: Ciphertext, factor: f64) -> Result<Ciphertext, CkksError> {
        x.read_as(factor)
    }

    fn within(&self, x: Ciphertext, bound: f64) -> Ciphertext {
        // Predicted, not proved: slots outside the interval or off the real line grow with every doubling of the
        // degree, and the error with them. So no bound remains; a caller who vouches for the slots states one.
        let noise = x.noise().within(bound).with_norm(f64::INFINITY);
        x.with_noise(noise)
    }

    fn take_error(&self, x: Ciphertext) -> (Ciphertext, f64) {
        let noise = x.noise();
        let exact = Noise::new(noise.magnitude(), 0.0).with_norm(noise.norm());
        (x.with_noise(exact), noise.deviation())
    }

    fn with_error(&self, x: Ciphertext, deviation: f64) -> Ciphertext {
        let noise = x.noise().plus(deviation, 0.0);
        x.with_noise(noise)
    }
}

#[cfg(test)]
#[path = "encrypted_tests.rs"]
mod tests;
