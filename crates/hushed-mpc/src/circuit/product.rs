//! The products of a run: linear layers that read the same matrix, side by side, with adjacent factors folded in.

use hushed_math::round_scaled;
use hushed_model::{Attention, FeedForward, Linear, ModelError, Norm, NormKind, StepId, here, same};
use hushed_twopc::TwopcError;
use hushed_twopc::he::{LinearShape, OltShape, PreparedWeights};

use crate::RunError;
use crate::circuit::function::Function;
use crate::circuit::scores::Scores;
use crate::formats::{LINEAR, WEIGHT_BITS, WEIGHT_FRAC};
use crate::weights::ranges;
use hushed_lower::{affine, biases};

/// A product that the circuit asks for: its layers, but not yet their numbers.
#[derive(Clone)]
pub struct Product {
    /// Gain and offset still to be applied to the operand.
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
    /// The layer, with factors for its weights and its bias.
    Layer { linear: Linear, weights: f64, bias: f64 },
    /// The operand itself with its gain and offset, times a factor: what a residual sum reads.
    Operand(f64),
}

/// A product ready to run: weights, and bias in [`LINEAR`], at the party that has the numbers.
pub struct Layer {
    pub(crate) numbers: Option<(PreparedWeights, Vec<i64>)>,
}

impl Layer {
    /// The numbers, for the party that has them.
    pub(crate) fn weights(&self, id: StepId) -> Result<&(PreparedWeights, Vec<i64>), RunError> {
        Ok(here(id, &self.numbers)?)
    }
}

/// A product as integers.
pub struct Integers {
    /// `outputs` × `inputs` with [`WEIGHT_FRAC`] fraction bits, row by row.
    pub weights: Vec<i32>,
    /// `outputs`, in [`LINEAR`].
    pub bias: Vec<i64>,
    /// The largest absolute weight.
    pub largest: u32,
}

/// The integers so far, and the gain and offset to fold into every row.
struct Rows {
    gain: Vec<f64>,
    offset: Option<Vec<f64>>,
    /// The index of the next weight.
    at: usize,
    /// Memory no longer in use, to be overwritten.
    room: Option<PreparedWeights>,
    all: Integers,
}

impl Rows {
    /// Allocates all rows, once it is known that there are numbers.
    fn make_room(&mut self, outputs: usize) {
        if self.all.weights.is_empty() {
            let count = outputs * self.gain.len();
            self.all.weights = match self.room.take() {
                Some(room) => room.into_room(count),
                None => vec![0; count],
            };
        }
    }

    /// Adds a row of a layer and its bias, each with a factor.
    fn add(&mut self, row: &[f32], mut b: f64, weights: f64, bias: f64) {
        if let Some(offset) = &self.offset {
            let products = row.iter().zip(offset);
            b += products.map(|(&w, o)| f64::from(w) * o).sum::<f64>();
        }
        self.all.bias.push(LINEAR.signed(b * bias));
        let unit = f64::from(1u32 << WEIGHT_FRAC);
        let out = &mut self.all.weights[self.at..][..row.len()];
        let largest = round_scaled(row, &self.gain, weights * unit, out);
        self.all.largest = self.all.largest.max(largest);
        self.at += row.len();
    }
}

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
            Part::Operand(_) => width,
        });
        Product { norm: norm.cloned(), inputs: width, outputs: outputs.sum(), parts }
    }

    /// The same parts, then the operand, if a residual sum reads it.
    fn before_sum(norm: Option<&Norm>, width: usize, mut parts: Vec<Part>, residual: bool) -> Product {
        parts.extend(residual.then_some(Part::Operand(1.0)));
        Product::new(norm, width, parts)
    }

    /// Query (with the factor of the scores, unless a norm reads it), key and value, and the operand for the residual
    /// sum.
    pub fn attention_input(norm: Option<&Norm>, a: &Attention, residual: bool) -> Self {
        let parts = vec![query(a), scaled(&a.key, 1.0), scaled(&a.value, 1.0)];
        Product::before_sum(norm, a.query.inputs, parts, residual)
    }

    /// Only key and value, where [`Product::query`] reads fewer rows.
    pub fn keys_and_values(norm: Option<&Norm>, a: &Attention) -> Self {
        let parts = vec![scaled(&a.key, 1.0), scaled(&a.value, 1.0)];
        Product::new(norm, a.key.inputs, parts)
    }

    /// Only the query, and the operand for the residual sum, as in [`Product::attention_input`].
    pub fn query(norm: Option<&Norm>, a: &Attention, residual: bool) -> Self {
        Product::before_sum(norm, a.query.inputs, vec![query(a)], residual)
    }

    /// The wide layer of a feed-forward block, scaled for its activation; with a gate, the gate is scaled and the layer
    /// follows. Then the operand for the residual sum.
    pub fn up(norm: Option<&Norm>, f: &FeedForward, residual: bool) -> Self {
        let scale = Function::of(f).scale();
        let parts = match &f.gate {
            Some(gate) => vec![scaled(gate, scale), scaled(&f.up, 1.0)],
            None => vec![scaled(&f.up, scale)],
        };
        Product::before_sum(norm, f.up.inputs, parts, residual)
    }

    /// The single layer of a feed-forward block whose activation was pruned, and the operand for the residual sum.
    pub fn merged(norm: Option<&Norm>, w: &Linear, residual: bool) -> Self {
        Product::before_sum(norm, w.inputs, vec![scaled(w, 1.0)], residual)
    }

    /// The layer back to the model's width, which undoes the activation's scale unless a norm before it has done so.
    pub fn down(f: &FeedForward) -> Self {
        let scale = match f.sub_norm {
            Some(_) => 1.0,
            None => Function::of(f).scale(),
        };
        let part = Part::Layer { linear: f.down.clone(), weights: 1.0 / scale, bias: 1.0 };
        Product::new(f.sub_norm.as_ref(), f.down.inputs, vec![part])
    }

    /// A layer as it is.
    pub fn alone(linear: &Linear) -> Self {
        Product::reading(None, linear)
    }

    /// A layer whose operand still lacks a norm's gain and offset.
    pub fn reading(norm: Option<&Norm>, linear: &Linear) -> Self {
        Product::new(norm, linear.inputs, vec![scaled(linear, 1.0)])
    }

    /// A norm's gain and offset, times a factor.
    pub fn affine(norm: &Norm, factor: f64) -> Self {
        Product::new(Some(norm), norm.width, vec![Part::Operand(factor)])
    }

    /// The shape of the linear step for this many rows.
    pub(crate) fn shape(&self, rows: usize) -> LinearShape {
        LinearShape { shape: OltShape { k: rows, m: self.inputs, n: self.outputs }, weight_bits: WEIGHT_BITS }
    }

    /// The integers, rounded once after everything is multiplied in; in the memory of `room`, if they fit.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] if there are no numbers; [`ModelError::Folder`] if stored ones cannot be read;
    /// [`ModelError::Mismatch`].
    pub fn integers(&self, id: StepId, room: Option<PreparedWeights>) -> Result<Integers, ModelError> {
        let (gain, offset) = match &self.norm {
            None => (vec![1.0; self.inputs], None),
            Some(norm) => {
                let (gain, offset) = affine(id, norm)?;
                same(id, "gains", gain.len(), self.inputs)?;
                // RMSNorm has no offset.
                let offset = Some(offset).filter(|_| norm.kind == NormKind::LayerNorm);
                (gain, offset)
            }
        };
        let mut rows = Rows {
            gain,
            offset,
            at: 0,
            room,
            all: Integers { weights: Vec::new(), bias: Vec::with_capacity(self.outputs), largest: 0 },
        };
        for part in &self.parts {
            match part {
                Part::Layer { linear, weights, bias } => {
                    let mut biases = biases(id, linear)?.into_iter();
                    rows.make_room(self.outputs);
                    linear.each_rows(id, |numbers| {
                        let numbers = numbers.chunks_exact(self.inputs.max(1));
                        for (row, b) in numbers.zip(&mut biases) {
                            rows.add(row, b, *weights, *bias);
                        }
                    })?;
                }
                Part::Operand(factor) => {
                    rows.make_room(self.outputs);
                    let mut row = vec![0.0; self.inputs];
                    for i in 0..self.inputs {
                        row[i] = 1.0;
                        rows.add(&row, 0.0, *factor, *factor);
                        row[i] = 0.0;
                    }
                }
            }
        }
        Ok(rows.all)
    }

    /// The product as a party runs it, in the memory of `room` if it fits.
    ///
    /// # Errors
    /// [`RunError::OutOfRange`] for numbers that the formats cannot hold.
    pub(crate) fn layer(&self, id: StepId, room: Option<PreparedWeights>) -> Result<Layer, RunError> {
        let integers = match self.integers(id, room) {
            Err(ModelError::ShapesOnly { .. }) => return Ok(Layer { numbers: None }),
            integers => integers?,
        };
        if let Some(beyond) = ranges::layer(id, integers.largest, &integers.bias).pop() {
            return Err(beyond.into());
        }
        let Integers { weights, bias, largest } = integers;
        let (m, n) = (self.inputs, self.outputs);
        let weights = PreparedWeights::transposed(m, n, WEIGHT_BITS, largest, weights);
        Ok(Layer { numbers: Some((weights.map_err(TwopcError::from)?, bias)) })
    }
}

/// The query's layer. A factor before a norm would only change its ε: the factor of the scores is then in its gain.
fn query(a: &Attention) -> Part {
    scaled(&a.query, if a.query_norm.is_some() { 1.0 } else { Scores::of_queries(a) })
}

fn scaled(linear: &Linear, scale: f64) -> Part {
    Part::Layer { linear: linear.clone(), weights: scale, bias: scale }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use hushed_lower::LinearMap;
    use hushed_model::Matrix;

    use super::*;

    const INPUTS: usize = 37;
    const OUTPUTS: usize = 11;

    /// Numbers of many sizes, some of which are ties at the fraction bits of weights.
    fn numbers(count: usize, seed: usize) -> Vec<f32> {
        let word = |i: usize| ((i + seed) as u32).wrapping_mul(0x9e37_79b9).rotate_left(13);
        let number = |i: usize| match word(i) as i32 {
            w if i.is_multiple_of(3) => (w >> 16) as f32 / 2f32.powi(17),
            w => w as f32 * 2f32.powi(-33 - (i % 7) as i32),
        };
        (0..count).map(number).collect()
    }

    /// By definition: a map in f64, folded step by step and rounded at the end.
    fn slow(product: &Product, id: StepId) -> (Vec<i32>, Vec<i64>) {
        let (mut all, mut biases) = (Vec::new(), Vec::new());
        for part in &product.parts {
            let (map, weights, bias) = match part {
                Part::Layer { linear, weights, bias } => (LinearMap::of(id, linear).unwrap(), *weights, *bias),
                Part::Operand(factor) => (LinearMap::identity(product.inputs), *factor, *factor),
            };
            let map = match &product.norm {
                Some(norm) => {
                    let (gain, offset) = affine(id, norm).unwrap();
                    map.reading(&gain, &offset)
                }
                None => map,
            };
            let map = map.scaled(weights, bias);
            let unit = f64::from(1u32 << WEIGHT_FRAC);
            all.extend(map.weights.iter().map(|w| (w * unit).round() as i32));
            biases.extend(map.bias.into_iter().flatten().map(|b| LINEAR.signed(b)));
        }
        (all, biases)
    }

    #[test]
    fn integers_are_those_of_the_map_rounded_at_the_end() {
        let id = StepId::outside("head");
        let linear = Linear {
            inputs: INPUTS,
            outputs: OUTPUTS,
            weights: Matrix::new(OUTPUTS, INPUTS, numbers(INPUTS * OUTPUTS, 1)).map(Arc::new),
            stored: None,
            bias: Some(numbers(OUTPUTS, 2).into()),
            ternary: false,
        };
        let norm = |kind| Norm {
            kind,
            width: INPUTS,
            epsilon: 1e-5,
            reach: None,
            gain: Some(numbers(INPUTS, 3).into()),
            offset: Some(match kind {
                NormKind::LayerNorm => numbers(INPUTS, 4).into(),
                NormKind::RmsNorm => vec![0.0; INPUTS].into(),
            }),
        };
        let norms = [NormKind::LayerNorm, NormKind::RmsNorm].map(norm);
        for norm in [None, Some(&norms[0]), Some(&norms[1])] {
            for scale in [1.0, -std::f64::consts::LOG2_E / 3.0] {
                let parts = vec![scaled(&linear, scale), Part::Operand(scale)];
                let product = Product::new(norm, INPUTS, parts);
                let found = product.integers(id, None).unwrap();
                let (weights, bias) = slow(&product, id);
                assert!(found.weights == weights && found.bias == bias);
                let largest = weights.iter().map(|w| w.unsigned_abs()).max();
                assert_eq!(Some(found.largest), largest);
            }
        }
    }
}
