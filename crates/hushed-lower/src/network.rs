//! A network's graph with its linear operations in a row as one map each, and constants folded in.

mod fold;
mod parts;
mod steps;

use hushed_model::{Graph, ModelError};

pub use parts::{Network, Part, PartOp, SparseMap};

impl Network {
    /// Folds a graph with its weights.
    ///
    /// # Errors
    /// [`ModelError::ShapesOnly`] without weights; [`ModelError::Mismatch`] for a map of more than 2^24 weights;
    /// [`ModelError::NoValue`] for an output that depends on no input.
    pub fn new(graph: &Graph) -> Result<Network, ModelError> {
        fold::folded(graph)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use hushed_model::Tensor;

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
        for (name, maps, parts) in [("mlp", 3, 7), ("cnn", 6, 10), ("calls", 6, 17), ("joins", 3, 6), ("norms", 8, 19)]
        {
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
