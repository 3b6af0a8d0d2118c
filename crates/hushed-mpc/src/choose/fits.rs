//! Lists, for each measured step, the function of the two-party run that computes it and how close the measured values
//! come to its bounds.

use std::collections::HashMap;

use hushed_model::{Activation, Calibration, Model, Norm, Ranges};
use hushed_twopc::func::norm::most_mean;
use hushed_twopc::func::sigmoid;
use hushed_twopc::func::softmax::SCORES;
use serde::Serialize;

use crate::bias::MAX_BIAS;
use crate::circuit::function::Function;
use crate::circuit::reach_of;
use crate::formats::{LINEAR, LOGIT, MASKED, SUM_BITS, WEIGHED};
use crate::sample::MAX_NOISE;

/// One bound of one step.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Fit {
    /// The step.
    pub site: String,
    /// The function that computes it.
    pub function: &'static str,
    /// The bounded quantity.
    pub what: &'static str,
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
}

/// What is bounded in the rows of a LayerNorm besides their variances.
pub(super) const ROW_MEANS: &str = "row means";

/// The bound for an attention head's values: sums of them over 256 keys fit the product's ring.
const HEAD_VALUES: f64 = 16.0;

/// Returns the bounds of every measured step of a model.
pub fn fits(calibration: &Calibration, model: &Model) -> Vec<Fit> {
    let (config, program) = (&model.public.config, model.program());
    let activation = Function::new(config.activation, config.tolerance);
    let norms = program.norms().map(|(id, norm)| (id.to_string(), norm));
    let norms: HashMap<String, &Norm> = norms.collect();
    let mut all = Vec::new();
    for (site, ranges) in &calibration.sites {
        let mut push = |function, what, measured, holds, bound| {
            all.push(Fit {
                site: site.clone(),
                function,
                what,
                measured,
                holds,
                bound,
            });
        };
        let mut add =
            |function, what, measured, holds| push(function, what, measured, holds, Bound::Most);
        match ranges {
            Ranges::Values { output } => {
                let value = site.ends_with(".value");
                // Two spare bits: one for the sign, one for the rounding protocols.
                let ring = f64::from(LINEAR.ring.bits() - LINEAR.frac - 2).exp2() / 2.0;
                // The difference of two logits is in the ring too.
                let logit = f64::from(LOGIT.ring.bits() - LOGIT.frac - 2).exp2();
                let holds = match () {
                    () if value => HEAD_VALUES,
                    () if site == "head" => logit - MAX_NOISE - MAX_BIAS,
                    // A norm that reads it has more room.
                    () if site.ends_with(".product") && config.sub_norms => activation.most_gated(),
                    () if site.ends_with(".product") => activation.most_gated().min(ring),
                    () => ring,
                };
                add("linear", "results", output.magnitude(), holds);
            }
            Ranges::Activation { input } => {
                let (name, holds) = (activation.name(), activation.range());
                // Arguments at or below 0 are not squared; the preceding results bound them.
                let measured = match config.activation {
                    Activation::Relu2 => input.max.max(0.0),
                    _ => input.magnitude(),
                };
                add(name, "arguments", measured, holds);
            }
            Ranges::Sigmoid { input } => {
                let measured = input.magnitude();
                add(
                    "sigmoid",
                    "scores with their bias",
                    measured,
                    sigmoid::RANGE,
                );
            }
            Ranges::Softmax {
                shifted,
                denominator,
            } => {
                let difference = f64::from(SCORES.ring.bits() - 1 - SCORES.frac).exp2();
                // Padding, which any text may have, lies below all scores by MASKED, and must lie at least 16 below.
                let nats = (difference + MASKED - 16.0) / std::f64::consts::LOG2_E;
                let function = "softmax by 2^-y";
                add(
                    function,
                    "scores below a maximum",
                    shifted.magnitude(),
                    nats,
                );
                let sum = f64::from(SUM_BITS - WEIGHED.frac).exp2();
                add(function, "sums of a row", denominator.magnitude(), sum);
            }
            Ranges::Norm {
                first_variance,
                variance,
                mean,
                ..
            } => {
                let measured = first_variance.magnitude().max(variance.magnitude());
                let Some(norm) = norms.get(site) else {
                    continue;
                };
                let (reach, function) = (reach_of(norm), "norm by 1/√v");
                let holds = f64::from(reach.squares).exp2() / norm.width as f64;
                add(function, "variances", measured, holds);
                if let Some(mean) = mean {
                    let holds = most_mean(LINEAR, norm.width);
                    add(function, ROW_MEANS, mean.magnitude(), holds);
                }
                let measured = first_variance.min.min(variance.min) + norm.epsilon;
                let holds = reach.least_mean_square(norm.width);
                push(function, "variances with ε", measured, holds, Bound::Least);
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::tiny_model;
    use hushed_model::{Calibration, Range, Ranges, TooLong, calibrate};

    use super::{Bound, Fit, fits};

    #[test]
    fn logits_leave_room_for_noise_and_biases() {
        let model = &tiny_model();
        let of = |most: f64| {
            let output = Range {
                min: -most,
                max: 1.0,
            };
            let head = ("head".to_owned(), Ranges::Values { output });
            let calibration = Calibration {
                version: 0,
                sample_sha256: String::new(),
                texts: 1,
                tokens: 1,
                sites: [head].into(),
            };
            fits(&calibration, model).iter().all(super::Fit::fits)
        };
        // 2^10 − 256 − 73.6.
        assert!(of(694.0) && !of(695.0));
    }

    #[test]
    fn the_tiny_model_fits_and_an_absurd_one_does_not() {
        let model = tiny_model();
        let text = model
            .tokens("hello private world", TooLong::Refuse)
            .unwrap();
        let mut calibration = calibrate(&model, &[text], "").unwrap();
        let width = model.public.config.width as f64;
        let all = fits(&calibration, &model);
        assert!(all.len() > calibration.sites.len());
        // The rows are short, which makes those of the embedding small.
        let small: Vec<&Fit> = all.iter().filter(|f| !f.fits()).collect();
        assert!(
            small
                .iter()
                .all(|f| f.bound == Bound::Least && f.site == "embed.norm"),
            "{small:?}"
        );
        for (site, ranges) in &mut calibration.sites {
            // The sum of a row is below 2^14.
            if let (Ranges::Norm { mean, .. }, "layer.0.attention.norm") = (&mut *ranges, &**site) {
                let most = 16384.0 / width;
                let mean = mean.as_mut().unwrap();
                assert!(mean.magnitude() < most);
                mean.min = -most;
            }
            if let (Ranges::Activation { input }, "layer.1.feed_forward.activation") =
                (ranges, site.as_str())
            {
                *input = Range {
                    min: -1000.0,
                    max: 1.0,
                };
            }
        }
        let all = fits(&calibration, &model);
        let beyond: Vec<&str> = all
            .iter()
            .filter(|f| f.bound == Bound::Most && !f.fits())
            .map(|f| f.site.as_str())
            .collect();
        assert_eq!(
            beyond,
            ["layer.0.attention.norm", "layer.1.feed_forward.activation"]
        );
    }
}
