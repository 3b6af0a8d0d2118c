//! `functions.json`: what the owner of a model declares about its activations, so that a private run may use cheaper
//! approximations, and about its norms, so that a private run has formats for their rows.
//!
//! The file is public and part of the bundle, since the client computes the same functions. `hushed calibrate` writes
//! it; a folder without it runs with functions that hold for any model.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;

use serde_json::{Map, Value, json};

use crate::blocks::{NormReach, Tolerance};
use crate::error::Problem;
use crate::folder::json::{self, Fields};

/// The file's name in a model folder.
pub const FUNCTIONS: &str = "functions.json";

/// No encoder has arguments beyond this.
const MOST_REACH: f64 = 1e6;
/// No approximation has a smaller error.
const LEAST_ERROR: f64 = 1e-9;
/// An approximation with a larger error is useless.
const MOST_ERROR: f64 = 1.0;

/// The most norms that may be named.
const MOST_NORMS: usize = 1024;

/// The contents of `functions.json`.
#[derive(Clone, Debug, PartialEq)]
pub struct Declared {
    /// For the activation.
    pub activation: Tolerance,
    /// For norms whose rows differ from those of most models, by step name.
    pub norms: BTreeMap<String, NormReach>,
}

/// Parses `functions.json`; `None` if and only if a problem was added.
pub(crate) fn parse(bytes: &[u8], problems: &mut Vec<Problem>) -> Option<Declared> {
    let before = problems.len();
    let object = json::object(FUNCTIONS, bytes, problems)?;
    let mut f = Fields::new(FUNCTIONS, &object, problems);
    f.choice("version", &[("1", ())], None, "\"1\"");
    let reach = f.real("activation_reach", 0.0, MOST_REACH);
    let error = f.real("activation_error", LEAST_ERROR, MOST_ERROR);
    let norms = match f.get("norms") {
        None => Some(BTreeMap::new()),
        Some(listed) => {
            let norms = norms(listed);
            if norms.is_none() {
                f.unsupported(
                    "norms",
                    "squares_log2 from 18 to 30 and finer from 0 by the name of a step, squares_log2 + 2·finer at most 33",
                );
            }
            norms
        }
    };
    if problems.len() > before {
        return None;
    }
    Some(Declared { activation: Tolerance { reach: reach?, error: error? }, norms: norms? })
}

fn norms(listed: &Value) -> Option<BTreeMap<String, NormReach>> {
    let listed = listed.as_object()?;
    let entry = |(name, reach): (&String, &Value)| {
        let reach = reach.as_object().filter(|reach| reach.len() == 2)?;
        let bits = |field| u32::try_from(reach.get(field)?.as_u64()?).ok();
        let (squares, finer) = (bits("squares_log2")?, bits("finer")?);
        let least = NormReach::USUAL.squares;
        let held = (least..=NormReach::MOST_SQUARES).contains(&squares) && finer <= (NormReach::MOST - squares) / 2;
        held.then(|| (name.clone(), NormReach { squares, finer }))
    };
    let few = listed.len() <= MOST_NORMS;
    let norms: Option<_> = listed.iter().map(entry).collect();
    norms.filter(|_| few)
}

impl Declared {
    /// The contents of `functions.json`. An error below the format's minimum is written as the minimum.
    pub fn to_json(&self) -> String {
        let error = self.activation.error.max(LEAST_ERROR);
        let mut file = json!({ "version": "1", "activation_reach": self.activation.reach, "activation_error": error });
        let norm = |(name, reach): (&String, &NormReach)| {
            let reach = json!({ "squares_log2": reach.squares, "finer": reach.finer });
            (name.clone(), reach)
        };
        if !self.norms.is_empty() {
            let norms: Map<String, Value> = self.norms.iter().map(norm).collect();
            if let Some(file) = file.as_object_mut() {
                file.insert("norms".to_owned(), norms.into());
            }
        }
        format!("{file:#}\n")
    }
}

/// Declares the activation alone.
impl From<Tolerance> for Declared {
    fn from(activation: Tolerance) -> Declared {
        Declared { activation, norms: BTreeMap::new() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_written_is_read() {
        let mut problems = Vec::new();
        let tolerance = Tolerance { reach: 23.75, error: 6e-4 };
        let mut declared = Declared::from(tolerance);
        for (squares, finer) in [(18, 7), (30, 1), (24, 0)] {
            let read = parse(declared.to_json().as_bytes(), &mut problems);
            assert_eq!((read, problems.len()), (Some(declared.clone()), 0));
            let name = format!("layer.{squares}.attention.norm");
            declared.norms.insert(name, NormReach { squares, finer });
        }
    }

    #[test]
    fn all_problems_at_once() {
        for (text, expected) in [
            ("{}", 3),
            (r#"{"version":"2","activation_reach":-1,"activation_error":2}"#, 3),
            (r#"{"version":"1","activation_reach":"wide","activation_error":1e-3}"#, 1),
            (r#"{"version":"1","activation_reach":9,"activation_error":0}"#, 1),
            (r#"{"version":"1","activation_reach":1e999,"activation_error":1e-3}"#, 1),
            (
                r#"{"version":"1","activation_reach":9,"activation_error":1e-3,"norms":{"norm":{"squares_log2":31,"finer":0}}}"#,
                1,
            ),
            (
                r#"{"version":"1","activation_reach":9,"activation_error":1e-3,"norms":{"norm":{"squares_log2":24,"finer":5}}}"#,
                1,
            ),
            (r#"{"version":"1","activation_reach":9,"activation_error":1e-3,"norms":[1]}"#, 1),
            ("[", 1),
        ] {
            let mut problems = Vec::new();
            assert_eq!(parse(text.as_bytes(), &mut problems), None, "{text}");
            assert_eq!(problems.len(), expected, "{text}: {problems:?}");
        }
    }

    #[test]
    fn the_least_reach_that_holds() {
        let of = |largest, finer| {
            let reach = NormReach::of(largest, finer);
            reach.map(|r| (r.squares, r.finer))
        };
        assert_eq!(of(0.0, 0), Some((18, 0)));
        assert_eq!(of(262_143.0, 0), Some((18, 0)));
        assert_eq!(of(262_144.0, 0), Some((19, 0)));
        assert_eq!(of(9e6, 2), Some((24, 2)));
        assert_eq!(of(9e6, u32::MAX), Some((24, 4)));
        assert_eq!(of(1e9, 0), Some((30, 0)));
        assert_eq!((of(2e9, 0), of(f64::INFINITY, 0)), (None, None));
    }
}
