//! The cost of a run, before it runs.

use std::path::PathBuf;

use hushed_mpc::Answers;
use hushed_mpc::plan::{Pace, Plan, Request};
use hushed_serve::{ServeError, read_prefix};
use pyo3::prelude::*;

use crate::{errors, work};

/// Parses what is opened of a text or token.
pub fn opened(py: Python<'_>, answers: &str) -> PyResult<Answers> {
    let wrong = |what| errors::usage(py, "usage", &format!("answers={answers:?}: give {what}"));
    answers.parse().map_err(wrong)
}

/// What a client wants opened, checked against a server that opens `found`.
pub fn enough(py: Python<'_>, wanted: &str, found: Answers) -> PyResult<Answers> {
    let wanted = opened(py, wanted)?;
    match found.includes(wanted) {
        true => Ok(wanted),
        false => {
            let message = format!(
                "the server opens {found}, less than answers=\"{wanted}\": its operator decides (hushed serve --answers)"
            );
            Err(errors::usage(py, "usage", &message))
        }
    }
}

/// The plan for one pass over texts with these numbers of tokens, as JSON.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
pub fn plan(
    py: Python<'_>,
    folder: PathBuf,
    tokens: Vec<usize>,
    bucket: Option<usize>,
    public_table: bool,
    public_prefix: Option<PathBuf>,
    answers: Option<String>,
    net: &str,
) -> PyResult<String> {
    let answers = answers.as_deref().map(|answers| opened(py, answers)).transpose()?;
    let link = net.parse().map_err(|error| errors::serve(py, &ServeError::NoLink(error)))?;
    let prefix = public_prefix.as_deref().map(read_prefix).transpose();
    let request = Request {
        tokens,
        images: 0,
        bucket,
        public_table,
        max_tokens: 1,
        ahead: 0,
        draft: 0,
        answers,
        prefix: prefix.map_err(|error| errors::serve(py, &error))?,
        pace: Pace::default(),
        link,
        network: None,
        head: true,
    };
    let planned = work::quietly(py, move || {
        let pace = Pace::measure()?;
        Plan::of_folder(&folder, &Request { pace, ..request })
    })?;
    let plans = planned.map_err(|error| errors::plan(py, error))?;
    serde_json::to_string(&plans.first()).map_err(|error| errors::defect(py, &error.to_string()))
}
