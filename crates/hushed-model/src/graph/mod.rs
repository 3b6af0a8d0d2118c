//! Networks that are no transformer: a folder with `graph.json` and `model.safetensors` (docs/networks.md).
//!
//! A graph is a flat list of nodes, each after those that it reads. A value is a tensor without a batch dimension, and
//! a node's weights have torch's names. [`Graph::run`] computes in f64, as published: nothing is folded.

mod attributes;
pub(crate) mod faults;
mod inputs;
mod norm;
mod ops;
mod parse;
mod run;
mod shapes;
mod weights;

pub use faults::{GRAPH, MAX_ELEMENTS, MAX_NODES, NodeFault};
pub use inputs::{InputError, read_inputs, to_npy};
pub use norm::RowNorm;
pub use ops::{BatchNorm, Conv2d, Function, Op, Window};
pub use run::Tensor;
pub use shapes::Size;

use serde::{Deserialize, Serialize};

/// A network as data, with its numbers or as shapes only.
#[derive(Clone)]
pub struct Graph {
    nodes: Vec<Node>,
    inputs: Vec<usize>,
    outputs: Vec<usize>,
}

/// One operation, and the value that it makes.
#[derive(Clone)]
pub struct Node {
    /// Its name, which no other node has.
    pub name: String,
    /// What its weights are named by: `{weights}.weight` and so on. Nodes with equal names share them.
    pub weights: String,
    /// What it computes.
    pub op: Op,
    /// The numbers of the nodes that it reads, all less than its own.
    pub operands: Vec<usize>,
    /// The shape of its value.
    pub shape: Vec<usize>,
}

/// An input or output of a network, as its clients know it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Port {
    /// Its name.
    pub name: String,
    /// The shape of its value, without a batch dimension.
    pub shape: Vec<usize>,
}

impl Port {
    /// That of a node.
    pub fn of(node: &Node) -> Port {
        Port { name: node.name.clone(), shape: node.shape.clone() }
    }

    /// Numbers in its value; `None` if that many cannot be counted.
    pub fn size(&self) -> Option<usize> {
        shapes::product(&self.shape)
    }
}

impl Graph {
    /// The nodes in order. Those that are [`Op::Input`] come first.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The inputs, in the order of the file.
    pub fn inputs(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.inputs.iter().map(|&number| &self.nodes[number])
    }

    /// The nodes whose values are the answer, in the order of the file.
    pub fn outputs(&self) -> impl ExactSizeIterator<Item = &Node> {
        self.outputs.iter().map(|&number| &self.nodes[number])
    }

    /// The numbers of the nodes whose values are the answer.
    pub fn output_numbers(&self) -> &[usize] {
        &self.outputs
    }

    /// Numbers in all tensors; those that nodes share are counted once.
    pub fn parameters(&self) -> usize {
        let tensors = self.tensors();
        tensors.values().map(|shape| shape.iter().product::<usize>()).sum()
    }
}
