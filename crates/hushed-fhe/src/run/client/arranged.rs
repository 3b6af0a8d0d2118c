//! Where a client's texts lie in a batch: a function of their lengths alone, so that nobody has to write it down.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_ckks::CkksParams;

use crate::error::FheError;
use crate::packing::PackingError;
use crate::packing::sequences;
use crate::plan::public_plan::FhePlan;

/// The texts of a batch, and its canary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Arranged {
    /// Rows of the texts of each place, [`crate::Placement::per_place`] a place, 0 where there is none.
    pub lengths: Vec<usize>,
    /// Where each text is in this list.
    pub texts: Vec<usize>,
    /// Where the canary is.
    pub canary: Option<usize>,
}

impl FhePlan {
    /// Puts texts of these numbers of tokens into places, as many of them into one as the plan allows and its rows
    /// hold, and the canary, if there is one, alone into the last. Where no texts share a place, they keep their order.
    ///
    /// # Errors
    /// [`FheError::Packing`] for texts that do not fit.
    pub fn arranged(&self, params: &CkksParams, tokens: &[usize], canary: Option<usize>) -> Result<Arranged, FheError> {
        let (rows, per_place) = (self.rows, self.placement.per_place);
        let room = self.places(params)?.saturating_sub(usize::from(canary.is_some()));
        if per_place == 1 && tokens.len() > room {
            return Err(PackingError::TooMany { texts: tokens.len(), room, slots: params.slots(), rows }.into());
        }
        let sequences::Arranged { mut lengths, texts } = sequences::arranged(rows, per_place, room, tokens)?;
        let at = lengths.len();
        lengths.resize(self.declared_lengths(params)?, 0);
        if let (Some(length), Some(last)) = (canary, lengths.get_mut(at)) {
            if length > rows {
                return Err(PackingError::RowCount { text: room, found: length, rows }.into());
            }
            *last = length;
        }
        Ok(Arranged { lengths, texts, canary: canary.map(|_| at) })
    }

    /// How many of these texts, from the first on, fit one batch besides its canary.
    ///
    /// # Errors
    /// As [`FhePlan::texts`].
    pub fn fitting(&self, params: &CkksParams, tokens: &[usize]) -> Result<usize, FheError> {
        let most = self.texts(params)?.min(tokens.len());
        if self.placement.per_place == 1 {
            return Ok(most);
        }
        let canary = self.canary.as_ref().map(|_| 1);
        // All of them first: more texts may fit better than fewer.
        let (mut fits, mut beyond, mut middle) = (0, most + 1, most);
        while beyond - fits > 1 {
            match self.arranged(params, tokens.get(..middle).unwrap_or_default(), canary) {
                Ok(_) => fits = middle,
                Err(FheError::Packing(_)) => beyond = middle,
                Err(error) => return Err(error),
            }
            middle = fits + (beyond - fits) / 2;
        }
        Ok(fits)
    }
}
