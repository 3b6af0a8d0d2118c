//! What is measured of a network on samples: a file that stays with the weights.
#![deny(clippy::unwrap_used, clippy::expect_used, clippy::indexing_slicing)]

use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::Path;

use hushed_lower::network::{Network, PartOp};
use hushed_model::graph::{GRAPH, Node};
use hushed_model::{Graph, Tensor, without_mark};
use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use crate::choices::ChoicesError;
use crate::error::FheError;
use crate::hex::hex;

/// The version that this program writes and reads.
const VERSION: u32 = 2;

/// Samples that are kept, for simulated runs.
const KEPT: usize = 4;

/// What samples reached. It holds some of the samples and says something about the weights.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct NetworkChoices {
    version: u32,
    /// SHA-256 of the folder's two files ([`network_sha256`]), in hexadecimal.
    pub network_sha256: String,
    /// How many samples were measured.
    pub samples: usize,
    /// The largest magnitude of a number of an input.
    pub input: f64,
    /// The largest magnitude of a number of an answer.
    pub answer: f64,
    /// The arguments of each function, by the name of its node: the least and the greatest.
    pub intervals: BTreeMap<String, [f64; 2]>,
    /// The largest magnitude of a factor of each square and product, by the name of its node.
    #[serde(default)]
    pub factors: BTreeMap<String, f64>,
    /// The first samples, of which runs are simulated.
    pub kept: Vec<Vec<f64>>,
}

/// SHA-256("hushed network 1" ‖ for both files of a network's folder the length and the bytes), in hexadecimal.
///
/// # Errors
/// Of reading.
pub fn network_sha256(folder: &Path) -> io::Result<String> {
    let mut digest = Sha256::new().chain_update(b"hushed network 1");
    for name in [GRAPH, "model.safetensors"] {
        let bytes = fs::read(folder.join(name))?;
        digest.update((bytes.len() as u64).to_le_bytes());
        digest.update(&bytes);
    }
    Ok(hex(&digest.finalize()))
}

impl NetworkChoices {
    /// What these samples reach.
    ///
    /// # Errors
    /// [`FheError::Unsupported`] without a sample or for several inputs; those of the network.
    pub fn measure(graph: &Graph, network_sha256: String, samples: &[Vec<Tensor>]) -> Result<NetworkChoices, FheError> {
        input_of(graph)?;
        if samples.is_empty() {
            return Err(FheError::Unsupported {
                what: "a network without samples".to_owned(),
                remedy: "give inputs like those to come",
            });
        }
        let network = Network::new(graph)?;
        let most = |numbers: &[f64]| numbers.iter().fold(0.0_f64, |most, v| most.max(v.abs()));
        let mut choices = NetworkChoices {
            version: VERSION,
            network_sha256,
            samples: samples.len(),
            input: 0.0,
            answer: 0.0,
            intervals: BTreeMap::new(),
            factors: BTreeMap::new(),
            kept: Vec::new(),
        };
        for sample in samples {
            let values = network.run(sample)?;
            let numbers = sample.first().map(Tensor::data).unwrap_or_default();
            choices.input = choices.input.max(most(numbers));
            if choices.kept.len() < KEPT {
                choices.kept.push(numbers.to_vec());
            }
            for &output in network.outputs() {
                choices.answer = choices.answer.max(values.get(output).map_or(0.0, |value| most(value)));
            }
            for part in network.parts() {
                let operands = part.operands.iter().filter_map(|&from| values.get(from)).flatten();
                match part.op {
                    PartOp::Function { .. } => {
                        let none = [f64::INFINITY, f64::NEG_INFINITY];
                        let reached = choices.intervals.entry(part.name.clone()).or_insert(none);
                        *reached = operands.fold(*reached, |[low, high], &v| [low.min(v), high.max(v)]);
                    }
                    PartOp::Square | PartOp::Mul => {
                        let reached = choices.factors.entry(part.name.clone()).or_insert(0.0);
                        *reached = operands.fold(*reached, |most, v| most.max(v.abs()));
                    }
                    PartOp::Input(_) | PartOp::Map { .. } | PartOp::Add => {}
                }
            }
        }
        choices.checked()
    }

    /// The bytes of the file.
    ///
    /// # Errors
    /// [`ChoicesError::NotJson`] for numbers that JSON does not have.
    pub fn to_json(&self) -> Result<Vec<u8>, FheError> {
        let mut bytes = serde_json::to_vec_pretty(self).map_err(ChoicesError::from)?;
        bytes.push(b'\n');
        Ok(bytes)
    }

    /// Reads a file that [`NetworkChoices::to_json`] wrote.
    ///
    /// # Errors
    /// [`FheError::Choices`].
    pub fn from_json(bytes: &[u8]) -> Result<NetworkChoices, FheError> {
        let choices: NetworkChoices = serde_json::from_slice(without_mark(bytes)).map_err(ChoicesError::from)?;
        choices.checked()
    }

    /// Refuses what no measurement gives.
    fn checked(self) -> Result<NetworkChoices, FheError> {
        let unusable = |what: String| Err(ChoicesError::Unusable { what }.into());
        if self.version != VERSION {
            return unusable(format!("version {}, and this program reads {VERSION}", self.version));
        }
        let all = self.intervals.values().flatten().chain(self.factors.values()).chain(self.kept.iter().flatten());
        if !all.chain([&self.input, &self.answer]).all(|v| v.is_finite()) || self.kept.is_empty() {
            return unusable("numbers that are not finite, or no samples".to_owned());
        }
        match self.intervals.iter().find(|(_, [low, high])| low > high) {
            Some((name, _)) => unusable(format!("the interval of {name} ends before it begins")),
            None => Ok(self),
        }
    }
}

/// The only input of a graph.
pub(super) fn input_of(graph: &Graph) -> Result<&Node, FheError> {
    let mut inputs = graph.inputs();
    match (inputs.next(), inputs.len()) {
        (Some(input), 0) => Ok(input),
        _ => Err(FheError::Unsupported {
            what: format!("a network of {} inputs", graph.inputs().len()),
            remedy: "make them one, and take them apart in the network",
        }),
    }
}
