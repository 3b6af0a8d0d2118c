//! The head of a classifier: the largest arguments of its tanh, and the degree they need.

use hushed_model::{Matrix, PlainActs, Program, Rows, StepId, here, plain};

use crate::ops::head;
use crate::{ClassifierChoice, FheError};

/// Margin as a factor of the largest measured argument; tanh is flat there, so a wide margin costs little.
const MARGIN: f64 = 1.5;
/// An error of tanh that does not show in any logit.
const ENOUGH: f64 = 2.0e-5;
/// Degrees, tried in turn. Depth is cheap for few vectors: the last is used if none suffices.
const DEGREES: [usize; 4] = [7, 15, 31, 63];

/// The arguments of a classifier's tanh over texts.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct HeadArguments {
    largest: f64,
}

impl HeadArguments {
    pub fn see(&mut self, arguments: &[f64]) {
        self.largest = arguments.iter().fold(self.largest, |m, v| m.max(v.abs()));
    }
}

/// The choice for a model, if it is a classifier.
pub(super) fn choice(program: &Program, seen: &HeadArguments) -> Result<Option<ClassifierChoice>, FheError> {
    let Some(classifier) = program.classifier() else {
        return Ok(None);
    };
    let mut seen = *seen;
    // Places without a text hold an empty row: only the offset of the last norm.
    seen.see(&empty(program)?);
    let reach = MARGIN * seen.largest + 0.25;
    let mut choice = ClassifierChoice { degree: 0, reach: (reach * 4.0).ceil() / 4.0 };
    for degree in DEGREES {
        choice.degree = degree;
        let tanh = head::HeadActivation::new(classifier.activation, &choice)?;
        let at = |i: u32| f64::from(i) / 1024.0;
        let error = |t: f64| (tanh.eval(t) - (t * choice.reach).tanh()).abs();
        if (0..=1024).map(at).map(error).fold(0.0, f64::max) < ENOUGH {
            break;
        }
    }
    Ok(Some(choice))
}

/// The arguments of an empty row: only the last norm's offset.
fn empty(program: &Program) -> Result<Vec<f64>, FheError> {
    let at = StepId::outside("head").part("dense");
    let (Some(classifier), Some((_, norm))) = (program.classifier(), program.norms().last()) else {
        return Ok(Vec::new());
    };
    let offset = here(at, &norm.offset)?;
    let mut values = Matrix::zero(1, offset.len());
    let numbers = values.row_mut(0).iter_mut().zip(offset.iter());
    numbers.for_each(|(v, &o)| *v = f64::from(o));
    let rows = Rows::unpadded(&[1]);
    let arguments = plain::linear(at, &PlainActs { rows, values }, &classifier.dense)?;
    Ok(arguments.values.data().to_vec())
}
