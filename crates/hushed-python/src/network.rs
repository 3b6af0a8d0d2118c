//! Networks under encryption, on files: what each party does, without the interpreter's lock.

use std::path::{Path, PathBuf};

use hushed_fhe::FheError;
use hushed_fhe::network::{Circuit, NetworkChoices, network_sha256};
use hushed_model::graph::{InputError, read_inputs};
use hushed_model::{Graph, ModelError, Tensor};
use hushed_serve::ServeError;
use hushed_serve::fhe::{
    ContextOptions, FheJobError, KeygenOptions, RunFiles, RunOptions, decrypt_outputs, default_secret, encrypt_inputs,
    keygen, network_client, run_network, write_calibration, write_network_plan,
};
use pyo3::prelude::*;

use crate::{errors, work};

/// Why a call failed.
enum Fault {
    Serve(Box<ServeError>),
    Inputs(InputError),
}

impl<E: Into<ServeError>> From<E> for Fault {
    fn from(error: E) -> Fault {
        Fault::Serve(Box::new(error.into()))
    }
}

fn of_run(error: FheError) -> Fault {
    FheJobError::from(error).into()
}

fn done<T>(py: Python<'_>, call: PyResult<Result<T, Fault>>) -> PyResult<T> {
    call?.map_err(|fault| match fault {
        Fault::Serve(error) => errors::serve(py, &error),
        Fault::Inputs(error) => {
            errors::exception(py, 3, "inputs-refused", &format!("the inputs were refused: {error}"))
        }
    })
}

/// Measures samples (the bytes of a `.npy` file or of JSON Lines), chooses parameters and writes the calibration and
/// the manifest. Returns the levels that are used.
#[pyfunction]
pub fn network_plan(
    py: Python<'_>,
    folder: PathBuf,
    samples: Vec<u8>,
    inputs: usize,
    parameters: Option<String>,
    calibration: PathBuf,
    manifest: PathBuf,
) -> PyResult<usize> {
    let call = work::quietly(py, move || -> Result<usize, Fault> {
        let graph = Graph::load(&folder).map_err(ModelError::from)?;
        let samples = graph.read_inputs(&samples).map_err(Fault::Inputs)?;
        let hash = network_sha256(&folder);
        let hash = hash.map_err(|source| ServeError::File { operation: "read", path: folder.clone(), source })?;
        let choices = NetworkChoices::measure(&graph, hash, &samples).map_err(of_run)?;
        let circuit = match &parameters {
            Some(name) => Circuit::new(&graph, &choices, inputs, name),
            None => Circuit::smallest(&graph, &choices, inputs),
        };
        let circuit = circuit.map_err(of_run)?;
        write_calibration(&calibration, &choices)?;
        write_network_plan(&manifest, circuit.plan())?;
        Ok(circuit.levels())
    });
    done(py, call)
}

/// Makes keys in a new folder. Returns their id.
#[pyfunction]
pub fn network_keygen(py: Python<'_>, manifest: PathBuf, keys: PathBuf, days: u32) -> PyResult<String> {
    let call = work::quietly(py, move || -> Result<String, Fault> {
        Ok(keygen(&manifest, &keys, KeygenOptions::days(days), &mut |_, _| ())?.id)
    });
    done(py, call)
}

/// Encrypts inputs (the bytes of a `.npy` file or of JSON Lines) into a file. Returns how many they are.
#[pyfunction]
pub fn network_encrypt(
    py: Python<'_>,
    manifest: PathBuf,
    keys: PathBuf,
    inputs: Vec<u8>,
    request: PathBuf,
) -> PyResult<usize> {
    let call = work::quietly(py, move || -> Result<usize, Fault> {
        let port = network_client(&manifest)?.plan().input.clone();
        let inputs = read_inputs(&[port], &inputs).map_err(Fault::Inputs)?;
        let inputs: Vec<Tensor> = inputs.into_iter().flatten().collect();
        encrypt_inputs(&manifest, &keys, &inputs, &request)?;
        Ok(inputs.len())
    });
    done(py, call)
}

/// Runs a request and writes the reply. Returns the seconds of the circuit.
#[pyfunction]
#[expect(clippy::too_many_arguments, reason = "arguments of the Python function")]
pub fn network_run(
    py: Python<'_>,
    folder: PathBuf,
    calibration: PathBuf,
    manifest: PathBuf,
    keys: PathBuf,
    request: PathBuf,
    reply: PathBuf,
    threads: Option<usize>,
) -> PyResult<f64> {
    let call = work::quietly(py, move || -> Result<f64, Fault> {
        let secret = default_secret().ok_or(FheJobError::NoStateFolder)?;
        let context = ContextOptions { model: folder, plan: manifest, calibration, secret, max_memory: None, threads };
        let files = RunFiles { keys, request, out: reply, checkpoint: None, spill: None };
        Ok(run_network(&RunOptions { context, files }, &|_| ())?.seconds)
    });
    done(py, call)
}

/// The answers in a reply: for each input and each output its shape and its numbers.
#[pyfunction]
#[expect(clippy::type_complexity, reason = "lists of tensors")]
pub fn network_decrypt(
    py: Python<'_>,
    manifest: PathBuf,
    keys: PathBuf,
    reply: PathBuf,
) -> PyResult<Vec<Vec<(Vec<usize>, Vec<f64>)>>> {
    let call = work::quietly(py, move || -> Result<_, Fault> {
        let opened = decrypt_outputs(&manifest, &keys, &reply)?;
        let plain = |tensor: Tensor| (tensor.shape().to_vec(), tensor.data().to_vec());
        Ok(opened.outputs.into_iter().map(|all| all.into_iter().map(plain).collect()).collect())
    });
    done(py, call)
}

/// Whether a folder holds a network.
#[pyfunction]
pub fn is_network(folder: PathBuf) -> bool {
    Graph::is_in(Path::new(&folder))
}
