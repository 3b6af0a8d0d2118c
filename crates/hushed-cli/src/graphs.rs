//! Folders with a graph (docs/networks.md): what `check` and `clear` say of them, and their runs under a key.

mod answers;
mod under_key;

use std::path::Path;
use std::time::Instant;

use hushed_model::counted;
use hushed_model::graph::Node;
use hushed_model::{Graph, Port};
use serde_json::{Value, json};

use crate::error::CliError;
use crate::output::Output;
use answers::shown;

pub use under_key::{Subject, calibrate, decrypt, encrypt, plan, run, verify};

/// Why 2pc does not run a graph.
const NOT_2PC: &str = "graphs run under fhe alone";

/// Everything that is wrong with a folder, or a summary of it.
pub fn check(folder: &Path, out: &Output) -> Result<(), CliError> {
    let graph = match Graph::load(folder) {
        Ok(graph) => graph,
        Err(error) => {
            out.problems(&error.problems)?;
            return Err(CliError::Unsupported { problems: error.problems.len() });
        }
    };
    let ports = |nodes: &mut dyn Iterator<Item = &Node>| -> (Vec<Value>, Vec<String>) {
        nodes.map(|n| (json!({ "name": n.name, "shape": n.shape }), format!("{} {:?}", n.name, n.shape))).unzip()
    };
    let (inputs, from) = ports(&mut graph.inputs());
    let (outputs, to) = ports(&mut graph.outputs());
    let nodes = graph.nodes().len() - inputs.len();
    let fhe = under_key::possible(&graph).err().map(|error| error.to_string());
    let said = |reason: Option<&str>| match reason {
        Some(reason) => json!({ "supported": false, "reason": reason }),
        None => json!({ "supported": true }),
    };
    let protocols: &[&str] = if fhe.is_none() { &["fhe"] } else { &[] };
    let object = json!({
        "supported": true, "protocols": protocols,
        "details": { "2pc": said(Some(NOT_2PC)), "fhe": said(fhe.as_deref()) },
        "graph": { "nodes": nodes, "parameters": graph.parameters(), "inputs": inputs, "outputs": outputs },
    });
    out.result(object, || {
        let fhe = fhe.map_or_else(|| "supported".to_owned(), |reason| format!("not supported: {reason}"));
        format!(
            "supported: a graph of {}, {} parameters; from {} to {}\n- 2pc: not supported: {NOT_2PC}\n- fhe: {fhe}",
            counted(nodes, "node"),
            graph.parameters(),
            from.join(", "),
            to.join(", ")
        )
    })
}

/// The answers to the inputs of a file.
pub fn clear(folder: &Path, bytes: &[u8], out: &Output) -> Result<(), CliError> {
    let start = Instant::now();
    let graph = Graph::load(folder).map_err(hushed_model::ModelError::from)?;
    let load_seconds = start.elapsed().as_secs_f64();
    let inputs = graph.read_inputs(bytes)?;
    let start = Instant::now();
    let bar = out.progress(inputs.len() as u64, "inputs");
    let ports: Vec<Port> = graph.outputs().map(Port::of).collect();
    for (index, tensors) in inputs.iter().enumerate() {
        let answers = graph.run(tensors)?;
        shown(out, index, &ports, &answers)?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    out.summary(
        json!({ "inputs": inputs.len(), "seconds": seconds, "load_seconds": load_seconds }),
        &format!("{} in {seconds:.2} s, network read in {load_seconds:.2} s", counted(inputs.len(), "input")),
    )
}
