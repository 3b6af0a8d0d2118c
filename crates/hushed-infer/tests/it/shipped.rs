//! The calibration for CKKS that the repository ships: it can be read, it is for the model that
//! `scripts/fetch_model.sh` fetches, and texts that nobody measured come out as they should.

use std::fs;
use std::path::Path;

use hushed_ckks::CkksParams;
use hushed_infer::calibrate::{Errors, embed, reaches, weights_sha256};
use hushed_infer::ckks::pool::unpack;
use hushed_infer::ckks::{Choices, HeadChoice, Pass, Placement, RowsKnown, Simulator, Slots};
use hushed_infer::packing::Interleave;
use hushed_model::testing::model_folder;
use hushed_model::{Model, TokenIds, TooLong, cosine, plain};

fn shipped() -> Choices {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data/calibration-fhe-minilm.json");
    let bytes = fs::read(path).unwrap();
    assert!(bytes.len() < 300_000, "{}", bytes.len());
    Choices::from_json(&bytes).unwrap()
}

#[test]
fn it_says_what_was_chosen_and_why() {
    let choices = shipped();
    assert_eq!((choices.layers.len(), choices.rows), (6, 128));
    let chosen: Vec<_> = choices
        .report
        .candidates
        .iter()
        .filter(|c| c.chosen)
        .collect();
    assert_eq!(chosen.len(), 1);
    assert!(chosen[0].cosine_min >= choices.report.wanted);
    assert!(chosen[0].cosine_min_with_errors.unwrap() >= choices.report.wanted);
    for layer in &choices.layers {
        // What a chain of 14 levels has room for.
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
    choices
        .check_model(&weights_sha256(&folder).unwrap())
        .unwrap();
    let model = Model::load(&folder).unwrap();
    choices.check(&model.network).unwrap();
    let texts = [
        "Does the museum open on public holidays?",
        "Der Zug nach Basel fährt heute von Gleis 7.",
        "git rebase --onto main topic~3 topic",
    ]
    .map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    let exact = model.embed(texts.to_vec()).unwrap();
    for errors in [None, Some(Errors::default())] {
        let found = embed(&model, &choices, &texts, errors).unwrap();
        for (a, b) in exact.iter().zip(&found) {
            assert!(cosine(a, b) > 0.9995, "{}", cosine(a, b));
        }
    }
}

/// The texts of `data/unseen.txt`, of which nothing was ever fitted to: how far they go, and what comes of them.
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
    let texts: Vec<TokenIds> = unseen
        .lines()
        .map(|t| model.tokens(t, TooLong::Refuse).unwrap())
        .collect();
    assert!(texts.len() >= 60);
    for (text, reaches) in reaches(&model, &choices, &texts)
        .unwrap()
        .iter()
        .enumerate()
    {
        for reach in reaches {
            assert!(reach.reach < 1.0, "line {}: {reach:?}", text + 1);
        }
    }
    let exact = model.embed(texts.clone()).unwrap();
    let found = embed(&model, &choices, &texts, Some(Errors::default())).unwrap();
    for (text, (a, b)) in exact.iter().zip(&found).enumerate() {
        assert!(cosine(a, b) > 0.9995, "line {}: {}", text + 1, cosine(a, b));
    }
}

/// The steps of an encrypted run with its primes, scales and errors, two texts at once, beside the search's own
/// arithmetic.
#[test]
fn a_simulated_run_agrees() {
    const SLOTS: usize = 256;
    let choices = shipped();
    let model = Model::load(&model_folder()).unwrap();
    let texts = [
        "My bicycle was stolen from the cellar last night, who pays for it?",
        "two tickets",
    ]
    .map(|t| model.tokens(t, TooLong::Refuse).unwrap());
    let x: Vec<_> = texts
        .iter()
        .map(|t| {
            plain::start(&model.program(), vec![t.clone()])
                .unwrap()
                .values
        })
        .collect();
    let bound = x
        .iter()
        .flat_map(|x| x.data())
        .fold(0.0_f64, |m, v| m.max(v.abs()));
    let layout = Interleave::new(SLOTS, choices.rows).unwrap();
    let params = CkksParams::insecure_test(10, 14).unwrap();
    let on = Simulator::new(&params, SLOTS).unwrap().with_errors(7);
    let lengths: Vec<usize> = texts.iter().map(|t: &TokenIds| t.ids().len()).collect();
    let rows = RowsKnown::public(layout, lengths.clone()).unwrap();
    let placement = Placement::plain(on.top(), choices.rows, 32);
    let program = model.program();
    let mut pass = Pass::new(&on, &program, &choices, placement, rows, bound).unwrap();
    let column = |j: usize| {
        let of = |text: usize, row: usize| match &x[text] {
            x if row < x.rows() => x.row(row)[j] / bound,
            _ => 0.0,
        };
        on.vector(layout.vector(x.len(), of), on.top()).unwrap()
    };
    let pooled = pass.run((0..384).map(column).collect()).unwrap();
    let vectors: Vec<_> = pooled.vectors.iter().map(|v| v.values().to_vec()).collect();
    let found = unpack(layout, &lengths, pooled.width, pooled.factor, &vectors).unwrap();
    let exact = model.embed(texts.to_vec()).unwrap();
    let near = embed(&model, &choices, &texts, None).unwrap();
    for ((found, exact), near) in found.iter().zip(&exact).zip(&near) {
        println!("{:.7} {:.7}", cosine(found, exact), cosine(found, near));
        assert!(cosine(found, exact) > 0.9995, "{}", cosine(found, exact));
        assert!(cosine(found, near) > 0.99999, "{}", cosine(found, near));
    }
}
