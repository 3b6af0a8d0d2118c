//! Words of messages: what is wrong with JSON, always short, and numbers with their nouns.

use std::fmt::Display;

/// What a parser of JSON found, in words. Its own message may show a value, which may be private.
#[must_use]
pub fn json_fault(error: &serde_json::Error) -> &'static str {
    let words = error.to_string();
    let known = [
        ("EOF while parsing", "it ends too early"),
        ("lone leading surrogate", HALF),
        ("unexpected end of hex escape", HALF),
        ("invalid unicode code point", "bytes that are not UTF-8"),
        ("invalid escape", "an unknown escape in a string"),
        ("trailing comma", "a comma too many"),
        ("trailing characters", "more follows its end"),
        ("key must be a string", "a key that is no string"),
        ("control character", "a control character in a string, which must be escaped"),
        ("recursion limit", "too many nested brackets"),
        ("number out of range", "a number out of range"),
        ("invalid number", "a number that is none"),
        ("expected `,` or", "a comma or a bracket is missing"),
        ("expected `:`", "a colon is missing"),
        ("expected value", "a value is missing"),
        ("missing field", "a field is missing"),
        ("unknown field", "a field that is not known"),
        ("unknown variant", "a value that is not known"),
        ("duplicate field", "a field twice"),
        ("invalid type", "a value of another type than expected"),
    ];
    known.iter().find(|(theirs, _)| words.starts_with(theirs)).map_or("it is malformed there", |(_, ours)| ours)
}

const HALF: &str = "half of a surrogate pair (\\ud800 to \\udfff), which is no character";

/// A number with its noun: "1 text", "2 texts", "2 classes", "2 queries", "2 keys".
pub fn counted<N: Display + PartialEq + From<u8>>(number: N, noun: &str) -> String {
    if number == N::from(1) {
        return format!("1 {noun}");
    }
    match noun.strip_suffix('y').filter(|stem| !stem.ends_with(['a', 'e', 'o', 'u'])) {
        Some(stem) => format!("{number} {stem}ies"),
        None if noun.ends_with('s') => format!("{number} {noun}es"),
        None => format!("{number} {noun}s"),
    }
}

/// What a parser of JSON says of a file that holds nothing private, and where; cut, as it may repeat a value of any
/// length.
#[must_use]
pub fn json_words(error: &serde_json::Error) -> String {
    let words = error.to_string();
    match words.char_indices().nth(200) {
        Some((end, _)) => {
            let start = words.get(..end).unwrap_or_default();
            format!("{start}… at line {} column {}", error.line(), error.column())
        }
        None => words,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_value_is_cut() {
        let text = format!("{{\"a\":\n  \"{}\"}}", "x".repeat(5000));
        let error = serde_json::from_str::<std::collections::BTreeMap<String, u8>>(&text).unwrap_err();
        let words = json_words(&error);
        assert!(
            words.starts_with("invalid type: string \"xxx") && words.ends_with("… at line 2 column 5004"),
            "{words}"
        );
        assert!(words.chars().count() < 240 && json_fault(&error) == "a value of another type than expected");
        let error = serde_json::from_str::<u8>("[").unwrap_err();
        assert_eq!(json_words(&error), error.to_string());
    }

    #[test]
    fn one_and_several() {
        assert_eq!([0, 1, 2].map(|n| counted(n, "text")), ["0 texts", "1 text", "2 texts"]);
        assert_eq!([1, 3].map(|n| counted(n, "class")), ["1 class", "3 classes"]);
        assert_eq!([1, 3].map(|n| counted(n, "query")), ["1 query", "3 queries"]);
        assert_eq!((counted(1u64, "pass"), counted(2u32, "pass")), ("1 pass".to_owned(), "2 passes".to_owned()));
        assert_eq!((counted(2u32, "key"), counted(2u32, "query")), ("2 keys".to_owned(), "2 queries".to_owned()));
    }

    #[test]
    fn bytes_that_are_no_text_are_called_so() {
        for (bytes, words) in [
            (&b"[\"\xff\"]"[..], "bytes that are not UTF-8"),
            (b"[\"\\ud800\"]", HALF),
            (b"[\"\\ud800\\u0041\"]", HALF),
            (b"[\"\\udc00\"]", HALF),
        ] {
            let error = serde_json::from_slice::<serde_json::Value>(bytes).unwrap_err();
            assert_eq!(json_fault(&error), words, "{bytes:?}: {error}");
        }
    }
}
