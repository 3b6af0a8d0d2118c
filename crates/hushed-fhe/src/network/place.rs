//! Where a circuit refreshes, which keys it needs, and how far its answers err: found by runs in the clear.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::poly::Arithmetic as _;
use hushed_model::{Graph, Tensor};

use super::choices::NetworkChoices;
use super::record::{INPUT, Recorded};
use super::{Circuit, packed};
use crate::error::FheError;
use crate::plan::declared::declared;
use crate::plan::keys::KeyDemand;
use crate::plan::public_plan::{planned, reply_deviation};
use crate::run::job::bootstrap;
use crate::simulate::{Simulator, Vector, refresh_deviation};
use crate::slots::Slots as _;
use crate::tape::NodeId;
use crate::tape::assign::assign;
use crate::tape::levels::{Heights, Limits};

/// How much larger than in simulated runs of the samples an error is declared.
const DECLARED: f64 = 4.0;
/// Deviations of the noise that covers a reply which its largest number is expected to have.
const NOISE: f64 = 6.0;
/// Fewest slots of a simulated run.
const FEWEST: usize = 64;
/// How much above that of a refresh the scale of what is refreshed may be, as a factor.
const ABOVE: f64 = 1.005;

impl Circuit {
    /// Finds what has to be rescaled before a refresh or a sum, and the primes that the input needs.
    pub(super) fn place(&mut self) -> Result<usize, FheError> {
        let on = &Simulator::new(&self.params, self.params.slots())?.counting();
        let place = (on.top(), on.default_scale());
        let limits = Limits {
            heights: Heights::Least,
            inputs: BTreeMap::from([(INPUT, place)]),
            outputs: self.primes(),
            spilled: Vec::new(),
        };
        loop {
            let Recorded { mut tape, needs } = self.recorded(on.slots());
            let schedule = assign(&mut tape, on, &limits)?;
            let unit = on.default_scale();
            let placed = |id: &NodeId| schedule.nodes.get(id.0);
            let unfit = |id: &NodeId| {
                let read = tape.nodes.get(id.0).map(|node| node.inputs.as_slice()).unwrap_or_default().iter();
                let mut scales = read.map(|id| placed(id).and_then(|placed| placed.scale).unwrap_or(unit));
                match (scales.next(), scales.next()) {
                    (Some(a), Some(b)) => !a.matches(b),
                    (Some(a), None) => {
                        placed(id).is_some_and(|mark| mark.refresh.is_some()) && a.over(unit).value() > ABOVE
                    }
                    _ => false,
                }
            };
            let found = needs.into_iter().filter(|(_, id)| unfit(id));
            let before = self.refreshes.rescaled.len();
            self.refreshes.rescaled.extend(found.map(|(part, _)| part));
            if self.refreshes.rescaled.len() == before {
                return Ok(schedule.reads(&tape, INPUT));
            }
        }
    }

    /// Finds operations and keys.
    pub(super) fn count(&mut self) -> Result<(), FheError> {
        let on = Simulator::new(&self.params, self.params.slots())?.counting();
        let found = self.computed(&on, on.vector(Vec::new(), self.plan.upload)?)?;
        self.scaled(&on, &found)?;
        self.counts = on.tally().counts();
        let mut keys = KeySpecs::new();
        if self.refreshes() > 0 {
            let (bootstrapper, needed) = bootstrap(&self.params)?;
            (self.bootstrapper, keys) = (Some(bootstrapper), needed);
        }
        self.plan.keys = planned(&KeyDemand::of(&self.params, &self.counts).specs(&self.params, &keys)?);
        Ok(())
    }

    /// Finds errors by runs in the clear, on the slots of one period: all others repeat it.
    pub(super) fn simulate(&mut self, graph: &Graph, choices: &NetworkChoices) -> Result<(), FheError> {
        let (params, refresh) = (Arc::clone(&self.params), refresh_deviation(&self.params));
        let slots = self.plan.period.max(FEWEST).min(params.slots());
        let run = |circuit: &Circuit, on: &Simulator, sample: &[f64]| -> Result<Vec<Vector>, FheError> {
            let numbers = sample.iter().map(|v| v / circuit.plan.input_bound);
            let numbers = packed(numbers, circuit.plan.period, slots);
            circuit.computed(on, on.vector(numbers, circuit.plan.upload)?)
        };
        let (mut error, mut deviation, mut most) = (0.0_f64, 0.0_f64, 0.0_f64);
        for (seed, sample) in choices.kept.iter().enumerate() {
            let on = Simulator::new(&params, slots)?.with_errors(seed as u64 + 1);
            let found = run(self, &on.with_refresh_deviation(refresh), sample)?;
            let polynomial = run(self, &Simulator::new(&params, slots)?, sample)?;
            let input = Tensor::new(self.plan.input.shape.clone(), sample.clone());
            let exact = graph.run(&input.into_iter().collect::<Vec<_>>())?;
            for ((found, polynomial), exact) in found.iter().zip(&polynomial).zip(&exact) {
                let apart = found.values().iter().zip(exact.data()).map(|(a, b)| (a - b).abs());
                error = apart.fold(error, worse);
                let noise = found.values().iter().zip(polynomial.values()).map(|(a, b)| (a - b) * (a - b));
                deviation = worse(deviation, (noise.sum::<f64>() / found.values().len().max(1) as f64).sqrt());
                most = found.values().iter().map(|v| v.abs()).fold(most, worse);
            }
        }
        let reply = &mut self.plan.reply;
        if !(error.is_finite() && most <= reply.magnitude) {
            return Err(FheError::Unsupported {
                what: "a network whose polynomials leave their intervals".to_owned(),
                remedy: "give the functions higher degrees",
            });
        }
        reply.deviation = declared(deviation).max(reply_deviation(&params, reply.magnitude));
        self.deviation = deviation;
        let rounding = (-f64::from(reply.bits(&params)) - 1.0).exp2();
        self.plan.error = DECLARED * error + NOISE * reply.deviation + rounding;
        Ok(())
    }

    /// All answers have one scale, that of the reply.
    fn scaled(&mut self, on: &Simulator, found: &[Vector]) -> Result<(), FheError> {
        let scale = found.first().map_or(on.default_scale(), |vector| on.scale(vector));
        if !found.iter().all(|vector| on.scale(vector).matches(scale)) {
            return Err(FheError::Unsupported {
                what: "a network with outputs of several scales".to_owned(),
                remedy: "end each of them in a linear layer or a function",
            });
        }
        self.plan.reply.scale = scale.value();
        Ok(())
    }
}

/// The worse of two errors: NaN is the worst.
fn worse(a: f64, b: f64) -> f64 {
    if a >= b { a } else { b }
}
