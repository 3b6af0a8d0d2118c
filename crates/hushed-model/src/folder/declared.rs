//! `functions.json`: what the owner of a model declares of its activations, so that a private run may use cheaper
//! approximations.
//!
//! It is public: the client computes the same functions, so the file is part of the bundle. `hushed calibrate` writes
//! it; a folder without it is run with functions that hold for any model.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::json;

use crate::blocks::Tolerance;
use crate::error::Problem;
use crate::folder::json::{self, Fields};

/// Name of the file in a model folder.
pub const FUNCTIONS: &str = "functions.json";

/// No encoder has arguments beyond this.
const MOST_REACH: f64 = 1e6;
/// No approximation errs by less.
const LEAST_ERROR: f64 = 1e-9;
/// One that errs by more is of no use.
const MOST_ERROR: f64 = 1.0;

/// Parses `functions.json`; `None` exactly if a problem was added.
pub(crate) fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Tolerance> {
    let before = problems.len();
    let object = json::object(FUNCTIONS, bytes, problems)?;
    let mut f = Fields::new(FUNCTIONS, &object, problems);
    f.choice("version", &[("1", ())], None, "\"1\"");
    let reach = f.real("activation_reach", 0.0, MOST_REACH);
    let error = f.real("activation_error", LEAST_ERROR, MOST_ERROR);
    if problems.len() > before {
        return None;
    }
    Some(Tolerance {
        reach: reach?,
        error: error?,
    })
}

impl Tolerance {
    /// The contents of `functions.json`. An error below the format's least value is written as that value.
    pub fn to_json(&self) -> String {
        let file = json!({ "version": "1", "activation_reach": self.reach, "activation_error": self.error.max(LEAST_ERROR) });
        format!("{file:#}\n")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut problems = Vec::new();
        let tolerance = Tolerance {
            reach: 23.75,
            error: 6e-4,
        };
        let read = parse(tolerance.to_json().as_bytes(), &mut problems);
        assert_eq!((read, problems.len()), (Some(tolerance), 0));
    }

    #[test]
    fn all_problems_at_once() {
        for (text, expected) in [
            ("{}", 3),
            (
                r#"{"version":"2","activation_reach":-1,"activation_error":2}"#,
                3,
            ),
            (
                r#"{"version":"1","activation_reach":"wide","activation_error":1e-3}"#,
                1,
            ),
            (
                r#"{"version":"1","activation_reach":9,"activation_error":0}"#,
                1,
            ),
            (
                r#"{"version":"1","activation_reach":1e999,"activation_error":1e-3}"#,
                1,
            ),
            ("[", 1),
        ] {
            let mut problems = Vec::new();
            assert_eq!(parse(text.as_bytes(), &mut problems), None, "{text}");
            assert_eq!(problems.len(), expected, "{text}: {problems:?}");
        }
    }
}
