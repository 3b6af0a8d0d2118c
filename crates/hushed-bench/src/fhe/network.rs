//! One image through the trained networks of `data/networks` (read from the current folder), on ciphertexts, beside the
//! same in the clear.

use std::fs;
use std::path::Path;
use std::time::Instant;

use hushed_fhe::FheError;
use hushed_fhe::network::{Circuit, NetworkChoices, Rehearsal, network_sha256};
use hushed_fhe::plan::reference;
use hushed_model::{Graph, ModelError, Tensor};
use serde_json::{Value, json};

use crate::ckks::with_threads;
use crate::suite::median;
use crate::{BenchError, How};

/// The folder of networks.
const DATA: &str = "data/networks";

/// One row per network.
pub fn networks(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let wanted = ["mlp", "cnn", "resnet"].into_iter().filter(|name| how.wants(&json!({ "network": name })));
    let mut rows = Vec::new();
    for name in wanted {
        rows.push(with_threads(how.threads, || one(name, how.runs, how.threads))?);
    }
    Ok(rows)
}

/// The inputs of a file.
fn inputs(graph: &Graph, path: &Path) -> Result<Vec<Vec<Tensor>>, BenchError> {
    let read = |source| FheError::Io { what: path.display().to_string(), source };
    let bytes = fs::read(path).map_err(read)?;
    let unfit = |error: hushed_model::graph::InputError| read(std::io::Error::other(error));
    Ok(graph.read_inputs(&bytes).map_err(unfit)?)
}

fn one(name: &str, runs: usize, threads: usize) -> Result<Value, BenchError> {
    let folder = Path::new(DATA).join(name);
    let graph = Graph::load(&folder).map_err(ModelError::from)?;
    let read = |source| FheError::Io { what: folder.display().to_string(), source };
    let samples = inputs(&graph, &folder.join("samples.jsonl"))?;
    let choices = NetworkChoices::measure(&graph, network_sha256(&folder).map_err(read)?, &samples)?;
    let circuit = Circuit::smallest(&graph, &choices, 1)?;
    let (set, declared) = (circuit.plan().parameters.clone(), circuit.plan().error);
    let (levels, refreshes) = (circuit.levels(), circuit.refreshes());
    let planned = circuit.seconds(&reference(threads));
    let start = Instant::now();
    let both = Rehearsal::new(circuit)?;
    let keys = start.elapsed().as_secs_f64();
    let (mut seconds, mut all, mut error) = (Vec::new(), Vec::new(), 0.0_f64);
    for input in inputs(&graph, &folder.join("held-out.jsonl"))?.iter().take(runs.max(1)) {
        let start = Instant::now();
        let found = both.answers(input)?;
        all.push(start.elapsed().as_secs_f64());
        seconds.push(found.seconds);
        let clear = graph.run(input)?;
        for (found, clear) in found.outputs.iter().flatten().zip(&clear) {
            let apart = found.data().iter().zip(clear.data()).map(|(a, b)| (a - b).abs());
            error = apart.fold(error, f64::max);
        }
    }
    Ok(json!({
        "name": "fhe-network", "set": set, "network": name, "levels": levels, "refreshes": refreshes, "threads": threads, "runs": seconds.len(),
        "seconds": median(seconds), "seconds_with_the_client": median(all), "planned_seconds": planned,
        "seconds_to_make_keys": keys, "error": error, "declared": declared,
    }))
}
