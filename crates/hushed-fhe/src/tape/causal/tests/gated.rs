//! The gated feed-forward of a decoder, with a ternary last map and with a norm before it: against its formula,
//! simulated with errors, and under a key.

use std::sync::Arc;

use hushed_model::{Activation, FeedForward, Linear, NetworkConfig, Norm, StepId};

use super::interpreted::{Computation, interpreted};
use super::{alone, config, network, test_params};
use crate::ops::norm::root_levels;
use crate::packing::Interleave;
use crate::run::encrypted::testing::{random, seeded};
use crate::slots::Slots;
use crate::tape::causal::norm::RmsNorm;
use crate::tape::causal::paired::Vectors;
use crate::tape::causal::sums::{Form, Last, Sums};
use crate::tape::feed_forward::{FeedForwardBlock, feed_forward};
use crate::tape::run::Inputs;
use crate::{ActivationChoice, FheError, Interval, NormChoice};

const AT: StepId = StepId::outside("feed_forward");

struct Gated {
    block: FeedForward,
    gain: Vec<f64>,
    choice: ActivationChoice,
    inside: Option<(Norm, NormChoice)>,
    bound: f64,
}

impl Computation for Gated {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let refresh = AT.part("refresh");
        on.at(refresh);
        let columns = on.refresh(refresh, sent, on.top())?;
        let inside = self.inside.as_ref();
        let norm = inside.map(|(norm, choice)| RmsNorm { at: AT.part("sub_norm"), norm, choice });
        let texts = (Interleave::new(on.slots(), 1)?, 1);
        let y = alone(on, texts, Inputs::<S>::from([("x", columns)]), |t, _| {
            let (node, offset) = (t.input("x", self.gain.len()), vec![0.0; self.gain.len()]);
            let form = Form::down(&self.block);
            let down = Last::divided(on, AT.part("down"), &self.block.down, (self.bound, norm.as_ref()), form)?;
            let sums = Sums::new(t, down, norm);
            let layer = FeedForwardBlock { at: AT, block: &self.block, choice: &self.choice, hidden: 16 };
            feed_forward(t, on, (Vectors { node, paired: false }, (&self.gain, &offset)), &layer, sums)
        })?;
        // Maps, degree 31, gate; the last map is ternary; a norm inside multiplies by a root.
        let products = on.top() - 1 - 5 - 1;
        let limbs = inside.map_or(products, |(_, choice)| products.min(on.top() - root_levels(choice).unwrap()) - 1);
        for y in &y {
            assert_eq!(on.limbs(y), limbs);
            assert!(on.scale(y).matches(on.default_scale()));
        }
        Ok(y)
    }
}

fn times(w: &Linear, x: &[f64]) -> Vec<f64> {
    let weights = w.weights.as_ref().unwrap();
    let row = |o| weights.row(o).iter().zip(x).map(|(&w, x)| f64::from(w) * x);
    (0..w.outputs).map(|o| row(o).sum()).collect()
}

/// An interval around what each column has.
fn intervals(rows: &[Vec<f64>]) -> ActivationChoice {
    let column = |h: usize| {
        let all = rows.iter().map(|row| row[h]);
        let interval = Interval { low: all.clone().fold(0.0, f64::min) - 0.25, high: all.fold(0.0, f64::max) + 0.25 };
        interval.into()
    };
    ActivationChoice { degree: 31, columns: (0..rows[0].len()).map(column).collect() }
}

#[test]
fn gates_are_those_of_the_formula_and_err_as_predicted() {
    for (activation, inside) in [(Activation::Silu, false), (Activation::Relu2, false), (Activation::Relu2, true)] {
        gated(activation, inside);
    }
}

fn gated(activation: Activation, inside: bool) {
    let params = test_params();
    let config = NetworkConfig { activation, sub_norms: inside, ..config(2, 2) };
    let mut network = network(&config, 8);
    let block = network.layers[0].feed_forward.feed_forward_mut().unwrap();
    if let Some(norm) = &mut block.sub_norm {
        norm.gain = Some(Arc::from(vec![1.0; norm.width]));
    }
    let mut rng = seeded(21);
    let sent: Vec<Vec<f64>> = (0..16).map(|_| random(&mut rng, params.slots())).collect();
    let gain: Vec<f64> = (0..16).map(|j| 1.5 + 0.05 * f64::from(j)).collect();
    // By the formula, slot by slot.
    let row = |s: usize| -> Vec<f64> { (0..16).map(|j| gain[j] * sent[j][s]).collect() };
    let rows: Vec<Vec<f64>> = (0..params.slots()).map(row).collect();
    let gate = block.gate.as_ref().unwrap();
    let gates: Vec<Vec<f64>> = rows.iter().map(|x| times(gate, x)).collect();
    let f = |g: f64| match activation {
        Activation::Silu => g / (1.0 + (-g).exp()),
        _ => g.max(0.0) * g.max(0.0),
    };
    let hidden = |(x, gates): (&Vec<f64>, &Vec<f64>)| -> Vec<f64> {
        let up = times(&block.up, x);
        gates.iter().zip(up).map(|(&g, up)| f(g) * up).collect()
    };
    let hidden: Vec<Vec<f64>> = rows.iter().zip(&gates).map(hidden).collect();
    let square = |z: &[f64]| z.iter().map(|z| z * z).sum::<f64>();
    let epsilon = block.sub_norm.as_ref().map(|norm| norm.epsilon);
    let normed = |z: &Vec<f64>| {
        let root = epsilon.map_or(1.0, |e| (square(z) / z.len() as f64 + e).sqrt());
        times(&block.down, &z.iter().map(|z| z / root).collect::<Vec<_>>())
    };
    let expected: Vec<Vec<f64>> = hidden.iter().map(normed).collect();
    let most = expected.iter().flatten().fold(0.0_f64, |m, y| m.max(y.abs()));
    let squares = hidden.iter().map(|z| square(z));
    let (least, greatest) = squares.fold((f64::INFINITY, 0.0), |(a, b), v| (v.min(a), v.max(b)));
    let choice = NormChoice {
        scale: (1.5 * greatest).sqrt().recip(),
        low: least / greatest / 2.0,
        bound: 4.0,
        seed: 15,
        steps: 2,
    };
    println!("squares {least:.1e} to {greatest:.1e}, results to {most:.1e}");
    let gated = Gated {
        choice: intervals(&gates),
        inside: block.sub_norm.clone().map(|norm| (norm, choice)),
        block: block.clone(),
        gain,
        bound: 1.5 * most,
    };
    let found = interpreted(&params, &gated, &sent, params.bootstrap_limbs());
    found.assert_as_predicted();
    assert_eq!(found.exact("feed_forward.down", "ternary").len(), 16);
    let results = found.exact("result", "result");
    let mut worst = 0.0_f64;
    for (s, expected) in expected.iter().enumerate() {
        for (y, found) in expected.iter().zip(&results) {
            worst = worst.max((gated.bound * found[s] - y).abs() / most);
        }
    }
    println!("{activation:?}, a norm inside {inside}: {worst:.1e}");
    // The second derivative of squared ReLU jumps, so a polynomial is farther from it; and short rows grow in a norm.
    let tolerance = match activation {
        // Weights have 24 bits.
        Activation::Silu => 1e-6,
        _ if inside => 3e-2,
        _ => 3e-3,
    };
    assert!(worst < tolerance, "{worst:e}");
}
