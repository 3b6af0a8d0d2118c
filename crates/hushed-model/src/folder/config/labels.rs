//! Whether a model is a classifier, and the names of its classes: `architectures`, `id2label` and `num_labels` in
//! `config.json`.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde::Serialize;
use serde_json::{Map, Value};

use crate::folder::json::Fields;

/// Largest number of classes, far above published classifiers.
const MAX_CLASSES: usize = 1 << 12;
/// Largest size of a name in bytes.
const MAX_NAME: usize = 200;
/// The defaults of the library that writes these files.
const DEFAULT_CLASSES: usize = 2;
const NAMES: &str =
    "names for 0, 1, … without gaps, each a text of at most 200 bytes without control characters, 4096 at most";

/// What the numbers of a classifier's head say: `problem_type`, whose texts these are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub enum ProblemType {
    /// Classes that exclude each other: that of the largest logit is the answer. So it is without the field.
    #[default]
    #[serde(rename = "single_label_classification")]
    SingleLabel,
    /// Classes of which several or none may be right, each with a probability of its own, σ of its logit.
    #[serde(rename = "multi_label_classification")]
    MultiLabel,
    /// Values.
    #[serde(rename = "regression")]
    Regression,
}

impl ProblemType {
    /// The places of the classes that are the answer, by falling logits: that of the largest of several logits, or of
    /// all above `threshold` where classes do not exclude each other. Values name none.
    pub fn answer(self, logits: &[f64], threshold: f64) -> Vec<usize> {
        let mut classes: Vec<(usize, f64)> = logits.iter().copied().enumerate().collect();
        classes.sort_by(|a, b| b.1.total_cmp(&a.1));
        match self {
            Self::SingleLabel if classes.len() > 1 => classes.truncate(1),
            Self::MultiLabel => classes.retain(|class| class.1 > threshold),
            Self::SingleLabel | Self::Regression => classes.clear(),
        }
        classes.into_iter().map(|class| class.0).collect()
    }
}

/// The names of the classes if the configuration is a classifier's, that is, names one of these architectures. Problems
/// with the names are added to the list.
pub(crate) fn parse(f: &mut Fields<'_>, classifiers: &[&str]) -> Option<Vec<String>> {
    let classifies = match f.get("architectures") {
        Some(Value::Array(names)) => names.iter().filter_map(Value::as_str).any(|name| classifiers.contains(&name)),
        _ => false,
    };
    if !classifies {
        return None;
    }
    match f.get("id2label") {
        Some(Value::Object(names)) => {
            let found = in_order(names);
            if found.is_none() {
                f.unsupported("id2label", NAMES);
            }
            found
        }
        Some(_) => {
            f.unsupported("id2label", NAMES);
            None
        }
        None => {
            let classes = match f.get("num_labels") {
                Some(_) => f.size("num_labels", 1, MAX_CLASSES)?,
                None => DEFAULT_CLASSES,
            };
            Some((0..classes).map(|i| format!("LABEL_{i}")).collect())
        }
    }
}

/// What the numbers of a classifier's head say.
pub(crate) fn problem_type(f: &mut Fields<'_>) -> ProblemType {
    let types = &[
        ("single_label_classification", ProblemType::SingleLabel),
        ("multi_label_classification", ProblemType::MultiLabel),
        ("regression", ProblemType::Regression),
    ];
    let names = "single_label_classification, multi_label_classification, regression";
    f.choice("problem_type", types, Some(ProblemType::default()), names).unwrap_or_default()
}

fn in_order(names: &Map<String, Value>) -> Option<Vec<String>> {
    let sound = |name: &&str| name.len() <= MAX_NAME && !name.chars().any(char::is_control);
    let name = |i: usize| {
        let name = names.get(&i.to_string())?.as_str();
        name.filter(sound).map(str::to_owned)
    };
    let classes = (1..=MAX_CLASSES).contains(&names.len());
    classes.then(|| (0..names.len()).map(name).collect())?
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::folder::config::CONFIG;
    use crate::folder::json;

    /// The names, and the number of problems.
    fn labels(text: &str) -> (Option<Vec<String>>, usize) {
        let mut problems = Vec::new();
        let object = json::object(CONFIG, text.as_bytes(), &mut problems).unwrap();
        let found = parse(&mut Fields::new(CONFIG, &object, &mut problems), &["BertForSequenceClassification"]);
        (found, problems.len())
    }

    #[test]
    fn only_of_classifiers_and_in_order() {
        let names = |names: &[&str]| Some(names.iter().map(|&n| n.to_owned()).collect::<Vec<_>>());
        for (text, expected) in [
            (r#"{"id2label":{"0":"a"}}"#, (None, 0)),
            (r#"{"architectures":["BertModel"]}"#, (None, 0)),
            (r#"{"architectures":7}"#, (None, 0)),
            (r#"{"architectures":["BertForSequenceClassification"]}"#, (names(&["LABEL_0", "LABEL_1"]), 0)),
            (r#"{"architectures":["BertForSequenceClassification"],"num_labels":1}"#, (names(&["LABEL_0"]), 0)),
            (
                r#"{"architectures":["BertForSequenceClassification"],"id2label":{"1":"no","0":"yes"}}"#,
                (names(&["yes", "no"]), 0),
            ),
        ] {
            assert_eq!(labels(text), expected, "{text}");
        }
    }

    #[test]
    fn classes_that_are_the_answer() {
        let logits = [-1.0, 3.0, 0.5];
        for (problem, threshold, expected) in [
            (ProblemType::SingleLabel, 0.0, &[1][..]),
            (ProblemType::MultiLabel, 0.0, &[1, 2]),
            (ProblemType::MultiLabel, 0.5, &[1]),
            (ProblemType::MultiLabel, 9.0, &[]),
            (ProblemType::Regression, 0.0, &[]),
        ] {
            assert_eq!(problem.answer(&logits, threshold), expected, "{problem:?} {threshold}");
        }
        assert!(ProblemType::SingleLabel.answer(&[2.0], 0.0).is_empty());
        assert_eq!(ProblemType::MultiLabel.answer(&[2.0], 0.0), [0]);
    }

    #[test]
    fn names_that_are_refused() {
        let long = format!(r#"{{"0":"{}"}}"#, "x".repeat(201));
        for names in [r#"{"0":"a","2":"b"}"#, r#"{"0":7}"#, r#"{"0":"\u001b[2J"}"#, "{}", "[]", &long] {
            let text = format!(r#"{{"architectures":["BertForSequenceClassification"],"id2label":{names}}}"#);
            assert_eq!(labels(&text), (None, 1), "{names}");
        }
        for count in ["0", "5000", "\"2\""] {
            let text = format!(r#"{{"architectures":["BertForSequenceClassification"],"num_labels":{count}}}"#);
            assert_eq!(labels(&text), (None, 1), "{count}");
        }
    }
}
