//! Decoders with LayerNorm on a key: a tiny random GPT-2, and the first layer of the trained one of this repository.

use std::path::Path;

use hushed_model::testing::tiny_generator;
use hushed_model::{TokenIds, TooLong, cosine};

use super::tests::assert_steps_err_as_predicted;
use super::*;
use crate::calibrate::decoder::{Degrees, measure};
use crate::calibrate::{Options as Search, Sample, calibrate};
use crate::plan::public_plan::{Lengths, named};

const ROWS: usize = 16;

/// Compares some layers on a key: every step is present and errs as predicted, and the last rows, or the rows after the
/// last of these layers, are those of the clear model.
fn compared(model: &Model, texts: &[TokenIds], layers: usize) -> Report {
    let program = model.program_of_all_rows();
    let seen = measure(&program, texts, &[]).unwrap();
    let mut choices = Choices::unnamed(ROWS, Vec::new(), None);
    choices.decoder = Some(seen.choice(&program, Degrees { scores: 31, activation: 31 }, (ROWS, 14)).unwrap());
    let params = named("insecure-test/9/14").unwrap();
    let options = Options {
        rows: ROWS,
        layers: Some(layers),
        lengths: Lengths::Private,
        seed: 3,
        together: None,
        encrypted: Some(OnKey::default()),
    };
    let report = verify(model, &choices, &params, texts, &options, &|_| ()).unwrap();
    assert!(report.out_of_range.is_empty());
    assert_steps_err_as_predicted(&report, layers);
    for answer in &report.answers {
        let near = cosine(&answer.clear, answer.encrypted.as_ref().unwrap());
        assert!(near > 0.999, "{} {near}", answer.text);
    }
    report
}

/// The token that follows is that of the clear model wherever its logit leads by more than twice the error.
#[test]
fn a_tiny_generator_on_a_key_is_the_clear_model() {
    let model = tiny_generator();
    let text = |length: usize| TokenIds::new((0..length).map(|i| (i * 31 + length * 17) as u32 % 250).collect());
    let texts: Vec<_> = [16, 3, 1, 9, 5, 12, 2, 7].map(text).to_vec();
    let report = compared(&model, &texts, 2);
    let program = model.program_of_all_rows();
    let head = program.vocabulary().unwrap().weights.clone().unwrap();
    let mut sure = 0;
    for answer in &report.answers {
        let logits = |row: &[f64]| -> Vec<f64> {
            let logit = |i: usize| head.row(i).iter().zip(row).map(|(w, x)| f64::from(*w) * x).sum();
            (0..head.rows()).map(logit).collect()
        };
        let (clear, found) = (logits(&answer.clear), logits(answer.encrypted.as_ref().unwrap()));
        let far = clear.iter().zip(&found).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let top = |all: &[f64]| (0..all.len()).max_by(|&a, &b| all[a].total_cmp(&all[b])).unwrap();
        let mut sorted = clear.clone();
        sorted.sort_by(|a, b| b.total_cmp(a));
        if sorted[0] - sorted[1] > 2.0 * far {
            assert_eq!(top(&found), top(&clear));
            sure += 1;
        }
    }
    println!("{sure} of {} sure", report.answers.len());
    assert!(report.answers.len() == 8 && sure >= 4, "{sure}");
}

/// The trained one: its first layer runs on a key. In later layers the first rows of a text, which see few keys, have
/// sums of exponentials of which no inverse covers the range, and a calibration says so.
#[test]
fn of_a_trained_generator_the_first_layer_runs_on_a_key() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/gpt2-small");
    let model = Model::load(&folder).unwrap();
    let sample = std::fs::read_to_string(folder.join("../decoder-small/sample.txt")).unwrap();
    let lines = sample.lines().filter(|line| !line.is_empty());
    let ids = lines.map(|line| model.tokens(line, TooLong::Cut).unwrap());
    let texts = ids.map(|text| TokenIds::new(text.ids().iter().copied().take(ROWS).collect()));
    let texts: Vec<TokenIds> = texts.take(12).collect();
    compared(&model, &texts[..4], 1);
    let sample = Sample { texts: &texts, hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let search =
        Search { rows: ROWS, parameters: "insecure-test/13/14".to_owned(), activation: Some(15), ..Search::default() };
    let refused = calibrate(&model, &sample, &search, &mut |_| ()).unwrap_err().to_string();
    assert!(refused.contains("sums of exponentials differ by a factor of 10^"), "{refused}");
}
