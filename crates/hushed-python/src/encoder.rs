//! A client's encoder.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use hushed_serve::{Encoded, Options, Progress, Spent, TooLong, Watch};
use pyo3::prelude::*;
use pyo3::types::PyByteArray;

use crate::connection::Connection;
use crate::errors;
use crate::work::{self, Reporter};

/// How to run texts: `hushed._settings.How`.
#[derive(FromPyObject)]
pub struct How {
    batch: usize,
    bucket: Option<usize>,
    truncate: bool,
    public_table: bool,
}

/// The cost of a call as a dictionary, with the fields of `hushed.Cost`.
#[derive(IntoPyObject)]
struct Cost {
    tokens: Vec<usize>,
    passes: usize,
    sessions: usize,
    bytes_sent: u64,
    bytes_received: u64,
    rounds: u64,
    setup_seconds: f64,
    seconds: f64,
}

/// An encoder; its lock lets one call run at a time.
#[pyclass(frozen, module = "hushed._native")]
pub struct Encoder {
    encoder: hushed_serve::Encoder,
}

#[pymethods]
impl Encoder {
    #[new]
    fn new(py: Python<'_>, connection: Connection) -> PyResult<Self> {
        let opened = work::quietly(py, move || hushed_serve::Encoder::open(connection.config()?))?;
        let encoder = opened.map_err(|error| errors::serve(py, &error))?;
        Ok(Self { encoder })
    }

    /// Numbers per answer.
    #[getter]
    fn width(&self) -> usize {
        self.encoder.facts().width
    }

    /// Most tokens in a text.
    #[getter]
    fn max_tokens(&self) -> usize {
        self.encoder.facts().max_tokens
    }

    /// The model's prompts.
    #[getter]
    fn prompts(&self) -> BTreeMap<String, String> {
        self.encoder.facts().prompts.clone()
    }

    /// Whether a text after a prompt is answered as by the published model.
    #[getter]
    fn pools_prompts(&self) -> bool {
        self.encoder.facts().pools_prompts
    }

    /// The name of the similarity that the model is for.
    #[getter]
    fn similarity(&self) -> &'static str {
        self.encoder.facts().similarity.name()
    }

    /// The tokens of texts. Nothing is sent.
    fn tokenize(&self, py: Python<'_>, texts: Vec<String>, truncate: bool) -> PyResult<Vec<Vec<u32>>> {
        let too_long = too_long(truncate);
        let encoder = self.encoder.clone();
        let ids = work::quietly(py, move || encoder.tokenize(&texts, too_long))?;
        ids.map_err(|error| errors::serve(py, &error))
    }

    /// Hash of the bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> String {
        self.encoder.facts().bundle.to_string()
    }

    /// The answers as native float32, one after another, and their cost. Calls `progress(done, of)`, in units of one
    /// layer of one text.
    fn encode<'py>(
        &self,
        py: Python<'py>,
        texts: Vec<String>,
        how: How,
        progress: Option<Bound<'py, PyAny>>,
    ) -> PyResult<(Bound<'py, PyByteArray>, Cost)> {
        self.check_process(py)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (encoder, seen) = (self.encoder.clone(), Arc::clone(&stop));
        let call = move |reporter: Reporter<_, Progress>| {
            let watch = Watch { progress: Some(Box::new(move |step| reporter.progress(step))), stop: seen };
            encoder.encode(&texts, how.options(), watch)
        };
        let show = |_: Python<'_>, step: Progress| match &progress {
            Some(progress) => {
                let done = step.text * step.layers + step.layer * step.sharing;
                progress.call1((done, step.texts * step.layers)).map(|_| ())
            }
            None => Ok(()),
        };
        let encoded = work::run(py, call, show, || stop.store(true, Ordering::Relaxed))?;
        let Encoded { answers, spent } = encoded.map_err(|error| errors::serve(py, &error))?;
        let numbers = answers.iter().flat_map(|answer| &answer.values);
        let bytes: Vec<u8> = numbers.flat_map(|&x| (x as f32).to_ne_bytes()).collect();
        Ok((PyByteArray::new(py, &bytes), spent.into()))
    }

    /// Ends the session, if one is open.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.encoder.check_process().is_err() {
            return Ok(());
        }
        let encoder = self.encoder.clone();
        let closed = work::quietly(py, move || encoder.close())?;
        closed.map_err(|error| errors::serve(py, &error))
    }
}

impl Encoder {
    fn check_process(&self, py: Python<'_>) -> PyResult<()> {
        let checked = self.encoder.check_process();
        checked.map_err(|error| errors::serve(py, &error))
    }
}

impl How {
    /// The library's options.
    pub fn options(&self) -> Options {
        Options {
            too_long: too_long(self.truncate),
            bucket: self.bucket,
            batch: self.batch,
            public_table: self.public_table,
            ahead: 0,
        }
    }
}

fn too_long(truncate: bool) -> TooLong {
    match truncate {
        true => TooLong::Cut,
        false => TooLong::Refuse,
    }
}

impl From<Spent> for Cost {
    fn from(spent: Spent) -> Self {
        Self {
            tokens: spent.rows,
            passes: spent.passes,
            sessions: spent.sessions,
            bytes_sent: spent.bytes_sent,
            bytes_received: spent.bytes_received,
            rounds: spent.rounds,
            setup_seconds: spent.setup.as_secs_f64(),
            seconds: spent.time.as_secs_f64(),
        }
    }
}
