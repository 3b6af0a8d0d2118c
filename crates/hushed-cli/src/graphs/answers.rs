//! How the answers of a network are shown.

use hushed_model::{Port, Tensor};
use serde_json::{Map, Value, json};

use crate::error::CliError;
use crate::output::{Output, preview};

/// Prints the answers to an input, one per output.
pub fn shown(out: &Output, index: usize, ports: &[Port], answers: &[Tensor]) -> Result<(), CliError> {
    let named = || ports.iter().zip(answers);
    let entries = named().map(|(port, answer)| (port.name.clone(), nested(answer.shape(), answer.data())));
    let object = json!({ "input_index": index, "outputs": entries.collect::<Map<_, _>>() });
    out.result(object, || {
        let shown: Vec<String> = named().map(|(port, a)| format!("{} {}", port.name, preview(a.data()))).collect();
        format!("input {index}: {}", shown.join("; "))
    })
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
