//! LLaMA-like decoders: logits, token ids and texts as `transformers` computes them (scripts/tiny_llamas.py), cached
//! passes, both layouts of rotary positions, and folders that are refused.

use hushed_model::plain::{self, PlainCache};
use hushed_model::testing::tiny_golden;
use hushed_model::{
    Block, Linear, Matrix, Model, ModelError, NetworkConfig, NormKind, Pairs, Problem, Program, TokenIds, TooLong,
    greedy, largest, random_llama,
};
use serde_json::{Value, json};

use crate::decoders::{agree_on_lines, edit, expected, ids_of, problems};

const FOLDERS: [&str; 2] = ["llama", "llama-tied"];

/// `transformers` keeps norms and angles in f32, whatever the rest uses.
#[test]
fn ids_logits_and_continuations_equal_the_reference() {
    for name in FOLDERS {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let expected = expected(name);
        for case in expected["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            assert_eq!(ids.ids(), ids_of(&case["ids"]), "{name}: {text}");
            let answer: Vec<f64> = serde_json::from_value(case["answer"].clone()).unwrap();
            let found = plain::run(&model.program(), vec![ids], |_, _| ()).unwrap();
            assert_eq!(found.values.row(0).len(), answer.len());
            for (found, answer) in found.values.row(0).iter().zip(&answer) {
                assert!((found - answer).abs() < 1e-5, "{name}: {found} {answer}");
            }
        }
        let text = expected["texts"][0]["text"].as_str().unwrap();
        let ids = model.tokens(text, TooLong::Refuse).unwrap();
        let mut made = Vec::new();
        greedy(&model, &ids, 12, |id| made.push(id)).unwrap();
        assert_eq!(made, ids_of(&expected["continued"]), "{name}");
    }
}

/// Token ids of every line of data/*.txt, and the texts of ids. A space is added and removed again only at the
/// beginning of a text.
#[test]
fn tokenizers_agree_with_the_reference() {
    for name in FOLDERS {
        let (model, expected) = (Model::load(&tiny_golden(name)).unwrap(), expected(name));
        let tokenizer = model.public.tokenizer().unwrap();
        agree_on_lines(tokenizer, &expected["lines"], name, 1);
        for case in expected["decoded"].as_array().unwrap() {
            let mut decoder = tokenizer.decoder().unwrap();
            let ids = ids_of(&case["ids"]).into_iter();
            let mut text: String = ids.map(|id| decoder.push(id)).collect();
            text += decoder.finish();
            if name == "llama" {
                text = text.strip_prefix(' ').unwrap().to_owned();
            }
            assert_eq!(text, case["text"].as_str().unwrap());
        }
        // The token before a text is not a special token inside it.
        let begin = model.tokens("a", TooLong::Refuse).unwrap().ids()[0];
        let written = if name == "llama" { "<s>" } else { "<|begin_of_text|>" };
        let inside = model.tokens(written, TooLong::Refuse).unwrap();
        assert!(inside.ids()[0] == begin && !inside.ids()[1..].contains(&begin));
    }
}

fn logits(program: &Program, ids: &[u32]) -> Vec<f64> {
    let answer = plain::run(program, vec![TokenIds::new(ids.to_vec())], |_, _| ());
    answer.unwrap().values.data().to_vec()
}

fn worst(a: &[f64], b: &[f64]) -> f64 {
    assert_eq!(a.len(), b.len());
    a.iter().zip(b).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max)
}

/// With rotary positions and with a position table.
#[test]
fn a_cached_pass_is_a_full_pass() {
    for name in ["llama", "llama-tied", "gpt2"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let program = model.program();
        let ids: Vec<u32> = (0..23).map(|i| (i * i * 5 + 3) % 300).collect();
        for cuts in [vec![23], vec![9, 14], vec![1; 23], vec![20, 1, 1, 1]] {
            let (mut cache, mut first) = (PlainCache::default(), 0);
            for rows in cuts {
                let new = TokenIds::new(ids[first..first + rows].to_vec());
                let next = plain::run_next(&program, &mut cache, new).unwrap();
                first += rows;
                let full = logits(&program, &ids[..first]);
                assert!(worst(next.values.data(), &full) < 1e-10, "{name}");
            }
            assert_eq!(cache.rows(), 23);
        }
        let padded = TokenIds::with_padding(vec![1], &[2]);
        let refused = plain::run_next(&program, &mut PlainCache::default(), padded);
        assert!(matches!(refused, Err(ModelError::Mismatch { .. })));
        // Padding after a text changes nothing.
        let padded = TokenIds::with_padding(ids.clone(), &[9, 9, 9]);
        let padded = plain::run(&program, vec![padded], |_, _| ()).unwrap();
        assert!(worst(padded.values.data(), &logits(&program, &ids)) < 1e-12);
    }
}

fn config() -> NetworkConfig {
    NetworkConfig {
        layers: 2,
        width: 32,
        heads: 4,
        key_heads: Some(2),
        hidden: 72,
        vocabulary: 61,
        positions: 64,
        ..NetworkConfig::llama_7b()
    }
}

/// Reorders the rows of the weights of Q or K to the other layout: pair i is rows i and i + dh/2, or 2i and 2i + 1.
fn adjacent(linear: &mut Linear, dh: usize) {
    let old = linear.weights.as_deref().unwrap();
    let mut new = Matrix::zero(old.rows(), old.cols());
    for row in 0..old.rows() {
        let (head, i) = (row / dh * dh, row % dh);
        let to = head + if i < dh / 2 { 2 * i } else { 2 * (i - dh / 2) + 1 };
        new.row_mut(to).copy_from_slice(old.row(row));
    }
    linear.weights = Some(std::sync::Arc::new(new));
}

#[test]
fn both_spellings_of_rotary_positions_are_one_model() {
    let halves = random_llama(&config(), 5);
    let mut other = halves.clone();
    for layer in &mut other.layers {
        let a = &mut layer.attention;
        adjacent(&mut a.query, a.heads.width);
        adjacent(&mut a.key, a.heads.width);
    }
    let ids: Vec<u32> = (0..20).map(|i| (i * 17 + 3) % 61).collect();
    let expected = logits(&halves.program(), &ids);
    assert!(worst(&logits(&other.program(), &ids), &expected) > 1e-3);
    for layer in &mut other.layers {
        layer.attention.rope.as_mut().unwrap().pairs = Pairs::Adjacent;
    }
    assert!(worst(&logits(&other.program(), &ids), &expected) < 1e-12);
}

/// Scores depend only on distances: a text after a hidden row sees what it would see at the beginning. Here: positions
/// matter with θ, and do not matter without rotary positions.
#[test]
fn places_are_in_the_attention() {
    let llama = random_llama(&config(), 6);
    let ids = [5, 9, 5, 9, 31];
    let swapped = [9, 5, 9, 5, 31];
    let mut placeless = llama.clone();
    placeless.layers.truncate(1);
    let one_layer = placeless.clone();
    placeless.layers[0].attention.rope = None;
    // Without positions, the last row of one layer sees a set.
    let (a, b) = (placeless.program(), one_layer.program());
    assert!(worst(&logits(&a, &ids), &logits(&a, &swapped)) < 1e-12);
    assert!(worst(&logits(&b, &ids), &logits(&b, &swapped)) > 1e-6);
}

/// Heads that share keys and values equal heads with equal keys and values.
#[test]
fn shared_heads_are_repeated_heads() {
    let shared = random_llama(&config(), 7);
    let mut repeated = shared.clone();
    for layer in &mut repeated.layers {
        let (a, dh) = (&mut layer.attention, 8);
        for linear in [&mut a.key, &mut a.value] {
            let (weights, bias) = (linear.weights.take().unwrap(), linear.bias.take().unwrap());
            let rows = (0..4 * dh).map(|row| row / dh / 2 * dh + row % dh);
            let numbers = rows.clone().flat_map(|row| weights.row(row).to_vec());
            linear.bias = Some(rows.clone().map(|row| bias[row]).collect());
            linear.weights = Matrix::new(4 * dh, 32, numbers.collect()).map(std::sync::Arc::new);
            linear.outputs = 4 * dh;
        }
        a.heads.keys = 4;
    }
    let ids: Vec<u32> = (0..12).collect();
    let (a, b) = (shared.program(), repeated.program());
    assert!(worst(&logits(&a, &ids), &logits(&b, &ids)) < 1e-12);
}

#[test]
fn the_program_and_the_counts() {
    let model = Model::load(&tiny_golden("llama")).unwrap();
    let program = model.program();
    let kinds = program.steps().iter().filter_map(|s| match &s.block {
        Block::Norm(n) => Some(n.kind),
        _ => None,
    });
    assert_eq!(kinds.collect::<Vec<_>>(), [NormKind::RmsNorm; 5]);
    assert_eq!(program.linears().count(), 2 * 7 + 1);
    assert!(!model.embedding().unwrap().placed && model.embedding().unwrap().offsets.is_none());
    assert!(matches!(model.encoder(), Err(ModelError::NotAnEncoder { architecture: "llama" })));
    // The published count is 6738415616; for the tiny folders, the numbers in their files.
    assert_eq!(NetworkConfig::llama_7b().parameters(), 6_738_415_616);
    for name in FOLDERS {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let bytes = std::fs::read(tiny_golden(name).join("model.safetensors")).unwrap();
        let tensors = safetensors::SafeTensors::deserialize(&bytes).unwrap();
        let numbers = tensors.iter().map(|(_, t)| t.shape().iter().product::<usize>());
        assert_eq!(model.public.config.parameters(), numbers.sum::<usize>());
    }
}

/// A later token changes nothing before it.
#[test]
fn no_row_sees_later_ones() {
    let program = random_llama(&config(), 8).program();
    let rows = |ids: &[u32]| {
        let mut seen = Vec::new();
        let text = vec![TokenIds::new(ids.to_vec())];
        plain::run(&program, text, |step, x| {
            // The last layer gives only the last row.
            if step.id.layer().is_some() && x.rows.total() >= 3 {
                seen.push(x.values.data()[..3 * 32].to_vec());
            }
        })
        .unwrap();
        seen
    };
    assert_eq!(rows(&[5, 40, 7]), rows(&[5, 40, 7, 60]));
    let (a, b) = (logits(&program, &[5, 40, 7]), logits(&program, &[5, 40, 7, 60]));
    assert_ne!(largest(&a), u32::MAX);
    assert_ne!(a, b);
}

#[test]
fn configurations_that_are_refused() {
    let from = tiny_golden("llama");
    assert_eq!(problems(&from, |_| ()).len(), 0);
    let changes: [(&str, Value); 15] = [
        ("rope_scaling", json!({"rope_type": "llama3", "factor": 8.0})),
        ("rope_parameters", json!({"rope_type": "yarn", "rope_theta": 1e4})),
        ("rope_theta", json!(0.5)),
        ("sliding_window", json!(4096)),
        ("layer_types", json!(["full_attention", "sliding_attention"])),
        ("attention_chunk_size", json!(64)),
        ("num_local_experts", json!(8)),
        ("num_key_value_heads", json!(3)),
        ("hidden_act", json!("mish")),
        ("attention_bias", json!("yes")),
        ("quantization_config", json!({"quant_method": "gptq"})),
        ("architectures", json!(["LlamaForSequenceClassification"])),
        ("rms_norm_eps", json!(-1e-6)),
        ("eos_token_id", json!("two")),
        ("num_hidden_layers", Value::Null),
    ];
    for (field, value) in &changes {
        let found = problems(&from, |d| {
            edit(d, "config.json", |c| c[*field] = value.clone());
        });
        assert_eq!(found.len(), 1, "{field}: {found:?}");
    }
    let found = problems(&from, |d| {
        edit(d, "config.json", |c| {
            let all = changes.iter();
            all.for_each(|(field, value)| c[*field] = value.clone());
        });
    });
    assert_eq!(found.len(), changes.len(), "{found:#?}");
    let five = |c: &mut Value| (c["num_attention_heads"], c["head_dim"]) = (json!(5), Value::Null);
    let found = problems(&from, |d| edit(d, "config.json", five));
    assert!(found.iter().any(|p| matches!(p, Problem::HeadsDoNotDivide { .. })), "{found:?}");
}

/// Unscaled positions, in either layout, with θ in either field; fewer fields; biases that the file does not have.
#[test]
fn spellings_and_defaults() {
    let from = tiny_golden("llama-tied");
    let theta = |change: &dyn Fn(&mut Value)| {
        let dir = tempfile::TempDir::new().unwrap();
        for entry in std::fs::read_dir(&from).unwrap() {
            let entry = entry.unwrap();
            std::fs::copy(entry.path(), dir.path().join(entry.file_name())).unwrap();
        }
        edit(dir.path(), "config.json", change);
        let model = Model::load(dir.path()).unwrap();
        model.public.config.rope.unwrap().theta
    };
    assert_eq!(theta(&|_| ()), 500_000.0);
    let moved = json!({"rope_type": "default", "rope_theta": 7e4});
    assert_eq!(theta(&|c| c["rope_parameters"] = moved.clone()), 7e4);
    assert_eq!(theta(&|c| c["rope_scaling"] = json!({"type": "default"})), 500_000.0);
    let old = |c: &mut Value| {
        let c = c.as_object_mut().unwrap();
        for field in ["rope_theta", "rope_scaling", "head_dim", "rms_norm_eps", "hidden_act"] {
            c.remove(field);
        }
    };
    assert_eq!(theta(&old), 10_000.0);
    let found = problems(&tiny_golden("llama"), |d| {
        edit(d, "config.json", |c| c["attention_bias"] = json!(true));
    });
    let missing = found.iter().filter(|p| matches!(p, Problem::MissingTensor { .. }));
    assert_eq!((missing.count(), found.len()), (2 * 4, 8));
    // The default is as many key heads as query heads, and then the shapes differ.
    let found = problems(&tiny_golden("llama"), |d| {
        edit(d, "config.json", |c| c["num_key_value_heads"] = Value::Null);
    });
    let wrong = found.iter().filter(|p| matches!(p, Problem::WrongShape { .. }));
    assert_eq!((wrong.count(), found.len()), (2 * 2, 4));
}

#[test]
fn tokenizers_that_are_refused() {
    let from = tiny_golden("llama");
    let template = json!({"type": "TemplateProcessing", "single": [
        {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "</s>", "type_id": 0}}]});
    let prepends = json!({"type": "Prepend", "prepend": "x"});
    let doubles = json!({"type": "Sequence", "normalizers": vec![json!({"type": "Replace", "pattern": {"String": "a"},
        "content": "aaaa"}); 3]});
    let metaspace = json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": "first", "split": false});
    for (part, value) in [
        ("post_processor", template),
        ("normalizer", prepends),
        ("normalizer", doubles),
        // Spaces would not be marked.
        ("normalizer", Value::Null),
        ("decoder", json!({"type": "ByteLevel"})),
        ("decoder", json!({"type": "Sequence", "decoders": [{"type": "ByteFallback"}]})),
    ] {
        let found = problems(&from, |d| {
            edit(d, "tokenizer.json", |t| t[part] = value.clone());
        });
        assert!(matches!(&found[..], [Problem::UnsupportedValue { .. }]), "{part} {value}: {found:?}");
    }
    let found = problems(&from, |d| {
        edit(d, "tokenizer.json", |t| {
            t["model"]["vocab"].as_object_mut().unwrap().remove("<0x41>");
        });
    });
    assert!(matches!(&found[..], [Problem::NoSuchToken { token }] if token == "<0x41>"));
    let found = problems(&from, |d| {
        edit(d, "tokenizer.json", |t| {
            t["post_processor"]["single"][0]["SpecialToken"]["id"] = json!("<none>");
        });
    });
    assert!(matches!(&found[..], [Problem::NoSuchToken { token }] if token == "<none>"));
    // The newer form of the same.
    let found = problems(&from, |d| {
        edit(d, "tokenizer.json", |t| {
            t["normalizer"] = Value::Null;
            t["pre_tokenizer"] = metaspace.clone();
        });
    });
    assert_eq!(found.len(), 0, "{found:?}");
}
