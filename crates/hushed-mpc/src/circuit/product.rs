//! The products of a run: linear layers that read one matrix, side by side, with all that stands around them multiplied
//! in.

use hushed_model::{Attention, FeedForward, Linear, ModelError, Norm, StepId};
use hushed_twopc::TwopcError;
use hushed_twopc::he::PreparedWeights;

use crate::RunError;
use crate::circuit::function::Function;
use crate::formats::{LINEAR, WEIGHT_BITS, WEIGHT_FRAC};
use crate::weights::ranges;
use hushed_lower::{LinearMap, affine};

/// A product that the circuit asks for: which layers, not yet their numbers.
#[derive(Clone)]
pub struct Product {
    /// Gain and offset that the operand still has to get.
    norm: Option<Norm>,
    parts: Vec<Part>,
    /// Columns of the operand.
    pub inputs: usize,
    /// Columns of the result.
    pub outputs: usize,
}

/// One layer of a product.
#[derive(Clone)]
enum Part {
    /// The layer with factors of its weights and of its bias.
    Layer {
        linear: Linear,
        weights: f64,
        bias: f64,
    },
    /// The operand itself, with its gain and offset: what a residual sum reads.
    Operand,
}

/// A product ready to be run: columns of operand and result, and at who has the numbers the weights and the bias in
/// [`LINEAR`].
pub struct Layer {
    pub(crate) shape: (usize, usize),
    pub(crate) numbers: Option<(PreparedWeights, Vec<i64>)>,
}

/// The integers of a product.
pub struct Integers {
    /// `outputs` × `inputs` with [`WEIGHT_FRAC`] fraction bits, row by row.
    pub weights: Vec<i32>,
    /// `outputs`, in [`LINEAR`].
    pub bias: Vec<i64>,
}

/// Rows of a layer that are folded and rounded together: those of published models stay in a processor's cache.
const ROWS: usize = 8;

/// Adds a bias to every row of `words`.
pub(crate) fn add_bias(words: &mut [u64], bias: &[i64]) {
    for row in words.chunks_exact_mut(bias.len().max(1)) {
        for (w, &b) in row.iter_mut().zip(bias) {
            *w = w.wrapping_add(b as u64);
        }
    }
}

impl Product {
    fn new(norm: Option<&Norm>, width: usize, parts: Vec<Part>) -> Product {
        let outputs = parts.iter().map(|part| match part {
            Part::Layer { linear, .. } => linear.outputs,
            Part::Operand => width,
        });
        Product {
            norm: norm.cloned(),
            inputs: width,
            outputs: outputs.sum(),
            parts,
        }
    }

    /// Query (with the factor of the scores, in units of log 2), key and value; and the operand for the residual sum.
    pub fn attention_input(norm: Option<&Norm>, a: &Attention, residual: bool) -> Self {
        let mut parts = vec![
            scaled(&a.query, a.heads.scale * std::f64::consts::LOG2_E),
            scaled(&a.key, 1.0),
            scaled(&a.value, 1.0),
        ];
        parts.extend(residual.then_some(Part::Operand));
        Product::new(norm, a.query.inputs, parts)
    }

    /// Key and value alone, where [`Product::query`] reads fewer rows.
    pub fn keys_and_values(norm: Option<&Norm>, a: &Attention) -> Self {
        let parts = vec![scaled(&a.key, 1.0), scaled(&a.value, 1.0)];
        Product::new(norm, a.key.inputs, parts)
    }

    /// Query alone, with the factor of the scores.
    pub fn query(norm: Option<&Norm>, a: &Attention) -> Self {
        let factor = a.heads.scale * std::f64::consts::LOG2_E;
        Product::new(norm, a.query.inputs, vec![scaled(&a.query, factor)])
    }

    /// The wide layer of a feed-forward block, scaled as its activation wants its argument, or the gate so and then the
    /// layer; and the operand for the
    /// residual sum.
    pub fn up(norm: Option<&Norm>, f: &FeedForward, residual: bool) -> Self {
        let scale = Function::of(f).scale();
        let mut parts = match &f.gate {
            Some(gate) => vec![scaled(gate, scale), scaled(&f.up, 1.0)],
            None => vec![scaled(&f.up, scale)],
        };
        parts.extend(residual.then_some(Part::Operand));
        Product::new(norm, f.up.inputs, parts)
    }

    /// The layer back, which undoes the activation's scale.
    pub fn down(f: &FeedForward) -> Self {
        let part = Part::Layer {
            linear: f.down.clone(),
            weights: 1.0 / Function::of(f).scale(),
            bias: 1.0,
        };
        Product::new(None, f.down.inputs, vec![part])
    }

    /// A layer as it is.
    pub fn alone(linear: &Linear) -> Self {
        Product::reading(None, linear)
    }

    /// A layer whose operand still has to get a norm's gain and offset.
    pub fn reading(norm: Option<&Norm>, linear: &Linear) -> Self {
        Product::new(norm, linear.inputs, vec![scaled(linear, 1.0)])
    }

    /// A norm's gain and offset.
    pub fn affine(norm: &Norm) -> Self {
        Product::new(Some(norm), norm.width, vec![Part::Operand])
    }

    /// The integers. Of a layer in f64 there are only a few rows at a time.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] where there are no numbers; [`ModelError::Folder`] for stored ones that cannot be
    /// read.
    pub fn integers(&self, id: StepId) -> Result<Integers, ModelError> {
        let norm = self.norm.as_ref();
        let norm = norm.map(|norm| affine(id, norm)).transpose()?;
        let unit = f64::from(1u32 << WEIGHT_FRAC);
        let mut all = Integers {
            weights: Vec::new(),
            bias: Vec::with_capacity(self.outputs),
        };
        let mut add = |map: LinearMap, weights: f64, bias: f64| {
            let map = match &norm {
                Some((gain, offset)) => map.reading(gain, offset),
                None => map,
            };
            let map = map.scaled(weights, bias);
            if all.weights.is_empty() {
                all.weights.reserve_exact(self.outputs * self.inputs);
            }
            let integers = map.weights.iter().map(|w| (w * unit).round() as i32);
            all.weights.extend(integers);
            let bias = map.bias.into_iter().flatten();
            all.bias.extend(bias.map(|b| LINEAR.signed(b)));
        };
        for part in &self.parts {
            match part {
                Part::Layer {
                    linear,
                    weights,
                    bias,
                } => {
                    let numbers = linear.numbers(id)?;
                    for first in (0..linear.outputs).step_by(ROWS) {
                        let rows = first..(first + ROWS).min(linear.outputs);
                        let map = LinearMap::of_rows(id, linear, &numbers, rows)?;
                        add(map, *weights, *bias);
                    }
                }
                Part::Operand => add(LinearMap::identity(self.inputs), 1.0, 1.0),
            }
        }
        Ok(all)
    }

    /// The product as a party runs it.
    ///
    /// # Errors
    /// [`RunError::OutOfRange`] for numbers that the formats do not hold.
    pub(crate) fn layer(&self, id: StepId) -> Result<Layer, RunError> {
        let shape = (self.inputs, self.outputs);
        let Integers { weights, bias } = match self.integers(id) {
            Err(ModelError::ShapesOnly { .. }) => {
                return Ok(Layer {
                    shape,
                    numbers: None,
                });
            }
            integers => integers?,
        };
        if let Some(beyond) = ranges::layer(id, &weights, &bias).pop() {
            return Err(beyond.into());
        }
        let weights = PreparedWeights::transposed(self.inputs, self.outputs, WEIGHT_BITS, weights);
        Ok(Layer {
            shape,
            numbers: Some((weights.map_err(TwopcError::from)?, bias)),
        })
    }
}

fn scaled(linear: &Linear, scale: f64) -> Part {
    Part::Layer {
        linear: linear.clone(),
        weights: scale,
        bias: scale,
    }
}
