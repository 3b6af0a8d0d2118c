//! Networks under encryption: one input, packed into the slots of one ciphertext, through maps, squares, products and
//! polynomials, without bootstraps.
//!
//! A value of n numbers is a vector in which slot s holds number s mod P, for one power of two P that holds every value
//! of the network; numbers from n to P are 0 or anything. A map is then the sum of its diagonals times rotations
//! ([`hushed_ckks::maps`]), one level; a function is a polynomial fitted on the interval that samples reached, widened
//! by [`MARGIN`].
//!
//! [`Circuit`] is the server's, with the weights; [`NetworkPlan`] is what a client needs. A reply is not sealed here:
//! whoever serves it adds a fresh encryption of zero and noise first ([`crate::run::reply`]).

mod record;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::keys::KeySpecs;
use hushed_ckks::poly::Polynomial;
use hushed_ckks::{Ciphertext, CkksError, CkksParams, Complex64, Decryptor, Encoder, Encryptor, Evaluator};
use hushed_lower::network::{Network, PartOp};
use hushed_math::fit::minimax;
use hushed_math::rng::SecretRng;
use hushed_model::{Graph, Tensor};

use crate::error::FheError;
use crate::plan::keys::KeyDemand;
use crate::run::encrypted::Encrypted;
use crate::simulate::Simulator;
use crate::slots::Slots as _;
use crate::tape::assign::assign;
use crate::tape::levels::{Heights, Limits, Outputs};
use crate::tape::run::computed;
use record::{Fitted, INPUT, recorded};

/// How far an interval reaches beyond what samples showed, as a part of its width on either side.
pub const MARGIN: f64 = 0.25;
/// The degree of a function whose owner chose none.
pub const DEGREE: usize = 15;
/// How much larger than in simulated runs of the samples an error is declared.
const DECLARED: f64 = 4.0;
/// Samples of which runs are simulated.
const SIMULATED: usize = 4;

/// A network's circuit, with its weights.
pub struct Circuit {
    network: Arc<Network>,
    /// By part, where it is a function.
    functions: BTreeMap<usize, Fitted>,
    plan: NetworkPlan,
}

/// What a client needs to run a network: no weights.
#[derive(Clone)]
pub struct NetworkPlan {
    params: Arc<CkksParams>,
    period: usize,
    limbs: usize,
    input: Vec<usize>,
    outputs: Vec<Vec<usize>>,
    keys: KeySpecs,
    error: f64,
}

impl Circuit {
    /// The circuit of a graph for these parameters. `samples` are inputs like those to come: functions are fitted to
    /// what they reach, and the error is declared by simulated runs of the first of them.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for several inputs, no sample, or values larger than a vector; [`FheError::Levels`] if
    /// the parameters have too few levels; those of fits.
    pub fn new(graph: &Graph, params: &Arc<CkksParams>, samples: &[Vec<Tensor>]) -> Result<Circuit, FheError> {
        let network = Arc::new(Network::new(graph)?);
        let unsupported = |what: String, remedy| FheError::Unsupported { what, remedy };
        let mut inputs = graph.inputs();
        let (Some(input), 0) = (inputs.next(), inputs.len()) else {
            let what = format!("a network of {} inputs", graph.inputs().len());
            return Err(unsupported(what, "make them one, and take them apart in the network"));
        };
        if samples.is_empty() {
            return Err(unsupported("a network without samples".to_owned(), "give inputs like those to come"));
        }
        let largest = network.parts().iter().map(|part| part.size).max().unwrap_or(1);
        let period = largest.next_power_of_two();
        if period > params.slots() {
            let what = format!("a network with a value of {largest} numbers");
            return Err(unsupported(what, "the largest value has to fit into the slots of a ciphertext"));
        }
        let plan = NetworkPlan {
            params: Arc::clone(params),
            period,
            limbs: 0,
            input: input.shape.clone(),
            outputs: graph.outputs().map(|node| node.shape.clone()).collect(),
            keys: KeySpecs::new(),
            error: 0.0,
        };
        let mut circuit = Circuit { functions: fitted(&network, samples)?, network, plan };
        circuit.plan.limbs = circuit.fewest(&Simulator::new(params, params.slots())?.counting())?;
        circuit.simulate(graph, samples)?;
        Ok(circuit)
    }

    /// What the client gets.
    pub fn plan(&self) -> &NetworkPlan {
        &self.plan
    }

    /// The encrypted answer, one ciphertext per output of the graph.
    ///
    /// # Errors
    /// [`FheError::Ckks`] for other parameters, missing keys, or a ciphertext with too few primes.
    pub fn run(&self, evaluator: Evaluator, input: Ciphertext) -> Result<Vec<Ciphertext>, FheError> {
        let on = Encrypted::without_refreshes(evaluator);
        self.computed(&on, input)
    }

    fn computed<S: crate::Slots>(&self, on: &S, input: S::Value) -> Result<Vec<S::Value>, FheError> {
        let tape = recorded(&self.network, &self.functions, self.plan.period, on.slots());
        let inputs = BTreeMap::from([(INPUT, vec![input])]);
        computed(on, tape, inputs, (Heights::Least, Outputs::AtLeast(1), Vec::new()), &mut |_, _| Ok(()))
    }

    /// The primes that the input needs.
    fn fewest(&self, on: &Simulator) -> Result<usize, FheError> {
        let mut tape = recorded(&self.network, &self.functions, self.plan.period, on.slots());
        let place = (on.top(), on.default_scale());
        let limits = Limits {
            heights: Heights::Least,
            inputs: BTreeMap::from([(INPUT, place)]),
            outputs: Outputs::AtLeast(1),
            spilled: Vec::new(),
        };
        Ok(assign(&mut tape, on, &limits)?.reads(&tape, INPUT))
    }

    /// Finds the keys and the error by runs in the clear.
    fn simulate(&mut self, graph: &Graph, samples: &[Vec<Tensor>]) -> Result<(), FheError> {
        let params = Arc::clone(&self.plan.params);
        for (seed, sample) in samples.iter().take(SIMULATED).enumerate() {
            let on = Simulator::new(&params, params.slots())?.with_errors(seed as u64 + 1);
            let exact = graph.run(sample)?;
            let packed = self.plan.packed(sample.first().map(Tensor::data).unwrap_or_default())?;
            let found = self.computed(&on, on.vector(packed, self.plan.limbs)?)?;
            for (found, exact) in found.iter().zip(&exact) {
                let apart = found.values().iter().zip(exact.data()).map(|(a, b)| (a - b).abs());
                self.plan.error = apart.fold(self.plan.error, f64::max);
            }
            if seed == 0 {
                let demand = KeyDemand::of(&params, &on.tally().counts());
                self.plan.keys = demand.specs(&params, &KeySpecs::new())?;
            }
        }
        self.plan.error *= DECLARED;
        Ok(())
    }
}

/// The polynomials of all functions, on the intervals that the samples reach.
fn fitted(network: &Network, samples: &[Vec<Tensor>]) -> Result<BTreeMap<usize, Fitted>, FheError> {
    let mut reached: BTreeMap<usize, [f64; 2]> = BTreeMap::new();
    for sample in samples {
        let values = network.run(sample)?;
        for (number, part) in network.parts().iter().enumerate() {
            let (PartOp::Function { .. }, Some(&from)) = (&part.op, part.operands.first()) else { continue };
            let [low, high] = reached.entry(number).or_insert([f64::INFINITY, f64::NEG_INFINITY]);
            for &v in values.get(from).into_iter().flatten() {
                (*low, *high) = (low.min(v), high.max(v));
            }
        }
    }
    let fit = |(number, [low, high]): (usize, [f64; 2])| {
        let Some(PartOp::Function { of, degree }) = network.parts().get(number).map(|part| &part.op) else {
            return Err(FheError::Packing(crate::packing::PackingError::Mismatch));
        };
        // Where all numbers are the same, an interval of width 1 around them.
        let width = (high - low).max(0.5);
        let (middle, half) = ((low + high) / 2.0, width * (0.5 + MARGIN));
        let fit = minimax(|t| of.at(middle + half * t), |_| 1.0, degree.unwrap_or(DEGREE), -1.0, 1.0);
        let polynomial = Arc::new(Polynomial::from_fit(&fit.map_err(CkksError::from)?)?);
        Ok((number, Fitted { polynomial, middle, half }))
    };
    reached.into_iter().map(fit).collect()
}

impl NetworkPlan {
    /// The parameters.
    pub fn params(&self) -> &Arc<CkksParams> {
        &self.params
    }

    /// The evaluation keys that a run needs.
    pub fn key_specs(&self) -> &KeySpecs {
        &self.keys
    }

    /// Primes of the ciphertext that the client sends.
    pub fn limbs(&self) -> usize {
        self.limbs
    }

    /// The declared error: the largest difference from the answer in the clear in simulated runs of samples, with the
    /// errors of polynomials, times 4. An estimate: an input whose values leave the fitted intervals may err by more.
    pub fn error(&self) -> f64 {
        self.error
    }

    /// The encrypted input.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] for another shape; those of the engine.
    pub fn encrypt(
        &self,
        encoder: &Encoder,
        encryptor: &Encryptor,
        rng: &mut SecretRng,
        input: &Tensor,
    ) -> Result<Ciphertext, FheError> {
        if input.shape() != self.input {
            return Err(FheError::Unsupported {
                what: format!("an input of shape {:?}", input.shape()),
                remedy: "give one of the shape that graph.json has",
            });
        }
        let plain = encoder.encode_real(&self.packed(input.data())?, self.limbs, self.params.default_scale())?;
        Ok(encryptor.encrypt(&plain, rng)?)
    }

    /// The answer, one tensor per output.
    ///
    /// # Errors
    /// [`FheError::Packing`] for another number of ciphertexts; those of the engine.
    pub fn decrypt(&self, decryptor: &Decryptor, reply: &[Ciphertext]) -> Result<Vec<Tensor>, FheError> {
        let mismatch = || FheError::Packing(crate::packing::PackingError::Mismatch);
        if reply.len() != self.outputs.len() {
            return Err(mismatch());
        }
        let opened = reply.iter().zip(&self.outputs).map(|(ct, shape)| {
            let slots: Vec<Complex64> = decryptor.decrypt(ct)?;
            let count = shape.iter().product();
            let numbers = slots.iter().take(count).map(|z| z.re).collect();
            Tensor::new(shape.clone(), numbers).ok_or_else(mismatch)
        });
        opened.collect()
    }

    /// The numbers in every period, zeros after them.
    fn packed(&self, numbers: &[f64]) -> Result<Vec<f64>, FheError> {
        let mut period = numbers.to_vec();
        period.resize(self.period, 0.0);
        Ok(period.iter().copied().cycle().take(self.params.slots()).collect())
    }
}
