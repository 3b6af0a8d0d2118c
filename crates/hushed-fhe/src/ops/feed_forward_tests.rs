use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::plain::activation as exact;
use hushed_model::testing::tiny_config;
use hushed_model::{Linear, Pool, random_network};

use super::*;
use crate::NormChoice;
use crate::ops::norm::centred_scale;
use crate::simulate::{Op, Vector};
use crate::{Interval, Simulator};

const SLOTS: usize = 64;

fn apply(w: &Linear, x: &[f64]) -> Vec<f64> {
    let (weights, bias) = (w.weights.as_deref().unwrap(), w.bias.as_deref().unwrap());
    let dot = |o: usize| -> f64 {
        let products = weights.row(o).iter().zip(x).map(|(&w, x)| f64::from(w) * x);
        f64::from(bias[o]) + products.sum::<f64>()
    };
    (0..w.outputs).map(dot).collect()
}

fn number(i: usize, j: usize) -> f64 {
    let x = ((i * 7919 + j * 104_729 + 31) % 65_521) as f64 / 65_521.0;
    2.0 * x - 1.0
}

/// Blocks of any size give the result of the definition with the same operations; smaller ones hold less.
#[test]
fn blocks_of_hidden_columns_agree() {
    let network = random_network(&tiny_config(), Pool::Mean, 3);
    let f = network.layers[0].feed_forward.feed_forward().unwrap();
    let (d, hidden) = (f.up.inputs, f.up.outputs);
    let on = Simulator::new(&CkksParams::insecure_test(10, 10).unwrap(), SLOTS).unwrap();
    let at = StepId::outside("layer.0.feed_forward");
    let vectors: Vec<Vec<f64>> = (0..d).map(|j| (0..SLOTS).map(|s| number(s, j)).collect()).collect();
    let x = Acts {
        columns: vectors.iter().map(|v| on.vector(v.clone(), on.top()).unwrap()).collect(),
        gain: (0..d).map(|j| 1.0 + number(1, j)).collect(),
        offset: (0..d).map(|j| number(2, j)).collect(),
    };
    // By the definition, slot by slot.
    let row = |s: usize| -> Vec<f64> {
        let value = |j: usize| x.gain[j] * vectors[j][s] + x.offset[j];
        (0..d).map(value).collect()
    };
    let arguments: Vec<Vec<f64>> = (0..SLOTS).map(|s| apply(&f.up, &row(s))).collect();
    let interval = |h: usize| {
        let all = arguments.iter().map(|row| row[h]);
        Interval {
            low: all.clone().fold(f64::INFINITY, f64::min) - 0.1,
            high: all.fold(f64::NEG_INFINITY, f64::max) + 0.1,
        }
    };
    let choice = ActivationChoice { degree: 31, columns: (0..hidden).map(|h| interval(h).into()).collect() };
    let norm = NormChoice { scale: 0.02, low: 0.1, bound: 5.0, seed: 15, steps: 1 };
    let expected: Vec<Vec<f64>> = arguments
        .iter()
        .map(|row| {
            let row: Vec<f64> = row.iter().map(|&v| exact(f.activation, v)).collect();
            let y = apply(&f.down, &row);
            let mean = y.iter().sum::<f64>() / y.len() as f64;
            y.iter().map(|v| norm.scale * (v - mean)).collect()
        })
        .collect();
    let mut seen: Option<(u64, Vec<u64>)> = None;
    for block in [hidden, 24, 7, 1] {
        on.tally().reset();
        let polynomials = Polynomials::default();
        let layer = FeedForwardLayer {
            at,
            block: f,
            choice: &choice,
            sub_norm: None,
            after: After::Norm(&norm),
            hidden_block: block,
            paired: false,
            polynomials: &polynomials,
        };
        let out = feed_forward(&on, &x, &layer).unwrap();
        for (j, column) in out.iter().enumerate() {
            assert_eq!(on.limbs(column), on.top() - 7);
            let scale = centred_scale(&on, on.limbs(column)).unwrap();
            assert!(on.scale(column).matches(scale));
            for (s, v) in column.values().iter().enumerate() {
                assert!((v - expected[s][j]).abs() < 1e-6, "{v} {}", expected[s][j]);
            }
        }
        let counts = on.tally().counts();
        assert!(counts.rotations.is_empty());
        let done = [Op::Relinearise, Op::Rescale, Op::LinearTerm].map(|op| counts.total(op));
        if let Some((peak, before)) = &seen {
            assert_eq!(*before, done);
            assert!(counts.peak() < *peak);
        }
        seen = Some((counts.peak(), done.to_vec()));
    }
}

#[test]
fn refusals() {
    let network = random_network(&tiny_config(), Pool::Mean, 3);
    let f = network.layers[0].feed_forward.feed_forward().unwrap();
    let on = Simulator::new(&CkksParams::insecure_test(10, 10).unwrap(), SLOTS).unwrap();
    let at = StepId::outside("layer.0.feed_forward");
    let column = |limbs: usize| -> Vector { on.vector(vec![0.0; SLOTS], limbs).unwrap() };
    let norm = NormChoice { scale: 0.02, low: 0.1, bound: 5.0, seed: 15, steps: 1 };
    let run = |columns: usize, limbs: usize, intervals: usize| {
        let x = Acts::from_client(vec![column(limbs); columns], 1.0);
        let choice =
            ActivationChoice { degree: 15, columns: vec![Interval { low: -1.0, high: 1.0 }.into(); intervals] };
        let polynomials = Polynomials::default();
        let layer = FeedForwardLayer {
            at,
            block: f,
            choice: &choice,
            sub_norm: None,
            after: After::Norm(&norm),
            hidden_block: 8,
            paired: false,
            polynomials: &polynomials,
        };
        feed_forward(&on, &x, &layer)
    };
    let (d, hidden) = (f.up.inputs, f.up.outputs);
    assert!(run(d, on.top(), hidden).is_ok());
    assert!(run(d - 1, on.top(), hidden).is_err());
    assert!(run(d, on.top(), hidden - 1).is_err());
    assert!(run(d, 6, hidden).is_err());
}
