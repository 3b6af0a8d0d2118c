//! What client and server of a run under CKKS agree on before it: one file, known by its hash.
//!
//! It holds nothing that follows from weights, but for what it lists as exposed. Whoever reads one takes no parameters
//! from it: it *names* a parameter set, and says which hash that set must have.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::fmt::Write as _;
use std::sync::Arc;

use hushed_ckks::keys::EvalKeyPlan;
use hushed_ckks::{CkksParams, CkksParamsError, Noise, Scale};
use hushed_model::{Program, Weigh};
use hushed_rlwe::hybrid::{KeySpec, KeyUse, MAX_KEYS};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::packing::{Interleave, Layout, Spread};
use crate::plan::placement::Placement;

/// The version that this program writes and reads.
pub const PLAN_VERSION: u32 = 1;

/// Most bytes of a plan file.
pub const MAX_PLAN_BYTES: usize = 4 << 20;

/// Most columns of a model and most layers: what a plan may ask a reader to hold.
const MOST: usize = 1 << 16;

/// Most logits: tokens of a vocabulary.
const MOST_LOGITS: usize = 1 << 20;

/// The error that a reply declares, in parts of its magnitude: so many bits below what the parameter set certifies of a
/// slot. Pooling averages the errors of rows, and a client divides what comes back by its text's share of the rows,
/// which makes errors of short texts larger again: what is declared stays above the first and leaves room for the
/// second.
const SPARE_BITS: i32 = 6;

/// A reply's scale and the default one differ by less than this factor: the last product of a run is made for the
/// default scale, and what is left are roundings. A smaller scale would make numbers larger, and their rounding at the
/// client finer, by as many bits.
const SCALE_FACTOR: f64 = 2.0;

/// A parameter set, made once and shared.
pub type Params = Arc<CkksParams>;

/// The public plan of a run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct FhePlan {
    /// [`PLAN_VERSION`].
    pub version: u32,
    /// Name of the parameter set.
    pub parameters: String,
    /// What its hash is, in hexadecimal.
    pub parameters_hash: String,
    /// Rows a text, padding included; a power of two.
    pub rows: usize,
    /// Columns of the model, d.
    pub width: usize,
    /// Layers of the model.
    pub layers: usize,
    /// How many logits a text is answered with, if the model is a classifier or a decoder that is read at its logits;
    /// without it, d numbers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub logits: Option<usize>,
    /// What a decoder is read at: its reply is the hidden states of these rows, after the last norm, of which the
    /// client makes logits, or the logits themselves. Without it the model is an encoder.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub answer: Option<AnswerRows>,
    /// Whether a decoder's request has the vector of real rows too: its attention is a softmax, which padding would
    /// enter. An encoder's has one by its lengths alone.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub real_rows: bool,
    /// Columns are divided by it before they are encrypted: then no entry is beyond 1.
    pub input_bound: f64,
    /// What the server learns of lengths.
    pub lengths: Lengths,
    /// Where the run refreshes, and how much it holds.
    pub placement: Placement,
    /// What comes back.
    pub reply: ReplyForm,
    /// The evaluation keys, in their order.
    pub keys: Vec<PlannedKey>,
    /// SHA-256 of the public model, as [`crate`] and the client take it: configuration, tokenizer, table of token
    /// vectors, positions, first norm; in hexadecimal.
    pub public_sha256: String,
    /// SHA-256 of the server's calibration, in hexadecimal.
    pub calibration_sha256: String,
    /// A text whose answer is known, if the model's owner gives one.
    pub canary: Option<Canary>,
    /// Who sees what, for people.
    pub exposures: Vec<String>,
}

/// What a decoder is read at. Its texts end in row m − 1.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AnswerRows {
    /// The last one: what the next token follows from.
    #[default]
    Last,
    /// All of them: what the likelihood of a text's own tokens follows from.
    Rows,
    /// The logits of the last one, a number for each token that there is: where the head is not the public table of
    /// token vectors.
    Logits,
}

/// What the server learns of the length of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(
    tag = "kind",
    content = "multiple",
    rename_all = "snake_case",
    deny_unknown_fields
)]
pub enum Lengths {
    /// Its tokens.
    Public,
    /// Its tokens, rounded up to a multiple. Padding is masked by an encrypted vector, as where nothing is learned.
    Bucket(usize),
    /// Nothing: a vector of ciphertext says which rows are real.
    Private,
}

impl Lengths {
    /// Whether the client sends an encrypted vector of real rows.
    #[must_use]
    pub fn encrypted(self) -> bool {
        self != Lengths::Public
    }

    /// Whether a request for this model has that vector. Rows of padding before a decoder's text are zeros and stay so:
    /// nothing has to be masked but the keys of a softmax.
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
    /// How many.
    pub ciphertexts: usize,
    /// Primes of each.
    pub limbs: usize,
    /// Their scale.
    pub scale: f64,
    /// Slots are within it.
    pub magnitude: f64,
    /// Standard deviation of the error of a slot's real part that the plan predicts, in units of the message.
    pub deviation: f64,
}

impl ReplyForm {
    /// See [`FhePlan::reply_bits`].
    #[must_use]
    pub fn bits(&self, params: &CkksParams) -> u32 {
        // At least 1 in a plan that was checked; nothing is kept for one that is no number.
        let beyond = self.magnitude.log2().ceil();
        let left = f64::from(params.certified_bits()) - beyond.max(0.0);
        // Between 0 and what is certified; NaN becomes 0.
        left.max(0.0) as u32
    }
}

/// One evaluation key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PlannedKey {
    /// What it is for.
    #[serde(rename = "use")]
    pub key: PlannedUse,
    /// The Galois element, 0 where there is none.
    pub element: usize,
    /// Most primes of the ciphertexts that it serves.
    pub limbs: usize,
    /// Special primes.
    pub special: usize,
}

/// What an evaluation key is for; see [`KeyUse`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PlannedUse {
    /// Products.
    Relin,
    /// A rotation or a conjugation.
    Galois,
    /// To the sparse secret of bootstrapping.
    ToSparse,
    /// From it.
    FromSparse,
    /// From it, with a rotation.
    Raised,
}

/// A text whose answer is known. Whether it came out right is for the client alone to know.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Canary {
    /// The text.
    pub text: String,
    /// Its embedding or its logits, as the model in the clear has it; of a decoder that is read at all rows, one row
    /// after another.
    pub embedding: Vec<f64>,
    /// The cosine to it that the answer must have at least; of logits, the nearness ([`hushed_model::nearness`]).
    pub least_cosine: f64,
}

/// Why a plan cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlanFileError {
    /// Larger than any plan.
    #[error("a plan has at most {MAX_PLAN_BYTES} bytes, and this file {bytes}")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not the JSON of a plan.
    #[error(
        "not a plan for fhe ({0}); make one with `hushed plan DIR --protocol fhe --public-plan FILE`"
    )]
    NotJson(#[from] serde_json::Error),
    /// Changed since it was made.
    #[error("the plan is damaged: its hash is {found}, and it says {stated}; ask for it again")]
    Damaged {
        /// Hash of what was read.
        found: String,
        /// Hash that the file states.
        stated: String,
    },
    /// Made by another release.
    #[error(
        "the plan has version {given}, and this program reads {PLAN_VERSION}; make it again with this release"
    )]
    Version {
        /// Its version.
        given: u32,
    },
    /// A parameter set that this program does not have.
    #[error("the plan names the parameter set {name:?}: {source}")]
    Parameters {
        /// Its name.
        name: String,
        /// Why not.
        source: CkksParamsError,
    },
    /// A parameter set that is another one here.
    #[error(
        "the parameter set {name:?} of the plan is {theirs}, and here it is {ours}; use one release on both sides"
    )]
    OtherParameters {
        /// Its name.
        name: String,
        /// The plan's hash of it.
        theirs: String,
        /// This program's.
        ours: String,
    },
    /// Numbers that make no sense together.
    #[error("the plan's {what} cannot be: {given}")]
    Unusable {
        /// What.
        what: &'static str,
        /// Its value.
        given: String,
    },
}

/// A plan as it lies in a file.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Sealed {
    hash: String,
    plan: FhePlan,
}

impl FhePlan {
    /// SHA-256("hushed fhe plan 1" ‖ the plan as JSON without spaces, fields in the order of this type): its identity,
    /// which every artefact of a run carries.
    #[must_use]
    pub fn hash(&self) -> [u8; 32] {
        // Numbers and strings only: nothing in it can fail to be written; an empty text would be another plan's hash.
        let text = serde_json::to_vec(self).unwrap_or_default();
        let hash = Sha256::new()
            .chain_update(b"hushed fhe plan 1")
            .chain_update(text);
        hash.finalize().into()
    }

    /// The bytes of a plan file: hash and plan.
    ///
    /// # Errors
    /// [`PlanFileError::NotJson`] for numbers that JSON does not have.
    pub fn to_json(&self) -> Result<Vec<u8>, PlanFileError> {
        let sealed = Sealed {
            hash: hex(&self.hash()),
            plan: self.clone(),
        };
        let mut bytes = serde_json::to_vec_pretty(&sealed)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a plan file and checks all of it: the plan, and its parameter set.
    ///
    /// # Errors
    /// Every way in which it can be wrong has its own [`PlanFileError`].
    pub fn from_json(bytes: &[u8]) -> Result<(FhePlan, Arc<CkksParams>), PlanFileError> {
        if bytes.len() > MAX_PLAN_BYTES {
            let bytes = bytes.len();
            return Err(PlanFileError::TooLarge { bytes });
        }
        let Sealed { hash, plan } = serde_json::from_slice(bytes)?;
        if plan.version != PLAN_VERSION {
            let given = plan.version;
            return Err(PlanFileError::Version { given });
        }
        let found = hex(&plan.hash());
        if found != hash {
            return Err(PlanFileError::Damaged {
                found,
                stated: hash.chars().take(64).collect(),
            });
        }
        let params = plan.params()?;
        plan.check(&params)?;
        Ok((plan, params))
    }

    /// The parameter set, made anew, which must be what the plan says it is.
    ///
    /// # Errors
    /// [`PlanFileError::Parameters`], [`PlanFileError::OtherParameters`].
    pub fn params(&self) -> Result<Arc<CkksParams>, PlanFileError> {
        let name = || self.parameters.chars().take(60).collect::<String>();
        let params = named(&self.parameters).map_err(|source| PlanFileError::Parameters {
            name: name(),
            source,
        })?;
        let ours = hex(params.rlwe().hash());
        if ours != self.parameters_hash {
            return Err(PlanFileError::OtherParameters {
                name: name(),
                theirs: self.parameters_hash.chars().take(32).collect(),
                ours,
            });
        }
        Ok(params)
    }

    /// The evaluation keys.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`] for keys that are not in order, too many, or no keys of the parameter set.
    pub fn key_plan(&self, params: &CkksParams) -> Result<EvalKeyPlan, PlanFileError> {
        let refused = |given: String| PlanFileError::Unusable {
            what: "evaluation keys",
            given,
        };
        if self.keys.len() > MAX_KEYS {
            return Err(refused(format!(
                "{} of at most {MAX_KEYS}",
                self.keys.len()
            )));
        }
        let mut plan = EvalKeyPlan::new();
        for key in &self.keys {
            plan.insert(key.key_use(), key.limbs, key.special);
        }
        // One order, each once: a plan has one encoding.
        if !plan
            .iter()
            .map(PlannedKey::from)
            .eq(self.keys.iter().copied())
        {
            return Err(refused("not in order, or twice".to_owned()));
        }
        plan.gadgets(params.rlwe())
            .map_err(|error| refused(error.to_string()))?;
        Ok(plan)
    }

    /// States the evaluation keys of a run.
    pub fn set_keys(&mut self, plan: &EvalKeyPlan) {
        self.keys = plan.iter().map(PlannedKey::from).collect();
    }

    /// Texts of a batch, the canary's place included.
    ///
    /// # Errors
    /// As [`FhePlan::interleave`].
    pub fn places(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        Ok(self.layout(params)?.texts())
    }

    /// Texts of a client in a batch: the places but the canary's, which is the last one.
    ///
    /// # Errors
    /// As [`FhePlan::places`].
    pub fn texts(&self, params: &CkksParams) -> Result<usize, PlanFileError> {
        Ok(self.places(params)? - usize::from(self.canary.is_some()))
    }

    /// How texts lie in the slots.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn layout(&self, params: &CkksParams) -> Result<Layout, PlanFileError> {
        let layout = Layout::new(params.slots(), self.rows, self.placement.columns);
        layout.map_err(|error| PlanFileError::Unusable {
            what: "rows",
            given: error.to_string(),
        })
    }

    /// Where columns are in packed rows; none in a batch.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`] for columns that do not fill vectors evenly.
    pub fn packed(&self, params: &CkksParams) -> Result<Option<(Layout, Spread)>, PlanFileError> {
        let (columns, width) = (self.placement.columns, self.width);
        if columns == 1 {
            return Ok(None);
        }
        let refused = || PlanFileError::Unusable {
            what: "places of a row",
            given: format!("{columns} for {width} columns"),
        };
        let layout = self.layout(params)?;
        // Vectors hold equally many whole heads.
        let spread = layout.spread(width, 1).map_err(|_| refused())?;
        match spread.is_even() {
            true => Ok(Some((layout, spread))),
            false => Err(refused()),
        }
    }

    /// Where the numbers of an answer are in packed rows; none in a batch.
    ///
    /// # Errors
    /// As [`FhePlan::packed`]; [`PlanFileError::Unusable`] without logits.
    pub fn packed_answers(&self, params: &CkksParams) -> Result<Option<Spread>, PlanFileError> {
        let packed = self.packed(params)?;
        let answers = packed.map(|(layout, columns)| match self.logits {
            Some(classes) => layout.spread(classes, 1),
            None => Ok(columns),
        });
        answers
            .transpose()
            .map_err(|error| PlanFileError::Unusable {
                what: "logits",
                given: error.to_string(),
            })
    }

    /// Vectors that a layer reads and a checkpoint holds: columns, or those of packed rows.
    #[must_use]
    pub fn vectors(&self) -> usize {
        match self.placement.columns {
            0 | 1 => self.width,
            columns => self.width.div_ceil(2 * columns),
        }
    }

    /// How texts of a batch lie in the slots.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn interleave(&self, params: &CkksParams) -> Result<Interleave, PlanFileError> {
        Interleave::new(params.slots(), self.rows).map_err(|error| PlanFileError::Unusable {
            what: "rows",
            given: error.to_string(),
        })
    }

    /// Ciphertexts of a request: one for two columns or for a vector of packed rows, and the vector of real rows where
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

    /// Numbers that a text is answered with; of a decoder that is read at all rows, those of each.
    #[must_use]
    pub fn outputs(&self) -> usize {
        self.logits.unwrap_or(self.width)
    }

    /// The scale of a reply.
    ///
    /// # Errors
    /// [`PlanFileError::Unusable`].
    pub fn reply_scale(&self) -> Result<Scale, PlanFileError> {
        Scale::new(self.reply.scale).map_err(|error| PlanFileError::Unusable {
            what: "reply",
            given: error.to_string(),
        })
    }

    /// Bits after the binary point that a client keeps of a reply: those that the parameter set certifies, of numbers
    /// within the reply's magnitude. They follow from nothing else, so that whoever writes a plan cannot ask for more.
    #[must_use]
    pub fn reply_bits(&self, params: &CkksParams) -> u32 {
        self.reply.bits(params)
    }

    /// What the plan knows of a reply's error.
    #[must_use]
    pub fn reply_noise(&self) -> Noise {
        Noise::new(self.reply.magnitude, self.reply.deviation)
    }

    /// Every number within what this program can take.
    ///
    /// # Errors
    /// [`PlanFileError`].
    pub fn check(&self, params: &CkksParams) -> Result<(), PlanFileError> {
        let require = |good: bool, what: &'static str, given: String| match good {
            true => Ok(()),
            false => Err(PlanFileError::Unusable { what, given }),
        };
        require(
            (1..=MOST).contains(&self.width),
            "width",
            self.width.to_string(),
        )?;
        require(
            (1..=MOST).contains(&self.layers),
            "layers",
            self.layers.to_string(),
        )?;
        require(
            (1..=MOST_LOGITS).contains(&self.outputs()),
            "logits",
            self.outputs().to_string(),
        )?;
        require(
            self.input_bound.is_finite() && self.input_bound > 0.0,
            "input bound",
            self.input_bound.to_string(),
        )?;
        if let Some(rows) = self.answer {
            require(
                self.lengths == Lengths::Private
                    && self.logits.is_some() == (rows == AnswerRows::Logits),
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
            require(
                (1..=self.rows).contains(&multiple),
                "bucket",
                multiple.to_string(),
            )?;
        }
        let fits = |limbs: usize| limbs >= 1 && limbs <= params.max_limbs();
        require(
            fits(self.placement.upload),
            "primes of the upload",
            self.placement.upload.to_string(),
        )?;
        let packed = self.packed_answers(params)?;
        let reply = &self.reply;
        // As many as the outputs fill: each more would be one more opening of the key.
        let ciphertexts = match (packed, self.answer) {
            (Some(answers), _) => answers.vectors(),
            (None, Some(AnswerRows::Rows)) => self.width.div_ceil(2),
            (None, _) => self.outputs().div_ceil(self.rows.max(1)),
        };
        // A smaller error than any run declares would let a reply be opened to more bits than are certified.
        let deviations = reply_deviation(params, reply.magnitude)..=reply.magnitude;
        let scale = reply.scale / params.default_scale().value();
        require(
            reply.ciphertexts == ciphertexts
                && fits(reply.limbs)
                && (1.0..f64::INFINITY).contains(&reply.magnitude)
                && deviations.contains(&reply.deviation)
                && (SCALE_FACTOR.recip()..=SCALE_FACTOR).contains(&scale),
            "reply",
            format!("{reply:?}"),
        )?;
        require(
            self.texts(params)? >= 1,
            "places",
            "none but the canary's".to_owned(),
        )?;
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
                whole
                    && canary.embedding.iter().all(|x| x.is_finite())
                    && (-1.0..=1.0).contains(&canary.least_cosine),
                "canary",
                format!("{} numbers", canary.embedding.len()),
            )?;
        }
        for (what, hash) in [
            ("hash of the public model", &self.public_sha256),
            ("hash of the calibration", &self.calibration_sha256),
        ] {
            let digits = hash.len() == 64 && hash.bytes().all(|b| b.is_ascii_hexdigit());
            require(digits, what, hash.chars().take(64).collect())?;
        }
        self.key_plan(params)?;
        Ok(())
    }
}

impl PlannedKey {
    fn key_use(&self) -> KeyUse {
        match self.key {
            PlannedUse::Relin => KeyUse::Relin,
            PlannedUse::Galois => KeyUse::Galois(self.element),
            PlannedUse::ToSparse => KeyUse::ToSparse,
            PlannedUse::FromSparse => KeyUse::FromSparse,
            PlannedUse::Raised => KeyUse::Raised(self.element),
        }
    }
}

impl From<&KeySpec> for PlannedKey {
    fn from(spec: &KeySpec) -> PlannedKey {
        let (key, element) = match spec.key {
            KeyUse::Relin => (PlannedUse::Relin, 0),
            KeyUse::Galois(element) => (PlannedUse::Galois, element),
            KeyUse::ToSparse => (PlannedUse::ToSparse, 0),
            KeyUse::FromSparse => (PlannedUse::FromSparse, 0),
            KeyUse::Raised(element) => (PlannedUse::Raised, element),
        };
        PlannedKey {
            key,
            element,
            limbs: spec.limbs,
            special: spec.special,
        }
    }
}

/// The standard deviation that a reply within `magnitude` declares, in units of the message.
#[must_use]
pub fn reply_deviation(params: &CkksParams, magnitude: f64) -> f64 {
    let bits = params.certified_bits() as i32 + SPARE_BITS;
    magnitude * 2f64.powi(-bits)
}

/// The parameter set of this name: a preset, and in tests also `insecure-test/LOG_N/LEVELS`.
///
/// # Errors
/// [`CkksParamsError::UnknownPreset`].
pub fn named(name: &str) -> Result<Arc<CkksParams>, CkksParamsError> {
    #[cfg(any(test, feature = "insecure-test-parameters"))]
    if let Some((log_n, levels)) = name
        .strip_prefix("insecure-test/")
        .and_then(|sizes| sizes.split_once('/'))
        && let (Ok(log_n), Ok(levels)) = (log_n.parse(), levels.parse())
    {
        return CkksParams::insecure_test(log_n, levels);
    }
    CkksParams::preset(name)
}

/// A small plan of an insecure ring, for tests.
#[cfg(any(test, feature = "insecure-test-parameters"))]
#[doc(hidden)]
pub fn insecure_plan(
    log_n: u32,
    levels: usize,
    width: usize,
) -> Result<(FhePlan, Arc<CkksParams>), PlanFileError> {
    let parameters = format!("insecure-test/{log_n}/{levels}");
    let params = named(&parameters).map_err(|source| PlanFileError::Parameters {
        name: parameters.clone(),
        source,
    })?;
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
    let mut keys = EvalKeyPlan::new();
    keys.relin(2, 1).galois(5, 1, 1).encapsulation(2, 1);
    plan.set_keys(&keys);
    Ok((plan, params))
}

/// Bytes as hexadecimal digits.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut text, byte| {
        // Writing to a text cannot fail.
        let _ = write!(text, "{byte:02x}");
        text
    })
}

#[cfg(test)]
mod tests;
