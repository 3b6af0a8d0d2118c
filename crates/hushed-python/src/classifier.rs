//! A client's classifier.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hushed_serve::{Kept, ServeError, Task};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::encoder::How;
use crate::{errors, work};

/// A classifier; its lock lets one call run at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct Classifier {
    kept: Arc<Mutex<Kept>>,
    labels: Vec<String>,
    max_tokens: usize,
    bundle: String,
}

#[pymethods]
impl Classifier {
    #[new]
    fn new(py: Python<'_>, connection: Connection) -> PyResult<Self> {
        let opened = work::quietly(py, move || Kept::open(connection.config()?, Task::Classify))?;
        let kept = opened.map_err(|error| errors::serve(py, &error))?;
        Ok(Self {
            labels: kept.public().labels().unwrap_or_default().to_vec(),
            max_tokens: kept.max_tokens(),
            bundle: kept.bundle().to_string(),
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    /// The classes, in the model's order.
    #[getter]
    fn labels(&self) -> Vec<String> {
        self.labels.clone()
    }

    /// Most tokens of a text.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The class of each text.
    fn classify(&self, py: Python<'_>, texts: Vec<String>, how: How) -> PyResult<Vec<String>> {
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, seen) = (Arc::clone(&self.kept), Arc::clone(&stop));
        let call = move |_: work::Reporter<_, ()>| -> Result<Vec<String>, ServeError> {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let classes = kept.classify(&texts, &how.options(), &seen)?;
            Ok(classes
                .iter()
                .map(|class| class.name().to_owned())
                .collect())
        };
        let done = work::run(
            py,
            call,
            |_, ()| Ok(()),
            || stop.store(true, Ordering::Relaxed),
        )?;
        done.map_err(|error| errors::serve(py, &error))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        close(py, &self.kept)
    }
}

/// Ends a session, if one is open.
pub fn close(py: Python<'_>, kept: &Arc<Mutex<Kept>>) -> PyResult<()> {
    let kept = Arc::clone(kept);
    let close = move || kept.lock().unwrap_or_else(PoisonError::into_inner).close();
    work::quietly(py, close)?.map_err(|error| errors::serve(py, &error))
}
