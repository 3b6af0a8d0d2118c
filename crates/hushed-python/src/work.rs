//! Long calls run in their own thread, so that Python keeps running and signals are noticed.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::OnceLock;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::Duration;

use pyo3::prelude::*;

use crate::errors;

/// How often Python's signal handlers get to run.
const LOOK: Duration = Duration::from_millis(50);

/// A report from a call's thread.
enum Report<T, P> {
    Progress(P),
    /// The result; `None` if the call panicked.
    Ended(Option<T>),
}

/// Reports progress from a call's thread.
pub struct Reporter<T, P>(Sender<Report<T, P>>);

impl<T, P> Reporter<T, P> {
    /// Passes `P` on to be shown, if anyone still listens.
    pub fn progress(&self, progress: P) {
        // An interrupted caller is gone.
        let _ = self.0.send(Report::Progress(progress));
    }
}

/// Runs `call` in a thread, without the interpreter's lock, and passes its progress to `show`. An exception in `show`
/// or in a signal handler (Ctrl-C) ends the wait at once, after `stop` has told the thread to end.
pub fn run<T: Send + 'static, P: Send + 'static>(
    py: Python<'_>,
    call: impl FnOnce(Reporter<T, P>) -> T + Send + 'static,
    mut show: impl FnMut(Python<'_>, P) -> PyResult<()>,
    stop: impl FnOnce(),
) -> PyResult<T> {
    first_process(py)?;
    let (send, reports) = channel();
    let body = move || {
        let reporter = Reporter(send.clone());
        let ended = catch_unwind(AssertUnwindSafe(|| call(reporter))).ok();
        let _ = send.send(Report::Ended(ended));
    };
    let thread = thread::Builder::new().name("hushed call".to_owned());
    if let Err(error) = thread.spawn(body) {
        let message = format!("could not start a thread: {error}; is there a limit on them?");
        return Err(errors::exception(py, 8, "system", &message));
    }
    let mut reports = reports;
    loop {
        let report;
        (reports, report) = py.detach(move || next(reports));
        match report {
            Ok(Report::Ended(Some(result))) => return Ok(result),
            Ok(Report::Ended(None)) | Err(RecvTimeoutError::Disconnected) => {
                return Err(errors::defect(py, "a call ended by a panic: see standard error"));
            }
            Ok(Report::Progress(progress)) => {
                if let Err(exception) = show(py, progress) {
                    stop();
                    return Err(exception);
                }
            }
            Err(RecvTimeoutError::Timeout) => {}
        }
        if let Err(exception) = py.check_signals() {
            stop();
            return Err(exception);
        }
    }
}

/// [`run`] for a call that shows no progress and need not be stopped.
pub fn quietly<T: Send + 'static>(py: Python<'_>, call: impl FnOnce() -> T + Send + 'static) -> PyResult<T> {
    run(py, |_: Reporter<T, ()>| call(), |_, ()| Ok(()), || ())
}

/// The next report, if one comes before the next look. The channel is returned with it, because it is not shared
/// between threads, and code without the interpreter's lock could run in another thread.
fn next<R>(reports: Receiver<R>) -> (Receiver<R>, Result<R, RecvTimeoutError>) {
    let report = reports.recv_timeout(LOOK);
    (reports, report)
}

/// The process that made the first call. A child of `fork` has a copy of the thread pool without its threads, and would
/// wait for them forever.
static PROCESS: OnceLock<u32> = OnceLock::new();

/// Checks that no other process has made a call before.
pub fn first_process(py: Python<'_>) -> PyResult<()> {
    let here = std::process::id();
    if *PROCESS.get_or_init(|| here) == here {
        return Ok(());
    }
    let message = "this process was forked from one that had used hushed: start processes by the method `spawn` \
                   (multiprocessing.get_context(\"spawn\")), or use hushed after the fork only";
    Err(errors::usage(py, "forked", message))
}
