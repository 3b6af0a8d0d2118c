//! How a text's number beyond its interval affects the other texts, encrypted: step by step, one slot of full random
//! vectors is set outside its interval, and all slots of other texts are compared with their correct values. The table
//! of docs/fhe-circuit.md reports these.
//!
//! This ring contains less than one of 2^16: a slot is 2/N of each coefficient, and coefficients are what wraps around.

use std::collections::BTreeMap;
use std::sync::Arc;

use hushed_ckks::{Ciphertext, CkksParams};
use hushed_lower::LinearMap;
use hushed_model::plain::activation as exact;
use hushed_model::{Activation, Classifier, FeedForward, Linear, Matrix, Norm, NormKind, StepId};

use super::testing::{Keys, random, seeded};
use crate::choices::{ActivationChoice, AttentionChoice, ClassifierChoice, Column, HeadChoice, Interval, NormChoice};
use crate::ops::acts::{Acts, centred};
use crate::ops::softmax::{Softmax, weights};
use crate::packing::Interleave;
use crate::run::reply::fewest_limbs;
use crate::simulate::{Simulator, Vector};
use crate::tape::answer::head;
use crate::tape::causal::paired::Vectors;
use crate::tape::causal::sums::{Last, Sums};
use crate::tape::encoder::COLUMNS;
use crate::tape::feed_forward::{FeedForwardBlock, feed_forward};
use crate::tape::layout::Columns;
use crate::tape::norm::{NormBlock, norm, residual};
use crate::tape::record::Recorder;
use crate::tape::{Kept, NodeId, Texts};
use crate::testing::alone;
use crate::{FheError, KeyDemand, KeyMask, RowsKnown, Slots};

const LOG_N: u32 = 9;
const ROWS: usize = 4;
/// The slot that leaves its interval; it belongs to text 5, as rows are `slots/ROWS` slots apart.
const HIT: usize = 5;
/// How far, as a multiple of the interval.
const TIMES: [f64; 4] = [1.05, 1.1, 1.5, 4.0];

/// A change to a step's input vectors.
type Hit<'a> = &'a dyn Fn(&mut [Vec<f64>]);

/// A part of a run, in either arithmetic.
trait Step {
    /// Primes of the operands.
    fn limbs<S: Slots>(&self, on: &S) -> usize;
    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError>;
}

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(LOG_N, 14).unwrap()
}

fn layout() -> Interleave {
    Interleave::new(params().slots(), ROWS).unwrap()
}

/// The largest error of any slot of another text, for each change that `hits` makes to `clean` (the first should change
/// nothing).
fn neighbours<const K: usize>(step: &impl Step, clean: &[Vec<f64>], hits: [Hit<'_>; K]) -> [f64; K] {
    let params = params();
    let simulator = Simulator::new(&params, params.slots()).unwrap();
    let limbs = step.limbs(&simulator);
    let vectors = clean.iter().map(|v| simulator.vector(v.clone(), limbs).unwrap());
    let expected: Vec<Vector> = step.run(&simulator, vectors.collect()).unwrap();
    let demand = KeyDemand::of(&params, &simulator.tally().counts());
    let mut keys = Keys::new(&params, |b| demand.specs(&params, b).unwrap());
    let texts = layout().texts();
    hits.map(|hit| {
        let mut x = clean.to_vec();
        hit(&mut x);
        let x: Vec<Ciphertext> = x.iter().map(|v| keys.encrypt(v, limbs)).collect();
        let found = step.run(&keys.on, x).unwrap();
        let mut worst = 0.0_f64;
        for (found, expected) in found.iter().zip(&expected) {
            let open = keys.open(found);
            let both = open.iter().zip(expected.values()).enumerate();
            for (_, (a, b)) in both.filter(|(slot, _)| slot % texts != HIT) {
                worst = worst.max((a - b).abs());
            }
        }
        worst
    })
}

/// Numbers between `low` and `high` in every slot.
fn between(seed: u64, low: f64, high: f64) -> Vec<f64> {
    let all = random(&mut seeded(seed), params().slots());
    all.iter().map(|v| low + (v + 1.0) / 2.0 * (high - low)).collect()
}

fn dense(outputs: usize, inputs: usize, weight: impl Fn(usize, usize) -> f32) -> Linear {
    let all = (0..outputs).flat_map(|o| (0..inputs).map(move |i| (o, i)));
    let numbers = all.map(|(o, i)| weight(o, i)).collect();
    Linear {
        inputs,
        outputs,
        weights: Matrix::new(outputs, inputs, numbers).map(Arc::new),
        bias: Some(vec![0.0; outputs].into()),
        stored: None,
        ternary: false,
    }
}

fn told(what: &str, found: &[f64]) {
    let numbers: Vec<String> = found.iter().map(|v| format!("{v:.1e}")).collect();
    println!("{what}: {}", numbers.join(", "));
}

/// A bootstrap alone.
struct Refresh;

impl Step for Refresh {
    fn limbs<S: Slots>(&self, on: &S) -> usize {
        on.floor()
    }

    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        on.refresh(StepId::outside("refresh"), x, on.top())
    }
}

/// A bootstrap reduces each slot by itself: its first map turns slots into coefficients. A number far beyond 1 comes
/// back as the sine gives it, at most 2^10/2π = 163 whatever it was, and other slots see 10^-12 of it.
#[test]
fn c2_a_refresh_contains_whatever_is_in_a_slot() {
    let clean = [between(1, -1.0, 1.0)];
    let at = |x: f64| move |v: &mut [Vec<f64>]| v[0][HIT] = x;
    let [a, b, c, d] = TIMES.map(at);
    let hits: [Hit<'_>; 8] = [&at(0.5), &a, &b, &c, &d, &at(600.0), &at(1e6), &at(-1e12)];
    let found = neighbours(&Refresh, &clean, hits);
    told("refresh", &found);
    let [none, contained @ .., beyond] = found;
    assert!(contained.iter().all(|&v| v < 4.0 * none));
    // Maps are encoded to about 2^-40 of themselves.
    assert!(beyond < 10.0 && beyond > 4.0 * none);
    // The slot itself.
    let mut keys = Keys::new(&params(), Clone::clone);
    for (x, least, most) in [(1.5, 1.4999, 1.5001), (4.0, 3.999, 4.0), (250.0, 0.0, 163.1), (1e6, 0.0, 163.1)] {
        let mut v = clean[0].clone();
        v[HIT] = x;
        let ct = keys.encrypt(&v, keys.on.floor());
        let fresh = Refresh.run(&keys.on, vec![ct]).unwrap();
        let found = keys.open(&fresh[0])[HIT].abs();
        assert!((least..most).contains(&found), "{x}: {found}");
    }
}

/// Everything after a classifier's last norm, cut to the primes of its reply. The arguments of tanh are the columns
/// times the reach.
struct Head {
    classifier: Classifier,
    choice: ClassifierChoice,
    reply: usize,
}

impl Head {
    fn new() -> Head {
        let (reach, classes) = (9.0, random(&mut seeded(40), 3 * ROWS));
        let params = params();
        Head {
            classifier: Classifier {
                dense: dense(ROWS, ROWS, |o, i| if o == i { reach } else { 0.0 }),
                activation: Activation::Tanh,
                classes: dense(3, ROWS, |o, i| classes[o * ROWS + i] as f32),
            },
            choice: ClassifierChoice { degree: 63, reach: f64::from(reach) },
            reply: fewest_limbs(&params, params.default_scale(), 8.0),
        }
    }
}

impl Step for Head {
    fn limbs<S: Slots>(&self, on: &S) -> usize {
        on.floor() + 1
    }

    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let (c, choice, mut t) = (&self.classifier, &self.choice, Recorder::new());
        let texts = Arc::new(Texts::alone(layout(), vec![1; layout().texts()]).unwrap());
        let columns = Columns::new(&mut t, &texts, false, [1, 1]);
        let node = t.input(COLUMNS, x.len());
        let dense = LinearMap::of(StepId::outside("head"), &c.dense)?.times(1.0 / choice.reach).bounded();
        for v in head(&mut t, &columns, (StepId::outside("head"), c, choice), &dense, node)? {
            t.output(v);
        }
        let logits = alone(on, t.finish(), BTreeMap::from([(COLUMNS, x)]), on.floor())?;
        assert_eq!(self.reply, 1);
        logits.iter().map(|v| on.drop_to(v, self.reply)).collect()
    }
}

/// A tanh argument beyond the reach affects only its own text, up to seven times the reach.
#[test]
fn c2_a_classifiers_head_contains_arguments_beyond_the_reach() {
    let first = |mut v: Vec<f64>| {
        v[layout().texts()..].fill(0.0);
        v
    };
    let clean: Vec<Vec<f64>> = (0..ROWS).map(|j| first(between(10 + j as u64, -1.0, 1.0))).collect();
    let at = |x: f64| move |v: &mut [Vec<f64>]| v[2][HIT] = x;
    let [a, b, c, d] = TIMES.map(at);
    let found = neighbours(&Head::new(), &clean, [&at(0.5), &a, &b, &c, &d, &at(-6.9), &at(16.0)]);
    told("head", &found);
    let [none, contained @ .., beyond] = found;
    assert!(none < 1e-2, "{none:e}");
    assert!(contained.iter().all(|&v| v < 4.0 * none));
    assert!(beyond > 1.0);
}

const WIDTH: usize = 16;

fn shape() -> Norm {
    Norm {
        kind: NormKind::LayerNorm,
        width: WIDTH,
        epsilon: 1e-9,
        reach: None,
        gain: Some(vec![1.0; WIDTH].into()),
        offset: Some(vec![0.0; WIDTH].into()),
    }
}

/// A norm of centred columns, and the refresh after it.
struct Normed {
    choice: NormChoice,
}

/// Records the norm of centred columns and the refresh after it.
fn refreshed_norm<S: Slots>(
    t: &mut Recorder,
    on: &S,
    layout: &Columns,
    centred: NodeId,
    choice: &NormChoice,
) -> Result<NodeId, FheError> {
    let (at, rows) = (StepId::outside("layer.0.feed_forward.norm"), layout.mask(Kept::All));
    let block = NormBlock { at, norm: &shape(), choice, rows: &rows, read: false, frozen: None };
    let normed = norm(t, on, layout, centred, block)?;
    t.at(StepId::outside("refresh"));
    Ok(t.mark(normed, 1.0))
}

/// Texts of as many tokens as rows.
fn whole(t: &mut Recorder) -> Columns {
    let texts = Texts::alone(layout(), vec![ROWS; layout().texts()]).unwrap();
    Columns::new(t, &Arc::new(texts), false, [1, 1])
}

impl Step for Normed {
    fn limbs<S: Slots>(&self, on: &S) -> usize {
        on.floor() + 2
    }

    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let mut t = Recorder::new();
        let layout = whole(&mut t);
        let node = t.input(COLUMNS, x.len());
        let centred = t.scaled(node, vec![1.0; x.len()]);
        let y = refreshed_norm(&mut t, on, &layout, centred, &self.choice)?;
        t.output(y);
        alone(on, t.finish(), BTreeMap::from([(COLUMNS, x)]), on.floor() + 1)
    }
}

/// Columns whose squares add up to `v` in each slot.
fn columns_of(v: &[f64]) -> Vec<Vec<f64>> {
    let raw: Vec<Vec<f64>> = (0..WIDTH).map(|j| between(60 + j as u64, -1.0, 1.0)).collect();
    let length = |s: usize| raw.iter().map(|x| x[s] * x[s]).sum::<f64>().sqrt();
    let lengths: Vec<f64> = (0..v.len()).map(length).collect();
    let column = |x: &Vec<f64>| {
        let all = x.iter().zip(v).zip(&lengths);
        all.map(|((x, v), l)| x * v.sqrt() / l).collect()
    };
    raw.iter().map(column).collect()
}

/// A variance beyond its range affects only its own text, as far as the steps let the root reach.
#[test]
fn c2_a_norm_contains_variances_beyond_its_range() {
    let choice = NormChoice { scale: 1.0, low: 0.06, bound: 4.0, seed: 15, steps: 1 };
    let clean = columns_of(&between(50, 0.06, 1.0));
    let at = |v: f64| {
        move |x: &mut [Vec<f64>]| {
            let now: f64 = x.iter().map(|x| x[HIT] * x[HIT]).sum();
            x.iter_mut().for_each(|x| x[HIT] *= (v / now).sqrt());
        }
    };
    let [a, b, c, d] = TIMES.map(at);
    let step = Normed { choice };
    let found = neighbours(&step, &clean, [&at(0.5), &at(1e-4), &a, &b, &c, &d, &at(8.0)]);
    told("norm", &found);
    let [none, contained @ .., beyond] = found;
    assert!(none < 1e-3, "{none:e}");
    assert!(contained.iter().all(|&v| v < 4.0 * none));
    assert!(beyond > 0.5);
}

/// A feed-forward block with its residual, norm and refresh.
struct Block {
    f: FeedForward,
    columns: ActivationChoice,
    norm: NormChoice,
}

/// Factor from x to arguments.
const UP: f64 = 16.0;

/// With a long tail below, as hidden columns have: a polynomial fitted only to this is off by thousands at 1.1 times
/// the interval.
const COLUMN: Column = Column { low: -18.0, high: 9.0, mean: -1.5, deviation: 1.0 };

impl Block {
    /// `down`: the weight of a hidden column in an output.
    fn new(clean: &[Vec<f64>], down: f64) -> Block {
        let numbers = random(&mut seeded(70), WIDTH * WIDTH);
        let f = FeedForward {
            up: dense(WIDTH, WIDTH, |o, i| if o == i { UP as f32 } else { 0.0 }),
            gate: None,
            activation: Activation::Gelu,
            tolerance: None,
            sub_norm: None,
            down: dense(WIDTH, WIDTH, |o, i| (down * numbers[o * WIDTH + i]) as f32),
        };
        let gelu = |v: f64| exact(Activation::Gelu, v);
        let variance = |s: usize| {
            let hidden: Vec<f64> = clean.iter().map(|x| gelu(UP * x[s])).collect();
            let sum = |o: usize| {
                let row = numbers[o * WIDTH..(o + 1) * WIDTH].iter().zip(&hidden);
                clean[o][s] + down * row.map(|(w, h)| w * h).sum::<f64>()
            };
            let sums: Vec<f64> = (0..WIDTH).map(sum).collect();
            let mean = sums.iter().sum::<f64>() / WIDTH as f64;
            sums.iter().map(|x| (x - mean).powi(2)).sum::<f64>() / WIDTH as f64
        };
        let all = (0..clean[0].len()).map(variance);
        let (least, most) = all.fold((f64::MAX, 0.0_f64), |(a, b), v| (a.min(v), b.max(v)));
        // The margins of a calibration.
        let norm = NormChoice {
            scale: (1.0 / (WIDTH as f64 * 2.0 * most)).sqrt(),
            low: least / most / 4.0,
            bound: 4.0,
            seed: 15,
            steps: 2,
        };
        let columns = ActivationChoice { degree: 28, columns: vec![COLUMN; WIDTH] };
        Block { f, columns, norm }
    }
}

impl Step for Block {
    fn limbs<S: Slots>(&self, on: &S) -> usize {
        on.floor() + 8
    }

    fn run<S: Slots>(&self, on: &S, x: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let (at, mut t) = (StepId::outside("layer.0.feed_forward"), Recorder::new());
        let layout = whole(&mut t);
        let node = t.input(COLUMNS, x.len());
        let acts = Acts { columns: vec![node], gain: vec![1.0; x.len()], offset: vec![0.0; x.len()] };
        let layer = FeedForwardBlock { at, block: &self.f, choice: &self.columns, hidden: 8 };
        let down = Last::scalar(Arc::new(centred(on, at, &self.f.down, self.norm.scale)?));
        let sums = Sums::new(&mut t, down, None);
        let read = (Vectors { node, paired: false }, (acts.gain.as_slice(), acts.offset.as_slice()));
        let y = feed_forward(&mut t, on, read, &layer, sums)?;
        let centred = residual(&mut t, &layout, &acts, node, y, self.norm.scale);
        let y = refreshed_norm(&mut t, on, &layout, centred, &self.norm)?;
        t.output(y);
        alone(on, t.finish(), BTreeMap::from([(COLUMNS, x)]), on.floor() + 1)
    }
}

/// An activation's argument beyond its interval affects only its own text, up to 1.1 times the interval; its result is
/// then within the range of the following norm.
#[test]
fn c2_an_activation_contains_arguments_beyond_its_interval() {
    let column = COLUMN.interval();
    let argument = |t: f64| (column.middle() + column.half() * t) / UP;
    let clean: Vec<Vec<f64>> = (0..WIDTH).map(|j| between(80 + j as u64, argument(-0.66), argument(0.66))).collect();
    let at = |t: f64| move |x: &mut [Vec<f64>]| x[3][HIT] = argument(t);
    let [a, b, c, d] = TIMES.map(at);
    let step = Block::new(&clean, 0.2);
    let hits: [Hit<'_>; 8] = [&at(0.5), &at(1.0), &a, &b, &at(-1.05), &at(-1.1), &c, &d];
    let found = neighbours(&step, &clean, hits);
    told("activation, norm", &found);
    let [none, contained @ .., half, four] = found;
    assert!(none < 1e-2, "{none:e}");
    assert!(contained.iter().all(|&v| v < 4.0 * none));
    assert!(half > 0.5 && four > 0.5);
}

/// A softmax of rows of four scores.
struct Weigh {
    choice: AttentionChoice,
}

impl Step for Weigh {
    fn limbs<S: Slots>(&self, on: &S) -> usize {
        on.top() - 2
    }

    fn run<S: Slots>(&self, on: &S, t: Vec<S::Value>) -> Result<Vec<S::Value>, FheError> {
        let softmax = Softmax::new(on, &self.choice.heads[0], &self.choice)?;
        let rows = RowsKnown::public(layout(), vec![ROWS; layout().texts()])?;
        let keys = KeyMask::new(on, &rows)?;
        let p = t.iter().map(|t| softmax.exponential(on, 0, t));
        let p = p.collect::<Result<Vec<_>, _>>()?;
        let heads = vec![(&softmax, p)];
        let mut weights = weights(on, StepId::outside("weigh"), heads, &keys, on.top())?;
        weights.remove(0).whole(on, &softmax)
    }
}

/// A score beyond its interval affects only its own text as long as its row's first sum stays within the calibrated
/// interval, on the lower side up to half as far again. A sum beyond its upper end is squared in every step of the
/// inverse that follows, which destroys the whole vector: containing more takes a level, and attention has none left.
#[test]
fn c2_a_softmax_contains_what_its_first_sum_holds() {
    let scores = Interval { low: -22.0, high: 8.0 };
    let choice = AttentionChoice {
        degree: 15,
        first_steps: 7,
        second_steps: 5,
        heads: vec![HeadChoice::Softmax {
            scores,
            least_maximum: -0.5,
            first: Interval { low: 0.01, high: 2.0 },
            second: Interval { low: 0.2, high: 1.05 },
        }],
    };
    let t = |s: f64| (s - scores.middle()) / scores.half();
    let mut clean: Vec<Vec<f64>> = vec![between(90, t(-0.4), t(7.9))];
    clean.extend((1..4).map(|j| between(90 + j, -1.0, t(-2.0))));
    let at = |j: usize, t: f64| move |x: &mut [Vec<f64>]| x[j][HIT] = t;
    let step = Weigh { choice };
    let hits: [Hit<'_>; 10] = [
        &at(0, 0.5),
        &at(0, 1.05),
        &at(1, -1.05),
        &at(1, -1.1),
        &at(1, -1.5),
        // e^{(s − 8)/2}/2, which exceeds 1 from s = 9.4 on.
        &at(0, 1.1),
        &at(0, 1.2),
        &at(0, 1.5),
        &at(0, 4.0),
        &at(1, -4.0),
    ];
    let found = neighbours(&step, &clean, hits);
    told("softmax", &found);
    let [none, above, a, b, c, rest @ ..] = found;
    assert!(none < 1e-3, "{none:e}");
    assert!([above, a, b, c].iter().all(|&v| v < 4.0 * none));
    assert!(rest.iter().all(|&v| v > 0.5));
}
