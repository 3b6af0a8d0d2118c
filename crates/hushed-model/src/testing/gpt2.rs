//! A tiny GPT-2 with random weights.

use std::fs;
use std::io;
use std::path::Path;

use serde_json::{Value, json};

use crate::arch::config::NetworkConfig;
use crate::blocks::Weigh;
use crate::model::{Model, gpt2_shapes, llama_shapes, random_gpt2};
use crate::program::Program;
use crate::tokens::character_of;

/// Pairs that the tokenizer of [`tiny_generator_folder`] merges, in order.
const MERGES: [(&str, &str); 6] = [("h", "e"), ("t", "he"), ("Ġ", "the"), ("Ġ", "a"), ("i", "n"), ("in", "g")];

/// Writes a Hugging Face folder of a GPT-2 with random weights: 2 layers, 32 columns, 4 heads, 128 hidden columns,
/// texts of up to 64 tokens, a tied head. Its vocabulary has all bytes, a few merges and the end token. Always writes
/// the same bytes.
pub fn tiny_generator_folder(folder: &Path) -> io::Result<()> {
    let c = tiny_generator_config();
    fs::create_dir_all(folder)?;
    let config = json!({
        "model_type": "gpt2", "architectures": ["GPT2LMHeadModel"], "activation_function": "gelu_new",
        "n_layer": c.layers, "n_embd": c.width, "n_head": c.heads, "n_inner": null, "n_positions": c.positions,
        "vocab_size": c.vocabulary, "layer_norm_epsilon": c.epsilon, "eos_token_id": c.end_tokens.first(),
    });
    fs::write(folder.join("config.json"), config.to_string())?;
    fs::write(folder.join("tokenizer.json"), tokenizer_json().to_string())?;
    fs::write(folder.join("model.safetensors"), super::safetensors_of(&c)?)
}

/// The configuration of [`tiny_generator_folder`].
pub fn tiny_generator_config() -> NetworkConfig {
    NetworkConfig {
        layers: 2,
        width: 32,
        heads: 4,
        hidden: 128,
        vocabulary: 256 + MERGES.len() + 1,
        positions: 64,
        end_tokens: vec![256 + MERGES.len() as u32],
        ..NetworkConfig::gpt2()
    }
}

/// The model of [`tiny_generator_folder`].
///
/// # Panics
/// Panics if the disk is full.
pub fn tiny_generator() -> Model {
    let folder = tempfile::tempdir().expect("a folder");
    tiny_generator_folder(folder.path()).expect("a model's files");
    Model::load(folder.path()).expect("a model")
}

fn tokenizer_json() -> Value {
    let bytes = (0..=255).map(|b| character_of(b).to_string());
    let merged = MERGES.iter().map(|(a, b)| format!("{a}{b}"));
    let end = "<|endoftext|>".to_owned();
    let tokens = bytes.chain(merged).chain([end.clone()]);
    let vocab: serde_json::Map<_, _> = tokens.enumerate().map(|(id, token)| (token, json!(id))).collect();
    let special = json!({"id": vocab[&end], "content": end, "special": true, "single_word": false, "lstrip": false,
        "rstrip": false, "normalized": true});
    let merges: Vec<String> = MERGES.iter().map(|(a, b)| format!("{a} {b}")).collect();
    json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [special], "normalizer": null,
        "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        "post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true},
        "decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true},
        "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": "",
            "end_of_word_suffix": "", "fuse_unk": false, "byte_fallback": false, "vocab": vocab, "merges": merges},
    })
}

/// GPT-2 at its published size, as shapes, for plan tests.
pub fn published_generator() -> Program {
    gpt2_shapes(&NetworkConfig::gpt2()).program()
}

/// The same with all rows in its last layer, and numbers in its norms, for plans under encryption.
pub fn published_generator_of_all_rows() -> Program {
    let config = NetworkConfig::gpt2();
    let thin = random_gpt2(&NetworkConfig { layers: 1, hidden: 1, vocabulary: 1, positions: 1, ..config.clone() }, 1);
    let mut network = gpt2_shapes(&config);
    let norms = network.layers.iter_mut().flat_map(|layer| [&mut layer.attention_norm, &mut layer.feed_forward_norm]);
    norms.chain([&mut network.norm]).for_each(|norm| norm.clone_from(&thin.norm));
    network.program_of_all_rows()
}

/// A generator of these sizes with random numbers and a position table.
pub fn random_generator(config: &NetworkConfig) -> Program {
    random_gpt2(config, 3).program()
}

/// The shapes of a generator with 7 · 10^9 numbers.
pub fn large_generator() -> Program {
    large_generator_with(Weigh::Softmax)
}

/// The same with another function from scores to weights.
pub fn large_generator_with(weigh: Weigh) -> Program {
    let config = NetworkConfig { weigh, ..NetworkConfig::llama_7b() };
    llama_shapes(&config).program()
}

/// The shapes of a published generator with norms inside its blocks, with this many hidden columns.
pub fn ternary_generator(hidden: usize) -> Program {
    let config = NetworkConfig { hidden, ..NetworkConfig::bitnet_2b() };
    llama_shapes(&config).program()
}
