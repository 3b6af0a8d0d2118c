//! A network's graph with its linear operations in a row as one map each, and constants folded in.
//!
//! What an operation is as a matrix is found by running it on unit vectors, so there is one account of each formula.
//! The places where a map may have weights are found in the same way with all weights 1: they follow from shapes alone.

use hushed_model::graph::{Function, Node, Op};
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
    /// A linear map with biases.
    Map(SparseMap),
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

/// Most weights of a map, with those that are 0.
const MAX_WEIGHTS: usize = 1 << 24;

impl Network {
    /// Folds a graph with its weights.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] without weights; [`ModelError::Mismatch`] for a map of more than 2^24 weights.
    pub fn new(graph: &Graph) -> Result<Network, ModelError> {
        let constants = graph.constants()?;
        let nodes = graph.nodes();
        let mut readers = vec![0_usize; nodes.len()];
        nodes.iter().flat_map(|node| &node.operands).for_each(|&from| readers[from] += 1);
        // An output is read once more.
        graph.output_numbers().iter().for_each(|&number| readers[number] += 1);
        let linear = |number: usize| match &nodes[number].op {
            Op::Linear { .. } | Op::Conv2d(_) | Op::AvgPool2d(_) | Op::GlobalAvgPool2d | Op::BatchNorm(_) => true,
            Op::Reshape(_) | Op::Function { of: Function::Affine { .. }, .. } => true,
            Op::Add | Op::Mul => nodes[number].operands.iter().any(|&from| constants[from].is_some()),
            Op::Input | Op::Constant { .. } | Op::Function { .. } => false,
        };
        let mut network = Network { parts: Vec::new(), outputs: Vec::new() };
        // The part of each node that has one: constants and all but the last of a chain have none.
        let mut made: Vec<Option<usize>> = vec![None; nodes.len()];
        let mut inputs = 0;
        let mut chains: Vec<Vec<usize>> = vec![Vec::new(); nodes.len()];
        for (number, node) in nodes.iter().enumerate() {
            // A constant that is an output is a map of anything: it has no operands, and is refused by whoever runs it.
            if constants[number].is_some() && !graph.output_numbers().contains(&number) {
                continue;
            }
            let reads: Vec<usize> = node.operands.iter().copied().filter(|&from| constants[from].is_none()).collect();
            let (op, operands) = if let Op::Input = node.op {
                inputs += 1;
                (PartOp::Input(inputs - 1), Vec::new())
            } else if let ([from], true) = (reads.as_slice(), linear(number)) {
                let mut chain = std::mem::take(&mut chains[*from]);
                let base = chain.first().map_or(*from, |&first| source(&nodes[first], &constants));
                chain.push(number);
                let alone = readers[number] == 1 && !graph.output_numbers().contains(&number);
                let next = (number + 1..nodes.len()).find(|&next| nodes[next].operands.contains(&number));
                if alone && next.is_some_and(linear) {
                    chains[number] = chain;
                    continue;
                }
                (PartOp::Map(chained(graph, &constants, base, &chain)?), vec![base])
            } else {
                let op = match &node.op {
                    Op::Add => PartOp::Add,
                    Op::Mul => PartOp::Mul,
                    Op::Function { of: Function::Square, .. } => PartOp::Square,
                    Op::Function { of, degree } => PartOp::Function { of: of.clone(), degree: *degree },
                    _ => return Err(ModelError::NoValue { site: node.name.clone() }),
                };
                (op, reads)
            };
            let missing = || ModelError::NoValue { site: node.name.clone() };
            let operands = operands.into_iter().map(|from| made[from].ok_or_else(missing));
            let (operands, size) = (operands.collect::<Result<_, _>>()?, size(node));
            made[number] = Some(network.parts.len());
            network.parts.push(Part { name: node.name.clone(), op, operands, size });
        }
        for &number in graph.output_numbers() {
            let missing = || ModelError::NoValue { site: nodes[number].name.clone() };
            network.outputs.push(made[number].ok_or_else(missing)?);
        }
        Ok(network)
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
                PartOp::Map(sparse) => sparse.map.times_vector(of(0)),
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

fn size(node: &Node) -> usize {
    node.shape.iter().product()
}

/// The operand of a linear node that is no constant.
fn source(node: &Node, constants: &[Option<Vec<f64>>]) -> usize {
    node.operands.iter().copied().find(|&from| constants[from].is_none()).unwrap_or(0)
}

/// The map of a chain of linear nodes, the first of which reads `base`.
fn chained(
    graph: &Graph,
    constants: &[Option<Vec<f64>>],
    base: usize,
    chain: &[usize],
) -> Result<SparseMap, ModelError> {
    let nodes = graph.nodes();
    let (columns, last) = (size(&nodes[base]), &nodes[chain[chain.len() - 1]]);
    let rows = size(last);
    if columns.checked_mul(rows).is_none_or(|all| all > MAX_WEIGHTS) {
        let (site, what) = (last.name.clone(), "weights of a map");
        return Err(ModelError::Mismatch { site, what, found: columns.saturating_mul(rows), expected: MAX_WEIGHTS });
    }
    let through = |mut x: Vec<f64>, ones: bool| -> Result<Vec<f64>, ModelError> {
        for &number in chain {
            let node = &nodes[number];
            let moving = source(node, constants);
            // A constant that is added reaches no further, and one that is multiplied may be anything.
            let constant = if let Op::Mul = node.op { 1.0 } else { 0.0 };
            let unit = vec![constant; if ones { x.len() } else { 0 }];
            let of = |&from: &usize| match (from == moving, ones) {
                (true, _) => x.as_slice(),
                (false, true) => unit.as_slice(),
                (false, false) => constants[from].as_deref().unwrap_or_default(),
            };
            let operands: Vec<&[f64]> = node.operands.iter().map(of).collect();
            x = match ones {
                true => graph.reached(number, &operands)?,
                false => graph.value(number, &operands)?,
            };
        }
        Ok(x)
    };
    let bias = through(vec![0.0; columns], false)?;
    let mut map = LinearMap { rows, columns, weights: vec![0.0; rows * columns], bound: f64::INFINITY, bias: None };
    let mut connected = vec![false; rows * columns];
    for column in 0..columns {
        let mut unit = vec![0.0; columns];
        unit[column] = 1.0;
        let reached = through(unit.clone(), true)?;
        let values = through(unit, false)?;
        for (row, ((value, bias), reached)) in values.iter().zip(&bias).zip(&reached).enumerate() {
            map.weights[row * columns + column] = value - bias;
            connected[row * columns + column] = *reached != 0.0;
        }
    }
    map.bias = Some(bias);
    Ok(SparseMap { map: map.bounded(), connected })
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
        graph.inputs().map(|node| Tensor::new(node.shape.clone(), numbers(size(node))).unwrap()).collect()
    }

    /// The folded network is the graph, with fewer parts; so are the diagonals of its maps.
    #[test]
    fn a_folded_network_answers_as_the_graph() {
        for (name, maps, parts) in [("mlp", 3, 7), ("cnn", 6, 10), ("calls", 6, 17)] {
            let graph = golden(name);
            let inputs = inputs(&graph);
            let network = Network::new(&graph).unwrap();
            let found = network.parts().iter().filter(|part| matches!(part.op, PartOp::Map(_))).count();
            assert_eq!((found, network.parts().len()), (maps, parts), "{name}");
            let values = network.run(&inputs).unwrap();
            for (&output, expected) in network.outputs().iter().zip(graph.run(&inputs).unwrap()) {
                assert_eq!(values[output].len(), expected.data().len());
                for (found, expected) in values[output].iter().zip(expected.data()) {
                    assert!((found - expected).abs() < 1e-12, "{name}: {found} and {expected}");
                }
            }
            for part in network.parts() {
                let PartOp::Map(sparse) = &part.op else { continue };
                let (x, period) = (&values[part.operands[0]], 128);
                let bias = sparse.map.bias.clone().unwrap();
                let mut sums: Vec<f64> = (0..period).map(|row| bias.get(row).copied().unwrap_or(0.0)).collect();
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

    /// Which diagonals there are does not depend on weights.
    #[test]
    fn diagonals_follow_from_shapes() {
        let graph = golden("cnn");
        let network = Network::new(&graph).unwrap();
        let Some(PartOp::Map(first)) = network.parts().get(1).map(|part| &part.op) else { panic!("no map") };
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
