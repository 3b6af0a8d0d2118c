use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_folder, tiny_golden};
use hushed_model::{Item, Model, TokenIds, TooLong};

use super::clear::Clear;
use super::search::compared;
use super::*;
use crate::plan::public_plan::named;
use crate::{HeadChoice, Interval, fits};

const TEXTS: [&str; 8] = ["a b c d", "c a", "b b b a c d a", "d", "a c a c a c", "d d a b", "b a d c c", "c d b"];

fn tiny() -> (tempfile::TempDir, Model, Vec<TokenIds>) {
    let folder = tempfile::tempdir().unwrap();
    tiny_folder(folder.path()).unwrap();
    let model = Model::load(folder.path()).unwrap();
    let texts = TEXTS.map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    (folder, model, texts.to_vec())
}

/// A ring of few slots with the levels of the real one.
const PARAMETERS: &str = "insecure-test/9/14";

fn params() -> Arc<CkksParams> {
    named(PARAMETERS).unwrap()
}

fn options() -> Options {
    Options { rows: 16, wanted: 0.999, parameters: PARAMETERS.to_owned(), ..Options::default() }
}

fn sample(texts: &[TokenIds]) -> Sample<'_> {
    Sample { texts, hostile: &[], broad: &[], sha256: "sample", model_sha256: "model" }
}

fn items(texts: &[TokenIds]) -> Vec<Item> {
    texts.iter().cloned().map(Item::from).collect()
}

fn furthest(a: &[Vec<f64>], b: &[Vec<f64>]) -> f64 {
    let pairs = a.iter().flatten().zip(b.iter().flatten());
    pairs.map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// Biases of keys and values are folded elsewhere, padding rows are included, and the answer is the model's.
#[test]
fn the_circuit_with_exact_functions_is_the_model() {
    let (_folder, model, texts) = tiny();
    let exact = model.embed(texts.clone()).unwrap();
    let (none, params) = (Structure::none(&model.program_of_all_rows()), params());
    for rows in [16, 9] {
        let clear = Clear { model: &model, params: &params, rows };
        let nothing = Seen::nothing(&model.program_of_all_rows());
        let (seen, answers) = clear.measured(&none, &items(&texts), nothing, true).unwrap();
        let answers = answers.into_iter().map(|row| model.public.finish(row));
        assert!(furthest(&answers.collect::<Vec<_>>(), &exact) < 1e-8);
        // Every quantity was measured, in padding rows too.
        for layer in &seen.layers {
            assert!(layer.heads.iter().all(|h| h.scores.least < h.scores.greatest));
            assert!(layer.columns.iter().all(|c| c.span.least < c.span.greatest));
            assert!(layer.norms.iter().all(|n| n.masked.least.is_finite()));
        }
    }
}

#[test]
fn a_calibration_reports_the_accuracy_it_reaches() {
    let (_folder, model, texts) = tiny();
    let mut heard = 0;
    let choices = calibrate(&model, &sample(&texts), &options(), &mut |_| heard += 1).unwrap();
    assert!(heard > 3);
    let chosen: Vec<_> = choices.report.candidates.iter().filter(|c| c.chosen).collect();
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].cosine_min >= 0.999 && chosen[0].cosine_min_with_errors.unwrap() >= 0.999);
    let read = Choices::from_json(&choices.to_json().unwrap()).unwrap();
    assert_eq!(read, choices);
    read.check(&model.program_of_all_rows()).unwrap();

    let exact = model.embed(texts.clone()).unwrap();
    for seed in [None, Some(1)] {
        let embed = |texts: &[TokenIds]| embed(&model, &choices, texts, &params(), seed).unwrap();
        let found = embed(&texts);
        assert!(compared(&exact, &found, false).0 > 0.999);
        let all: Vec<Vec<f64>> = found.iter().flatten().cloned().collect();
        assert!(furthest(&all, &exact) > 1e-9, "polynomials are not exact");
        // The same alone or in a batch, and the same errors for the same seed.
        let alone: Vec<Vec<f64>> = embed(&texts[..1]).into_iter().flatten().collect();
        // Of other bounds, and so with weights that are rounded otherwise.
        assert!(seed.is_some() || furthest(&alone, &all[..1]) < 1e-6);
        assert_eq!(embed(&texts), found);
    }
}

/// A classifier's calibration includes its head, and is judged by the distance of logits.
#[test]
fn a_classifier_has_its_head_calibrated() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    let model = Model::load(folder.path()).unwrap();
    let (_folder, _, texts) = tiny();
    let choices = calibrate(&model, &sample(&texts), &options(), &mut |_| ()).unwrap();
    choices.check(&model.program_of_all_rows()).unwrap();
    let head = choices.classifier.as_ref().unwrap();
    assert!(head.degree >= 15 && head.reach > 0.5, "{head:?}");
    let exact = model.embed(texts.clone()).unwrap();
    for seed in [None, Some(1)] {
        let found = embed(&model, &choices, &texts, &params(), seed).unwrap();
        assert!(compared(&exact, &found, true).0 > 0.999);
    }
    let read = Choices::from_json(&choices.to_json().unwrap()).unwrap();
    assert_eq!(read, choices);
}

/// Replacements take effect: a constant row, a fixed head.
#[test]
fn rows_are_frozen_and_heads_are_fixed() {
    let (_folder, model, texts) = tiny();
    let network = model.encoder().unwrap();
    let mut structure = Structure::none(&model.program_of_all_rows());
    let width = network.layers[0].feed_forward_norm.width;
    structure.frozen = vec![vec![0.5; width]];
    structure.fixed[0][1] = true;
    let options = options();
    let owner = sample(&texts);
    let search = Search::new(&model, &owner, &options).unwrap();
    let seen = search.measure(&structure, &items(&texts)).unwrap();
    assert_eq!(seen.layers[0].heads[1].scores, Default::default());
    assert!(seen.layers[0].norms[1].first.least > seen.layers[0].norms[1].first.greatest);
    let choices = search.choices(&structure, &seen, Degrees::AMPLE).unwrap();
    assert_eq!(choices.layers[0].attention.heads[1], HeadChoice::Previous);
    assert!(choices.layers[0].frozen_row.is_some() && choices.layers[1].frozen_row.is_none());
    let row = choices.layers[0].frozen_row.as_ref().unwrap();
    let frozen = measure::hats(row, &network.layers[0].feed_forward_norm).unwrap();
    assert!(frozen.iter().all(|v| (v - 0.5).abs() < 1e-3), "{frozen:?}");
}

#[test]
fn every_token_of_a_vocabulary_occurs_once() {
    let (_folder, model, _) = tiny();
    let tokenizer = model.public.tokenizer().unwrap();
    let texts = vocabulary(tokenizer, 16);
    let ends = [texts[0].ids()[0], *texts[0].ids().last().unwrap()];
    let mut inside = Vec::new();
    for text in &texts {
        let ids = text.ids();
        assert!(ids.len() > 2 && ids.len() <= 16);
        assert_eq!([ids[0], ids[ids.len() - 1]], ends);
        inside.extend_from_slice(&ids[1..ids.len() - 1]);
    }
    assert_ne!(inside, tokenizer.ordinary_ids(), "in another order");
    inside.sort_unstable();
    assert_eq!(inside, tokenizer.ordinary_ids());
    assert!(inside.len() > 5 && !inside.contains(&tokenizer.padding_id()));
    let again = vocabulary(tokenizer, 16);
    assert!(again.iter().map(TokenIds::ids).eq(texts.iter().map(TokenIds::ids)));
}

/// Measured texts lie within the margins; a text outside another sample's intervals is reported.
#[test]
fn reach_is_measured_for_each_text() {
    let (_folder, model, texts) = tiny();
    let options = options();
    let choices = intervals(&model, &sample(&texts), &options, 15, 15).unwrap();
    let inside = reaches(&model, &choices, &texts, &params()).unwrap();
    assert_eq!(inside.len(), texts.len());
    for reach in inside.iter().flatten() {
        assert!(reach.reach > 0.0 && reach.reach < 1.0, "{reach:?}");
    }
    let quantities: Vec<Quantity> = inside[0].iter().map(|r| r.quantity).collect();
    assert_eq!(
        quantities,
        [
            Quantity::Scores,
            Quantity::FirstSum,
            Quantity::SecondSum,
            Quantity::Variance,
            Quantity::Normed,
            Quantity::Argument
        ]
    );
    let mut narrow = choices;
    let column = &mut narrow.layers[1].activation.columns[3];
    (column.low, column.high) = (column.mean - 1e-3, column.mean + 1e-3);
    let outside = reaches(&model, &narrow, &texts[..1], &params()).unwrap();
    let worst = outside[0].last().unwrap();
    assert!(worst.reach > 1.0);
    assert_eq!((worst.layer, worst.index), (1, 3));
}

/// The size of an approximation at twice the half-width of its interval. A polynomial that is accurate on a whole
/// interval cannot do better: outside, it grows like the Chebyshev polynomial of its degree. Such sizes overflow
/// ciphertexts that the texts of a batch share, so intervals have margins; nothing here confines a text that leaves
/// them.
#[test]
fn outside_its_interval_an_approximation_is_as_large_as_documented() {
    for (degree, most) in [(7, 13), (15, 25), (31, 55)] {
        let interval = Interval { low: -30.0, high: 10.0 };
        let head = HeadChoice::Softmax {
            scores: interval,
            least_maximum: 0.0,
            first: Interval { low: 0.01, high: 3.0 },
            second: Interval { low: 0.01, high: 1.1 },
        };
        let exponential = fits::exponential(&head, degree).unwrap();
        let f = hushed_model::Activation::Gelu;
        let activation = fits::activation(f, interval, degree).unwrap();
        for polynomial in [exponential, activation] {
            // For the activation, slightly more than twice its interval.
            let values = (0..=400).map(|i| polynomial.eval(f64::from(i) / 100.0 - 2.0));
            let largest = values.fold(0.0_f64, |m, v| m.max(v.abs()));
            assert!(largest < 2f64.powi(most), "{degree}: 2^{}", largest.log2());
        }
    }
}

#[test]
fn unusable_samples_are_refused() {
    let (_folder, model, texts) = tiny();
    let few = calibrate(&model, &sample(&texts[..2]), &options(), &mut |_| ());
    assert!(few.is_err_and(|e| e.to_string().contains("too few")));
    let short = Options { rows: 4, ..options() };
    let long = calibrate(&model, &sample(&texts), &short, &mut |_| ());
    assert!(long.is_err_and(|e| e.to_string().contains("more than 4 rows")));
    let impossible = Options { wanted: 1.0, ..options() };
    let none = calibrate(&model, &sample(&texts), &impossible, &mut |_| ());
    assert!(none.is_err_and(|e| e.to_string().contains("no degrees")));
}

/// A decoder measured on the shortest token vector, with the longest held out: the refusal says which statistic it
/// takes out of its range.
#[test]
fn where_a_held_out_text_leaves_its_range_is_said() {
    let model = Model::load(&tiny_golden("bitnet-sigmoid")).unwrap();
    let program = model.program_of_all_rows();
    let tokens = program.embedding().unwrap().tokens.clone().unwrap();
    let square = |id: usize| tokens.row(id).iter().map(|v| v * v).sum::<f32>();
    let mut ids: Vec<usize> = (0..tokens.rows()).collect();
    ids.sort_by(|a, b| square(*a).total_cmp(&square(*b)));
    let (short, long) = (ids[0], ids[ids.len() - 1]);
    println!("squares {:.2e} and {:.2e}", square(short), square(long));
    let texts = [short, long, short, long].map(|id| TokenIds::new(vec![id as u32; 3]));
    let options = Options { hold_out: 2, ..options() };
    let refused = calibrate(&model, &sample(&texts), &options, &mut |_| ());
    let refused = refused.err().unwrap().to_string();
    println!("{refused}");
    assert!(refused.contains("layer.0.attention.norm"), "{refused}");
    // Without such a text nothing is said of ranges.
    let texts = [short; 4].map(|id| TokenIds::new(vec![id as u32; 3]));
    let options = Options { wanted: 1.0, ..options };
    let refused = calibrate(&model, &sample(&texts), &options, &mut |_| ());
    let refused = refused.err().unwrap().to_string();
    assert!(!refused.contains("interval"), "{refused}");
}

/// A degree above those that a search tries, as for a GELU over a wide interval.
#[test]
fn an_activation_has_the_degree_that_was_asked_for() {
    let (_folder, model, texts) = tiny();
    let options = Options { activation: Some(127), ..options() };
    let choices = calibrate(&model, &sample(&texts), &options, &mut |_| ()).unwrap();
    let candidates = choices.report.candidates.iter();
    let levels: Vec<usize> = candidates.map(|c| c.feed_forward_levels).collect();
    assert!(levels.iter().all(|&l| l == levels[0]), "{levels:?}");
    let choices = Choices::from_json(&choices.to_json().unwrap()).unwrap();
    let degrees = choices.layers.iter().map(|layer| layer.activation.degree);
    assert!(degrees.eq([127; 2]));
    for degree in [0, 128] {
        let options = Options { activation: Some(degree), ..options.clone() };
        let refused = calibrate(&model, &sample(&texts), &options, &mut |_| ());
        let refused = refused.err().unwrap().to_string();
        assert!(refused.contains(&format!("degree {degree}")), "{refused}");
    }
}
