//! Measurements of the steps of a model under CKKS with all slots full: 256 texts of 128 rows at N = 2^16 and 128 bits.
//!
//! A step first runs on shapes, which counts its rotations and products; keys are made for exactly these. Then it runs
//! on ciphertexts, and the result is compared with the clear. Seconds are for the whole batch; `seconds_per_text` is
//! the time that papers call amortised.

mod bed;
mod ccmm;
mod decoder;
mod ensi;
mod ffn;
mod heads;
mod layer;
mod llama;
mod long;
mod model;
mod network;
mod norm;
mod softmax;
mod text;

use serde_json::Value;

use crate::{BenchError, How};

pub use ccmm::ccmm;
pub use decoder::{sigmoids, ternary_products, turned};
pub use ffn::blocks;
pub use heads::heads;
pub use model::models;
pub use network::networks;
pub use norm::norms;
pub use softmax::softmaxes;
pub use text::texts;

/// Layers of encoders and decoders.
pub fn layers(how: How<'_>) -> Result<Vec<Value>, BenchError> {
    let mut rows = layer::layers(how)?;
    rows.extend(long::head(how)?);
    Ok(rows)
}
