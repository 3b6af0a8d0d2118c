//! A whole small classifier in the simulator, compared with the model in the clear: the reply, its cost, and refusals.

use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_ckks::keys::KeySpecs;
use hushed_ckks::poly::Arithmetic;
use hushed_model::testing::tiny_classifier_config;
use hushed_model::{Block, Matrix, Network, Pool, TokenIds, nearness, plain as clear, random_network};

use super::*;
use crate::ops::acts::Acts;
use crate::ops::pool::{Factor, unpack};
use crate::packing::Interleave;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::plan::tests::options;
use crate::plan::{FheOptions, FhePlanReport};
use crate::simulate::{Op, Vector};
use crate::tape::Texts;
use crate::tape::encoder::{COLUMNS, Encoder, InSlots, choice_of_norm};
use crate::tape::run::Inputs;
use crate::testing::{Structure, alone, hidden, largest, measure, resumed};
use crate::{Choices, Placement, Simulator, token_rows};

const M: usize = 16;
const SLOTS: usize = 128;
/// More classes than rows, so that logits take two vectors.
const CLASSES: usize = 19;
const LENGTHS: [usize; 7] = [16, 3, 9, 1, 12, 5, 16];

fn layout() -> Interleave {
    Interleave::new(SLOTS, M).unwrap()
}

fn params() -> Arc<CkksParams> {
    CkksParams::insecure_test(10, 14).unwrap()
}

fn network() -> Network {
    let mut config = tiny_classifier_config(&["x"; CLASSES]);
    config.layers = 1;
    random_network(&config, Pool::First, 5)
}

fn texts() -> Vec<TokenIds> {
    let id = |t: usize, i: usize| ((i * 31 + t * 17 + i * i * t) % 90) as u32;
    let text = |(t, &length): (usize, &usize)| TokenIds::new((0..length).map(|i| id(t, i)).collect());
    LENGTHS.iter().enumerate().map(text).collect()
}

fn embedded(network: &Network) -> Vec<Matrix<f64>> {
    let start = |text: TokenIds| clear::start(&network.program_of_all_rows(), vec![text]).unwrap().values;
    texts().into_iter().map(start).collect()
}

fn plain(network: &Network) -> Vec<Vec<f64>> {
    let program = network.program_of_all_rows();
    let one = |text: TokenIds| clear::run(&program, vec![text], |_, _| ()).unwrap().values;
    texts().into_iter().map(|t| one(t).row(0).to_vec()).collect()
}

/// Every slot of the reply.
fn run(on: &Simulator, network: &Network, choices: &Choices, private: bool) -> Result<Vec<Vec<f64>>, FheError> {
    let x = embedded(network);
    let bound = largest(&x);
    let answer = resumed(on, network, choices, &x, private, bound, |_, _, _| 0.0)?;
    assert_eq!((answer.width, answer.vectors.len()), (CLASSES, 2));
    for v in &answer.vectors {
        assert_eq!(on.limbs(v), on.floor());
        assert!(on.scale(v).matches(on.default_scale()));
    }
    Ok(answer.vectors.iter().map(|v| v.values().to_vec()).collect())
}

fn logits_of(vectors: &[Vec<f64>]) -> Vec<Vec<f64>> {
    unpack(layout(), &LENGTHS, CLASSES, Factor::One, vectors).unwrap()
}

fn choices(network: &Network) -> Choices {
    measure(network, &embedded(network), &Structure::default(), M, (15, 15)).choices
}

fn worst(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

#[test]
fn logits_agree_with_the_clear_model_and_nothing_else_is_sent() {
    let on = Simulator::new(&params(), SLOTS).unwrap().with_errors(1);
    let network = network();
    let (choices, expected) = (choices(&network), plain(&network));
    choices.check(&network.program_of_all_rows()).unwrap();
    let bound = magnitude(StepId::outside("head"), network.classifier.as_ref().unwrap()).unwrap();
    for private in [false, true] {
        let vectors = run(&on, &network, &choices, private).unwrap();
        for (found, expected) in logits_of(&vectors).iter().zip(&expected) {
            let size = hushed_model::length(expected);
            assert!(nearness(found, expected, size) > 0.999);
            assert!(found.iter().all(|v| v.abs() < bound));
        }
        // Rows without a class and places without a text are 0.
        for (block, v) in vectors.iter().enumerate() {
            for (slot, value) in v.iter().enumerate() {
                let (row, place) = (slot / layout().texts(), slot % layout().texts());
                let declared = block * M + row < CLASSES && place < LENGTHS.len();
                assert!(declared || value.abs() < 1e-4, "{block} {slot}: {value}");
            }
        }
    }
}

/// Runs the last norm and the head on columns whose rows other than the first are `garbage` times their bound.
fn from_columns(on: &Simulator, choices: &Choices, private: bool, garbage: f64) -> Vec<Vec<f64>> {
    let program = network().program_of_all_rows();
    let placement = Placement::plain(on.top(), M, 8);
    let lengths = if private { Vec::new() } else { LENGTHS.to_vec() };
    let texts = Arc::new(Texts::alone(layout(), lengths).unwrap());
    let encoder = Encoder {
        on,
        program: &program,
        choices,
        split: &placement,
        texts: InSlots::Batch(texts),
        hidden: private,
        answer: AnswerRows::Last,
    };
    let real = || on.vector(token_rows(layout(), &LENGTHS), on.top()).unwrap();
    let masks = if private { hidden(&encoder, real()) } else { Inputs::<Simulator>::new() };
    let limbs = on.top() - 2 - activation::levels(choices.layers[0].activation.degree);
    // Over 32 columns the squares sum to a half, and the numbers to zero.
    let number = |t: usize, j: usize| {
        if (j * 7 + t * j + t) % 2 == (j / 16) { 0.125 } else { -0.125 }
    };
    let column = |j: usize| {
        let v = layout().vector(LENGTHS.len(), |t, row| match row {
            0 => number(t, j),
            _ => garbage * number(t + row, j + 3),
        });
        on.vector(v, limbs).unwrap()
    };
    let columns: Vec<Vector> = (0..32).map(column).collect();
    let with = |columns: Vec<Vector>| {
        let mut inputs = masks.clone();
        inputs.insert(COLUMNS, columns);
        inputs
    };
    let last = program.layers().remove(0).end - 1;
    let (norm, choice) = (&program.steps()[last], choice_of_norm(&program, encoder.choices, last).unwrap());
    let Block::Norm(n) = &norm.block else { panic!("no norm") };
    let x = alone(on, encoder.norm_alone(last).unwrap(), with(columns), on.floor() + 1).unwrap();
    let x = Acts::from_norm(norm.id, x, n, choice).unwrap();
    let answer = encoder.answer(&x.gain, &x.offset).unwrap();
    let answer = alone(on, answer.circuit.tape, with(x.columns), on.floor()).unwrap();
    answer.iter().map(|v| v.values().to_vec()).collect()
}

/// The contents of other rows, padding or tokens, inside a norm's range or outside, change no logit and reach no slot
/// of the reply.
#[test]
fn other_rows_do_not_leak() {
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let mut choices = choices(&network());
    choices.classifier.as_mut().unwrap().reach *= 4.0;
    for private in [false, true] {
        let clean = from_columns(&on, &choices, private, 0.0);
        for garbage in [1.0, 3.0] {
            let hostile = from_columns(&on, &choices, private, garbage);
            assert!(worst(&clean, &hostile) < 1e-4);
        }
    }
}

/// Counts the head's steps: rotations and bootstraps depend on shapes alone.
#[test]
fn operations_of_the_head() {
    let on = Simulator::new(&params(), SLOTS).unwrap().counting();
    let network = network();
    let choices = choices(&network);
    for private in [false, true] {
        on.tally().reset();
        run(&on, &network, &choices, private).unwrap();
        let counts = on.tally().counts();
        let of = |step: &str, op: Op| -> u64 {
            let site = format!("head.{step}");
            let all = counts.operations.iter();
            let all = all.filter(|c| c.site.to_string() == site && c.op == op);
            all.map(|c| c.times).sum()
        };
        let (d, log) = (32, u64::from(M.ilog2()));
        let blocks = d / M as u64;
        assert_eq!(of("dense", Op::LinearTerm), d * d);
        assert_eq!(of("pack", Op::Rotate), blocks * (M as u64 - 1));
        assert_eq!(of("refresh", Op::Refreshed), blocks);
        assert_eq!(of("refresh", Op::Bootstrap), 1);
        assert_eq!(of("activation", Op::Rotate), 0);
        // Encrypted masks are rotated to the rows of the other classes, and multiplied.
        let masks = if private { M as u64 - 1 } else { 0 };
        assert_eq!(of("classes", Op::Rotate), CLASSES as u64 * log + masks);
        let products = if private { CLASSES as u64 } else { 0 };
        assert_eq!(of("classes", Op::Relinearise), products);
    }
}

/// The function is odd, gets more accurate with its degree up to the reach, and is bounded up to seven times the reach:
/// a refresh does not reduce such arguments.
#[test]
fn tanh_is_odd_and_bounded_outside_its_reach() {
    for reach in [1.25, 9.0] {
        let mut last = 1.0;
        for degree in [7, 15, 31, 63] {
            let choice = ClassifierChoice { degree, reach };
            let tanh = HeadActivation::new(Activation::Tanh, &choice).unwrap();
            let points = (0..=4000).map(|i| f64::from(i) / 2000.0 - 1.0);
            let error = |t: f64| (tanh.eval(t) - (reach * t).tanh()).abs();
            let worst = points.map(error).fold(0.0, f64::max);
            assert!(worst < 0.7 * last, "degree {degree}: {worst:e}");
            last = worst;
            let most = EXTENDED as f64;
            let far = (0..=4000).map(|i| most * (f64::from(i) / 2000.0 - 1.0));
            for t in far {
                assert_eq!(tanh.eval(t), -tanh.eval(-t));
                let bound = if degree == 63 { LARGEST } else { 4.0 };
                assert!(tanh.eval(t).abs() < bound, "{degree} {t}: {}", tanh.eval(t));
            }
        }
        assert!(last < 1e-4, "{last:e}");
    }
    assert_eq!(FOLD_LEVELS, activation::levels(EXTENDED));
}

/// A classifier's plan has the number of logits, and the head's steps last.
#[test]
fn a_plan_declares_its_outputs() {
    let (params, network) = (CkksParams::n16_boot().unwrap(), network());
    let options = FheOptions { rows: M, ..options(Lengths::Private) };
    let choices = crate::plan::assumed_choices(&network.program_of_all_rows(), M);
    let none = KeySpecs::new();
    let plan = FhePlanReport::new(&network.program_of_all_rows(), &choices, true, &params, &none, &options).unwrap();
    assert_eq!(plan.logits, Some(CLASSES));
    let sites: Vec<String> = plan.steps.iter().map(|s| s.site.to_string()).collect();
    let head = ["dense", "pack", "refresh", "activation", "classes"].map(|s| format!("head.{s}"));
    assert_eq!(sites[sites.len() - head.len()..], head);
    let declared = plan.exposures.iter().any(|e| e.sees.contains("19 logits"));
    assert!(declared);
}

#[test]
fn refusals() {
    let on = Simulator::new(&params(), SLOTS).unwrap();
    let network = network();
    let good = choices(&network);
    let refused = |change: fn(&mut Choices)| {
        let mut other = good.clone();
        change(&mut other);
        (other.check(&network.program_of_all_rows()).is_err(), other.to_json().is_err())
    };
    assert_eq!(refused(|c| c.classifier = None), (true, false));
    let frozen = |c: &mut Choices| c.layers[0].frozen_row = Some(vec![0.0; 32]);
    assert_eq!(refused(frozen), (true, false));
    let even = |c: &mut Choices| c.classifier.as_mut().unwrap().degree = 14;
    assert_eq!(refused(even), (false, true));
    let nowhere = |c: &mut Choices| c.classifier.as_mut().unwrap().reach = 0.0;
    assert_eq!(refused(nowhere), (false, true));
    // An argument outside the reach is reported where numbers are visible.
    let mut narrow = good.clone();
    narrow.classifier.as_mut().unwrap().reach /= 8.0;
    let error = run(&on, &network, &narrow, false).err().unwrap();
    assert!(matches!(&error, FheError::Range { site, .. } if site == "head.refresh"), "{error}");
    // A chain with too few levels for the polynomial is refused before anything is computed.
    let mut deep = good.clone();
    deep.classifier.as_mut().unwrap().degree = 63;
    let short = CkksParams::insecure_test(10, 8).unwrap();
    let short = Simulator::new(&short, SLOTS).unwrap();
    assert!(run(&short, &network, &deep, false).is_err());
    let mut other = network.clone();
    other.classifier.as_mut().unwrap().activation = Activation::Relu;
    let error = run(&on, &other, &good, false).err().unwrap();
    assert!(matches!(error, FheError::Unsupported { .. }));
    // Choices with and without a head survive writing and reading.
    let read = Choices::from_json(&good.to_json().unwrap()).unwrap();
    assert_eq!(read, good);
}
