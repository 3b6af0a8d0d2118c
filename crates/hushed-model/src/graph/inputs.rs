//! Inputs of a graph from a file: JSON Lines, or one array of numpy (`.npy`). They are read by names and shapes alone,
//! which a client has.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use serde_json::Value;

use super::shapes::product;
use super::{Graph, Port, Tensor};
use crate::folder::{json_fault, without_mark};

/// Why inputs were refused. Never contains their numbers.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InputError {
    /// A line is not JSON.
    #[error("line {line}: {why}")]
    NotJson {
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        why: &'static str,
    },
    /// A line is neither numbers nor an object with them.
    #[error("line {line}: expected {expected}")]
    Line {
        /// Counted from 1.
        line: usize,
        /// What the graph takes.
        expected: String,
    },
    /// Another number of numbers, or not all are finite.
    #[error("line {line}: the input {input} takes {count} finite numbers, in the shape {shape:?} or as one list")]
    Numbers {
        /// Counted from 1.
        line: usize,
        /// Its name.
        input: String,
        /// How many it takes.
        count: usize,
        /// Its shape.
        shape: Vec<usize>,
    },
    /// Not the format of numpy, or numbers of another type.
    #[error("the .npy file has {what}; f4 and f8 in C order are read (`numpy.save` of a float array)")]
    Npy {
        /// Such as `a header that is not numpy's`.
        what: &'static str,
    },
    /// An array of another shape.
    #[error("the .npy file has the shape {found:?}; expected is {expected:?} for each input, after one dimension more")]
    NpyShape {
        /// The actual shape.
        found: Vec<usize>,
        /// The shape of the graph's input.
        expected: Vec<usize>,
    },
    /// Several inputs, for which one array is not enough.
    #[error("the network takes {inputs} inputs, and a .npy file has one: give JSON Lines")]
    Several {
        /// How many.
        inputs: usize,
    },
    /// An array with a number that is no number.
    #[error("the .npy file has an infinity or NaN")]
    NotFinite,
    /// Nothing.
    #[error("the file has no inputs")]
    Empty,
}

/// How files of numpy begin.
const NPY: &[u8] = b"\x93NUMPY";

impl Graph {
    /// The inputs of a file, as [`read_inputs`].
    ///
    /// # Errors
    /// [`InputError`].
    pub fn read_inputs(&self, bytes: &[u8]) -> Result<Vec<Vec<Tensor>>, InputError> {
        read_inputs(&self.inputs().map(Port::of).collect::<Vec<_>>(), bytes)
    }
}

/// The inputs of a file, each with one tensor per port: JSON Lines, where a line is a list of numbers (nested or flat)
/// or an object of such lists by the ports' names, or an array of numpy whose first dimension counts them.
///
/// # Errors
/// [`InputError`].
pub fn read_inputs(ports: &[Port], bytes: &[u8]) -> Result<Vec<Vec<Tensor>>, InputError> {
    let inputs = match bytes.starts_with(NPY) {
        true => npy(ports, bytes)?,
        false => {
            let lines = without_mark(bytes).split(|&b| b == b'\n').enumerate();
            let lines = lines.filter(|(_, line)| !line.trim_ascii().is_empty());
            lines.map(|(at, text)| line(ports, at + 1, text)).collect::<Result<_, _>>()?
        }
    };
    match inputs.is_empty() {
        true => Err(InputError::Empty),
        false => Ok(inputs),
    }
}

fn line(ports: &[Port], line: usize, text: &[u8]) -> Result<Vec<Tensor>, InputError> {
    let value: Value = serde_json::from_slice(text).map_err(|e| InputError::NotJson { line, why: json_fault(&e) })?;
    let names: Vec<&str> = ports.iter().map(|port| port.name.as_str()).collect();
    let expected = || {
        let entries: Vec<String> = names.iter().map(|name| format!("{name:?}: […]")).collect();
        let object = format!("an object {{{}}}", entries.join(", "));
        let expected = if names.len() == 1 { format!("a list of numbers, or {object}") } else { object };
        InputError::Line { line, expected }
    };
    let given: Vec<&Value> = match &value {
        Value::Array(_) if names.len() == 1 => vec![&value],
        Value::Object(object) if object.len() == names.len() => {
            names.iter().map(|name| object.get(*name)).collect::<Option<_>>().ok_or_else(expected)?
        }
        _ => return Err(expected()),
    };
    let tensors = ports.iter().zip(given).map(|(node, value)| {
        let count = product(&node.shape).unwrap_or(0);
        let mut data = Vec::with_capacity(count.min(text.len()));
        let read = nested(value, &node.shape, &mut data) || {
            data.clear();
            nested(value, &[count], &mut data)
        };
        let tensor = Tensor::new(node.shape.clone(), data).filter(|_| read);
        let (input, shape) = (node.name.clone(), node.shape.clone());
        tensor.ok_or(InputError::Numbers { line, input, count, shape })
    });
    tensors.collect()
}

/// Version 1 to 3: magic, two bytes of version, the length of the header in two bytes or four, the header, numbers.
fn npy(ports: &[Port], bytes: &[u8]) -> Result<Vec<Vec<Tensor>>, InputError> {
    let refused = |what| InputError::Npy { what };
    let cut = || refused("a header that is not numpy's");
    let [node] = ports else {
        return Err(InputError::Several { inputs: ports.len() });
    };
    let (&major, rest) = bytes.get(NPY.len()..).and_then(<[u8]>::split_first).ok_or_else(cut)?;
    let rest = rest.get(1..).ok_or_else(cut)?;
    let (length, rest) = match major {
        1 => rest.split_first_chunk::<2>().map(|(n, rest)| (usize::from(u16::from_le_bytes(*n)), rest)),
        _ => rest.split_first_chunk::<4>().map(|(n, rest)| (u32::from_le_bytes(*n) as usize, rest)),
    }
    .ok_or_else(cut)?;
    let (header, data) = rest.split_at_checked(length).ok_or_else(cut)?;
    let header = std::str::from_utf8(header).map_err(|_| cut())?;
    let after = |key: &str| header.split_once(key).map(|(_, rest)| rest.trim_start());
    let kind = after("'descr':").ok_or_else(cut)?;
    let wide = match kind {
        _ if kind.starts_with("'<f4'") => false,
        _ if kind.starts_with("'<f8'") => true,
        _ => return Err(refused("numbers of another type")),
    };
    if !after("'fortran_order':").ok_or_else(cut)?.starts_with("False") {
        return Err(refused("columns before rows"));
    }
    let shape = after("'shape':").and_then(|rest| rest.strip_prefix('(')?.split_once(')')).ok_or_else(cut)?.0;
    let sizes = shape.split(',').map(str::trim).filter(|size| !size.is_empty());
    let found: Vec<usize> = sizes.map(str::parse).collect::<Result<_, _>>().map_err(|_| cut())?;
    // One input without the dimension that counts them is one.
    let alone = found == node.shape;
    if !alone && found.get(1..) != Some(node.shape.as_slice()) {
        return Err(InputError::NpyShape { found, expected: node.shape.clone() });
    }
    let numbers: Vec<f64> = match wide {
        true => data.as_chunks::<8>().0.iter().map(|&b| f64::from_le_bytes(b)).collect(),
        false => data.as_chunks::<4>().0.iter().map(|&b| f32::from_le_bytes(b).into()).collect(),
    };
    if product(&found) != Some(numbers.len()) {
        return Err(refused("more or fewer numbers than its shape"));
    }
    if !numbers.iter().all(|v| v.is_finite()) {
        return Err(InputError::NotFinite);
    }
    let each = numbers.chunks_exact(product(&node.shape).unwrap_or(1).max(1));
    let tensors = each.map(|data| Tensor::new(node.shape.clone(), data.to_vec()).map(|t| vec![t]));
    tensors.collect::<Option<_>>().ok_or(InputError::Empty)
}

/// An array of numpy (`.npy`, version 1, f8) with these numbers.
pub fn to_npy(shape: &[usize], numbers: &[f64]) -> Vec<u8> {
    let sizes: String = shape.iter().map(|size| format!("{size},")).collect();
    let header = format!("{{'descr': '<f8', 'fortran_order': False, 'shape': ({sizes}), }}");
    // Magic, version, length and header take a multiple of 64 bytes; the header ends with a new line.
    let before = NPY.len() + 4;
    let length = (before + header.len() + 1).next_multiple_of(64) - before;
    let mut bytes = [NPY, &[1, 0], &(length as u16).to_le_bytes()].concat();
    bytes.extend_from_slice(format!("{header:<width$}\n", width = length - 1).as_bytes());
    bytes.extend(numbers.iter().flat_map(|v| v.to_le_bytes()));
    bytes
}

/// Appends the numbers of nested lists of this shape; `false` if it is another, or a number is not finite.
fn nested(value: &Value, shape: &[usize], to: &mut Vec<f64>) -> bool {
    match (shape.split_first(), value) {
        (None, Value::Number(_)) => {
            let number = value.as_f64().filter(|number| number.is_finite());
            to.extend(number);
            number.is_some()
        }
        (Some((&size, inner)), Value::Array(list)) => {
            list.len() == size && list.iter().all(|value| nested(value, inner, to))
        }
        _ => false,
    }
}
