//! Encoding of complex vectors as integer polynomials, and back.
//!
//! A message z of n = N/2 slots becomes the integer polynomial nearest to scale·m, where m is the real polynomial with
//! m(ζ^(5^j)) = z_j. Shorter messages are padded with zeros ([`Encoder::encode`]) or repeated over the slots
//! ([`Encoder::encode_periodic`]; the integers then lie at multiples of X^(n/period), and the transform is only as long
//! as the period). Constants need no encoder: the evaluator takes them directly.
//!
//! The time depends on the values only in whether a coefficient reaches 2^62. No message in the declared range of a
//! preset does so at a scale up to 2^50.

mod constant;
mod decode;
mod fft;
mod integers;
mod roots;
mod wiped;

use std::sync::Arc;

use hushed_math::{Coeff, Eval, RnsPoly};
use num_complex::Complex64;
use rayon::prelude::*;
use zeroize::Zeroizing;

pub use constant::{Constant, ConstantResidue};
pub use integers::Integers;

use crate::ciphertext::check_limbs;
use crate::error::CkksError;
use crate::noise::Noise;
use crate::params::CkksParams;
use crate::plaintext::Plaintext;
use crate::scale::Scale;
use fft::SlotTransform;
use wiped::Wiped;

/// Encoder and decoder of one parameter set. Threads may share it.
pub struct Encoder {
    params: Arc<CkksParams>,
    transform: SlotTransform,
}

impl Encoder {
    /// The encoder of `params`.
    pub fn new(params: &Arc<CkksParams>) -> Self {
        Self { params: params.clone(), transform: SlotTransform::new(params.slots()) }
    }

    /// The parameter set.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// Encodes up to n complex values, from slot 0 on and padded with zeros, over the first `limbs` primes.
    ///
    /// # Errors
    /// [`CkksError::TooManyValues`], [`CkksError::ValueOutOfRange`], [`CkksError::LimbCount`],
    /// [`CkksError::ScaleTooLarge`] if an integer would not fit the modulus.
    pub fn encode(&self, values: &[Complex64], limbs: usize, scale: Scale) -> Result<Plaintext, CkksError> {
        let integers = self.integers(values, scale)?;
        self.plaintext(&integers, limbs, scale, magnitude(values))
    }

    /// As [`Encoder::encode`] for real values.
    pub fn encode_real(&self, values: &[f64], limbs: usize, scale: Scale) -> Result<Plaintext, CkksError> {
        let values = Wiped(values.iter().map(|&x| x.into()).collect());
        self.encode(&values.0, limbs, scale)
    }

    /// Encodes a repeating message: slot j holds value j modulo the number of values, a power of two.
    ///
    /// # Errors
    /// As [`Encoder::encode`], and [`CkksError::NotPeriodic`].
    pub fn encode_periodic(&self, values: &[Complex64], limbs: usize, scale: Scale) -> Result<Plaintext, CkksError> {
        let integers = self.periodic_integers(values, scale)?;
        self.plaintext(&integers, limbs, scale, magnitude(values))
    }

    /// The integers for up to n values, padded with zeros, for encodings of another shape.
    ///
    /// # Errors
    /// [`CkksError::TooManyValues`], [`CkksError::ValueOutOfRange`].
    pub fn integers(&self, values: &[Complex64], scale: Scale) -> Result<Integers, CkksError> {
        let slots = self.params.slots();
        if values.len() > slots {
            return Err(CkksError::TooManyValues { given: values.len(), slots });
        }
        let mut padded = Wiped(vec![Complex64::new(0.0, 0.0); slots]);
        for (slot, value) in padded.0.iter_mut().zip(values) {
            *slot = *value;
        }
        self.embed(padded, scale)
    }

    /// The integers for a repeating message: twice its period many, at multiples of X^(n/period).
    ///
    /// # Errors
    /// [`CkksError::NotPeriodic`], [`CkksError::ValueOutOfRange`].
    pub fn periodic_integers(&self, values: &[Complex64], scale: Scale) -> Result<Integers, CkksError> {
        let (given, slots) = (values.len(), self.params.slots());
        if !given.is_power_of_two() || given > slots {
            return Err(CkksError::NotPeriodic { given, slots });
        }
        self.embed(Wiped(values.to_vec()), scale)
    }

    /// The residues of the integers under the moduli `ids`, computed in parallel by limb.
    ///
    /// # Panics
    /// If `ids` is empty, repeats a modulus, or names one that is not in the basis.
    pub fn residues(&self, integers: &Integers, ids: &[usize]) -> RnsPoly<Eval> {
        let basis = self.params.rlwe().basis();
        let mut poly = RnsPoly::<Coeff>::zero(basis, ids);
        let limbs: Vec<_> = poly.limbs_mut().collect();
        limbs.into_par_iter().for_each(|(id, limb)| {
            let ntt = basis.ntt(id);
            integers.reduce(ntt.pointwise(), limb);
            ntt.forward(limb);
        });
        poly.relabel()
    }

    fn embed(&self, mut values: Wiped, scale: Scale) -> Result<Integers, CkksError> {
        self.transform.inverse(&mut values.0);
        let s = scale.value();
        // w_k = m_k + i·m_(k+n).
        let real = values.0.iter().map(|w| w.re * s);
        let imaginary = values.0.iter().map(|w| w.im * s);
        // The length is known in advance, so no vector grows and leaves a copy behind.
        let coefficients: Zeroizing<Vec<f64>> = Zeroizing::new(real.chain(imaginary).collect());
        Integers::round(&coefficients, self.params.n(), scale)
    }

    fn plaintext(
        &self,
        integers: &Integers,
        limbs: usize,
        scale: Scale,
        magnitude: f64,
    ) -> Result<Plaintext, CkksError> {
        check_limbs(&self.params, "encode", limbs)?;
        let ids = self.params.rlwe().ciphertext_ids(limbs);
        self.check_room(integers, &ids, scale)?;
        let noise = Noise::encoded(self.params.n(), scale, magnitude);
        Ok(Plaintext::new(self.residues(integers, &ids), scale, noise))
    }

    /// Checks that the integers lie within (−Q/2, Q/2).
    fn check_room(&self, integers: &Integers, ids: &[usize], scale: Scale) -> Result<(), CkksError> {
        let basis = self.params.rlwe().basis();
        let modulus_bits: f64 = ids.iter().map(|&id| (basis.modulus(id).value() as f64).log2()).sum();
        if integers.max_bits() + 1.0 < modulus_bits {
            return Ok(());
        }
        Err(CkksError::ScaleTooLarge { scale: scale.log2(), limbs: ids.len(), modulus_bits })
    }

    /// The n slots of a decrypted polynomial.
    pub fn decode(&self, poly: &RnsPoly<Coeff>, scale: Scale) -> Vec<Complex64> {
        let coefficients = decode::centred(poly);
        let (real, imaginary) = coefficients.split_at(coefficients.len() / 2);
        let mut values: Vec<Complex64> = real
            .iter()
            .zip(imaginary)
            .map(|(&re, &im)| Complex64::new(re / scale.value(), im / scale.value()))
            .collect();
        self.transform.forward(&mut values);
        values
    }

    /// The N coefficients of a decrypted polynomial, divided by the scale.
    pub fn decode_coefficients(&self, poly: &RnsPoly<Coeff>, scale: Scale) -> Vec<f64> {
        let coefficients = decode::centred(poly);
        coefficients.iter().map(|c| c / scale.value()).collect()
    }
}

/// The largest modulus of `values`.
fn magnitude(values: &[Complex64]) -> f64 {
    values.iter().fold(0.0, |largest: f64, z| largest.max(z.norm_sqr())).sqrt()
}

#[cfg(test)]
mod tests;
