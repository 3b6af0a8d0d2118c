//! Real vectors: two of them, u and v, form one message u + i·v, whose parts come out separately.
//!
//! A vector without a partner takes one EvalMod: the imaginary part from CoeffsToSlots is ignored. That saves a quarter
//! of a bootstrap (measured in docs/one-text.md), with the same keys, and gives bit for bit the same result as pairing
//! it with a vector of zeros.

use crate::bootstrap::{Bootstrapper, SLACK, Target};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;

impl Bootstrapper {
    /// Refreshes real vectors, two per bootstrap, to `limbs` primes as [`Bootstrapper::bootstrap_many_to`] does. With
    /// an odd number, the last one has a bootstrap to itself.
    ///
    /// # Errors
    /// As [`Bootstrapper::bootstrap_many_to`], and [`CkksError::ScaleMismatch`] if two vectors that share a bootstrap
    /// have different scales.
    pub fn bootstrap_real(
        &self,
        evaluator: &Evaluator,
        vectors: &[&Ciphertext],
        limbs: usize,
    ) -> Result<Vec<Ciphertext>, CkksError> {
        let packed = vectors.chunks(2).map(|both| self.packed(evaluator, both));
        let packed = packed.collect::<Result<Vec<_>, CkksError>>()?;
        let packed: Vec<_> = packed.iter().collect();
        let target = Target { last_real: vectors.len() % 2 == 1, ..Target::new(self.output_scale, limbs) };
        let halves = self.refresh_at(evaluator, &packed, target)?;
        let mut done = Vec::with_capacity(2 * packed.len());
        for (halves, ct) in halves.into_iter().zip(packed) {
            let magnitude = self.noise(ct).magnitude();
            done.extend(halves.part(evaluator)?.into_iter().map(|part| {
                let noise = part.noise().within(magnitude);
                part.with_noise(noise)
            }));
        }
        // With sparse slots both parts come in one ciphertext.
        done.truncate(vectors.len());
        Ok(done)
    }

    /// u + i·v, or u alone, over the lowest primes.
    fn packed(&self, evaluator: &Evaluator, both: &[&Ciphertext]) -> Result<Ciphertext, CkksError> {
        let limbs = self.params.bootstrap_limbs();
        let [first, rest @ ..] = both else {
            return Err(CkksError::BootstrapLevels { needed: 0, available: 0 });
        };
        let mut sum = self.lowered(evaluator, first, limbs)?;
        let mut magnitude = first.noise().magnitude();
        for second in rest {
            let mut other = self.lowered(evaluator, second, limbs)?;
            evaluator.mul_i_assign(&mut other)?;
            evaluator.add_assign(&mut other, &sum)?;
            magnitude = magnitude.max(second.noise().magnitude());
            // The sum has the scale of the second.
            sum = other;
        }
        // Each part is bounded separately.
        let noise = sum.noise().within(magnitude);
        let sum = sum.with_noise(noise);
        self.check_range(&sum, SLACK)?;
        Ok(sum)
    }
}
