//! Ranges of a model's values over sample texts, to which the approximations of a private run are fitted.
//!
//! Only rows of real tokens count. Measured are: scores after subtracting the row maximum (the argument of exp, at most
//! 0) and the sums of their exponentials (the denominators), or scores with their bias if a sigmoid weighs them;
//! arguments of activations; variances of norms, with row 0 separate because a model's first token has variances of its
//! own; and all results of linear layers and sums, which bound the fixed-point ring. The ranges derive from weights and
//! sample, so they stay at the server.

use std::collections::BTreeMap;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::blocks::{Mask, NormKind, Weigh};
use crate::error::ModelError;
use crate::folder::faults::json_words;
use crate::folder::json::without_mark;
use crate::images::Item;
use crate::model::Model;
use crate::plain::{self, Moment, PlainActs, PlainScores, Seen, What};

/// The version that this program writes and reads.
pub const VERSION: u32 = 1;
/// `calibration.json` of BERT-large is below 100 KiB.
pub const MAX_BYTES: usize = 4 << 20;

/// The contents of `calibration.json`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Calibration {
    /// [`VERSION`].
    pub version: u32,
    /// SHA-256 of the sample file, in hexadecimal, as its reader computed it.
    pub sample_sha256: String,
    /// Texts or images measured.
    pub texts: usize,
    /// Tokens measured, including special ones, or rows of images.
    pub tokens: usize,
    /// The ranges of each step.
    pub sites: BTreeMap<String, Ranges>,
}

/// The ranges of one step.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case", deny_unknown_fields)]
pub enum Ranges {
    /// Results of a linear layer, a sum or an embedding.
    Values {
        /// Every element.
        output: Range,
    },
    /// Arguments of an activation.
    Activation {
        /// Every element.
        input: Range,
    },
    /// A sigmoid of every score.
    Sigmoid {
        /// Every score that is not masked, with its bias.
        input: Range,
    },
    /// A softmax.
    Softmax {
        /// Score minus its row's maximum, at most 0.
        shifted: Range,
        /// Sum of a row's exponentials of the above: from 1 to the number of keys.
        denominator: Range,
    },
    /// A norm; for an RMSNorm, which subtracts no mean, mean squares instead of variances.
    Norm {
        /// Variance of row 0 of each text.
        first_variance: Range,
        /// Variances of all other rows.
        variance: Range,
        /// Elements after the mean is subtracted.
        centred: Range,
        /// Means of all rows; `None` for an RMSNorm, and in files written before means were measured.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        mean: Option<Range>,
    },
}

/// The minimum and maximum of some numbers.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Range {
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
}

/// Why a calibration cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum CalibrationError {
    /// Larger than anything plausible.
    #[error("the calibration has {bytes} bytes; at most {MAX_BYTES} are read")]
    TooLarge {
        /// Its size.
        bytes: usize,
    },
    /// Not the JSON that `hushed calibrate` writes.
    #[error("not a calibration ({}); make one with `hushed calibrate`", json_words(.0))]
    NotJson(#[from] serde_json::Error),
    /// Written by another version of this program.
    #[error(
        "the calibration has version {found}, and this program reads version {VERSION}; make it again with `hushed calibrate`"
    )]
    Version {
        /// The version found.
        found: u32,
    },
    /// A range that is empty or not finite.
    #[error("the calibration's range at {site} is {min} to {max}; make it again with `hushed calibrate`")]
    Range {
        /// The step.
        site: String,
        /// The minimum found.
        min: f64,
        /// The maximum found.
        max: f64,
    },
    /// Made for another model.
    #[error("the calibration has no ranges for {site}: it was made for another model")]
    MissingSite {
        /// The step.
        site: String,
    },
}

/// Measures a model over texts or images.
///
/// # Errors
/// Those of [`plain::run`].
pub fn calibrate<T: Clone + Into<Item>>(
    model: &Model,
    items: &[T],
    sample_sha256: &str,
) -> Result<Calibration, ModelError> {
    calibrate_layers(model, items, sample_sha256, (&[], usize::MAX))
}

/// The same for the steps up to the end of this many layers, or of all steps, if it has no more layers; without the
/// rows of the public `head` with which a text begins.
///
/// # Errors
/// Those of [`calibrate`].
pub fn calibrate_layers<T: Clone + Into<Item>>(
    model: &Model,
    items: &[T],
    sample_sha256: &str,
    (head, layers): (&[u32], usize),
) -> Result<Calibration, ModelError> {
    let mut calibration = Calibration {
        version: VERSION,
        sample_sha256: sample_sha256.to_owned(),
        texts: items.len(),
        tokens: 0,
        sites: BTreeMap::new(),
    };
    let program = model.program();
    let all = program.layers();
    let end = match all.get(..layers) {
        Some([.., last]) if layers < all.len() => last.end,
        _ => program.steps().len(),
    };
    for item in items {
        let item: Item = item.clone().into();
        let public = match &item {
            Item::Text(text) => text.public_rows(head),
            Item::Image(_) => 0,
        };
        calibration.tokens += item.rows().real - public;
        plain::run_parts_until(&program, end, vec![item], |id, what, moment, value| {
            if let Some(seen) = measure(what, moment, value, public) {
                let site = id.to_string();
                match calibration.sites.get_mut(&site) {
                    Some(ranges) => ranges.merge(&seen),
                    None => drop(calibration.sites.insert(site, seen)),
                }
            }
        })?;
    }
    Ok(calibration)
}

impl Calibration {
    /// Reads `calibration.json` and checks that every range is finite and not empty.
    pub fn parse(bytes: &[u8]) -> Result<Calibration, CalibrationError> {
        #[derive(Deserialize)]
        struct Versioned {
            version: u32,
        }
        if bytes.len() > MAX_BYTES {
            return Err(CalibrationError::TooLarge { bytes: bytes.len() });
        }
        // The version first: other versions may have other fields.
        let Versioned { version } = serde_json::from_slice(without_mark(bytes))?;
        if version != VERSION {
            return Err(CalibrationError::Version { found: version });
        }
        let calibration: Calibration = serde_json::from_slice(without_mark(bytes))?;
        calibration.validate()?;
        Ok(calibration)
    }

    /// The bytes of `calibration.json`; refuses ranges without observations.
    pub fn to_json(&self) -> Result<Vec<u8>, CalibrationError> {
        self.validate()?;
        Ok(serde_json::to_vec_pretty(self)?)
    }

    fn validate(&self) -> Result<(), CalibrationError> {
        for (site, ranges) in &self.sites {
            for r in ranges.all() {
                if !(r.min.is_finite() && r.max.is_finite() && r.min <= r.max) {
                    return Err(CalibrationError::Range { site: site.clone(), min: r.min, max: r.max });
                }
            }
        }
        Ok(())
    }

    /// The ranges at a step.
    ///
    /// # Errors
    /// [`CalibrationError::MissingSite`] if it was made for another model.
    pub fn at(&self, step: impl fmt::Display) -> Result<&Ranges, CalibrationError> {
        let site = step.to_string();
        let ranges = self.sites.get(&site);
        ranges.ok_or(CalibrationError::MissingSite { site })
    }
}

impl Ranges {
    fn all(&self) -> Vec<Range> {
        match *self {
            Ranges::Values { output: r } | Ranges::Activation { input: r } | Ranges::Sigmoid { input: r } => vec![r],
            Ranges::Softmax { shifted, denominator } => vec![shifted, denominator],
            Ranges::Norm { first_variance, variance, centred, mean } => {
                let all = [first_variance, variance, centred];
                all.into_iter().chain(mean).collect()
            }
        }
    }

    fn merge(&mut self, other: &Ranges) {
        match (self, other) {
            (Ranges::Values { output: a }, Ranges::Values { output: b })
            | (Ranges::Activation { input: a }, Ranges::Activation { input: b })
            | (Ranges::Sigmoid { input: a }, Ranges::Sigmoid { input: b }) => a.merge(*b),
            (Ranges::Softmax { shifted, denominator }, Ranges::Softmax { shifted: s, denominator: d }) => {
                shifted.merge(*s);
                denominator.merge(*d);
            }
            (
                Ranges::Norm { first_variance, variance, centred, mean },
                Ranges::Norm { first_variance: f, variance: v, centred: c, mean: m },
            ) => {
                first_variance.merge(*f);
                variance.merge(*v);
                centred.merge(*c);
                if let (Some(mean), Some(m)) = (mean, m) {
                    mean.merge(*m);
                }
            }
            _ => unreachable!("a site is always measured as the same kind"),
        }
    }
}

impl Range {
    const NOTHING: Range = Range { min: f64::INFINITY, max: f64::NEG_INFINITY };

    fn of(values: impl IntoIterator<Item = f64>) -> Range {
        values.into_iter().fold(Range::NOTHING, |r, v| Range { min: r.min.min(v), max: r.max.max(v) })
    }

    fn merge(&mut self, other: Range) {
        *self = Range { min: self.min.min(other.min), max: self.max.max(other.max) };
    }

    /// The larger of the two magnitudes.
    pub fn magnitude(&self) -> f64 {
        self.min.abs().max(self.max.abs())
    }
}

/// The ranges that one value gives, without the first `public` rows of a text.
fn measure(what: What, moment: Moment, value: Seen<'_>, public: usize) -> Option<Ranges> {
    match (value, moment, what) {
        (Seen::Acts(x), Moment::Input, What::Activation) => Some(Ranges::Activation { input: real_values(x, public) }),
        (Seen::Acts(x), Moment::Input, What::Norm(kind)) => Some(variances(x, kind, public)),
        (Seen::Acts(x), Moment::Output, What::Values) => Some(Ranges::Values { output: real_values(x, public) }),
        (Seen::Scores(s), Moment::Input, What::Weigh(Weigh::Softmax, mask)) => Some(softmax(s, mask, public)),
        (Seen::Scores(s), Moment::Input, What::Weigh(Weigh::Sigmoid { bias }, mask)) => {
            let mut input = Range::NOTHING;
            each_row(s, mask, public, |row| {
                input.merge(Range::of(row.iter().map(|v| v + bias)));
            });
            Some(Ranges::Sigmoid { input })
        }
        _ => None,
    }
}

/// The rows of tokens after the public ones, counted from there; a pooled row is none of these.
fn real_rows(x: &PlainActs, public: usize) -> impl Iterator<Item = (usize, &[f64])> {
    x.rows.blocks().flat_map(move |(rows, real)| {
        let first = if real > public { public } else { 0 };
        rows.take(real).skip(first).enumerate().map(|(i, row)| (i, x.values.row(row)))
    })
}

fn real_values(x: &PlainActs, public: usize) -> Range {
    Range::of(real_rows(x, public).flat_map(|(_, row)| row.iter().copied()))
}

fn variances(x: &PlainActs, kind: NormKind, public: usize) -> Ranges {
    let (mut first_variance, mut variance, mut centred, mut means) =
        (Range::NOTHING, Range::NOTHING, Range::NOTHING, Range::NOTHING);
    let pooled = x.rows.texts().iter().all(|text| text.real == 1 || text.real == public + 1);
    for (i, row) in real_rows(x, public) {
        let mean = match kind {
            NormKind::LayerNorm => row.iter().sum::<f64>() / row.len() as f64,
            NormKind::RmsNorm => 0.0,
        };
        let v = row.iter().map(|v| (v - mean).powi(2)).sum::<f64>() / row.len() as f64;
        let v = Range { min: v, max: v };
        // The single row after pooling may be any row of its text, so it counts in both.
        if i == 0 {
            first_variance.merge(v);
        }
        if i > 0 || pooled {
            variance.merge(v);
        }
        centred.merge(Range::of(row.iter().map(|v| v - mean)));
        means.merge(Range::of([mean]));
    }
    Ranges::Norm { first_variance, variance, centred, mean: (kind == NormKind::LayerNorm).then_some(means) }
}

/// The scores of every row of a token with the keys that it sees.
fn each_row(s: &PlainScores, mask: Mask, public: usize, mut measure: impl FnMut(&[f64])) {
    for (heads, rows) in s.texts.iter().zip(s.rows.texts()) {
        for scores in heads {
            let first = if scores.rows() > public { public } else { 0 };
            for i in first..rows.real.min(scores.rows()) {
                measure(&scores.row(i)[mask.keys(i, rows.real)]);
            }
        }
    }
}

fn softmax(s: &PlainScores, mask: Mask, public: usize) -> Ranges {
    let (mut shifted, mut denominator) = (Range::NOTHING, Range::NOTHING);
    each_row(s, mask, public, |row| {
        let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        shifted.merge(Range::of(row.iter().map(|v| v - max)));
        let sum = row.iter().map(|v| (v - max).exp()).sum();
        denominator.merge(Range { min: sum, max: sum });
    });
    Ranges::Softmax { shifted, denominator }
}
