//! The parts of a network: linear steps that nothing else reads are one map with the step that reads them.
//!
//! What an operation is as a matrix is found by running it on unit vectors, so there is one account of each formula.
//! The places where a map may have weights are found in the same way with all weights 1: they follow from shapes alone.

use std::collections::BTreeMap;

use hushed_model::{Graph, ModelError};

use super::parts::{Network, Part, PartOp, SparseMap};
use super::steps::{Step, StepOp, steps};
use crate::LinearMap;

/// Most weights of a map.
const MAX_WEIGHTS: usize = 1 << 24;

/// The network of a graph.
pub(super) fn folded(graph: &Graph) -> Result<Network, ModelError> {
    let (steps, outputs) = steps(graph)?;
    let mut readers: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    for (number, step) in steps.iter().enumerate() {
        step.operands.iter().for_each(|&from| readers[from].push(number));
    }
    let is_linear = |number: usize| matches!(steps[number].op, StepOp::Linear { .. });
    let mut network = Network { parts: Vec::new(), outputs: Vec::new() };
    // The part of each step that has one: constants and steps that are in their reader's map have none.
    let mut made: Vec<Option<usize>> = vec![None; steps.len()];
    // The linear steps in each step's map, itself last.
    let mut chains: Vec<Vec<usize>> = vec![Vec::new(); steps.len()];
    let mut inputs = 0;
    for (number, step) in steps.iter().enumerate() {
        let (op, reads) = match &step.op {
            // One that is an output has no part, and is refused below.
            StepOp::Constant(_) => continue,
            StepOp::Input => {
                inputs += 1;
                (PartOp::Input(inputs - 1), Vec::new())
            }
            StepOp::Linear { .. } => {
                let mut chain: Vec<usize> = Vec::new();
                step.operands.iter().for_each(|&from| chain.append(&mut chains[from]));
                chain.push(number);
                if let ([reader], false) = (readers[number].as_slice(), outputs.contains(&number))
                    && is_linear(*reader)
                {
                    chains[number] = chain;
                    continue;
                }
                let bases = bases(&steps, &chain);
                (mapped(&steps, &chain, &bases)?, bases)
            }
            StepOp::Square => (PartOp::Square, step.operands.clone()),
            StepOp::Function { of, degree } => {
                (PartOp::Function { of: of.clone(), degree: *degree }, step.operands.clone())
            }
            StepOp::Add => (PartOp::Add, step.operands.clone()),
            StepOp::Mul => (PartOp::Mul, step.operands.clone()),
        };
        let operands = reads.into_iter().map(|from| made[from].ok_or_else(|| missing(step)));
        let operands = operands.collect::<Result<_, _>>()?;
        made[number] = Some(network.parts.len());
        network.parts.push(Part { name: step.name.to_owned(), op, operands, size: step.size });
    }
    let parts = outputs.iter().map(|&number| made[number].ok_or_else(|| missing(&steps[number])));
    network.outputs = parts.collect::<Result<_, _>>()?;
    Ok(network)
}

fn missing(step: &Step<'_>) -> ModelError {
    ModelError::NoValue { site: step.name.to_owned() }
}

/// The steps that a chain reads and that are neither in it nor constants, each once.
fn bases(steps: &[Step<'_>], chain: &[usize]) -> Vec<usize> {
    let mut bases = Vec::new();
    for &from in chain.iter().flat_map(|&number| &steps[number].operands) {
        let outside = !chain.contains(&from) && !matches!(steps[from].op, StepOp::Constant(_));
        if outside && !bases.contains(&from) {
            bases.push(from);
        }
    }
    bases
}

/// The maps from the bases to the last step of a chain.
fn mapped(steps: &[Step<'_>], chain: &[usize], bases: &[usize]) -> Result<PartOp, ModelError> {
    let last = &steps[chain[chain.len() - 1]];
    let columns = bases.iter().fold(0_usize, |all, &base| all.saturating_add(steps[base].size));
    if columns.checked_mul(last.size).is_none_or(|all| all > MAX_WEIGHTS) {
        let (site, what) = (last.name.to_owned(), "weights of a map");
        let found = columns.saturating_mul(last.size);
        return Err(ModelError::Mismatch { site, what, found, expected: MAX_WEIGHTS });
    }
    // Of a unit vector in one of the bases, or of zeros.
    let through = |unit: Option<(usize, usize)>, ones: bool| -> Result<Vec<f64>, ModelError> {
        let mut values: BTreeMap<usize, Vec<f64>> = bases.iter().map(|&b| (b, vec![0.0; steps[b].size])).collect();
        if let Some((base, column)) = unit {
            values.entry(base).and_modify(|x| x[column] = 1.0);
        }
        for &number in chain {
            let step = &steps[number];
            let StepOp::Linear { formula, constants } = &step.op else { return Err(missing(step)) };
            if ones {
                let of = step.operands.iter().filter(|&&from| matches!(steps[from].op, StepOp::Constant(_)));
                values.extend(of.map(|&from| (from, vec![*constants; steps[from].size])));
            }
            let operand = |&from: &usize| match (&steps[from].op, ones) {
                (StepOp::Constant(numbers), false) => Ok(numbers.as_slice()),
                _ => values.get(&from).map(Vec::as_slice).ok_or_else(|| missing(step)),
            };
            let operands: Vec<&[f64]> = step.operands.iter().map(operand).collect::<Result<_, _>>()?;
            let value = formula(&operands, ones)?;
            values.insert(number, value);
        }
        chain.last().and_then(|number| values.remove(number)).ok_or_else(|| missing(last))
    };
    let bias = through(None, false)?;
    let rows = last.size;
    let mut maps = Vec::with_capacity(bases.len());
    for &base in bases {
        let columns = steps[base].size;
        let mut map = LinearMap { rows, columns, weights: vec![0.0; rows * columns], bound: f64::INFINITY, bias: None };
        let mut connected = vec![false; rows * columns];
        for column in 0..columns {
            let (reached, values) = (through(Some((base, column)), true)?, through(Some((base, column)), false)?);
            for (row, ((value, bias), reached)) in values.iter().zip(&bias).zip(&reached).enumerate() {
                map.weights[row * columns + column] = value - bias;
                connected[row * columns + column] = *reached != 0.0;
            }
        }
        maps.push(SparseMap { map: map.bounded(), connected });
    }
    Ok(PartOp::Map { maps, bias })
}
