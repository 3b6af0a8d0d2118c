//! A message known to be small is refreshed at a larger scale, with as many more bits after the binary point.
//!
//! The error of a bootstrap is a part of its range: of the largest message that fits at the scale of the input. So a message within 2^−k
//! of that range has its integers multiplied by 2^k, and is read at 2^k times the scale: the same message, a range of its own size, and an
//! error 2^−k times as large. It costs an integer product of a short ciphertext, and no level.

use crate::bootstrap::Bootstrapper;
use crate::bootstrap::reduce::SLACK;
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;

/// Largest k: beyond it the scale's own rounding decides.
const MOST: f64 = 40.0;

impl Bootstrapper {
    /// The message of `ct`, whose slots are within `bound`, for any of the bootstraps of this type: shortened to the primes that they take,
    /// at the largest scale, a power of two times its own, at which the bound is within their range. Results are at the scale of all
    /// others, so each ciphertext of a call may have a bound of its own; the two of a pair need one.
    ///
    /// The bound is taken for true, also where less is known of `ct`. A slot beyond it comes back with an error that grows with its third
    /// power, as that of any slot beyond the range, and wrapped from `ratio`/2 times the bound on; nothing can tell.
    ///
    /// # Errors
    /// [`CkksError::BootstrapRange`] for a bound that is not positive, or beyond the range at the scale of `ct`;
    /// [`CkksError::LevelTooLow`] below the primes that a bootstrap starts from; [`CkksError::OtherParameters`].
    pub fn prescale(
        &self,
        evaluator: &Evaluator,
        ct: &Ciphertext,
        bound: f64,
    ) -> Result<Ciphertext, CkksError> {
        let limit = self.eval_mod.literal().bound * self.factor(ct.scale());
        // A NaN is refused too.
        let room = limit * SLACK / bound;
        if !(room >= 1.0 && bound > 0.0) {
            return Err(CkksError::BootstrapRange {
                magnitude: bound,
                limit,
                scale: ct.scale(),
            });
        }
        let factor = room.log2().floor().min(MOST).exp2();
        let mut low = self.lowered(evaluator, ct, self.params.bootstrap_limbs())?;
        evaluator.mul_int_assign(&mut low, factor as i64)?;
        let low = low.read_as(factor.recip())?;
        let noise = low.noise().within(bound);
        Ok(low.with_noise(noise))
    }
}
