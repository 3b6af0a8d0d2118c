//! Tokenizers of published models against the library that wrote them (`scripts/tokenizer_vectors.py`).

use std::fs;
use std::path::{Path, PathBuf};

use hushed_model::Task;
use hushed_model::tokens::Tokenizer;
use serde::Deserialize;
use serde_json::Value;

/// One file of the script.
#[derive(Deserialize)]
struct Vector {
    task: String,
    tokenizer: Value,
    ids: Vec<Vec<u32>>,
}

/// The ids of every text, and for a generator that the tokens' bytes are the text again. Files of whole vocabularies
/// are read from the folder that HUSHED_TOKENIZERS names.
#[test]
fn ids_are_those_of_the_library() {
    let committed = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/tokenizers");
    let folder = std::env::var_os("HUSHED_TOKENIZERS").map_or(committed, PathBuf::from);
    let read = |path: &Path| fs::read(path).unwrap();
    let texts: Vec<String> = serde_json::from_slice(&read(&folder.join("texts.json"))).unwrap();
    let mut files: Vec<PathBuf> = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| path.file_name().is_some_and(|name| name != "texts.json"));
    files.sort();
    assert!(files.len() >= 9, "{files:?}");
    for path in files {
        let vector: Vector = serde_json::from_slice(&read(&path)).unwrap();
        let task = match vector.task.as_str() {
            "generate" => Task::Generate,
            _ => Task::Embed,
        };
        let mut problems = Vec::new();
        let file = serde_json::to_vec(&vector.tokenizer).unwrap();
        let tokenizer = Tokenizer::parse(&file, 1 << 20, None, task, &mut problems);
        let tokenizer = tokenizer.unwrap_or_else(|| panic!("{}: {problems:?}", path.display()));
        assert_eq!(vector.ids.len(), texts.len());
        // Hushed takes `<s>` in a text of an encoder as text; as pieces of Unigram the library takes it as a token.
        let added = vector.tokenizer["added_tokens"].as_array().unwrap();
        let special = |id: &u32| added.iter().any(|token| token["id"] == *id && token["special"] == true);
        let mut same = 0;
        for (text, expected) in texts.iter().zip(&vector.ids) {
            if task == Task::Embed && expected.iter().any(special) {
                continue;
            }
            let found: Vec<u32> = tokenizer.pieces(text, false).unwrap().iter().map(|piece| piece.id).collect();
            assert_eq!(&found, expected, "{}: {text:?}", path.display());
            let Some(mut decoder) = tokenizer.decoder() else { continue };
            let shown: String = found.iter().map(|id| decoder.push(*id)).collect();
            same += usize::from(shown.trim_start() == text.trim_start());
        }
        // The rest has special tokens as text, bytes that a vocabulary lacks, or characters in another normal form.
        assert!(tokenizer.decoder().is_none() || same * 10 >= texts.len() * 8, "{}: {same}", path.display());
    }
}
