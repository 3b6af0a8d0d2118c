//! A graph as steps: what depends on no input is numbers, and of every other node it is known whether it is linear.

use hushed_model::graph::{Function, Op};
use hushed_model::{Graph, ModelError};

/// One operation on lists of numbers.
pub(super) struct Step<'a> {
    /// The node's name.
    pub name: &'a str,
    pub op: StepOp<'a>,
    /// The steps that it reads, all before it.
    pub operands: Vec<usize>,
    /// How many numbers its value has.
    pub size: usize,
}

/// What a step computes.
pub(super) enum StepOp<'a> {
    Input,
    /// These numbers.
    Constant(Vec<f64>),
    /// A formula that is linear in its operands, constants apart.
    Linear {
        formula: Formula<'a>,
        /// What stands for every number of a constant where a formula has 1 in the place of its weights: a constant
        /// that is added reaches no further, and one that is multiplied may be anything.
        constants: f64,
    },
    Square,
    Function {
        of: &'a Function,
        degree: Option<usize>,
    },
    Add,
    Mul,
}

/// The value for these operands; if `true`, with weights of 1 and biases of 0: of numbers that are 0 or positive, which
/// of its numbers depend on them.
type Formula<'a> = Box<dyn Fn(&[&[f64]], bool) -> Result<Vec<f64>, ModelError> + 'a>;

/// The steps of a graph, and the numbers of those that are its outputs.
///
/// # Errors
/// [`ModelError::ShapesOnly`] without weights.
pub(super) fn steps(graph: &Graph) -> Result<(Vec<Step<'_>>, Vec<usize>), ModelError> {
    let mut steps: Vec<Step<'_>> = Vec::new();
    // The step of each node.
    let mut made = Vec::with_capacity(graph.nodes().len());
    for (number, (node, constant)) in graph.nodes().iter().zip(graph.constants()?).enumerate() {
        let operands: Vec<usize> = node.operands.iter().map(|&from| made[from]).collect();
        let folded = operands.iter().any(|&from| matches!(steps[from].op, StepOp::Constant(_)));
        let linear = |constants| StepOp::Linear {
            formula: Box::new(move |reads: &[&[f64]], ones| match ones {
                true => graph.reached(number, reads),
                false => graph.value(number, reads),
            }),
            constants,
        };
        let op = match (constant, &node.op) {
            (Some(numbers), _) => StepOp::Constant(numbers),
            (None, Op::Input | Op::Constant { .. }) => StepOp::Input,
            (None, Op::Linear { .. } | Op::Conv2d(_) | Op::AvgPool2d(_) | Op::BatchNorm(_)) => linear(0.0),
            (None, Op::Mean { .. } | Op::Concat { .. } | Op::Reshape(_)) => linear(0.0),
            (None, Op::Function { of: Function::Affine { .. }, .. }) => linear(0.0),
            (None, Op::Function { of: Function::Square, .. }) => StepOp::Square,
            (None, Op::Function { of, degree }) => StepOp::Function { of, degree: *degree },
            (None, Op::Add) if folded => linear(0.0),
            (None, Op::Mul) if folded => linear(1.0),
            (None, Op::Add) => StepOp::Add,
            (None, Op::Mul) => StepOp::Mul,
        };
        made.push(steps.len());
        steps.push(Step { name: &node.name, op, operands, size: node.shape.iter().product() });
    }
    let outputs = graph.output_numbers().iter().map(|&number| made[number]).collect();
    Ok((steps, outputs))
}
