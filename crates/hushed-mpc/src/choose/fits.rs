//! Lists, for each measured step, the function of the two-party run that computes it and how close the measured values
//! come to its bounds.

use std::collections::HashMap;
use std::fmt;

use hushed_model::{Activation, Block, Calibration, Model, Norm, Program, Ranges};
use hushed_twopc::func::norm::most_mean;
use hushed_twopc::func::sigmoid;
use hushed_twopc::func::softmax::SCORES;
use serde::{Serialize, Serializer};

use crate::OutOfRange;
use crate::bias::MAX_BIAS;
use crate::circuit::function::Function;
use crate::circuit::reach_of;
use crate::formats::{LINEAR, LOGIT, LONG, MASKED, WEIGHED};
use crate::sample::MAX_NOISE;

/// One bound of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The step.
    pub site: String,
    /// The function that computes it.
    pub function: &'static str,
    /// The bounded quantity.
    pub what: Quantity,
    /// The largest measured magnitude; for [`Bound::Least`] the smallest.
    pub measured: f64,
    /// The bound of the function.
    pub holds: f64,
    /// Which kind of bound it is.
    pub bound: Bound,
}

/// What a [`Fit`] compares.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Bound {
    /// Larger values do not fit the ring: an answer is wrong.
    Most,
    /// Smaller values are lost to rounding: an answer is inexact.
    Least,
}

impl Fit {
    /// Whether the measured values fit.
    pub fn fits(&self) -> bool {
        match self.bound {
            Bound::Most => self.measured < self.holds,
            Bound::Least => self.measured >= self.holds,
        }
    }

    /// What is said of a step whose values do not fit, without the measured number.
    pub(crate) fn out_of_range(self) -> OutOfRange {
        let what = match self.what {
            Quantity::RowMeans => "means of rows in a norm",
            Quantity::Variances { .. } | Quantity::LeastVariances => "squares of a row in a norm",
            Quantity::Results | Quantity::HeadValues => "results",
            Quantity::Arguments => "arguments of an activation",
            Quantity::BiasedScores | Quantity::Differences | Quantity::Sums => "scores",
        };
        let limit = match self.what {
            // For the squares of a row.
            Quantity::Variances { width } => self.holds * width as f64,
            _ => self.holds,
        };
        OutOfRange { site: self.site, what, limit }
    }
}

/// The bounded quantity of a [`Fit`], printed in words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Results of the layer that gives attention heads their values.
    HeadValues,
    /// Results of any other layer or sum.
    Results,
    /// Arguments of an activation.
    Arguments,
    /// Arguments of a sigmoid.
    BiasedScores,
    /// How far scores are below the maximum of their row.
    Differences,
    /// Sums of a row of a softmax.
    Sums,
    /// Variances of a norm, or mean squares, of rows of `width` elements.
    Variances {
        /// The width.
        width: usize,
    },
    /// Means of a norm's rows.
    RowMeans,
    /// The same as `Variances`, with ε added.
    LeastVariances,
}

impl fmt::Display for Quantity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Quantity::HeadValues | Quantity::Results => "results",
            Quantity::Arguments => "arguments",
            Quantity::BiasedScores => "scores with their bias",
            Quantity::Differences => "scores below a maximum",
            Quantity::Sums => "sums of a row",
            Quantity::Variances { .. } => "variances",
            Quantity::RowMeans => "row means",
            Quantity::LeastVariances => "variances with ε",
        })
    }
}

/// Serialised in words.
impl Serialize for Quantity {
    fn serialize<T: Serializer>(&self, to: T) -> Result<T::Ok, T::Error> {
        to.collect_str(self)
    }
}

/// The bound for an attention head's values: sums of them over 256 keys fit the product's ring.
const HEAD_VALUES: f64 = 16.0;

/// The part of a program that a measured step is, where its bound depends on it.
enum Part<'a> {
    HeadValues,
    /// The product of a gated block, and whether a norm reads it.
    Product {
        normed: bool,
    },
    Logits,
    Norm(&'a Norm),
}

/// The parts of a program by the names of their steps, which a calibration has as text.
fn parts(program: &Program) -> HashMap<String, Part<'_>> {
    let mut parts = HashMap::new();
    for step in program.steps() {
        let part = match &step.block {
            Block::Attention(_) => Some((step.id.part("value"), Part::HeadValues)),
            Block::FeedForward(f) => {
                let normed = f.sub_norm.is_some();
                Some((step.id.part("product"), Part::Product { normed }))
            }
            Block::Vocabulary(_) | Block::Classes(_) => Some((step.id, Part::Logits)),
            _ => None,
        };
        let norms = step.norms().map(|(id, norm)| (id, Part::Norm(norm)));
        let all = part.into_iter().chain(norms);
        parts.extend(all.map(|(id, part)| (id.to_string(), part)));
    }
    parts
}

/// Returns the bounds of every measured step of a model.
pub fn fits(calibration: &Calibration, model: &Model) -> Vec<Fit> {
    let (config, program) = (&model.public.config, model.program());
    let activation = Function::new(config.activation, config.tolerance);
    let parts = parts(&program);
    let mut all = Vec::new();
    for (site, ranges) in &calibration.sites {
        let mut push = |function, what, measured, holds, bound| {
            all.push(Fit { site: site.clone(), function, what, measured, holds, bound });
        };
        let mut add = |function, what, measured, holds| push(function, what, measured, holds, Bound::Most);
        let part = parts.get(site);
        match ranges {
            Ranges::Values { output } => {
                // Two spare bits: one for the sign, one for the rounding protocols.
                let ring = f64::from(LINEAR.ring.bits() - LINEAR.frac - 2).exp2() / 2.0;
                // The difference of two logits is in the ring too.
                let logit = f64::from(LOGIT.ring.bits() - LOGIT.frac - 2).exp2();
                let (what, holds) = match part {
                    Some(Part::HeadValues) => (Quantity::HeadValues, HEAD_VALUES),
                    Some(Part::Logits) => (Quantity::Results, logit - MAX_NOISE - MAX_BIAS),
                    // A norm that reads it has more room.
                    Some(Part::Product { normed: true }) => (Quantity::Results, activation.most_gated()),
                    Some(Part::Product { normed: false }) => (Quantity::Results, activation.most_gated().min(ring)),
                    Some(Part::Norm(_)) | None => (Quantity::Results, ring),
                };
                add("linear", what, output.magnitude(), holds);
            }
            Ranges::Activation { input } => {
                let (name, holds) = (activation.name(), activation.range());
                // Arguments at or below 0 are not squared; the preceding results bound them.
                let measured = match config.activation {
                    Activation::Relu2 => input.max.max(0.0),
                    _ => input.magnitude(),
                };
                add(name, Quantity::Arguments, measured, holds);
            }
            Ranges::Sigmoid { input } => {
                let (what, measured) = (Quantity::BiasedScores, input.magnitude());
                add("sigmoid", what, measured, sigmoid::RANGE);
            }
            Ranges::Softmax { shifted, denominator } => {
                let difference = f64::from(SCORES.ring.bits() - 1 - SCORES.frac).exp2();
                // Padding, which any text may have, lies below all scores by MASKED, and must lie at least 16 below.
                let nats = (difference + MASKED - 16.0) / std::f64::consts::LOG2_E;
                let (function, most) = ("softmax by 2^-y", shifted.magnitude());
                add(function, Quantity::Differences, most, nats);
                let sum = f64::from(LONG.bits - WEIGHED.frac).exp2();
                add(function, Quantity::Sums, denominator.magnitude(), sum);
            }
            Ranges::Norm { first_variance, variance, mean, .. } => {
                let measured = first_variance.magnitude().max(variance.magnitude());
                let Some(Part::Norm(norm)) = part else {
                    continue;
                };
                let (reach, function, width) = (reach_of(norm), "norm by 1/√v", norm.width);
                let holds = f64::from(reach.squares).exp2() / width as f64;
                add(function, Quantity::Variances { width }, measured, holds);
                if let Some(mean) = mean {
                    let holds = most_mean(LINEAR, width);
                    add(function, Quantity::RowMeans, mean.magnitude(), holds);
                }
                let measured = first_variance.min.min(variance.min) + norm.epsilon;
                let holds = reach.least_mean_square(width);
                let what = Quantity::LeastVariances;
                push(function, what, measured, holds, Bound::Least);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::{tiny_generator, tiny_model, tiny_ternary};
    use hushed_model::{Calibration, Model, Range, Ranges, TooLong, calibrate};

    use super::{Bound, Fit, fits};

    /// Whether results of this magnitude at one step fit.
    fn holds(model: &Model, site: &str, most: f64) -> bool {
        let output = Range { min: -most, max: 1.0 };
        let calibration = Calibration {
            version: 0,
            sample_sha256: String::new(),
            texts: 1,
            tokens: 1,
            sites: [(site.to_owned(), Ranges::Values { output })].into(),
        };
        fits(&calibration, model).iter().all(super::Fit::fits)
    }

    #[test]
    fn logits_leave_room_for_noise_and_biases() {
        let model = &tiny_generator();
        // 2^10 − 256 − 73.6.
        assert!(holds(model, "head", 694.0) && !holds(model, "head", 695.0));
    }

    #[test]
    fn values_and_products_have_bounds_of_their_own() {
        let model = &tiny_model();
        let [query, value] = ["query", "value"].map(|part| format!("layer.1.attention.{part}"));
        assert!(holds(model, &value, 15.9) && !holds(model, &value, 16.1));
        assert!(holds(model, &query, 16.1));
        // A gated block's product may be as large as its norm holds.
        let product = "layer.0.feed_forward.product";
        let most = |model: &Model, site: &str| {
            let powers = (0..40).map(|power| f64::from(power).exp2());
            powers.take_while(|&most| holds(model, site, most)).count()
        };
        let gated = tiny_ternary();
        let found = gated.each_ref().map(|model| {
            let rest = most(model, "layer.0.feed_forward.down");
            (most(model, product) > rest, model.public.config.sub_norms)
        });
        assert!(found.iter().all(|(more, norm)| more == norm), "{found:?}");
        assert!(found.iter().any(|(more, _)| *more), "{found:?}");
    }

    #[test]
    fn the_tiny_model_fits_and_an_absurd_one_does_not() {
        let model = tiny_model();
        let text = model.tokens("hello private world", TooLong::Refuse).unwrap();
        let mut calibration = calibrate(&model, &[text], "").unwrap();
        let width = model.public.config.width as f64;
        let all = fits(&calibration, &model);
        assert!(all.len() > calibration.sites.len());
        // The rows are short, which makes those of the embedding small.
        let small: Vec<&Fit> = all.iter().filter(|f| !f.fits()).collect();
        assert!(small.iter().all(|f| f.bound == Bound::Least && f.site == "embed.norm"), "{small:?}");
        for (site, ranges) in &mut calibration.sites {
            // The sum of a row is below 2^14.
            if let (Ranges::Norm { mean, .. }, "layer.0.attention.norm") = (&mut *ranges, &**site) {
                let most = 16384.0 / width;
                let mean = mean.as_mut().unwrap();
                assert!(mean.magnitude() < most);
                mean.min = -most;
            }
            if let (Ranges::Activation { input }, "layer.1.feed_forward.activation") = (ranges, site.as_str()) {
                *input = Range { min: -1000.0, max: 1.0 };
            }
        }
        let all = fits(&calibration, &model);
        let beyond: Vec<&str> =
            all.iter().filter(|f| f.bound == Bound::Most && !f.fits()).map(|f| f.site.as_str()).collect();
        assert_eq!(beyond, ["layer.0.attention.norm", "layer.1.feed_forward.activation"]);
    }
}
