//! What is wrong with JSON, in words that are always short.

/// What a parser of JSON found, in words. Its own message may show a value, which may be private.
#[must_use]
pub fn json_fault(error: &serde_json::Error) -> &'static str {
    let words = error.to_string();
    let known = [
        ("EOF while parsing", "it ends too early"),
        ("lone leading surrogate", HALF),
        ("unexpected end of hex escape", HALF),
        ("invalid unicode code point", HALF),
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
}
