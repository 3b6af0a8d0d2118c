//! A client that searches a server's documents.

use std::sync::{Arc, Mutex};

use hushed_serve::{Kept, Record, Task, Wanted};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::encoder::How;
use crate::kept;

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
        let kept = kept::open(py, connection, Task::Embed)?;
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
        let call = move |kept: &mut Kept, stop: &_| kept.search(&query, wanted, &how.options(), stop);
        let hits = kept::run(py, &self.kept, call)?.hits.into_iter().map(|hit| {
            let record = hit.record.as_deref().map(Record::parse);
            let text = record.as_ref().map(|record| record.text.clone());
            let (id, metadata) = record.map(|record| (record.id, record.metadata)).unwrap_or_default();
            (hit.place, text, hit.score, id, metadata.map(|metadata| metadata.to_string()))
        });
        Ok(hits.collect())
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        kept::close(py, &self.kept)
    }
}
