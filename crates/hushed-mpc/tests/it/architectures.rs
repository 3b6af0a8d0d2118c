//! Model folders of architectures other than BERT between two parties, and what a large one will take.

use crate::tiny::{assert_close, assert_planned, run};
use hushed_model::testing::tiny_golden;
use hushed_model::{Model, NetworkConfig, Pool, TooLong, check, network_shapes};
use hushed_mpc::plan::Plan;
use hushed_mpc::{Terms, out_of_range};

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
    for tokens in [16, 128, 256] {
        let plan = Plan::twopc(&program, &[tokens], Terms::default(), true).unwrap();
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
