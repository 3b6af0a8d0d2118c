//! The polynomials in place of functions, and what slots hold that hold no number of a value.
//!
//! A polynomial of degree 15 is enormous outside its interval, and a slot that wraps around its modulus takes all
//! others with it. So the slots from the end of a value to that of its period are given a number, too: the bias of a
//! map puts the middle of the interval there, and where that cannot be, the interval includes what is there.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::CkksError;
use hushed_ckks::poly::Polynomial;
use hushed_lower::network::{Network, PartOp};
use hushed_math::fit::minimax;
use hushed_model::graph::Function;

use super::choices::NetworkChoices;
use crate::choices::ChoicesError;
use crate::error::FheError;

/// How far an interval reaches beyond what samples showed, as a part of its width on either side.
pub const MARGIN: f64 = 0.25;
/// The degree of a function whose owner chose none.
pub const DEGREE: usize = 15;

/// A polynomial in place of a function.
#[derive(Clone)]
pub(super) struct Fitted {
    /// In t = (x − middle)/half.
    pub polynomial: Arc<Polynomial>,
    pub middle: f64,
    pub half: f64,
}

/// What is chosen for each part of a network.
pub(super) struct Fits {
    /// By part, where it is a function.
    pub functions: BTreeMap<usize, Fitted>,
    /// By part, where it is a square or a product: no factor is larger, nor the numbers beside it in the slots.
    pub factors: BTreeMap<usize, f64>,
    /// By part, the number in the slots after its value.
    pub beyond: Vec<f64>,
}

impl Fits {
    /// The fits for these intervals.
    ///
    /// # Errors
    /// [`FheError::Choices`] for a function without an interval or a product without a size; those of fits.
    pub fn new(network: &Network, choices: &NetworkChoices) -> Result<Fits, FheError> {
        let mut fits = Fits { functions: BTreeMap::new(), factors: BTreeMap::new(), beyond: Vec::new() };
        let interval = |name: &str| {
            let missing = || ChoicesError::Unusable { what: format!("no interval of {name}") };
            choices.intervals.get(name).copied().ok_or_else(missing)
        };
        let factor = |name: &str| {
            let missing = || ChoicesError::Unusable { what: format!("no size of the factors of {name}") };
            choices.factors.get(name).copied().ok_or_else(missing)
        };
        for (number, part) in network.parts().iter().enumerate() {
            if matches!(part.op, PartOp::Square | PartOp::Mul) {
                let beside = part.operands.iter().filter_map(|&from| fits.beyond.get(from));
                let most = beside.fold(factor(&part.name)?, |most, v| most.max(v.abs()));
                // Where all numbers are 0, any bound is as good.
                let bound = if most > 0.0 { (1.0 + 2.0 * MARGIN) * most } else { 1.0 };
                fits.factors.insert(number, bound);
            }
            let of = |fits: &Fits, k: usize| {
                part.operands.get(k).and_then(|&from| fits.beyond.get(from)).copied().unwrap_or(0.0)
            };
            let beyond = match &part.op {
                PartOp::Input(_) => 0.0,
                PartOp::Map { .. } => {
                    let mut readers = network.parts().iter();
                    let reader = readers
                        .find(|p| matches!(p.op, PartOp::Function { .. }) && p.operands.first() == Some(&number));
                    match reader.filter(|_| !network.outputs().contains(&number)) {
                        Some(reader) => interval(&reader.name)?.iter().sum::<f64>() / 2.0,
                        None => 0.0,
                    }
                }
                PartOp::Square => of(&fits, 0) * of(&fits, 0),
                PartOp::Add => of(&fits, 0) + of(&fits, 1),
                PartOp::Mul => of(&fits, 0) * of(&fits, 1),
                PartOp::Function { of: function, degree } => {
                    let (there, [low, high]) = (of(&fits, 0), interval(&part.name)?);
                    let (low, high) = (low.min(there), high.max(there));
                    let positive = matches!(function, Function::InverseRoot);
                    let (low, high) = match positive {
                        // Of positive numbers alone, so the interval grows by a factor.
                        true => (low / (1.0 + 2.0 * MARGIN), high * (1.0 + 2.0 * MARGIN)),
                        // Where all numbers are the same, an interval of width 1 around them.
                        false => {
                            let (middle, width) = ((low + high) / 2.0, (high - low).max(0.5));
                            (middle - width * (0.5 + MARGIN), middle + width * (0.5 + MARGIN))
                        }
                    };
                    let (middle, half) = ((low + high) / 2.0, (high - low) / 2.0);
                    let at = |t: f64| function.at(middle + half * t);
                    // What 1/√v multiplies is as large as √v, so its relative error counts.
                    let weight = |t: f64| if positive { 1.0 / at(t) } else { 1.0 };
                    let fit = minimax(at, weight, degree.unwrap_or(DEGREE), -1.0, 1.0);
                    let polynomial = Arc::new(Polynomial::from_fit(&fit.map_err(CkksError::from)?)?);
                    let beyond = polynomial.eval((there - middle) / half);
                    fits.functions.insert(number, Fitted { polynomial, middle, half });
                    beyond
                }
            };
            fits.beyond.push(beyond);
        }
        Ok(fits)
    }
}
