//! The committed folders of many architectures (scripts/tiny_variants.py), each with a tokenizer of its kind.

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::tiny_golden;
use crate::model::Model;

/// Where they are, without their tokenizers.
pub fn variants() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/variants")
}

/// A copy of a folder with a tokenizer, and its `config.json` changed.
///
/// # Panics
/// Panics if there is no such folder, or the disk is full.
pub fn variant_folder(name: &str, change: impl FnOnce(&mut Value)) -> tempfile::TempDir {
    let (from, to) = (variants().join(name), tempfile::tempdir().expect("a folder"));
    let config = fs::read(from.join("config.json")).expect("a committed folder");
    let mut config: Value = serde_json::from_slice(&config).expect("JSON");
    let tokenizer = match config["model_type"].as_str() {
        Some("camembert") => "xlm-roberta",
        Some("electra" | "albert" | "distilbert" | "nomic_bert") => "distilbert",
        _ => "llama-tied",
    };
    change(&mut config);
    let copy = |from: PathBuf, name: &str| fs::copy(from.join(name), to.path().join(name)).expect("a copy");
    copy(tiny_golden(tokenizer), "tokenizer.json");
    copy(from, "model.safetensors");
    fs::write(to.path().join("config.json"), config.to_string()).expect("a file");
    to
}

/// The model of a folder.
///
/// # Panics
/// As [`variant_folder`].
pub fn variant(name: &str) -> Model {
    Model::load(variant_folder(name, |_| ()).path()).expect("a model")
}
