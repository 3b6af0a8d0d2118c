//! A client's session, which is opened when a call needs it; one call runs at a time.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use hushed_serve::{Kept, ServeError, Task};
use pyo3::prelude::*;

use crate::connection::Connection;
use crate::{errors, work};

/// Opens a session with a server for a model of this kind.
pub fn open(py: Python<'_>, connection: Connection, task: Task) -> PyResult<Kept> {
    let opened = work::quietly(py, move || Kept::open(connection.config()?, task))?;
    opened.map_err(|error| errors::serve(py, &error))
}

/// Runs a call without progress. An exception in a signal handler (Ctrl-C) sets the flag that `call` takes.
pub fn run<T: Send + 'static>(
    py: Python<'_>,
    kept: &Arc<Mutex<Kept>>,
    call: impl FnOnce(&mut Kept, &Arc<AtomicBool>) -> Result<T, ServeError> + Send + 'static,
) -> PyResult<T> {
    let stop = Arc::new(AtomicBool::new(false));
    let (kept, seen) = (Arc::clone(kept), Arc::clone(&stop));
    let call = move |_: work::Reporter<_, ()>| call(&mut kept.lock().unwrap_or_else(PoisonError::into_inner), &seen);
    let done = work::run(py, call, |_, ()| Ok(()), || stop.store(true, Ordering::Relaxed))?;
    done.map_err(|error| errors::serve(py, &error))
}

/// Ends the session, if one is open.
pub fn close(py: Python<'_>, kept: &Arc<Mutex<Kept>>) -> PyResult<()> {
    let kept = Arc::clone(kept);
    let close = move || kept.lock().unwrap_or_else(PoisonError::into_inner).close();
    work::quietly(py, close)?.map_err(|error| errors::serve(py, &error))
}
