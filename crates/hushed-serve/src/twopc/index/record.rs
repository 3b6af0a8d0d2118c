//! What a record holds of a document: its text, and before it the document's id and metadata, if it has any.
//!
//! A record without either is the text alone. Otherwise it begins with [`MARK`] and a JSON object that ends in a line
//! feed: `\u{1}{"id":…,"metadata":…}\n` and the text. JSON writes a line feed inside a string as `\n`, so the first one
//! ends it.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::IndexFault;

const MARK: char = '\u{1}';

/// A document of an operator.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Document {
    /// What is embedded, and as much of it as fits returned.
    pub text: String,
    /// The operator's name for it, which stays when others are removed: a string or a whole number.
    #[serde(default)]
    pub id: Option<Value>,
    /// What is returned with it, whatever it means.
    #[serde(default)]
    pub metadata: Option<Value>,
}

#[derive(Default, Serialize, Deserialize)]
struct Head {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    metadata: Option<Value>,
}

/// A record as a client reads it. No `Debug`: it is private.
#[derive(Clone, Default, PartialEq)]
pub struct Record {
    /// The beginning of the document's text.
    pub text: String,
    /// The document's id, if it has one.
    pub id: Option<String>,
    /// Its metadata, if it has any.
    pub metadata: Option<Value>,
}

impl From<&str> for Document {
    fn from(text: &str) -> Self {
        Self { text: text.to_owned(), ..Self::default() }
    }
}

impl Document {
    /// Its id as text.
    ///
    /// # Errors
    /// [`IndexFault::Id`] for a number with a fraction, a list or an object.
    pub fn name(&self) -> Result<Option<String>, IndexFault> {
        match &self.id {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(id)) => Ok(Some(id.clone())),
            Some(Value::Number(id)) if id.is_i64() || id.is_u64() => Ok(Some(id.to_string())),
            Some(_) => Err(IndexFault::Id),
        }
    }

    /// The record of `bytes` bytes at most: id and metadata whole, and as much of the text as fits behind them.
    pub(super) fn record(&self, place: usize, bytes: usize) -> Result<String, IndexFault> {
        let head = Head { id: self.name()?, metadata: self.metadata.clone().filter(|m| !m.is_null()) };
        let mut record = match head.id.is_none() && head.metadata.is_none() && !self.text.starts_with(MARK) {
            true => String::new(),
            // Strings and values always have a JSON form.
            false => format!("{MARK}{}\n", serde_json::to_string(&head).unwrap_or_default()),
        };
        if record.len() > bytes {
            return Err(IndexFault::Head { place, bytes: record.len(), limit: bytes });
        }
        let room = self.text.floor_char_boundary(bytes - record.len());
        record.push_str(self.text.get(..room).unwrap_or_default());
        Ok(record)
    }
}

impl Record {
    /// Reads a record. What is not written as above is text.
    #[must_use]
    pub fn parse(record: &str) -> Self {
        let parts = record.strip_prefix(MARK).and_then(|rest| rest.split_once('\n'));
        let head = parts.and_then(|(head, text)| Some((serde_json::from_str::<Head>(head).ok()?, text)));
        match head {
            Some((Head { id, metadata }, text)) => Self { text: text.to_owned(), id, metadata },
            None => Self { text: record.to_owned(), ..Self::default() },
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn records_are_read_as_they_were_written() {
        let documents = [
            json!({ "text": "plain" }),
            json!({ "text": "named", "id": "a\nb" }),
            json!({ "text": "numbered\nlines", "id": 7, "metadata": { "date": "2026-01-01", "tags": ["x", "日本"] } }),
            json!({ "text": "", "metadata": [1, 2] }),
            json!({ "text": "\u{1}{}\nodd" }),
        ];
        for written in documents {
            let document: Document = serde_json::from_value(written.clone()).unwrap();
            let read = Record::parse(&document.record(0, 512).unwrap());
            assert_eq!(read.text, document.text);
            assert_eq!(read.id, document.name().unwrap());
            assert_eq!(read.metadata, document.metadata);
        }
        assert_eq!(Document::from("plain").record(0, 3).unwrap(), "pla");
    }

    #[test]
    fn id_and_metadata_are_whole_or_refused() {
        let document = Document { id: Some(json!("an id")), ..Document::from("日本") };
        let head = "\u{1}{\"id\":\"an id\"}\n".len();
        assert_eq!(document.record(3, head + 4).unwrap().chars().last(), Some('日'));
        let fault = document.record(3, head - 1).err().unwrap();
        assert!(matches!(fault, IndexFault::Head { place: 3, .. }));
        for id in [json!(1.5), json!([1]), json!({})] {
            assert!(Document { id: Some(id), ..Document::from("a") }.name().is_err());
        }
    }
}
