//! Tiny folders of many architectures: `check` accepts them, and their answers equal those of `transformers`
//! (scripts/tiny_variants.py).

use std::fs;

use hushed_model::testing::{variant, variant_folder as folder, variants};
use hushed_model::{Architecture, Model, Problem, Task, TokenIds, check};
use serde::Deserialize;
use serde_json::{Value, json};

#[derive(Deserialize)]
struct Expected {
    ids: Vec<u32>,
    answer: Vec<f64>,
}

fn names() -> Vec<String> {
    let entries = fs::read_dir(variants()).unwrap();
    let mut names: Vec<String> = entries.map(|e| e.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

#[test]
fn answers_equal_the_reference() {
    let mut compared = 0;
    for name in names() {
        let folder = folder(&name, |_| ());
        let report = check(folder.path());
        assert!(report.supported(), "{name}: {:#?}", report.problems);
        assert_eq!(report.warnings, [], "{name}");
        let model = Model::load(folder.path()).unwrap();
        // Matrices that stay in the files give the same answers.
        let streamed = Model::open(folder.path()).unwrap();
        let expected = fs::read(variants().join(&name).join("expected.json")).unwrap();
        for case in serde_json::from_slice::<Vec<Expected>>(&expected).unwrap() {
            for model in [&model, &streamed] {
                let found = model.embed(vec![TokenIds::new(case.ids.clone())]).unwrap();
                assert_eq!(found[0].len(), case.answer.len(), "{name}");
                for (found, expected) in found[0].iter().zip(&case.answer) {
                    assert!((found - expected).abs() < 1e-5, "{name}: {found}, expected {expected}");
                }
            }
        }
        compared += 1;
    }
    assert!(compared >= 16, "{compared}");
}

/// A cached pass over the next token is a pass over the whole text.
#[test]
fn tokens_that_follow_each_other() {
    for name in names() {
        let folder = folder(&name, |_| ());
        let model = Model::load(folder.path()).unwrap();
        if model.public.task() != Task::Generate {
            continue;
        }
        let ids: Vec<u32> = (0..24).map(|i| (i * i * 5 + 3) % 300).collect();
        let mut cache = hushed_model::plain::PlainCache::default();
        let mut cached = None;
        for part in [&ids[..10], &ids[10..23], &ids[23..]] {
            let next = hushed_model::plain::run_next(&model.program(), &mut cache, TokenIds::new(part.to_vec()));
            cached = Some(next.unwrap().values.data().to_vec());
        }
        let whole = model.embed(vec![TokenIds::new(ids)]).unwrap();
        for (a, b) in cached.unwrap().iter().zip(&whole[0]) {
            assert!((a - b).abs() < 1e-9, "{name}: {a} {b}");
        }
    }
}

/// Attention to the last rows alone: no text is longer than what every row sees whole.
#[test]
fn windows_bound_the_text() {
    let longest =
        |name: &str, change: fn(&mut Value)| Model::load(folder(name, change).path()).unwrap().public.max_tokens;
    assert_eq!(longest("mistral", |_| ()), 40);
    assert_eq!(longest("mistral", |c| c["sliding_window"] = Value::Null), 128);
    assert_eq!(longest("gemma3", |_| ()), 48);
    assert_eq!(longest("gemma3", |c| c["layer_types"] = json!(["full_attention", "full_attention"])), 128);
    assert_eq!(longest("qwen2", |c| c["sliding_window"] = json!(20)), 128);
    let used = |c: &mut Value| {
        (c["use_sliding_window"], c["sliding_window"], c["layer_types"]) = (json!(true), json!(20), Value::Null);
    };
    assert_eq!(longest("qwen2", used), 20);
    // More positions than any text has are no reason to refuse.
    assert_eq!(longest("llama-scaled", |_| ()), 1 << 16);
}

#[test]
fn what_would_change_an_answer_is_refused_by_its_name() {
    for (name, field, value) in [
        ("gemma", "use_bidirectional_attention", json!(true)),
        ("gemma3", "final_logit_softcapping", json!(30.0)),
        ("gemma3", "attn_logit_softcapping", json!(50.0)),
        ("gemma3", "layer_types", json!(["full_attention"])),
        ("gemma3", "layer_types", json!(["full_attention", "chunked_attention"])),
        ("mistral", "sliding_window", json!(3)),
        ("mistral", "architectures", json!(["MistralForSequenceClassification"])),
        ("olmo2", "sliding_window", json!(64)),
        ("phi3", "rope_scaling", json!({"type": "longrope", "short_factor": [1.0], "long_factor": [1.0]})),
        ("phi3", "partial_rotary_factor", json!(1.5)),
        ("llama-scaled", "rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})),
        ("llama-scaled", "rope_scaling", json!({"rope_type": "linear", "factor": 8.0, "beta_fast": 1})),
        ("llama-linear", "head_dim", json!(9)),
        ("smollm3", "no_rope_layers", json!([1])),
        ("granite", "logits_scaling", json!(0)),
        ("albert", "num_hidden_groups", json!(2)),
        ("electra", "architectures", json!(["ElectraForTokenClassification"])),
        ("camembert", "architectures", json!(["CamembertForQuestionAnswering"])),
    ] {
        let found = check(folder(name, |c| c[field] = value.clone()).path()).problems;
        let named = |p: &Problem| p.to_string().contains(&format!("`{field}`"));
        assert!(!found.is_empty() && found.iter().all(named), "{name} {field}: {found:?}");
    }
}

#[test]
fn classifiers_have_their_own_heads() {
    for name in ["electra-classifier", "distilbert-classifier"] {
        let model = variant(name);
        assert_eq!(model.public.labels().unwrap(), ["no", "perhaps", "yes"], "{name}");
    }
    let model = variant("albert");
    assert_eq!((model.public.config.architecture, model.public.task()), (Architecture::Albert, Task::Embed));
}
