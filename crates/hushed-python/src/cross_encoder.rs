//! A client's cross-encoder: pairs of texts in, numbers out.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hushed_mpc::Answers;
use hushed_serve::{Class, Kept, ScoreFn, ServeError, Task};
use pyo3::prelude::*;

use crate::classifier::close;
use crate::connection::Connection;
use crate::encoder::How;
use crate::{errors, plan, work};

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
        let opened = work::quietly(py, move || Kept::open(connection.config()?, Task::Classify))?;
        let kept = opened.map_err(|error| errors::serve(py, &error))?;
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
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, seen) = (Arc::clone(&self.kept), Arc::clone(&stop));
        let call = move |_: work::Reporter<_, ()>| -> Result<Vec<Class>, ServeError> {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            kept.classify_pairs(&pairs, &how.options(), &seen)
        };
        let done = work::run(py, call, |_, ()| Ok(()), || stop.store(true, Ordering::Relaxed))?;
        let classes = done.map_err(|error| errors::serve(py, &error))?;
        let logits: Option<_> = classes.into_iter().map(|class| class.logits).collect();
        // Can happen in a later session, after the server was restarted.
        logits.ok_or_else(|| errors::usage(py, "usage", "the server opens less than it did before"))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.kept)
    }
}
