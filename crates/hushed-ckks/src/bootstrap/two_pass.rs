//! Two bootstraps for twice the precision: the second refreshes the error of the first.
//!
//! Meta-BTS (Bae, Cheon, Cho, Kim and Kim, CCS 2022): with B(x) = x + e, the difference x − B(x) = −e is small and
//! stays within the range even when multiplied by 2^k, so B(2^k·(−e))/2^k = −e + e'/2^k reduces the error from e to
//! e'/2^k. The input keeps its primes until the second pass has used them; results have as many as after one.

use crate::bootstrap::{Bootstrapper, Target};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::scale::Scale;

/// The error of one pass, times 2^k, must stay below this fraction of the range.
const MARGIN: f64 = 0.5;

impl Bootstrapper {
    /// As [`Bootstrapper::bootstrap`], in two passes; `gain` is k, the bits by which the second pass improves on the
    /// first. If 2^k times the error of the first pass leaves the range, the result is useless; 12 suits the presets.
    ///
    /// With sparse slots the second pass refreshes the mean error over a slot's copies, which is what decoding reads.
    ///
    /// # Errors
    /// As [`Bootstrapper::bootstrap`], and [`CkksError::BootstrapRange`] if `gain` is too large for the predicted error
    /// of the first pass.
    pub fn bootstrap_twice(&self, evaluator: &Evaluator, ct: &Ciphertext, gain: u32) -> Result<Ciphertext, CkksError> {
        let first = self.bootstrap(evaluator, ct)?;
        let limbs = self.params.bootstrap_limbs();
        let low = self.lowered(evaluator, ct, limbs)?;
        // Both must have the same scale, so that only the error is left in the difference.
        let factor = 2f64.powi(gain.min(40) as i32);
        let limit = self.eval_mod.literal().bound * self.factor(ct.scale());
        // Six deviations of the first pass's error.
        let magnitude = 6.0 * first.noise().deviation() * factor;
        if magnitude > MARGIN * limit {
            return Err(CkksError::BootstrapRange { magnitude, limit: MARGIN * limit, scale: ct.scale().log2() });
        }
        let mut difference = self.bootstrapped_at(evaluator, &first, low.scale())?;
        evaluator.neg_assign(&mut difference)?;
        evaluator.add_assign(&mut difference, &low)?;
        evaluator.mul_int_assign(&mut difference, factor as i64)?;
        let noise = difference.noise().within(MARGIN * limit);
        let difference = difference.with_noise(noise);
        // 2^k times the error, at 2^−k of the scale, is the error at that scale.
        let target = Target::new(Scale::new(first.scale().value() / factor)?, self.output_limbs());
        let mut correction = self.refresh_at(evaluator, &[&difference], target)?;
        let correction = correction.pop().ok_or(CkksError::BootstrapLevels { needed: 0, available: 0 })?;
        let correction = self.joined(evaluator, correction, &difference)?.read_as(1.0 / factor)?;
        let mut out = first;
        let rest = correction.noise().deviation().hypot(ct.noise().deviation());
        let noise = ct.noise();
        evaluator.add_assign(&mut out, &correction)?;
        Ok(out.with_noise(crate::noise::Noise::new(noise.magnitude(), rest)))
    }

    /// The result of the first pass with as many primes as a bootstrap starts from, at the scale of its input.
    fn bootstrapped_at(
        &self,
        evaluator: &Evaluator,
        first: &Ciphertext,
        scale: Scale,
    ) -> Result<Ciphertext, CkksError> {
        let limbs = self.params.bootstrap_limbs();
        if first.scale().matches(scale) {
            return self.lowered(evaluator, first, limbs);
        }
        // One of the fresh levels is spent on changing the scale.
        let longer = self.lowered(evaluator, first, limbs + 1)?;
        let prime = self.params.prime(limbs);
        let missing = scale.times_prime(prime).over(longer.scale());
        let product = evaluator.mul_scalar(&longer, 1.0.into(), missing)?;
        evaluator.rescale(&product)
    }
}
