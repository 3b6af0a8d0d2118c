//! Tiny folders compared with the reference libraries (scripts/tiny_folders.py, scripts/tiny_labels.py): token ids
//! exactly, answers to 1e-9 of their float64. Then what is refused in their tokenizers.

use std::fs;
use std::path::Path;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use hushed_model::testing::{mutations, tiny_golden};
use hushed_model::{Model, Problem, ProblemType, ScoreFn, TooLong, check, fuzz};
use serde::Deserialize;
use serde_json::{Value, json};
use tempfile::TempDir;

const FOLDERS: [&str; 5] = ["roberta", "roberta-classifier", "xlm-roberta", "distilbert", "multi-label"];

#[derive(Deserialize)]
struct Expected {
    text: String,
    ids: Vec<u32>,
    answer: Vec<f64>,
    #[serde(default)]
    probabilities: Vec<f64>,
}

fn expected(folder: &str) -> Vec<Expected> {
    let file = tiny_golden(folder).join("expected.json");
    serde_json::from_slice(&fs::read(file).unwrap()).unwrap()
}

#[test]
fn ids_and_answers_equal_the_reference() {
    for folder in FOLDERS {
        let path = tiny_golden(folder);
        let report = check(&path);
        assert!(report.supported(), "{folder}: {:?}", report.problems);
        let model = Model::load(&path).unwrap();
        let mut longest = 0;
        for golden in expected(folder) {
            let ids = model.tokens(&golden.text, TooLong::Cut).unwrap();
            assert_eq!(ids.ids(), golden.ids, "{folder}: {:?}", golden.text);
            longest = longest.max(golden.ids.len());
            let found = model.embed(vec![ids]).unwrap();
            assert_eq!(found[0].len(), golden.answer.len());
            for (a, b) in found[0].iter().zip(&golden.answer) {
                assert!((a - b).abs() < 1e-9, "{folder}: {a}, expected {b}");
            }
        }
        // The comparison includes the last row of the position table.
        assert_eq!((longest, model.public.max_tokens), (64, 64), "{folder}");
    }
}

/// A copy of a committed folder, for changes.
fn copy(name: &str) -> TempDir {
    let (from, to) = (tiny_golden(name), TempDir::new().unwrap());
    fs::create_dir(to.path().join("1_Pooling")).unwrap();
    for file in ["config.json", "tokenizer.json", "model.safetensors"]
        .into_iter()
        .chain(["modules.json", "1_Pooling/config.json"])
    {
        if from.join(file).is_file() {
            fs::copy(from.join(file), to.path().join(file)).unwrap();
        }
    }
    to
}

/// Changes one JSON file.
fn edit(folder: &Path, name: &str, change: impl FnOnce(&mut Value)) {
    let mut value = serde_json::from_slice(&fs::read(folder.join(name)).unwrap()).unwrap();
    change(&mut value);
    fs::write(folder.join(name), value.to_string()).unwrap();
}

/// The problems of a folder after a change to one file.
fn problems(name: &str, file: &str, change: impl FnOnce(&mut Value)) -> Vec<Problem> {
    let folder = copy(name);
    edit(folder.path(), file, change);
    check(folder.path()).problems
}

macro_rules! assert_problem {
    ($name:expr, $change:expr, $pattern:pat) => {
        let found = problems($name, "tokenizer.json", $change);
        assert!(matches!(&found[..], [$pattern]), "{found:#?}");
    };
}

/// Without a declared limit, texts may be as long as the tables have rows.
#[test]
fn texts_are_as_long_as_positions_are_left() {
    for (name, tokens) in [("roberta", 64), ("distilbert", 64)] {
        let model = Model::load(copy(name).path()).unwrap();
        assert_eq!(model.public.max_tokens, tokens);
    }
    let found = problems("roberta", "config.json", |c| {
        c["max_position_embeddings"] = json!(64);
    });
    assert!(matches!(
        &found[..],
        [Problem::WrongShape { name, expected, .. }] if name.contains("position") && expected[..] == [64, 32]
    ));
}

/// With a head, the encoder's tensors are under the architecture's name; otherwise they are not.
#[test]
fn prefixes() {
    for name in ["roberta-classifier", "roberta", "distilbert"] {
        let bytes = fs::read(tiny_golden(name).join("model.safetensors")).unwrap();
        let prefixed = bytes.windows(19).any(|w| w == b"roberta.embeddings.");
        assert_eq!(prefixed, name == "roberta-classifier");
    }
}

/// The classes that the library's pipeline finds likelier than not.
#[test]
fn labels_of_which_several_may_be_right() {
    let public = Model::load(&tiny_golden("multi-label")).unwrap().public;
    assert_eq!((public.config.problem, public.labels().unwrap().len()), (ProblemType::MultiLabel, 5));
    let (mut counts, golden) = ([0; 6], expected("multi-label"));
    for golden in &golden {
        let found: Vec<f64> = golden.answer.iter().map(|&logit| ScoreFn::Sigmoid.of(logit)).collect();
        // The pipeline rounds logits to 32 bits.
        assert!(found.iter().zip(&golden.probabilities).all(|(a, b)| (a - b).abs() < 1e-6), "{found:?}");
        let mut classes = public.config.problem.answer(&golden.answer, 0.0);
        counts[classes.len()] += 1;
        classes.sort_unstable();
        let likely = (0..5).filter(|&i| golden.probabilities[i] > 0.5);
        assert_eq!(classes, likely.collect::<Vec<_>>());
    }
    assert!(counts[2..5].iter().sum::<usize>() > golden.len() / 2, "{counts:?}");
}

#[test]
fn classifiers() {
    let model = Model::load(&tiny_golden("roberta-classifier")).unwrap();
    assert_eq!(model.public.labels().unwrap(), ["no", "perhaps", "yes"]);
    let classifier = |c: &mut Value| {
        c["architectures"] = json!(["DistilBertForSequenceClassification"]);
    };
    let folder = copy("distilbert");
    edit(folder.path(), "config.json", classifier);
    // A sentence encoder, whatever it was derived from.
    assert!(check(folder.path()).supported());
    fs::remove_file(folder.path().join("modules.json")).unwrap();
    let found = check(folder.path()).problems;
    // Its head is not in the file.
    assert!(found.len() == 4 && found.iter().all(|p| matches!(p, Problem::MissingTensor { .. })), "{found:?}");
}

#[test]
fn special_tokens_inside_a_text_are_text() {
    for name in ["roberta", "xlm-roberta", "distilbert"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let marks: &[&str] = match name {
            "distilbert" => &["[CLS]", "[SEP]", "[PAD]", "[MASK]"],
            _ => &["<s>", "</s>", "<pad>", "<mask>", "a <s>b</s> c"],
        };
        // An unknown character gives the unknown token, but RoBERTa knows all bytes.
        let (special, unknown): (&[u32], _) = match name {
            "roberta" => (&[0, 1, 2, 3, 4], None),
            "xlm-roberta" => (&[0, 1, 2, 3, 599], Some(3)),
            _ => (&[0, 1, 2, 3, 4], Some(1)),
        };
        for text in marks {
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            let inside = &ids.ids()[1..ids.ids().len() - 1];
            let as_text = |id: &u32| Some(*id) == unknown || !special.contains(id);
            assert!(inside.iter().all(as_text), "{name}: {text} is {inside:?}");
        }
        let ordinary = model.public.tokenizer().unwrap().ordinary_ids();
        assert!(ordinary.len() > 580 && !ordinary.iter().any(|id| special.contains(id)));
    }
}

/// Parts that published folders of these kinds have besides those of the committed folders.
#[test]
fn other_forms_of_the_same_tokenizers() {
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "add_prefix_space": true});
    let both = json!({"type": "Sequence", "pretokenizers": [{"type": "WhitespaceSplit"}, metaspace]});
    let map = |t: &Value| t["normalizer"]["normalizers"][0].clone();
    for change in [
        &(|t: &mut Value| t["pre_tokenizer"] = both.clone()) as &dyn Fn(&mut Value),
        &|t| t["normalizer"] = map(t),
        &|t| t["normalizer"] = Value::Null,
        &|t| {
            t["normalizer"] =
                json!({"type": "Sequence", "normalizers": [{"type": "NFKC"}, map(t), {"type": "Lowercase"}]})
        },
    ] {
        let found = problems("xlm-roberta", "tokenizer.json", change);
        assert!(found.is_empty(), "{found:?}");
    }
    let template = json!({"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}},
        {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": []});
    let found = problems("roberta", "tokenizer.json", |t| t["post_processor"] = template);
    assert!(found.is_empty(), "{found:?}");
}

/// Multilingual MiniLM and E5: BERT with SentencePiece's tokens and BERT's padding id.
#[test]
fn padding_ids_matter_where_positions_follow_from_them() {
    let found = problems("xlm-roberta", "config.json", |c| {
        c["pad_token_id"] = json!(0);
        c["max_position_embeddings"] = json!(65);
    });
    assert!(
        matches!(&found[..], [Problem::SpecialTokenDiffers { token, tokenizer: 1, config: 0 }] if token == "<pad>"),
        "{found:?}"
    );
    let found = problems("xlm-roberta", "config.json", |c| {
        c["model_type"] = json!("bert");
        c["pad_token_id"] = json!(0);
    });
    assert!(found.is_empty(), "{found:?}");
}

#[test]
fn byte_level_tokenizers_that_are_refused() {
    assert_problem!(
        "roberta",
        |t| t["model"]["dropout"] = json!(0.1),
        Problem::UnsupportedValue { field: "dropout", .. }
    );
    // A vocabulary for words with an end of their own has a token for each byte there.
    assert_problem!("roberta", |t| t["model"]["end_of_word_suffix"] = json!("</w>"), Problem::NoSuchToken { .. });
    assert_problem!(
        "roberta",
        |t| t["model"]["continuing_subword_prefix"] = json!("##"),
        Problem::UnsupportedValue { field: "continuing_subword_prefix", .. }
    );
    assert_problem!(
        "roberta",
        |t| t["normalizer"] = json!({"type": "ByteLevel"}),
        Problem::UnsupportedValue { field: "pre_tokenizer", .. }
    );
    assert_problem!(
        "roberta",
        |t| t["pre_tokenizer"] = json!({"type": "Whitespace"}),
        Problem::UnsupportedValue { .. }
    );
    assert_problem!(
        "roberta",
        |t| t["normalizer"] = json!({"type": "Replace", "pattern": {"Regex": "(a+)+$"}, "content": ""}),
        Problem::UnsupportedValue { field: "normalizer", .. }
    );
    // A byte without a token would disappear from texts.
    assert_problem!(
        "roberta",
        |t| {
            t["model"]["vocab"].as_object_mut().unwrap().remove("Ġ");
        },
        Problem::NoSuchToken { .. }
    );
    assert_problem!("roberta", |t| t["model"]["vocab"]["more"] = json!(600), Problem::ForeignTokenizer { id: 600, .. });
    assert_problem!("roberta", |t| t["model"]["merges"][0] = json!(["no", "such"]), Problem::Tokenizer { .. });
    assert_problem!("roberta", |t| t["post_processor"]["cls"] = json!(["[CLS]", 0]), Problem::NoSuchToken { .. });
}

#[test]
fn unigram_tokenizers_that_are_refused() {
    let vocabulary = |t: &mut Value, piece: Value| t["model"]["vocab"][9] = piece;
    for piece in [json!(["", 0.0]), json!(["x".repeat(257), 0.0]), json!(["x"]), json!(["x", "y"]), json!(["<s>", 0.0])]
    {
        assert_problem!("xlm-roberta", |t| vocabulary(t, piece), Problem::WrongType { field: "model.vocab", .. });
    }
    for id in [json!(600), json!(null), json!(-1)] {
        assert_problem!("xlm-roberta", |t| t["model"]["unk_id"] = id, Problem::WrongType { field: "model.unk_id", .. });
    }
    assert_problem!(
        "xlm-roberta",
        |t| t["model"]["byte_fallback"] = json!(true),
        Problem::UnsupportedValue { field: "byte_fallback", .. }
    );
    assert_problem!(
        "xlm-roberta",
        |t| t["pre_tokenizer"]["replacement"] = json!("_"),
        Problem::UnsupportedValue { .. }
    );
    assert_problem!(
        "xlm-roberta",
        |t| t["pre_tokenizer"] = json!({"type": "Sequence", "pretokenizers": []}),
        Problem::UnsupportedValue { .. }
    );
    // The same map twice would lengthen a text by the square of the factor.
    assert_problem!(
        "xlm-roberta",
        |t| {
            let map = t["normalizer"]["normalizers"][0].clone();
            t["normalizer"]["normalizers"].as_array_mut().unwrap().push(map);
        },
        Problem::UnsupportedValue { .. }
    );
    assert_problem!(
        "xlm-roberta",
        |t| t["normalizer"]["normalizers"] = Value::Array(vec![json!({"type": "NFC"}); 9]),
        Problem::UnsupportedValue { .. }
    );
}

/// Maps that would make the library index beyond its units or texts, or allocate as much as their first number says.
#[test]
fn maps_that_are_refused() {
    let tokenizer = fs::read(tiny_golden("xlm-roberta").join("tokenizer.json")).unwrap();
    let tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    let map = &tokenizer["normalizer"]["normalizers"][0]["precompiled_charsmap"];
    let good = STANDARD.decode(map.as_str().unwrap()).unwrap();
    let units = u32::from_le_bytes(good[..4].try_into().unwrap()) as usize;
    let refused = |change: &dyn Fn(&mut Vec<u8>)| {
        let mut bytes = good.clone();
        change(&mut bytes);
        let text = STANDARD.encode(bytes);
        assert_problem!(
            "xlm-roberta",
            |t| {
                t["normalizer"]["normalizers"][0]["precompiled_charsmap"] = json!(text);
            },
            Problem::UnsupportedValue { field: "normalizer", .. }
        );
    };
    refused(&|b| b.clear());
    refused(&|b| b[..4].fill(0xff));
    refused(&|b| b[..4].fill(0));
    refused(&|b| b[..4].copy_from_slice(&(units as u32 - 4).to_le_bytes()));
    refused(&|b| b[4..8].copy_from_slice(&(0x3f_ffff_u32 << 10).to_le_bytes()));
    refused(&|b| b.truncate(4 + units)); // no replacements at all
    refused(&|b| b.truncate(units));
    refused(&|b| b[4 + units] = 0xff); // not UTF-8
    refused(&|b| b[4 + units..].fill(b'x')); // one replacement of hundreds of bytes
}

#[test]
fn tokenizers_survive_mutations() {
    let read = |name: &str| fs::read(tiny_golden(name).join("tokenizer.json")).unwrap();
    for (seed, name) in ["roberta", "xlm-roberta"].into_iter().enumerate() {
        mutations(&[read(name)], 1500, seed as u64, fuzz::tokenizer);
    }
    let config = |name: &str| fs::read(tiny_golden(name).join("config.json")).unwrap();
    let configs = FOLDERS.map(config);
    mutations(&configs, 10_000, 5, fuzz::config);
}

/// Any map is refused or harmless.
#[test]
fn maps_survive_mutations() {
    let tokenizer = fs::read(tiny_golden("xlm-roberta").join("tokenizer.json")).unwrap();
    let mut tokenizer: Value = serde_json::from_slice(&tokenizer).unwrap();
    let normaliser = tokenizer["normalizer"]["normalizers"][0].take();
    let map = normaliser["precompiled_charsmap"].as_str().unwrap();
    let map = STANDARD.decode(map).unwrap();
    mutations(&[map], 1500, 6, |bytes| {
        let map = STANDARD.encode(bytes);
        tokenizer["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": map});
        fuzz::tokenizer(&serde_json::to_vec(&tokenizer).unwrap());
    });
}
