//! Whether a decrypted reply has the shape of an honest one: answers within the plan's magnitude in the slots of
//! answers, and nothing but noise in all others.
//!
//! A number that wraps around its modulus takes its whole vector with it, so this shows a run that failed even in a
//! batch without a canary; for one text in packed rows it looks at 99 % of the slots. It is no proof: a server that
//! cheats can fill the slots of answers alone.

use hushed_ckks::Complex64;

use super::FheClient;
use crate::error::FheError;
use crate::packing::PackingError;
use crate::plan::public_plan::AnswerRows;

/// Declared deviations that noise may reach. The error and the noise that covers it are at most √2 of them together, so
/// these are 8.5 deviations of what arrives, which an honest reply of 2^24 numbers exceeds with probability 2^-31.
const REACH: f64 = 12.0;

/// Where numbers of an answer lie in each vector of a reply.
struct Places<'a> {
    client: &'a FheClient,
    lengths: &'a [usize],
}

/// Checks all slots of a reply.
///
/// # Errors
/// [`FheError::ReplyShape`]; [`FheError::Packing`] for vectors of another length.
pub(super) fn check(
    client: &FheClient,
    vectors: &[Vec<Complex64>],
    lengths: &[usize],
) -> Result<(), FheError> {
    let (plan, places) = (&client.plan, Places { client, lengths });
    let half_unit = 0.5 * (-f64::from(plan.reply_bits(&client.params))).exp2();
    let nothing = REACH * plan.reply.deviation + half_unit;
    let most = plan.reply.magnitude + nothing;
    for (vector, slots) in vectors.iter().enumerate() {
        if slots.len() != client.layout.slots() {
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
        let (client, layout) = (self.client, self.client.layout);
        let (plan, m) = (&client.plan, layout.rows());
        let place = slot % layout.columns();
        let text = slot / layout.columns() % layout.texts();
        let row = slot / layout.columns() / layout.texts();
        let length = self.length(text).min(m);
        if length == 0 {
            return [false; 2];
        }
        let kept = match plan.answer {
            None => row == 0,
            Some(AnswerRows::Last | AnswerRows::Logits) => row == m - 1,
            Some(AnswerRows::Rows) => row >= m - length,
        };
        if let Some((_, answers)) = &client.packed {
            let columns = answers.columns_at(vector, place).filter(|_| kept);
            return columns.map_or([false; 2], |both| both.map(|c| c < answers.width()));
        }
        if plan.answer == Some(AnswerRows::Rows) {
            return [0, 1].map(|part| kept && 2 * vector + part < plan.width);
        }
        // Column j of a text is in row j mod m of vector j/m.
        [vector * m + row < plan.outputs(), false]
    }

    /// Rows of the text in this place. In packed rows with a mask an empty place repeats the first text
    /// ([`FheClient::pack`]).
    fn length(&self, text: usize) -> usize {
        let own = self.lengths.get(text).copied().unwrap_or(0);
        let repeats = self.client.packed.is_some() && self.client.plan.masks();
        match self.lengths.iter().find(|&&length| length > 0) {
            Some(&first) if own == 0 && repeats => first,
            _ => own,
        }
    }
}
