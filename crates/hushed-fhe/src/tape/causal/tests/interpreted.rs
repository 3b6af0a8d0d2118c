//! A computation in its three interpretations, with every result opened: exact, simulated with errors, and under a key.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::StepId;

use super::opened::{Given, Opened};
use crate::run::encrypted::testing::Keys;
use crate::simulate::{Simulator, Vector};
use crate::slots::Slots;
use crate::{FheError, KeyDemand};

/// A computation over any arithmetic, from vectors that a client encrypts.
pub(crate) trait Computation {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError>;
}

/// The results of each operation, then those of the computation, in all interpretations.
pub(crate) struct Interpreted {
    pub exact: Vec<Given>,
    pub predicted: Vec<Given>,
    pub encrypted: Vec<Given>,
}

/// The root mean squares of errors of one operation of a step.
struct Errors {
    at: StepId,
    by: &'static str,
    predicted: f64,
    found: f64,
    /// Of the exact values.
    size: f64,
    results: usize,
}

impl Interpreted {
    /// The exact results of an operation of a step.
    pub fn exact(&self, at: &str, by: &str) -> Vec<&[f64]> {
        let these = |g: &&Given| g.by == by && g.at.to_string() == at;
        let given = self.exact.iter().filter(these);
        given.map(|g| g.values.as_slice()).collect()
    }

    /// Asserts that the errors of each operation of each step are 1/4 to 2 times those predicted, and to 4 times in a
    /// single vector; returns the steps.
    pub fn assert_as_predicted(&self) -> Vec<String> {
        let errors = self.errors();
        for e in &errors {
            let (at, by, ratio) = (e.at.to_string(), e.by, e.found / e.predicted);
            let Errors { size, results, .. } = *e;
            println!("{at:36}{by:10}{results:4} of size {size:.1e}: {:.1e}, {ratio:.2} of those predicted", e.found);
        }
        for e in &errors {
            let (at, by, ratio) = (e.at, e.by, e.found / e.predicted);
            // Zeros that the server makes itself are exact.
            if e.size == 0.0 && e.found == 0.0 {
                continue;
            }
            // In a single vector, such as a root, the few slots with the largest slope decide.
            let most = if e.results == 1 { 4.0 } else { 2.0 };
            assert!(ratio > 0.25 && ratio < most, "{at}, {by}: {ratio}");
        }
        errors.iter().map(|e| e.at.to_string()).collect()
    }

    /// The errors of each operation of each step, which are the same in all interpretations.
    fn errors(&self) -> Vec<Errors> {
        let mut all: Vec<Errors> = Vec::new();
        assert_eq!(self.exact.len(), self.predicted.len());
        assert_eq!(self.exact.len(), self.encrypted.len());
        let simulated = self.exact.iter().zip(&self.predicted);
        for ((exact, predicted), encrypted) in simulated.zip(&self.encrypted) {
            let (at, by) = (exact.at, exact.by);
            assert!(predicted.at == at && predicted.by == by);
            assert!(encrypted.at == at && encrypted.by == by);
            let place = all.iter().position(|e| e.at == at && e.by == by);
            let place = place.unwrap_or_else(|| {
                all.push(Errors { at, by, predicted: 0.0, found: 0.0, size: 0.0, results: 0 });
                all.len() - 1
            });
            let mean = |a: &[f64], b: &dyn Fn(usize) -> f64| {
                let apart = a.iter().enumerate().map(|(i, a)| (a - b(i)).powi(2));
                apart.sum::<f64>() / a.len() as f64
            };
            let errors = &mut all[place];
            errors.predicted += mean(&predicted.values, &|i| exact.values[i]);
            errors.found += mean(&encrypted.values, &|i| exact.values[i]);
            errors.size += mean(&exact.values, &|_| 0.0);
            errors.results += 1;
        }
        for errors in &mut all {
            for sum in [&mut errors.predicted, &mut errors.found, &mut errors.size] {
                *sum = (*sum / errors.results as f64).sqrt();
            }
        }
        all
    }
}

/// Runs a computation on `sent`, encrypted with `limbs` primes, on one thread: results come in the same order.
pub(crate) fn interpreted(
    params: &Arc<CkksParams>,
    computation: &(impl Computation + Sync),
    sent: &[Vec<f64>],
    limbs: usize,
) -> Interpreted {
    let alone = rayon::ThreadPoolBuilder::new().num_threads(1).build();
    alone.unwrap().install(|| {
        let slots = params.slots();
        let simulated = |on: &Simulator, sent: &[Vec<f64>]| {
            let vectors = sent.iter().map(|v| on.vector(v.clone(), limbs).unwrap());
            let vectors: Vec<Vector> = vectors.collect();
            given(on, &|v: &Vector| v.values().to_vec(), computation, vectors)
        };
        let on = Simulator::new(params, slots).unwrap();
        simulated(&on, sent);
        let demand = KeyDemand::of(params, &on.tally().counts());
        let mut keys = Keys::new(params, |b| demand.specs(params, b).unwrap());
        let deviation = keys.refresh_deviation();
        println!("deviation of a bootstrap: {deviation:.2e}");
        let sent: Vec<_> = sent.iter().map(|v| keys.encrypt(v, limbs)).collect();
        // Simulations begin with what the ciphertexts hold, as they have no errors of encryption.
        let held: Vec<Vec<f64>> = sent.iter().map(|ct| keys.open(ct)).collect();
        let noisy = Simulator::new(params, slots).unwrap().with_errors(5);
        let noisy = noisy.with_refresh_deviation(deviation);
        Interpreted {
            exact: simulated(&on, &held),
            predicted: simulated(&noisy, &held),
            encrypted: given(&keys.on, &|ct| keys.open(ct), computation, sent),
        }
    })
}

/// What a computation gives, step by step.
fn given<S: Slots>(
    on: &S,
    open: &(dyn Fn(&S::Value) -> Vec<f64> + Sync),
    computation: &impl Computation,
    sent: Vec<S::Value>,
) -> Vec<Given> {
    let opened = Opened::new(on, open);
    let results = computation.run(&opened, sent).unwrap();
    let results = results.iter().map(|v| Given { at: StepId::outside("result"), by: "result", values: open(v) });
    let results: Vec<Given> = results.collect();
    let mut given = opened.into_given();
    given.extend(results);
    given
}
