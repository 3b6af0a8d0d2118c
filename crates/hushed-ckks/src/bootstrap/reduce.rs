//! Step 5: EvalMod on the output of CoeffsToSlots, at the requested scale; its range and the error of its results.

use crate::bootstrap::{Bootstrapper, MODULUS};
use crate::ciphertext::Ciphertext;
use crate::error::CkksError;
use crate::evaluator::Evaluator;
use crate::noise::Noise;
use crate::scale::Scale;

impl Bootstrapper {
    /// Step 5 on one of the parts that CoeffsToSlots returned for `ct`: recovers that part of the message.
    ///
    /// # Errors
    /// As [`Bootstrapper::bootstrap`].
    pub fn reduce(&self, evaluator: &Evaluator, x: &Ciphertext, ct: &Ciphertext) -> Result<Ciphertext, CkksError> {
        self.reduce_at(evaluator, x, ct, self.output_scale)
    }

    pub(super) fn reduce_at(
        &self,
        evaluator: &Evaluator,
        x: &Ciphertext,
        ct: &Ciphertext,
        target: Scale,
    ) -> Result<Ciphertext, CkksError> {
        let factor = self.factor(ct.scale());
        let target = Scale::new(target.value() * factor)?;
        // x = m·Δ/q_0 becomes x·ratio.
        let value = self.eval_mod.evaluate(evaluator, x, target)?;
        let message = value.read_as(factor)?;
        Ok(message.with_noise(self.noise(ct)))
    }

    /// The ratio of the message to EvalMod's result for a message of this scale: 1 at scale q_0/ratio.
    pub(super) fn factor(&self, scale: Scale) -> f64 {
        self.params.prime(0) as f64 / (scale.value() * self.eval_mod.literal().ratio)
    }

    /// Noise of the result: EvalMod's own error, taken at its worst, and the input's.
    pub(super) fn noise(&self, ct: &Ciphertext) -> Noise {
        let report = self.eval_mod.report();
        let (factor, bound) = (self.factor(ct.scale()), self.eval_mod.literal().bound);
        let magnitude = if ct.noise().magnitude().is_finite() { ct.noise().magnitude() } else { bound * factor };
        // A part may be as large as |slot|, as in a real message. Where that exceeds the bound, the sine is less
        // linear.
        let part = (magnitude / factor).clamp(bound, bound * MODULUS);
        let sine_error = report.sine_error.max(self.eval_mod.sine_error(part));
        let own = (report.cosine_error + sine_error).hypot(self.rescaling);
        let input = if ct.noise().is_known() { ct.noise().deviation() } else { 0.0 };
        Noise::new(magnitude, input.hypot(own * factor))
    }

    /// Refuses a message beyond `room` times the bound at its scale.
    pub(super) fn check_range(&self, ct: &Ciphertext, room: f64) -> Result<(), CkksError> {
        let literal = self.eval_mod.literal();
        let limit = literal.bound * self.factor(ct.scale());
        let magnitude = ct.noise().magnitude();
        // Unknown magnitudes are assumed to be 1.
        let magnitude = if magnitude.is_finite() { magnitude } else { 1.0 };
        if magnitude <= limit * room {
            return Ok(());
        }
        Err(CkksError::BootstrapRange { magnitude, limit, scale: ct.scale().log2() })
    }
}
