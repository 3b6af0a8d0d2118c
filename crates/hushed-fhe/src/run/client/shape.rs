//! Whether a decrypted reply has the shape of an honest one: answers within the plan's magnitude in the slots of
//! answers, and nothing but noise in all others.
//!
//! A number that wraps around its modulus takes its whole vector with it, so this shows a run that failed even in a
//! batch without a canary; for one text in packed rows it looks at 99 % of the slots. It is no proof: a server that
//! cheats can fill the slots of answers alone.

use hushed_ckks::{CkksParams, Complex64};

use crate::error::FheError;
use crate::packing::{Layout, PackingError, Spread};
use crate::plan::public_plan::{AnswerRows, FhePlan};

/// Declared deviations that noise may reach. The error and the noise that covers it are at most √2 of them together, so
/// these are 8.5 deviations of what arrives, which an honest reply of 2^24 numbers exceeds with probability 2^-31.
pub(crate) const REACH: f64 = 12.0;

/// Where numbers of an answer lie in each vector of a reply.
pub(super) struct Places<'a> {
    pub plan: &'a FhePlan,
    pub layout: Layout,
    /// Where they lie in packed rows; `None` for a batch.
    pub answers: Option<&'a Spread>,
    /// Rows of the texts of each place.
    pub lengths: &'a [usize],
}

/// Checks all slots of a reply.
///
/// # Errors
/// [`FheError::ReplyShape`]; [`FheError::Packing`] for vectors of another length.
pub(super) fn check(places: &Places<'_>, params: &CkksParams, vectors: &[Vec<Complex64>]) -> Result<(), FheError> {
    let plan = places.plan;
    let half_unit = 0.5 * (-f64::from(plan.reply_bits(params))).exp2();
    let nothing = REACH * plan.reply.deviation + half_unit;
    let most = plan.reply.magnitude + nothing;
    for (vector, slots) in vectors.iter().enumerate() {
        if slots.len() != places.layout.slots() {
            return Err(PackingError::Mismatch.into());
        }
        for (slot, z) in slots.iter().enumerate() {
            let used = places.used(vector, slot);
            for (part, used) in [z.re, z.im].into_iter().zip(used) {
                let limit = if used { most } else { nothing };
                // Also false for NaN.
                if part.abs() <= limit {
                    continue;
                }
                return Err(FheError::ReplyShape { vector, used });
            }
        }
    }
    Ok(())
}

impl Places<'_> {
    /// Whether the real and the imaginary part of a slot hold a number of an answer.
    fn used(&self, vector: usize, slot: usize) -> [bool; 2] {
        let (plan, layout, m) = (self.plan, self.layout, self.layout.rows());
        let place = slot % layout.columns();
        let text = slot / layout.columns() % layout.texts();
        let row = slot / layout.columns() / layout.texts();
        // Of a batch, the vectors of the first texts of all places come first.
        let of_each = if self.answers.is_some() { usize::MAX } else { plan.outputs().div_ceil(m.max(1)).max(1) };
        let (number, vector) = match plan.answer {
            None => (vector / of_each, vector % of_each),
            Some(_) => (0, vector),
        };
        let length = self.length(text, number).min(m);
        if length == 0 {
            return [false; 2];
        }
        let kept = match plan.answer {
            None => row == 0,
            Some(AnswerRows::Last | AnswerRows::Logits) => row == m - 1,
            Some(AnswerRows::Rows) => row >= m - length,
        };
        if let Some(answers) = self.answers {
            let columns = answers.columns_at(vector, place).filter(|_| kept);
            return columns.map_or([false; 2], |both| both.map(|c| c < answers.width()));
        }
        if plan.answer == Some(AnswerRows::Rows) {
            return [0, 1].map(|part| kept && 2 * vector + part < plan.width);
        }
        // Column j of a text is in row j mod m of vector j/m.
        [vector * m + row < plan.outputs(), false]
    }

    /// Rows of the text of this number in this place. In packed rows with a mask an empty place repeats the first text
    /// (`FheClient::pack`).
    fn length(&self, place: usize, number: usize) -> usize {
        let at = place * self.plan.placement.per_place + number;
        let own = self.lengths.get(at).copied().unwrap_or(0);
        let repeats = self.answers.is_some() && self.plan.masks();
        match self.lengths.iter().find(|&&length| length > 0) {
            Some(&first) if own == 0 && repeats => first,
            _ => own,
        }
    }
}
