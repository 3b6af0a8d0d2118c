//! The attention of a layer by itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::poly::Arithmetic;
use hushed_model::plain::{self, PlainActs};
use hushed_model::{Attention, Heads, Linear, Mask, Matrix, Queries, Rows, StepId, Weigh};

use crate::choices::{AttentionChoice, HeadChoice};
use crate::ops::attention::Maps;
use crate::packing::Interleave;
use crate::simulate::{Op, Simulator, Vector};
use crate::tape::attention::{AttentionBlock, attention};
use crate::tape::encoder::COLUMNS;
use crate::tape::layout::{Columns, Hidden, hidden};
use crate::tape::levels::{Heights, Outputs};
use crate::tape::record::Recorder;
use crate::tape::run::{Inputs, computed};
use crate::tape::{Tape, Texts};
use crate::testing::alone;
use crate::{FheError, Interval, Slots, token_rows};

const D: usize = 12;
const HEADS: usize = 3;
const DH: usize = 4;
const SLOTS: usize = 32;
const KAPPA: f64 = 0.05;

/// Reproducible numbers in (−1, 1).
fn number(i: usize, j: usize) -> f64 {
    let x = (i as u64 * 7919 + j as u64 * 104_729 + 12_345).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    2.0 * ((x >> 11) as f64 / (1u64 << 53) as f64) - 1.0
}

fn linear(seed: usize, size: f64) -> Linear {
    let weights = (0..D * D).map(|i| (size * number(i, seed)) as f32);
    Linear {
        inputs: D,
        outputs: D,
        weights: Matrix::new(D, D, weights.collect()).map(Arc::new),
        bias: Some((0..D).map(|i| 0.4 * number(i, seed + 50) as f32).collect()),
        stored: None,
        ternary: false,
    }
}

fn layer() -> Attention {
    Attention {
        query: linear(1, 1.1),
        key: linear(2, 1.1),
        value: linear(3, 0.7),
        query_norm: None,
        key_norm: None,
        sub_norm: None,
        output: linear(4, 0.5),
        heads: Heads { count: HEADS, keys: HEADS, width: DH, scale: 0.5 },
        rope: None,
        distances: None,
        weigh: Weigh::Softmax,
        mask: Mask::Full,
        queries: Queries::All,
    }
}

/// Row `row` of text `text`, in the vectors that a layer reads.
fn entry(text: usize, row: usize, column: usize) -> f64 {
    number(text * 100 + row, column + 300)
}

fn gain() -> Vec<f64> {
    (0..D).map(|j| 1.3 + 0.4 * number(j, 7)).collect()
}

fn offset() -> Vec<f64> {
    (0..D).map(|j| 0.3 * number(j, 8)).collect()
}

/// The rows of a text in the model, including gain and offset.
fn text(text: usize, length: usize) -> Matrix<f64> {
    let (gain, offset) = (gain(), offset());
    let data = (0..length).flat_map(|row| {
        let value = |j: usize| gain[j] * entry(text, row, j) + offset[j];
        (0..D).map(value).collect::<Vec<_>>()
    });
    Matrix::new(length, D, data.collect()).unwrap()
}

fn apply(w: &Linear, x: &[f64]) -> Vec<f64> {
    let (weights, bias) = (w.weights.as_ref().unwrap(), w.bias.as_ref().unwrap());
    let row = |o: usize| {
        let terms = weights.row(o).iter().zip(x).map(|(&w, x)| f64::from(w) * x);
        f64::from(bias[o]) + terms.sum::<f64>()
    };
    (0..w.outputs).map(row).collect()
}

/// κ·(y − mean) of the attention of one text in the clear, with the fixed pattern for the heads in `fixed`.
fn expected(x: &Matrix<f64>, fixed: &[usize]) -> Vec<Vec<f64>> {
    let layer = layer();
    let all = |w: &Linear| (0..x.rows()).map(|i| apply(w, x.row(i))).collect::<Vec<_>>();
    let (q, k, v) = (all(&layer.query), all(&layer.key), all(&layer.value));
    let attend = |i: usize| {
        let head = |h: usize| {
            let range = h * DH..(h + 1) * DH;
            let weights: Vec<f64> = if fixed.contains(&h) {
                (0..x.rows()).map(|j| f64::from(u8::from(j == i.saturating_sub(1)))).collect()
            } else {
                let score = |k: &Vec<f64>| {
                    let terms = q[i][range.clone()].iter().zip(&k[range.clone()]);
                    (0.5 * terms.map(|(q, k)| q * k).sum::<f64>()).exp()
                };
                let e: Vec<f64> = k.iter().map(score).collect();
                e.iter().map(|x| x / e.iter().sum::<f64>()).collect()
            };
            range.map(|c| weights.iter().zip(&v).map(|(w, v)| w * v[c]).sum::<f64>()).collect::<Vec<_>>()
        };
        let o: Vec<f64> = (0..HEADS).flat_map(head).collect();
        centre(&apply(&layer.output, &o))
    };
    (0..x.rows()).map(attend).collect()
}

fn centre(y: &[f64]) -> Vec<f64> {
    let mean = y.iter().sum::<f64>() / D as f64;
    y.iter().map(|y| KAPPA * (y - mean)).collect()
}

/// The intervals of these texts with margins, including queries of padding.
fn choice(texts: &[Matrix<f64>], fixed: &[usize]) -> AttentionChoice {
    let layer = layer();
    let (gain, offset) = (gain(), offset());
    let heads = (0..HEADS).map(|h| {
        if fixed.contains(&h) {
            return HeadChoice::Previous;
        }
        let range = h * DH..(h + 1) * DH;
        let mut rows: Vec<Vec<f64>> = Vec::new();
        for x in texts {
            let keys: Vec<Vec<f64>> = (0..x.rows())
                .map(|i| {
                    let less = x.row(i).iter().zip(&offset).map(|(x, o)| x - o);
                    let bias = apply(&layer.key, &[0.0; D]);
                    let k = apply(&layer.key, &less.collect::<Vec<_>>());
                    k.iter().zip(&bias).map(|(k, b)| k - b).collect()
                })
                .collect();
            let queries = (0..x.rows()).map(|i| apply(&layer.query, x.row(i)));
            for q in queries.chain([apply(&layer.query, &offset)]) {
                let score = |k: &Vec<f64>| {
                    let terms = q[range.clone()].iter().zip(&k[range.clone()]);
                    0.5 * terms.map(|(q, k)| q * k).sum::<f64>()
                };
                rows.push(keys.iter().map(score).collect());
            }
        }
        let max = |x: &[f64]| x.iter().copied().fold(f64::MIN, f64::max);
        let low = rows.iter().flatten().copied().fold(f64::MAX, f64::min) - 0.5;
        let high = rows.iter().map(|r| max(r)).fold(f64::MIN, f64::max) + 0.5;
        let sums: Vec<f64> = rows.iter().map(|r| r.iter().map(|s| ((s - high) / 2.0).exp()).sum()).collect();
        HeadChoice::Softmax {
            scores: Interval { low, high },
            least_maximum: rows.iter().map(|r| max(r)).fold(f64::MAX, f64::min),
            first: Interval { low: 0.8 * sums.iter().copied().fold(f64::MAX, f64::min), high: 1.2 * max(&sums) },
            second: Interval { low: 0.06, high: 1.05 },
        }
    });
    assert_eq!(gain.len(), D);
    AttentionChoice { degree: 15, first_steps: 8, second_steps: 5, heads: heads.collect() }
}

/// An attention block, and what its tape depends on.
struct Recorded<'a> {
    block: &'a Attention,
    choice: &'a AttentionChoice,
    texts: Texts,
    columns: (&'a [f64], &'a [f64]),
    baby: usize,
}

impl Recorded<'_> {
    fn tape<S: Slots>(self, on: &S, private: bool) -> Tape {
        let Recorded { block, choice, texts, columns, baby } = self;
        let (mut t, at) = (Recorder::new(), StepId::outside("layer.0.attention"));
        let layout = Columns::new(&mut t, &Arc::new(texts), private, [baby; 2]);
        t.at(at);
        let x = t.input(COLUMNS, columns.0.len());
        t.region(x);
        let maps = Maps::new(on, at, columns, block, KAPPA).unwrap();
        let y = attention(&mut t, on, &layout, x, &AttentionBlock { at, block, choice, maps, together: 2 }).unwrap();
        t.output(y);
        t.finish()
    }
}

struct Case {
    lengths: Vec<usize>,
    layout: Interleave,
    choice: AttentionChoice,
}

impl Case {
    fn new(rows: usize, lengths: &[usize], fixed: &[usize]) -> Case {
        let texts = lengths.iter().enumerate().map(|(t, &l)| text(t, l));
        Case {
            lengths: lengths.to_vec(),
            layout: Interleave::new(SLOTS, rows).unwrap(),
            choice: choice(&texts.collect::<Vec<_>>(), fixed),
        }
    }

    fn columns(&self, on: &Simulator) -> Vec<Vector> {
        let column = |j: usize| {
            let value = |t, row| {
                if row < self.lengths[t] { entry(t, row, j) } else { 0.0 }
            };
            let v = self.layout.vector(self.lengths.len(), value);
            on.vector(v, on.top()).unwrap()
        };
        (0..D).map(column).collect()
    }

    fn inputs(&self, on: &Simulator, private: bool) -> Inputs<Simulator> {
        let mut inputs = Inputs::<Simulator>::new();
        if private {
            let real = on.vector(token_rows(self.layout, &self.lengths), on.top()).unwrap();
            let mut t = Recorder::new();
            hidden(&mut t, self.layout, false).unwrap();
            let sent = Inputs::<Simulator>::from([(Hidden::Tokens.name(), vec![real])]);
            let place = (Heights::Least, Outputs::AtLeast(on.floor()), Vec::new());
            let made = computed(on, t.finish(), sent, place, &mut |_, _| Ok(())).unwrap();
            inputs.extend(Hidden::ALL.iter().zip(made).map(|(which, v)| (which.name(), vec![v])));
        }
        inputs.insert(COLUMNS, self.columns(on));
        inputs
    }

    fn tape(&self, on: &Simulator, private: bool) -> Tape {
        let block = Recorded {
            block: &layer(),
            choice: &self.choice,
            texts: Texts::alone(self.layout, self.lengths.clone()).unwrap(),
            columns: (&gain(), &offset()),
            baby: crate::packing::products::baby_steps(self.layout.rows(), DH),
        };
        block.tape(on, private)
    }

    fn run(&self, on: &Simulator, private: bool) -> Vec<Vector> {
        alone(on, self.tape(on, private), self.inputs(on, private), on.floor() + 1).unwrap()
    }

    /// The largest error divided by κ, in token rows.
    fn error(&self, found: &[Vector], fixed: &[usize]) -> f64 {
        let mut worst = 0.0_f64;
        for (t, &length) in self.lengths.iter().enumerate() {
            for (row, want) in expected(&text(t, length), fixed).iter().enumerate() {
                let slot = self.layout.slot(t, row);
                for (found, want) in found.iter().zip(want) {
                    let error = (found.values()[slot] - want).abs() / KAPPA;
                    worst = if error <= worst { worst } else { error };
                }
            }
        }
        worst
    }
}

fn simulator() -> Simulator {
    Simulator::new(&CkksParams::insecure_test(7, 14).unwrap(), SLOTS).unwrap()
}

#[test]
fn the_oracle_is_the_clear_model() {
    let x = text(0, 5);
    let acts = PlainActs { rows: Rows::unpadded(&[5]), values: x.clone() };
    let y = plain::attention(StepId::outside("x"), &acts, &layer()).unwrap();
    for (row, want) in expected(&x, &[]).iter().enumerate() {
        for (a, b) in centre(y.values.row(row)).iter().zip(want) {
            assert!((a - b).abs() < 1e-9);
        }
    }
}

#[test]
fn a_padded_batch_agrees_with_each_text_in_the_clear() {
    let case = Case::new(8, &[8, 5, 1], &[]);
    let on = simulator();
    let found = case.run(&on, false);
    let error = case.error(&found, &[]);
    assert!(error < 1e-3, "{error}");
    // One level is left for the norm.
    assert!(found.iter().all(|v| on.limbs(v) == on.floor() + 1));
    let noisy = simulator().with_errors(5);
    let error = case.error(&case.run(&noisy, false), &[]);
    assert!(error < 3e-3, "{error}");
}

#[test]
fn public_and_private_lengths_agree() {
    let case = Case::new(8, &[8, 5, 1, 2], &[1]);
    let on = simulator();
    let public = case.run(&on, false);
    let private = case.run(&on, true);
    assert!(case.error(&public, &[1]) < 1e-3);
    for (a, b) in public.iter().zip(&private) {
        assert_eq!((on.limbs(a), on.scale(a)), (on.limbs(b), on.scale(b)));
        for (a, b) in a.values().iter().zip(b.values()) {
            assert!((a - b).abs() < 1e-6);
        }
    }
}

#[test]
fn neither_the_batch_nor_padding_changes_a_text() {
    let together = Case::new(8, &[3, 8, 1], &[]);
    let mut alone = Case::new(8, &[3], &[]);
    let mut longer = Case::new(16, &[3], &[]);
    alone.choice = together.choice.clone();
    longer.choice = together.choice.clone();
    let on = simulator();
    let answers = [&together, &alone, &longer].map(|case| {
        let found = case.run(&on, false);
        let row = |row: usize| {
            let slot = case.layout.slot(0, row);
            found.iter().map(|v| v.values()[slot]).collect::<Vec<_>>()
        };
        (0..3).flat_map(row).collect::<Vec<_>>()
    });
    for other in &answers[1..] {
        for (a, b) in answers[0].iter().zip(other) {
            assert!((a - b).abs() < 1e-6 * KAPPA.max(a.abs()), "{a} {b}");
        }
    }
}

#[test]
fn heads_of_a_fixed_pattern_alone() {
    let case = Case::new(4, &[4, 2], &[0, 1, 2]);
    let on = simulator();
    let found = case.run(&on, false);
    let error = case.error(&found, &[0, 1, 2]);
    assert!(error < 1e-6, "{error}");
    assert_eq!(on.tally().counts().total(Op::Bootstrap), 0);
}

#[test]
fn a_sum_outside_its_interval_names_its_step() {
    let mut case = Case::new(8, &[8], &[]);
    for head in &mut case.choice.heads {
        if let HeadChoice::Softmax { first, .. } = head {
            first.low /= 4.0;
            first.high /= 4.0;
        }
    }
    let on = simulator();
    let found = alone(&on, case.tape(&on, false), case.inputs(&on, false), on.floor() + 1);
    assert!(matches!(
        found.err(),
        Some(FheError::Range { site, .. }) if site == "layer.0.attention.weigh.first_sum"
    ));
}

/// With queries, keys, values and the results of heads on disk.
#[test]
fn spilling_changes_nothing() {
    for fixed in [&[][..], &[1], &[0, 1, 2]] {
        let case = Case::new(8, &[8, 5, 1], fixed);
        for private in [false, true] {
            let on = simulator().with_errors(5);
            let expected = case.run(&on, private);
            assert_eq!(on.tally().counts().total(Op::Store), 0);
            let place = (Heights::Least, Outputs::Exactly(on.floor() + 1), vec![true]);
            let (tape, inputs) = (case.tape(&on, private), case.inputs(&on, private));
            let found = computed(&on, tape, inputs, place, &mut |_, _| Ok(())).unwrap();
            assert_eq!(found.len(), expected.len());
            for (a, b) in found.iter().zip(&expected) {
                assert_eq!((on.limbs(a), on.scale(a)), (on.limbs(b), on.scale(b)));
                assert_eq!(a.values(), b.values());
            }
            let counts = on.tally().counts();
            // Queries, keys and values in pairs, or values alone; and results.
            let pairs = (HEADS - fixed.len()) * 2 * DH / 2 + 2 * HEADS * DH / 2;
            assert_eq!(counts.total(Op::Store), pairs as u64);
            assert_eq!(counts.total(Op::Load), counts.total(Op::Store));
        }
    }
}

/// Counts with all of MiniLM's sizes: levels suffice, and operations and memory match the tables of the modules.
#[test]
fn a_layer_of_a_real_size_is_within_its_budget() {
    let least = budget(4, false);
    let plain = budget(8, false);
    let stored = budget(8, true);
    println!("{least:.2} and {plain:.2} GiB, {stored:.2} with a disk");
    assert!(plain < 15.8 && least < 14.7, "{plain} {least} GiB");
    assert!(stored < 8.0, "{stored} GiB");
}

/// Counts a layer with `b` baby steps, and returns the peak of its vectors in GiB.
fn budget(b: usize, stored: bool) -> f64 {
    let (d, count, dh, m, slots) = (384, 12, 32, 128, 1 << 15);
    let params = CkksParams::n16_boot().unwrap();
    let on = Simulator::new(&params, slots).unwrap().counting();
    let shape = Linear {
        inputs: d,
        outputs: d,
        weights: Matrix::new(d, d, vec![0.01; d * d]).map(Arc::new),
        bias: Some(vec![0.0; d].into()),
        stored: None,
        ternary: false,
    };
    let block = Attention {
        query: shape.clone(),
        key: shape.clone(),
        value: shape.clone(),
        output: shape,
        heads: Heads { count, keys: count, width: dh, scale: 0.176 },
        ..layer()
    };
    let head = HeadChoice::Softmax {
        scores: Interval { low: -22.0, high: 8.0 },
        least_maximum: -0.5,
        first: Interval { low: 0.02, high: 8.0 },
        second: Interval { low: 0.007, high: 1.02 },
    };
    let choice = AttentionChoice { degree: 15, first_steps: 8, second_steps: 6, heads: vec![head; count] };
    let texts = Texts::alone(Interleave::new(slots, m).unwrap(), vec![100; 256]).unwrap();
    let columns = (&vec![8.0; d][..], &vec![0.0; d][..]);
    let tape = Recorded { block: &block, choice: &choice, texts, columns, baby: b }.tape(&on, false);
    let inputs = BTreeMap::from([(COLUMNS, vec![on.vector(Vec::new(), on.top()).unwrap(); d])]);
    let place = (Heights::Least, Outputs::Exactly(on.floor() + 1), vec![stored]);
    let found = computed(&on, tape, inputs, place, &mut |_, _| Ok(())).unwrap();
    assert_eq!((found.len(), on.limbs(&found[0])), (d, on.floor() + 1));
    let counts = on.tally().counts();
    let g = m / b;
    let heads = count as u64;
    let rotations = heads * (dh / 2 * (b + g - 2) + m - b) as u64;
    for step in ["layer.0.attention.scores", "layer.0.attention.attend"] {
        assert_eq!(counts.total_in(Op::Rotate, step), rotations);
    }
    let conjugations = |step: &str| counts.total_in(Op::Conjugate, step);
    assert_eq!(
        (conjugations("layer.0.attention.scores"), conjugations("layer.0.attention.output")),
        (heads * m as u64, heads * dh as u64 / 2)
    );
    assert_eq!(counts.total_in(Op::Rotate, "layer.0.attention.weigh"), 0);
    assert_eq!(counts.total(Op::Bootstrap), heads);
    let exponentials = counts.total_in(Op::Relinearise, "layer.0.attention.weigh");
    // Degree 15, the product, the square; the inverses of two sums, and one square of the first.
    assert_eq!(exponentials, heads * (9 * m as u64 + 14 + 10 + 1));
    // A residue is 2^16 words of 8 bytes.
    counts.peak() as f64 / 2048.0
}
