//! Biases and penalties that a client adds to logits before the argmax, with OpenAI's names.
//!
//! The client knows the tokens of the answer, which were opened to it, and its own wishes. It adds both to its own
//! share, so nothing is sent and the server learns nothing. A client could always do this (SECURITY.md says what the
//! largest of biased logits reveals about the model), and each opened token is counted.

use std::collections::BTreeMap;

use crate::formats::LOGIT;

/// The largest magnitude of what is added to a logit; larger sums are clamped to it, so that logits stay within
/// [`LOGIT`].
pub const MAX_BIAS: f64 = 256.0;

/// Biases and penalties of one answer. No `Debug`: they are private.
#[derive(Clone, Default, PartialEq)]
pub struct Penalties {
    /// Subtracted from the logit of every token that is in the answer: −2 to 2.
    pub presence: f64,
    /// Subtracted from a token's logit once per occurrence in the answer: −2 to 2.
    pub frequency: f64,
    /// Added to the logits of these tokens: −100 to 100. As in OpenAI's API, the extremes ban a token or force it.
    pub logit_bias: BTreeMap<u32, f64>,
}

/// A penalty out of range, or a bias for a token that the model does not have.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
pub enum PenaltyError {
    /// Out of range.
    #[error("{name} is a number from -{most} to {most}")]
    Range {
        /// The field.
        name: &'static str,
        /// The largest magnitude.
        most: f64,
    },
    /// No such token.
    #[error("logit_bias names the token {id}, and the model has {tokens}")]
    Token {
        /// The token id given.
        id: u32,
        /// The number of tokens in the model.
        tokens: usize,
    },
}

impl PenaltyError {
    /// The name of the offending field in OpenAI's API.
    #[must_use]
    pub fn field(&self) -> &'static str {
        match self {
            Self::Range { name, .. } => name,
            Self::Token { .. } => "logit_bias",
        }
    }
}

impl Penalties {
    /// Checks that everything is in range for a model of `tokens` tokens.
    ///
    /// # Errors
    /// [`PenaltyError`] if not.
    pub fn check(&self, tokens: usize) -> Result<(), PenaltyError> {
        self.check_ranges()?;
        match self.logit_bias.last_key_value() {
            Some((&id, _)) if id as usize >= tokens => Err(PenaltyError::Token { id, tokens }),
            _ => Ok(()),
        }
    }

    /// Checks that the numbers are in range, whatever the model.
    ///
    /// # Errors
    /// [`PenaltyError::Range`] if not.
    pub fn check_ranges(&self) -> Result<(), PenaltyError> {
        let penalties = [("presence_penalty", self.presence), ("frequency_penalty", self.frequency)];
        let biases = self.logit_bias.values().map(|&bias| ("logit_bias", bias));
        let limited = penalties.map(|(name, value)| (name, value, 2.0));
        let limited = limited.into_iter().chain(biases.map(|(name, value)| (name, value, 100.0)));
        for (name, value, most) in limited {
            if !(-most..=most).contains(&value) {
                return Err(PenaltyError::Range { name, most });
            }
        }
        Ok(())
    }

    /// The words to add to the logits of `tokens` tokens for each of `rows` rows. The last row follows the whole
    /// `answer`, each row before it one token less. `None` if all are zero.
    pub(crate) fn words_of_rows(&self, answer: &[u32], rows: usize, tokens: usize) -> Option<Vec<i64>> {
        let until = |row: usize| answer.len().saturating_sub(rows - 1 - row);
        let answers = (0..rows).map(|row| answer.get(..until(row)).unwrap_or(answer));
        let all: Vec<_> = answers.map(|seen| self.words(seen, tokens)).collect();
        if all.iter().all(Option::is_none) {
            return None;
        }
        let words = all.into_iter().map(|row| row.unwrap_or(vec![0; tokens]));
        Some(words.flatten().collect())
    }

    /// The words to add to the logits of `tokens` tokens after `answer`, in [`LOGIT`]; `None` if all are zero.
    fn words(&self, answer: &[u32], tokens: usize) -> Option<Vec<i64>> {
        let mut sums = self.logit_bias.clone();
        if (self.presence, self.frequency) != (0.0, 0.0) {
            let mut counts: BTreeMap<u32, f64> = BTreeMap::new();
            for &id in answer {
                *counts.entry(id).or_default() += 1.0;
            }
            for (id, count) in counts {
                *sums.entry(id).or_default() -= self.presence + self.frequency * count;
            }
        }
        sums.retain(|_, sum| *sum != 0.0);
        if sums.is_empty() {
            return None;
        }
        let mut words = vec![0; tokens];
        for (id, sum) in sums {
            if let Some(word) = words.get_mut(id as usize) {
                *word = LOGIT.signed(sum.clamp(-MAX_BIAS, MAX_BIAS));
            }
        }
        Some(words)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sums_of_biases_and_penalties() {
        let one = f64::from(1 << LOGIT.frac) as i64;
        let penalties =
            Penalties { presence: 0.5, frequency: 0.25, logit_bias: BTreeMap::from([(1, 3.0), (2, -100.0), (3, 0.0)]) };
        assert_eq!(penalties.check(4), Ok(()));
        let words = penalties.words(&[0, 1, 0], 4).unwrap();
        assert_eq!(words, [-one, 3 * one - 3 * one / 4, -100 * one, 0]);
        // 2·200 + 2 exceeds the largest addition.
        let many = Penalties { presence: 2.0, frequency: 2.0, ..Penalties::default() };
        assert_eq!(many.words(&[1; 200], 2), Some(vec![0, -256 * one]));
        assert!(Penalties::default().words(&[1, 2], 4).is_none());
        // Each of several rows counts the tokens before it.
        let last = penalties.words(&[0, 1], 4).unwrap();
        let rows = penalties.words_of_rows(&[0, 1], 2, 4).unwrap();
        assert_eq!(rows, [penalties.words(&[0], 4).unwrap(), last].concat());
        let presence = Penalties { presence: 1.0, ..Penalties::default() };
        let rows = presence.words_of_rows(&[2], 2, 3).unwrap();
        assert_eq!(rows, [0, 0, 0, 0, 0, -one]);
        assert!(Penalties::default().words_of_rows(&[2], 2, 3).is_none());
        // A token that the model does not have adds nothing.
        assert_eq!(penalties.words(&[9], 3).map(|words| words.len()), Some(3));
    }

    #[test]
    fn what_is_out_of_range() {
        let with =
            |presence, frequency, bias| Penalties { presence, frequency, logit_bias: BTreeMap::from([(3, bias)]) };
        let refused = |penalties: Penalties| match penalties.check(4) {
            Err(PenaltyError::Range { name, .. }) => name,
            _ => panic!("must be refused"),
        };
        assert_eq!(refused(with(2.1, 0.0, 0.0)), "presence_penalty");
        assert_eq!(refused(with(0.0, f64::NAN, 0.0)), "frequency_penalty");
        assert_eq!(refused(with(0.0, 0.0, -101.0)), "logit_bias");
        let none = PenaltyError::Token { id: 3, tokens: 3 };
        assert_eq!(with(2.0, -2.0, 100.0).check(3), Err(none));
    }
}
