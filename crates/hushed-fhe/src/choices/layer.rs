//! The choices for the parts of a layer, and for the head of a classifier.

use serde::{Deserialize, Serialize};

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
    /// Half the width.
    #[must_use]
    pub fn half(self) -> f64 {
        (self.high - self.low) / 2.0
    }

    /// The midpoint.
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

/// One encoder layer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LayerChoice {
    /// Scores and softmax.
    pub attention: AttentionChoice,
    /// The norm after attention; the one before it, if the layers begin with norms.
    pub attention_norm: NormChoice,
    /// The activation of the feed-forward block; without columns if one linear layer replaces the block.
    pub activation: ActivationChoice,
    /// The norm after feed-forward; the one before it, if the layers begin with norms.
    pub feed_forward_norm: NormChoice,
    /// If present, row 0 of every text is replaced by these d constants after the layer: its mean over texts, gain and
    /// offset included. This is for a row that hardly depends on the text and lies far from all other rows. The norm
    /// after attention then sets that row to 0, so that no interval of the feed-forward has to contain it.
    pub frozen_row: Option<Vec<f64>>,
}

/// The softmax of all heads of a layer. All heads have the same degree and steps, and hence the same operations.
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
    /// One entry per head.
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
        /// The minimum over rows of the row maximum: exponentials of scores far below it need no relative accuracy.
        least_maximum: f64,
        /// Interval of Σ e^{(s − high)/2} over a row, margins included. The exponential is divided by its upper end, so
        /// that the refreshed sum is within [low/high, 1].
        first: Interval,
        /// Interval of Σe, with y = p·(1/Σp) from an approximate first inverse: about [1/m, 1]. The upper end may be
        /// slightly above 1.
        second: Interval,
    },
    /// A fixed pattern for every text: row i attends to row i − 1, and row 0 to itself. It takes fewer operations, so
    /// the plan lists the heads that use it.
    Previous,
}

/// A LayerNorm: columns c = κ·(x − mean), v = Σ c² within [low, 1], result (x̂/bound) = c·v^{−1/2}·√d/bound; gain and
/// offset are folded into the next map.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NormChoice {
    /// κ: √(1/(d·maximum variance)), margins included.
    pub scale: f64,
    /// The minimum of v, margins included.
    pub low: f64,
    /// Bound on |x̂| (at most √d, for a row of d numbers of variance 1).
    pub bound: f64,
    /// Degree of the polynomial before the Newton steps of the inverse root.
    pub seed: usize,
    /// Newton steps.
    pub steps: usize,
}

/// An activation: one polynomial per hidden column, all of the same degree.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ActivationChoice {
    /// Degree.
    pub degree: usize,
    /// The argument range of each hidden column.
    pub columns: Vec<Column>,
}

/// The head of a classifier: one odd polynomial for the tanh of all columns.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClassifierChoice {
    /// Degree, odd.
    pub degree: usize,
    /// Bound on the magnitude of arguments, including those of an empty row (the biases); margins included.
    pub reach: f64,
}

/// The argument range of one hidden column; in JSON four numbers in brackets. The accuracy of a fit depends on where
/// most arguments are, so mean and deviation are part of it: at degree 15 a fit without them has ten times the error.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
#[serde(from = "[f64; 4]", into = "[f64; 4]")]
pub struct Column {
    /// Lower end of the interval, margins included.
    pub low: f64,
    /// Upper end.
    pub high: f64,
    /// Mean of the arguments.
    pub mean: f64,
    /// Standard deviation of the arguments, above 0.
    pub deviation: f64,
}

impl Column {
    /// The interval.
    #[must_use]
    pub fn interval(self) -> Interval {
        Interval { low: self.low, high: self.high }
    }
}

/// The extremes of some thousands of normal numbers are 3.5 deviations from the mean; a margin adds one.
impl From<Interval> for Column {
    fn from(x: Interval) -> Self {
        Self { low: x.low, high: x.high, mean: x.middle(), deviation: x.half() / 4.5 }
    }
}

impl From<[f64; 4]> for Column {
    fn from([low, high, mean, deviation]: [f64; 4]) -> Self {
        Self { low, high, mean, deviation }
    }
}

impl From<Column> for [f64; 4] {
    fn from(x: Column) -> Self {
        [x.low, x.high, x.mean, x.deviation]
    }
}
