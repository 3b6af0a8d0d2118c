//! A server in this process.

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use hushed_mpc::Answers;
use hushed_serve::{ClientAccess, ServeError, ServerConfig};
use pyo3::prelude::*;

use crate::{errors, plan, work};

/// What to serve: `hushed._settings.Serving`.
#[derive(FromPyObject)]
struct Serving {
    folder: PathBuf,
    certificates: PathBuf,
    port: u16,
    tokens: Option<PathBuf>,
    max_sessions: usize,
    max_tokens: Option<usize>,
    max_pass_tokens: usize,
    max_texts: usize,
    public_table: bool,
    index: Option<PathBuf>,
    search_scores: bool,
    public_prefix: Option<PathBuf>,
    max_ahead: u16,
    max_drafts: u16,
    answers: Option<String>,
}

/// A server that runs until it is closed.
#[pyclass(frozen, module = "hushed._native")]
pub struct Server {
    address: String,
    pin: String,
    bundle: String,
    stop: Arc<AtomicBool>,
    thread: Mutex<Option<JoinHandle<Result<(), ServeError>>>>,
    process: u32,
}

#[pymethods]
impl Server {
    #[new]
    fn new(py: Python<'_>, serving: Serving) -> PyResult<Self> {
        let answers = serving.answers.as_deref().map(|answers| plan::opened(py, answers)).transpose()?;
        let started = work::quietly(py, move || Self::start(&serving.config(answers)))?;
        started.map_err(|error| errors::serve(py, &error))
    }

    /// `HOST:PORT`.
    #[getter]
    fn address(&self) -> &str {
        &self.address
    }

    /// SHA-256 of its certificate, in hexadecimal.
    #[getter]
    fn pin(&self) -> &str {
        &self.pin
    }

    /// Hash of its bundle, in hexadecimal.
    #[getter]
    fn bundle(&self) -> &str {
        &self.bundle
    }

    /// Finishes the passes in progress and ends the server. A forked process has no server to end.
    fn close(&self, py: Python<'_>) -> PyResult<()> {
        if self.process != std::process::id() {
            return Ok(());
        }
        self.stop.store(true, Ordering::SeqCst);
        // The lock is not held while waiting: a second caller would wait for it while holding the interpreter's lock.
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else {
            return Ok(());
        };
        match work::quietly(py, move || thread.join())? {
            Ok(ended) => ended.map_err(|error| errors::serve(py, &error)),
            Err(_) => Err(errors::defect(py, "the server panicked: see standard error")),
        }
    }
}

impl Server {
    fn start(config: &ServerConfig) -> Result<Self, ServeError> {
        let server = hushed_serve::Server::bind(config)?;
        let stop = Arc::new(AtomicBool::new(false));
        let (address, pin) = (server.listener().local_addr().to_string(), server.listener().fingerprint().to_string());
        let bundle = server.bundle_hash().to_string();
        let raised = Arc::clone(&stop);
        let named = thread::Builder::new().name("hushed server".to_owned());
        let thread = named.spawn(move || server.run(&raised)).map_err(ServeError::Thread)?;
        Ok(Self { address, pin, bundle, stop, thread: Mutex::new(Some(thread)), process: std::process::id() })
    }
}

impl Drop for Server {
    /// The thread ends by itself.
    fn drop(&mut self) {
        self.stop.store(true, Ordering::SeqCst);
    }
}

impl Serving {
    /// The configuration of a server for this machine only.
    fn config(self, answers: Option<Answers>) -> ServerConfig {
        let mut config = ServerConfig::local(self.folder, self.certificates);
        config.entrance.listen = format!("127.0.0.1:{}", self.port);
        config.entrance.access = ClientAccess::new(self.tokens, None);
        config.entrance.max_sessions = self.max_sessions;
        config.max_tokens = self.max_tokens;
        config.max_pass_tokens = self.max_pass_tokens;
        config.max_texts = self.max_texts;
        config.public_table = self.public_table;
        config.index = self.index;
        config.search_scores = self.search_scores;
        config.public_prefix = self.public_prefix;
        config.max_ahead = self.max_ahead;
        config.max_drafts = self.max_drafts;
        config.answers = answers;
        config
    }
}
