//! BitNet b1.58: logits as computed by a numpy reference (scripts/tiny_bitnets.py), and folders that are refused.

use std::fs;
use std::path::Path;

use hushed_model::plain::{self, PlainCache};
use hushed_model::testing::{tiny_golden, tiny_ternary};
use hushed_model::{Architecture, Block, Model, NetworkConfig, PlainActs, Problem, TokenIds, TooLong, Weigh, check};
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use serde_json::{Value, json};

use crate::decoders::{edit, ids_of, problems};

const FOLDERS: [&str; 2] = ["bitnet", "bitnet-sigmoid"];

/// The last is sub-norms with sigmoid attention, from the weights of the first.
#[test]
fn logits_equal_the_reference() {
    for (model, expected) in references() {
        let program = model.program();
        for case in expected["texts"].as_array().unwrap() {
            let text = case["text"].as_str().unwrap();
            let ids = model.tokens(text, TooLong::Refuse).unwrap();
            assert_eq!(ids.ids(), ids_of(&case["ids"]), "{text}");
            let found = plain::run(&program, vec![ids], |_, _| ()).unwrap();
            // Scales that are divisors are rounded to f32.
            assert!(apart(&found, &case["answer"]) < 1e-5, "{text}");
        }
    }
}

/// Rows rounded to 8 bits are those of the reference, and exact ones give other logits.
#[test]
fn logits_from_rounded_rows_equal_the_reference() {
    for (model, expected) in references() {
        let (program, case) = (model.program(), &expected["int8"]);
        let ids = vec![TokenIds::new(ids_of(&case["ids"]))];
        let rounded = plain::run_rounded(&program, ids.clone()).unwrap();
        assert!(apart(&rounded, &case["answer"]) < 1e-5);
        let exact = plain::run(&program, ids, |_, _| ()).unwrap();
        let off = apart(&exact, &case["answer"]);
        assert!((1e-3..0.1).contains(&off), "{off}");
    }
}

/// Decoders, and what the reference computes of each.
fn references() -> impl Iterator<Item = (Model, Value)> {
    let files = ["bitnet/expected.json", "bitnet-sigmoid/expected.json", "bitnet/expected-sigmoid.json"];
    let read = |file| {
        let text = fs::read(tiny_golden(file)).unwrap();
        serde_json::from_slice(&text).unwrap()
    };
    tiny_ternary().into_iter().zip(files.map(read))
}

/// The largest difference from an answer, relative to its largest number.
fn apart(found: &PlainActs, answer: &Value) -> f64 {
    let answer: Vec<f64> = serde_json::from_value(answer.clone()).unwrap();
    let (found, size) = (found.values.row(0), answer.iter().map(|v| v.abs()));
    let size = size.fold(0.0, f64::max);
    assert!(size > 0.1 && found.len() == answer.len());
    let both = found.iter().zip(&answer);
    both.fold(0.0, |most: f64, (a, b)| most.max((a - b).abs() / size))
}

/// Without ternary layers nothing is rounded.
#[test]
fn other_layers_read_exact_rows() {
    let program = Model::load(&tiny_golden("llama-tied")).unwrap().program();
    let ids = vec![TokenIds::new(vec![3, 200, 17])];
    let exact = plain::run(&program, ids.clone(), |_, _| ()).unwrap();
    assert_eq!(plain::run_rounded(&program, ids).unwrap(), exact);
}

#[test]
fn a_cached_pass_is_a_full_pass() {
    for name in FOLDERS {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let program = model.program();
        let ids: Vec<u32> = (0..19).map(|i| (i * i * 5 + 3) % 300).collect();
        let (mut cache, mut first) = (PlainCache::default(), 0);
        for rows in [7, 1, 11] {
            let new = TokenIds::new(ids[first..first + rows].to_vec());
            let next = plain::run_next(&program, &mut cache, new).unwrap();
            first += rows;
            let all = TokenIds::new(ids[..first].to_vec());
            let full = plain::run(&program, vec![all], |_, _| ()).unwrap();
            let both = next.values.data().iter().zip(full.values.data());
            assert!(both.clone().count() > 100);
            assert!(both.into_iter().all(|(a, b)| (a - b).abs() < 1e-10));
        }
    }
}

/// The program contains what the folders say: ternary layers of one size, norms inside blocks, the function of scores.
#[test]
fn what_a_folder_says_is_in_the_program() {
    for (name, sub_norms) in [("bitnet", true), ("bitnet-sigmoid", false)] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        let (mut layers, mut blocks) = (0, 0);
        for step in model.program().steps() {
            let (linears, sub_norm) = match &step.block {
                Block::Attention(a) => {
                    let sigmoid = a.weigh == Weigh::Sigmoid { bias: -2.75 };
                    assert_eq!(sigmoid, name == "bitnet-sigmoid");
                    (vec![&a.query, &a.key, &a.value, &a.output], &a.sub_norm)
                }
                Block::FeedForward(f) => (f.gate.iter().chain([&f.up, &f.down]).collect(), &f.sub_norm),
                Block::Vocabulary(head) => {
                    assert!(!head.ternary);
                    continue;
                }
                _ => continue,
            };
            blocks += 1;
            assert_eq!(sub_norm.is_some(), sub_norms);
            for linear in linears {
                let weights = linear.weights.as_ref().unwrap().data();
                let size = weights.iter().fold(0.0_f32, |m, w| m.max(w.abs()));
                assert!(linear.ternary && size > 0.0);
                assert!(weights.iter().all(|w| [0.0, size, -size].contains(w)));
                layers += 1;
            }
        }
        assert_eq!((layers, blocks), (14, 4));
        let config = &model.public.config;
        assert_eq!(config.architecture, Architecture::BitNet);
        let bytes = fs::read(tiny_golden(name).join("model.safetensors")).unwrap();
        let tensors = SafeTensors::deserialize(&bytes).unwrap();
        let numbers = tensors.iter().map(|(tensor, t)| {
            let packed = if t.dtype() == Dtype::U8 { 4 } else { 1 };
            let counted = !tensor.ends_with("weight_scale");
            usize::from(counted) * packed * t.shape().iter().product::<usize>()
        });
        assert_eq!(config.parameters(), numbers.sum::<usize>());
    }
    // 30·(2560·6400 + 3·2560·6912 + 2560 + 6912 + 2·2560) + 128256·2560 + 2560, for the published sizes.
    assert_eq!(NetworkConfig::bitnet_2b().parameters(), 2_412_820_480);
}

/// A copy of a folder with changed tensors.
fn with_tensors(
    name: &str,
    change: impl Fn(&str, Dtype, Vec<usize>, Vec<u8>) -> Option<(Dtype, Vec<usize>, Vec<u8>)>,
) -> tempfile::TempDir {
    let (from, to) = (tiny_golden(name), tempfile::tempdir().unwrap());
    for file in ["config.json", "tokenizer.json"] {
        fs::copy(from.join(file), to.path().join(file)).unwrap();
    }
    let bytes = fs::read(from.join("model.safetensors")).unwrap();
    let tensors = SafeTensors::deserialize(&bytes).unwrap();
    let changed: Vec<_> = tensors
        .iter()
        .filter_map(|(name, t)| {
            let (dtype, shape, data) = change(name, t.dtype(), t.shape().to_vec(), t.data().to_vec())?;
            Some((name.to_owned(), dtype, shape, data))
        })
        .collect();
    let views =
        changed.iter().map(|(name, dtype, shape, data)| (name, TensorView::new(*dtype, shape.clone(), data).unwrap()));
    let file = safetensors::serialize(views, None).unwrap();
    fs::write(to.path().join("model.safetensors"), file).unwrap();
    to
}

fn found(folder: &Path) -> Vec<Problem> {
    let loaded = Model::load(folder);
    let problems = check(folder).problems;
    assert_eq!(loaded.is_err(), !problems.is_empty());
    problems
}

#[test]
fn weights_that_are_not_ternary_are_refused_all_at_once() {
    // A code that would mean 2.
    let folder = with_tensors("bitnet", |name, dtype, shape, mut data| {
        if name.ends_with("down_proj.weight") {
            data[5] |= 0b1100;
        }
        Some((dtype, shape, data))
    });
    let problems = found(folder.path());
    assert_eq!(problems.len(), 2, "{problems:?}");
    assert!(problems.iter().all(|p| matches!(p, Problem::NotTernary { .. })));

    // A packed matrix without its last row, a missing scale, a scale of zero.
    let folder = with_tensors("bitnet", |name, dtype, mut shape, mut data| {
        match name {
            "model.layers.0.self_attn.q_proj.weight" => {
                shape[0] -= 1;
                data.truncate(shape[0] * shape[1]);
            }
            "model.layers.0.self_attn.k_proj.weight_scale" => return None,
            "model.layers.1.mlp.up_proj.weight_scale" => data.fill(0),
            _ => {}
        }
        Some((dtype, shape, data))
    });
    let problems = found(folder.path());
    assert!(
        matches!(
            &problems[..],
            [Problem::WrongShape { .. }, Problem::MissingTensor { .. }, Problem::TernaryScale { .. }]
        ),
        "{problems:?}"
    );
}

/// Sizes and scales that are finite, but whose product is not.
#[test]
fn a_scale_that_overflows_is_refused() {
    let folder = with_tensors("bitnet", |name, dtype, mut shape, mut data| {
        if name == "model.layers.0.mlp.up_proj.weight" {
            shape[0] *= 4;
            data = 1e30_f32.to_le_bytes().repeat(shape[0] * shape[1]);
            return Some((Dtype::F32, shape, data));
        }
        if name == "model.layers.0.mlp.up_proj.weight_scale" {
            data = 1e30_f32.to_le_bytes().to_vec();
            return Some((Dtype::F32, shape, data));
        }
        Some((dtype, shape, data))
    });
    let problems = found(folder.path());
    assert!(matches!(&problems[..], [Problem::TernaryScale { .. }]), "{problems:?}");
}

/// The default is the architecture's, not LLaMA's: the folder names the same value.
#[test]
fn a_folder_without_theta_has_its_own() {
    problems(&tiny_golden("bitnet"), |folder| {
        let named = Model::load(folder).unwrap().public.config;
        edit(folder, "config.json", |config| {
            let fields = config.as_object_mut().unwrap();
            assert_eq!(fields.remove("rope_theta"), Some(json!(500_000.0)));
        });
        let found = Model::load(folder).unwrap().public.config;
        assert_eq!(found, named);
    });
}

/// The same weights as floats give the same model; floats of two sizes are refused.
#[test]
fn ternary_weights_may_be_stored_as_floats() {
    let unpacked = |other: f32| {
        with_tensors("bitnet", move |name, dtype, mut shape, data| {
            if dtype != Dtype::U8 {
                return Some((dtype, shape, data));
            }
            let codes = (0..4).flat_map(|b| data.iter().map(move |byte| (byte >> (2 * b)) & 3));
            let mut floats: Vec<f32> = codes.map(|code| f32::from(code) - 1.0).collect();
            shape[0] *= 4;
            if name.contains("layers.1.mlp.gate") {
                let first = floats.iter().position(|w| *w > 0.0).unwrap();
                floats[first] = other;
            }
            let bytes = floats.iter().flat_map(|v| v.to_le_bytes()).collect();
            Some((Dtype::F32, shape, bytes))
        })
    };
    let answer = |model: &Model| {
        let text = vec![TokenIds::new(vec![3, 200, 17])];
        plain::run(&model.program(), text, |_, _| ()).unwrap()
    };
    let (same, packed) = (unpacked(1.0), Model::load(&tiny_golden("bitnet")).unwrap());
    let same = Model::load(same.path()).unwrap();
    assert_eq!(answer(&same), answer(&packed));
    let other = unpacked(0.5);
    assert!(matches!(found(other.path())[..], [Problem::NotTernary { .. }]));
}

#[test]
fn configurations_that_are_refused() {
    let cases: [(&str, Value, usize); 11] = [
        ("quantization_config", json!({"quant_method": "gptq"}), 1),
        (
            "quantization_config",
            json!({"quant_method": "bitnet", "quantization_mode": "online", "linear_class": "autobitlinear"}),
            1,
        ),
        ("quantization_config", json!({"quant_method": "bitnet", "use_rms_norm": true}), 1),
        ("quantization_config", json!({"quant_method": "bitnet", "linear_class": "linear"}), 1),
        ("attention_weights", json!("relu"), 1),
        // The bias has no default.
        ("attention_weights", json!("sigmoid"), 1),
        ("sliding_window", json!(64), 1),
        ("rope_scaling", json!({"rope_type": "yarn", "factor": 4.0}), 1),
        ("sub_norms", json!("yes"), 1),
        ("attention_bias", json!(true), 1),
        ("mlp_bias", json!(true), 1),
    ];
    for (field, value, count) in cases {
        let found = problems(&tiny_golden("bitnet"), |folder| {
            edit(folder, "config.json", |config| config[field] = value.clone());
        });
        assert_eq!(found.len(), count, "{field} {value}: {found:?}");
    }
}
