//! The numbers of a graph, from `model.safetensors`, under torch's names.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::Graph;
use super::faults::{GRAPH, short};
use super::ops::Op;
use crate::error::{FolderError, Problem};
use crate::folder::config::CONFIG;
use crate::folder::small::read_small;
use crate::folder::weights::Weights;
use crate::matrix::Matrix;

/// Most bytes of `graph.json`.
const MAX_BYTES: u64 = 16 << 20;
/// What torch counts beside the numbers of a batch normalisation; no answer depends on it.
const COUNTER: &str = ".num_batches_tracked";

impl Graph {
    /// Whether a folder holds a graph: it has `graph.json`, and no `config.json` of a transformer.
    pub fn is_in(folder: &Path) -> bool {
        folder.join(GRAPH).is_file() && !folder.join(CONFIG).is_file()
    }

    /// Reads a folder with its weights.
    ///
    /// # Errors
    /// [`FolderError`], with everything that is wrong.
    pub fn load(folder: &Path) -> Result<Graph, FolderError> {
        let mut problems = Vec::new();
        match Graph::read(folder, &mut problems) {
            Some(graph) if problems.is_empty() => Ok(graph),
            _ => Err(FolderError { folder: folder.to_owned(), problems }),
        }
    }

    fn read(folder: &Path, problems: &mut Vec<Problem>) -> Option<Graph> {
        let graph = match read_small(&folder.join(GRAPH), GRAPH, MAX_BYTES) {
            Ok(Some(bytes)) => Graph::parse(&bytes, problems),
            Ok(None) => {
                let hint = "a network's nodes are in it (docs/networks.md)";
                problems.push(Problem::MissingFile { file: GRAPH.to_owned(), hint });
                None
            }
            Err(problem) => {
                problems.push(problem);
                None
            }
        };
        let weights = Weights::open(folder, problems);
        let (mut graph, weights) = (graph?, weights?.exact());
        let tensors = graph.tensors();
        let left = weights.names().filter(|name| !tensors.contains_key(name) && !name.ends_with(COUNTER));
        let left: BTreeSet<String> = left.collect();
        problems.extend(left.into_iter().map(|name| Problem::UnusedTensor { name: short(&name) }));
        let mut numbers = BTreeMap::new();
        for (name, shape) in tensors {
            match weights.read(&name, &shape) {
                Ok(read) => {
                    numbers.insert(name, read);
                }
                Err(problem) => problems.push(problem),
            }
        }
        graph.fill(&numbers, problems);
        Some(graph)
    }

    /// The names and shapes of all tensors.
    pub(super) fn tensors(&self) -> BTreeMap<String, Vec<usize>> {
        let nodes = self.nodes.iter();
        let named = nodes.flat_map(|node| {
            let tensors = node.op.tensors();
            tensors.into_iter().map(|(end, shape)| (format!("{}.{end}", node.weights), shape))
        });
        named.collect()
    }

    /// Takes the numbers of all operations. Those whose tensors had a problem stay without.
    fn fill(&mut self, numbers: &BTreeMap<String, Vec<f32>>, problems: &mut Vec<Problem>) {
        for node in &mut self.nodes {
            let of = |end: &str| numbers.get(&format!("{}.{end}", node.weights));
            match &mut node.op {
                Op::Constant { value, .. } => *value = of("value").map(|v| v.as_slice().into()),
                Op::Linear { linear, has_bias } | Op::Conv2d(super::Conv2d { linear, has_bias, .. }) => {
                    let (rows, columns) = (linear.outputs, linear.inputs);
                    let matrix = of("weight").and_then(|read| Matrix::new(rows, columns, read.clone()));
                    linear.weights = matrix.map(Arc::new);
                    linear.bias = match has_bias {
                        true => of("bias").map(|read| read.as_slice().into()),
                        false => Some(vec![0.0; rows].into()),
                    };
                }
                Op::Norm(norm) => {
                    let [gain, bias] = ["weight", "bias"].map(|end| of(end).map(|read| read.as_slice().into()));
                    (norm.gain, norm.bias) = (gain.filter(|_| norm.has_gain), bias.filter(|_| norm.has_bias));
                }
                Op::BatchNorm(norm) => {
                    let (Some(mean), Some(variance)) = (of("running_mean"), of("running_var")) else { continue };
                    if let Some(least) = variance.iter().find(|&&v| f64::from(v) + norm.epsilon <= 0.0) {
                        let (name, value) = (format!("{}.running_var", node.weights), *least);
                        problems.push(Problem::NegativeVariance { name, value });
                    }
                    let (gain, bias) = (of("weight"), of("bias"));
                    let at = |read: Option<&Vec<f32>>, i: usize, or| {
                        read.and_then(|read| read.get(i)).map_or(or, |&v| f64::from(v))
                    };
                    let pairs = mean.iter().zip(variance).enumerate().map(|(i, (&mean, &variance))| {
                        let gain = at(gain, i, 1.0) / (f64::from(variance) + norm.epsilon).sqrt();
                        [gain, at(bias, i, 0.0) - f64::from(mean) * gain]
                    });
                    norm.map = Some(pairs.collect());
                }
                _ => {}
            }
        }
    }
}
