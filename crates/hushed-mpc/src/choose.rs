//! Chooses the approximation of a model's activation: the cheapest that its measured values and its answers allow.
//!
//! The domain is the narrowest that holds [`MARGIN`] times the largest measured argument: an argument beyond it would
//! wrap around and spoil its text. The number of segments is the smallest with which the answers over the sample,
//! computed in the clear with all functions and formats of a run ([`Clear`]), keep a cosine of [`LEAST_COSINE`]. The
//! model declares the domain's end and the curve's error, never a measured number.
//!
//! Nothing else of a run is chosen per model: the exponential's cost does not depend on the spread of the scores (its
//! table has the 16 halvings above its precision), the rings of scores and sums hold any text, and a
//! product's bytes are those of its ciphertexts, whose primes are fixed.

pub(crate) mod fits;
pub(crate) mod norms;
pub(crate) mod sampled;
pub(crate) mod vocabulary;

use hushed_model::{Calibration, Item, Model, Ranges, Tolerance, cosine};
use hushed_twopc::Link;
use serde::Serialize;

use std::sync::Arc;

use super::circuit::cache::Cache;
use super::circuit::prefix::{Prefix, without_head};
use super::circuit::{run, run_next};
use super::shares::Clear;
use super::{Input, RunError, Terms};
use crate::circuit::function::Function;

/// How much wider the domain is than the measured values.
pub const MARGIN: f64 = 2.0;
/// The lowest cosine that an answer over the sample may have.
pub const LEAST_COSINE: f64 = 0.9999;

/// One approximation that was tried.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Trial {
    /// Its name.
    pub function: &'static str,
    /// The largest argument it holds.
    pub reach: f64,
    /// Its greatest error.
    pub error: f64,
    /// Bytes that a run sends per element, both ways, without generating the correlated OTs.
    pub bytes: f64,
    /// Over the sample's texts, the lowest cosine between an answer in the clear and the answer with a run's functions
    /// and formats.
    pub least_cosine: f64,
}

impl Trial {
    /// The tolerance to declare for a model that runs with this approximation.
    pub fn tolerance(&self) -> Tolerance {
        Tolerance { reach: self.reach, error: self.error }
    }

    /// Whether the answers are close enough to the clear ones.
    pub fn keeps(&self) -> bool {
        self.least_cosine >= LEAST_COSINE
    }
}

/// Tries approximations of the model's activation, cheapest first, and returns them. The last one is the choice: the
/// first that keeps the answers, or else the most accurate.
///
/// # Errors
/// [`RunError`] if the model has shapes only or a text does not fit it.
pub fn choose<T: Clone + Into<Item>>(
    model: &Model,
    items: &[T],
    head: &[u32],
    calibration: &Calibration,
) -> Result<Vec<Trial>, RunError> {
    let clear = model.embed(items.to_vec())?;
    let reach = MARGIN * largest_argument(calibration);
    let mut trials: Vec<Trial> = Vec::new();
    // From the coarsest to the finest.
    for error in [f64::INFINITY, 0.0] {
        let function = Function::new(model.public.config.activation, Some(Tolerance { reach, error }));
        let mut trial = Trial {
            function: function.name(),
            reach: function.range(),
            error: function.error(),
            bytes: bytes(&function),
            least_cosine: 0.0,
        };
        if trials.last().is_some_and(|last| last.function == trial.function) {
            break;
        }
        let declared = model.clone().declaring(trial.tolerance());
        trial.least_cosine = least_cosine(&declared, items, head, &clear)?;
        let enough = trial.keeps();
        trials.push(trial);
        if enough {
            break;
        }
    }
    Ok(trials)
}

fn largest_argument(calibration: &Calibration) -> f64 {
    let arguments = calibration.sites.values().filter_map(|ranges| match ranges {
        Ranges::Activation { input } => Some(input.magnitude()),
        _ => None,
    });
    arguments.fold(0.0, f64::max)
}

fn bytes(function: &Function) -> f64 {
    const ELEMENTS: usize = 1 << 16;
    let cost = function.cost(&Link::LAN, ELEMENTS);
    (cost.bytes_client + cost.bytes_server) as f64 / ELEMENTS as f64
}

fn least_cosine<T: Clone + Into<Item>>(
    model: &Model,
    items: &[T],
    head: &[u32],
    clear: &[Vec<f64>],
) -> Result<f64, RunError> {
    let (program, mut on) = (model.program(), Clear::default());
    let prefix = Prefix::of_head(&program, head)?;
    let mut least = 1.0f64;
    for (item, clear) in items.iter().zip(clear) {
        let (public, item) = without_head(head, item.clone().into());
        let input = Input::of(vec![item], Terms::default());
        let prefix = prefix.first(public);
        let pooled = match public {
            0 => run(&mut on, &program, &input, |_, _| ())?,
            _ => run_next(&mut on, &program, &mut Cache::after(Arc::new(prefix)), &input, |_, _| ())?,
        };
        let answer = model.public.finish(pooled.values());
        least = least.min(cosine(&answer, clear));
    }
    Ok(least)
}

#[cfg(test)]
mod tests {
    use hushed_model::testing::tiny_model;
    use hushed_model::{Activation, Range, Ranges, TooLong, calibrate};

    use super::*;

    #[test]
    fn the_narrowest_domain_and_the_fewest_segments_that_do() {
        let mut model = tiny_model();
        let texts = ["hello private world", "a"].map(|t| model.tokens(t, TooLong::Refuse).unwrap());
        let mut calibration = calibrate(&model, &texts, "").unwrap();
        let trials = choose(&model, &texts, &[], &calibration).unwrap();
        let chosen = trials.last().unwrap();
        assert!(chosen.keeps() && chosen.reach >= MARGIN * largest_argument(&calibration));
        assert_eq!((trials.len(), chosen.function), (1, "gelu8"));
        // The declaration leads to the function that was tried.
        let again = Function::new(Activation::Gelu, Some(chosen.tolerance()));
        assert_eq!((again.name(), again.range()), (chosen.function, chosen.reach));

        // Wider arguments cost more.
        for ranges in calibration.sites.values_mut() {
            if let Ranges::Activation { input } = ranges {
                *input = Range { min: -50.0, max: 3.0 };
            }
        }
        let wide = choose(&model, &texts, &[], &calibration).unwrap();
        assert!(wide[0].bytes > chosen.bytes && wide[0].reach > 100.0);

        // There is only one curve: nothing to refine.
        model.public.config.activation = Activation::Tanh;
        for layer in &mut model.encoder_mut().unwrap().layers {
            layer.feed_forward.feed_forward_mut().unwrap().activation = Activation::Tanh;
        }
        assert_eq!(choose(&model, &texts, &[], &calibration).unwrap().len(), 1);
    }
}
