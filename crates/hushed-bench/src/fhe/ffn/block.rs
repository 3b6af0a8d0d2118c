//! The block in the clear: its random weights and its forms.

use hushed_ckks::poly::{PolyError, Polynomial};
use hushed_fhe::{Interval, LinearMap, fits};
use hushed_model::Activation;
use hushed_model::plain::activation;

use super::super::bed::Normal;
use crate::BenchError;

/// The activation of GPT-2.
const GELU: Activation = Activation::GeluTanh;
/// Half the interval of a polynomial for all arguments.
const REACH: f64 = 12.0;
/// Half the interval of a column, as a plan assumes before calibration.
const COLUMN: f64 = 8.0;
/// Standard deviations of what the first map adds up, without biases, and of biases.
const ARGUMENTS: f64 = 1.5;
const BIASES: f64 = 0.5;

/// y = down(f(up(x))).
pub(super) struct Block {
    up: LinearMap,
    down: LinearMap,
}

/// What is computed of the block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Form {
    /// GELU as a polynomial of this degree.
    Gelu { degree: usize },
    /// Both maps with nothing between them.
    Linear,
    /// Both maps multiplied together.
    Merged,
}

impl Form {
    pub(super) fn name(self) -> &'static str {
        match self {
            Form::Gelu { .. } => "gelu",
            Form::Linear => "no activation",
            Form::Merged => "merged",
        }
    }

    pub(super) fn degree(self) -> Option<usize> {
        match self {
            Form::Gelu { degree } => Some(degree),
            Form::Linear | Form::Merged => None,
        }
    }
}

/// GELU as a polynomial in arguments divided by `half`.
pub(super) struct Gelu {
    pub(super) polynomial: Polynomial,
    pub(super) half: f64,
    /// Arguments lie within ± this: half the declared interval. A column's polynomial reaches further.
    pub(super) reach: f64,
    /// Its largest error there.
    pub(super) error: f64,
}

impl Gelu {
    /// A degree that Hushed fits (at most 64) is fitted as in a run, for a column without calibration. For other
    /// degrees GELU is interpolated at Chebyshev nodes.
    pub(super) fn new(degree: usize) -> Result<Self, BenchError> {
        let column = Interval { low: -COLUMN, high: COLUMN };
        let (polynomial, half, reach) = match degree {
            0..=64 => {
                let fit = fits::activation(GELU, column, degree);
                (fit, fits::domain(column).half(), COLUMN)
            }
            _ => (interpolated(degree, REACH), REACH, REACH),
        };
        let polynomial = polynomial.map_err(hushed_ckks::CkksError::from)?;
        let error = (0..=8192).map(|i| reach * (f64::from(i) / 4096.0 - 1.0));
        let error = error.map(|x| (polynomial.eval(x / half) - activation(GELU, x)).abs());
        Ok(Self { reach, error: error.fold(0.0, f64::max), polynomial, half })
    }

    fn apply(&self, x: f64) -> f64 {
        self.polynomial.eval(x / self.half)
    }
}

/// GELU of `half`·t as a sum of Chebyshev polynomials of t.
fn interpolated(degree: usize, half: f64) -> Result<Polynomial, PolyError> {
    let count = degree + 1;
    let angle = |i: usize| std::f64::consts::PI * (i as f64 + 0.5) / count as f64;
    let values: Vec<f64> = (0..count).map(|i| activation(GELU, half * angle(i).cos())).collect();
    let coefficient = |k: usize| {
        let terms = values.iter().enumerate();
        let sum: f64 = terms.map(|(i, v)| v * (k as f64 * angle(i)).cos()).sum();
        sum * if k == 0 { 1.0 } else { 2.0 } / count as f64
    };
    Polynomial::chebyshev((0..count).map(coefficient).collect(), -1.0, 1.0)
}

impl Block {
    /// Weights for inputs of mean 0 and variance 1, as after a norm: arguments of GELU have a standard deviation of
    /// 1.6, and results about the same.
    pub(super) fn random(width: usize, hidden: usize, random: &mut Normal) -> Self {
        let mut layer = |rows: usize, columns: usize, deviation: f64| {
            let deviation = deviation / (columns as f64).sqrt();
            let mut numbers =
                |count: usize, deviation: f64| -> Vec<f64> { (0..count).map(|_| deviation * random.next()).collect() };
            LinearMap {
                rows,
                columns,
                weights: numbers(rows * columns, deviation),
                bound: f64::INFINITY,
                bias: Some(numbers(rows, BIASES)),
            }
        };
        Self { up: layer(hidden, width, ARGUMENTS), down: layer(width, hidden, 1.0) }
    }

    /// The maps of a form. Before an activation the argument is divided by `half`.
    pub(super) fn maps(&self, form: Form, half: f64) -> Vec<LinearMap> {
        match form {
            Form::Merged => vec![after(&self.down, &self.up)],
            Form::Gelu { .. } | Form::Linear => {
                vec![self.up.clone().times(1.0 / half), self.down.clone()]
            }
        }
    }

    /// The answer with the function `f` between the maps, and the largest magnitude of its arguments.
    pub(super) fn answer(&self, x: &[f64], f: impl Fn(f64) -> f64) -> (Vec<f64>, f64) {
        let hidden = times(&self.up, x);
        let largest = hidden.iter().fold(0.0_f64, |most, h| most.max(h.abs()));
        let hidden: Vec<f64> = hidden.into_iter().map(f).collect();
        (times(&self.down, &hidden), largest)
    }

    /// The answer of a form, exact and with the polynomial in place of GELU, and the largest argument.
    pub(super) fn answers(&self, gelu: Option<&Gelu>, x: &[f64]) -> (Vec<f64>, Vec<f64>, f64) {
        match gelu {
            Some(gelu) => {
                let (exact, largest) = self.answer(x, |h| activation(GELU, h));
                (exact, self.answer(x, |h| gelu.apply(h)).0, largest)
            }
            None => {
                let (exact, largest) = self.answer(x, |h| h);
                (exact.clone(), exact, largest)
            }
        }
    }
}

/// W·x + b.
fn times(layer: &LinearMap, x: &[f64]) -> Vec<f64> {
    let rows = layer.weights.chunks_exact(layer.columns);
    let products = rows.map(|row| row.iter().zip(x).map(|(w, x)| w * x).sum::<f64>());
    let biases = layer.bias.iter().flatten();
    products.zip(biases).map(|(y, b)| y + b).collect()
}

/// x ↦ second(first(x)).
fn after(second: &LinearMap, first: &LinearMap) -> LinearMap {
    let mut weights = vec![0.0; second.rows * first.columns];
    let rows = second.weights.chunks_exact(second.columns);
    for (sum, row) in weights.chunks_exact_mut(first.columns).zip(rows) {
        for (w, from) in row.iter().zip(first.weights.chunks_exact(first.columns)) {
            sum.iter_mut().zip(from).for_each(|(s, x)| *s += w * x);
        }
    }
    LinearMap {
        rows: second.rows,
        columns: first.columns,
        weights,
        bound: f64::INFINITY,
        bias: Some(times(second, first.bias.as_deref().unwrap_or_default())),
    }
}
