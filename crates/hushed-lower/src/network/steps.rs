//! A graph as steps: what depends on no input is numbers, of every other node it is known whether it is linear, and a
//! norm is a map to deviations, their squares, a map to variances, 1/√v, a product, and a map of gains and offsets.

use hushed_model::graph::{Function, Op, RowNorm};
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
        of: Function,
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
        let size = node.shape.iter().product();
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
            (None, Op::Function { of, degree }) => StepOp::Function { of: of.clone(), degree: *degree },
            (None, Op::Norm(norm)) => {
                let last = normed(&mut steps, &node.name, norm, (operands.first().copied(), size))?;
                made.push(last);
                continue;
            }
            (None, Op::Add) if folded => linear(0.0),
            (None, Op::Mul) if folded => linear(1.0),
            (None, Op::Add) => StepOp::Add,
            (None, Op::Mul) => StepOp::Mul,
        };
        made.push(steps.len());
        steps.push(Step { name: &node.name, op, operands, size });
    }
    let outputs = graph.output_numbers().iter().map(|&number| made[number]).collect();
    Ok((steps, outputs))
}

/// The steps of a norm of `size` numbers that reads step `x`; returns the last.
fn normed<'a>(
    steps: &mut Vec<Step<'a>>,
    name: &'a str,
    norm: &'a RowNorm,
    (x, size): (Option<usize>, usize),
) -> Result<usize, ModelError> {
    let shapes_only = move || ModelError::ShapesOnly { site: name.to_owned() };
    let x = x.ok_or_else(|| ModelError::NoValue { site: name.to_owned() })?;
    let mut step = |op, operands| {
        steps.push(Step { name, op, operands, size });
        steps.len() - 1
    };
    // In the places of what reaches where, numbers and their mean are added up.
    let deviations = move |x: &[f64]| norm.deviations(x).iter().zip(x).map(|(d, x)| 2.0 * x - d).collect::<Vec<f64>>();
    let variances = move |v: &[f64]| norm.variances(v).iter().map(|v| v - norm.epsilon).collect::<Vec<f64>>();
    let deviation = match norm.centred {
        true => step(map(move |x| Some(norm.deviations(x)), deviations, shapes_only), vec![x]),
        false => x,
    };
    let square = step(StepOp::Square, vec![deviation]);
    let variance = step(map(move |v| Some(norm.variances(v)), variances, shapes_only), vec![square]);
    let inverse = step(StepOp::Function { of: Function::InverseRoot, degree: norm.degree }, vec![variance]);
    let unit = step(StepOp::Mul, vec![deviation, inverse]);
    Ok(match norm.has_gain {
        true => step(map(move |x| norm.scaled(x), <[f64]>::to_vec, shapes_only), vec![unit]),
        false => unit,
    })
}

/// A linear formula of one operand, and the same with weights of 1.
fn map<'a>(
    value: impl Fn(&[f64]) -> Option<Vec<f64>> + 'a,
    reached: impl Fn(&[f64]) -> Vec<f64> + 'a,
    missing: impl Fn() -> ModelError + 'a,
) -> StepOp<'a> {
    let formula = move |reads: &[&[f64]], ones: bool| {
        let x = reads.first().copied().unwrap_or_default();
        if ones { Ok(reached(x)) } else { value(x).ok_or_else(&missing) }
    };
    StepOp::Linear { formula: Box::new(formula), constants: 0.0 }
}
