//! Model folders of architectures other than BERT between two parties, and what a large one will take.

use crate::decode::{Ahead, generate, prompt};
use crate::tiny::{assert_close, assert_planned, run};
use hushed_model::testing::{tiny_golden, variant};
use hushed_model::{Model, NetworkConfig, Pool, TokenIds, TooLong, calibrate, check, cosine, network_shapes, plain};
use hushed_mpc::formats::MAX_TOKENS;
use hushed_mpc::plan::Plan;
use hushed_mpc::{Answers, Clear, Input, RunError, Terms, choose_norms, out_of_range, supported};

const TEXTS: [&str; 4] = ["The weather is lovely today.", "Zażółć gęślą jaźń 🙂", "fn main() {}", "größer"];

#[test]
fn embeddings_agree_with_the_clear_model() {
    for name in ["roberta", "xlm-roberta", "distilbert"] {
        assert!(check(&tiny_golden(name)).supported());
        let model = Model::load(&tiny_golden(name)).unwrap();
        assert_eq!(out_of_range(&model).unwrap(), []);
        let texts = TEXTS.map(|t| model.tokens(t, TooLong::Refuse).unwrap());
        let texts = texts.to_vec();
        let clear = model.embed(texts.clone()).unwrap();
        let (private, steps) = run(&model, &texts, Terms::default());
        assert_planned(&model, &texts, Terms::default(), &steps);
        assert_close(&private, &clear);
    }
}

fn ids() -> Vec<TokenIds> {
    vec![TokenIds::new((0..21).map(|i| (i * i * 7 + 3) % 300).collect())]
}

/// By the reference of every gadget: scaled and partial rotary positions, heads of other columns than the width, biases
/// of queries alone, factors, layers without positions, norms of queries and keys, rows that no norm has made, heads of
/// other functions than tanh.
#[test]
fn many_architectures_agree_with_the_clear_model() {
    for name in [
        "llama-scaled",
        "llama-linear",
        "mistral",
        "qwen2",
        "phi3",
        "gemma",
        "granite",
        "smollm3",
        "qwen3",
        "gemma3",
        "gemma3-apart",
        "olmo2",
        "nomic",
        "camembert",
        "electra",
        "albert",
        "electra-classifier",
        "distilbert-classifier",
    ] {
        let mut model = variant(name);
        if name == "olmo2" {
            // What its blocks add is small: `calibrate` declares finer formats for the norms after them.
            let norms = choose_norms(&model, &calibrate(&model, &ids(), "").unwrap());
            assert!(norms.keys().any(|norm| norm.ends_with("after")), "{norms:?}");
            model = model.reaching(norms);
        }
        supported(&model.program()).unwrap();
        assert_eq!(out_of_range(&model).unwrap(), [], "{name}");
        let input = Input::Texts(ids(), Terms::default());
        let found = hushed_mpc::run(&mut Clear::default(), &model.program(), &input, |_, _| ()).unwrap().values();
        let clear = plain::run(&model.program(), ids(), |_, _| ()).unwrap();
        let worst = found.iter().zip(clear.values.data()).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
        let largest = clear.values.data().iter().fold(4.0_f64, |m, v| m.max(v.abs()));
        println!("{name}: {worst:.4} of {largest:.1}");
        assert!(worst < 0.01 * largest && found.len() == clear.values.data().len(), "{name}: {worst}");
    }
}

/// Norms of each head's queries and keys, of all columns of both, and rows that no norm has made: between two parties,
/// as planned, alone, padded and behind a public prefix.
#[test]
fn norms_of_queries_and_keys_between_two_parties() {
    for name in ["qwen3", "gemma3", "olmo2"] {
        let model = variant(name);
        generate(&model, &[], &prompt(), 3, Ahead::default());
        generate(&model, &[3, 4, 50], &prompt(), 0, Ahead { passes: 2, public_table: false });
    }
    for name in ["electra", "albert", "nomic"] {
        let model = variant(name);
        let (private, steps) = run(&model, &ids(), Terms::default());
        assert_planned(&model, &ids(), Terms::default(), &steps);
        assert_close(&private, &model.embed(ids()).unwrap());
    }
}

/// Of a decoder that embeds, the last row is pooled, wherever a text is padded.
#[test]
fn embedders_agree_with_the_clear_model() {
    for name in ["qwen3-embedding", "modernbert", "mpnet", "clip-text"] {
        let model = Model::load(&tiny_golden(name)).unwrap();
        assert_eq!(out_of_range(&model).unwrap(), []);
        let texts = TEXTS.map(|t| model.tokens(t, TooLong::Refuse).unwrap()).to_vec();
        let clear = model.embed(texts.clone()).unwrap();
        let padded: Vec<TokenIds> = texts.iter().map(|text| text.clone().pad_to(40, 3)).collect();
        for (texts, terms) in [(texts, Terms::default()), (padded, Terms { padded: true, ..Terms::default() })] {
            let (private, steps) = run(&model, &texts, terms);
            assert_planned(&model, &texts, terms, &steps);
            assert_close(&private, &clear);
        }
    }
}

/// Beyond 256 rows, sums over keys have wider formats: alone, beside a short text, and padded, as planned.
#[test]
fn long_texts_agree_with_the_clear_model() {
    for name in ["modernbert", "qwen3-embedding"] {
        let folder = tempfile::tempdir().unwrap();
        let pooling = folder.path().join("1_Pooling");
        std::fs::create_dir(&pooling).unwrap();
        for (from, to) in [(tiny_golden(name), folder.path()), (tiny_golden(name).join("1_Pooling"), &pooling)] {
            for file in std::fs::read_dir(from).unwrap().map(Result::unwrap).filter(|e| e.path().is_file()) {
                std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
            }
        }
        let config = folder.path().join("config.json");
        let text = std::fs::read_to_string(&config).unwrap();
        let longer = text.replace("\"max_position_embeddings\": 128", "\"max_position_embeddings\": 600");
        assert_ne!(longer, text);
        std::fs::write(&config, longer).unwrap();
        let model = Model::load(folder.path()).unwrap();
        let text = |rows: u32| TokenIds::new((0..rows).map(|i| (i * i * 7 + 3) % 300).collect());
        for texts in [vec![text(MAX_TOKENS as u32)], vec![text(300), text(20)], vec![text(257).pad_to(272, 3)]] {
            let terms = Terms { padded: texts[0].rows().real < texts[0].rows().total, ..Terms::default() };
            let (private, steps) = run(&model, &texts, terms);
            assert_planned(&model, &texts, terms, &steps);
            let clear = model.embed(texts.clone()).unwrap();
            for (private, clear) in private.iter().zip(&clear) {
                let cosine = cosine(private, clear);
                println!("{name}, {} rows: {cosine:.7}", texts[0].rows().total);
                assert!(cosine > 0.999);
            }
        }
        let long = Input::Texts(vec![text(MAX_TOKENS as u32 + 1)], Terms::default());
        let refused = hushed_mpc::run(&mut Clear::default(), &model.program(), &long, |_, _| ());
        assert!(matches!(refused, Err(RunError::Unsupported { .. })));
    }
}

/// XLM-RoBERTa base as published: 250,002 rows of 768 columns, of which a lookup reads one per token without revealing
/// which.
#[test]
fn a_table_of_a_quarter_of_a_million_rows_is_planned() {
    let config = r#"{"model_type":"xlm-roberta","hidden_act":"gelu","num_hidden_layers":12,"hidden_size":768,"num_attention_heads":12,
        "intermediate_size":3072,"vocab_size":250002,"max_position_embeddings":514,"type_vocab_size":1,"layer_norm_eps":1e-05,
        "pad_token_id":1}"#;
    let mut problems = Vec::new();
    let config = NetworkConfig::parse(config.as_bytes(), &mut problems).unwrap();
    let program = network_shapes(&config, Pool::Mean).program();
    assert_eq!(program.embedding().unwrap().vocabulary, 250_002);
    for tokens in [16, 128, 256, 512] {
        let plan = Plan::twopc(&program, &[tokens], Terms::default(), true, Answers::Label).unwrap();
        let lookup = plan.steps.iter().find(|s| s.site == "embed").unwrap();
        let bytes = |up: u64, down: u64| (up + down) as f64 / 1e6;
        let all = plan.steps.iter();
        let all: f64 = all.map(|s| bytes(s.bytes_up, s.bytes_down)).sum();
        let lookup = bytes(lookup.bytes_up, lookup.bytes_down);
        println!("{tokens} tokens: lookup {lookup:.1} MB of {all:.1} MB");
        assert!(lookup > 0.0 && lookup < all);
        assert!(plan.failure_log2 < -40.0 && plan.distance_log2 < -40.0);
    }
}
