//! Whole models in packed rows, simulated, compared with the model in the clear.

use std::path::Path;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::testing::{TINY_LABELS, model_folder, tiny_classifier_config, tiny_config};
use hushed_model::{
    Matrix, Model, NetworkConfig, Pool, Program, TokenIds, TooLong, cosine, length, nearness, plain, random_network,
};

use crate::FheError;
use crate::choices::Choices;
use crate::inputs::bound_of_inputs;
use crate::plan::packed::placed;
use crate::plan::placement::Placement;
use crate::plan::public_plan::{AnswerRows, Lengths};
use crate::plan::{FheOptions, FhePlanReport, assumed_choices, dry_run, packed_placement, reference};
use crate::run::job::bootstrap;
use crate::simulate::{Batch, Op, Simulator, embedded};
use crate::testing::{Measured, Structure, measure, operations};

fn run(
    on: &Simulator,
    program: &Program,
    choices: &Choices,
    (rows, columns): (usize, usize),
    bound: f64,
    texts: &[Matrix<f64>],
) -> Result<Vec<Vec<f64>>, FheError> {
    let shape = (rows, columns, Lengths::Public);
    run_knowing(on, program, choices, shape, bound, texts)
}

/// The same, with what the server knows of lengths.
fn run_knowing(
    on: &Simulator,
    program: &Program,
    choices: &Choices,
    (rows, columns, lengths): (usize, usize, Lengths),
    bound: f64,
    texts: &[Matrix<f64>],
) -> Result<Vec<Vec<f64>>, FheError> {
    let options = FheOptions { rows, lengths, ..options(1) };
    let placement = placed(program, choices, on.params(), &options, columns)?;
    let batch = Batch { program, choices, placement: &placement, lengths, bound };
    batch.run(on, rows, texts, None)
}

/// The answers to the same texts in a batch.
fn in_a_batch(program: &Program, choices: &Choices, params: &Arc<CkksParams>, texts: &[Matrix<f64>]) -> Vec<Vec<f64>> {
    let batch = Batch {
        program,
        choices,
        placement: &Placement::plain(params.fresh_limbs(), 16, 8),
        lengths: Lengths::Public,
        bound: bound_of_inputs(program, 16).unwrap(),
    };
    let on = Simulator::new(params, 16 * texts.len()).unwrap();
    batch.run(&on, 16, texts, None).unwrap()
}

fn options(texts: usize) -> FheOptions {
    FheOptions {
        rows: 128,
        texts,
        lengths: Lengths::Public,
        answer: AnswerRows::Last,
        max_memory: None,
        per_place: 1,
        uplink: 1e7,
        prices: reference(2),
        placement: None,
    }
}

fn some(count: usize, length: usize) -> Vec<TokenIds> {
    let id = |t: usize, i: usize| ((i * 31 + t * 17 + i * i * t) % 90) as u32;
    (0..count).map(|t| TokenIds::new((0..length - t).map(|i| id(t, i)).collect())).collect()
}

/// A model with a head of a fixed pattern and a replaced row, texts, and its circuit's results for them in the clear.
fn tiny() -> (Program, Vec<Matrix<f64>>, Measured) {
    tiny_of(5)
}

/// The same with the weights of a seed.
fn tiny_of(seed: u64) -> (Program, Vec<Matrix<f64>>, Measured) {
    let network = random_network(&tiny_config(), Pool::Mean, seed);
    let program = network.program_of_all_rows();
    let texts: Vec<Matrix<f64>> = some(4, 13).iter().map(|t| embedded(&program, t).unwrap()).collect();
    let structure = Structure { previous: vec![(0, 1)], frozen_layers: 1 };
    let measured = measure(&network, &texts, &structure, 16, (15, 15));
    (program, texts, measured)
}

#[test]
fn a_tiny_model_in_packed_rows_is_the_model() {
    let (program, texts, measured) = tiny();
    let params: Arc<CkksParams> = CkksParams::insecure_test(10, 14).unwrap();
    let bound = bound_of_inputs(&program, 16).unwrap();
    let batch = in_a_batch(&program, &measured.choices, &params, &texts);
    // Columns in one vector, two and four.
    for vectors in [1, 2, 4] {
        for noisy in [false, true] {
            let mut on = Simulator::new(&params, 512).unwrap();
            if noisy {
                on = on.with_errors(1);
            }
            let shape = (16, 16 / vectors);
            let found = run(&on, &program, &measured.choices, shape, bound, &texts).unwrap();
            for ((a, b), batch) in measured.pooled.iter().zip(&found).zip(&batch) {
                assert!(cosine(a, b) > 0.999, "{}", cosine(a, b));
                assert!(cosine(batch, b) > 0.999_99, "{}", cosine(batch, b));
            }
            // A layer has two refreshes of columns and four of statistics: Σp and Σe of each vector, a root, a
            // variance. The last layer's columns have none, and the upload has one. Two vectors per bootstrap.
            let (runs, n) = (if vectors == 1 { 2 } else { 1 }, vectors as u64);
            let counts = on.tally().counts();
            let bootstraps = 2 * n + 2 * n.div_ceil(2) + 2;
            assert_eq!(counts.total(Op::Bootstrap), runs * 2 * bootstraps);
            assert_eq!(counts.total(Op::Refreshed), runs * 2 * (2 * 2 * n + 2 * n + 2));
        }
    }
}

/// Operations depend on shapes, not on weights. Steps of iterations are part of the choices, which may differ.
#[test]
fn two_sets_of_weights_in_packed_rows_take_the_same_operations() {
    let params: Arc<CkksParams> = CkksParams::insecure_test(10, 14).unwrap();
    for (columns, lengths) in [(16, Lengths::Public), (8, Lengths::Public), (16, Lengths::Private)] {
        let counts = |seed: u64| {
            let (program, texts, mut measured) = tiny_of(seed);
            for layer in &mut measured.choices.layers {
                let attention = &mut layer.attention;
                (attention.first_steps, attention.second_steps) = (4, 5);
            }
            let bound = bound_of_inputs(&program, 16).unwrap();
            let on = Simulator::new(&params, 512).unwrap();
            let shape = (16, columns, lengths);
            let found = run_knowing(&on, &program, &measured.choices, shape, bound, &texts);
            let counts = on.tally().counts();
            let operations = serde_json::to_string(&counts.operations).unwrap();
            (operations, counts.rotations, found.unwrap())
        };
        let (one, other) = (counts(5), counts(6));
        assert!(one.0 == other.0 && one.1 == other.1);
        assert!(one.2 != other.2);
    }
}

/// Private lengths cost products, rotations of one vector and a refresh of two, and no level: the answer is the same.
#[test]
fn with_private_lengths_a_tiny_model_in_packed_rows_is_the_model() {
    let (program, texts, measured) = tiny();
    let params: Arc<CkksParams> = CkksParams::insecure_test(10, 14).unwrap();
    let bound = bound_of_inputs(&program, 16).unwrap();
    for vectors in [1, 2, 4] {
        for noisy in [false, true] {
            let run = |lengths| {
                let mut on = Simulator::new(&params, 512).unwrap();
                if noisy {
                    on = on.with_errors(1);
                }
                let shape = (16, 16 / vectors, lengths);
                let choices = &measured.choices;
                let found = run_knowing(&on, &program, choices, shape, bound, &texts).unwrap();
                (found, on.tally().counts())
            };
            let (public, known) = run(Lengths::Public);
            let (private, counts) = run(Lengths::Private);
            for ((a, b), known) in measured.pooled.iter().zip(&private).zip(&public) {
                assert!(cosine(a, b) > 0.999, "{}", cosine(a, b));
                let apart = b.iter().zip(known).map(|(b, a)| (b - a).powi(2));
                let apart = apart.sum::<f64>().sqrt() / length(known);
                let bound = if noisy { 2e-3 } else { 1e-4 };
                assert!(apart < bound, "{vectors} vectors: {apart:e}");
            }
            let runs = if vectors == 1 { 2 } else { 1 };
            let more = |op| counts.total(op) - known.total(op);
            assert_eq!(more(Op::Refreshed), 2 * runs);
        }
    }
}

/// A pruned feed-forward is one map that includes the residual.
#[test]
fn merged_feed_forwards_in_packed_rows_are_the_model() {
    let params: Arc<CkksParams> = CkksParams::insecure_test(10, 14).unwrap();
    for merged in [vec![0], vec![0, 1]] {
        let config = NetworkConfig { merged, ..tiny_config() };
        let network = random_network(&config, Pool::Mean, 5);
        let program = network.program_of_all_rows();
        let texts: Vec<Matrix<f64>> = some(4, 13).iter().map(|t| embedded(&program, t).unwrap()).collect();
        let measured = measure(&network, &texts, &Structure::default(), 16, (15, 15));
        let bound = bound_of_inputs(&program, 16).unwrap();
        for vectors in [1, 2] {
            let on = Simulator::new(&params, 512).unwrap().with_errors(1);
            let shape = (16, 16 / vectors);
            let found = run(&on, &program, &measured.choices, shape, bound, &texts).unwrap();
            for (a, b) in measured.pooled.iter().zip(&found) {
                assert!(cosine(a, b) > 0.999, "{}", cosine(a, b));
            }
        }
    }
}

/// Logits compared with those of the model, and of the same texts in a batch.
#[test]
fn a_tiny_classifier_in_packed_rows_is_the_model() {
    for layers in [1, 2] {
        let mut config = tiny_classifier_config(&TINY_LABELS);
        config.layers = layers;
        let network = random_network(&config, Pool::First, 5);
        let program = network.program_of_all_rows();
        let tokens = some(4, 13);
        let texts: Vec<Matrix<f64>> = tokens.iter().map(|t| embedded(&program, t).unwrap()).collect();
        let measured = measure(&network, &texts, &Structure::default(), 16, (15, 15));
        let params: Arc<CkksParams> = CkksParams::insecure_test(10, 14).unwrap();
        let bound = bound_of_inputs(&program, 16).unwrap();
        let batch = in_a_batch(&program, &measured.choices, &params, &texts);
        // Columns in one vector, and in two.
        for columns in [16, 8] {
            let on = Simulator::new(&params, 256).unwrap();
            let shape = (16, columns);
            let found = run(&on, &program, &measured.choices, shape, bound, &texts).unwrap();
            for ((text, found), batch) in tokens.iter().zip(&found).zip(&batch) {
                let clear = plain::run(&program, vec![text.clone()], |_, _| ()).unwrap();
                let clear = clear.values.row(0);
                for other in [clear, batch] {
                    let near = nearness(found, other, length(clear));
                    assert!(found.len() == 3 && near > 0.999_99, "{layers} layers: {near}");
                }
            }
        }
    }
}

/// Heads of 64 columns, six in each of two vectors.
#[test]
fn one_text_of_768_columns_is_planned() {
    let config = NetworkConfig { layers: 2, vocabulary: 8, positions: 128, ..NetworkConfig::base() };
    let program = random_network(&config, Pool::Mean, 1).program_of_all_rows();
    let choices = assumed_choices(&program, 128);
    let params = CkksParams::preset("n16-boot-14x40").unwrap();
    let placed = |texts| packed_placement(&program, &choices, &params, &options(texts)).unwrap();
    let placement = placed(1).unwrap();
    assert_eq!(placement.columns, 256);
    let run = dry_run(&program, &choices, &params, &options(1), &placement).unwrap();
    assert_eq!(run.reply, 2);
    assert_eq!(run.counts.total(Op::Bootstrap), 2 * 8);
    // Eight texts: one head of each in a vector. More are a batch.
    assert_eq!(placed(8).unwrap().columns, 32);
    assert_eq!(placed(9), None);
}

#[test]
fn minilm_one_text_in_packed_rows() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/calibration-fhe-minilm.json");
    let choices = Choices::from_json(&std::fs::read(path).unwrap()).unwrap();
    let model = Model::load(&model_folder()).unwrap();
    let network = model.encoder().unwrap();
    let program = network.program_of_all_rows();
    let params = CkksParams::preset("n16-boot-14x40").unwrap();
    let bound = bound_of_inputs(&program, 128).unwrap();
    // From the time when columns took only one vector: the operations, and so the bytes, are unchanged.
    let mut options = options(1);
    options.placement = packed_placement(&program, &choices, &params, &options).unwrap();
    let (_, keys) = bootstrap(&params).unwrap();
    let plan = FhePlanReport::new(&program, &choices, false, &params, &keys, &options).unwrap();
    assert_eq!(operations(&plan), [36, 5018, 1200, 2634, 1925, 129]);
    // With private lengths: no additional level or rotation key.
    options.lengths = Lengths::Private;
    let hidden = FhePlanReport::new(&program, &choices, false, &params, &keys, &options).unwrap();
    assert_eq!(hidden.rotation_keys, plan.rotation_keys);
    assert_eq!(hidden.work.bootstraps(), 37);
    assert!(hidden.work.rotations < plan.work.rotations + 30);
    assert!(hidden.work.relinearisations < plan.work.relinearisations + 70);
    for text in ["Does the museum open on public holidays?", "Der Zug nach Basel fährt heute von Gleis 7."] {
        let tokens = model.tokens(text, TooLong::Refuse).unwrap();
        let x = embedded(&program, &tokens).unwrap();
        let exact = model.embed(vec![tokens.clone()]).unwrap();
        let answer = |seed: Option<u64>| {
            let mut on = Simulator::new(&params, 32 * 256).unwrap();
            if let Some(seed) = seed {
                on = on.with_errors(seed);
            }
            let x = std::slice::from_ref(&x);
            run(&on, &program, &choices, (32, 256), bound, x).unwrap().remove(0)
        };
        let (polynomials, noisy) = (answer(None), answer(Some(1)));
        for found in [&polynomials, &noisy] {
            let near = cosine(&exact[0], found);
            assert!(near > 0.9999, "{text:?}: {near}");
        }
        // A head with a fixed pattern used to pass through the first inverse, which multiplied the errors of its places
        // by thousands: replies were certified to three bits after the point.
        let size = polynomials.iter().map(|x| x * x).sum::<f64>().sqrt();
        let apart: f64 = polynomials.iter().zip(&noisy).map(|(a, b)| (a - b).powi(2)).sum();
        assert!(apart.sqrt() < 5e-4 * size, "{text:?}: {}", apart.sqrt() / size);
    }
}
