//! One run under encryption on several machines: the driver and a machine's part, for `hushed.ray`.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use hushed_fhe::Division;
use hushed_fhe::run::worker::WorkList;
use hushed_serve::ServeError;
use hushed_serve::fhe::{
    ContextOptions, FheJobError, MachinesDriver, MachinesWorker, RunFiles, RunOptions, default_calibration,
    default_secret,
};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyByteArray;

use crate::{errors, work};

/// The files of a run: `Files` of `hushed.ray`.
#[derive(FromPyObject)]
pub struct Files {
    folder: PathBuf,
    manifest: PathBuf,
    keys: PathBuf,
    request: PathBuf,
    out: PathBuf,
    calibration: Option<PathBuf>,
    secret: Option<PathBuf>,
    max_memory: Option<u64>,
    threads: Option<usize>,
}

impl Files {
    fn options(self) -> Result<RunOptions, ServeError> {
        let context = ContextOptions {
            plan: self.manifest,
            calibration: self.calibration.unwrap_or_else(|| default_calibration(&self.folder)),
            secret: self.secret.or_else(default_secret).ok_or(FheJobError::NoStateFolder)?,
            model: self.folder,
            max_memory: self.max_memory.map(|gib| gib << 30),
            threads: self.threads,
        };
        let (keys, request, out) = (self.keys, self.request, self.out);
        Ok(RunOptions { context, files: RunFiles { keys, request, out, checkpoint: None, spill: None } })
    }
}

/// Values with their names; their bytes are not copied.
type Given = Vec<(usize, PyBackedBytes)>;

fn borrowed(values: &Given) -> BTreeMap<usize, &[u8]> {
    values.iter().map(|(name, bytes)| (*name, &**bytes)).collect()
}

/// The driver of a run.
#[pyclass(frozen, module = "hushed._native")]
pub struct RunDriver(Arc<MachinesDriver>);

#[pymethods]
impl RunDriver {
    #[new]
    fn new(py: Python<'_>, files: Files) -> PyResult<Self> {
        let made = work::quietly(py, move || MachinesDriver::open(&files.options()?))?;
        made.map(|driver| Self(Arc::new(driver))).map_err(|error| errors::serve(py, &error))
    }

    /// The id of the request.
    #[getter]
    fn request(&self) -> String {
        self.0.request()
    }

    /// The name of program, plan, keys and request.
    #[getter]
    fn run(&self) -> String {
        self.0.run()
    }

    /// Whether the reply is there already.
    fn answered(&self, py: Python<'_>) -> PyResult<bool> {
        self.0.answered().map_err(|error| errors::serve(py, &error))
    }

    /// The run in ranges for so many machines, with `rate` bytes per second between two of them, as JSON.
    fn divide(&self, py: Python<'_>, machines: usize, rate: f64) -> PyResult<String> {
        let driver = Arc::clone(&self.0);
        let division = work::quietly(py, move || driver.divide(machines, rate))?;
        json(py, &division.map_err(|error| errors::serve(py, &error))?)
    }

    /// Seals and writes the reply, from the values of it. Returns its bytes and the seconds since the start.
    fn seal(&self, py: Python<'_>, list: &str, values: Given) -> PyResult<(u64, f64)> {
        let (driver, list) = (Arc::clone(&self.0), parsed::<WorkList>(py, list)?);
        let sealed = work::quietly(py, move || driver.seal(&list, &borrowed(&values)))?;
        let report = sealed.map_err(|error| errors::serve(py, &error))?;
        Ok((report.bytes, report.seconds))
    }
}

/// A machine's part of a run.
#[pyclass(frozen, module = "hushed._native")]
pub struct RunWorker(Arc<MachinesWorker>);

#[pymethods]
impl RunWorker {
    #[new]
    fn new(py: Python<'_>, files: Files, division: &str) -> PyResult<Self> {
        let division = parsed::<Division>(py, division)?;
        let made = work::quietly(py, move || MachinesWorker::open(&files.options()?, &division))?;
        made.map(|worker| Self(Arc::new(worker))).map_err(|error| errors::serve(py, &error))
    }

    /// The ranges, as JSON.
    fn list(&self, py: Python<'_>) -> PyResult<String> {
        json(py, self.0.list())
    }

    /// Runs a range with the values that it reads. Returns those that it makes, in the order of the list.
    fn run<'py>(&self, py: Python<'py>, range: usize, values: Given) -> PyResult<Vec<Bound<'py, PyByteArray>>> {
        let worker = Arc::clone(&self.0);
        let made = work::quietly(py, move || worker.run(range, &borrowed(&values)))?;
        let made = made.map_err(|error| errors::serve(py, &error))?;
        Ok(made.iter().map(|value| PyByteArray::new(py, value)).collect())
    }
}

fn json(py: Python<'_>, value: &impl serde::Serialize) -> PyResult<String> {
    serde_json::to_string(value).map_err(|error| errors::defect(py, &error.to_string()))
}

fn parsed<T: serde::de::DeserializeOwned>(py: Python<'_>, text: &str) -> PyResult<T> {
    serde_json::from_str(text).map_err(|error| errors::usage(py, "usage", &format!("not of a run: {error}")))
}
