//! Reads single fields of a JSON object and collects every problem, instead of stopping at the first.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

pub(crate) mod typed;

use std::borrow::Cow;

use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

use crate::error::Problem;

/// An object of a known file, and the list for its problems.
pub(crate) struct Fields<'a> {
    file: &'a str,
    object: &'a Map<String, Value>,
    problems: &'a mut Vec<Problem>,
}

/// The bytes of a text file without the byte order mark that some editors put before it.
#[must_use]
pub fn without_mark(bytes: &[u8]) -> &[u8] {
    bytes.strip_prefix("\u{feff}".as_bytes()).unwrap_or(bytes)
}

/// Parses a file that must hold JSON of this type. A download that is something else is named.
pub(crate) fn parsed<T: DeserializeOwned>(file: &str, bytes: &[u8], problems: &mut Vec<Problem>) -> Option<T> {
    // serde_json bounds its own recursion (128 levels), so nested brackets cannot exhaust the stack.
    match serde_json::from_slice(without_mark(bytes)) {
        Ok(parsed) => Some(parsed),
        Err(source) => {
            let file = file.to_owned();
            problems.push(match in_its_place(bytes) {
                Some(found) => Problem::InItsPlace { file, found },
                None => Problem::NotJson { file, source },
            });
            None
        }
    }
}

/// What a file is that was downloaded in place of another, from how it begins.
pub(crate) fn in_its_place(bytes: &[u8]) -> Option<&'static str> {
    let start: Vec<u8> = without_mark(bytes).iter().take(64).map(u8::to_ascii_lowercase).collect();
    let start = start.trim_ascii_start();
    let begins = |with: &[&str]| with.iter().any(|with| start.starts_with(with.as_bytes()));
    if begins(&["version https://git-lfs", "version https://hawser"]) {
        return Some("a pointer of Git LFS; fetch the file itself (`git lfs pull`)");
    }
    if begins(&["<!doctype html", "<html"]) {
        return Some("a web page, perhaps one that asks for a login or a licence; fetch the file itself");
    }
    if begins(&["pk\u{3}\u{4}"]) {
        return Some("a zip archive, such as a PyTorch checkpoint, which is not read; save the model as safetensors");
    }
    None
}

/// Parses a file that must hold one JSON object.
pub(crate) fn object(file: &str, bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Map<String, Value>> {
    parsed(file, bytes, problems)
}

/// A value as shown in a report, always short.
pub(crate) fn shown(value: &Value) -> String {
    let text = value.to_string();
    match text.char_indices().nth(60) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text,
    }
}

impl<'a> Fields<'a> {
    pub(crate) fn new(file: &'a str, object: &'a Map<String, Value>, problems: &'a mut Vec<Problem>) -> Fields<'a> {
        Fields { file, object, problems }
    }

    /// Path inside the folder.
    pub(crate) fn file(&self) -> &'a str {
        self.file
    }

    /// How many problems there are so far.
    pub(crate) fn problem_count(&self) -> usize {
        self.problems.len()
    }

    pub(crate) fn problem(&mut self, problem: Problem) {
        self.problems.push(problem);
    }

    /// The field, if it is present and not null.
    pub(crate) fn get(&self, field: &str) -> Option<&'a Value> {
        self.object.get(field).filter(|v| !v.is_null())
    }

    fn wrong_type(&mut self, field: &'static str, expected: &'static str) {
        self.problems.push(Problem::WrongType { file: self.file.to_owned(), field, expected: expected.into() });
    }

    fn missing(&mut self, field: &'static str) {
        self.problems.push(Problem::MissingField { file: self.file.to_owned(), field });
    }

    /// A whole number within `min..=max`; `None` without a problem if absent.
    pub(crate) fn optional_size(&mut self, field: &'static str, min: usize, max: usize) -> Option<usize> {
        let value = self.get(field)?;
        let Some(number) = value.as_u64() else {
            self.wrong_type(field, "a whole number");
            return None;
        };
        match usize::try_from(number) {
            Ok(n) if (min..=max).contains(&n) => Some(n),
            _ => {
                let (value, min, max) = (number as f64, min as f64, max as f64);
                self.problems.push(Problem::OutOfRange { file: self.file.to_owned(), field, value, min, max });
                None
            }
        }
    }

    /// A required whole number within `min..=max`.
    pub(crate) fn size(&mut self, field: &'static str, min: usize, max: usize) -> Option<usize> {
        if self.get(field).is_none() {
            self.missing(field);
        }
        self.optional_size(field, min, max)
    }

    /// A list of distinct whole numbers below `limit`, sorted; empty if absent.
    pub(crate) fn places(&mut self, field: &'static str, limit: usize) -> Vec<usize> {
        let Some(value) = self.get(field) else {
            return Vec::new();
        };
        let place = |v: &Value| usize::try_from(v.as_u64()?).ok().filter(|&v| v < limit);
        let places = value.as_array().map(|all| all.iter().map(place));
        let mut places: Vec<usize> = match places.map(Iterator::collect::<Option<_>>) {
            Some(Some(places)) => places,
            _ => {
                self.wrong_type(field, "a list of layers, counted from 0");
                return Vec::new();
            }
        };
        places.sort_unstable();
        places.dedup();
        places
    }

    /// A real number within `min..=max`, or the default.
    pub(crate) fn real_or(&mut self, field: &'static str, default: f64, min: f64, max: f64) -> f64 {
        let Some(value) = self.get(field) else {
            return default;
        };
        let Some(value) = value.as_f64() else {
            self.wrong_type(field, "a number");
            return default;
        };
        if !(min..=max).contains(&value) {
            self.problems.push(Problem::OutOfRange { file: self.file.to_owned(), field, value, min, max });
            return default;
        }
        value
    }

    /// A required real number within `min..=max`.
    pub(crate) fn real(&mut self, field: &'static str, min: f64, max: f64) -> Option<f64> {
        if self.get(field).is_none() {
            self.missing(field);
            return None;
        }
        let before = self.problems.len();
        let value = self.real_or(field, min, min, max);
        (self.problems.len() == before).then_some(value)
    }

    /// A boolean, or the default.
    pub(crate) fn flag_or(&mut self, field: &'static str, default: bool) -> bool {
        match self.get(field) {
            None => default,
            Some(Value::Bool(b)) => *b,
            Some(_) => {
                self.wrong_type(field, "true or false");
                default
            }
        }
    }

    /// A string, if present.
    pub(crate) fn optional_text(&mut self, field: &'static str) -> Option<&'a str> {
        match self.get(field)? {
            Value::String(s) => Some(s),
            _ => {
                self.wrong_type(field, "a text");
                None
            }
        }
    }

    /// One of several strings. If absent, gives `default`; without a default that is a problem.
    pub(crate) fn choice<T: Copy>(
        &mut self,
        field: &'static str,
        choices: &[(&str, T)],
        default: Option<T>,
        supported: &'static str,
    ) -> Option<T> {
        if self.get(field).is_none() {
            if default.is_none() {
                self.missing(field);
            }
            return default;
        }
        let text = self.optional_text(field)?;
        let found = choices.iter().find(|(name, _)| *name == text).map(|&(_, value)| value);
        if found.is_none() {
            self.unsupported(field, supported);
        }
        found
    }

    /// Reports that the field's value is not implemented.
    pub(crate) fn unsupported(&mut self, field: &'static str, supported: impl Into<Cow<'static, str>>) {
        let value = shown(self.object.get(field).unwrap_or(&Value::Null));
        self.problems.push(Problem::UnsupportedValue {
            file: self.file.to_owned(),
            field,
            value,
            supported: supported.into(),
        });
    }

    /// Reports the field unless it is absent, null or false.
    pub(crate) fn must_be_off(&mut self, field: &'static str, supported: &'static str) {
        match self.get(field) {
            None | Some(Value::Bool(false)) => {}
            Some(_) => self.unsupported(field, supported),
        }
    }
}

impl Fields<'_> {
    /// Reports a nested part by its type.
    pub(crate) fn unsupported_part(&mut self, field: &'static str, supported: &'static str) {
        let part = self.object.get(field).unwrap_or(&Value::Null);
        let value = shown(part.get("type").unwrap_or(part));
        self.problems.push(Problem::UnsupportedValue {
            file: self.file.to_owned(),
            field,
            value,
            supported: supported.into(),
        });
    }
}
