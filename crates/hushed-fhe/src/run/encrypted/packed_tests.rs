//! A layer's attention in packed rows beside softmax(Q·Kᵀ/√dh)·V·W in f64: two texts, all slots, all heads.

use hushed_ckks::{Ciphertext, CkksParams};
use hushed_model::StepId;

use super::testing::{Keys, distance};
use crate::KeyDemand;
use crate::choices::{AttentionChoice, HeadChoice, Interval};
use crate::ops::attention::packed::{PackedAttention, PackedWeights};
use crate::ops::softmax::Softmax;
use crate::packing::Layout;
use crate::packing::heads::Heads;
use crate::simulate::{Op, Simulator};
use crate::slots::Slots;
use crate::splitmix::SplitMix;

const ROWS: usize = 16;
const PLACES: usize = 32;
const WIDTH: usize = 2 * PLACES;
const HEAD: usize = 16;

fn random(seed: u64, count: usize, size: f64) -> Vec<f64> {
    let mut rng = SplitMix(seed);
    let one = |_| size * ((rng.next() >> 11) as f64 / (1u64 << 52) as f64 - 1.0);
    (0..count).map(one).collect()
}

struct Setting {
    layout: Layout,
    weights: Vec<Vec<f64>>,
    softmax: Softmax,
    /// Both columns of the pairs.
    x: [Vec<f64>; 2],
}

impl Setting {
    fn new(slots: usize) -> Setting {
        // Scores within 4 or so.
        let size = 1.5 / (WIDTH as f64).sqrt();
        let weights = (0..4).map(|i| random(i + 1, WIDTH * WIDTH, 2.0 * size));
        let choice = AttentionChoice {
            degree: 15,
            first_steps: 7,
            second_steps: 5,
            heads: vec![HeadChoice::Softmax {
                scores: Interval {
                    low: -7.0,
                    high: 7.0,
                },
                least_maximum: 0.0,
                first: Interval {
                    low: 0.1,
                    high: 2.5,
                },
                second: Interval {
                    low: 0.05,
                    high: 1.05,
                },
            }],
        };
        Setting {
            layout: Layout::new(slots, ROWS, PLACES).unwrap(),
            weights: weights.collect(),
            softmax: Softmax::new(&choice.heads[0], &choice).unwrap(),
            x: [8, 9].map(|seed| random(seed, slots, 1.0)),
        }
    }

    fn run<S: Slots>(&self, on: &S, x: [S::Value; 2]) -> Vec<S::Value> {
        let attention = PackedAttention {
            heads: Heads::new(self.layout, HEAD / 2, 2, 4).unwrap(),
            head_width: HEAD,
            columns: self.layout.spread(WIDTH, HEAD / 2).unwrap(),
            weights: PackedWeights {
                query: &self.weights[0],
                key: &self.weights[1],
                value: &self.weights[2],
                output: &self.weights[3],
            },
            softmax: &self.softmax,
            statistics: on.top(),
        };
        let [a, b] = x;
        let at = StepId::outside("attention");
        let out = attention.run(on, at, on.pair(a, b).unwrap()).unwrap();
        on.parts(&out).unwrap().into()
    }

    /// Both columns of the pairs of the result, by its definition, and the range of the scores.
    fn expected(&self) -> ([Vec<f64>; 2], f64) {
        let layout = self.layout;
        let mut out = [(); 2].map(|()| vec![0.0; layout.slots()]);
        let mut widest = 0.0_f64;
        for text in 0..layout.texts() {
            let x: Vec<Vec<f64>> = (0..ROWS)
                .map(|row| {
                    let entry = |c: usize| self.x[c % 2][layout.slot(text, row, c / 2)];
                    (0..WIDTH).map(entry).collect()
                })
                .collect();
            let times = |x: &[Vec<f64>], w: &[f64]| -> Vec<Vec<f64>> {
                let row = |x: &Vec<f64>| -> Vec<f64> {
                    let rows = w.chunks(WIDTH);
                    rows.map(|w| w.iter().zip(x).map(|(w, x)| w * x).sum())
                        .collect()
                };
                x.iter().map(row).collect()
            };
            let [q, k, v] = [0, 1, 2].map(|i| times(&x, &self.weights[i]));
            let mut attended = vec![vec![0.0; WIDTH]; ROWS];
            for head in (0..WIDTH).step_by(HEAD) {
                for (q, out) in q.iter().zip(&mut attended) {
                    let score = |k: &Vec<f64>| -> f64 {
                        let terms = (head..head + HEAD).map(|c| q[c] * k[c]);
                        terms.sum::<f64>() / (HEAD as f64).sqrt()
                    };
                    let scores: Vec<f64> = k.iter().map(score).collect();
                    widest = scores.iter().fold(widest, |m, s| m.max(s.abs()));
                    let all: f64 = scores.iter().map(|s| s.exp()).sum();
                    for (s, v) in scores.iter().zip(&v) {
                        for c in head..head + HEAD {
                            out[c] += s.exp() / all * v[c];
                        }
                    }
                }
            }
            for (row, values) in times(&attended, &self.weights[3]).iter().enumerate() {
                for (c, value) in values.iter().enumerate() {
                    out[c % 2][layout.slot(text, row, c / 2)] = *value;
                }
            }
        }
        (out, widest)
    }
}

/// Simulated and encrypted: the model's attention, and what was counted is what was done.
#[test]
fn attention_of_packed_rows_is_that_of_the_model() {
    let params = CkksParams::insecure_test(11, 14).unwrap();
    let setting = Setting::new(params.slots());
    assert_eq!(setting.layout.texts(), 2);
    let (expected, widest) = setting.expected();
    assert!(widest < 7.0, "scores of up to {widest}");
    let on = Simulator::new(&params, params.slots())
        .unwrap()
        .with_errors(3);
    let x = [0, 1].map(|i| on.vector(setting.x[i].clone(), on.top()).unwrap());
    let simulated = setting.run(&on, x);
    for (found, expected) in simulated.iter().zip(&expected) {
        let error = distance(found.values(), expected);
        assert!(error < 2e-2, "simulated: {error}");
    }
    let counts = on.tally().counts();
    // Σp and Σe: all heads of all texts in one vector each.
    assert_eq!(counts.total(Op::Bootstrap), 2);

    let demand = KeyDemand::of(&params, &counts);
    let mut keys = Keys::new(&params, |bootstrap| {
        demand.plan(&params, bootstrap).unwrap()
    });
    let limbs = keys.on.top();
    let x: [Ciphertext; 2] = [0, 1].map(|i| keys.encrypt(&setting.x[i], limbs));
    keys.on.evaluator().counters().reset();
    let found = setting.run(&keys.on, x);
    for ((found, simulated), expected) in found.iter().zip(&simulated).zip(&expected) {
        let found = keys.open(found);
        let error = distance(&found, expected);
        assert!(error < 2e-2, "encrypted: {error}");
        // The polynomials err most; beside the simulation, which has the same, little is left.
        let apart = distance(&found, simulated.values());
        assert!(apart < 2e-3, "encrypted beside simulated: {apart}");
    }
    assert_eq!(keys.on.evaluator().counters().snapshot().bootstrap, 2);
}
