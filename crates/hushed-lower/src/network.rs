//! A network's graph with its linear operations in a row as one map each, and constants folded in.

mod fold;
mod steps;

use hushed_model::graph::Function;
use hushed_model::{Graph, ModelError, Tensor};

use crate::LinearMap;

/// The parts of a network, each after those that it reads. A value is the list of a tensor's numbers.
pub struct Network {
    parts: Vec<Part>,
    outputs: Vec<usize>,
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
    /// Folds a graph with its weights.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] without weights; [`ModelError::Mismatch`] for a map of more than 2^24 weights;
    /// [`ModelError::NoValue`] for an output that depends on no input.
    pub fn new(graph: &Graph) -> Result<Network, ModelError> {
        fold::folded(graph)
    }

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

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;

    fn golden(name: &str) -> Graph {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../hushed-model/tests/golden/graphs").join(name);
        Graph::load(&folder).unwrap()
    }

    fn inputs(graph: &Graph) -> Vec<Tensor> {
        let numbers = |count: usize| (0..count).map(|i| (i as f64 * 1.7).sin()).collect();
        let input = |shape: &Vec<usize>| Tensor::new(shape.clone(), numbers(shape.iter().product())).unwrap();
        graph.inputs().map(|node| input(&node.shape)).collect()
    }

    /// The folded network is the graph, with fewer parts; so are the diagonals of its maps.
    #[test]
    fn a_folded_network_answers_as_the_graph() {
        for (name, maps, parts) in [("mlp", 3, 7), ("cnn", 6, 10), ("calls", 6, 17), ("joins", 3, 6)] {
            let graph = golden(name);
            let inputs = inputs(&graph);
            let network = Network::new(&graph).unwrap();
            let found = network.parts().iter().filter(|part| matches!(part.op, PartOp::Map { .. })).count();
            assert_eq!((found, network.parts().len()), (maps, parts), "{name}");
            let values = network.run(&inputs).unwrap();
            for (&output, expected) in network.outputs().iter().zip(graph.run(&inputs).unwrap()) {
                assert_eq!(values[output].len(), expected.data().len());
                for (found, expected) in values[output].iter().zip(expected.data()) {
                    assert!((found - expected).abs() < 1e-12, "{name}: {found} and {expected}");
                }
            }
            for part in network.parts() {
                let PartOp::Map { maps, .. } = &part.op else { continue };
                for (sparse, &from) in maps.iter().zip(&part.operands) {
                    let (x, period) = (&values[from], 128);
                    let mut sums = vec![0.0; period];
                    for (offset, weights) in sparse.diagonals(period) {
                        for (row, (sum, weight)) in sums.iter_mut().zip(weights).enumerate() {
                            *sum += weight * x.get((row + offset) % period).copied().unwrap_or(0.0);
                        }
                    }
                    let expected = sparse.map.times_vector(x);
                    assert!(sums.iter().zip(&expected).all(|(a, b)| (a - b).abs() < 1e-12), "{name} {}", part.name);
                }
            }
        }
    }

    /// Which diagonals there are does not depend on weights.
    #[test]
    fn diagonals_follow_from_shapes() {
        let graph = golden("cnn");
        let network = Network::new(&graph).unwrap();
        let Some(PartOp::Map { maps, .. }) = network.parts().get(1).map(|part| &part.op) else { panic!("no map") };
        let first = &maps[0];
        // 4 outputs of 2 channels, 3 × 3 windows with padding: fewer than a dense map has.
        let connected = first.connected.iter().filter(|&&there| there).count();
        assert!(connected < first.connected.len() / 3);
        let mut zero = SparseMap { map: first.map.clone(), connected: first.connected.clone() };
        zero.map.weights.fill(0.0);
        let offsets = |sparse: &SparseMap| sparse.diagonals(128).into_iter().map(|(o, _)| o).collect::<Vec<_>>();
        assert_eq!(offsets(&zero), offsets(first));
        assert!(first.map.weights.iter().zip(&first.connected).all(|(w, there)| *there || *w == 0.0));
    }
}
