//! A trained GPT-2, the small one of this repository, on a key.

use std::path::Path;

use hushed_model::{TooLong, cosine};

use super::*;
use crate::calibrate::{Options as Search, Sample, calibrate};
use crate::plan::public_plan::{Lengths, named};

const ROWS: usize = 16;

/// Every step of the first layers errs as predicted, and the last rows are those of the clear model.
#[test]
fn a_trained_gpt2_on_a_key_is_the_clear_model() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/gpt2-small");
    let model = Model::load(&folder).unwrap();
    let sample = std::fs::read_to_string(folder.join("../decoder-small/sample.txt")).unwrap();
    let texts: Vec<_> = sample.lines().filter_map(|line| model.tokens(line, TooLong::Cut).ok()).collect();
    let texts: Vec<_> = texts.into_iter().filter(|text| !text.ids().is_empty()).collect();
    let texts: Vec<_> = texts
        .iter()
        .map(|text| hushed_model::TokenIds::new(text.ids().iter().copied().take(ROWS).collect()))
        .take(100)
        .collect();
    let sample = Sample { texts: &texts[..96], hostile: &[], broad: &[], sha256: "", model_sha256: "" };
    let search =
        Search { rows: ROWS, parameters: "insecure-test/13/14".to_owned(), wanted: 0.999, ..Search::default() };
    let choices = calibrate(&model, &sample, &search, &mut |line| println!("{line}")).unwrap();
    let params = named("insecure-test/9/14").unwrap();
    let options = Options {
        rows: ROWS,
        layers: Some(2),
        lengths: Lengths::Private,
        seed: 3,
        together: None,
        encrypted: Some(OnKey::default()),
    };
    let report = verify(&model, &choices, &params, &texts[96..100], &options, &|_| ()).unwrap();
    assert!(report.out_of_range.is_empty());
    assert_eq!(report.stages.len(), 12);
    for s in &report.stages {
        let (measured, predicted) = (s.encrypted_noise.unwrap(), s.predicted_noise);
        println!(
            "{:<26} clear {:.3} polynomial {:.2e} noise {:.2e} encrypted {:.2e}",
            s.site, s.clear_rms, s.polynomial.rms, predicted.rms, measured.rms
        );
        assert!(s.polynomial.rms < 0.05, "{s:?}");
        assert!(measured.rms > predicted.rms / 64.0 && measured.rms < 2.0 * predicted.rms, "{s:?}");
    }
    for answer in &report.answers {
        let near = cosine(&answer.clear, answer.encrypted.as_ref().unwrap());
        println!("{} {near}", answer.text);
        assert!(near > 0.999, "{} {near}", answer.text);
    }
}
