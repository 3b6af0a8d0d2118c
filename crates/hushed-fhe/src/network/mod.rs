//! Networks under encryption: an input, packed into the slots of one ciphertext, through maps, squares, products and
//! polynomials; where a chain of primes has too few levels, what these read is refreshed by a bootstrap.
//!
//! A value of n numbers is a vector in which slot s holds number s mod P, for one power of two P that holds every value
//! of the network; numbers from n to P are known and harmless ([`Fits`]). A map is then the sum of its diagonals times
//! rotations ([`hushed_ckks::maps`]), one level; a function is a polynomial fitted on the interval that samples
//! reached, widened by [`MARGIN`]. A refresh takes numbers within a bound, so it stands before a function, whose
//! interval is known, or before a square or product, whose factors were measured.
//!
//! [`NetworkChoices`] is what samples showed, [`Circuit`] the server's, with the weights, [`NetworkPlan`] what a client
//! gets, [`NetworkEngine`] a client's keys at the server.

mod choices;
#[cfg(any(feature = "client", test))]
mod client;
mod engine;
mod fits;
mod manifest;
mod place;
mod plan;
mod record;
#[cfg(any(feature = "client", test))]
mod rehearsal;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::bootstrap::Bootstrapper;
use hushed_ckks::{Ciphertext, CkksParams, Evaluator, SHALLOW, Scale};
use hushed_lower::network::Network;
use hushed_model::{Graph, Port};
use sha2::{Digest, Sha256};

use crate::error::FheError;
use crate::hex::hex;
use crate::plan::Prices;
use crate::plan::public_plan::{PlanFileError, ReplyForm, named};
use crate::run::encrypted::Encrypted;
use crate::run::reply::fewest_limbs;
use crate::simulate::{Counts, Op};
use crate::tape::levels::{Heights, Outputs};
use crate::tape::run::computed;
use choices::input_of;
use fits::Fits;
use record::{INPUT, Recorded, Refreshes, recorded};

pub use choices::{NetworkChoices, network_sha256};
#[cfg(any(feature = "client", test))]
pub use client::NetworkClient;
pub use engine::NetworkEngine;
pub use fits::{DEGREE, MARGIN};
pub use manifest::AnyManifest;
pub use plan::NetworkPlan;
#[cfg(any(feature = "client", test))]
pub use rehearsal::{Rehearsal, Rehearsed};

/// How much larger than a sample's the numbers of an answer may be: the plan's bound on a reply.
const ANSWERS: f64 = 4.0;
/// How much larger than a sample's the numbers of an input may be.
const INPUTS: f64 = 2.0;
/// The set for networks that are too deep for [`SHALLOW`].
const DEEP: &str = "n16-boot-14x40";

/// A network's circuit, with its weights.
pub struct Circuit {
    network: Arc<Network>,
    fits: Fits,
    params: Arc<CkksParams>,
    plan: NetworkPlan,
    /// The standard deviation of the error of a number of an answer, before it is sealed.
    deviation: f64,
    counts: Counts,
    refreshes: Refreshes,
    /// If values are refreshed.
    bootstrapper: Option<Arc<Bootstrapper>>,
}

impl Circuit {
    /// The circuit of a graph for the first set that can run it, those without bootstrapping first, for requests of up
    /// to `inputs` inputs.
    ///
    /// # Errors
    /// As [`Circuit::new`], of the largest set.
    pub fn smallest(graph: &Graph, choices: &NetworkChoices, inputs: usize) -> Result<Circuit, FheError> {
        let mut made = Err(too_large(0));
        for name in SHALLOW.iter().chain([&DEEP]) {
            made = Circuit::new(graph, choices, inputs, name);
            if made.is_ok() {
                break;
            }
        }
        made
    }

    /// The circuit of a graph for the parameter set of this name. Functions are fitted to what `choices` has of
    /// samples, and the error is declared by simulated runs of those that it kept.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for several inputs, values larger than a vector, or answers at another scale;
    /// [`FheError::Levels`] if the parameters have too few levels; [`FheError::Plan`] for another set; those of fits.
    pub fn new(graph: &Graph, choices: &NetworkChoices, inputs: usize, parameters: &str) -> Result<Circuit, FheError> {
        let params = named(parameters)
            .map_err(|source| PlanFileError::Parameters { name: parameters.chars().take(60).collect(), source })?;
        let input = input_of(graph)?;
        let network = Arc::new(Network::new(graph)?);
        let largest = network.parts().iter().map(|part| part.size).max().unwrap_or(1);
        let period = largest.next_power_of_two();
        if period > params.slots() {
            return Err(too_large(largest));
        }
        let fits = Fits::new(&network, choices)?;
        let outputs: Vec<Port> = graph.outputs().map(Port::of).collect();
        let mut reply = ReplyForm {
            ciphertexts: inputs.saturating_mul(outputs.len()),
            limbs: 1,
            scale: params.default_scale().value(),
            magnitude: power(ANSWERS * choices.answer).max(1.0),
            deviation: 0.0,
        };
        reply.limbs = fewest_limbs(&params, Scale::new(reply.scale)?, reply.magnitude);
        let sha256 = Sha256::digest(choices.to_json()?);
        let plan = NetworkPlan {
            version: crate::plan::public_plan::PLAN_VERSION,
            parameters: parameters.to_owned(),
            parameters_hash: hex(params.rlwe().hash()),
            input: Port::of(input),
            outputs,
            period,
            inputs,
            input_bound: power(INPUTS * choices.input),
            upload: 1,
            reply,
            keys: Vec::new(),
            error: 0.0,
            calibration_sha256: hex(&sha256),
            exposures: Vec::new(),
        };
        let refreshes = Refreshes { possible: params.can_bootstrap(), ..Refreshes::default() };
        let (counts, bootstrapper) = (Counts::default(), None);
        let mut circuit = Circuit { fits, network, params, plan, deviation: 0.0, counts, refreshes, bootstrapper };
        circuit.plan.upload = circuit.place()?;
        circuit.count()?;
        circuit.simulate(graph, choices)?;
        circuit.plan.exposures = circuit.exposures();
        circuit.plan.check(&circuit.params)?;
        Ok(circuit)
    }

    /// What the client gets.
    pub fn plan(&self) -> &NetworkPlan {
        &self.plan
    }

    /// The parameters.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// The operations of one input.
    pub fn counts(&self) -> &Counts {
        &self.counts
    }

    /// An estimate of the seconds of one input: the operations times their prices, which are for N = 2^16.
    pub fn seconds(&self, prices: &Prices) -> f64 {
        let all: f64 = self.counts.operations.iter().map(|c| c.times as f64 * prices.seconds(c.op, c.limbs)).sum();
        all * self.params.n() as f64 / f64::from(1 << 16)
    }

    /// The levels from the input to the deepest output.
    pub fn levels(&self) -> usize {
        let tape = self.recorded(self.params.slots()).tape;
        let mut after: Vec<usize> = Vec::with_capacity(tape.nodes.len());
        for node in &tape.nodes {
            let before = node.inputs.iter().filter_map(|id| after.get(id.0)).max();
            after.push(before.unwrap_or(&0) + node.op.levels(&tape.constants));
        }
        after.into_iter().max().unwrap_or(0)
    }

    /// How many vectors are refreshed for one input.
    pub fn refreshes(&self) -> usize {
        usize::try_from(self.counts.total(Op::Refreshed)).unwrap_or(usize::MAX)
    }

    /// Vectors under the keys of `evaluator`.
    fn on(&self, evaluator: Evaluator) -> Result<Encrypted, FheError> {
        match &self.bootstrapper {
            Some(bootstrapper) => Encrypted::new(evaluator, Arc::clone(bootstrapper)),
            None => Ok(Encrypted::without_refreshes(evaluator)),
        }
    }

    fn recorded(&self, slots: usize) -> Recorded {
        recorded(&self.network, (&self.fits, &self.refreshes), &self.plan, slots)
    }

    /// The encrypted answer to one input, a ciphertext per output, not sealed.
    ///
    /// # Errors
    /// [`FheError::Ckks`] for other parameters, missing keys, or a ciphertext with too few primes.
    fn run(&self, on: &Encrypted, input: Ciphertext) -> Result<Vec<Ciphertext>, FheError> {
        self.computed(on, input)
    }

    fn computed<S: crate::Slots>(&self, on: &S, input: S::Value) -> Result<Vec<S::Value>, FheError> {
        let inputs = BTreeMap::from([(INPUT, vec![input])]);
        let tape = self.recorded(on.slots()).tape;
        computed(on, tape, inputs, (Heights::Least, self.primes(), Vec::new()), &mut |_, _| Ok(()))
    }

    fn primes(&self) -> Outputs {
        Outputs::AtLeast(self.plan.reply.limbs)
    }

    /// Who sees what.
    fn exposures(&self) -> Vec<String> {
        let plan = &self.plan;
        let numbers: usize = plan.outputs.iter().filter_map(Port::size).sum();
        vec![
            format!(
                "the server sees when requests come and that each has up to {} inputs; not the inputs, the answers or how \
                 many there are",
                plan.inputs
            ),
            format!(
                "the client sees {numbers} numbers of an answer, rounded to {} bits after the point; from the manifest \
                 the shapes of input and outputs, the size of the largest value up to a power of two, the number of \
                 levels, where values are refreshed, and the rotations, which follow from the shapes of layers; one that cheats, up to {} numbers of a \
                 reply, of as many inputs as fit into its slots",
                plan.reply.bits(&self.params),
                self.params.slots()
            ),
        ]
    }
}

/// The power of two that is at least as large; 1 for nothing but zeros.
fn power(most: f64) -> f64 {
    if most > 0.0 { most.log2().ceil().exp2() } else { 1.0 }
}

fn too_large(numbers: usize) -> FheError {
    FheError::Unsupported {
        what: format!("a network with a value of {numbers} numbers"),
        remedy: "the largest value has to fit into the slots of a ciphertext",
    }
}

/// The numbers in every period, zeros after them.
fn packed(numbers: impl Iterator<Item = f64>, period: usize, slots: usize) -> Vec<f64> {
    let mut one: Vec<f64> = numbers.collect();
    one.resize(period, 0.0);
    one.iter().copied().cycle().take(slots).collect()
}
