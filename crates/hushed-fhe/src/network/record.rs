//! Records a network.

use std::collections::BTreeSet;
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

/// Where values may be refreshed: what squares, products and functions read, as only that has a bound.
#[derive(Clone, Default)]
pub(super) struct Refreshes {
    /// Whether the parameters have a bootstrap.
    pub possible: bool,
    /// By part: it reads a value whose scale cannot be chosen, and is larger than a refresh takes or not that of the
    /// other summand. So the value is multiplied by 1, a level, and has a scale that can be.
    pub rescaled: BTreeSet<usize>,
}

/// A recorded network.
pub(super) struct Recorded {
    pub tape: Tape,
    /// The nodes that need operands of a certain scale, with their parts: sums, and where values may be refreshed.
    pub needs: Vec<(usize, NodeId)>,
}

/// The tape of a network in vectors of `slots` slots.
pub(super) fn recorded(
    network: &Arc<Network>,
    (fits, refreshes): (&Fits, &Refreshes),
    plan: &NetworkPlan,
    slots: usize,
) -> Recorded {
    let (period, bound) = (plan.period, plan.input_bound);
    let mut needs = Vec::new();
    let mut t = Recorder::new();
    let mut values: Vec<NodeId> = Vec::with_capacity(network.parts().len());
    for (number, part) in network.parts().iter().enumerate() {
        let of = |k: usize| part.operands.get(k).and_then(|&from| values.get(from)).copied().unwrap_or(NodeId(0));
        t.at(StepId::outside(kind(&part.op)));
        // `x` read as a number within 1, where it may be refreshed.
        let rescaled = |t: &mut Recorder, x: NodeId| match refreshes.rescaled.contains(&number) {
            true => t.scaled(x, vec![1.0]),
            false => x,
        };
        let mut unit = |t: &mut Recorder, x: NodeId, bound: f64| {
            let x = rescaled(t, x);
            let unit = t.read_as(x, 1.0 / bound);
            if !refreshes.possible {
                return unit;
            }
            let unit = t.mark(unit, 1.0);
            needs.push((number, unit));
            unit
        };
        let mut factor = |t: &mut Recorder, x: NodeId| match fits.factors.get(&number) {
            Some(&bound) if refreshes.possible => {
                let unit = unit(t, x, bound);
                t.read_as(unit, bound)
            }
            _ => x,
        };
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
            (PartOp::Add, _) => {
                let b = rescaled(&mut t, of(1));
                let sum = t.add(of(0), b);
                needs.push((number, sum));
                sum
            }
            (PartOp::Mul, _) if of(0) != of(1) => {
                let (a, b) = (factor(&mut t, of(0)), factor(&mut t, of(1)));
                t.mul(a, b)
            }
            (PartOp::Square | PartOp::Mul, _) => {
                let x = factor(&mut t, of(0));
                t.mul(x, x)
            }
            (PartOp::Function { .. }, Some(fitted)) => {
                let function = t.function(SlotFunction::Polynomial(Arc::clone(&fitted.polynomial)));
                // t = (x − middle)/half: no level, as a factor is a matter of scale.
                let centred = t.add_numbers(of(0), vec![-fitted.middle]);
                let unit = unit(&mut t, centred, fitted.half);
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
    Recorded { tape: t.finish(), needs }
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
