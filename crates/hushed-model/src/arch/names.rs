//! The names of an architecture's parts.

use crate::blocks::Activation;

/// The names of an architecture's parts.
pub(crate) struct Names {
    pub fields: Fields,
    /// `None`: not a text encoder.
    pub encoder: Option<Encoder>,
    /// Positions begin at the row after that of the padding id, which is this one unless `config.json` says otherwise.
    pub positions_after_padding: Option<u32>,
}

/// Names that only encoders have.
pub(crate) struct Encoder {
    pub tensors: Tensors,
    pub head: Head,
}

/// Fields of `config.json`.
pub(crate) struct Fields {
    pub layers: &'static str,
    pub width: &'static str,
    pub heads: &'static str,
    pub hidden: &'static str,
    pub activation: &'static str,
    pub positions: &'static str,
    /// `None`: no table of token types.
    pub token_types: Option<&'static str>,
    /// `None`: ε is always the default.
    pub epsilon: Option<&'static str>,
}

/// Tensors of the encoder. Those of a layer are under [`Tensors::layers`] and its number, with `.weight` or `.bias`
/// appended.
pub(crate) struct Tensors {
    pub layers: &'static str,
    pub query: &'static str,
    pub key: &'static str,
    pub value: &'static str,
    pub output: &'static str,
    pub attention_norm: &'static str,
    pub up: &'static str,
    pub down: &'static str,
    pub feed_forward_norm: &'static str,
}

/// The head of a classifier: two linear maps of the first row with an activation in between.
pub(crate) struct Head {
    /// Entries of `architectures` that mean this head.
    pub architectures: &'static [&'static str],
    pub dense: &'static str,
    pub activation: Activation,
    pub classes: &'static str,
}
