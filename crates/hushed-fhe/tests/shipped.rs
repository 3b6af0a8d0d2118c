//! The CKKS calibration shipped with the repository: it can be read, it belongs to the model that
//! `scripts/fetch_model.sh` fetches, and texts that were not measured give correct answers.

use std::fs;
use std::path::Path;
use std::sync::Arc;

use hushed_ckks::CkksParams;
use hushed_fhe::calibrate::{Options, embed, reaches, weights_sha256};
use hushed_fhe::{Choices, HeadChoice};
use hushed_model::testing::model_folder;
use hushed_model::{Model, TokenIds, TooLong, cosine};

fn shipped() -> Choices {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/calibration-fhe-minilm.json");
    let bytes = fs::read(path).unwrap();
    assert!(bytes.len() < 300_000, "{}", bytes.len());
    Choices::from_json(&bytes).unwrap()
}

/// The parameter set that it was made for.
fn params() -> Arc<CkksParams> {
    Options::default().params().unwrap()
}

#[test]
fn it_says_what_was_chosen_and_why() {
    let choices = shipped();
    assert_eq!((choices.layers.len(), choices.rows), (6, 128));
    let chosen: Vec<_> = choices.report.candidates.iter().filter(|c| c.chosen).collect();
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].cosine_min >= choices.report.wanted);
    assert!(chosen[0].cosine_min_with_errors.unwrap() >= choices.report.wanted);
    for layer in &choices.layers {
        // The most that a chain of 14 levels has room for.
        assert!(layer.attention.degree <= 31 && layer.attention.first_steps <= 8);
        assert!(layer.activation.degree <= 31 && layer.attention.second_steps <= 11);
        assert!(layer.attention.heads.len() == 12 && layer.activation.columns.len() == 1536);
    }
    let heads = choices.layers.iter().flat_map(|l| &l.attention.heads);
    assert!(heads.filter(|h| **h == HeadChoice::Previous).count() <= 1);
}

#[test]
fn texts_that_were_not_measured_come_out_right() {
    let (folder, choices) = (model_folder(), shipped());
    choices.check_model(&weights_sha256(&folder).unwrap()).unwrap();
    let model = Model::load(&folder).unwrap();
    choices.check(&model.program_of_all_rows()).unwrap();
    let texts = [
        "Does the museum open on public holidays?",
        "Der Zug nach Basel fährt heute von Gleis 7.",
        "git rebase --onto main topic~3 topic",
    ]
    .map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    let exact = model.embed(texts.to_vec()).unwrap();
    for seed in [None, Some(1)] {
        let found = embed(&model, &choices, &texts, &params(), seed).unwrap();
        for (a, b) in exact.iter().zip(&found) {
            let cosine = cosine(a, b.as_ref().unwrap());
            assert!(cosine > 0.9995, "{cosine}");
        }
    }
}

/// The texts of `data/unseen.txt`, to which nothing was ever fitted: how far they reach, and their results.
#[test]
fn texts_that_nobody_calibrated_with() {
    let (folder, choices) = (model_folder(), shipped());
    let model = Model::load(&folder).unwrap();
    let data = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data");
    let lines = |name: &str| fs::read_to_string(data.join(name)).unwrap();
    let unseen = lines("unseen.txt");
    for name in ["calibration.txt", "calibration-hostile.txt"] {
        let seen = lines(name);
        assert!(!unseen.lines().any(|text| seen.lines().any(|s| s == text)));
    }
    let texts: Vec<TokenIds> = unseen.lines().map(|t| model.tokens(t, TooLong::Refuse).unwrap()).collect();
    assert!(texts.len() >= 60);
    for (text, reaches) in reaches(&model, &choices, &texts, &params()).unwrap().iter().enumerate() {
        for reach in reaches {
            assert!(reach.reach < 1.0, "line {}: {reach:?}", text + 1);
        }
    }
    let exact = model.embed(texts.clone()).unwrap();
    let found = embed(&model, &choices, &texts, &params(), Some(1)).unwrap();
    for (text, (a, b)) in exact.iter().zip(&found).enumerate() {
        let cosine = cosine(a, b.as_ref().unwrap());
        assert!(cosine > 0.9995, "line {}: {cosine}", text + 1);
    }
}
