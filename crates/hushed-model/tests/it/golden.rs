//! The clear backend compared with an independent reference (scripts/golden.py), step by step, on the real model.

use std::collections::BTreeMap;
use std::path::Path;

use hushed_model::plain::{self, Moment, Seen};
use hushed_model::testing::{TINY_LABELS, data_lines, model_folder, tiny_classifier_folder};
use hushed_model::{Model, PlainActs, PlainScores, Public, PublicFiles, TokenIds, TooLong};
use serde::Deserialize;

#[derive(Deserialize)]
struct Golden {
    text: String,
    ids: Vec<u32>,
    embedding: Vec<f64>,
    sites: BTreeMap<String, Site>,
}

#[derive(Deserialize)]
struct Site {
    size: usize,
    rms: f64,
    max: f64,
    probes: Vec<f64>,
}

fn golden<T: for<'a> Deserialize<'a>>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden").join(name);
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

fn public() -> Public {
    PublicFiles::read(&model_folder()).unwrap().parse().unwrap()
}

fn numbers(value: Seen<'_>) -> Vec<f64> {
    match value {
        Seen::Acts(PlainActs { values, .. }) => values.data().to_vec(),
        Seen::Scores(PlainScores { texts, .. }) => texts.iter().flatten().flat_map(|m| m.data().to_vec()).collect(),
    }
}

#[test]
fn every_step_equals_the_reference() {
    let model = Model::load(&model_folder()).unwrap();
    for golden in golden::<Vec<Golden>>("layers.json") {
        let ids = model.tokens(&golden.text, TooLong::Refuse).unwrap();
        assert_eq!(ids.ids(), golden.ids);

        let mut seen = BTreeMap::new();
        let see = |id: hushed_model::StepId, _, moment, value: Seen<'_>| {
            if moment == Moment::Output {
                seen.insert(id.to_string(), numbers(value));
            }
        };
        let pooled = plain::run_parts(&model.program(), vec![ids], see).unwrap();

        let places = |site: &BTreeMap<String, Vec<f64>>| site.keys().cloned().collect::<Vec<_>>();
        assert_eq!(places(&seen), golden.sites.keys().cloned().collect::<Vec<_>>());
        for (site, expected) in &golden.sites {
            let values = &seen[site];
            assert_eq!(values.len(), expected.size, "{site}");
            let rms = (values.iter().map(|v| v * v).sum::<f64>() / values.len() as f64).sqrt();
            let max = values.iter().fold(0f64, |m, v| m.max(v.abs()));
            let bound = 1e-6 * expected.rms;
            assert!((rms - expected.rms).abs() < bound, "{site}: rms {rms}, expected {}", expected.rms);
            assert!((max - expected.max).abs() < 1e-6 * expected.max, "{site}: max {max}, expected {}", expected.max);
            for (j, probe) in expected.probes.iter().enumerate() {
                let value = values[(j * 7919) % values.len()];
                assert!(
                    (value - probe).abs() < bound.max(1e-6 * probe.abs()),
                    "{site}: probe {j} is {value}, expected {probe}"
                );
            }
        }
        let embedding = model.public.finish(pooled.values.data().to_vec());
        let error = embedding.iter().zip(&golden.embedding).fold(0f64, |m, (a, b)| m.max((a - b).abs()));
        assert!(error < 1e-6, "embedding differs by {error}");
    }
}

#[derive(Deserialize)]
struct Classified {
    ids: Vec<u32>,
    logits: Vec<f64>,
}

#[test]
fn logits_equal_the_reference() {
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &TINY_LABELS).unwrap();
    let model = Model::load(folder.path()).unwrap();
    for golden in golden::<Vec<Classified>>("classifier.json") {
        let found = model.embed(vec![TokenIds::new(golden.ids)]).unwrap();
        assert_eq!(found[0].len(), golden.logits.len());
        for (a, b) in found[0].iter().zip(&golden.logits) {
            assert!((a - b).abs() < 1e-6, "{a}, expected {b}");
        }
    }
}

#[test]
fn token_ids_equal_the_reference() {
    let public = public();
    for (name, expected) in golden::<BTreeMap<String, Vec<Vec<u32>>>>("tokens.json") {
        let lines = data_lines(&name).unwrap();
        assert_eq!(lines.len(), expected.len(), "{name} changed: run scripts/golden.py again");
        for (line, ids) in lines.iter().zip(expected) {
            assert_eq!(public.tokens(line, TooLong::Refuse).unwrap().ids(), ids, "{name}: {line}");
        }
    }
}

#[test]
fn the_sample_is_varied() {
    let public = public();
    let lines = data_lines("sample.txt").unwrap();
    let lengths: Vec<_> = lines.iter().map(|l| public.tokens(l, TooLong::Refuse).unwrap().ids().len()).collect();
    assert!(lines.len() >= 120);
    assert_eq!((lengths.iter().min(), lengths.iter().max()), (Some(&3), Some(&128)));
}

/// The similarities that the Sentence Transformers documentation prints for this model.
#[test]
fn published_similarities() {
    let model = Model::load(&model_folder()).unwrap();
    let texts = ["The weather is lovely today.", "It's so sunny outside!", "He drove to the stadium."];
    let ids = texts.map(|t| model.tokens(t, TooLong::Refuse).unwrap()).to_vec();
    let e = model.embed(ids).unwrap();
    let cosine = |a: usize, b: usize| e[a].iter().zip(&e[b]).map(|(x, y)| x * y).sum::<f64>();
    for (found, printed) in
        [(cosine(0, 0), 1.0), (cosine(0, 1), 0.6660), (cosine(0, 2), 0.1046), (cosine(1, 2), 0.1411)]
    {
        assert!((found - printed).abs() < 5e-5, "{found}, printed {printed}");
    }
}

#[test]
fn the_model_is_what_the_report_says() {
    let report = hushed_model::check(&model_folder());
    assert!(report.supported(), "{:?}", report.problems);
    let s = report.summary.unwrap();
    assert_eq!((s.layers, s.width, s.heads, s.hidden, s.max_tokens), (6, 384, 12, 1536, 256));
    assert_eq!((s.pooling, s.normalised, s.vocabulary), ("mean", true, 30522));
}
