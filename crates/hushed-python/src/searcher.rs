//! A client that searches a server's documents.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hushed_serve::{Kept, Record, ServeError, Task, Wanted};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::encoder::How;
use crate::{classifier, errors, work};

/// A searcher; its lock lets one call run at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct Searcher {
    kept: Arc<Mutex<Kept>>,
    documents: usize,
    max_tokens: usize,
    bundle: String,
}

/// The index of a document and, if requested, its text and score; then its id, and its metadata as JSON, if it has any.
type Hit = (u32, Option<String>, Option<f64>, Option<String>, Option<String>);

#[pymethods]
impl Searcher {
    #[new]
    fn new(py: Python<'_>, connection: Connection) -> PyResult<Self> {
        let opened = work::quietly(py, move || Kept::open(connection.config()?, Task::Embed))?;
        let kept = opened.map_err(|error| errors::serve(py, &error))?;
        Ok(Self {
            documents: kept.documents(),
            max_tokens: kept.max_tokens(),
            bundle: kept.bundle().to_string(),
            kept: Arc::new(Mutex::new(kept)),
        })
    }

    /// The number of documents when the session began.
    #[getter]
    fn documents(&self) -> usize {
        self.documents
    }

    /// Most tokens in a query.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.max_tokens
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// The nearest documents, in order. `wanted` is how many, and whether with texts and scores.
    fn search(&self, py: Python<'_>, query: String, wanted: (usize, bool, bool), how: How) -> PyResult<Vec<Hit>> {
        let (top, records, scores) = wanted;
        let wanted = Wanted { top, records, scores };
        let stop = Arc::new(AtomicBool::new(false));
        let (kept, seen) = (Arc::clone(&self.kept), Arc::clone(&stop));
        let call = move |_: work::Reporter<_, ()>| -> Result<Vec<Hit>, ServeError> {
            let mut kept = kept.lock().unwrap_or_else(PoisonError::into_inner);
            let found = kept.search(&query, wanted, &how.options(), &seen)?;
            let hits = found.hits.into_iter().map(|hit| {
                let record = hit.record.as_deref().map(Record::parse);
                let text = record.as_ref().map(|record| record.text.clone());
                let (id, metadata) = record.map(|record| (record.id, record.metadata)).unwrap_or_default();
                (hit.place, text, hit.score, id, metadata.map(|metadata| metadata.to_string()))
            });
            Ok(hits.collect())
        };
        let done = work::run(py, call, |_, ()| Ok(()), || stop.store(true, Ordering::Relaxed))?;
        done.map_err(|error| errors::serve(py, &error))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        classifier::close(py, &self.kept)
    }
}
