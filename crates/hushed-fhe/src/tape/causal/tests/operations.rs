//! A decoder's operations, each alone with random numbers in all slots: against its formula, simulated with errors, and
//! under a key.

use std::sync::Arc;

use hushed_model::{Attention, Linear, Norm, NormKind, StepId, Weigh};

use super::interpreted::{Computation, interpreted};
use super::{ROWS, alone, config, network, test_params};
use crate::choices::{ScoresChoice, fits};
use crate::ops::norm::root_levels;
use crate::packing::Interleave;
use crate::plan::placement::Placement;
use crate::run::encrypted::testing::{random, seeded};
use crate::slots::Slots;
use crate::tape::Plain;
use crate::tape::causal::attention::{CausalBlock, weights_alone};
use crate::tape::causal::norm::rms_norm;
use crate::tape::causal::sums::{Form, Last, Sums};
use crate::tape::run::Inputs;
use crate::{Acts, FheError, Interval, NormChoice, SigmoidChoice};

const D: usize = 16;

fn columns(count: usize, size: f64, seed: u64) -> Vec<Vec<f64>> {
    let (slots, mut rng) = (test_params().slots(), seeded(seed));
    let column = |_| random(&mut rng, slots).iter().map(|v| size * v).collect();
    (0..count).map(column).collect()
}

/// The largest difference.
fn apart(found: &[&[f64]], expected: &[Vec<f64>]) -> f64 {
    assert_eq!(found.len(), expected.len());
    let both = found.iter().zip(expected);
    let both = both.flat_map(|(a, b)| a.iter().zip(b));
    both.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// An RMSNorm of x = bound·u, whose columns begin with `limbs` primes.
struct Normed {
    norm: Norm,
    choice: NormChoice,
    bound: f64,
    limbs: usize,
}

impl Computation for Normed {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let at = StepId::outside("norm");
        on.at(at);
        let x = Acts::over(sent, D, self.bound).cut(on, self.limbs)?;
        let y = rms_norm(on, at, x, &self.norm, &self.choice, on.top())?;
        let gains = self.norm.gain.as_ref().unwrap().iter();
        let gains = gains.map(|&g| f64::from(g) * self.choice.bound);
        assert!(y.gain == gains.collect::<Vec<_>>() && y.offset == [0.0; D]);
        for y in &y.columns {
            assert_eq!(on.limbs(y), self.limbs - 1);
        }
        Ok(y.columns)
    }
}

/// x̂/bound, with the root refreshed again where the columns are above it, and as it comes where they are below.
#[test]
fn a_root_mean_square_norm_is_its_formula_and_errs_as_predicted() {
    let params = test_params();
    let (mut sent, bound, epsilon) = (columns(D, 1.0, 31), 6.0, 1e-3);
    // Rows of different lengths.
    let size = |slot: usize| 0.4 + 0.6 * ((slot * 37 % 101) as f64 / 100.0);
    for column in &mut sent {
        let slots = column.iter_mut().enumerate();
        slots.for_each(|(slot, u)| *u *= size(slot));
    }
    let root = |slot: usize| {
        let squares = sent.iter().map(|u| (bound * u[slot]).powi(2));
        (squares.sum::<f64>() / D as f64 + epsilon).sqrt()
    };
    let normed = |u: &Vec<f64>| {
        let slots = u.iter().enumerate();
        slots.map(|(slot, u)| bound * u / root(slot) / 4.0).collect()
    };
    let expected: Vec<Vec<f64>> = sent.iter().map(normed).collect();
    let choice = NormChoice { scale: 1.0 / (bound * (D as f64).sqrt()), low: 0.02, bound: 4.0, seed: 15, steps: 1 };
    let low = params.bootstrap_limbs() + 2;
    for (limbs, again) in [(params.fresh_limbs(), true), (low, false)] {
        let normed = Normed {
            norm: Norm {
                kind: NormKind::RmsNorm,
                width: D,
                epsilon,
                reach: None,
                gain: Some((0..16).map(|j| 0.8 + 0.03 * j as f32).collect()),
                offset: Some(Arc::from([0.0; D])),
            },
            choice: choice.clone(),
            bound,
            limbs,
        };
        assert_eq!(params.fresh_limbs() - root_levels(&choice).unwrap() < limbs, again);
        let found = interpreted(&params, &normed, &sent, params.fresh_limbs());
        found.assert_as_predicted();
        assert_eq!(found.exact("norm", "refresh").len(), 1);
        assert_eq!(found.exact("norm.root", "refresh").len(), usize::from(again));
        let worst = apart(&found.exact("result", "result"), &expected);
        println!("{limbs} primes: {worst:.1e}");
        assert!(worst < 1e-3, "{worst:e}");
    }
}

/// The scores of one head: queries and conjugate keys are given in pairs, as the maps before would give them.
struct Scores {
    block: Attention,
    choice: ScoresChoice,
}

impl Computation for Scores {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let (at, block, choice) = (StepId::outside("attention"), &self.block, &self.choice);
        let layer = CausalBlock { at, block, choice, sub_norm: None, bound: 8.0, together: 1 };
        let raw = sent.iter().map(|v| on.drop_to(v, on.top() - 1));
        let raw = raw.collect::<Result<Vec<_>, _>>()?;
        let (queries, keys) = raw.split_at(8);
        let rope = self.block.rope.unwrap();
        let (mut paired, mut conjugate) = (Vec::new(), Vec::new());
        for (a, b) in (0..4).map(|i| rope.pair(i, 8)) {
            paired.push(on.pair(queries[a].clone(), queries[b].clone())?);
            conjugate.push(on.pair_conjugate(keys[a].clone(), keys[b].clone())?);
        }
        let texts = (Interleave::new(on.slots(), ROWS)?, Placement::plain(on.top(), ROWS, 8).scores_baby);
        alone(on, texts, Inputs::<S>::from([("queries", paired), ("keys", conjugate)]), |t, f| {
            let both = [t.input("queries", 4), t.input("keys", 4)];
            weights_alone(t, on, f, &layer, (1, both))
        })
    }
}

/// Scores of keys up to the query are those of rotated columns, all others are 0, and so are the weights of those.
/// Diagonal j = ab + r is in the frame of ab: in row u for the query u − ab and the key u + r.
#[test]
fn turned_causal_scores_are_their_formula_and_err_as_predicted() {
    let params = test_params();
    let interval = Interval::from([-3.0, 3.0]);
    let block = network(&config(2, 1), 8).layers[0].attention.clone();
    let (Weigh::Sigmoid { bias }, Some(rope)) = (block.weigh, block.rope) else {
        panic!("another block");
    };
    let sent = columns(D, 0.3, 32);
    let layout = Interleave::new(params.slots(), ROWS).unwrap();
    let baby = Placement::plain(1, ROWS, 8).scores_baby;
    assert!(baby > 1 && baby < ROWS);
    let turned = |columns: &[Vec<f64>], text: usize, row: usize| -> Vec<f64> {
        let slot = layout.slot(text, row);
        let mut turned = vec![0.0; 8];
        for i in 0..4 {
            let angle = row as f64 * rope.theta.powf(-(i as f64) / 4.0);
            let (a, b) = (columns[i][slot], columns[i + 4][slot]);
            turned[i] = a * angle.cos() - b * angle.sin();
            turned[i + 4] = a * angle.sin() + b * angle.cos();
        }
        turned
    };
    let (mut scores, mut weights) = (Vec::new(), Vec::new());
    for j in 0..ROWS {
        let (giant, r) = (j / baby * baby, j % baby);
        let mut of = [vec![0.0; params.slots()], vec![0.0; params.slots()]];
        for text in 0..layout.texts() {
            for u in 0..ROWS {
                let (query, key) = ((u + ROWS - giant) % ROWS, (u + r) % ROWS);
                if key > query {
                    continue;
                }
                let (q, k) = (turned(&sent[..8], text, query), turned(&sent[8..], text, key));
                let score: f64 = q.iter().zip(&k).map(|(q, k)| q * k).sum();
                let slot = layout.slot(text, u);
                of[0][slot] = score;
                let half = fits::masked(interval).half();
                of[1][slot] = 1.0 / (1.0 + (-half * score - bias).exp());
            }
        }
        let [s, p] = of;
        scores.push(s);
        weights.push(p);
    }
    let computation =
        Scores { block, choice: ScoresChoice::Sigmoid(SigmoidChoice { degree: 31, heads: vec![interval; 2] }) };
    let found = interpreted(&params, &computation, &sent, params.fresh_limbs());
    found.assert_as_predicted();
    let worst = apart(&found.exact("attention.scores", "real"), &scores);
    println!("scores {worst:.1e}");
    assert!(worst < 1e-8, "{worst:e}");
    let worst = apart(&found.exact("result", "result"), &weights);
    println!("weights {worst:.1e}");
    assert!(worst < 1e-4, "{worst:e}");
}

/// A ternary last map of products, whose scale is chosen so that the result is W·z/bound at the default scale.
struct Mapped {
    w: Linear,
    bound: f64,
    factors: Vec<Vec<f64>>,
}

impl Computation for Mapped {
    fn run<S: Slots>(&self, on: &S, sent: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let at = StepId::outside("output");
        let limbs = on.limbs(&sent[0]) - 1;
        let form = Form::last(&self.w, None, true);
        assert_eq!(form, Some(Form::Ternary));
        let last = Last::divided(on, at, &self.w, (self.bound, None), form)?;
        let texts = (Interleave::new(on.slots(), 1)?, 1);
        let y = alone(on, texts, Inputs::<S>::from([("x", sent)]), |t, _| {
            let x = t.input("x", D);
            t.at(at);
            let factor = |v: &Vec<f64>| {
                let v = v.clone();
                Plain::Numbers(Arc::new(move || v.clone()))
            };
            let z = t.mul_vectors(x, self.factors.iter().map(factor).collect());
            let mut sums = Sums::new(t, last, None);
            for columns in [0..5, 5..D] {
                let part = t.cut(z, columns.clone());
                sums.add(t, columns, part);
            }
            sums.finish(t, on)
        })?;
        for y in &y {
            assert_eq!(on.limbs(y), limbs);
            assert!(on.scale(y).matches(on.default_scale()));
        }
        Ok(y)
    }
}

#[test]
fn a_ternary_map_takes_no_level_and_errs_as_predicted() {
    let params = test_params();
    let (sent, factors) = (columns(D, 1.0, 33), columns(D, 1.0, 34));
    let w = network(&config(2, 2), 8).layers[0].attention.output.clone();
    let weights = w.weights.clone().unwrap();
    let bound = 9.0;
    let row = |o: usize| -> Vec<f64> {
        let one = |s: usize| {
            let products = (0..D).map(|j| f64::from(weights.row(o)[j]) * sent[j][s] * factors[j][s]);
            products.sum::<f64>() / bound
        };
        (0..params.slots()).map(one).collect()
    };
    let expected: Vec<Vec<f64>> = (0..D).map(row).collect();
    let mapped = Mapped { w, bound, factors };
    let found = interpreted(&params, &mapped, &sent, params.bootstrap_limbs() + 1);
    found.assert_as_predicted();
    let worst = apart(&found.exact("result", "result"), &expected);
    println!("{worst:.1e}");
    assert!(worst < 1e-8, "{worst:e}");
}
