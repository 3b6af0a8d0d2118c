//! Records a network.

use std::sync::Arc;

use hushed_ckks::Complex64;
use hushed_ckks::maps::{GridSplit, MapGrid};
use hushed_lower::network::{Network, PartOp, SparseMap};
use hushed_model::StepId;

use super::fits::Fits;
use super::plan::NetworkPlan;
use crate::tape::functions::SlotFunction;
use crate::tape::record::Recorder;
use crate::tape::{Grid, NodeId, Plain, SplitGrid, Tape};

/// The name of the tape's input.
pub(super) const INPUT: &str = "input";

/// The tape of a network in vectors of `slots` slots.
pub(super) fn recorded(network: &Arc<Network>, fits: &Fits, plan: &NetworkPlan, slots: usize) -> Tape {
    let (period, bound) = (plan.period, plan.input_bound);
    let mut t = Recorder::new();
    let mut values: Vec<NodeId> = Vec::with_capacity(network.parts().len());
    for (number, part) in network.parts().iter().enumerate() {
        let of = |k: usize| part.operands.get(k).and_then(|&from| values.get(from)).copied().unwrap_or(NodeId(0));
        t.at(StepId::outside(kind(&part.op)));
        let value = match (&part.op, fits.functions.get(&number)) {
            (PartOp::Map { maps, .. }, _) => {
                // A grid for each operand, as their scales differ: those of the sums are chosen.
                let mut made = t.maps(grid(network, (number, 0), period, slots), 1, &[of(0)]);
                for k in 1..maps.len() {
                    let more = t.maps(grid(network, (number, k), period, slots), 1, &[of(k)]);
                    made = t.add(made, more);
                }
                let beyond = fits.beyond.get(number).copied().unwrap_or(0.0);
                t.add_vectors(made, vec![biases(network, (number, beyond), period, slots)])
            }
            (PartOp::Add, _) => t.add(of(0), of(1)),
            (PartOp::Mul, _) => t.mul(of(0), of(1)),
            (PartOp::Square, _) => t.mul(of(0), of(0)),
            (PartOp::Function { .. }, Some(fitted)) => {
                let function = t.function(SlotFunction::Polynomial(Arc::clone(&fitted.polynomial)));
                // t = (x − middle)/half: no level, as a factor is a matter of scale.
                let centred = t.add_numbers(of(0), vec![-fitted.middle]);
                let unit = t.read_as(centred, 1.0 / fitted.half);
                t.apply(function, unit)
            }
            (PartOp::Input(_) | PartOp::Function { .. }, _) => {
                // Inputs are divided by their bound, which is a matter of scale as well.
                let input = t.input(INPUT, 1);
                t.read_as(input, bound)
            }
        };
        values.push(value);
    }
    t.at(StepId::outside("answer"));
    for &output in network.outputs() {
        let value = values.get(output).copied().unwrap_or(NodeId(0));
        t.output(value);
    }
    t.finish()
}

/// The name of the step: names of nodes are the user's, and steps have fixed ones.
fn kind(op: &PartOp) -> &'static str {
    match op {
        PartOp::Input(_) => INPUT,
        PartOp::Map { .. } => "map",
        PartOp::Square => "square",
        PartOp::Function { .. } => "function",
        PartOp::Add => "add",
        PartOp::Mul => "mul",
    }
}

/// The grid of a map of operand `k`.
fn grid(network: &Arc<Network>, (number, k): (usize, usize), period: usize, slots: usize) -> Grid {
    let network = Arc::clone(network);
    let make = move || -> SplitGrid {
        let mut grid = MapGrid::new(slots, period, 1, 1)?;
        let map = of_map(&network, number).and_then(|(maps, _)| maps.get(k));
        for (offset, weights) in map.map(|sparse| sparse.diagonals(period)).unwrap_or_default() {
            grid.set([0, 0], offset as i64, weights.into_iter().map(Complex64::from).collect())?;
        }
        let split = GridSplit::balanced(&grid)?;
        Ok((grid, split))
    };
    Grid { conjugates: false, make: Arc::new(make) }
}

/// The biases of a map, and `beyond` in the slots after its value.
fn biases(network: &Arc<Network>, (number, beyond): (usize, f64), period: usize, slots: usize) -> Plain {
    let network = Arc::clone(network);
    Plain::Numbers(Arc::new(move || {
        let mut bias = of_map(&network, number).map(|(_, bias)| bias.to_vec()).unwrap_or_default();
        bias.resize(period, beyond);
        bias.iter().copied().cycle().take(slots).collect()
    }))
}

/// The maps and biases of a part.
fn of_map(network: &Network, number: usize) -> Option<(&[SparseMap], &[f64])> {
    match network.parts().get(number).map(|part| &part.op) {
        Some(PartOp::Map { maps, bias }) => Some((maps, bias)),
        _ => None,
    }
}
