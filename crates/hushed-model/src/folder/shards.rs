//! `model.safetensors.index.json`: which tensor is in which file, for weights split over several files.
//!
//! Its names are untrusted: only plain names of `.safetensors` files in the folder itself are accepted.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::{BTreeMap, BTreeSet};

use serde_json::Value;

use crate::error::Problem;
use crate::folder::json::{self, Fields};

/// The file's name in a model folder.
pub(crate) const INDEX: &str = "model.safetensors.index.json";
/// The index of LLaMA-70B has 66 kB.
pub(crate) const MAX_INDEX: u64 = 16 << 20;
/// Far above published models.
const MAX_SHARDS: usize = 1024;
const MAX_NAME: usize = 255;

/// The file of each tensor.
pub(crate) struct Index {
    files: BTreeMap<String, String>,
}

impl Index {
    /// Parses the index; `None` if and only if a problem was added.
    pub(crate) fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Index> {
        let before = problems.len();
        let object = json::object(INDEX, bytes, problems)?;
        let Some(Value::Object(listed)) = object.get("weight_map").filter(|map| *map != &empty()) else {
            problems.push(Problem::WrongType {
                file: INDEX.to_owned(),
                field: "weight_map",
                expected: "an object of file names, by tensor".into(),
            });
            return None;
        };
        let mut files = BTreeMap::new();
        let mut refused = BTreeSet::new();
        for (tensor, file) in listed {
            match file.as_str().filter(|file| stays_inside(file)) {
                Some(file) => drop(files.insert(tensor.clone(), file.to_owned())),
                None => drop(refused.insert(json::shown(file))),
            }
        }
        for value in refused.into_iter().take(8) {
            problems.push(Problem::UnsupportedValue {
                file: INDEX.to_owned(),
                field: "weight_map",
                value,
                supported: "names of .safetensors files in the folder itself".into(),
            });
        }
        let index = Index { files };
        if index.files().len() > MAX_SHARDS {
            let mut f = Fields::new(INDEX, &object, problems);
            f.unsupported("weight_map", "at most 1024 files");
        }
        (problems.len() == before).then_some(index)
    }

    /// The files by name, each once.
    pub(crate) fn files(&self) -> BTreeSet<&str> {
        self.files.values().map(String::as_str).collect()
    }

    /// The file of a tensor.
    pub(crate) fn of(&self, tensor: &str) -> Option<&str> {
        self.files.get(tensor).map(String::as_str)
    }
}

fn empty() -> Value {
    Value::Object(serde_json::Map::new())
}

/// Whether a name is plain: a file system would not read it as a path to another folder.
fn stays_inside(name: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-');
    name.len() <= MAX_NAME && name.ends_with(".safetensors") && !name.starts_with('.') && name.chars().all(plain)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (Option<Index>, Vec<Problem>) {
        let mut problems = Vec::new();
        let index = Index::parse(text.as_bytes(), &mut problems);
        assert_eq!(index.is_none(), !problems.is_empty());
        (index, problems)
    }

    #[test]
    fn which_tensor_is_where() {
        let text = r#"{"metadata":{"total_size":8},"weight_map":{"a":"model-00001-of-00002.safetensors",
            "b":"model-00002-of-00002.safetensors","c":"model-00001-of-00002.safetensors"}}"#;
        let index = parse(text).0.unwrap();
        assert_eq!(index.files().len(), 2);
        assert_eq!(index.of("c"), Some("model-00001-of-00002.safetensors"));
        assert_eq!(index.of("d"), None);
    }

    #[test]
    fn names_that_leave_the_folder() {
        for name in [
            "../model.safetensors",
            "/etc/model.safetensors",
            "a/b.safetensors",
            "a\\b.safetensors",
            "C:model.safetensors",
            "..safetensors",
            ".safetensors",
            "model.bin",
            "a\u{0}.safetensors",
            "a\n.safetensors",
            "",
        ] {
            let text = serde_json::json!({ "weight_map": { "a": name, "b": "x.safetensors" } });
            let (_, problems) = parse(&text.to_string());
            assert!(matches!(&problems[..], [Problem::UnsupportedValue { .. }]), "{name:?}: {problems:?}");
        }
        let long = format!("{{\"weight_map\":{{\"a\":\"{}.safetensors\"}}}}", "x".repeat(300));
        let (_, problems) = parse(&long);
        assert!(problems[0].to_string().len() < 300);
    }

    #[test]
    fn all_problems_at_once() {
        let (_, problems) = parse(r#"{"weight_map":{"a":"../a.safetensors","b":7,"c":null}}"#);
        assert_eq!(problems.len(), 3, "{problems:?}");
        let many: serde_json::Map<_, _> =
            (0..1025).map(|i| (format!("t{i}"), format!("{i}.safetensors").into())).collect();
        let many = serde_json::json!({ "weight_map": many }).to_string();
        for text in [many.as_str(), "{}", r#"{"weight_map":[]}"#, r#"{"weight_map":{}}"#, "["] {
            assert_eq!(parse(text).1.len(), 1);
        }
    }
}
