//! Test helpers (feature `testing`): a tiny model folder with random weights, the real model's folder, mutations of a
//! corpus.

mod gpt2;
mod ternary;
mod variants;
mod wide;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use safetensors::Dtype;
use safetensors::tensor::TensorView;
use serde_json::json;

use crate::arch::config::WeightScale;
use crate::arch::{self, config::NetworkConfig};
use crate::blocks::Pool;
use crate::images::Item;
use crate::layers::{Random, Source};
use crate::model::{Model, network_shapes};
use crate::prune::prune;
use crate::tokens::{TokenIds, TooLong};

pub use gpt2::{
    large_generator, large_generator_with, published_generator, published_generator_of_all_rows, random_generator,
    ternary_generator, tiny_generator, tiny_generator_config, tiny_generator_folder,
};
pub use ternary::{ternary_config, ternary_network, tiny_ternary, tiny_ternary_with};
pub use variants::{variant, variant_folder, variants};
pub use wide::{beyond_formats, firing_on, small_rows, wide_decoders};

/// Whether tests run in their long form: `make test-long`.
pub fn long() -> bool {
    std::env::var_os("HUSHED_LONG_TESTS").is_some_and(|set| set == "1")
}

/// Writes a Hugging Face folder of a BERT encoder with random weights: 2 layers, 32 columns, 4 heads, 64 hidden
/// columns, inputs of up to 48 tokens, mean pooling to unit length. Its vocabulary has single characters and a few
/// words. Always writes the same bytes.
pub fn tiny_folder(folder: &Path) -> io::Result<()> {
    fs::create_dir_all(folder.join("1_Pooling"))?;
    let write = |name: &str, value: serde_json::Value| fs::write(folder.join(name), value.to_string());
    write("config.json", tiny_config_json())?;
    write("tokenizer.json", tiny_tokenizer_json(&tiny_vocabulary()))?;
    write(
        "modules.json",
        json!([
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.models.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": "sentence_transformers.models.Pooling"},
            {"idx": 2, "name": "2", "path": "2_Normalize", "type": "sentence_transformers.models.Normalize"},
        ]),
    )?;
    write("1_Pooling/config.json", json!({"word_embedding_dimension": 32, "pooling_mode_mean_tokens": true}))?;
    write("sentence_bert_config.json", json!({"max_seq_length": 48, "do_lower_case": false}))?;
    let weights = safetensors_of(&tiny_config())?;
    fs::write(folder.join("model.safetensors"), weights)
}

/// The model of [`tiny_folder`] after `change` has edited its files.
///
/// # Panics
/// Panics if the disk is full or the changed folder is not a model.
pub fn tiny_model_with(change: impl FnOnce(&Path)) -> Model {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_folder(folder.path()).expect("a model's files");
    change(folder.path());
    Model::load(folder.path()).expect("a model")
}

/// The model of [`tiny_folder`].
pub fn tiny_model() -> Model {
    tiny_model_with(|_| ())
}

/// Names for three classes.
pub const TINY_LABELS: [&str; 3] = ["no", "perhaps", "yes"];

/// Writes the encoder of [`tiny_folder`] with a head for these classes, as `BertForSequenceClassification` is saved: no
/// pooling is declared, and the encoder's tensors are under `bert.`.
pub fn tiny_classifier_folder(folder: &Path, labels: &[&str]) -> io::Result<()> {
    let write = |name: &str, value: serde_json::Value| fs::write(folder.join(name), value.to_string());
    fs::create_dir_all(folder)?;
    let names: serde_json::Map<_, _> =
        labels.iter().enumerate().map(|(i, name)| (i.to_string(), json!(name))).collect();
    let mut config = tiny_config_json();
    config["architectures"] = json!(["BertForSequenceClassification"]);
    config["id2label"] = names.into();
    write("config.json", config)?;
    write("tokenizer.json", tiny_tokenizer_json(&tiny_vocabulary()))?;
    let weights = safetensors_of(&tiny_classifier_config(labels))?;
    fs::write(folder.join("model.safetensors"), weights)
}

/// The configuration of [`tiny_classifier_folder`].
pub fn tiny_classifier_config(labels: &[&str]) -> NetworkConfig {
    NetworkConfig { labels: Some(labels.iter().map(|&l| l.to_owned()).collect()), ..tiny_config() }
}

/// The configuration of [`tiny_folder`].
pub fn tiny_config() -> NetworkConfig {
    NetworkConfig {
        layers: 2,
        width: 32,
        heads: 4,
        hidden: 64,
        vocabulary: tiny_vocabulary().len(),
        positions: 64,
        ..NetworkConfig::large()
    }
}

fn tiny_config_json() -> serde_json::Value {
    let c = tiny_config();
    json!({
        "model_type": "bert", "hidden_act": "gelu", "num_hidden_layers": c.layers, "hidden_size": c.width,
        "num_attention_heads": c.heads, "intermediate_size": c.hidden, "vocab_size": c.vocabulary,
        "max_position_embeddings": c.positions, "type_vocab_size": 2, "layer_norm_eps": 1e-12, "pad_token_id": 0,
    })
}

fn tiny_vocabulary() -> Vec<String> {
    let special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"].map(str::to_owned);
    let words = ["the", "a", "is", "private", "hello", "world", "##s", "##ing"].map(str::to_owned);
    let characters = ('a'..='z').chain('0'..='9').flat_map(|c| [c.to_string(), format!("##{c}")]);
    let marks = ".,;:!?'\"()[]{}<>+-*/=_#@%&".chars().map(|c| c.to_string());
    special.into_iter().chain(words).chain(characters).chain(marks).collect()
}

fn tiny_tokenizer_json(vocabulary: &[String]) -> serde_json::Value {
    let ids: BTreeMap<_, _> = vocabulary.iter().enumerate().map(|(id, token)| (token, id)).collect();
    let added: Vec<_> = (0..5)
        .map(|id| {
            json!({"id": id, "content": vocabulary[id], "special": true, "single_word": false,
                "lstrip": false, "rstrip": false, "normalized": false})
        })
        .collect();
    json!({
        "version": "1.0",
        "truncation": {"max_length": 16, "strategy": "LongestFirst", "stride": 0, "direction": "Right"},
        "padding": {"strategy": {"Fixed": 16}, "direction": "Right", "pad_to_multiple_of": null, "pad_id": 0, "pad_type_id": 0,
            "pad_token": "[PAD]"},
        "added_tokens": added,
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null,
            "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {"type": "BertProcessing", "sep": ["[SEP]", 3], "cls": ["[CLS]", 2]},
        "decoder": null,
        "model": {"type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": ids},
    })
}

/// A weights file for a configuration, with random numbers. A classifier's encoder is under `bert.`.
pub fn safetensors_of(config: &NetworkConfig) -> io::Result<Vec<u8>> {
    let mut kept = Keeping { random: Random::new(7), tensors: Vec::new() };
    let Ok(_) = arch::body(config, Pool::Mean, &mut kept);
    for (name, ..) in &mut kept.tensors {
        if config.labels.is_some() && !name.starts_with("classifier.") {
            name.insert_str(0, "bert.");
        }
    }
    let views = kept.tensors.iter().map(|(name, shape, bytes)| {
        TensorView::new(Dtype::F32, shape.clone(), bytes).map(|view| (name.clone(), view)).map_err(io::Error::other)
    });
    safetensors::serialize(views.collect::<Result<Vec<_>, _>>()?, None).map_err(io::Error::other)
}

/// Keeps random tensors, to be written later.
struct Keeping {
    random: Random,
    tensors: Vec<(String, Vec<usize>, Vec<u8>)>,
}

impl Source for Keeping {
    type Error = Infallible;

    fn tensor(&mut self, name: &str, shape: &[usize]) -> Result<Option<Vec<f32>>, Infallible> {
        let bytes = self.random.numbers(name, shape).iter().flat_map(|v| v.to_le_bytes()).collect();
        self.tensors.push((name.to_owned(), shape.to_vec(), bytes));
        Ok(None)
    }

    fn ternary(&mut self, layer: &str, shape: [usize; 2], scale: WeightScale) -> Result<Option<Vec<f32>>, Infallible> {
        let made = self.random.ternary(layer, shape, scale)?;
        let bytes = made.iter().flatten().flat_map(|v| v.to_le_bytes());
        let name = format!("{layer}.weight");
        self.tensors.push((name, shape.to_vec(), bytes.collect()));
        Ok(None)
    }
}

/// A committed folder written by scripts/tiny_folders.py: `roberta`, `roberta-classifier`, `xlm-roberta` or
/// `distilbert`.
pub fn tiny_golden(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tiny").join(name)
}

/// The folder of all-MiniLM-L6-v2: `HUSHED_MODEL_DIR`, or where `scripts/fetch_model.sh` puts it. If there is none,
/// panics with instructions.
pub fn model_folder() -> PathBuf {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    let folder = match std::env::var_os("HUSHED_MODEL_DIR") {
        Some(folder) => PathBuf::from(folder),
        None => root.join(".models/all-MiniLM-L6-v2"),
    };
    assert!(
        folder.join("model.safetensors").is_file(),
        "no model in {}: run scripts/fetch_model.sh (make test does), or set HUSHED_MODEL_DIR to the folder of all-MiniLM-L6-v2",
        folder.display()
    );
    folder
}

/// Lines of a file under `data/` of the repository.
pub fn data_lines(name: &str) -> io::Result<Vec<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../data").join(name);
    Ok(fs::read_to_string(path)?.lines().map(str::to_owned).collect())
}

/// Calls `body` with every entry of a corpus, then with `count` mutations of them: bytes changed, inserted, deleted or
/// repeated, and entries cut or spliced with another. The same seed gives the same mutations.
pub fn mutations(corpus: &[Vec<u8>], count: usize, seed: u64, mut body: impl FnMut(&[u8])) {
    corpus.iter().for_each(|entry| body(entry));
    let mut random = Random::new(seed);
    let mut below = |n: usize| (random.next_u64() % n.max(1) as u64) as usize;
    for _ in 0..count {
        let mut bytes = corpus[below(corpus.len())].clone();
        for _ in 0..=below(4) {
            let at = below(bytes.len() + 1);
            let end = (at + below(16)).min(bytes.len());
            match below(7) {
                0 if at < bytes.len() => bytes[at] = below(256) as u8,
                1 if at < bytes.len() => bytes[at] ^= 1 << below(8),
                2 => bytes.insert(at, b"0123456789-e\"{}[],:\\\0\xff"[below(22)]),
                3 => drop(bytes.drain(at..end)),
                4 => {
                    let piece = bytes[at..end].to_vec();
                    bytes.splice(at..at, piece);
                }
                5 => bytes.truncate(at),
                _ => {
                    let other = &corpus[below(corpus.len())];
                    let from = below(other.len() + 1);
                    bytes.truncate(at);
                    bytes.extend_from_slice(&other[from..]);
                }
            }
        }
        body(&bytes);
    }
}

/// Shapes of the tiny model, for plan tests.
pub fn tiny_shapes() -> crate::Network {
    network_shapes(&tiny_config(), Pool::Mean)
}

/// Texts of a few words, with `rows` rows in total or a few more.
pub fn wordy(model: &Model, rows: usize) -> Vec<TokenIds> {
    let words = "a small test of many words that go on and on and say the same again but not in order";
    let words: Vec<&str> = words.split(' ').collect();
    let (mut texts, mut seen) = (Vec::new(), 0);
    for i in 0.. {
        let word = |k: usize| words[(i * 5 + k * (i % 7 + 1)) % words.len()];
        let text: Vec<&str> = (0..8).map(word).collect();
        let tokens = model.tokens(&text.join(" "), TooLong::Cut);
        let tokens = tokens.expect("a text of known words");
        seen += tokens.rows().real;
        texts.push(tokens);
        if seen >= rows {
            break;
        }
    }
    texts
}

/// The model with linear layers in place of the feed-forward blocks of these layers.
pub fn pruned(mut model: Model, layers: &[usize]) -> Model {
    let texts = wordy(&model, 2 * model.public.config.width);
    let sample: Vec<Item> = texts.into_iter().map(Item::from).collect();
    prune(&mut model, layers, &sample).expect("blocks without gates");
    model
}
