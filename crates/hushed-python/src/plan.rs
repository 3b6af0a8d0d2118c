//! What a run will cost, before it runs.

use std::path::PathBuf;

use hushed_mpc::plan::{Plan, Request};
use hushed_serve::read_prefix;
use pyo3::prelude::*;

use crate::{errors, work};

/// The plan of one pass over texts of these numbers of tokens, as JSON.
#[pyfunction]
pub fn plan(
    py: Python<'_>,
    folder: PathBuf,
    tokens: Vec<usize>,
    bucket: Option<usize>,
    public_table: bool,
    public_prefix: Option<PathBuf>,
) -> PyResult<String> {
    let prefix = public_prefix.as_deref().map(read_prefix).transpose();
    let request = Request {
        tokens,
        images: 0,
        bucket,
        public_table,
        max_tokens: 1,
        answers: Default::default(),
        prefix: prefix.map_err(|error| errors::serve(py, &error))?,
    };
    let planned = work::quietly(py, move || Plan::of_folder(&folder, &request))?;
    let plans = planned.map_err(|error| errors::plan(py, error))?;
    serde_json::to_string(&plans.first()).map_err(|error| errors::defect(py, &error.to_string()))
}
