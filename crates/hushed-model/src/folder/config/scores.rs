//! What a classifier's head of one number is made into: `sentence-transformers` writes the function's name to
//! `config.json`, as `sentence_transformers.activation_fn` or before version 4 as
//! `sbert_ce_default_activation_function`, and since version 5.4 to `config_sentence_transformers.json`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::CONFIG;
use crate::error::Problem;
use crate::folder::json::without_mark;

/// The function of a score, which the client applies to what is opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ScoreFn {
    /// `1/(1 + e^(−x))`.
    Sigmoid,
    /// The number itself.
    Identity,
}

impl ScoreFn {
    /// The function at `x`.
    pub fn of(self, x: f64) -> f64 {
        match self {
            ScoreFn::Sigmoid => 1.0 / (1.0 + (-x).exp()),
            ScoreFn::Identity => x,
        }
    }
}

/// The function that a configuration names; without a name that of `sentence-transformers`, which is σ.
pub(crate) fn parse(config: &[u8], published: Option<&[u8]>, problems: &mut Vec<Problem>) -> ScoreFn {
    const FIELD: &str = "activation_fn";
    let value = |bytes| serde_json::from_slice::<Value>(without_mark(bytes)).unwrap_or_default();
    let (config, published) = (value(config), published.map(value).unwrap_or_default());
    let named = published.get(FIELD).filter(|named| !named.is_null());
    let named = named.or_else(|| config.get("sentence_transformers")?.get(FIELD));
    let named = named.or_else(|| config.get("sbert_ce_default_activation_function"));
    let mut wrong = |field, expected: &'static str| {
        problems.push(Problem::WrongType { file: CONFIG.to_owned(), field, expected: expected.into() });
    };
    if config.get("sentence_transformers").is_some_and(|own| !own.is_null() && !own.is_object()) {
        wrong("sentence_transformers", "an object");
    }
    if named.is_some_and(|named| !named.is_null() && !named.is_string()) {
        wrong(FIELD, "the name of a class");
    }
    match named.and_then(Value::as_str).and_then(|name| name.rsplit('.').next()) {
        None | Some("Sigmoid") => ScoreFn::Sigmoid,
        Some("Identity") => ScoreFn::Identity,
        Some(other) => {
            problems.push(Problem::UnsupportedValue {
                file: CONFIG.to_owned(),
                field: FIELD,
                value: other.chars().filter(|c| !c.is_control()).take(60).collect(),
                supported: "Sigmoid, Identity".into(),
            });
            ScoreFn::Sigmoid
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_function_is_the_one_that_the_library_takes() {
        for (config, expected) in [
            ("{}", Some(ScoreFn::Sigmoid)),
            (r#"{"sbert_ce_default_activation_function": null}"#, Some(ScoreFn::Sigmoid)),
            (
                r#"{"sbert_ce_default_activation_function": "torch.nn.modules.linear.Identity"}"#,
                Some(ScoreFn::Identity),
            ),
            (
                r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.linear.Identity"}}"#,
                Some(ScoreFn::Identity),
            ),
            (
                r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Sigmoid"}}"#,
                Some(ScoreFn::Sigmoid),
            ),
            (r#"{"sentence_transformers": {"activation_fn": "torch.nn.modules.activation.Tanh"}}"#, None),
        ] {
            let mut problems = Vec::new();
            let found = parse(config.as_bytes(), None, &mut problems);
            assert_eq!(problems.is_empty().then_some(found), expected, "{config}");
        }
        for (published, expected) in
            [("torch.nn.modules.linear.Identity", ScoreFn::Identity), ("x.Sigmoid", ScoreFn::Sigmoid)]
        {
            let published = format!(r#"{{"activation_fn": "{published}"}}"#);
            assert_eq!(parse(b"{}", Some(published.as_bytes()), &mut Vec::new()), expected);
        }
        assert_eq!((ScoreFn::Sigmoid.of(0.0), ScoreFn::Identity.of(-3.0)), (0.5, -3.0));
        assert!((ScoreFn::Sigmoid.of(2.0) - 0.880_797).abs() < 1e-6 && ScoreFn::Sigmoid.of(-800.0) == 0.0);
    }
}
