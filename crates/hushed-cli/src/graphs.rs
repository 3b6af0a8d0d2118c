//! Folders with a graph (docs/networks.md): what `check` and `clear` say of them.

use std::path::Path;
use std::time::Instant;

use hushed_model::counted;
use hushed_model::graph::Node;
use hushed_model::{Graph, Tensor};
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::output::{Output, preview};

/// Why neither protocol runs a graph.
const CLEAR_ONLY: &str = "graphs run in the clear so far";

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
    let refused = json!({ "supported": false, "reason": CLEAR_ONLY });
    let object = json!({
        "supported": true, "protocols": [], "details": { "2pc": refused, "fhe": refused },
        "graph": { "nodes": nodes, "parameters": graph.parameters(), "inputs": inputs, "outputs": outputs },
    });
    out.result(object, || {
        format!(
            "supported in the clear only: a graph of {}, {} parameters; from {} to {}\n- 2pc, fhe: not supported: \
             {CLEAR_ONLY}",
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
    for (index, tensors) in inputs.iter().enumerate() {
        let answers = graph.run(tensors)?;
        let named = || graph.outputs().zip(&answers);
        let entries = named().map(|(node, answer)| (node.name.clone(), nested(answer.shape(), answer.data())));
        let object = json!({ "input_index": index, "outputs": entries.collect::<Map<_, _>>() });
        out.result(object, || {
            let shown: Vec<String> =
                named().map(|(n, a): (_, &Tensor)| format!("{} {}", n.name, preview(a.data()))).collect();
            format!("input {index}: {}", shown.join("; "))
        })?;
        bar.inc(1);
    }
    bar.finish_and_clear();
    let seconds = start.elapsed().as_secs_f64();
    out.summary(
        json!({ "inputs": inputs.len(), "seconds": seconds, "load_seconds": load_seconds }),
        &format!("{} in {seconds:.2} s, network read in {load_seconds:.2} s", counted(inputs.len(), "input")),
    )
}

/// The numbers as lists of this shape.
fn nested(shape: &[usize], data: &[f64]) -> Value {
    match shape {
        [] => json!(data.first()),
        [_] => json!(data),
        [_, inner @ ..] => {
            let size = inner.iter().product::<usize>().max(1);
            data.chunks(size).map(|part| nested(inner, part)).collect::<Vec<_>>().into()
        }
    }
}
