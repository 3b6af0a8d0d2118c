//! Pairs of texts against the libraries (`scripts/tiny_pairs.py`): token ids and types, and the scores of two tiny
//! cross-encoders.

use std::fs;
use std::path::Path;

use hushed_model::testing::{tiny_classifier_folder, tiny_golden, tiny_model};
use hushed_model::tokens::Tokenizer;
use hushed_model::{Model, ModelError, ScoreFn, Task, TextError, TokenIds, TooLong, check};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Vectors {
    pairs: Vec<[String; 2]>,
    bert_processing: Value,
    cases: Vec<Case>,
}

#[derive(Deserialize)]
struct Case {
    tokenizer: String,
    bert_processing: bool,
    limit: Option<usize>,
    side: String,
    pair: usize,
    ids: Vec<u32>,
    types: Vec<u8>,
}

#[derive(Deserialize)]
struct Expected {
    texts: [String; 2],
    ids: Vec<u32>,
    types: Vec<u8>,
    answer: [f64; 1],
}

fn read<T: for<'a> Deserialize<'a>>(path: &Path) -> T {
    serde_json::from_slice(&fs::read(path).unwrap()).unwrap()
}

/// A tokenizer of a classifier, perhaps with another post-processor.
fn tokenizer(mut file: Value, post: Option<Value>) -> Tokenizer {
    if let Some(post) = post {
        file["post_processor"] = post;
    }
    let mut problems = Vec::new();
    let bytes = serde_json::to_vec(&file).unwrap();
    let found = Tokenizer::parse(&bytes, 1 << 20, None, Task::Classify, &mut problems);
    found.unwrap_or_else(|| panic!("{problems:?}"))
}

fn file(name: &str) -> Value {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    match name {
        "minilm" => read::<Value>(&golden.join("tokenizers/minilm.json"))["tokenizer"].take(),
        tiny => read(&tiny_golden(tiny).join("tokenizer.json")),
    }
}

fn types(ids: &TokenIds) -> Vec<u8> {
    ids.second().map(u8::from).collect()
}

/// Both post-processors, templates with and without types, and texts that are cut on either side.
#[test]
fn ids_and_types_are_those_of_the_library() {
    let golden = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden");
    let vectors: Vectors = read(&golden.join("pairs.json"));
    let (mut cut, mut typed) = (0, 0);
    for case in &vectors.cases {
        let post = case.bert_processing.then(|| vectors.bert_processing.clone());
        let tokenizer = tokenizer(file(&case.tokenizer), post);
        let [a, b] = &vectors.pairs[case.pair];
        let too_long = match case.side.as_str() {
            "left" => TooLong::CutLeft,
            _ => TooLong::Cut,
        };
        let limit = case.limit.unwrap_or(usize::MAX);
        let found = tokenizer.encode_pair([a, b], limit, too_long).unwrap();
        let at = format!("{} {:?} {} {a:?} {b:?}", case.tokenizer, case.limit, case.side);
        assert_eq!((found.ids(), types(&found)), (&case.ids[..], case.types.clone()), "{at}");
        let refused = tokenizer.encode_pair([a, b], limit, TooLong::Refuse);
        let whole = tokenizer.encode_pair([a, b], usize::MAX, TooLong::Refuse).unwrap().rows().total;
        match (refused, whole > limit) {
            (Ok(same), false) => assert!(same == found, "{at}"),
            (Err(TextError::TooLong { tokens, limit: at_most }), true) => {
                assert_eq!((tokens, at_most), (whole, limit), "{at}");
                cut += 1;
            }
            _ => panic!("{at}"),
        }
        typed += usize::from(case.types.contains(&1));
    }
    assert!(cut > 100 && typed > 100, "{cut} {typed}");
}

#[test]
fn scores_equal_the_reference() {
    for (name, score) in [("cross-encoder", ScoreFn::Sigmoid), ("cross-encoder-roberta", ScoreFn::Identity)] {
        let path = tiny_golden(name);
        let report = check(&path);
        assert!(report.supported(), "{name}: {:?}", report.problems);
        assert_eq!((report.warnings.len(), report.summary.unwrap().pairs), (0, true), "{name}");
        let (model, streamed) = (Model::load(&path).unwrap(), Model::open(&path).unwrap());
        assert_eq!((model.public.score, model.public.config.scores()), (score, true));
        for case in read::<Vec<Expected>>(&path.join("expected.json")) {
            let ids = model.public.pair([&case.texts[0], &case.texts[1]], TooLong::Cut).unwrap();
            assert_eq!((ids.ids(), types(&ids)), (&case.ids[..], case.types.clone()), "{name}");
            for model in [&model, &streamed] {
                let found = model.embed(vec![ids.clone()]).unwrap()[0][0];
                assert!((found - case.answer[0]).abs() < 1e-6, "{name}: {found}, expected {}", case.answer[0]);
            }
            if case.types.contains(&1) {
                let single = model.embed(vec![TokenIds::new(case.ids.clone())]).unwrap()[0][0];
                assert!((single - case.answer[0]).abs() > 1e-4, "{name}: types make no difference");
            }
        }
    }
}

/// As `sentence-transformers` 5.7 saves a cross-encoder: one module, a head in place of pooling.
#[test]
fn cross_encoders_of_newer_versions() {
    let folder = tempfile::tempdir().unwrap();
    for name in ["config.json", "tokenizer.json", "model.safetensors"] {
        fs::copy(tiny_golden("cross-encoder").join(name), folder.path().join(name)).unwrap();
    }
    let write = |name: &str, value: Value| fs::write(folder.path().join(name), value.to_string()).unwrap();
    let module = "sentence_transformers.base.modules.transformer.Transformer";
    write("modules.json", json!([{"idx": 0, "name": "0", "path": "", "type": module}]));
    let sentence = |task: &str, output: &str| {
        json!({"transformer_task": task, "module_output_name": output,
            "modality_config": {"text": {"method": "forward", "method_output_name": "logits"}}})
    };
    write("sentence_bert_config.json", sentence("sequence-classification", "scores"));
    let published = |kind: &str| {
        json!({"__version__": {"sentence_transformers": "5.7.0"}, "activation_fn": "torch.nn.modules.linear.Identity",
            "default_prompt_name": null, "model_type": kind, "prompts": {}})
    };
    write("config_sentence_transformers.json", published("CrossEncoder"));
    let report = check(folder.path());
    assert!(report.supported() && report.warnings.is_empty(), "{:?} {:?}", report.problems, report.warnings);
    let [newer, older] = [folder.path().to_owned(), tiny_golden("cross-encoder")].map(|d| Model::load(&d).unwrap());
    assert_eq!((newer.public.task(), newer.public.score), (Task::Classify, ScoreFn::Identity));
    let ids = newer.public.pair(["a", "b"], TooLong::Refuse).unwrap();
    assert_eq!(newer.embed(vec![ids.clone()]).unwrap(), older.embed(vec![ids]).unwrap());
    let refused = |field: &str| {
        let problems = check(folder.path()).problems;
        assert!(matches!(&problems[..], [one] if one.to_string().contains(field)), "{field}: {problems:?}");
    };
    write("config_sentence_transformers.json", published("SparseEncoder"));
    refused("model_type");
    write("config_sentence_transformers.json", published("CrossEncoder"));
    write("sentence_bert_config.json", sentence("sequence-classification", "sentence_embedding"));
    refused("module_output_name");
    fs::remove_file(folder.path().join("config_sentence_transformers.json")).unwrap();
    fs::remove_file(folder.path().join("sentence_bert_config.json")).unwrap();
    refused("cross-encoder");
}

/// Padding has no type, and what is cut off in front moves it.
#[test]
fn types_end_with_the_text() {
    let ids = TokenIds::new(vec![5, 6, 7, 8]).with_second(2).pad_to(6, 0);
    assert_eq!(types(&ids), [0, 0, 1, 1, 0, 0]);
    assert_eq!(types(&ids.without_first(1)), [0, 1, 1, 0, 0]);
    assert_eq!(types(&TokenIds::new(vec![5, 6])), [0, 0]);
}

#[test]
fn what_reads_no_pairs_says_so() {
    let no_pairs = |model: &Model| {
        let refused = model.public.pair(["a", "b"], TooLong::Cut).err();
        assert!(!model.public.reads_pairs());
        matches!(refused, Some(ModelError::Text(TextError::NoPairs)))
    };
    assert!(no_pairs(&tiny_model()));
    let piece = |id: &str, kind: usize| json!({"Sequence": {"id": id, "type_id": kind}});
    let single = json!([{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, piece("A", 0), {"SpecialToken": {"id": "[SEP]", "type_id": 0}}]);
    for pair in [
        json!([piece("B", 0), piece("A", 1)]),
        json!([piece("A", 1), piece("B", 0)]),
        json!([piece("A", 0), piece("B", 2)]),
        json!([piece("A", 0), piece("A", 0), piece("B", 1)]),
        json!([piece("A", 0)]),
        json!([piece("A", 0), {"SpecialToken": {"id": "[other]", "type_id": 0}}, piece("B", 1)]),
        json!([piece("A", 0), {"Sequence": {"id": "B"}}]),
        json!(7),
    ] {
        let folder = tempfile::tempdir().unwrap();
        tiny_classifier_folder(folder.path(), &["yes"]).unwrap();
        let path = folder.path().join("tokenizer.json");
        let mut file: Value = read(&path);
        file["post_processor"] = json!({"type": "TemplateProcessing", "single": single, "pair": pair});
        fs::write(&path, file.to_string()).unwrap();
        assert!(no_pairs(&Model::load(folder.path()).unwrap()), "{pair}");
    }
    let folder = tempfile::tempdir().unwrap();
    tiny_classifier_folder(folder.path(), &["yes"]).unwrap();
    let model = Model::load(folder.path()).unwrap();
    for pair in [["", "a"], ["a", " "]] {
        assert!(matches!(model.public.pair(pair, TooLong::Cut), Err(ModelError::Text(TextError::Empty))));
    }
}
