//! Tiny sentence encoders with rotary or relative positions, compared with `sentence-transformers`
//! (scripts/tiny_embedders.py): token ids exactly, answers to 1e-5.

use std::fs;
use std::path::Path;

use hushed_model::testing::tiny_golden;
use hushed_model::{Model, Problem, Task, TokenIds, TooLong, check};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

/// And whether the vectors have length one.
const FOLDERS: [(&str, bool); 4] =
    [("qwen3-embedding", true), ("modernbert", true), ("mpnet", true), ("clip-text", false)];

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    answer: Vec<f64>,
}

#[test]
fn ids_and_answers_equal_the_reference() {
    for (folder, unit) in FOLDERS {
        let path = tiny_golden(folder);
        let report = check(&path);
        assert!(report.supported(), "{folder}: {:?}", report.problems);
        assert_eq!(report.warnings, [], "{folder}");
        // Matrices that stay in the files give the same answers.
        let models = [Model::load(&path).unwrap(), Model::open(&path).unwrap()];
        let expected = fs::read(path.join("expected.json")).unwrap();
        for golden in serde_json::from_slice::<Vec<Expected>>(&expected).unwrap() {
            for model in &models {
                assert_eq!((model.public.task(), model.public.normalise), (Task::Embed, unit));
                let ids = model.tokens(&golden.text, TooLong::Refuse).unwrap();
                assert_eq!(ids.ids(), golden.ids, "{folder}: {:?}", golden.text);
                // A batch gives each text its own answer, and padding changes none.
                let padded = TokenIds::with_padding(golden.ids.clone(), &[5, 6, 7]);
                let found = model.embed(vec![padded, ids]).unwrap();
                for found in found {
                    assert_eq!(found.len(), golden.answer.len());
                    for (a, b) in found.iter().zip(&golden.answer) {
                        assert!((a - b).abs() < 1e-5, "{folder}: {a}, expected {b}");
                    }
                }
            }
        }
    }
}

/// A copy of a committed folder with one JSON file changed.
fn changed(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> TempDir {
    let (from, to) = (tiny_golden(name), TempDir::new().unwrap());
    fs::create_dir(to.path().join("1_Pooling")).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors", "modules.json", "1_Pooling/config.json"] {
        fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    let mut value = serde_json::from_slice(&fs::read(to.path().join(file)).unwrap()).unwrap();
    change(&mut value);
    fs::write(to.path().join(file), value.to_string()).unwrap();
    to
}

/// A decoder's folder embeds by its modules alone: without them it continues texts, and without pooling it is refused.
#[test]
fn a_decoder_embeds_where_modules_say_so() {
    let folder = changed("qwen3-embedding", "modules.json", |modules| {
        modules.as_array_mut().unwrap().truncate(1);
    });
    let named = |path: &Path, name: &str| {
        let found = check(path).problems;
        assert!(found.iter().any(|problem: &Problem| problem.to_string().contains(name)), "{found:?}");
    };
    named(folder.path(), "a decoder without Pooling");
    fs::remove_file(folder.path().join("modules.json")).unwrap();
    // Its tokenizer ends every text.
    named(folder.path(), "`post_processor`");
    let folder = changed("qwen3-embedding", "tokenizer.json", |tokenizer| {
        tokenizer["post_processor"]["processors"][1]["single"] = json!([{"Sequence": {"id": "A", "type_id": 0}}]);
    });
    named(folder.path(), "`post_processor`");
    fs::remove_file(folder.path().join("modules.json")).unwrap();
    assert_eq!(Model::load(folder.path()).unwrap().public.task(), Task::Generate);
}

/// Rows of a causal model may be pooled by their mean too.
#[test]
fn the_mean_of_a_decoder_is_that_of_its_rows() {
    let folder = changed("qwen3-embedding", "1_Pooling/config.json", |pooling| {
        pooling["pooling_mode_lasttoken"] = json!(false);
        pooling["pooling_mode_mean_tokens"] = json!(true);
    });
    let (mean, last) = (Model::load(folder.path()).unwrap(), Model::load(&tiny_golden("qwen3-embedding")).unwrap());
    let ids: Vec<u32> = vec![7, 30, 2, 99];
    // The last row of every beginning is that row of the whole text.
    let rows = (1..=ids.len()).map(|rows| {
        let item = vec![TokenIds::new(ids[..rows].to_vec())];
        hushed_model::plain::run(&last.program(), item, |_, _| ()).unwrap().values.data().to_vec()
    });
    let rows: Vec<Vec<f64>> = rows.collect();
    let all = hushed_model::plain::run(&mean.program(), vec![TokenIds::new(ids)], |_, _| ()).unwrap();
    for (i, found) in all.values.data().iter().enumerate() {
        let expected = rows.iter().map(|row| row[i]).sum::<f64>() / rows.len() as f64;
        assert!((found - expected).abs() < 1e-9);
    }
}
