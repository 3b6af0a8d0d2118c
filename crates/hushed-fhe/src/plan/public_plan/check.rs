//! What the numbers of a plan may be.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use hushed_ckks::CkksParams;

use super::deviation::reply_deviation;
use super::{AnswerRows, Canary, FhePlan, Lengths, PlanFileError, ReplyForm};

/// Maximum columns and maximum layers of a model: limits what a plan can make a reader hold.
const MOST: usize = 1 << 16;

/// Maximum logits: tokens of a vocabulary.
const MOST_LOGITS: usize = 1 << 20;

/// A reply's scale differs from the default one by at most this factor: the last product of a run targets the default
/// scale, so only roundings are left. A smaller scale would enlarge the numbers, and make the client's rounding finer,
/// by as many bits.
const SCALE_FACTOR: f64 = 2.0;

impl FhePlan {
    /// Checks that every number is within what this program accepts.
    ///
    /// # Errors
    /// [`PlanFileError`].
    pub fn check(&self, params: &CkksParams) -> Result<(), PlanFileError> {
        let require = |good: bool, what: &'static str, given: String| match good {
            true => Ok(()),
            false => Err(PlanFileError::Unusable { what, given }),
        };
        require((1..=MOST).contains(&self.width), "width", self.width.to_string())?;
        require((1..=MOST).contains(&self.layers), "layers", self.layers.to_string())?;
        require((1..=MOST_LOGITS).contains(&self.outputs()), "logits", self.outputs().to_string())?;
        require(self.input_bound.is_finite() && self.input_bound > 0.0, "input bound", self.input_bound.to_string())?;
        if let Some(rows) = self.answer {
            require(
                self.lengths == Lengths::Private && self.logits.is_some() == (rows == AnswerRows::Logits),
                "answer",
                format!("{rows:?}"),
            )?;
        }
        require(
            !self.real_rows || (self.answer.is_some() && self.placement.columns == 1),
            "vector of real rows",
            "of no decoder's batch".to_owned(),
        )?;
        if let Lengths::Bucket(multiple) = self.lengths {
            require((1..=self.rows).contains(&multiple), "bucket", multiple.to_string())?;
        }
        let per_place = self.placement.per_place;
        let share = per_place > 1;
        require(
            (1..=self.rows).contains(&per_place)
                && !(share && (self.lengths != Lengths::Public || self.answer.is_some() || self.logits.is_some()))
                && !(share && (self.placement.columns != 1 || self.placement.pairs)),
            "number of texts that share a place",
            per_place.to_string(),
        )?;
        let fits = |limbs: usize| limbs >= 1 && limbs <= params.max_limbs();
        require(fits(self.placement.upload), "primes of the upload", self.placement.upload.to_string())?;
        let packed = self.packed_answers(params)?;
        // Exactly as many as the outputs fill: each additional one would cost the key another decryption.
        let ciphertexts = match (packed, self.answer) {
            (Some(answers), _) => answers.vectors(),
            (None, Some(AnswerRows::Rows)) => self.width.div_ceil(2),
            (None, _) => per_place * self.outputs().div_ceil(self.rows.max(1)),
        };
        self.reply.check(params, ciphertexts)?;
        require(self.texts(params)? >= 1, "places", "none but the canary's".to_owned())?;
        if let Some(canary) = &self.canary {
            let numbers = canary.embedding.len();
            let whole = match self.answer {
                Some(AnswerRows::Rows) => {
                    let rows = numbers / self.outputs();
                    numbers.is_multiple_of(self.outputs()) && (1..=self.rows).contains(&rows)
                }
                _ => numbers == self.outputs(),
            };
            require(
                whole && canary.embedding.iter().all(|x| x.is_finite()),
                "canary",
                format!("{} numbers", canary.embedding.len()),
            )?;
            require(
                (Canary::LEAST_COSINE..=1.0).contains(&canary.least_cosine),
                "least cosine of the canary",
                canary.least_cosine.to_string(),
            )?;
        }
        digits("hash of the public model", &self.public_sha256)?;
        digits("hash of the calibration", &self.calibration_sha256)?;
        self.key_specs(params)?;
        Ok(())
    }
}

impl ReplyForm {
    /// Checks that it has this many ciphertexts, and numbers that this program accepts.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub(crate) fn check(&self, params: &CkksParams, ciphertexts: usize) -> Result<(), PlanFileError> {
        // A smaller error than any run declares would let a reply be opened to more bits than are certified.
        let deviations = reply_deviation(params, self.magnitude)..=self.magnitude;
        let scale = self.scale / params.default_scale().value();
        let good = self.ciphertexts == ciphertexts
            && (1..=params.max_limbs()).contains(&self.limbs)
            && (1.0..f64::INFINITY).contains(&self.magnitude)
            && deviations.contains(&self.deviation)
            && (SCALE_FACTOR.recip()..=SCALE_FACTOR).contains(&scale);
        match good {
            true => Ok(()),
            false => Err(PlanFileError::Unusable { what: "reply", given: format!("{self:?}") }),
        }
    }
}

/// Checks that a hash is one, in hexadecimal.
pub(crate) fn digits(what: &'static str, hash: &str) -> Result<(), PlanFileError> {
    match hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit()) {
        true => Ok(()),
        false => Err(PlanFileError::Unusable { what, given: hash.chars().take(64).collect() }),
    }
}
