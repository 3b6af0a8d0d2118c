//! The parts of a network, and their values in the clear.

use hushed_model::graph::Function;
use hushed_model::{ModelError, Tensor};

use crate::LinearMap;

/// The parts of a network, each after those that it reads. A value is the list of a tensor's numbers.
pub struct Network {
    pub(super) parts: Vec<Part>,
    pub(super) outputs: Vec<usize>,
}

/// One operation on lists of numbers.
pub struct Part {
    /// The name of the last node that it stands for.
    pub name: String,
    /// What it computes.
    pub op: PartOp,
    /// The parts that it reads.
    pub operands: Vec<usize>,
    /// How many numbers its value has.
    pub size: usize,
}

/// What a part computes.
pub enum PartOp {
    /// Input `k` of the graph.
    Input(usize),
    /// The sum of a linear map of each operand, and of biases.
    Map {
        /// One for each operand, without biases.
        maps: Vec<SparseMap>,
        /// One for each number of its value.
        bias: Vec<f64>,
    },
    /// x².
    Square,
    /// A function of every number.
    Function {
        /// Which one.
        of: Function,
        /// The degree that its owner chose.
        degree: Option<usize>,
    },
    /// The sum of two values.
    Add,
    /// The product of two values, number by number.
    Mul,
}

/// A map, and where its weights may differ from 0.
pub struct SparseMap {
    /// The numbers.
    pub map: LinearMap,
    /// Rows × columns, row-major. It depends on shapes alone.
    pub connected: Vec<bool>,
}

impl Network {
    /// The parts in order.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// The parts whose values are the answer.
    pub fn outputs(&self) -> &[usize] {
        &self.outputs
    }

    /// The values of all parts, in the clear.
    ///
    /// # Errors
    /// [`ModelError::NoValue`] if an input is missing or has another size.
    pub fn run(&self, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>, ModelError> {
        let mut values: Vec<Vec<f64>> = Vec::with_capacity(self.parts.len());
        for part in &self.parts {
            let of = |k: usize| part.operands.get(k).map_or(&[][..], |&from| values[from].as_slice());
            let both = |f: fn(f64, f64) -> f64| of(0).iter().zip(of(1)).map(|(&a, &b)| f(a, b)).collect();
            let value: Vec<f64> = match &part.op {
                PartOp::Input(k) => inputs.get(*k).map(|input| input.data().to_vec()).unwrap_or_default(),
                PartOp::Map { maps, bias } => maps.iter().enumerate().fold(bias.clone(), |mut sums, (k, sparse)| {
                    let products = sparse.map.times_vector(of(k));
                    sums.iter_mut().zip(products).for_each(|(sum, product)| *sum += product);
                    sums
                }),
                PartOp::Square => of(0).iter().map(|v| v * v).collect(),
                PartOp::Function { of: function, .. } => of(0).iter().map(|&v| function.at(v)).collect(),
                PartOp::Add => both(|a, b| a + b),
                PartOp::Mul => both(|a, b| a * b),
            };
            if value.len() != part.size {
                return Err(ModelError::NoValue { site: part.name.clone() });
            }
            values.push(value);
        }
        Ok(values)
    }
}

impl SparseMap {
    /// The diagonals that the shapes give in a square of side `period`, at least that of the map: for each offset the
    /// weights of row s at column (s + offset) mod `period`, one for each s.
    pub fn diagonals(&self, period: usize) -> Vec<(usize, Vec<f64>)> {
        let diagonal = |offset: usize| {
            let place = |row: usize| {
                let column = (row + offset) % period;
                (row < self.map.rows && column < self.map.columns).then_some(row * self.map.columns + column)
            };
            let there = (0..period).filter_map(place).any(|place| self.connected[place]);
            let weights = (0..period).map(|row| place(row).map_or(0.0, |place| self.map.weights[place]));
            there.then(|| (offset, weights.collect()))
        };
        (0..period).filter_map(diagonal).collect()
    }
}
