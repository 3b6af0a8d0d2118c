//! What differs between architectures: names of fields and tensors, where positions begin, the head. All encoders
//! compute the same, [`Network`](crate::Network), so a new encoder is a table in a file of its own.

mod bert;
mod distilbert;
mod gpt2;
mod llama;
mod names;
mod roberta;
mod vit;

use names::{Encoder, Names};

/// Which names a folder uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Architecture {
    /// `bert`.
    Bert,
    /// `roberta` and `xlm-roberta`.
    Roberta,
    /// `distilbert`.
    DistilBert,
    /// `gpt2`.
    Gpt2,
    /// `llama`.
    Llama,
    /// `bitnet`.
    BitNet,
    /// `vit`.
    Vit,
}

/// What a model is used for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Task {
    /// One vector per text.
    Embed,
    /// One number per class, for a text or an image.
    Classify,
    /// The continuation of a text, token by token.
    Generate,
}

/// By `model_type`.
pub(crate) const MODEL_TYPES: [(&str, Architecture); 8] = [
    ("bert", Architecture::Bert),
    ("roberta", Architecture::Roberta),
    ("xlm-roberta", Architecture::Roberta),
    ("distilbert", Architecture::DistilBert),
    ("gpt2", Architecture::Gpt2),
    ("llama", Architecture::Llama),
    ("bitnet", Architecture::BitNet),
    ("vit", Architecture::Vit),
];

impl Architecture {
    /// Its `model_type` in `config.json`; the first one if there are several.
    pub(crate) fn model_type(self) -> &'static str {
        let mut types = MODEL_TYPES.iter();
        types.find(|(_, a)| *a == self).map_or("", |(name, _)| name)
    }

    /// Whether it is a LLaMA-like decoder: rotary positions, RMSNorm, a gate.
    pub(crate) fn like_llama(self) -> bool {
        matches!(self, Architecture::Llama | Architecture::BitNet)
    }

    /// Whether it continues texts.
    pub(crate) fn decodes(self) -> bool {
        self == Architecture::Gpt2 || self.like_llama()
    }

    /// Whether it reads images.
    pub(crate) fn sees(self) -> bool {
        self == Architecture::Vit
    }

    pub(crate) fn names(self) -> &'static Names {
        match self {
            Architecture::Bert => &bert::NAMES,
            Architecture::Roberta => &roberta::NAMES,
            Architecture::DistilBert => &distilbert::NAMES,
            Architecture::Gpt2 => &gpt2::NAMES,
            Architecture::Llama | Architecture::BitNet => &llama::NAMES,
            Architecture::Vit => &vit::NAMES,
        }
    }

    /// The names of an encoder's parts. Other architectures get BERT's, which do as well where no folder is read.
    pub(crate) fn encoder(self) -> &'static Encoder {
        self.names().encoder.as_ref().unwrap_or(&bert::ENCODER)
    }
}
