//! The public plan that client and server of a run under CKKS agree on in advance: one file, identified by its hash.
//!
//! It holds nothing derived from weights, except what it lists as exposed: the reply's magnitude and error, powers of
//! two, and the canary's answer, which is rounded, are among it. A reader takes no parameters from the file:
//! the file *names* a parameter set and states the hash that the set must have.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

mod check;
mod deviation;
mod error;
mod key;
mod keys;
mod manifest;
mod read;
#[cfg(test)]
mod tests;

use std::sync::Arc;

#[cfg(any(test, feature = "insecure-test-parameters"))]
use hushed_ckks::keys::KeySpecs;
use hushed_ckks::{CkksParams, CkksParamsError, Noise, Scale};
use hushed_model::{Program, Weigh};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::packing::{Interleave, Layout, Spread};
use crate::plan::placement::Placement;

pub use crate::hex::hex;
pub(crate) use check::digits;
pub use deviation::reply_deviation;
pub use error::{MAX_PLAN_BYTES, PLAN_VERSION, PlanFileError};
pub use key::{PlannedKey, PlannedUse};
pub(crate) use keys::planned;
pub use manifest::Manifest;
pub(crate) use read::{from_bytes, same_hash};

/// A parameter set, created once and shared.
pub type Params = Arc<CkksParams>;

/// The public plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FhePlan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Name of the parameter set.
    pub parameters: String,
    /// Its hash, in hexadecimal.
    pub parameters_hash: String,
    /// Rows per text, padding included; a power of two.
    pub rows: usize,
    /// Columns of the model, d.
    pub width: usize,
    /// Layers of the model.
    pub layers: usize,
    /// Logits per answer, if the model is a classifier or a decoder that is read at its logits; otherwise an answer is
    /// d numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logits: Option<usize>,
    /// What a decoder is read at: its reply is the hidden states of these rows after the last norm, from which the
    /// client computes logits, or the logits themselves. None for an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerRows>,
    /// Whether a decoder's request also has the vector of real rows: its attention is a softmax, which padding would
    /// enter. Whether an encoder's request has one depends on its lengths alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub real_rows: bool,
    /// Columns are divided by this before they are encrypted, so that no entry exceeds 1.
    pub input_bound: f64,
    /// What the server learns of lengths.
    pub lengths: Lengths,
    /// Where the run refreshes and how much it holds.
    pub placement: Placement,
    /// The form of the reply.
    pub reply: ReplyForm,
    /// The evaluation keys, in order.
    pub keys: Vec<PlannedKey>,
    /// SHA-256 of the public model, as [`crate`] and the client compute it: configuration, tokenizer, token embedding
    /// table, positions, first norm; in hexadecimal.
    pub public_sha256: String,
    /// SHA-256 of the server's calibration, in hexadecimal.
    pub calibration_sha256: String,
    /// A text with a known answer, if the model's owner provides one.
    pub canary: Option<Canary>,
    /// Who sees what, for human readers.
    pub exposures: Vec<String>,
}

/// What a decoder is read at. Its texts end in row m − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerRows {
    /// The last row, which determines the next token.
    #[default]
    Last,
    /// All rows, which determine the likelihood of a text's own tokens.
    Rows,
    /// The logits of the last row, one number per token of the vocabulary: for a head that is not the public token
    /// embedding table.
    Logits,
}

/// What the server learns of the length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "kind", content = "multiple", rename_all = "snake_case", deny_unknown_fields)]
pub enum Lengths {
    /// The number of tokens.
    Public,
    /// The number of tokens, rounded up to a multiple. An encrypted vector masks padding, as for private lengths.
    Bucket(usize),
    /// Nothing: an encrypted vector says which rows are real.
    Private,
}

impl Lengths {
    /// Whether the client sends an encrypted vector of real rows.
    #[must_use]
    pub fn encrypted(self) -> bool {
        self != Lengths::Public
    }

    /// Whether a request for this model has that vector. Padding rows before a decoder's text are zeros and stay zeros,
    /// so that only the keys of a softmax need a mask.
    pub(crate) fn masks(self, program: &Program) -> bool {
        let decodes = program.vocabulary().is_some();
        let mut blocks = program.attentions();
        self.encrypted() && (!decodes || blocks.any(|a| a.weigh == Weigh::Softmax))
    }
}

/// The ciphertexts of a reply.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ReplyForm {
    /// Number of ciphertexts.
    pub ciphertexts: usize,
    /// Primes of each.
    pub limbs: usize,
    /// Their scale.
    pub scale: f64,
    /// Bound on the magnitude of the slots.
    pub magnitude: f64,
    /// Predicted standard deviation of the error of a slot's real part, in units of the message, for the length of text
    /// with the largest; a power of two.
    pub deviation: f64,
}

impl ReplyForm {
    /// See [`FhePlan::reply_bits`].
    #[must_use]
    pub fn bits(&self, params: &CkksParams) -> u32 {
        // At least 1 in a checked plan; no bits are kept for a NaN.
        let beyond = self.magnitude.log2().ceil();
        let certified = f64::from(params.certified_bits()) - beyond.max(0.0);
        let kept = self.noise().kept_bits(params.slots());
        let left = kept.map_or(certified, |kept| certified.min(kept));
        // Between 0 and the certified bits; NaN becomes 0.
        left.max(0.0) as u32
    }

    /// The error as stated.
    #[must_use]
    pub fn noise(&self) -> Noise {
        Noise::new(self.magnitude, self.deviation)
    }

    /// The scale, checked.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn scale(&self) -> Result<Scale, PlanFileError> {
        Scale::new(self.scale).map_err(|error| PlanFileError::Unusable { what: "reply", given: error.to_string() })
    }
}

/// A text with a known answer. Only the client learns whether the answer was right.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The text.
    pub text: String,
    /// Its embedding or its logits, computed by the model in the clear; for a decoder read at all rows, row by row.
    pub embedding: Vec<f64>,
    /// The minimum cosine between the answer and it; for logits, the minimum nearness ([`hushed_model::nearness`]).
    pub least_cosine: f64,
}

/// The bits of a canary's answer below the first of its largest number: about as many as a client keeps of others.
const CANARY_BITS: f64 = 14.0;

impl Canary {
    /// The least cosine that a client accepts. A server makes the canary, and with a lower one it would say nothing.
    pub const LEAST_COSINE: f64 = 0.9;

    /// With its answer rounded, so that it reveals no more of the weights than other answers do.
    #[must_use]
    pub fn rounded(mut self) -> Canary {
        let largest = self.embedding.iter().fold(0.0_f64, |m, x| m.max(x.abs()));
        let unit = (largest.log2().ceil() - CANARY_BITS).exp2();
        if unit.is_normal() {
            let round = |x: &mut f64| *x = (*x / unit).round() * unit;
            self.embedding.iter_mut().for_each(round);
        }
        self
    }
}

/// A plan as stored in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    hash: String,
    plan: FhePlan,
}

impl FhePlan {
    /// SHA-256("hushed fhe plan 1" ‖ the plan as JSON without spaces, fields in the order of this type): the identity
    /// of the plan, which every artefact of a run carries.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        // Only numbers and strings: serializing cannot fail. An empty text would give the hash of another plan.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let hash = Sha256::new().chain_update(b"hushed fhe plan 1").chain_update(text);
        hash.finalize().into()
    }

    /// The bytes of a plan file: hash and plan.
    ///
    /// # Errors
    /// [`PlanFileError::NotJson`] for numbers that JSON cannot represent.
    pub fn to_json(&self) -> Result<Vec<u8>, PlanFileError> {
        let sealed = Sealed { hash: hex(&self.hash()), plan: self.clone() };
        let mut bytes = serde_json::to_vec_pretty(&sealed)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a plan file and checks all of it: the plan and its parameter set.
    ///
    /// # Errors
    /// A [`PlanFileError`] for each way in which the file can be wrong.
    pub fn from_json(bytes: &[u8]) -> Result<(FhePlan, Arc<CkksParams>), PlanFileError> {
        Self::read(bytes, FhePlan::params)
    }

    /// [`FhePlan::from_json`] with another way to the ring.
    pub(crate) fn read(
        bytes: &[u8],
        ring: impl FnOnce(&FhePlan) -> Result<Arc<CkksParams>, PlanFileError>,
    ) -> Result<(FhePlan, Arc<CkksParams>), PlanFileError> {
        let Sealed { hash, plan } = from_bytes(bytes)?;
        if plan.version != PLAN_VERSION {
            let given = plan.version;
            return Err(PlanFileError::Version { given });
        }
        same_hash(&plan.hash(), &hash)?;
        let params = ring(&plan)?;
        plan.check(&params)?;
        Ok((plan, params))
    }

    /// Creates the named parameter set and checks that it has the stated hash.
    ///
    /// # Errors
    /// [`PlanFileError::Parameters`], [`PlanFileError::OtherParameters`].
    pub fn params(&self) -> Result<Arc<CkksParams>, PlanFileError> {
        params_of(&self.parameters, &self.parameters_hash)
    }

    /// Places of a batch, the canary's included.
    ///
    /// # Errors
    /// As [`FhePlan::interleave`].
    pub fn places(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        Ok(self.layout(params)?.texts())
    }

    /// Most texts of a client per batch: as many as may share each place, except in the canary's, which is the last.
    /// Fewer fit if they have more rows than places.
    ///
    /// # Errors
    /// As [`FhePlan::places`].
    pub fn texts(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        Ok((self.places(params)? - usize::from(self.canary.is_some())) * self.placement.per_place)
    }

    /// Lengths that a request declares: as many as texts may share each place, the canary's included.
    ///
    /// # Errors
    /// As [`FhePlan::places`].
    pub fn declared_lengths(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        Ok(self.places(params)? * self.placement.per_place)
    }

    /// How texts lie in the slots.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn layout(&self, params: &CkksParams) -> Result<Layout, PlanFileError> {
        let layout = Layout::new(params.slots(), self.rows, self.placement.columns);
        layout.map_err(|error| PlanFileError::Unusable { what: "rows", given: error.to_string() })
    }

    /// Where columns lie in packed rows; `None` for a batch.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`] if columns do not fill vectors evenly.
    pub fn packed(&self, params: &CkksParams) -> Result<Option<(Layout, Spread)>, PlanFileError> {
        let (columns, width) = (self.placement.columns, self.width);
        if columns == 1 {
            return Ok(None);
        }
        let refused =
            || PlanFileError::Unusable { what: "places of a row", given: format!("{columns} for {width} columns") };
        let layout = self.layout(params)?;
        // All vectors hold the same number of whole heads.
        let spread = layout.spread(width, 1).map_err(|_| refused())?;
        match spread.is_even() {
            true => Ok(Some((layout, spread))),
            false => Err(refused()),
        }
    }

    /// Where the numbers of an answer lie in packed rows; `None` for a batch.
    ///
    /// # Errors
    /// As [`FhePlan::packed`]; [`PlanFileError::Unusable`] without logits.
    pub fn packed_answers(&self, params: &CkksParams) -> Result<Option<Spread>, PlanFileError> {
        let packed = self.packed(params)?;
        let answers = packed.map(|(layout, columns)| match self.logits {
            Some(classes) => layout.spread(classes, 1),
            None => Ok(columns),
        });
        answers.transpose().map_err(|error| PlanFileError::Unusable { what: "logits", given: error.to_string() })
    }

    /// Vectors that a layer reads and a checkpoint holds: columns, or vectors of packed rows.
    #[must_use]
    pub fn vectors(&self) -> usize {
        match self.placement.columns {
            0 | 1 if self.placement.pairs => self.width.div_ceil(2),
            0 | 1 => self.width,
            columns => self.width.div_ceil(2 * columns),
        }
    }

    /// How the texts of a batch lie in the slots.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn interleave(&self, params: &CkksParams) -> Result<Interleave, PlanFileError> {
        Interleave::new(params.slots(), self.rows)
            .map_err(|error| PlanFileError::Unusable { what: "rows", given: error.to_string() })
    }

    /// Ciphertexts of a request: one per two columns or per vector of packed rows, and the vector of real rows if
    /// lengths are not public.
    #[must_use]
    pub fn request_ciphertexts(&self) -> usize {
        let vectors = match self.placement.columns {
            0 | 1 => self.width.div_ceil(2),
            _ => self.vectors(),
        };
        vectors + usize::from(self.masks())
    }

    /// Whether a request has a vector of real rows. A decoder needs none, as rows before its texts stay zeros, unless
    /// its attention is a softmax.
    #[must_use]
    pub fn masks(&self) -> bool {
        self.lengths.encrypted() && (self.answer.is_none() || self.real_rows)
    }

    /// Numbers per answer; per row, for a decoder read at all rows.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.logits.unwrap_or(self.width)
    }

    /// Bits after the binary point that a client keeps of a reply: those that the parameter set certifies for numbers
    /// within the reply's magnitude, or fewer if the declared error leaves fewer. A plan's author cannot ask for more.
    #[must_use]
    pub fn reply_bits(&self, params: &CkksParams) -> u32 {
        self.reply.bits(params)
    }
}

/// Creates the parameter set of this name and checks that it has the stated hash.
pub(crate) fn params_of(name: &str, theirs: &str) -> Result<Arc<CkksParams>, PlanFileError> {
    let short = || name.chars().take(60).collect::<String>();
    let params = named(name).map_err(|source| PlanFileError::Parameters { name: short(), source })?;
    let ours = hex(params.rlwe().hash());
    if ours != theirs {
        return Err(PlanFileError::OtherParameters { name: short(), theirs: theirs.chars().take(32).collect(), ours });
    }
    Ok(params)
}

/// The parameter set of this name: a preset, or in tests also `insecure-test/LOG_N/LEVELS` (with primes for
/// bootstraps) and `insecure-shallow/LOG_N/LEVELS` (without).
///
/// # Errors
/// [`CkksParamsError::UnknownPreset`].
pub fn named(name: &str) -> Result<Arc<CkksParams>, CkksParamsError> {
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    if let Some((log_n, levels)) = name.strip_prefix("insecure-test/").and_then(|sizes| sizes.split_once('/'))
        && let (Ok(log_n), Ok(levels)) = (log_n.parse(), levels.parse())
    {
        return CkksParams::insecure_test(log_n, levels);
    }
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    if let Some((log_n, levels)) = name.strip_prefix("insecure-shallow/").and_then(|sizes| sizes.split_once('/'))
        && let (Ok(log_n), Ok(levels)) = (log_n.parse(), levels.parse())
    {
        return CkksParams::insecure_shallow(log_n, levels);
    }
    CkksParams::preset(name)
}

/// A small plan over an insecure ring, for tests.
#[cfg(any(test, feature = "insecure-test-parameters"))]
#[doc(hidden)]
pub fn insecure_plan(log_n: u32, levels: usize, width: usize) -> Result<(FhePlan, Arc<CkksParams>), PlanFileError> {
    let parameters = format!("insecure-test/{log_n}/{levels}");
    let params = named(&parameters).map_err(|source| PlanFileError::Parameters { name: parameters.clone(), source })?;
    let top = params.fresh_limbs();
    let mut plan = FhePlan {
        version: PLAN_VERSION,
        parameters,
        parameters_hash: hex(params.rlwe().hash()),
        rows: 4,
        width,
        layers: 2,
        logits: None,
        answer: None,
        real_rows: false,
        input_bound: 8.0,
        lengths: Lengths::Public,
        placement: Placement::plain(top, 4, 4),
        reply: ReplyForm {
            ciphertexts: 1,
            limbs: 2,
            scale: params.default_scale().value(),
            magnitude: 1.0,
            deviation: reply_deviation(&params, 1.0),
        },
        keys: Vec::new(),
        public_sha256: "0".repeat(64),
        calibration_sha256: "1".repeat(64),
        canary: None,
        exposures: Vec::new(),
    };
    let mut keys = KeySpecs::new();
    keys.relin(2, 1).galois(5, 1, 1).encapsulation(2, 1);
    plan.set_keys(&keys);
    Ok((plan, params))
}
