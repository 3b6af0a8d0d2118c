//! The table of docs/models.md: for a folder of each architecture what `check` says of it.

use std::fs;
use std::path::{Path, PathBuf};

use hushed_model::testing::{TINY_LABELS, tiny_classifier_folder, tiny_folder, tiny_golden, variant_folder, variants};
use hushed_model::{Architecture, Model, PublicFiles, Summary};
use serde_json::Value;
use tempfile::TempDir;

use super::{encrypted, interactive};

/// Committed folders in the order of the table, with published models that are like them.
const FOLDERS: &[(&str, &str)] = &[
    ("tiny", "MiniLM, BGE, E5, BERT"),
    ("tiny-classifier", "`…ForSequenceClassification`"),
    ("multi-label", "the same, several labels at once"),
    ("cross-encoder", "ms-marco-MiniLM"),
    ("roberta", "all-distilroberta"),
    ("roberta-classifier", ""),
    ("cross-encoder-roberta", "bge-reranker"),
    ("xlm-roberta", "multilingual E5, BGE-M3"),
    ("camembert", ""),
    ("distilbert", ""),
    ("distilbert-classifier", ""),
    ("electra-wide", "a token table as wide as the layers"),
    ("electra", "a narrower table"),
    ("electra-classifier", ""),
    ("albert", ""),
    ("mpnet", "all-mpnet-base-v2"),
    ("modernbert", ""),
    ("nomic", "nomic-embed-text"),
    ("clip-text", ""),
    ("qwen3-embedding", "Qwen3-Embedding; other decoders like LLaMA, beside `modules.json`"),
    ("gpt2", ""),
    ("llama", "LLaMA 2 and 3, SmolLM2"),
    ("mistral", ""),
    ("qwen2", "also 2.5"),
    ("qwen3", ""),
    ("phi3", ""),
    ("gemma", ""),
    ("gemma3", "Gemma 3's text models"),
    ("granite", ""),
    ("olmo2", ""),
    ("smollm3", ""),
    ("bitnet", "BitNet b1.58; no published folder was run"),
    ("vit", ""),
    ("vit-rows", ""),
    ("dinov2", ""),
    ("clip-vision", ""),
];

/// The folder, and what holds it if it is temporary.
fn folder(name: &str) -> (PathBuf, Option<TempDir>) {
    let made = |make: &dyn Fn(&Path)| {
        let folder = tempfile::tempdir().expect("a folder");
        make(folder.path());
        (folder.path().to_owned(), Some(folder))
    };
    // Heads that have the columns of the width, all rotated, as in most published folders.
    let plain = |config: &mut Value| {
        let number = |field: &str| config[field].as_u64().expect("a number");
        config["head_dim"] = (number("hidden_size") / number("num_attention_heads")).into();
        config.as_object_mut().expect("an object").remove("partial_rotary_factor");
    };
    let wide = |config: &mut Value| config["embedding_size"] = config["hidden_size"].clone();
    let (variant, change): (_, &dyn Fn(&mut Value)) = match name {
        "tiny" => return made(&|path| tiny_folder(path).expect("a folder")),
        "tiny-classifier" => return made(&|path| tiny_classifier_folder(path, &TINY_LABELS).expect("a folder")),
        "electra-wide" => ("electra", &wide),
        "mistral" | "phi3" | "gemma" => (name, &plain),
        _ if variants().join(name).is_dir() => (name, &|_| ()),
        _ => return (tiny_golden(name), None),
    };
    let folder = variant_folder(variant, change);
    (folder.path().to_owned(), Some(folder))
}

/// A row of the table, and its `model_type`.
fn row((name, like): (&str, &str)) -> (String, String) {
    let (path, _held) = folder(name);
    let config: Value = serde_json::from_slice(&fs::read(path.join("config.json")).expect("a file")).expect("JSON");
    let public = PublicFiles::read(&path).expect("files").parse().expect(name);
    let (model, summary) = (Model::shapes_only(&public), Summary::from(&public));
    let refused = hushed_mpc::supported(&model.program()).err();
    let protocols = [interactive(&summary, refused.map(|e| e.to_string())), encrypted(&summary, &model)];
    let cells = protocols.map(|says| match says {
        // The limits of length are those of the folder.
        Ok(says) => says.split("; ").next().unwrap_or_default().to_owned(),
        Err(reason) => format!("refused: {reason}"),
    });
    let kind = config["model_type"].as_str().unwrap_or_default().to_owned();
    let class = config["architectures"][0].as_str().map(|class| format!("`{class}`")).unwrap_or_default();
    (format!("| `{kind}` | {class} | {like} | {} | {} |\n", cells[0], cells[1]), kind)
}

/// With HUSHED_WRITE set the page is written anew.
#[test]
fn the_page_says_what_check_says() {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/models.md");
    let text = fs::read_to_string(&page).expect("the page");
    let (before, rest) = text.split_once("<!-- architectures -->\n").expect("where the table begins");
    let (table, after) = rest.split_once("<!-- end of architectures -->\n").expect("where it ends");
    let rows: Vec<(String, String)> = FOLDERS.iter().copied().map(row).collect();
    let without = Architecture::names().filter(|name| !rows.iter().any(|(_, kind)| kind == name));
    assert_eq!(without.collect::<Vec<_>>(), [] as [&str; 0], "architectures without a row");
    let head = "| `model_type` | class | such as | `2pc` | `fhe` |\n|---|---|---|---|---|\n";
    let found: String = std::iter::once(head).chain(rows.iter().map(|(row, _)| row.as_str())).collect();
    if std::env::var_os("HUSHED_WRITE").is_some() {
        let all = format!("{before}<!-- architectures -->\n{found}<!-- end of architectures -->\n{after}");
        fs::write(&page, all).expect("the page");
        return;
    }
    assert_eq!(table, found, "run this test with HUSHED_WRITE=1");
}
