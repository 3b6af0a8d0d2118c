//! What is chosen for a model before it runs under CKKS: intervals, degrees and constants of every approximation, fixed
//! heads and frozen rows. Found by `hushed calibrate --protocol fhe` over sample texts. A secret of the server, as it
//! follows from the weights.

pub mod fits;

use hushed_model::Network;
use serde::{Deserialize, Serialize};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;

/// The contents of `calibration-fhe.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Choices {
    /// [`VERSION`].
    pub version: u32,
    /// SHA-256 of the sample file, in hexadecimal.
    pub sample_sha256: String,
    /// SHA-256 of the model's weights file, in hexadecimal.
    pub model_sha256: String,
    /// Texts measured.
    pub texts: usize,
    /// Rows a text, padding included, at which intervals were measured.
    pub rows: usize,
    /// Layer by layer.
    pub layers: Vec<LayerChoice>,
    /// The head, if the model is a classifier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub classifier: Option<ClassifierChoice>,
    /// How they were found.
    #[serde(default)]
    pub report: Report,
}

/// A closed interval; in JSON two numbers in brackets.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 2]", into = "[f64; 2]")]
pub struct Interval {
    /// Lower end.
    pub low: f64,
    /// Upper end.
    pub high: f64,
}

impl Interval {
    /// Half of its width.
    #[must_use]
    pub fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The point between its ends.
    #[must_use]
    pub fn middle(self) -> f64 {
        f64::midpoint(self.low, self.high)
    }
}

impl From<[f64; 2]> for Interval {
    fn from([low, high]: [f64; 2]) -> Self {
        Self { low, high }
    }
}

impl From<Interval> for [f64; 2] {
    fn from(x: Interval) -> Self {
        [x.low, x.high]
    }
}

/// What the search tried.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Report {
    /// Required cosine to the exact embedding, the least over texts.
    pub wanted: f64,
    /// Number of held-out texts, on which candidates were compared.
    pub held_out: usize,
    /// Candidates, in the order of the search.
    pub candidates: Vec<Candidate>,
}

/// One set of degrees and steps, and its accuracy on held-out texts.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Candidate {
    /// Its degrees, in words.
    pub name: String,
    /// Most levels of the attention half of a layer.
    pub attention_levels: usize,
    /// Most levels of the feed-forward half.
    pub feed_forward_levels: usize,
    /// Least cosine to the exact embedding, without errors of ciphertexts; 0 where an answer is not finite.
    pub cosine_min: f64,
    /// Its mean.
    pub cosine_mean: f64,
    /// Least cosine with errors of rescales and refreshes, where that was simulated.
    pub cosine_min_with_errors: Option<f64>,
    /// Whether it was chosen: the cheapest that reaches the required cosine, with errors too.
    pub chosen: bool,
}

/// One encoder layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerChoice {
    /// Scores, softmax.
    pub attention: AttentionChoice,
    /// The norm after attention.
    pub attention_norm: NormChoice,
    /// The activation of the feed-forward block.
    pub activation: ActivationChoice,
    /// The norm after feed-forward.
    pub feed_forward_norm: NormChoice,
    /// If present, row 0 of every text is replaced by these d constants after the layer: its mean over texts, gain and
    /// offset included. For a row that hardly depends on the text and lies far from all other rows. The norm after
    /// attention then sets that row to 0, so that no interval of the feed-forward has to contain it.
    pub frozen_row: Option<Vec<f64>>,
}

/// The softmax of all heads of a layer. Degree and steps are the same for all heads, and so are the operations.
///
/// For a row of scores s (with the factor 1/√dh, keys without bias): p = e^{(s − high)/2}, y = p·(1/Σp), e = y²,
/// weights = e·(1/Σe).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct AttentionChoice {
    /// Degree of the polynomial for e^{(s − high)/2} on a head's interval.
    pub degree: usize,
    /// Steps of the inverse of Σp.
    pub first_steps: usize,
    /// Steps of the inverse of Σe.
    pub second_steps: usize,
    /// Head by head.
    pub heads: Vec<HeadChoice>,
}

/// One head.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum HeadChoice {
    /// A softmax.
    Softmax {
        /// Interval of the scores of all queries, padding included, with real keys; margins included.
        scores: Interval,
        /// The least row maximum: exponentials of scores far below it need no relative accuracy.
        least_maximum: f64,
        /// Interval of Σ e^{(s − high)/2} over a row, margins included. The exponential is divided by its upper end, so
        /// that the refreshed sum is within [low/high, 1].
        first: Interval,
        /// Interval of Σe, with y = p·(1/Σp) by an approximate first inverse: about [1/m, 1]. The upper end may be a
        /// little above 1.
        second: Interval,
    },
    /// A fixed pattern for every text: row i attends to row i − 1, and row 0 to itself. It takes fewer operations, so
    /// the plan lists the heads that have it.
    Previous,
}

/// A LayerNorm: columns c = κ·(x − mean), v = Σ c² within [low, 1], result (x̂/bound) = c·v^{−1/2}·√d/bound, gain and
/// offset folded into the next map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormChoice {
    /// κ: √(1/(d·greatest variance)), margins included.
    pub scale: f64,
    /// The least v, margins included.
    pub low: f64,
    /// Bound on |x̂| (at most √d, for a row of d numbers of variance 1).
    pub bound: f64,
    /// Degree of the polynomial before the Newton steps of the inverse root.
    pub seed: usize,
    /// Newton steps.
    pub steps: usize,
}

/// An activation: one polynomial for each hidden column, all of one degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationChoice {
    /// Degree.
    pub degree: usize,
    /// The arguments of each hidden column.
    pub columns: Vec<Column>,
}

/// The head of a classifier: one odd polynomial for the tanh of all columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierChoice {
    /// Degree, odd.
    pub degree: usize,
    /// Bound on the size of arguments, those of an empty row (the biases) included; with margins.
    pub reach: f64,
}

/// The arguments of one hidden column; in JSON four numbers in brackets. The accuracy of a fit depends on where most
/// arguments are, so mean and deviation are part of it: at degree 15 a fit without them has ten times the error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 4]", into = "[f64; 4]")]
pub struct Column {
    /// Lower end of the interval, margins included.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Their mean.
    pub mean: f64,
    /// Their standard deviation, above 0.
    pub deviation: f64,
}

impl Column {
    /// The interval.
    #[must_use]
    pub fn interval(self) -> Interval {
        Interval {
            low: self.low,
            high: self.high,
        }
    }
}

/// The extremes of some thousands of normal numbers are 3.5 deviations from the mean, and a margin adds one.
impl From<Interval> for Column {
    fn from(x: Interval) -> Self {
        Self {
            low: x.low,
            high: x.high,
            mean: x.middle(),
            deviation: x.half() / 4.5,
        }
    }
}

impl From<[f64; 4]> for Column {
    fn from([low, high, mean, deviation]: [f64; 4]) -> Self {
        Self {
            low,
            high,
            mean,
            deviation,
        }
    }
}

impl From<Column> for [f64; 4] {
    fn from(x: Column) -> Self {
        [x.low, x.high, x.mean, x.deviation]
    }
}

/// Why choices cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ChoicesError {
    /// Not the JSON that `hushed calibrate --protocol fhe` writes.
    #[error(
        "not a calibration for fhe ({0}); make one with `hushed calibrate DIR --input FILE --protocol fhe`"
    )]
    NotJson(#[from] serde_json::Error),
    /// Another version, another model, or numbers that are not valid.
    #[error("{what}; make it again with `hushed calibrate DIR --input FILE --protocol fhe`")]
    Unusable {
        /// The problem, and where it is.
        what: String,
    },
}

/// The shipped choices of MiniLM are below 300 KiB; those of BERT-large below 2 MiB.
pub const MAX_BYTES: usize = 16 << 20;

/// Highest degree for which a chain has levels.
const MAX_DEGREE: usize = 63;
/// Most steps for which a chain has levels.
const MAX_STEPS: usize = 20;
/// Most rows of a text: the most slots of any ring.
pub const MAX_ROWS: usize = 1 << 15;

impl Choices {
    /// Reads `calibration-fhe.json`. Every number is finite, no interval is empty, and a chain could have levels for
    /// the degrees and steps. [`Choices::check`] checks it against a model.
    ///
    /// # Errors
    /// [`ChoicesError`].
    pub fn from_json(bytes: &[u8]) -> Result<Choices, ChoicesError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > MAX_BYTES {
            return unusable(format!(
                "the calibration has {} bytes; at most {MAX_BYTES} are read",
                bytes.len()
            ));
        }
        // The version is read first: another version may have other fields.
        let Versioned { version } = serde_json::from_slice(bytes)?;
        if version != VERSION {
            return unusable(format!(
                "the calibration has version {version}, and this program reads version {VERSION}"
            ));
        }
        let choices: Choices = serde_json::from_slice(bytes)?;
        choices.validate()?;
        Ok(choices)
    }

    /// As the bytes of `calibration-fhe.json`.
    ///
    /// # Errors
    /// As [`Choices::from_json`]: what it would refuse is not written.
    pub fn to_json(&self) -> Result<Vec<u8>, ChoicesError> {
        self.validate()?;
        let mut bytes = serde_json::to_vec(self)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Checks that these choices have the dimensions of a model.
    ///
    /// # Errors
    /// [`ChoicesError::Unusable`] with the first difference.
    pub fn check(&self, model: &Network) -> Result<(), ChoicesError> {
        same("layers", self.layers.len(), model.layers.len())?;
        for (i, (choice, layer)) in self.layers.iter().zip(&model.layers).enumerate() {
            let at = |what: &str| format!("{what} of layer {i}");
            let heads = choice.attention.heads.len();
            same(&at("heads"), heads, layer.attention.heads.count)?;
            let columns = choice.activation.columns.len();
            same(
                &at("hidden columns"),
                columns,
                layer.feed_forward.up.outputs,
            )?;
            if let Some(row) = &choice.frozen_row {
                same(&at("columns"), row.len(), layer.feed_forward_norm.width)?;
            }
        }
        let heads = |has: bool| match has {
            true => "a classifier's head",
            false => "no classifier's head",
        };
        let (ours, theirs) = (self.classifier.is_some(), model.classifier.is_some());
        if ours != theirs {
            let (ours, theirs) = (heads(ours), heads(theirs));
            return unusable(format!(
                "the calibration has {ours}, and the model {theirs}"
            ));
        }
        let last = self.layers.last();
        if ours && last.is_some_and(|layer| layer.frozen_row.is_some()) {
            return unusable("the first row, which the classifier reads, is frozen".to_owned());
        }
        Ok(())
    }

    /// Checks that they were made for the weights with this SHA-256.
    ///
    /// # Errors
    /// [`ChoicesError::Unusable`].
    pub fn check_model(&self, sha256: &str) -> Result<(), ChoicesError> {
        if self.model_sha256 == sha256 {
            return Ok(());
        }
        unusable(format!(
            "the calibration is for weights with SHA-256 {}, and these have {sha256}",
            self.model_sha256
        ))
    }

    fn validate(&self) -> Result<(), ChoicesError> {
        within("rows", self.rows, 1, MAX_ROWS)?;
        for (i, layer) in self.layers.iter().enumerate() {
            let named = |error| match error {
                ChoicesError::Unusable { what } => ChoicesError::Unusable {
                    what: format!("layer {i}: {what}"),
                },
                other => other,
            };
            layer.validate().map_err(named)?;
        }
        match &self.classifier {
            Some(classifier) => classifier.validate(),
            None => Ok(()),
        }
    }
}

impl ClassifierChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        within(
            "degree of the classifier's tanh",
            self.degree,
            3,
            MAX_DEGREE,
        )?;
        let sound = self.reach.is_finite() && self.reach > 0.0;
        if self.degree.is_multiple_of(2) || !sound {
            let (degree, reach) = (self.degree, self.reach);
            return unusable(format!(
                "the classifier's tanh: degree {degree}, which must be odd, up to {reach}"
            ));
        }
        Ok(())
    }
}

impl LayerChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        self.attention.validate()?;
        self.attention_norm.validate("norm after attention")?;
        self.feed_forward_norm.validate("norm after feed-forward")?;
        within(
            "degree of the activation",
            self.activation.degree,
            1,
            MAX_DEGREE,
        )?;
        for (j, column) in self.activation.columns.iter().enumerate() {
            let what = format!("arguments of hidden column {j}");
            proper(&what, column.interval())?;
            let sound = column.deviation.is_finite() && column.deviation > 0.0;
            if !(column.mean.is_finite() && sound) {
                let (mean, deviation) = (column.mean, column.deviation);
                return unusable(format!("{what}: mean {mean}, deviation {deviation}"));
            }
        }
        let frozen = self.frozen_row.iter().flatten();
        if frozen.clone().any(|v| !v.is_finite()) {
            return unusable("a number of the frozen row is not finite".to_owned());
        }
        Ok(())
    }
}

impl AttentionChoice {
    fn validate(&self) -> Result<(), ChoicesError> {
        within("degree of the exponential", self.degree, 1, MAX_DEGREE)?;
        within("steps of the first inverse", self.first_steps, 1, MAX_STEPS)?;
        within(
            "steps of the second inverse",
            self.second_steps,
            1,
            MAX_STEPS,
        )?;
        for (j, head) in self.heads.iter().enumerate() {
            let HeadChoice::Softmax {
                scores,
                least_maximum,
                first,
                second,
            } = *head
            else {
                continue;
            };
            proper(&format!("scores of head {j}"), scores)?;
            positive(&format!("first sums of head {j}"), first)?;
            positive(&format!("second sums of head {j}"), second)?;
            if !(scores.low..=scores.high).contains(&least_maximum) {
                return unusable(format!(
                    "head {j}: the least row maximum {least_maximum} is not a score"
                ));
            }
        }
        Ok(())
    }
}

impl NormChoice {
    fn validate(&self, what: &str) -> Result<(), ChoicesError> {
        let sound = |x: f64| x.is_finite() && x > 0.0;
        if !(sound(self.scale) && sound(self.bound) && sound(self.low) && self.low < 1.0) {
            return unusable(format!(
                "{what}: scale {}, least variance {} and bound {} are not all positive, the second below 1",
                self.scale, self.low, self.bound
            ));
        }
        // The inverse root takes these degrees for its first polynomial.
        within(&format!("{what}: first degree"), self.seed, 1, 15)?;
        within(&format!("{what}: steps"), self.steps, 0, MAX_STEPS)
    }
}

fn unusable<T>(what: String) -> Result<T, ChoicesError> {
    Err(ChoicesError::Unusable { what })
}

fn same(what: &str, found: usize, expected: usize) -> Result<(), ChoicesError> {
    if found == expected {
        return Ok(());
    }
    unusable(format!(
        "the calibration has {found} {what}, and the model {expected}"
    ))
}

fn within(what: &str, value: usize, least: usize, most: usize) -> Result<(), ChoicesError> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    unusable(format!(
        "{what}: {value}, and {least} to {most} are possible"
    ))
}

fn proper(what: &str, x: Interval) -> Result<(), ChoicesError> {
    // Not `>=`: this refuses a NaN too.
    if x.low.is_finite() && x.high.is_finite() && x.low < x.high {
        return Ok(());
    }
    unusable(format!(
        "{what}: {} to {} is not an interval",
        x.low, x.high
    ))
}

fn positive(what: &str, x: Interval) -> Result<(), ChoicesError> {
    proper(what, x)?;
    if x.low > 0.0 {
        return Ok(());
    }
    unusable(format!("{what}: {} is not positive", x.low))
}

#[cfg(test)]
#[path = "choices_tests.rs"]
mod tests;
