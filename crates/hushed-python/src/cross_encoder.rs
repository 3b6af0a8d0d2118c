//! A client's cross-encoder: pairs of texts in, numbers out.

use std::sync::{Arc, Mutex};

use hushed_mpc::Answers;
use hushed_serve::{Kept, ScoreFn, Task};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::encoder::How;
use crate::{errors, kept, plan};

/// A cross-encoder; its lock lets one call run at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct CrossEncoder {
    kept: Arc<Mutex<Kept>>,
    labels: Vec<String>,
    /// Whether the sigmoid is applied to a score.
    sigmoid: bool,
    max_tokens: usize,
    bundle: String,
}

#[pymethods]
impl CrossEncoder {
    #[new]
    fn new(py: Python<'_>, connection: Connection) -> PyResult<Self> {
        let kept = kept::open(py, connection, Task::Classify)?;
        plan::enough(py, &Answers::Logits.to_string(), kept.answers())?;
        let public = kept.public();
        Ok(Self {
            labels: public.labels().unwrap_or_default().to_vec(),
            sigmoid: public.config.scores() && public.score == ScoreFn::Sigmoid,
            max_tokens: kept.max_tokens(),
            bundle: kept.bundle().to_string(),
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    /// The classes, in the model's order: one for a score.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Whether the sigmoid is applied to a score.
    #[getter]
    fn sigmoid(&self) -> bool {
        self.sigmoid
    }

    /// Most tokens in a pair.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The logits of each pair.
    fn logits(&self, py: Python<'_>, pairs: Vec<[String; 2]>, how: How) -> PyResult<Vec<Vec<f64>>> {
        let call = move |kept: &mut Kept, stop: &_| kept.classify_pairs(&pairs, &how.options(), stop);
        let classes = kept::run(py, &self.kept, call)?;
        let logits: Option<_> = classes.into_iter().map(|class| class.logits).collect();
        // Can happen in a later session, after the server was restarted.
        logits.ok_or_else(|| errors::usage(py, "usage", "the server opens less than it did before"))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        kept::close(py, &self.kept)
    }
}
