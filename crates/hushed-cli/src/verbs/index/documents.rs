//! Files of documents: one per line, or JSON objects.

use std::path::Path;

use hushed_model::{json_fault, without_mark};
use hushed_serve::Document;
use serde_json::Value;

use crate::error::CliError;
use crate::input;

/// Endings of files that hold documents in a form that is not read here.
const OTHER: [&str; 13] =
    ["csv", "tsv", "parquet", "arrow", "feather", "xlsx", "xls", "pdf", "docx", "html", "htm", "xml", "gz"];

/// Reads the documents of a file, whose ending says its form.
pub fn read(path: &Path) -> Result<Vec<Document>, CliError> {
    let ending = path.extension().unwrap_or_default().to_string_lossy().to_ascii_lowercase();
    if OTHER.contains(&ending.as_str()) {
        return Err(CliError::NotDocuments { path: path.to_owned(), ending });
    }
    match ending.as_str() {
        "json" => list(&input::read(path)?, path),
        "jsonl" | "ndjson" => objects(&input::read_lines(path)?, path),
        _ => Ok(input::read_lines(path)?.iter().map(|line| Document::from(line.as_str())).collect()),
    }
}

/// A JSON list of texts or of objects.
fn list(bytes: &[u8], path: &Path) -> Result<Vec<Document>, CliError> {
    let wrong = |line, why: String| CliError::NotADocument { path: path.to_owned(), line, why };
    let parsed = serde_json::from_slice(without_mark(bytes));
    match parsed.map_err(|error| wrong(error.line(), json_fault(&error).to_owned()))? {
        Value::Array(list) if !list.is_empty() => {
            let one = |(i, value)| document(value).map_err(|why| wrong(1, format!("document {i}: {why}")));
            list.into_iter().enumerate().map(one).collect()
        }
        Value::Array(_) => Err(CliError::NoText { path: path.to_owned() }),
        _ => Err(wrong(1, "a .json file of documents is a list of them; one per line makes a .jsonl file".to_owned())),
    }
}

/// An object per line. Blank lines stand for nothing.
fn objects(lines: &[String], path: &Path) -> Result<Vec<Document>, CliError> {
    let full = lines.iter().zip(1..).filter(|(text, _)| !text.trim().is_empty());
    let one = |(text, line): (&String, usize)| {
        let parsed = serde_json::from_str(text).map_err(|error| json_fault(&error).to_owned());
        parsed.and_then(document).map_err(|why| CliError::NotADocument { path: path.to_owned(), line, why })
    };
    full.map(one).collect()
}

fn document(value: Value) -> Result<Document, String> {
    if let Value::String(text) = value {
        return Ok(Document::from(text.as_str()));
    }
    let Some(object) = value.as_object() else {
        return Err("a document is a text, or an object with a \"text\"".to_owned());
    };
    if !object.get("text").is_some_and(Value::is_string) {
        return Err("an object with a \"text\" is expected".to_owned());
    }
    if let Some(other) = object.keys().find(|key| !["text", "id", "metadata"].contains(&key.as_str())) {
        let other: String = other.chars().take(40).collect();
        return Err(format!("the field {other:?} is not read: put it into \"metadata\""));
    }
    let document: Document = serde_json::from_value(value).map_err(|error| json_fault(&error).to_owned())?;
    document.name().map_err(|fault| fault.to_string())?;
    Ok(document)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use serde_json::json;

    use super::*;

    fn of(name: &str, text: &str) -> Result<Vec<Document>, String> {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(name);
        fs::write(&path, text).unwrap();
        read(&path).map_err(|error| error.to_string())
    }

    #[test]
    fn every_form_gives_the_same_documents() {
        let plain = of("a.txt", "first\nsecond\n").unwrap();
        for (name, text) in [
            ("a.jsonl", "{\"text\":\"first\"}\n\n{\"text\":\"second\"}\n"),
            ("a.jsonl", "\u{feff}{\"text\":\"first\"}\r\n{\"text\":\"second\"}"),
            ("a.json", "[\"first\", {\"text\": \"second\"}]"),
            ("A.JSON", "\u{feff}[\"first\", \"second\"]"),
        ] {
            assert_eq!(of(name, text).unwrap(), plain, "{name}: {text}");
        }
        let named = of("a.jsonl", "{\"text\":\"a\",\"id\":7,\"metadata\":{\"date\":\"2026\"}}").unwrap();
        assert_eq!((&named[0].id, &named[0].metadata), (&Some(json!(7)), &Some(json!({ "date": "2026" }))));
    }

    #[test]
    fn what_is_no_document_is_named() {
        for (name, text, says) in [
            ("a.csv", "id,text\n1,a\n", "csv"),
            ("a.jsonl", "{\"text\":\"a\"}\n{\"text\":\"\\ud83d\"}", "line 2: half of a surrogate pair"),
            ("a.jsonl", "{\"text\":\"a\"", "line 1: it ends too early"),
            ("a.jsonl", "{\"text\":\"a\",\"title\":\"b\"}", "\"title\" is not read"),
            ("a.jsonl", "{\"text\":1}", "with a \"text\""),
            ("a.jsonl", "{\"text\":\"a\",\"id\":[]}", "an id is a string"),
            ("a.json", "{\"text\":\"a\"}", "is a list"),
            ("a.json", "[1]", "document 0"),
        ] {
            let error = of(name, text).unwrap_err();
            assert!(error.contains(says), "{text}: {error}");
        }
    }
}
